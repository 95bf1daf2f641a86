//! TCP as a [`Socket`].

use super::{Interest, Socket};
use bytes::BufMut;
use socket2::SockRef;
use std::io::{self, IoSlice};
use std::net::Shutdown;
use std::task::{Context, Poll};
use tokio::net::TcpStream;

impl Socket for TcpStream {
    fn try_read(&self, mut buffer: &mut dyn BufMut) -> io::Result<usize> {
        self.try_read_buf(&mut buffer)
    }

    fn try_write_vectored(&self, slices: &[IoSlice<'_>]) -> io::Result<usize> {
        TcpStream::try_write_vectored(self, slices)
    }

    fn poll_ready(&self, context: &mut Context<'_>, interest: Interest) -> Poll<io::Result<()>> {
        match interest {
            Interest::Readable => self.poll_read_ready(context),
            Interest::Writable => self.poll_write_ready(context),
        }
    }

    fn end_writing(&self) -> io::Result<()> {
        SockRef::from(self).shutdown(Shutdown::Write)
    }

    fn peer(&self) -> String {
        self.peer_addr().map_or_else(|_| "a peer that is gone".into(), |address| address.to_string())
    }

    fn is_near(&self) -> bool {
        self.peer_addr().is_ok_and(|address| address.ip().to_canonical().is_loopback())
    }
}
