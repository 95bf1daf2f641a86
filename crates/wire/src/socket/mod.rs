//! A connected byte stream, as both ends of a connection use it: TCP, a pipe in memory for tests and simulations, or
//! TLS over one of them. Nothing here opens a connection.
//!
//! Contract: reads and writes never block, and any thread may try them at any time. At most one task at a time waits
//! for each [`Interest`], because a second one would replace the waker of the first.

mod pipe;
mod tcp;
mod tls;

pub use pipe::{Pipe, pipe};
pub use tcp::prepare_tcp;
pub use tls::{ClientTls, ServerTls, Tls};

use bytes::{BufMut, BytesMut};
use std::fmt;
use std::future::poll_fn;
use std::io::{self, ErrorKind, IoSlice};
use std::task::{Context, Poll};

/// Event that a task waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Interest {
    /// Bytes can be read, or the peer has ended its side.
    Readable,
    /// The send buffer has room, so bytes can be written.
    Writable,
}

/// A connected byte stream. Dropping it closes the connection.
pub trait Socket: Send + Sync + fmt::Debug {
    /// Moves received bytes to the first chunk of `buffer`, without blocking. Returns their number; 0 if the peer has
    /// ended its side.
    ///
    /// # Errors
    /// `WouldBlock` if nothing has come; any other error ends the connection.
    fn try_read(&self, buffer: &mut dyn BufMut) -> io::Result<usize>;

    /// Writes bytes from the front of `slices`, without blocking. Returns their number.
    ///
    /// # Errors
    /// `WouldBlock` if there is no room. The next write must then begin with the same bytes, because TLS may have
    /// encrypted and sent some of them already. Any other error ends the connection.
    fn try_write_vectored(&self, slices: &[IoSlice<'_>]) -> io::Result<usize>;

    /// Polls until the socket is probably ready for `interest`. A read or write may return `WouldBlock` even after
    /// that.
    fn poll_ready(&self, context: &mut Context<'_>, interest: Interest) -> Poll<io::Result<()>>;

    /// Tells the peer that no more bytes will come. Reading can continue.
    ///
    /// # Errors
    /// Fails if the connection is broken.
    fn end_writing(&self) -> io::Result<()>;

    /// Returns the address of the other end, for logs.
    fn peer(&self) -> String;

    /// Returns the address of this end; `?:0` if it is not known.
    fn local(&self) -> String {
        "?:0".into()
    }

    /// Returns whether the other end is known to be on the same machine.
    fn is_near(&self) -> bool;

    /// Returns whether the other end is in this process, so that nobody else can read what is written.
    fn is_within(&self) -> bool {
        false
    }

    /// Returns the bytes of memory that the socket holds in this process, without the operating system's buffers.
    fn bytes_held(&self) -> usize {
        0
    }
}

impl dyn Socket + '_ {
    /// Waits until the socket is ready for a read or a write.
    ///
    /// # Errors
    /// Fails if the socket can no longer be waited for.
    pub async fn ready(&self, interest: Interest) -> io::Result<()> {
        poll_fn(|context| self.poll_ready(context, interest)).await
    }

    /// Waits for bytes and appends them to `buffer`. Returns their number; 0 if the peer has ended its side.
    ///
    /// # Errors
    /// Fails if the connection is broken.
    pub async fn read(&self, buffer: &mut BytesMut) -> io::Result<usize> {
        loop {
            match self.try_read(buffer) {
                Err(error) if error.kind() == ErrorKind::WouldBlock => self.ready(Interest::Readable).await?,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                outcome => return outcome,
            }
        }
    }

    /// Writes all `bytes`, waiting for room as often as needed.
    ///
    /// # Errors
    /// Fails if the connection is broken.
    pub async fn write_all(&self, mut bytes: &[u8]) -> io::Result<()> {
        while !bytes.is_empty() {
            match self.try_write_vectored(&[IoSlice::new(bytes)]) {
                Ok(0) => return Err(ErrorKind::WriteZero.into()),
                Ok(written) => bytes = &bytes[written..],
                Err(error) if error.kind() == ErrorKind::WouldBlock => self.ready(Interest::Writable).await?,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
}
