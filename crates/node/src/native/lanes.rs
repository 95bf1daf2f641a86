//! The messages queued to be sent on one connection, a queue for each open stream, and the order in which
//! they are sent.
//!
//! Invariants: frames of one message are sent in order and nothing comes between them on their stream;
//! streams take turns frame by frame; a metered message starts only while its stream's window is open, so
//! that at most one message more than the window is in flight to a client that does not read. No IO here.

use bytes::{Buf, Bytes};
use farpool_model::{Error, Result, cast, limits};
use farpool_wire::sealed::Sealer;
use farpool_wire::{FRAME_HEADER_BYTES, Outgoing, Window};
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

/// A message and the part of it that has not been sent.
#[derive(Debug)]
struct Queued {
    metered: bool,
    started: bool,
    bytes_on_wire: u64,
    pieces: VecDeque<Bytes>,
}

impl Queued {
    fn new(stream: u32, message: Outgoing) -> Self {
        Queued {
            metered: message.kind().is_flow_controlled(),
            started: false,
            bytes_on_wire: message.bytes_on_wire(),
            pieces: message.frames(stream).into(),
        }
    }

    /// Moves the next frame to `out`; returns its size in bytes.
    fn take_frame(&mut self, out: &mut Vec<Bytes>) -> usize {
        self.started = true;
        let Some(header) = self.pieces.pop_front() else { return 0 };
        let mut payload = usize::try_from(header.as_ref().get_u32_le()).unwrap_or(usize::MAX);
        let bytes = FRAME_HEADER_BYTES + payload;
        out.push(header);
        while payload > 0 {
            let Some(piece) = self.pieces.pop_front() else { break };
            payload -= piece.len();
            out.push(piece);
        }
        bytes
    }
}

/// Bytes queued on a stream beyond which its program pauses.
const WINDOW_BYTES: u64 = limits::STREAM_WINDOW_BYTES as u64;

/// Bytes queued on all streams of a connection beyond which the connection is crowded.
const CROWDED_BYTES: u64 = 4 * WINDOW_BYTES;

/// One open stream.
struct Lane<W> {
    /// `None` once the stream was given up: only the error is still to be sent.
    work: Option<W>,
    /// Sealer of the answers, if the client requested that.
    sealer: Option<Arc<Sealer>>,
    opened_ns: u64,
    queue: VecDeque<Queued>,
    bytes_queued: u64,
    window: Window,
    waiting: bool,
    ended: bool,
    bytes_total: u64,
    /// Calls of [`Lanes::tick`] since a frame was sent or the queue was empty.
    ticks_still: u32,
}

impl<W> Lane<W> {
    fn sendable(&self) -> bool {
        self.queue.front().is_some_and(|m| m.started || !m.metered || self.window.is_open())
    }

    /// Returns whether the stream's program may continue. While its window is closed, or the connection as a whole has
    /// much to send (`crowded`), only a stream with nothing queued has room. So each stream can still make progress,
    /// and a client may read its streams in any order.
    fn has_room(&self, crowded: bool) -> bool {
        let full = self.queue.len() >= limits::QUEUED_BATCHES_MAX || self.bytes_queued >= WINDOW_BYTES;
        self.queue.is_empty() || !(full || crowded || !self.window.is_open())
    }
}

/// All open streams of a connection. `W` is the work of a stream.
pub(crate) struct Lanes<W> {
    lanes: BTreeMap<u32, Lane<W>>,
    turns: VecDeque<u32>,
    bytes_queued: u64,
    bytes_left: u64,
}

/// A stream on which nothing is being sent although something is queued.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Stalled {
    pub stream: u32,
    /// Bytes queued on the stream, apart from what its program holds.
    pub bytes_queued: u64,
}

/// Frames to be sent next.
#[derive(Default)]
pub(crate) struct Picked {
    /// Headers and bodies, in order.
    pub segments: Vec<Bytes>,
    /// Whether a stream that had no room has room now.
    pub room: bool,
}

impl<W> Lanes<W> {
    /// Creates an empty set of streams.
    pub fn new() -> Self {
        Lanes { lanes: BTreeMap::new(), turns: VecDeque::new(), bytes_queued: 0, bytes_left: 0 }
    }

