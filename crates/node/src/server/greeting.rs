//! The first words of a connection: is this a farpool client, do we share a version, whose is it? And how
//! to part from somebody so that they can still read why.

use super::queries::Identity;
use crate::node::{ConnectionGuard, Pass};
use crate::{Caller, Node};
use bytes::{Buf, BytesMut};
use farpool_model::{Error, ErrorKind, Result, limits};
use farpool_wire::{
    Assembler, Message, NO_ENCRYPTION, Opening, Outgoing, PREFACE, Request, Response, ServerTls, Socket, Tls,
    negotiate, opening, reply_to_stranger, split_frame,
};
use std::io;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::timeout;

/// How long somebody whose connection is closed may take to read why.
pub(super) const FAREWELL: Duration = Duration::from_secs(1);

/// Bytes to read at a time: a hello is small.
const READ_BYTES: usize = 4096;

/// What became of a greeting.
pub(super) enum Greeting {
    /// A client.
    Welcome(Client),
    /// Somebody to part from, with these last bytes.
    Refused(Arc<dyn Socket>, Vec<u8>, Error),
    /// They left without a word.
    Gone,
}

/// A client that was let in.
pub(super) struct Client {
    pub socket: Arc<dyn Socket>,
    pub caller: Caller,
    /// For how long.
    pub pass: Pass,
    /// What it has sent after its hello.
    pub received: BytesMut,
    /// Its place among the connections of clients.
    pub guard: ConnectionGuard,
}

/// How far a greeting has come.
struct Stage {
    /// The connection as it came, or TLS over it.
    socket: Arc<dyn Socket>,
    received: BytesMut,
    /// Whether something else is being said: what came behind half of it would be taken for the rest.
    is_answering: bool,
}

/// Waits for the hello and answers it.
pub(super) async fn greet(socket: Arc<dyn Socket>, node: &Arc<Node>) -> Greeting {
    let patience = Duration::from_millis(limits::HANDSHAKE_MS_MAX);
    let mut stage = Stage { socket, received: BytesMut::new(), is_answering: false };
    match timeout(patience, exchange(&mut stage, node)).await {
        Ok(greeting) => greeting.unwrap_or(Greeting::Gone),
        Err(_) if stage.is_answering => Greeting::Gone,
        Err(_) => {
            let seconds = limits::HANDSHAKE_MS_MAX / 1000;
            stage.refuse(Error::unavailable(format!("there was no hello within {seconds} s")))
        }
    }
}

/// Sends `bytes`, and waits a moment for the other side to close: a socket that is closed with unread
/// bytes in it takes the last ones sent with it.
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

/// A message about the connection itself, after the preface.
pub(super) fn error_bytes(error: &Error) -> Vec<u8> {
    let mut bytes = PREFACE.to_vec();
    if let Ok(messages) = Response::Error(error.clone()).encode() {
        messages.into_iter().for_each(|message| write(&mut bytes, message));
    }
    bytes
}

async fn exchange(stage: &mut Stage, node: &Arc<Node>) -> io::Result<Greeting> {
    let tls = node.tls();
    let mut opened = stage.opening().await?;
    if let (Opening::Tls, Some(tls)) = (&opened, &tls) {
        if let Err(error) = stage.encrypt(tls).await {
            return Ok(Greeting::Refused(stage.socket.clone(), Vec::new(), error));
        }
        opened = stage.opening().await?;
    } else if opened == Opening::Farpool && tls.is_some() {
        let error = Error::new(ErrorKind::Denied, "this pool speaks to nobody in the clear")
            .advise("write farpools:// in place of farpool://, and give its authority with --tls-ca FILE");
        return Ok(stage.refuse(error));
    }
    match opened {
        Opening::Farpool => stage.hello(node).await,
        Opening::Incomplete => Ok(Greeting::Gone),
        Opening::Tls => Ok(stage.turn_away(Error::corrupt(
            "the peer speaks TLS, and this node has no certificate: see --tls-cert, or use farpool:// there",
        ))),
        Opening::PostgresEncryption { .. } => {
            Ok(stage.turn_away(Error::corrupt("a PostgreSQL client asks on and on")))
        }
        Opening::Stranger(error) => Ok(stage.turn_away(error)),
    }
}

impl Stage {
    /// Waits until it shows what the peer takes the node for; `Incomplete` when it leaves before.
    async fn opening(&mut self) -> io::Result<Opening> {
        let mut requests = 0;
        loop {
            match opening(&self.received) {
                Opening::Incomplete if self.read().await? == 0 => return Ok(Opening::Incomplete),
                Opening::Incomplete => {}
                Opening::PostgresEncryption { bytes } if requests < limits::POSTGRES_REQUESTS_MAX => {
                    requests += 1;
                    self.received.advance(bytes);
                    self.socket.write_all(NO_ENCRYPTION).await?;
                }
                opening => return Ok(opening),
            }
        }
    }

    /// Speaks TLS from here on.
    async fn encrypt(&mut self, tls: &ServerTls) -> Result<()> {
        self.is_answering = true;
        let received = std::mem::take(&mut self.received);
        self.socket = Arc::new(Tls::accept(self.socket.clone(), received, tls).await?);
        self.is_answering = false;
        Ok(())
    }

    /// Waits for the hello, and lets its client in.
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
        Ok(Greeting::Welcome(Client { socket, caller, pass, received, guard }))
    }

    /// Parts from a client.
    fn refuse(&self, error: Error) -> Greeting {
        Greeting::Refused(self.socket.clone(), error_bytes(&error), error)
    }

    /// Parts from somebody else.
    fn turn_away(&self, error: Error) -> Greeting {
        Greeting::Refused(self.socket.clone(), reply_to_stranger(&self.received), error)
    }

    async fn read(&mut self) -> io::Result<usize> {
        self.received.reserve(READ_BYTES);
        self.socket.read(&mut self.received).await
    }
}

/// The first message. Before the hello, nothing larger than a hello is taken in.
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

/// Lets a client in that may come in and for which there is a place.
fn hello(
    message: &Message,
    socket: &dyn Socket,
    node: &Arc<Node>,
) -> Result<(Caller, Pass, ConnectionGuard, Vec<Outgoing>)> {
    let request = Request::decode(message, None)?;
    let Request::Hello { version_min, version_max, token, timeout_ms, client } = request else {
        return Err(Error::corrupt("the first message is not Hello"));
    };
    let version = negotiate(version_min, version_max)?;
    let timeout = timeout_ms.map(Duration::from_millis);
    let (caller, pass) = node.admit(token.as_deref())?;
    tracing::debug!(tenant = ?caller.tenant(), ?client, "a client connects");
    let token = pass.token_name().map(str::to_string);
    let client = client.chars().take(limits::CLIENT_CHARS_MAX).collect();
    let caller = caller.with_timeout(timeout).known_as(Identity { token, client, peer: socket.peer() });
    let tenant = caller.tenant().clone();
    let guard = node.connect(&tenant)?;
    let server = concat!("farpool ", env!("CARGO_PKG_VERSION")).to_string();
    let (instance, newest) = (node.instance(), node.catalog().newest_version());
    let welcome = Response::Hello { version, server, tenant, instance, newest };
    Ok((caller, pass, guard, welcome.encode()?))
}

fn write(bytes: &mut Vec<u8>, message: Outgoing) {
    message.frames(0).iter().for_each(|piece| bytes.extend_from_slice(piece));
}
