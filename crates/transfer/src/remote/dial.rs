//! Connects to a node: opens the socket, and exchanges preface (protocol identification), hello and welcome. Each way
//! in which this can fail has its own error message.

use super::ClientOptions;
use super::connection::{Connection, Greeting, Patience};
use super::connector::Connector;
use super::mailbox::Unread;
use super::trust;
use crate::{PoolUrl, Takes};
use bytes::{Buf, BytesMut};
use farpool_model::{Error, Result, limits};
use farpool_wire::sealed::{self, Proof};
use farpool_wire::{
    Assembler, FrameHeader, FrameKind, Message, PREFACE, Request, Response, Sealing, Socket, Tls,
    VERSION_MAX, VERSION_MIN, check_preface, split_frame,
};
use std::io::{self, ErrorKind};
use std::sync::Arc;
use std::time::Duration;
use tokio::time::timeout;

/// The common settings of all connections to one node.
pub(super) struct Dialer {
    url: PoolUrl,
    options: ClientOptions,
    connector: Arc<dyn Connector>,
    pub(super) patience: Patience,
    unread: Arc<Unread>,
}

impl Dialer {
    /// Creates a dialer for the node at `url`, which `connector` reaches.
    pub fn new(url: &PoolUrl, options: ClientOptions, connector: Arc<dyn Connector>) -> Self {
        let (patience, unread) = Default::default();
        Dialer { url: url.clone(), options, connector, patience, unread }
    }

    /// Returns whether the node must encrypt its answers to this client.
    pub fn is_sealed(&self) -> bool {
        self.options.sealed.is_some()
    }

    /// Returns the node's address.
    pub fn url(&self) -> &PoolUrl {
        &self.url
    }

    /// Connects to the node and completes the handshake.
    ///
    /// # Errors
    /// `Unavailable` if no node answers at the address; `Denied` if the node refuses the token.
    pub async fn dial(&self) -> Result<Connection> {
        let url = &self.url;
        let patience = Duration::from_millis(limits::HANDSHAKE_MS_MAX);
        let socket = match timeout(patience, self.connector.connect()).await {
            Ok(Ok(socket)) => socket,
            Ok(Err(error)) => return Err(unreachable(url, &error)),
            Err(_) => return Err(silent(url, "does not answer")),
        };
        let greeted = timeout(patience, async {
            let socket = if url.is_encrypted() { self.encrypt(socket).await? } else { socket };
            let (received, greeting, sealing) = self.hello(&*socket).await?;
            if let Some(proof) = &self.options.sealed {
                check_sealing(url, proof, sealing)?;
            }
            Result::Ok((socket, received, greeting))
        });
        let (socket, received, greeting) = greeted
            .await
            .map_err(|_| silent(url, "accepts connections but does not say that it is a farpool pool"))??;
        let (place, unread) = (url.to_string(), self.unread.clone());
        let shown = sealed::shown(self.options.token.as_deref());
        let sealed = self.options.sealed.clone().map(|proof| (proof, shown));
        Ok(Connection::start(socket, received, place, self.patience, unread, greeting, sealed))
    }

    /// Performs the TLS handshake over `socket`; returns the encrypted socket.
    async fn encrypt(&self, socket: Arc<dyn Socket>) -> Result<Arc<dyn Socket>> {
        let tls = match &self.options.tls {
            Some(tls) => tls.clone(),
            None => trust::of_system().await?,
        };
        let encrypted = Tls::connect(socket, self.url.host(), &tls).await;
        Ok(Arc::new(encrypted.map_err(|error| error.at(&self.url))?))
    }

    /// Sends the hello and waits for the node's welcome. Returns the bytes that came after the welcome, the node's
    /// identity, and how it encrypts answers to this client, if it does.
    async fn hello(&self, socket: &dyn Socket) -> Result<(BytesMut, Greeting, Option<Sealing>)> {
        let url = &self.url;
        let milliseconds = |time: Duration| u64::try_from(time.as_millis()).unwrap_or(u64::MAX).max(1);
        let request = Request::Hello {
            version_min: VERSION_MIN,
            version_max: VERSION_MAX,
            token: self.options.token.clone(),
            timeout_ms: self.options.timeout.map(milliseconds),
            client: concat!("farpool ", env!("CARGO_PKG_VERSION")).to_string(),
        };
        let mut bytes = PREFACE.to_vec();
        for message in request.encode()? {
            message.frames(0).iter().for_each(|piece| bytes.extend_from_slice(piece));
        }
        // If writing fails, the error is reported below, after any message that explains why the node closed the
        // connection.
        let written = socket.write_all(&bytes).await;
        let mut received = BytesMut::with_capacity(4096);
        while !check_preface(&received).map_err(|error| stranger(url, error))? {
            if read(socket, &mut received).await? == 0 {
                return Err(written.err().map_or_else(|| hung_up(url), |error| unreachable(url, &error)));
            }
        }
        received.advance(PREFACE.len());
        let (greeting, sealing) = welcome(socket, &mut received, url).await?;
        Ok((received, greeting, sealing))
    }
}

