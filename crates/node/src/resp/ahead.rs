//! Read-ahead: receives bytes while a connection waits for something other than its client, such as a turn for a long
//! command, a shard, or the end of a pause.
//!
//! Invariant: while a connection waits, it notices if its client disconnects, unless the client has sent more than the
//! read-ahead keeps. Only reading can tell this. Otherwise abandoned connections would occupy places, file descriptors
//! and memory until their turn came: a client that sends `KEYS *`, times out and connects again would leave one such
//! connection per attempt.

use bytes::BytesMut;
use farpool_memory::{Account, Reservation};
use farpool_model::limits::RESP_WAITING_BYTES_MAX;
use farpool_wire::Socket;
use std::io;
use std::pin::pin;

/// Maximum bytes that are read without reserving memory, so that a closed connection is noticed even if the tenant has
/// no memory left.
const FIRST_BYTES: usize = 512;

/// Maximum bytes per read after the first [`FIRST_BYTES`].
const READ_BYTES: usize = 16 << 10;

/// The bytes read ahead, and the memory reserved for them.
#[derive(Default)]
pub(super) struct ReadAhead {
    bytes: BytesMut,
    memory: Option<Reservation>,
}

impl ReadAhead {
    /// Reserves memory for further bytes from this account.
    pub fn charge_to(&mut self, account: Account) {
        self.memory = Some(account.empty());
    }

    /// Waits for the future `waited` and returns its result; reads bytes from `socket` in the meantime.
    ///
    /// # Errors
    /// An error if the client has closed the connection, or the connection is broken.
    pub async fn while_there<T>(
        &mut self,
        socket: &dyn Socket,
        waited: impl Future<Output = T>,
    ) -> io::Result<T> {
        let mut waited = pin!(waited);
        loop {
            let has_room = self.make_room();
            tokio::select! {
                biased;
                done = &mut waited => return Ok(done),
                read = socket.read(&mut self.bytes), if has_room => {
                    if read? == 0 {
                        return Err(io::ErrorKind::UnexpectedEof.into());
                    }
                }
            }
        }
    }

    /// Makes room in the buffer for the next read; returns false if the limit is reached or there is no memory.
    fn make_room(&mut self) -> bool {
        if self.bytes.len() < self.bytes.capacity() {
            return true;
        }
        if self.bytes.is_empty() {
            self.bytes.reserve(FIRST_BYTES);
            return true;
        }
        // The buffer doubles, but grows by at least one read.
        let more = self.bytes.len().max(READ_BYTES);
        let is_charged = self.bytes.len() + more <= RESP_WAITING_BYTES_MAX
            && self.memory.as_mut().is_some_and(|memory| memory.try_grow(more).is_ok());
        if is_charged {
            self.bytes.reserve(READ_BYTES);
        }
        is_charged
    }

    /// Moves the bytes to the end of the receive buffer of the connection.
    pub fn give_to(&mut self, received: &mut BytesMut) {
        received.extend_from_slice(&self.bytes);
        (self.bytes, self.memory) = (BytesMut::new(), None);
    }
}
