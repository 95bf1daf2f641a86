//! The handshake of a connection: detects which protocol the peer speaks, agrees on a version, and authenticates the
//! client. Also closes refused connections in a way that lets the peer read the reason.

use crate::node::{AccessPass, ConnectionGuard};
use crate::queries::Identity;
use crate::shares::Port;
use crate::{Caller, Node};
use bytes::{Buf, BytesMut};
use farpool_model::{Error, ErrorKind, Result, limits};
use farpool_wire::sealed::{self, TokenKey};
use farpool_wire::{
    Assembler, DetectedProtocol, Message, NO_ENCRYPTION, Outgoing, PREFACE, Request, Response, Sealing,
    ServerTls, Socket, Tls, negotiate, opening, reply_to_stranger, split_frame,
};
use std::io;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::timeout;

/// Maximum time that a refused peer gets to read the reason before its connection is closed.
pub(super) const FAREWELL: Duration = Duration::from_secs(1);

/// Bytes per read during the handshake; the hello (the client's first message) is small.
const READ_BYTES: usize = 4096;

/// The result of the handshake of a new connection.
pub(super) enum Greeting {
    /// The client was authenticated, and the connection can serve requests.
    Welcome(Box<Client>),
    /// The peer was refused: its socket, the bytes to send before closing it, and the reason.
    Refused(Arc<dyn Socket>, Vec<u8>, Error),
    /// The peer closed the connection before its hello.
    Gone,
}

/// The connection of an authenticated client.
pub(super) struct Client {
    pub socket: Arc<dyn Socket>,
    pub caller: Caller,
    /// Tells when the connection must end because the client's token is no longer valid.
    pub pass: AccessPass,
    /// Bytes that were received after the hello.
    pub received: BytesMut,
    /// Guard that counts the connection as one of its tenant until it is dropped.
    pub guard: ConnectionGuard,
}

/// The state of a handshake in progress.
struct GreetingState {
    /// The accepted socket, or TLS over it.
    socket: Arc<dyn Socket>,
    received: BytesMut,
    /// Whether a message is being written. No error is sent then, because the peer would take the bytes of the error
    /// for the rest of the message.
    is_answering: bool,
}

/// Performs the handshake of an accepted connection, within [`limits::HANDSHAKE_MS_MAX`].
pub(super) async fn greet(socket: Arc<dyn Socket>, node: &Arc<Node>) -> Greeting {
    let patience = Duration::from_millis(limits::HANDSHAKE_MS_MAX);
    let mut stage = GreetingState { socket, received: BytesMut::new(), is_answering: false };
    match timeout(patience, exchange(&mut stage, node)).await {
        Ok(greeting) => greeting.unwrap_or(Greeting::Gone),
        Err(_) if stage.is_answering => Greeting::Gone,
        Err(_) => {
            let seconds = limits::HANDSHAKE_MS_MAX / 1000;
            stage.refuse(Error::unavailable(format!("there was no hello within {seconds} s")))
        }
    }
}

/// Sends `bytes`, then waits up to [`FAREWELL`] for the peer to close the connection. Reason: closing a socket with
/// unread input can discard the bytes sent last.
pub(super) async fn part(socket: &dyn Socket, bytes: &[u8]) {
    let parting = async {
        socket.write_all(bytes).await?;
        socket.end_writing()?;
        let mut ignored = BytesMut::with_capacity(READ_BYTES);
        while socket.read(&mut ignored).await? > 0 {
            ignored.clear();
        }
        io::Result::Ok(())
    };
    drop(timeout(FAREWELL, parting).await);
}

/// Returns the bytes that tell a client an error about the connection as a whole: the preface of the protocol and the
/// error.
pub(super) fn error_bytes(error: &Error) -> Vec<u8> {
    let mut bytes = PREFACE.to_vec();
    if let Ok(messages) = Response::Error(error.clone()).encode() {
        messages.into_iter().for_each(|message| write(&mut bytes, message));
    }
    bytes
}

async fn exchange(stage: &mut GreetingState, node: &Arc<Node>) -> io::Result<Greeting> {
    let tls = node.tls();
    let mut opened = stage.opening().await?;
    if let (DetectedProtocol::Tls, Some(tls)) = (&opened, &tls) {
        if let Err(error) = stage.encrypt(tls).await {
            return Ok(Greeting::Refused(stage.socket.clone(), Vec::new(), error));
        }
        opened = stage.opening().await?;
    } else if opened == DetectedProtocol::Farpool && tls.is_some() && !stage.socket.is_within() {
        let error = Error::new(ErrorKind::Denied, "this pool speaks to nobody in the clear")
            .advise("write farpools:// in place of farpool://, and give its authority with --tls-ca FILE");
        return Ok(stage.refuse(error));
    }
    match opened {
        DetectedProtocol::Farpool => stage.hello(node).await,
        DetectedProtocol::Incomplete => Ok(Greeting::Gone),
        DetectedProtocol::Tls => Ok(stage.turn_away(Error::corrupt(
            "the peer speaks TLS, and this node has no certificate: see --tls-cert, or use farpool:// there",
        ))),
        DetectedProtocol::PostgresEncryption { .. } => {
            Ok(stage.turn_away(Error::corrupt("a PostgreSQL client asks on and on")))
        }
        DetectedProtocol::Stranger(error) => Ok(stage.turn_away(error)),
    }
}

