//! The messages to be sent on one connection: a queue (*lane*) per open stream, and the order in which the frames of
//! all queues are sent.
//!
//! Invariants: the frames of a message are sent in order and without frames of other messages of the same stream in
//! between. Streams take turns frame by frame. A metered message (one with rows) is begun only while the stream's
//! window, the credit that the client has given, is open. So a client that does not read has at most one message more
//! than the window in flight. This module does no I/O.

use bytes::{Buf, Bytes};
use farpool_model::{Error, Result, cast, limits};
use farpool_wire::sealed::Sealer;
use farpool_wire::{FRAME_HEADER_BYTES, Outgoing, Window};
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

/// A queued message and the part of it that has not been sent.
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

    /// Appends the next frame of the message to `out`; returns the bytes of the frame.
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

/// Number of bytes queued on a stream from which on the stream's program pauses.
const WINDOW_BYTES: u64 = limits::STREAM_WINDOW_BYTES as u64;

/// Number of bytes queued on all streams of a connection from which on the connection is *crowded*: programs then pause
/// unless their stream has nothing queued.
const CROWDED_BYTES: u64 = 4 * WINDOW_BYTES;

/// An open stream: the work in progress for it, and the queue of messages to be sent on it.
struct Lane<W> {
    /// The work of the stream; `None` after it was given up and only the error is left to be sent.
    work: Option<W>,
    /// Encryptor of the answers; `None` unless the client requested sealed (end-to-end encrypted) answers.
    sealer: Option<Arc<Sealer>>,
    opened_ns: u64,
    queue: VecDeque<Queued>,
    bytes_queued: u64,
    window: Window,
    waiting: bool,
    ended: bool,
    bytes_total: u64,
    /// Number of calls of [`Lanes::tick`] since a frame was sent or the queue was empty.
    ticks_still: u32,
}

impl<W> Lane<W> {
    fn sendable(&self) -> bool {
        self.queue.front().is_some_and(|m| m.started || !m.metered || self.window.is_open())
    }

    /// Returns whether the stream's program may make more rows ("has room"). While the stream has no credit, or the
    /// connection is crowded, only a stream with nothing queued has room. So each stream can make progress, and a
    /// client may read its streams in any order.
    fn has_room(&self, crowded: bool) -> bool {
        let full = self.queue.len() >= limits::QUEUED_BATCHES_MAX || self.bytes_queued >= WINDOW_BYTES;
        self.queue.is_empty() || !(full || crowded || !self.window.is_open())
    }
}

/// All open streams of a connection. `W` is the type of the work of a stream.
pub(crate) struct Lanes<W> {
    lanes: BTreeMap<u32, Lane<W>>,
    turns: VecDeque<u32>,
    bytes_queued: u64,
    bytes_left: u64,
}

/// A stream on which nothing has been sent for a while although messages are queued.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Stalled {
    pub stream: u32,
    /// Bytes queued on the stream, without the memory of its program.
    pub bytes_queued: u64,
}

/// Frames to be sent next, as [`Lanes::pick`] chose them.
#[derive(Default)]
pub(crate) struct Picked {
    /// Headers and bodies of the frames, in order.
    pub segments: Vec<Bytes>,
    /// Whether a stream that had no room for its program has room now.
    pub room: bool,
}

impl<W> Lanes<W> {
    /// Creates an empty set of streams.
    pub fn new() -> Self {
        Lanes { lanes: BTreeMap::new(), turns: VecDeque::new(), bytes_queued: 0, bytes_left: 0 }
    }

    /// Opens a stream for a request of `bytes_received` bytes, at the time `now_ns`.
    ///
    /// # Errors
    /// Violations of the protocol: the stream is open already, or too many streams are open.
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

    /// Returns the bytes queued on all streams.
    pub fn bytes_queued(&self) -> u64 {
        self.bytes_queued
    }

    /// Returns the work of a stream; `None` if the stream is not open, was given up, or has its last message queued.
    pub fn work(&mut self, stream: u32) -> Option<&mut W> {
        self.lanes.get_mut(&stream).filter(|lane| !lane.ended)?.work.as_mut()
    }

    /// Sets the sealer that encrypts the answers on a stream; does nothing if the stream is not open.
    pub fn set_sealer(&mut self, stream: u32, sealer: Arc<Sealer>) {
        if let Some(lane) = self.lanes.get_mut(&stream) {
            lane.sealer = Some(sealer);
        }
    }

    /// Returns the sealer that encrypts the answers on a stream; `None` if the answers are not sealed.
    pub fn sealer(&self, stream: u32) -> Option<Arc<Sealer>> {
        self.lanes.get(&stream)?.sealer.clone()
    }

