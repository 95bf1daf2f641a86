//! TLS over another socket, for both ends of a connection, with `rustls`.
//!
//! Invariants: bytes are reported as written only after their ciphertext has been handed to the socket below, so that
//! sending them never depends on a later write. The ciphertext held by one connection is at most [`READ_BYTES`],
//! [`WRITE_BYTES`] and a few records. The peer has ended its side only if it says so (`close_notify`, RFC 8446, section
//! 6.1); any other end is an error, because an attacker could have cut the connection.
//!
//! Both directions share one lock. It is held while at most [`WRITE_BYTES`] are encrypted and written, or
//! [`READ_BYTES`] are read and decrypted.

mod config;
mod faults;
mod handshake;

pub use config::{ClientTls, ServerTls};

use super::{Interest, Socket};
use bytes::{Buf, BufMut, BytesMut};
use faults::Fault;
use parking_lot::Mutex;
use rustls::Connection;
use std::io::{self, BufRead, ErrorKind, IoSlice, Write};
use std::sync::Arc;
use std::task::{Context, Poll};

/// Maximum bytes of ciphertext per read from the socket, and of plain bytes per read by the caller: eight TLS records.
/// Reason: with half of it, a result of 1 GiB took a sixth longer (a client yields its thread after each read); with
/// twice as much, no less.
const READ_BYTES: usize = 128 << 10;

/// Maximum plain bytes that are encrypted before their ciphertext is written: eight TLS records.
const WRITE_BYTES: usize = 128 << 10;

/// Estimated bytes that `rustls` holds per connection in addition to the buffers here: an incomplete record, keys, and
/// the state of the protocol.
const STATE_BYTES: usize = 24 << 10;

/// A TLS connection over another socket.
#[derive(Debug)]
pub struct Tls {
    socket: Arc<dyn Socket>,
    session: Mutex<Session>,
}

/// The state of the TLS protocol, and the data between it and the socket below.
#[derive(Debug)]
struct Session {
    tls: Connection,
    /// Ciphertext that has been read and not yet decrypted.
    incoming: BytesMut,
    /// Number of plain bytes that have been encrypted but not reported to the caller as written, because some of their
    /// ciphertext is still in `tls`.
    unreported: usize,
    /// Whether the peer has sent `close_notify`.
    peer_has_ended: bool,
    /// Whether this side has ended; its `close_notify` may still wait for room.
    has_ended: bool,
    /// Whether the writing side of the socket below has been ended as well.
    is_shut: bool,
    /// The error of the peer's violation of the protocol, if there was one.
    fault: Option<rustls::Error>,
}

impl Socket for Tls {
    fn try_read(&self, buffer: &mut dyn BufMut) -> io::Result<usize> {
        let session = &mut *self.session.lock();
        let wanted = buffer.chunk_mut().len().min(READ_BYTES);
        let mut count = 0;
        loop {
            count += session.take(buffer, wanted - count);
            if session.peer_has_ended {
                // Queued bytes, such as this side's `close_notify`, are also sent by reads: there may be no further
                // write.
                drop(session.flush(&*self.socket));
                return Ok(count);
            }
            if count == wanted {
                return Ok(count);
            }
            match session.receive(&*self.socket) {
                Ok(()) => {}
                // The caller gets the bytes before the fault now, and the fault from the next read.
                Err(_) if count > 0 => return Ok(count),
                Err(fault) => return Err(fault.into()),
            }
        }
    }

    fn try_write_vectored(&self, slices: &[IoSlice<'_>]) -> io::Result<usize> {
        let session = &mut *self.session.lock();
        if session.has_ended {
            return Err(ErrorKind::BrokenPipe.into());
        }
        session.flush(&*self.socket)?;
        if session.unreported == 0 {
            session.unreported = session.tls.writer().write_vectored(slices)?;
            session.flush(&*self.socket)?;
        }
        let written = std::mem::take(&mut session.unreported);
        assert!(written <= slices.iter().map(|slice| slice.len()).sum(), "a write was not tried again");
        Ok(written)
    }

    fn poll_ready(&self, context: &mut Context<'_>, interest: Interest) -> Poll<io::Result<()>> {
        if interest == Interest::Readable && self.session.lock().has_something_to_read() {
            return Poll::Ready(Ok(()));
        }
        self.socket.poll_ready(context, interest)
    }

    fn end_writing(&self) -> io::Result<()> {
        self.session.lock().end(&*self.socket)
    }

    fn peer(&self) -> String {
        self.socket.peer()
    }

    fn local(&self) -> String {
        self.socket.local()
    }

    fn is_near(&self) -> bool {
        self.socket.is_near()
    }

    fn bytes_held(&self) -> usize {
        let session = self.session.lock();
        session.incoming.capacity() + session.unreported + STATE_BYTES
    }
}

/// Sends `close_notify`, so that the peer can tell a closed connection from one that was cut.
impl Drop for Tls {
    fn drop(&mut self) {
        drop(self.session.get_mut().end(&*self.socket));
    }
}

impl Session {
    fn new(mut tls: Connection, incoming: BytesMut) -> Self {
        tls.set_buffer_limit(Some(WRITE_BYTES));
        Session {
            tls,
            incoming,
            unreported: 0,
            peer_has_ended: false,
            has_ended: false,
            is_shut: false,
            fault: None,
        }
    }

