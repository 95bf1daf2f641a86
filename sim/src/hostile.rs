//! A client that violates the protocol: meaningless bytes, requests with some bytes changed, frames that never end,
//! rows without credit, streams used twice, floods.
//!
//! This client checks no answers. The simulation checks that the node and other clients are unharmed: no panics, no
//! leaks.

use crate::client::{random_request, token_of};
use crate::query::Queries;
use crate::random::Random;
use crate::rows::{WORDS, batch, random_rows, schema};
use bytes::{BufMut, BytesMut};
use farpool_model::{LoadId, LoadMode, TableName};
use farpool_wire::socket::Pipe;
use farpool_wire::{FrameHeader, FrameKind, PREFACE, Request, Socket};
use std::io::{ErrorKind, IoSlice};

/// Bytes of unsent output above which the client sends nothing new.
const OUTGOING_BYTES_MAX: usize = 4 << 20;

/// A hostile client.
#[derive(Debug)]
pub struct Hostile {
    /// Number of the client in the log.
    pub number: usize,
    socket: Pipe,
    outgoing: BytesMut,
    last_stream: u32,
    /// Whether the node has closed the connection.
    pub is_gone: bool,
}

impl Hostile {
    /// Creates a client that sends a hello as a client of `tenant`, possibly with some bytes changed.
    pub fn new(number: usize, tenant: &str, socket: Pipe, random: &mut Random) -> Self {
        let token = Some(token_of(tenant));
        let hello = Request::Hello {
            version_min: 1,
            version_max: 1,
            token,
            timeout_ms: None,
            client: "hostile".into(),
        };
        let mut bytes = [PREFACE.to_vec(), frames(0, &hello)].concat();
        if random.chance(10) {
            spoil(random, &mut bytes);
        }
        let outgoing = BytesMut::from(&bytes[..]);
        Hostile { number, socket, outgoing, last_stream: 0, is_gone: false }
    }

    /// Queues output that violates the protocol in a random way.
    pub fn act(&mut self, random: &mut Random, table: String) {
        if self.outgoing.len() > OUTGOING_BYTES_MAX {
            return;
        }
        let mut bytes = self.random_bytes(random, table);
        if random.chance(30) {
            spoil(random, &mut bytes);
        }
        self.outgoing.extend_from_slice(&bytes);
    }

    fn random_bytes(&mut self, random: &mut Random, table: String) -> Vec<u8> {
        let stream = self.some_stream(random);
        match random.below(13) {
            0..4 => random_request(random, table, Queries::Any)
                .map_or_else(|_| Vec::new(), |(_, asked)| frames(stream, &asked)),
            4..7 => random_load(random, stream, &table),
            7 => {
                // The body of the frame may never be sent.
                let kind = random.pick(FrameKind::ALL);
                let length = random.magnitude(2 << 20) as u32;
                let header = FrameHeader { length, kind, more: random.chance(50), stream };
                let body = (0..random.magnitude(2000)).map(|_| random.next() as u8);
                header.encode().into_iter().chain(body).collect()
            }
            8 => frames(stream, &Request::Cancel),
            12 => frames(stream, &Request::LoadOutcome { id: LoadId(random.below(8) as u128) }),
            9 => frames(stream, &Request::Credit { bytes: random.next() >> random.below(64) }),
            10 => frames(0, &Request::Ping).repeat(random.magnitude(1000)),
            _ => (1..random.magnitude(100) as u32)
                .flat_map(|more| frames(stream.saturating_add(more), &Request::Status))
                .collect(),
        }
    }

    /// Returns a new stream, or one that was used before.
    fn some_stream(&mut self, random: &mut Random) -> u32 {
        if self.last_stream > 0 && random.chance(20) {
            return random.below(self.last_stream as usize + 1) as u32;
        }
        self.last_stream += 1;
        self.last_stream
    }

    /// Writes up to `most` bytes; returns whether any were written.
    pub fn write(&mut self, most: usize) -> bool {
        let count = most.min(self.outgoing.len());
        if count == 0 || self.is_gone {
            return false;
        }
        match self.socket.try_write_vectored(&[IoSlice::new(&self.outgoing[..count])]) {
            Ok(written) => drop(self.outgoing.split_to(written)),
            Err(error) => {
                self.is_gone |= error.kind() != ErrorKind::WouldBlock;
                return false;
            }
        }
        true
    }

    /// Reads and ignores up to `most` bytes; returns whether there were any.
    pub fn read(&mut self, most: usize) -> bool {
        let mut ignored = BytesMut::with_capacity(most.min(1 << 20));
        match self.socket.try_read(&mut (&mut ignored).limit(most)) {
            Ok(bytes) => {
                self.is_gone |= bytes == 0;
                bytes > 0
            }
            Err(_) => false,
        }
    }
}

/// Creates the messages of a load, possibly without an end, whose rows do not wait for credit.
fn random_load(random: &mut Random, stream: u32, table: &str) -> Vec<u8> {
    let modes = [LoadMode::Create, LoadMode::Append, LoadMode::Replace];
    let table = TableName::new(table).expect("tables of the simulation have valid names");
    let rows_hint = random.chance(20).then(|| random.next());
    // There are few ids, so that some are used twice.
    let id = random.chance(60).then(|| LoadId(random.below(8) as u128));
    let begin =
        Request::LoadBegin { table, options: random.pick(&modes).into(), schema: schema(), rows_hint, id };
    let mut bytes = frames(stream, &begin);
    for _ in 0..random.magnitude(6) {
        let count = random.magnitude(2000);
        bytes.extend(frames(stream, &Request::LoadBatch(batch(&random_rows(random, count, &WORDS)))));
    }
    if random.chance(60) {
        bytes.extend(frames(stream, &Request::LoadEnd));
    }
    bytes
}

/// Changes or removes some of the bytes.
fn spoil(random: &mut Random, bytes: &mut Vec<u8>) {
    if bytes.is_empty() {
        return;
    }
    match random.below(4) {
        0 => bytes.truncate(random.below(bytes.len())),
        1 => drop(bytes.drain(..random.below(bytes.len()))),
        _ => {
            for _ in 0..random.magnitude(8) {
                let index = random.below(bytes.len());
                bytes[index] = random.next() as u8;
            }
        }
    }
}

/// Encodes a request as frames.
fn frames(stream: u32, request: &Request) -> Vec<u8> {
    let messages = request.encode().into_iter().flatten();
    messages.flat_map(|message| message.frames(stream)).flatten().collect()
}
