//! The sending side of a connection: any thread queues messages and may write them itself.
//!
//! One thread at a time writes; the others only queue, and the writer checks the queue again before it stops,
//! so that nothing is left behind. Thus the end of a result, and a message that finds nothing else waiting,
//! are sent by the worker that made them, without waking another thread; what the socket does not take at
//! once is left to the writer task. Writes are vectored and at most a frame or two long, which stays in the
//! CPU caches.

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

/// Segments per vectored write; the system's limit is 1024.
const SEGMENTS_PER_WRITE: usize = 128;

/// Number of writes that a worker makes before it leaves the rest to the writer task.
const WRITES_BY_WORKER: usize = 2;

/// Number of writes that the writer task makes before it yields.
const WRITES_PER_TURN: usize = 16;

/// The sending side of a connection.
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

/// Frames about the connection itself, which are sent before anything else. Flags, not a queue: a peer that
/// sends pings without end and reads nothing cannot make them grow.
#[derive(Default)]
struct Keepalive {
    ping: bool,
    pong: bool,
}

impl Keepalive {
    /// Takes the frames and clears the flags.
    fn take(&mut self) -> Vec<Bytes> {
        let Keepalive { ping, pong } = std::mem::take(self);
        let wanted = [(ping, Response::Ping), (pong, Response::Pong)];
        let messages = wanted.into_iter().filter(|(wanted, _)| *wanted).filter_map(|(_, m)| m.encode().ok());
        messages.flatten().flat_map(|message| message.frames(0)).collect()
    }
}

enum WriteProgress {
    /// Nothing is left, or another thread is writing.
    Done,
    /// The caller's number of writes is used up, and there is more to write.
    More,
    /// The socket is full.
    Blocked,
}

impl<W> Outbox<W> {
    /// Creates an outbox for `socket`, timed by `clock`. `on_room` is called when a stream that had no room
    /// has room again.
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

    /// Reads or changes the streams. Nothing is sent before [`Outbox::flush`] or [`Outbox::wake`].
    pub fn with<T>(&self, change: impl FnOnce(&mut Lanes<W>) -> T) -> T {
        change(&mut self.state.lock().lanes)
    }

    /// Returns the bytes per second that the socket takes.
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

    /// Queues a message and sends it: from this thread if nothing else waits, since the writer task would
    /// have to be woken and the bytes brought to its core.
    pub fn push(&self, stream: u32, message: Outgoing) {
        self.push_each(stream, |put| put(message));
    }

    /// Does the same as [`Outbox::push`] for each message that `deliver` passes on.
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

    /// Makes the writer task send what is queued.
    pub fn wake(&self) {
        self.writer.notify_one();
    }

    /// Sends what the socket takes at once from this thread; the writer task sends the rest.
    pub fn flush(&self) {
        match self.write(WRITES_BY_WORKER) {
            Ok(WriteProgress::Done) => {}
            // On an error the writer task gets the same error and closes the connection.
            Ok(WriteProgress::More | WriteProgress::Blocked) | Err(_) => self.wake(),
        }
    }

    /// Closes all streams and returns their work. Nothing more is sent except the rest of a frame that is
    /// half written and, if given, a last message about the connection itself.
    pub fn close(&self, last: Option<Outgoing>) -> Vec<W> {
        let mut state = self.state.lock();
        state.closed = true;
        state.keepalive = Keepalive::default();
        state.unwritten.extend(last.into_iter().flat_map(|message| message.frames(0)));
        state.lanes.drain()
    }

    /// Returns whether everything that was queued has been handed to the system.
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

    /// Sends all that is queued now, unless another thread is writing.
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

    /// Makes the caller the writer, if there is something to write and no other thread writes.
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

    /// Returns what to write next, after `bytes` were written; when there is nothing, the caller stops being
    /// the writer.
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

    /// Ends the caller's role as the writer after it has written `bytes`; `full` says whether the socket was
    /// full. `segments` are left to the next writer.
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

/// Writes the first segments and removes what was written; returns the number of bytes.
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
