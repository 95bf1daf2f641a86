//! Bytes that come while a connection waits for something else than its client: a turn of a long command, keys that one
//! has, or the end of a pause.
//!
//! Invariant: a client that goes is noticed meanwhile, which only reading tells, unless it has sent more than is kept for it.
//! Without that, connections that nobody has any more would keep their places, descriptors and memory until their turn came.

use bytes::BytesMut;
use farpool_memory::{Account, Reservation};
use farpool_model::limits::RESP_WAITING_BYTES_MAX;
use farpool_wire::Socket;
use std::io;
use std::pin::pin;

/// Bytes that are read without being charged to anybody: where a tenant has no memory left, its clients are seen to go
/// all the same.
const FIRST_BYTES: usize = 512;

/// Bytes per read behind these.
const READ_BYTES: usize = 16 << 10;

/// The bytes that were read, and the memory that they take.
#[derive(Default)]
pub(super) struct ReadAhead {
    bytes: BytesMut,
    memory: Option<Reservation>,
}

impl ReadAhead {
    /// Charges bytes that are read from now on to this account.
    pub fn charge_to(&mut self, account: Account) {
        self.memory = Some(account.empty());
    }

    /// Waits for something, and reads what the client sends meanwhile.
    ///
    /// # Errors
    /// When the client has ended its side, or the connection is broken.
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

    /// Makes room for the next read; returns false where as much has come as is kept, or there is no memory.
    fn make_room(&mut self) -> bool {
        if self.bytes.len() < self.bytes.capacity() {
            return true;
        }
        if self.bytes.is_empty() {
            self.bytes.reserve(FIRST_BYTES);
            return true;
        }
        // The buffer grows to twice its size, or by a read.
        let more = self.bytes.len().max(READ_BYTES);
        let is_charged = self.bytes.len() + more <= RESP_WAITING_BYTES_MAX
            && self.memory.as_mut().is_some_and(|memory| memory.try_grow(more).is_ok());
        if is_charged {
            self.bytes.reserve(READ_BYTES);
        }
        is_charged
    }

    /// Appends what was read to the requests that came before.
    pub fn give_to(&mut self, received: &mut BytesMut) {
        received.extend_from_slice(&self.bytes);
        (self.bytes, self.memory) = (BytesMut::new(), None);
    }
}
