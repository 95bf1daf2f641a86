//! Implements [`Socket`], the interface of connected byte streams, for TCP streams of tokio.

use super::{Interest, Socket};
use bytes::BufMut;
use socket2::{SockRef, TcpKeepalive};
use std::io::{self, IoSlice};
use std::net::Shutdown;
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::net::TcpStream;

impl Socket for TcpStream {
    fn try_read(&self, mut buffer: &mut dyn BufMut) -> io::Result<usize> {
        let (room, mut read) = (buffer.chunk_mut().len(), None);
        // A read that takes all received bytes clears the readiness, so that the next read waits at once, without a
        // system call that would find nothing. This relies on edge-triggered readiness (epoll, kqueue); bytes that
        // arrive during this read are not missed.
        let outcome = self.try_io(tokio::io::Interest::READABLE, || {
            let bytes = *read.insert(self.try_read_buf(&mut buffer)?);
            let is_all = cfg!(unix) && bytes > 0 && bytes < room;
            if is_all { Err(io::ErrorKind::WouldBlock.into()) } else { Ok(bytes) }
        });
        read.map_or(outcome, Ok)
    }

    fn try_write_vectored(&self, slices: &[IoSlice<'_>]) -> io::Result<usize> {
        match slices {
            [one] => self.try_write(one),
            several => TcpStream::try_write_vectored(self, several),
        }
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

    fn local(&self) -> String {
        self.local_addr().map_or_else(|_| "?:0".into(), |address| address.to_string())
    }

    fn is_near(&self) -> bool {
        self.peer_addr().is_ok_and(|address| address.ip().to_canonical().is_loopback())
    }
}

/// Disables the delaying of small packets (Nagle's algorithm), with which a small message would wait for the
/// acknowledgement of the previous one, and enables TCP keepalive: a peer that has vanished without a word is noticed
/// after three times `idle`, although nothing is sent.
///
/// # Errors
/// Fails if the connection is broken.
pub fn prepare_tcp(socket: &TcpStream, idle: Duration) -> io::Result<()> {
    let keepalive = TcpKeepalive::new().with_time(idle).with_interval(idle).with_retries(2);
    socket.set_nodelay(true)?;
    SockRef::from(socket).set_tcp_keepalive(&keepalive)
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::net::TcpListener;

    #[tokio::test]
    async fn the_system_asks_for_a_silent_peer() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (socket, _) = tokio::join!(TcpStream::connect(address), listener.accept());
        let socket = socket.unwrap();
        prepare_tcp(&socket, Duration::from_secs(60)).unwrap();
        let options = SockRef::from(&socket);
        assert!(options.keepalive().unwrap() && options.tcp_nodelay().unwrap());
        assert_eq!(options.tcp_keepalive_time().unwrap(), Duration::from_secs(60));
    }
}