    /// Moves at most `bytes_max` decrypted bytes to `buffer`; returns their number.
    fn take(&mut self, buffer: &mut dyn BufMut, bytes_max: usize) -> usize {
        let mut taken = 0;
        let mut reader = self.tls.reader();
        while taken < bytes_max {
            let Ok(chunk @ [_, ..]) = reader.fill_buf() else { break };
            let count = chunk.len().min(bytes_max - taken);
            buffer.put_slice(&chunk[..count]);
            reader.consume(count);
            taken += count;
        }
        taken
    }

    /// Decrypts the bytes that have been read; if there are none, reads some first.
    fn receive(&mut self, socket: &dyn Socket) -> Result<(), Fault> {
        let filled = if self.incoming.is_empty() { self.fill(socket) } else { Ok(()) };
        let decrypted = filled.and_then(|()| self.decrypt());
        // The protocol may have queued a reply, or this side's `close_notify`. What cannot be written now is sent with
        // the next bytes.
        drop(self.flush(socket));
        decrypted
    }

    /// Reads ciphertext from the socket into `incoming`.
    fn fill(&mut self, socket: &dyn Socket) -> Result<(), Fault> {
        if let Some(fault) = &self.fault {
            return Err(Fault::Tls(fault.clone()));
        }
        self.incoming.reserve(READ_BYTES);
        match socket.try_read(&mut self.incoming) {
            Ok(0) => Err(Fault::CutOff),
            Ok(_) => Ok(()),
            Err(error) => {
                // The buffer is dropped, so that an idle connection takes little memory.
                self.incoming = BytesMut::new();
                Err(Fault::Socket(error))
            }
        }
    }

    /// Decrypts ciphertext until there are plain bytes to read, or no ciphertext is left.
    fn decrypt(&mut self) -> Result<(), Fault> {
        while !self.incoming.is_empty() && !self.has_plain_bytes() {
            let mut front = &self.incoming[..];
            let taken = self.tls.read_tls(&mut front).map_err(Fault::Socket)?;
            self.incoming.advance(taken);
            match self.tls.process_new_packets() {
                Ok(state) => self.peer_has_ended |= state.peer_has_closed(),
                Err(error) => self.fault = Some(error),
            }
            // Bytes after the peer's end or a fault are ignored; those before it have been decrypted and are delivered.
            if self.peer_has_ended || self.fault.is_some() {
                self.incoming = BytesMut::new();
            }
        }
        Ok(())
    }

    fn has_plain_bytes(&mut self) -> bool {
        matches!(self.tls.reader().fill_buf(), Ok([_, ..]))
    }

    fn has_something_to_read(&mut self) -> bool {
        !self.incoming.is_empty() || self.peer_has_ended || self.fault.is_some() || self.has_plain_bytes()
    }

    /// Writes all ciphertext to the socket below; then ends the socket's writing side if this side has ended.
    fn flush(&mut self, socket: &dyn Socket) -> io::Result<()> {
        while self.tls.wants_write() {
            match self.tls.write_tls(&mut Below(socket)) {
                Ok(0) => return Err(ErrorKind::WriteZero.into()),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                outcome => drop(outcome?),
            }
        }
        if self.has_ended && !std::mem::replace(&mut self.is_shut, true) {
            socket.end_writing()?;
        }
        Ok(())
    }

    /// Sends `close_notify` after all bytes written before. If the socket has no room for it, later reads try again.
    fn end(&mut self, socket: &dyn Socket) -> io::Result<()> {
        if !std::mem::replace(&mut self.has_ended, true) {
            self.tls.send_close_notify();
        }
        match self.flush(socket) {
            Err(error) if error.kind() == ErrorKind::WouldBlock => Ok(()),
            outcome => outcome,
        }
    }
}

/// The socket below TLS, as the type that `rustls` writes ciphertext to.
struct Below<'a>(&'a dyn Socket);

impl Write for Below<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.try_write_vectored(&[IoSlice::new(bytes)])
    }

    fn write_vectored(&mut self, slices: &[IoSlice<'_>]) -> io::Result<usize> {
        self.0.try_write_vectored(slices)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests;
