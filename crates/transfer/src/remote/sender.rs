//! The sending side of a client's connection: first come, first sent.
//!
//! Whoever has something to send writes it at once as far as the socket takes it, so that a small request
//! costs no change of task; the writer task sends the rest. Little is ever queued: requests are small, and
//! a load waits for credit.

use bytes::{Buf, Bytes};
use farpool_wire::Outgoing;
use parking_lot::Mutex;
use std::collections::VecDeque;
use std::io::{self, IoSlice};
use tokio::net::TcpStream;
use tokio::sync::Notify;

/// Segments of one vectored write; the system takes 1024.
const SEGMENTS_PER_WRITE: usize = 128;

/// What waits to be sent.
#[derive(Debug, Default)]
pub(super) struct Sender {
    queue: Mutex<VecDeque<Bytes>>,
    writer: Notify,
}

impl Sender {
    /// Queues a message and sends what the socket takes at once. A socket that fails says so to the
    /// reader, which ends the connection.
    pub fn send(&self, socket: &TcpStream, stream: u32, message: Outgoing) {
        let mut queue = self.queue.lock();
        let was_empty = queue.is_empty();
        queue.extend(message.frames(stream));
        // Otherwise the writer task is waiting for the socket.
        if was_empty && matches!(flush(&mut queue, socket), Ok(false)) {
            self.writer.notify_one();
        }
    }

    /// The writer task: sends what the socket did not take at once, until the socket fails.
    pub async fn run(&self, socket: &TcpStream) {
        loop {
            self.writer.notified().await;
            loop {
                let blocked = matches!(flush(&mut self.queue.lock(), socket), Ok(false));
                if !blocked {
                    break;
                }
                if socket.writable().await.is_err() {
                    return;
                }
            }
        }
    }
}

/// Writes what the socket takes; true when nothing is left.
fn flush(queue: &mut VecDeque<Bytes>, socket: &TcpStream) -> io::Result<bool> {
    while !queue.is_empty() {
        let slices: Vec<IoSlice<'_>> =
            queue.iter().take(SEGMENTS_PER_WRITE).map(|segment| IoSlice::new(segment)).collect();
        match socket.try_write_vectored(&slices) {
            Ok(written) => consume(queue, written),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(false),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => {
                queue.clear();
                return Err(error);
            }
        }
    }
    Ok(true)
}

fn consume(queue: &mut VecDeque<Bytes>, mut written: usize) {
    while let Some(first) = queue.front_mut() {
        if first.len() > written {
            return first.advance(written);
        }
        written -= first.len();
        queue.pop_front();
    }
}