    /// Iterates over the open streams whose last message is not queued yet, with their work.
    pub fn works(&self) -> impl Iterator<Item = (u32, &W)> {
        let open = self.lanes.iter().filter(|(_, lane)| !lane.ended);
        open.filter_map(|(stream, lane)| lane.work.as_ref().map(|work| (*stream, work)))
    }

    /// Iterates over the open streams whose last message is not queued yet, with the times when they were opened.
    pub fn opened(&self) -> impl Iterator<Item = (u32, u64)> {
        let open = self.lanes.iter().filter(|(_, lane)| !lane.ended);
        open.map(|(stream, lane)| (*stream, lane.opened_ns))
    }

    /// Queues a message on a stream; returns false if the stream is not open or has its last message queued.
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

    /// Queues the last message of a stream, which closes when the message has been sent.
    pub fn end(&mut self, stream: u32, message: Outgoing) {
        if self.push(stream, message)
            && let Some(lane) = self.lanes.get_mut(&stream)
        {
            lane.ended = true;
        }
    }

    /// Adds `bytes` to the credit of a stream; returns whether the stream had no room for its program and has room now.
    /// Credit for a closed stream is ignored.
    ///
    /// # Errors
    /// A violation of the protocol: more credit than a stream may have.
    pub fn grant(&mut self, stream: u32, bytes: u64) -> Result<bool> {
        let crowded = self.is_crowded();
        let Some(lane) = self.lanes.get_mut(&stream) else { return Ok(false) };
        let had_room = lane.has_room(crowded);
        lane.window.granted(bytes)?;
        let room = !had_room && lane.has_room(crowded);
        self.take_place(stream);
        Ok(room)
    }

    /// Adds bytes received from the client to the count of a stream.
    pub fn received(&mut self, stream: u32, bytes: u64) {
        if let Some(lane) = self.lanes.get_mut(&stream) {
            lane.bytes_total += bytes;
        }
    }

    /// Returns the bytes of a stream in both directions, including headers of frames. Queued bytes count as sent.
    pub fn bytes_total(&self, stream: u32) -> u64 {
        self.lanes.get(&stream).map_or(0, |lane| lane.bytes_total)
    }

    /// Closes a stream at once and drops its queued messages; returns its work, or `None` if it is not open or was
    /// given up.
    pub fn remove(&mut self, stream: u32) -> Option<W> {
        let lane = self.lanes.remove(&stream)?;
        self.bytes_queued -= lane.bytes_queued;
        lane.work
    }

    /// Replaces the queued messages of a stream by `error`, even in the middle of a message, after which the stream
    /// closes. Returns the work of the stream; `None` if it is not open.
    pub fn give_up(&mut self, stream: u32, error: Outgoing) -> Option<W> {
        let lane = self.lanes.get_mut(&stream)?;
        let work = lane.work.take()?;
        self.bytes_queued -= std::mem::take(&mut lane.bytes_queued);
        lane.queue.clear();
        lane.ended = false;
        self.end(stream, error);
        Some(work)
    }

    /// Counts a tick for each stream with queued messages; see [`Lanes::stalled`].
    pub fn tick(&mut self) {
        for lane in self.lanes.values_mut().filter(|lane| !lane.queue.is_empty()) {
            lane.ticks_still += 1;
        }
    }

    /// Returns the streams that have had messages queued during `ticks` calls of [`Lanes::tick`] without a frame being
    /// sent, because their client gives no credit or does not read.
    pub fn stalled(&self, ticks: u32) -> Vec<Stalled> {
        let stalled = self.lanes.iter().filter(|(_, lane)| lane.ticks_still >= ticks);
        stalled.map(|(stream, lane)| Stalled { stream: *stream, bytes_queued: lane.bytes_queued }).collect()
    }

    /// Returns the total number of bytes picked for sending on all streams so far.
    pub fn bytes_left(&self) -> u64 {
        self.bytes_left
    }

    /// Closes all streams at once, drops their queued messages and returns their work.
    pub fn drain(&mut self) -> Vec<W> {
        self.turns.clear();
        self.bytes_queued = 0;
        std::mem::take(&mut self.lanes).into_values().filter_map(|lane| lane.work).collect()
    }

    /// Returns whether the program of a stream may make more rows. Also true if the stream is closed, because its
    /// program will soon notice that it is cancelled.
    pub fn has_room(&self, stream: u32) -> bool {
        self.lanes.get(&stream).is_none_or(|lane| lane.has_room(self.is_crowded()))
    }

    /// Takes frames from the streams in turn, until they have at least `bytes_max` bytes together or no stream has a
    /// frame that may be sent.
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
            // Closed before the bytes are written, because the client may reuse the number of the stream as soon as it
            // has them.
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
