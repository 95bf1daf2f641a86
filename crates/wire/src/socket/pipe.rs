//! Pipes: pairs of connected sockets in memory, with bounded buffers between them.
//!
//! Invariant: each direction delivers the bytes written to it in order, and holds at most `bytes_max` bytes. As long as
//! an end has not been dropped, its peer cannot tell whether the owner is silent or gone, as on a network.

use super::{Interest, Socket};
use bytes::BufMut;
use parking_lot::Mutex;
use std::collections::VecDeque;
use std::io::{self, ErrorKind, IoSlice};
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

/// Creates the two ends of a connection that holds up to `bytes_max` bytes in each direction.
///
/// # Panics
/// Panics if `bytes_max` is 0, because no byte could pass.
pub fn pipe(bytes_max: usize) -> (Pipe, Pipe) {
    assert!(bytes_max > 0, "a pipe needs room for a byte");
    let one_way = || Arc::new(Mutex::new(Direction { bytes_max, ..Direction::default() }));
    let (there, back) = (one_way(), one_way());
    (Pipe { incoming: back.clone(), outgoing: there.clone() }, Pipe { incoming: there, outgoing: back })
}

/// One end of a connection in memory.
#[derive(Debug)]
pub struct Pipe {
    incoming: Arc<Mutex<Direction>>,
    outgoing: Arc<Mutex<Direction>>,
}

/// One direction of a pipe: bytes written at one end and not yet read at the other.
#[derive(Debug, Default)]
struct Direction {
    bytes: VecDeque<u8>,
    bytes_max: usize,
    /// Whether the writing end has ended its side ([`Socket::end_writing`]), so that no more bytes will come.
    ended: bool,
    /// Whether the reading end has been dropped.
    abandoned: bool,
    reader: Option<Waker>,
    writer: Option<Waker>,
}

impl Direction {
    fn read(&mut self, buffer: &mut dyn BufMut) -> io::Result<usize> {
        if self.bytes.is_empty() {
            return if self.ended { Ok(0) } else { Err(ErrorKind::WouldBlock.into()) };
        }
        let (front, _) = self.bytes.as_slices();
        let count = front.len().min(buffer.chunk_mut().len());
        buffer.put_slice(&front[..count]);
        self.bytes.drain(..count);
        wake(&mut self.writer);
        Ok(count)
    }

    fn write(&mut self, slices: &[IoSlice<'_>]) -> io::Result<usize> {
        if self.abandoned || self.ended {
            return Err(ErrorKind::BrokenPipe.into());
        }
        let before = self.bytes.len();
        for slice in slices {
            let room = self.bytes_max - self.bytes.len();
            self.bytes.extend(&slice[..room.min(slice.len())]);
        }
        let written = self.bytes.len() - before;
        if written == 0 && slices.iter().any(|slice| !slice.is_empty()) {
            return Err(ErrorKind::WouldBlock.into());
        }
        wake(&mut self.reader);
        Ok(written)
    }

    fn is_readable(&self) -> bool {
        self.ended || !self.bytes.is_empty()
    }

    fn is_writable(&self) -> bool {
        self.ended || self.abandoned || self.bytes.len() < self.bytes_max
    }
}

fn wake(waiting: &mut Option<Waker>) {
    if let Some(waker) = waiting.take() {
        waker.wake();
    }
}

impl Socket for Pipe {
    fn try_read(&self, buffer: &mut dyn BufMut) -> io::Result<usize> {
        self.incoming.lock().read(buffer)
    }