    /// Opens a stream for a request of `bytes_received`, at time `now_ns`.
    ///
    /// # Errors
    /// When the stream is open already, or too many are. Both violate the protocol.
    pub fn open(&mut self, stream: u32, bytes_received: u64, now_ns: u64, work: W) -> Result<()> {
        if self.lanes.len() >= limits::STREAMS_PER_CONNECTION_MAX {
            return Err(Error::over_limit(format!(
                "a connection may have {} requests open at once",
                limits::STREAMS_PER_CONNECTION_MAX
            )));
        }
        if self.lanes.contains_key(&stream) {
            return Err(Error::corrupt(format!("a second request on stream {stream}, which is still open")));
        }
        let lane = Lane {
            work: Some(work),
            sealer: None,
            opened_ns: now_ns,
            queue: VecDeque::new(),
            bytes_queued: 0,
            window: Window::new(),
            waiting: false,
            ended: false,
            bytes_total: bytes_received,
            ticks_still: 0,
        };
        self.lanes.insert(stream, lane);
        Ok(())
    }

    /// Returns the number of open streams.
    pub fn len(&self) -> usize {
        self.lanes.len()
    }

    /// Bytes queued on all streams.
    pub fn bytes_queued(&self) -> u64 {
        self.bytes_queued
    }

    /// Returns the work of a stream, while it is open and its last message is not yet queued.
    pub fn work(&mut self, stream: u32) -> Option<&mut W> {
        self.lanes.get_mut(&stream).filter(|lane| !lane.ended)?.work.as_mut()
    }

    /// Sets the sealer that encrypts the answers of a stream, if it is open.
    pub fn set_sealer(&mut self, stream: u32, sealer: Arc<Sealer>) {
        if let Some(lane) = self.lanes.get_mut(&stream) {
            lane.sealer = Some(sealer);
        }
    }

    /// Returns the sealer that encrypts the answers of a stream, if there is one.
    pub fn sealer(&self, stream: u32) -> Option<Arc<Sealer>> {
        self.lanes.get(&stream)?.sealer.clone()
    }

    /// Returns the work of each open stream whose last message is not yet queued.
    pub fn works(&self) -> impl Iterator<Item = (u32, &W)> {
        let open = self.lanes.iter().filter(|(_, lane)| !lane.ended);
        open.filter_map(|(stream, lane)| lane.work.as_ref().map(|work| (*stream, work)))
    }

    /// Returns the opening time of each stream whose last message is not yet queued.
    pub fn opened(&self) -> impl Iterator<Item = (u32, u64)> {
        let open = self.lanes.iter().filter(|(_, lane)| !lane.ended);
        open.map(|(stream, lane)| (*stream, lane.opened_ns))
    }

    /// Queues a message; false when the stream is not open.
    pub fn push(&mut self, stream: u32, message: Outgoing) -> bool {
        let Some(lane) = self.lanes.get_mut(&stream).filter(|lane| !lane.ended) else { return false };
        let message = Queued::new(stream, message);
        if lane.queue.is_empty() {
            lane.ticks_still = 0;
        }
        lane.bytes_queued += message.bytes_on_wire;
        self.bytes_queued += message.bytes_on_wire;
        lane.bytes_total += message.bytes_on_wire;
        lane.queue.push_back(message);
        self.take_place(stream);
        true
    }

    /// Queues the last message of a stream; the stream closes when it has been sent.
    pub fn end(&mut self, stream: u32, message: Outgoing) {
        if self.push(stream, message)
            && let Some(lane) = self.lanes.get_mut(&stream)
        {
            lane.ended = true;
        }
    }

    /// Opens the window of a stream by `bytes`; returns whether the stream had no room and now has. Credit
    /// for a stream that has ended is ignored.
    ///
    /// # Errors
    /// When the credit exceeds what the protocol allows.
    pub fn grant(&mut self, stream: u32, bytes: u64) -> Result<bool> {
        let crowded = self.is_crowded();
        let Some(lane) = self.lanes.get_mut(&stream) else { return Ok(false) };
        let had_room = lane.has_room(crowded);
        lane.window.granted(bytes)?;
        let room = !had_room && lane.has_room(crowded);
        self.take_place(stream);
        Ok(room)
    }

    /// Adds received bytes to the stream's count.
    pub fn received(&mut self, stream: u32, bytes: u64) {
        if let Some(lane) = self.lanes.get_mut(&stream) {
            lane.bytes_total += bytes;
        }
    }

