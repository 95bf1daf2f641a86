//! The sending side of a connection: any thread can queue messages and write them to the socket.
//!
//! One thread at a time is the writer; other threads only queue messages, and the writer checks the queue again before
//! it stops, so that no message is forgotten. So a message that finds no other queued, and the end of a result, are
//! sent by the worker that made them, without waking another thread. What the socket does not accept at once is left to
//! the writer task. Writes are vectored and at most a frame or two long, so that the bytes stay in the CPU caches.

use super::lanes::Lanes;
use super::meter::Meter;
use bytes::{Buf, Bytes};
use farpool_model::{Clock, Error, Result, limits};
use farpool_wire::{Interest, Outgoing, Response, Socket};
use parking_lot::Mutex;
use std::collections::VecDeque;
use std::io::{self, IoSlice};
use std::sync::Arc;
use tokio::sync::Notify;

/// Maximum number of segments per vectored write; the limit of the system is 1024.
const SEGMENTS_PER_WRITE: usize = 128;

/// Maximum number of writes that a worker makes before it leaves the rest to the writer task.
const WRITES_BY_WORKER: usize = 2;

/// Maximum number of writes that the writer task makes before it yields to other connections.
const WRITES_PER_TURN: usize = 16;

/// The sending side of a connection: the queued messages and the socket. `W` is the type of the work of a stream.
pub(crate) struct Outbox<W> {
    socket: Arc<dyn Socket>,
    clock: Arc<dyn Clock>,
    state: Mutex<OutboxState<W>>,
    writer: Notify,
    on_room: Box<dyn Fn() + Send + Sync>,
}

struct OutboxState<W> {
    lanes: Lanes<W>,
    meter: Meter,
    unwritten: VecDeque<Bytes>,
    keepalive: Keepalive,
    writing: bool,
    closed: bool,
}

/// Pings and answers to pings that are to be sent before anything else. Flags instead of a queue, so that a peer that
/// sends pings without end and reads nothing cannot make a queue grow.
#[derive(Default)]
struct Keepalive {
    ping: bool,
    pong: bool,
}

impl Keepalive {
    /// Returns the frames to be sent, and clears the flags.
    fn take(&mut self) -> Vec<Bytes> {
        let Keepalive { ping, pong } = std::mem::take(self);
        let wanted = [(ping, Response::Ping), (pong, Response::Pong)];
        let messages = wanted.into_iter().filter(|(wanted, _)| *wanted).filter_map(|(_, m)| m.encode().ok());
        messages.flatten().flat_map(|message| message.frames(0)).collect()
    }
}

enum WriteProgress {
    /// Nothing is left to write, or another thread is the writer and will write it.
    Done,
    /// The maximum number of writes was made, and there is more to write.
    More,
    /// The socket accepts no more bytes now, and there is more to write.
    Blocked,
}

impl<W> Outbox<W> {
    /// Creates an outbox for `socket`. `clock` measures the rate of the socket. `on_room` is called when a stream that
    /// had no room for its program has room again.
    pub fn new(socket: Arc<dyn Socket>, clock: Arc<dyn Clock>, on_room: Box<dyn Fn() + Send + Sync>) -> Self {
        let state = OutboxState {
            lanes: Lanes::new(),
            meter: Meter::new(socket.is_near()),
            unwritten: VecDeque::new(),
            keepalive: Keepalive::default(),
            writing: false,
            closed: false,
        };
        Outbox { socket, clock, state: Mutex::new(state), writer: Notify::new(), on_room }
    }

    /// Calls `change` with the streams, under a lock, and returns the result. What it queues is not sent before
    /// [`Outbox::flush`] or [`Outbox::wake`].
    pub fn with<T>(&self, change: impl FnOnce(&mut Lanes<W>) -> T) -> T {
        change(&mut self.state.lock().lanes)
    }

    /// Returns the bytes per second that the socket accepts, measured or estimated.
    pub fn bytes_per_s(&self) -> f64 {
        self.state.lock().meter.bytes_per_s()
    }

    /// Sends a ping to the client.
    pub fn ping(&self) {
        self.state.lock().keepalive.ping = true;
        self.flush();
    }

    /// Queues the answer to a ping; it is sent with the next [`Outbox::flush`].
    pub fn pong(&self) {
        self.state.lock().keepalive.pong = true;
    }

    /// Opens a stream; see [`Lanes::open`].
    pub fn open(&self, stream: u32, bytes_received: u64, work: W) -> Result<()> {
        let now_ns = self.clock.now_ns();
        let mut state = self.state.lock();
        if state.closed {
            return Err(Error::unavailable("the connection is closing"));
        }
        state.lanes.open(stream, bytes_received, now_ns, work)
    }

    /// Queues a message and sends it. If no other message is queued, this thread writes it, because waking the writer
    /// task and moving the bytes to its CPU would take longer.
    pub fn push(&self, stream: u32, message: Outgoing) {
        self.push_each(stream, |put| put(message));
    }

    /// Does the same as [`Outbox::push`] for each message that `deliver` passes to its argument.
    pub fn push_each(&self, stream: u32, deliver: impl FnOnce(&mut dyn FnMut(Outgoing))) {
        let mut alone = None;
        deliver(&mut |message| {
            let queued = self.with(|lanes| {
                let alone = lanes.bytes_queued() == 0;
                lanes.push(stream, message).then_some(alone)
            });
            alone = alone.or(queued);
        });
        match alone {
            Some(true) => self.flush(),
            Some(false) => self.wake(),
            None => {}
        }
    }

