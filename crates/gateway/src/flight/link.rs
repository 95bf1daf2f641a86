//! A socket of this project as the server of HTTP/2 wants it.

use super::connection::Connection;
use farpool_wire::{Interest, Socket};
use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tonic::transport::server::Connected;

/// The two directions of a client's connection.
pub(super) struct Link {
    socket: Arc<dyn Socket>,
    connection: Arc<Connection>,
}

impl Link {
    pub fn new(socket: Arc<dyn Socket>, connection: Arc<Connection>) -> Self {
        Link { socket, connection }
    }

    /// Tries `operation` until it does not have to wait for `interest`.
    fn attempt<T>(
        &self,
        context: &mut Context<'_>,
        interest: Interest,
        mut operation: impl FnMut(&dyn Socket) -> io::Result<T>,
    ) -> Poll<io::Result<T>> {
        loop {
            match operation(&*self.socket) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    ready!(self.socket.poll_ready(context, interest))?;
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                outcome => return Poll::Ready(outcome),
            }
        }
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        self.connection.end();
    }
}

impl Connected for Link {
    type ConnectInfo = Arc<Connection>;

    fn connect_info(&self) -> Arc<Connection> {
        Arc::clone(&self.connection)
    }
}

impl AsyncRead for Link {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if self.connection.must_close(context) {
            return Poll::Ready(Err(io::ErrorKind::ConnectionAborted.into()));
        }
        let read = self.attempt(context, Interest::Readable, |socket| {
            let mut room = buffer.initialize_unfilled();
            socket.try_read(&mut room)
        });
        let count = ready!(read)?;
        buffer.advance(count);
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Link {
    fn poll_write(self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        self.poll_write_vectored(context, &[IoSlice::new(bytes)])
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.attempt(context, Interest::Writable, |socket| socket.try_write_vectored(slices))
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(self: Pin<&mut Self>, _context: &mut Context<'_>) -> Poll<io::Result<()>> {
        // A socket has sent what it reports as written.
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(self.socket.end_writing())
    }
}