    fn try_write_vectored(&self, slices: &[IoSlice<'_>]) -> io::Result<usize> {
        self.outgoing.lock().write(slices)
    }

    fn poll_ready(&self, context: &mut Context<'_>, interest: Interest) -> Poll<io::Result<()>> {
        match interest {
            Interest::Readable => {
                let mut incoming = self.incoming.lock();
                if incoming.is_readable() {
                    return Poll::Ready(Ok(()));
                }
                incoming.reader = Some(context.waker().clone());
            }
            Interest::Writable => {
                let mut outgoing = self.outgoing.lock();
                if outgoing.is_writable() {
                    return Poll::Ready(Ok(()));
                }
                outgoing.writer = Some(context.waker().clone());
            }
        }
        Poll::Pending
    }

    fn end_writing(&self) -> io::Result<()> {
        let mut outgoing = self.outgoing.lock();
        outgoing.ended = true;
        wake(&mut outgoing.reader);
        wake(&mut outgoing.writer);
        Ok(())
    }

    fn peer(&self) -> String {
        "a pipe in memory".into()
    }

    fn is_near(&self) -> bool {
        true
    }

    fn is_within(&self) -> bool {
        true
    }
}

impl Drop for Pipe {
    fn drop(&mut self) {
        let mut outgoing = self.outgoing.lock();
        outgoing.ended = true;
        wake(&mut outgoing.reader);
        drop(outgoing);
        let mut incoming = self.incoming.lock();
        incoming.abandoned = true;
        incoming.bytes.clear();
        wake(&mut incoming.writer);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bytes::BytesMut;
    use proptest::prelude::*;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::task::Wake;

    #[derive(Default)]
    struct Wakes(AtomicUsize);

    impl Wake for Wakes {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    fn read(end: &Pipe, bytes_max: usize) -> io::Result<Vec<u8>> {
        let mut buffer = BytesMut::with_capacity(bytes_max);
        end.try_read(&mut (&mut buffer).limit(bytes_max))?;
        Ok(buffer.to_vec())
    }

    fn kind<T: std::fmt::Debug>(outcome: io::Result<T>) -> ErrorKind {
        outcome.unwrap_err().kind()
    }

    proptest! {
        #[test]
        fn bytes_arrive_in_order_and_never_more_than_fit_wait(
            bytes_max in 1..50usize,
            steps in prop::collection::vec((prop::collection::vec(any::<u8>(), 0..60), 1..60usize), 1..40),
        ) {
            let (left, right) = pipe(bytes_max);
            let (mut sent, mut received) = (Vec::new(), Vec::new());
            for (bytes, most) in steps {
                let (front, back) = bytes.split_at(bytes.len() / 2);
                match left.try_write_vectored(&[IoSlice::new(front), IoSlice::new(back)]) {
                    Ok(written) => sent.extend_from_slice(&bytes[..written]),
                    Err(error) => {
                        prop_assert_eq!(error.kind(), ErrorKind::WouldBlock);
                        prop_assert_eq!(sent.len() - received.len(), bytes_max);
                    }
                }
                prop_assert!(sent.len() - received.len() <= bytes_max);
                match read(&right, most) {
                    Ok(bytes) => received.extend(bytes),
                    Err(_) => prop_assert_eq!(sent.len(), received.len()),
                }
            }
            left.end_writing().unwrap();
            while sent.len() > received.len() {
                received.extend(read(&right, 7).unwrap());
            }
            prop_assert_eq!(&sent, &received);
            prop_assert_eq!(read(&right, 7).unwrap(), b"");
        }
    }

    #[test]
    fn who_waits_is_woken_by_the_other_end() {
        let (left, right) = pipe(1);
        let wakes = Arc::new(Wakes::default());
        let waker = Waker::from(wakes.clone());
        let mut context = Context::from_waker(&waker);
        let count = || wakes.0.load(Ordering::Relaxed);

        assert!(right.poll_ready(&mut context, Interest::Readable).is_pending());
        assert_eq!(left.try_write_vectored(&[IoSlice::new(b"ab")]).unwrap(), 1);
        assert_eq!(count(), 1);
        assert!(right.poll_ready(&mut context, Interest::Readable).is_ready());
        assert!(left.poll_ready(&mut context, Interest::Writable).is_pending());
        assert_eq!(read(&right, 5).unwrap(), b"a");
        assert_eq!(count(), 2);

        assert!(right.poll_ready(&mut context, Interest::Readable).is_pending());
        drop(left);
        assert_eq!(count(), 3);
        assert_eq!(read(&right, 5).unwrap(), b"");
        assert_eq!(kind(right.try_write_vectored(&[IoSlice::new(b"x")])), ErrorKind::BrokenPipe);
    }

    #[test]
    fn an_end_that_is_dropped_fails_writes_that_wait() {
        let (left, right) = pipe(1);
        left.try_write_vectored(&[IoSlice::new(b"a")]).unwrap();
        let wakes = Arc::new(Wakes::default());
        let waker = Waker::from(wakes.clone());
        assert!(left.poll_ready(&mut Context::from_waker(&waker), Interest::Writable).is_pending());
        assert_eq!(kind(left.try_write_vectored(&[IoSlice::new(b"b")])), ErrorKind::WouldBlock);
        drop(right);
        assert_eq!(wakes.0.load(Ordering::Relaxed), 1);
        assert_eq!(kind(left.try_write_vectored(&[IoSlice::new(b"b")])), ErrorKind::BrokenPipe);
    }
}
