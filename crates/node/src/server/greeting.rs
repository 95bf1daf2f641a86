//! The first words of a connection: is this a farpool client, do we share a version, whose is it? And how
//! to part from somebody so that they can still read why.

use super::queries::Identity;
use crate::node::{ConnectionGuard, Pass};
use crate::{Caller, Node};
use bytes::{Buf, BytesMut};
use farpool_model::{Error, Result, limits};
use farpool_wire::{
    Assembler, Message, Outgoing, PREFACE, Request, Response, Socket, check_preface, negotiate,
    reply_to_stranger, split_frame,
};
use std::io;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::timeout;

/// How long somebody whose connection is closed may take to read why.
pub(super) const FAREWELL: Duration = Duration::from_secs(1);

/// Bytes to read at a time: a hello is small.
const READ_BYTES: usize = 4096;

/// Characters that are kept of what a client says it is.
const CLIENT_CHARS_MAX: usize = 64;

/// What became of a greeting.
pub(super) enum Greeting {
    /// A client.
    Welcome(Client),
    /// Somebody to part from, with these last bytes.
    Refused(Vec<u8>, Error),
    /// They left without a word.
    Gone,
}

/// A client that was let in.
pub(super) struct Client {
    pub caller: Caller,
    /// For how long.
    pub pass: Pass,
    /// What it has sent after its hello.
    pub received: BytesMut,
    /// Its place among the connections of clients.
    pub guard: ConnectionGuard,
}

/// Waits for the hello and answers it.
pub(super) async fn greet(socket: &dyn Socket, node: &Arc<Node>) -> Greeting {
    let patience = Duration::from_millis(limits::HANDSHAKE_MS_MAX);
    let mut is_answering = false;
    match timeout(patience, exchange(socket, node, &mut is_answering)).await {
        Ok(greeting) => greeting.unwrap_or(Greeting::Gone),
        // Half of the welcome may have left: what came behind it would be taken for the rest.
        Err(_) if is_answering => Greeting::Gone,
        Err(_) => {
            let seconds = limits::HANDSHAKE_MS_MAX / 1000;
            let error = Error::unavailable(format!("there was no hello within {seconds} s"));
            Greeting::Refused(error_bytes(&error), error)
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

/// Sets `is_answering` when it begins to.
async fn exchange(socket: &dyn Socket, node: &Arc<Node>, is_answering: &mut bool) -> io::Result<Greeting> {
    let mut received = BytesMut::new();
    loop {
        match check_preface(&received) {
            Ok(true) => break,
            Ok(false) if read(socket, &mut received).await? == 0 => return Ok(Greeting::Gone),
            Ok(false) => {}
            Err(error) => return Ok(Greeting::Refused(reply_to_stranger(&received), error)),
        }
    }
    received.advance(PREFACE.len());
    let mut assembler = Assembler::new();
    let (caller, pass, guard, messages) = loop {
        match next_message(&mut received, &mut assembler)
            .and_then(|m| m.map(|m| hello(&m, socket, node)).transpose())
        {
            Ok(Some(answer)) => break answer,
            Ok(None) if read(socket, &mut received).await? == 0 => return Ok(Greeting::Gone),
            Ok(None) => {}
            Err(error) => return Ok(Greeting::Refused(error_bytes(&error), error)),
        }
    };
    let mut bytes = PREFACE.to_vec();
    messages.into_iter().for_each(|message| write(&mut bytes, message));
    *is_answering = true;
    socket.write_all(&bytes).await?;
    Ok(Greeting::Welcome(Client { caller, pass, received, guard }))
}

async fn read(socket: &dyn Socket, received: &mut BytesMut) -> io::Result<usize> {
    received.reserve(READ_BYTES);
    socket.read(received).await
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
    let client = client.chars().take(CLIENT_CHARS_MAX).collect();
    let caller = caller.with_timeout(timeout).known_as(Identity { token, client, peer: socket.peer() });
    let tenant = caller.tenant().clone();
    let guard = node.connect(&tenant)?;
    let server = concat!("farpool ", env!("CARGO_PKG_VERSION")).to_string();
    let welcome = Response::Hello { version, server, tenant };
    Ok((caller, pass, guard, welcome.encode()?))
}

fn write(bytes: &mut Vec<u8>, message: Outgoing) {
    message.frames(0).iter().for_each(|piece| bytes.extend_from_slice(piece));
}
