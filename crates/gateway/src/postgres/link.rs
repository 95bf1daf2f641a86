//! The two directions of a client's connection: messages that come, and messages that wait to be sent.
//!
//! Invariant: neither direction holds more than its limit. What a client sends while its statement runs stays in the
//! network beyond [`limits::POSTGRES_AHEAD_BYTES_MAX`], and what it does not read makes the statement wait.

use bytes::BytesMut;
use farpool_model::{Error, Result, limits};
use farpool_postgres::failure::Failure;
use farpool_postgres::messages::{self, Message, Opening};
use farpool_postgres::output::Output;
use farpool_wire::{ServerTls, Socket, Tls};
use std::io;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::timeout;

/// Bytes per read from the socket.
const READ_BYTES: usize = 16 << 10;

/// Bytes of messages that are sent together.
const SEND_BYTES: usize = 64 << 10;

/// Capacity that the buffers of an idle session may keep.
const IDLE_BYTES: usize = 8 << 10;

/// The reason why a session ends.
#[derive(Debug)]
pub(super) enum Gone {
    /// The client has closed the connection, or it broke.
    Closed,
    /// The client is told why, if it can be reached.
    Refused(Failure),
}

impl From<io::Error> for Gone {
    fn from(_: io::Error) -> Self {
        Gone::Closed
    }
}

impl From<Error> for Gone {
    fn from(error: Error) -> Self {
        Gone::Refused(Failure::from(error).fatal())
    }
}

/// The connection of a client.
pub(super) struct Link {
    socket: Arc<dyn Socket>,
    input: BytesMut,
    pub output: Output,
    is_encrypted: bool,
}

impl Link {
    pub fn new(socket: Arc<dyn Socket>) -> Self {
        Link { socket, input: BytesMut::new(), output: Output::default(), is_encrypted: false }
    }

    /// Returns the address of the client.
    pub fn peer(&self) -> String {
        self.socket.peer()
    }

    /// Returns whether others can read what is sent: the connection is neither encrypted nor within one machine.
    pub fn is_open_to_others(&self) -> bool {
        !self.is_encrypted && !self.socket.is_near()
    }

    pub fn is_encrypted(&self) -> bool {
        self.is_encrypted
    }

    /// Waits for the first message of the connection. A client may also begin with TLS at once, for which `tls` is the
    /// certificate.
    pub async fn opening(&mut self, tls: Option<&ServerTls>) -> Result<Opening, Gone> {
        loop {
            if let (Some(&first), Some(tls)) = (self.input.first(), tls)
                && first == TLS_HANDSHAKE
                && !self.is_encrypted
            {
                self.encrypt(tls).await?;
                continue;
            }
            match messages::opening(&mut self.input) {
                Ok(Some(opening)) => return Ok(opening),
                Ok(None) => self.read().await?,
                Err(error) => return Err(violation(error)),
            }
        }
    }

    /// Switches the connection to TLS.
    pub async fn encrypt(&mut self, tls: &ServerTls) -> Result<(), Gone> {
        let received = std::mem::take(&mut self.input);
        let encrypted = Tls::accept(Arc::clone(&self.socket), received, tls).await;
        // A client that does not agree on TLS cannot be told why.
        self.socket = Arc::new(encrypted.map_err(|error| {
            tracing::info!(peer = self.socket.peer(), error = error.message, "TLS with a client failed");
            Gone::Closed
        })?);
        self.is_encrypted = true;
        Ok(())
    }

    /// Returns whether bytes have come that are not decoded.
    pub fn has_input(&self) -> bool {
        !self.input.is_empty()
    }

    /// Sends what waits, and waits for the next message.
    pub async fn next(&mut self) -> Result<Message, Gone> {
        self.next_within(limits::POSTGRES_MESSAGE_BYTES_MAX).await
    }

    /// Does the same as [`Link::next`] for messages of at most `bytes_max`.
    pub async fn next_within(&mut self, bytes_max: usize) -> Result<Message, Gone> {
        let mut has_sent = false;
        loop {
            let message = messages::message(&mut self.input, bytes_max);
            match message.map_err(violation)? {
                Some(message) => return Ok(message),
                None if !has_sent => {
                    self.flush().await?;
                    has_sent = true;
                    self.shrink();
                }
                None => self.read().await?,
            }
        }
    }

    /// Frees the buffers of a session that waits for its client.
    fn shrink(&mut self) {
        if self.input.is_empty() && self.input.capacity() > IDLE_BYTES {
            self.input = BytesMut::new();
        }
        self.output.shrink(IDLE_BYTES);
    }

    async fn read(&mut self) -> Result<(), Gone> {
        // As much again as has come, so that a long message is not moved often.
        self.input.reserve(self.input.len().max(READ_BYTES));
        match self.socket.read(&mut self.input).await? {
            0 => Err(Gone::Closed),
            _ => Ok(()),
        }
    }

    /// Reads ahead, within a limit, until the client has closed the connection. Dropping the future loses nothing.
    pub async fn watch(&mut self) {
        while self.input.len() < limits::POSTGRES_AHEAD_BYTES_MAX {
            if self.read().await.is_err() {
                return;
            }
        }
        std::future::pending().await
    }

    /// Sends what waits if that is enough to be sent together.
    pub async fn send_if_full(&mut self) -> Result<(), Gone> {
        match self.output.len() < SEND_BYTES {
            true => Ok(()),
            false => self.flush().await,
        }
    }

    /// Sends what waits.
    pub async fn flush(&mut self) -> Result<(), Gone> {
        if self.output.is_empty() {
            return Ok(());
        }
        let patience = Duration::from_millis(limits::POSTGRES_STALL_MS_MAX);
        match timeout(patience, self.socket.write_all(self.output.bytes())).await {
            Ok(written) => written?,
            Err(_) => {
                tracing::info!(peer = self.socket.peer(), "a client does not read what it asked for");
                return Err(Gone::Closed);
            }
        }
        self.output.clear();
        Ok(())
    }

    /// Tells the client why its session ends, and closes the connection.
    pub async fn part(mut self, failure: &Failure) {
        self.output.failure(failure);
        let parting = async {
            self.socket.write_all(self.output.bytes()).await?;
            self.socket.end_writing()?;
            // Closing a socket with unread input can discard the bytes sent last.
            let mut ignored = BytesMut::with_capacity(READ_BYTES);
            while self.socket.read(&mut ignored).await? > 0 {
                ignored.clear();
            }
            io::Result::Ok(())
        };
        drop(timeout(FAREWELL, parting).await);
    }
}

/// The first byte of a TLS handshake (RFC 8446, section 5.1).
const TLS_HANDSHAKE: u8 = 22;

/// Maximum time that a client gets to read why its session ends.
const FAREWELL: Duration = Duration::from_secs(1);

/// Returns the end of a session whose client has sent something that is no message.
fn violation(error: Error) -> Gone {
    let failure = Failure::from(error);
    let code = farpool_postgres::failure::code::PROTOCOL_VIOLATION;
    Gone::Refused(Failure { code, ..failure }.fatal())
}
