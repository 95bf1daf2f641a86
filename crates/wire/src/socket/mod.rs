//! A connected byte stream as both ends of a connection use it: TCP, a pipe in memory for tests and
//! simulations, or TLS over one of them. Nothing here opens a connection.
//!
//! Contract: reads and writes never block; any thread may try them at any time. At most one task waits for
//! each [`Interest`]: a second one would replace the waker of the first.

mod pipe;
mod tcp;
mod tls;

pub use pipe::{Pipe, pipe};
pub use tls::{ClientTls, ServerTls, Tls};

use bytes::{BufMut, BytesMut};
use std::fmt;
use std::future::poll_fn;
use std::io::{self, ErrorKind, IoSlice};
use std::task::{Context, Poll};

/// The event that a task waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Interest {
    /// Bytes can be read, or their end.
    Readable,
    /// There is room to write.
    Writable,
}

/// A connected byte stream. Closes when dropped.
pub trait Socket: Send + Sync + fmt::Debug {
    /// Moves received bytes to the first chunk of `buffer` and returns their number; 0 when the peer has
    /// ended its side.
    ///
    /// # Errors
    /// `WouldBlock` when nothing has come; any other error ends the connection.
    fn try_read(&self, buffer: &mut dyn BufMut) -> io::Result<usize>;

    /// Writes bytes from the front of `slices` and returns their number.
    ///
    /// # Errors
    /// `WouldBlock` when there is no room; the next write must then begin with the same bytes, since some of
    /// them may have been sent encrypted. Any other error ends the connection.
    fn try_write_vectored(&self, slices: &[IoSlice<'_>]) -> io::Result<usize>;

    /// Polls whether a read or a write is worth a try; it may still block.
    fn poll_ready(&self, context: &mut Context<'_>, interest: Interest) -> Poll<io::Result<()>>;

    /// Tells the peer that no more bytes will come. Reading can continue.
    ///
    /// # Errors
    /// When the connection is broken.
    fn end_writing(&self) -> io::Result<()>;

    /// Address of the other end, for logs.
    fn peer(&self) -> String;

    /// Address of this end, as far as it is known.
    fn local(&self) -> String {
        "?:0".into()
    }

    /// Returns whether the other end is known to be on the same machine.
    fn is_near(&self) -> bool;

    /// Bytes of memory that the socket holds in this process, apart from the system's buffers.
    fn bytes_held(&self) -> usize {
        0
    }
}

impl dyn Socket + '_ {
    /// Waits until the socket is ready.
    ///
    /// # Errors
    /// When the socket can no longer be waited for.
    pub async fn ready(&self, interest: Interest) -> io::Result<()> {
        poll_fn(|context| self.poll_ready(context, interest)).await
    }

    /// Waits for bytes and appends them to `buffer`; 0 when the peer has ended its side.
    ///
    /// # Errors
    /// When the connection is broken.
    pub async fn read(&self, buffer: &mut BytesMut) -> io::Result<usize> {
        loop {
            match self.try_read(buffer) {
                Err(error) if error.kind() == ErrorKind::WouldBlock => self.ready(Interest::Readable).await?,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                outcome => return outcome,
            }
        }
    }

    /// Writes all `bytes`, waiting for room.
    ///
    /// # Errors
    /// When the connection is broken.
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