impl GreetingState {
    /// Reads until it is known which protocol the peer speaks; returns `Incomplete` if the peer closes the connection
    /// before.
    async fn opening(&mut self) -> io::Result<DetectedProtocol> {
        let mut requests = 0;
        loop {
            match opening(&self.received) {
                DetectedProtocol::Incomplete if self.read().await? == 0 => {
                    return Ok(DetectedProtocol::Incomplete);
                }
                DetectedProtocol::Incomplete => {}
                DetectedProtocol::PostgresEncryption { bytes }
                    if requests < limits::POSTGRES_REQUESTS_MAX =>
                {
                    requests += 1;
                    self.received.advance(bytes);
                    self.socket.write_all(NO_ENCRYPTION).await?;
                }
                opening => return Ok(opening),
            }
        }
    }

    /// Switches the connection to TLS.
    async fn encrypt(&mut self, tls: &ServerTls) -> Result<()> {
        self.is_answering = true;
        let received = std::mem::take(&mut self.received);
        self.socket = Arc::new(Tls::accept(self.socket.clone(), received, tls).await?);
        self.is_answering = false;
        Ok(())
    }

    /// Waits for the hello and authenticates the client.
    async fn hello(&mut self, node: &Arc<Node>) -> io::Result<Greeting> {
        self.received.advance(PREFACE.len());
        let mut assembler = Assembler::new();
        let (caller, pass, guard, messages) = loop {
            match next_message(&mut self.received, &mut assembler)
                .and_then(|m| m.map(|m| hello(&m, &*self.socket, node)).transpose())
            {
                Ok(Some(answer)) => break answer,
                Ok(None) if self.read().await? == 0 => return Ok(Greeting::Gone),
                Ok(None) => {}
                Err(error) => return Ok(self.refuse(error)),
            }
        };
        let mut bytes = PREFACE.to_vec();
        messages.into_iter().for_each(|message| write(&mut bytes, message));
        self.is_answering = true;
        self.socket.write_all(&bytes).await?;
        let (socket, received) = (self.socket.clone(), std::mem::take(&mut self.received));
        Ok(Greeting::Welcome(Box::new(Client { socket, caller, pass, received, guard })))
    }

    /// Returns the refusal of a peer that speaks the native protocol; the error is sent as a message.
    fn refuse(&self, error: Error) -> Greeting {
        Greeting::Refused(self.socket.clone(), error_bytes(&error), error)
    }

    /// Returns the refusal of a peer that speaks another protocol; the error is sent in that protocol, if it is known.
    fn turn_away(&self, error: Error) -> Greeting {
        Greeting::Refused(self.socket.clone(), reply_to_stranger(&self.received), error)
    }

    async fn read(&mut self) -> io::Result<usize> {
        self.received.reserve(READ_BYTES);
        self.socket.read(&mut self.received).await
    }
}

/// Returns the first message; `None` while it is incomplete. Fails for a message larger than a hello may be, so that an
/// unauthenticated peer takes little memory.
fn next_message(received: &mut BytesMut, assembler: &mut Assembler) -> Result<Option<Message>> {
    while let Some((header, payload)) = split_frame(received)? {
        if header.stream != 0 || header.kind != farpool_wire::FrameKind::Hello {
            return Err(Error::corrupt(format!("{} came before Hello", header.kind.name())));
        }
        if let Some(message) = assembler.push(header, payload)? {
            return Ok(Some(message));
        }
    }
    Ok(None)
}

/// Authenticates the client that sent a hello; fails if its token is not valid or there are too many connections.
fn hello(
    message: &Message,
    socket: &dyn Socket,
    node: &Arc<Node>,
) -> Result<(Caller, AccessPass, ConnectionGuard, Vec<Outgoing>)> {
    let request = Request::decode(message, None)?;
    let Request::Hello { version_min, version_max, token, timeout_ms, client } = request else {
        return Err(Error::corrupt("the first message is not Hello"));
    };
    let version = negotiate(version_min, version_max)?;
    let timeout = timeout_ms.map(Duration::from_millis);
    let (caller, pass) = node.admit(token.as_deref())?;
    tracing::debug!(tenant = ?caller.tenant(), ?client, "a client connects");
    // A token that can be guessed is unsuitable for sealing (encrypting) answers; a client that requests sealed answers
    // with such a token gets an error.
    let shown = sealed::shown(token.as_deref());
    let token_key = token.and_then(|token| TokenKey::of(&token).ok()).map(Arc::new);
    let token = pass.token_name().map(str::to_string);
    let client = client.chars().take(limits::CLIENT_CHARS_MAX).collect();
    let caller = caller.with_timeout(timeout).known_as(Identity {
        token,
        client,
        peer: socket.peer(),
        token_key,
        shown,
    });
    let tenant = caller.tenant().clone();
    let guard = node.connect(&tenant, Port::Native)?;
    let server = concat!("farpool ", env!("CARGO_PKG_VERSION")).to_string();
    let (instance, newest) = (node.instance(), node.catalog().newest_version());
    let sealing = Some(Sealing { node_key: node.node_key().map(|key| key.public()) });
    let (lookups, having) = (true, true);
    let welcome = Response::Hello { version, server, tenant, instance, newest, sealing, lookups, having };
    Ok((caller, pass, guard, welcome.encode()?))
}

fn write(bytes: &mut Vec<u8>, message: Outgoing) {
    message.frames(0).iter().for_each(|piece| bytes.extend_from_slice(piece));
}