    /// Makes the writer task send the queued messages.
    pub fn wake(&self) {
        self.writer.notify_one();
    }

    /// Writes queued messages from this thread as far as the socket accepts them at once; the writer task sends the
    /// rest. Does not block.
    pub fn flush(&self) {
        match self.write(WRITES_BY_WORKER) {
            Ok(WriteProgress::Done) => {}
            // After an error, the writer task gets the same error and closes the connection.
            Ok(WriteProgress::More | WriteProgress::Blocked) | Err(_) => self.wake(),
        }
    }

    /// Closes all streams and returns their work. Nothing more is sent except the rest of a frame that is partly
    /// written and, if given, the message `last` about the connection as a whole.
    pub fn close(&self, last: Option<Outgoing>) -> Vec<W> {
        let mut state = self.state.lock();
        state.closed = true;
        state.keepalive = Keepalive::default();
        state.unwritten.extend(last.into_iter().flat_map(|message| message.frames(0)));
        state.lanes.drain()
    }

    /// Returns whether all queued messages have been written to the socket.
    pub fn is_idle(&self) -> bool {
        let state = self.state.lock();
        state.lanes.len() == 0 && !state.writing && state.unwritten.is_empty()
    }

    /// Runs the writer task: sends queued messages until the socket fails.
    pub async fn run(&self) -> io::Result<()> {
        loop {
            self.writer.notified().await;
            self.write_all().await?;
        }
    }

    /// Writes all queued messages, waiting while the socket is full, unless another thread is the writer.
    pub async fn write_all(&self) -> io::Result<()> {
        loop {
            match self.write(WRITES_PER_TURN)? {
                WriteProgress::Done => return Ok(()),
                WriteProgress::More => tokio::task::yield_now().await,
                WriteProgress::Blocked => self.socket.ready(Interest::Writable).await?,
            }
        }
    }

    fn write(&self, writes_max: usize) -> io::Result<WriteProgress> {
        let Some(mut segments) = self.begin() else { return Ok(WriteProgress::Done) };
        let mut writes = 0;
        let mut bytes = 0;
        loop {
            match write_some(&*self.socket, &mut segments) {
                Ok(written) => {
                    writes += 1;
                    bytes += written;
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    self.pause(segments, bytes, true);
                    return Ok(WriteProgress::Blocked);
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => {
                    self.pause(VecDeque::new(), bytes, false);
                    return Err(error);
                }
            }
            if segments.is_empty() {
                match self.next(std::mem::take(&mut bytes)) {
                    Some(more) => segments = more,
                    None => return Ok(WriteProgress::Done),
                }
            }
            if writes >= writes_max {
                self.pause(segments, bytes, false);
                return Ok(WriteProgress::More);
            }
        }
    }

    /// Makes the calling thread the writer and returns the segments to write; returns `None` if there is nothing to
    /// write or another thread is the writer.
    fn begin(&self) -> Option<VecDeque<Bytes>> {
        {
            let mut state = self.state.lock();
            if state.writing {
                return None;
            }
            state.writing = true;
        }
        self.next(0)
    }

    /// Returns the segments to write next, after `bytes` bytes were written; `None` if there are none, and the calling
    /// thread is then no longer the writer.
    fn next(&self, bytes: usize) -> Option<VecDeque<Bytes>> {
        let mut room = false;
        let segments = {
            let mut state = self.state.lock();
            let mut segments = std::mem::take(&mut state.unwritten);
            if segments.is_empty() {
                let picked = state.lanes.pick(limits::FRAME_BYTES_MAX);
                room = picked.room;
                segments = state.keepalive.take().into();
                segments.extend(picked.segments);
            }
            state.writing = !segments.is_empty();
            let more = state.writing;
            state.meter.wrote(bytes, more, self.clock.now_ns());
            segments
        };
        if room {
            (self.on_room)();
        }
        (!segments.is_empty()).then_some(segments)
    }

    /// Ends the role of the calling thread as the writer, after it has written `bytes` bytes, and leaves `segments` to
    /// the next writer. `full` says whether the socket was full.
    fn pause(&self, mut segments: VecDeque<Bytes>, bytes: usize, full: bool) {
        let now_ns = self.clock.now_ns();
        let mut state = self.state.lock();
        state.meter.wrote(bytes, true, now_ns);
        if full {
            state.meter.full(now_ns);
        }
        state.writing = false;
        segments.append(&mut state.unwritten);
        state.unwritten = segments;
    }
}

/// Writes the first segments to the socket and removes what was written from `segments`; returns the number of bytes
/// written.
fn write_some(socket: &dyn Socket, segments: &mut VecDeque<Bytes>) -> io::Result<usize> {
    let slices: Vec<IoSlice<'_>> =
        segments.iter().take(SEGMENTS_PER_WRITE).map(|segment| IoSlice::new(segment)).collect();
    let taken = socket.try_write_vectored(&slices)?;
    let mut written = taken;
    while let Some(first) = segments.front_mut() {
        if first.len() > written {
            first.advance(written);
            break;
        }
        written -= first.len();
        segments.pop_front();
    }
    Ok(taken)
}