    /// Bytes of the stream in both directions, including frames; queued ones count as sent.
    pub fn bytes_total(&self, stream: u32) -> u64 {
        self.lanes.get(&stream).map_or(0, |lane| lane.bytes_total)
    }

    /// Closes a stream at once and drops what is queued.
    pub fn remove(&mut self, stream: u32) -> Option<W> {
        let lane = self.lanes.remove(&stream)?;
        self.bytes_queued -= lane.bytes_queued;
        lane.work
    }

    /// Ends a stream with `error` in place of what is queued, even in the middle of a message; returns its
    /// work, or `None` when the stream is not open.
    pub fn give_up(&mut self, stream: u32, error: Outgoing) -> Option<W> {
        let lane = self.lanes.get_mut(&stream)?;
        let work = lane.work.take()?;
        self.bytes_queued -= std::mem::take(&mut lane.bytes_queued);
        lane.queue.clear();
        lane.ended = false;
        self.end(stream, error);
        Some(work)
    }

    /// Advances time by a tick, from which streams that make no progress are found.
    pub fn tick(&mut self) {
        for lane in self.lanes.values_mut().filter(|lane| !lane.queue.is_empty()) {
            lane.ticks_still += 1;
        }
    }

    /// Returns the streams that have had something queued for `ticks` calls of [`Lanes::tick`] without a frame being
    /// sent: their client gives no credit or does not read.
    pub fn stalled(&self, ticks: u32) -> Vec<Stalled> {
        let stalled = self.lanes.iter().filter(|(_, lane)| lane.ticks_still >= ticks);
        stalled.map(|(stream, lane)| Stalled { stream: *stream, bytes_queued: lane.bytes_queued }).collect()
    }

    /// Bytes sent, on all streams.
    pub fn bytes_left(&self) -> u64 {
        self.bytes_left
    }

    /// Closes all streams at once and returns their work.
    pub fn drain(&mut self) -> Vec<W> {
        self.turns.clear();
        self.bytes_queued = 0;
        std::mem::take(&mut self.lanes).into_values().filter_map(|lane| lane.work).collect()
    }

    /// Returns whether a program may continue to make batches for the stream. Also true when the stream is closed: then
    /// nothing is queued, and the program will soon notice that it is cancelled.
    pub fn has_room(&self, stream: u32) -> bool {
        self.lanes.get(&stream).is_none_or(|lane| lane.has_room(self.is_crowded()))
    }

    /// Takes frames from the streams in turn, until they amount to `bytes_max`.
    pub fn pick(&mut self, bytes_max: usize) -> Picked {
        let mut picked = Picked::default();
        let mut bytes = 0;
        while bytes < bytes_max {
            let Some(stream) = self.turns.pop_front() else { break };
            bytes += self.pick_frame(stream, &mut picked);
        }
        picked
    }

    fn pick_frame(&mut self, stream: u32, picked: &mut Picked) -> usize {
        let was_crowded = self.is_crowded();
        let Some(lane) = self.lanes.get_mut(&stream) else { return 0 };
        lane.waiting = false;
        if !lane.sendable() {
            return 0;
        }
        let had_room = lane.has_room(was_crowded);
        let Some(message) = lane.queue.front_mut() else { return 0 };
        if message.metered && !message.started {
            lane.window.sent(message.bytes_on_wire);
        }
        let bytes = message.take_frame(&mut picked.segments);
        lane.bytes_queued -= cast::u64_from(bytes);
        lane.ticks_still = 0;
        self.bytes_queued -= cast::u64_from(bytes);
        self.bytes_left += cast::u64_from(bytes);
        if message.pieces.is_empty() {
            lane.queue.pop_front();
        }
        let crowded = self.bytes_queued >= CROWDED_BYTES;
        picked.room |= (was_crowded && !crowded) || (!had_room && lane.has_room(crowded));
        if lane.ended && lane.queue.is_empty() {
            // Closed before the bytes are written: the client may reuse the number once it has them.
            self.lanes.remove(&stream);
        } else {
            self.take_place(stream);
        }
        bytes
    }

    fn is_crowded(&self) -> bool {
        self.bytes_queued >= CROWDED_BYTES
    }

    fn take_place(&mut self, stream: u32) {
        if let Some(lane) = self.lanes.get_mut(&stream)
            && !lane.waiting
            && lane.sendable()
        {
            lane.waiting = true;
            self.turns.push_back(stream);
        }
    }
}

#[cfg(test)]
mod tests;
