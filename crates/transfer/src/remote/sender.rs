//! The sending side of a client's connection. Messages are sent in the order in which they are queued.
//!
//! The task that queues a message writes at once as much as the socket accepts, so that a small request needs no switch
//! to another task; a writer task sends the rest. The queue stays short, because requests are small, a load waits for
//! credit, and at most one answer to `Ping`s is pending, however many `Ping`s come.

use bytes::{Buf, Bytes};
use farpool_wire::{Interest, Outgoing, Request, Socket};
use parking_lot::Mutex;
use std::collections::VecDeque;
use std::io::{self, IoSlice};
use tokio::sync::Notify;

/// Maximum number of memory segments in one vectored write. The operating system's limit is 1024.
const SEGMENTS_PER_WRITE: usize = 128;

/// The queue of messages that have not been written to the socket.
#[derive(Debug, Default)]
pub(super) struct Sender {
    queue: Mutex<Queue>,
    writer: Notify,
}

#[derive(Debug, Default)]
struct Queue {
    segments: VecDeque<Bytes>,
    /// Whether a `Pong` must be sent after everything in the queue.
    owes_pong: bool,
}

impl Sender {
    /// Queues a message, and sends at once as much as the socket accepts. Does not report failures of the socket: the
    /// reader task notices them and ends the connection.
    pub fn send(&self, socket: &dyn Socket, stream: u32, message: Outgoing) {
        self.add(socket, |queue| queue.segments.extend(message.frames(stream)));
    }

    /// Queues one `Pong`, which answers all `Ping`s received so far.
    pub fn pong(&self, socket: &dyn Socket) {
        self.add(socket, |queue| queue.owes_pong = true);
    }

    fn add(&self, socket: &dyn Socket, change: impl FnOnce(&mut Queue)) {
        let mut queue = self.queue.lock();
        let was_empty = queue.segments.is_empty();
        change(&mut queue);
        // If the queue was not empty, the writer task is already waiting for the socket.
        if was_empty && matches!(queue.flush(socket), Ok(false)) {
            self.writer.notify_one();
        }
    }

    /// Runs the writer task: sends what the socket did not accept at once, until the socket fails.
    pub async fn run(&self, socket: &dyn Socket) {
        loop {
            self.writer.notified().await;
            loop {
                let blocked = matches!(self.queue.lock().flush(socket), Ok(false));
                if !blocked {
                    break;
                }
                if socket.ready(Interest::Writable).await.is_err() {
                    return;
                }
            }
        }
    }
}

impl Queue {
    /// Writes as much as the socket accepts without blocking; returns true if nothing is left.
    fn flush(&mut self, socket: &dyn Socket) -> io::Result<bool> {
        while !self.is_done() {
            let segments = self.segments.iter().take(SEGMENTS_PER_WRITE);
            let slices: Vec<IoSlice<'_>> = segments.map(|segment| IoSlice::new(segment)).collect();
            match socket.try_write_vectored(&slices) {
                Ok(written) => self.consume(written),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(false),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => {
                    self.segments.clear();
                    return Err(error);
                }
            }
        }
        Ok(true)
    }

    /// Returns whether nothing is left to send, including the `Pong` that goes last.
    fn is_done(&mut self) -> bool {
        if self.segments.is_empty() && std::mem::take(&mut self.owes_pong) {
            let pong = Request::Pong.encode().into_iter().flatten();
            self.segments.extend(pong.flat_map(|message| message.frames(0)));
        }
        self.segments.is_empty()
    }

    fn consume(&mut self, mut written: usize) {
        while let Some(first) = self.segments.front_mut() {
            if first.len() > written {
                return first.advance(written);
            }
            written -= first.len();
            self.segments.pop_front();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bytes::{BufMut, BytesMut};
    use farpool_wire::socket::pipe;
    use farpool_wire::{FrameKind, FrameReader};
    use std::sync::Arc;

    #[tokio::test]
    async fn pings_of_a_node_that_does_not_read_make_no_queue() {
        let (socket, node) = pipe(1000);
        let sender = Arc::new(Sender::default());
        // More bytes than the pipe accepts at once.
        let rows = Bytes::from(vec![0; 100_000]);
        sender.send(&socket, 1, Outgoing::new(FrameKind::LoadBatch, vec![rows]).unwrap());
        let queued = sender.queue.lock().segments.len();
        assert!(queued > 0);
        (0..1000).for_each(|_| sender.pong(&socket));
        assert_eq!(sender.queue.lock().segments.len(), queued);
        let writer = sender.clone();
        let writing = tokio::spawn(async move { writer.run(&socket).await });
        let mut frame_reader = FrameReader::new(BytesMut::new());
        let mut kinds = Vec::new();
        while kinds.len() < 2 {
            let (buffer, most) = frame_reader.room();
            match node.try_read(&mut buffer.limit(most)) {
                Ok(bytes) => frame_reader.read(bytes),
                Err(_) => (&node as &dyn Socket).ready(Interest::Readable).await.unwrap(),
            }
            while let Some(message) = frame_reader.next(|_| Ok(true)).unwrap() {
                kinds.push(message.kind);
            }
        }
        assert_eq!(kinds, [FrameKind::LoadBatch, FrameKind::Pong]);
        assert!(sender.queue.lock().segments.is_empty());
        writing.abort();
    }
}