/// Checks, before any request, that the node says that it will encrypt its answers, with the key that the client
/// expects. An attacker could change what the node says, but gains nothing: the client then refuses, or cannot decrypt
/// the answers.
fn check_sealing(url: &PoolUrl, proof: &Proof, sealing: Option<Sealing>) -> Result<()> {
    let Some(Sealing { node_key }) = sealing else {
        return Err(Error::invalid(format!("the node at {url} does not encrypt results"))
            .advise("upgrade the node, or leave --encrypt-results away"));
    };
    match (proof, node_key) {
        (Proof::NodeKey(expected), Some(found)) if *expected == found => Ok(()),
        (Proof::NodeKey(_), Some(found)) => {
            let message = format!("the node at {url} has another key than the one to be expected: {found}");
            Err(Error::new(farpool_model::ErrorKind::Denied, message)
                .advise("ask whoever runs the node for its key, over another way than this one"))
        }
        (Proof::NodeKey(_), None) => Err(Error::invalid(format!("the node at {url} has no key of its own"))
            .advise("start it with --node-key-file, or with --data-dir")),
        (Proof::Token(_), _) if url.is_encrypted() => Ok(()),
        (Proof::Token(_), _) => {
            let message = "over farpool:// the token is sent in the clear, and proves nothing about the node";
            Err(Error::invalid(message).advise("name the node's key with --node-key, or use farpools://"))
        }
    }
}

async fn welcome(
    socket: &dyn Socket,
    received: &mut BytesMut,
    url: &PoolUrl,
) -> Result<(Greeting, Option<Sealing>)> {
    let message = first_message(socket, received, url).await?;
    match Response::decode(&message, None).map_err(|error| error.at(url))? {
        Response::Hello { version, instance, newest, sealing, lookups, having, .. }
            if (VERSION_MIN..=VERSION_MAX).contains(&version) =>
        {
            let takes = Takes { lookups, having };
            Ok((Greeting { instance, newest, takes }, sealing))
        }
        Response::Hello { version, .. } => Err(Error::invalid(format!(
            "{url} speaks version {version} of the protocol, this program {VERSION_MIN} to {VERSION_MAX}"
        ))
        .advise("upgrade the older of the two")),
        Response::Error(error) => Err(error.at(url)),
        other => Err(Error::corrupt(format!("{url} greets with {}", other.kind().name()))),
    }
}

async fn first_message(socket: &dyn Socket, received: &mut BytesMut, url: &PoolUrl) -> Result<Message> {
    let mut assembler = Assembler::new();
    loop {
        while let Some((header, payload)) = split_frame(received).map_err(|error| error.at(url))? {
            check_greeting(header, url)?;
            if let Some(message) = assembler.push(header, payload).map_err(|error| error.at(url))? {
                return Ok(message);
            }
        }
        if read(socket, received).await? == 0 {
            return Err(hung_up(url));
        }
    }
}

/// Checks the first frame of the node: only a welcome or an error may come first, so that a process that is no node
/// cannot make the client receive large messages.
fn check_greeting(FrameHeader { kind, stream, .. }: FrameHeader, url: &PoolUrl) -> Result<()> {
    match kind {
        FrameKind::Welcome | FrameKind::Error if stream == 0 => Ok(()),
        _ => Err(Error::corrupt(format!("{url} greets with {} on stream {stream}", kind.name()))),
    }
}

/// Reads some bytes; returns 0 if the connection has ended or was reset.
async fn read(socket: &dyn Socket, received: &mut BytesMut) -> Result<usize> {
    received.reserve(4096);
    Ok(socket.read(received).await.unwrap_or(0))
}

fn unreachable(url: &PoolUrl, error: &io::Error) -> Error {
    let (message, advice) = match error.kind() {
        ErrorKind::ConnectionRefused => (
            format!("nothing listens at {url}: connection refused"),
            "start a pool there with `farpool serve`, or check host and port",
        ),
        // The error for a host name that does not resolve has no kind of its own.
        ErrorKind::Other | ErrorKind::InvalidInput | ErrorKind::NotFound => {
            (format!("cannot find the host of {url}: {error}"), "check the name of the host")
        }
        _ => (format!("cannot reach {url}: {error}"), "check host, port and network"),
    };
    Error::unavailable(message).advise(advice)
}

fn silent(url: &PoolUrl, what: &str) -> Error {
    let seconds = limits::HANDSHAKE_MS_MAX / 1000;
    Error::unavailable(format!("{url} {what} within {seconds} s"))
        .advise("check host and port, and whether the machine is overloaded or a firewall stands between")
}

fn stranger(url: &PoolUrl, error: Error) -> Error {
    let who = error.message.strip_prefix("the peer ").unwrap_or(&error.message);
    let mut stranger = Error::unavailable(format!("{url} answers but {who}"));
    stranger.advice = error.advice;
    stranger
}

fn hung_up(url: &PoolUrl) -> Error {
    Error::unavailable(format!("{url} answers but hangs up before it says hello"))
        .advise("check that it is a farpool pool, and whether it has too many connections")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{PublicKey, TokenKey};

    #[test]
    fn a_node_that_cannot_do_what_is_wanted_is_not_asked() {
        let (open, tls): (PoolUrl, PoolUrl) =
            ("farpool://a:1".parse().unwrap(), "farpools://a:1".parse().unwrap());
        let own = PublicKey([7; 32]);
        let token = TokenKey::of(&format!("fp_{}", "5b".repeat(32))).unwrap();
        let (by_key, by_token) = (Proof::NodeKey(own), Proof::Token(Arc::new(token)));
        let with = |node_key| Some(Sealing { node_key });
        check_sealing(&open, &by_key, with(Some(own))).unwrap();
        check_sealing(&tls, &by_token, with(None)).unwrap();
        for (url, proof, sealing, said) in [
            (&open, &by_key, None, "does not encrypt results"),
            (&tls, &by_token, None, "does not encrypt results"),
            (&open, &by_key, with(None), "has no key"),
            (&open, &by_key, with(Some(PublicKey([8; 32]))), "another key"),
            (&open, &by_token, with(Some(own)), "in the clear"),
        ] {
            let error = check_sealing(url, proof, sealing).unwrap_err();
            assert!(error.message.contains(said) && error.advice.is_some(), "{error}");
        }
    }
}
