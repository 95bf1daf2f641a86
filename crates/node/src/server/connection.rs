//! One client's connection: reads requests, hands each to a stream of its own, and takes care that
//! nothing of it outlives the connection.
//!
//! Invariants: the reader never waits for a request to be carried out, so that it sees at once when the
//! client cancels, gives credit or goes away; a client that always has bytes under way gets no more than its
//! turn on the thread that reads.

use super::inbox::Inbox;
use super::outbox::Outbox;
use super::turn::Turn;
use super::{load, requests};
use crate::Caller;
use crate::admission::{PATIENCE, waited};
use crate::kept::Shelf;
use bytes::{Bytes, BytesMut};
use farpool_memory::Reservation;
use farpool_model::{Error, Result, cast};
use farpool_pipeline::{Cancel, Run};
use farpool_wire::{
    Assembler, FrameHeader, FrameKind, Interest, Message, Outgoing, Request, Response, Socket, split_frame,
};
use parking_lot::Mutex;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use tokio::runtime::Handle;
use tokio::sync::Notify;
use tokio::time::timeout;

/// Bytes to read at a time: below, system calls cost more; above, the bytes leave the CPU caches.
const READ_BYTES: usize = 256 << 10;

/// Bytes that one read takes while memory is short: enough for commands.
const READ_BYTES_SHORT: usize = 16 << 10;

/// Bytes that may lie unfinished on a connection while memory is short. With more it has to wait.
const HELD_BYTES_SHORT: usize = 64 << 10;

/// Bytes of an answer from which on it is accounted for.
const ANSWER_BYTES_MIN: u64 = 64 << 10;

/// What the connection keeps for an open stream.
pub(crate) enum Work {
    /// A request that waits to be looked at, or is, or waits for memory.
    Request(Asked),
    /// A program that runs.
    Run(Arc<Run>),
    /// A load under way.
    Load(Arc<Inbox>),
    /// An answer that waits to leave, and its memory.
    Answer(#[expect(dead_code, reason = "held until it has left")] Reservation),
}

/// How a request learns that its answer is no longer wanted.
#[derive(Clone, Default)]
pub(crate) struct Asked {
    /// For the work that is done for it.
    pub cancel: Cancel,
    /// For what waits.
    pub gone: Arc<Notify>,
}

impl Work {
    /// Stops what is under way.
    fn abandon(self) {
        match self {
            Work::Request(asked) => {
                asked.cancel.set();
                asked.gone.notify_one();
            }
            Work::Run(run) => run.cancel(),
            Work::Load(inbox) => inbox.close(),
            Work::Answer(_) => {}
        }
    }
}

/// A connection whose client has said who it is.
pub(crate) struct Connection {
    pub caller: Caller,
    pub outbox: Outbox<Work>,
    /// Programs that the client has had prepared and holds.
    pub shelf: Mutex<Shelf>,
    /// Workers of the scheduler start waits on it; none where nothing serves the connection.
    pub runtime: Option<Handle>,
    socket: Arc<dyn Socket>,
    /// Bytes that have come and are no whole message yet.
    incomplete: AtomicUsize,
    /// Grows with everything that comes: with the bytes of each read, and with each frame, for frames that were read
    /// at once may wait for their turns.
    received: AtomicU64,
}

impl Connection {
    /// The connection of `caller`.
    pub fn new(caller: Caller, socket: Arc<dyn Socket>) -> Arc<Self> {
        let waiting = caller.clone();
        let outbox = Outbox::new(socket.clone(), caller.clock().clone(), Box::new(move || waiting.wake()));
        let received = AtomicU64::new(0);
        Arc::new(Connection {
            caller,
            outbox,
            shelf: Mutex::default(),
            runtime: Handle::try_current().ok(),
            socket,
            incomplete: AtomicUsize::new(0),
            received,
        })
    }

    /// Answers on a stream, which ends with it.
    pub fn answer(&self, stream: u32, response: &Response) {
        match response.encode() {
            Ok(messages) => self.end(stream, messages),
            Err(error) => self.fail(stream, error),
        }
    }

    /// Ends a stream with an error.
    pub fn fail(&self, stream: u32, error: Error) {
        match Response::Error(error).encode() {
            Ok(messages) => self.end(stream, messages),
            Err(error) => tracing::error!(%error, "an error cannot be sent"),
        }
    }

    /// Stops what is under way on a stream and tells the client why, in place of whatever was to be sent. False
    /// when the stream is not open.
    pub fn give_up(&self, stream: u32, error: Error) -> bool {
        let Some(message) = Response::Error(error).encode().ok().and_then(|mut messages| messages.pop())
        else {
            return false;
        };
        let work = self.outbox.with(|lanes| lanes.give_up(stream, message));
        let was_open = work.is_some();
        self.abandon(work);
        self.outbox.wake();
        was_open
    }

    /// Does a part of a request, on whichever thread. A panic is a bug in the node: it ends the request alone.
    ///
    /// # Errors
    /// Those of `work`; `Internal` when there is no open stream on which to say so.
    pub fn guarded(&self, stream: u32, work: impl FnOnce() -> Result<()>) -> Result<()> {
        if let Ok(outcome) = catch_unwind(AssertUnwindSafe(work)) {
            return outcome;
        }
        let error = Error::internal("a defect in the pool ended this request")
            .advise("the pool goes on; please report this, with the pool's log");
        if self.give_up(stream, error.clone()) { Ok(()) } else { Err(error) }
    }

    /// Numbers that grow with what has come from the client and with what has left on its streams: when neither
    /// does, the client may be gone.
    pub fn progress(&self) -> (u64, u64) {
        (self.received.load(Ordering::Relaxed), self.outbox.with(|lanes| lanes.bytes_left()))
    }

    /// Stops whatever runs for the client; `last` tells it why.
    pub fn close(&self, last: Option<Error>) {
        let last = last.and_then(|error| Response::Error(error).encode().ok());
        let works = self.outbox.close(last.and_then(|mut messages| messages.pop()));
        self.abandon(works);
    }

    /// Stops what was under way on streams that are closed.
    fn abandon(&self, works: impl IntoIterator<Item = Work>) {
        let mut any = false;
        for work in works {
            any = true;
            work.abandon();
        }
        // A program that has made all its rows cannot be cancelled any more; it may wait for room to end. A load may
        // wait for rows, and a request for its turn.
        if any {
            self.caller.wake();
        }
    }

    /// Serves requests until the client closes the connection.
    ///
    /// # Errors
    /// What the client did wrong, so that the connection cannot go on.
    pub async fn serve(self: &Arc<Self>, mut buffer: BytesMut) -> Result<()> {
        let mut assembler = Assembler::new();
        let mut turn = Turn::new();
        let mut held = self.caller.account().empty();
        loop {
            while let Some((header, payload)) = split_frame(&mut buffer)? {
                turn.took(header);
                self.take_frame(header, payload, &mut assembler)?;
                if turn.is_over() {
                    self.outbox.flush();
                    tokio::task::yield_now().await;
                    turn = Turn::new();
                }
            }
            // What was answered on the spot leaves before the next wait.
            self.outbox.flush();
            let unread = if buffer.is_empty() { 0 } else { buffer.capacity() };
            let incomplete = assembler.bytes_held() + unread;
            held.set(incomplete + self.socket.bytes_held());
            self.incomplete.store(incomplete, Ordering::Relaxed);
            let wanted = self.room_to_read(incomplete).await?;
            if self.read(&mut buffer, wanted, &mut turn).await == 0 {
                return Ok(());
            }
        }
    }

    /// How much to read at once, when there is memory for it. `held` bytes have come and are no whole message yet.
    ///
    /// # Errors
    /// `OverLimit` when there was no memory for long: what has come so far is in the way of others.
    async fn room_to_read(&self, held: usize) -> Result<usize> {
        let account = self.caller.account();
        if account.free() >= READ_BYTES {
            return Ok(READ_BYTES);
        }
        if held <= HELD_BYTES_SHORT {
            return Ok(READ_BYTES_SHORT);
        }
        match timeout(PATIENCE, account.reserve(READ_BYTES)).await {
            Ok(reserved) => reserved.map(|_| READ_BYTES),
            Err(_) => Err(waited(account, READ_BYTES)),
        }
    }

    /// Whether the incomplete messages of the client take so much that others may need it.
    pub fn is_in_the_way(&self) -> bool {
        self.incomplete.load(Ordering::Relaxed) > HELD_BYTES_SHORT
    }

    /// Reads until the client closes the connection.
    pub async fn ignore_the_rest(&self) {
        let mut ignored = BytesMut::new();
        while self.read(&mut ignored, READ_BYTES_SHORT, &mut Turn::new()).await > 0 {
            ignored.clear();
            tokio::task::yield_now().await;
        }
    }

    /// Reads some bytes, about as many as are `wanted`; a connection that broke has ended. To wait begins a new turn.
    async fn read(&self, buffer: &mut BytesMut, wanted: usize, turn: &mut Turn) -> usize {
        loop {
            buffer.reserve(wanted);
            match self.socket.try_read(buffer) {
                Ok(bytes) => {
                    self.received.fetch_add(cast::u64_from(bytes), Ordering::Relaxed);
                    return bytes;
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    *turn = Turn::new();
                    // A client that has nothing to say keeps no buffer.
                    if buffer.is_empty() {
                        *buffer = BytesMut::new();
                    }
                    if self.socket.ready(Interest::Readable).await.is_err() {
                        return 0;
                    }
                }
                Err(_) => return 0,
            }
        }
    }

    fn take_frame(
        self: &Arc<Self>,
        header: FrameHeader,
        payload: Bytes,
        assembler: &mut Assembler,
    ) -> Result<()> {
        self.received.fetch_add(1, Ordering::Relaxed);
        if !self.is_wanted(header) {
            assembler.forget(header.stream);
        } else if let Some(message) = assembler.push(header, payload)? {
            return self.guarded(header.stream, || self.receive(message, assembler));
        }
        Ok(())
    }

    /// False for rows of a load that was refused: they need not be put together.
    fn is_wanted(&self, header: FrameHeader) -> bool {
        header.kind != FrameKind::LoadBatch || self.outbox.with(|lanes| lanes.work(header.stream).is_some())
    }

    /// Carries a message to where it belongs. `assembler` forgets what it has of a stream that is cancelled.
    pub(super) fn receive(self: &Arc<Self>, message: Message, assembler: &mut Assembler) -> Result<()> {
        let stream = message.stream;
        if message.kind.is_keepalive() {
            if message.kind == FrameKind::Ping {
                self.outbox.pong();
            }
            return Ok(());
        }
        if stream == 0 {
            return Err(Error::corrupt(format!("{} on stream 0", message.kind.name())));
        }
        match message.kind {
            FrameKind::Credit => self.grant(&message),
            FrameKind::Cancel => {
                assembler.forget(stream);
                let work = self.outbox.with(|lanes| lanes.remove(stream));
                self.abandon(work);
                self.shelf.lock().remove(stream);
                Ok(())
            }
            FrameKind::LoadBatch | FrameKind::LoadEnd => self.feed(message),
            FrameKind::LoadBegin => load::begin(self, message),
            _ => requests::begin(self, message),
        }
    }

    fn grant(&self, message: &Message) -> Result<()> {
        if let Request::Credit { bytes } = Request::decode(message, None)? {
            let room = self.outbox.with(|lanes| {
                lanes.received(message.stream, message.bytes_on_wire);
                lanes.grant(message.stream, bytes)
            })?;
            if room {
                self.caller.wake();
            }
        }
        Ok(())
    }

    /// Gives rows, or their end, to the load on the stream. A load that was refused has ended already, and
    /// what its client had sent by then means nothing.
    fn feed(&self, message: Message) -> Result<()> {
        let inbox = self.outbox.with(|lanes| match lanes.work(message.stream) {
            Some(Work::Load(inbox)) => Ok(Some(inbox.clone())),
            Some(_) => Err(Error::corrupt(format!(
                "{} on stream {}, where no load is under way",
                message.kind.name(),
                message.stream
            ))),
            None => Ok(None),
        })?;
        let task = inbox.map_or(Ok(None), |inbox| inbox.put(message))?;
        task.into_iter().for_each(|task| self.caller.wake_task(task));
        Ok(())
    }

    /// Ends a stream with these messages.
    pub fn end(&self, stream: u32, mut messages: Vec<Outgoing>) {
        let bytes: u64 = messages.iter().map(Outgoing::bytes_on_wire).sum();
        let Some(last) = messages.pop() else { return };
        let answer = (bytes >= ANSWER_BYTES_MIN)
            .then(|| Work::Answer(self.caller.account().take(cast::usize_saturating(bytes))));
        let (before, load) = self.outbox.with(|lanes| {
            let load = match lanes.work(stream) {
                Some(Work::Load(inbox)) => Some(inbox.clone()),
                _ => None,
            };
            let before = lanes.work(stream).zip(answer).map(|(work, answer)| std::mem::replace(work, answer));
            for message in messages {
                lanes.push(stream, message);
            }
            lanes.end(stream, last);
            (before, load)
        });
        drop(before);
        // Where a client uses a number again that it has cancelled, it may be the answer to what was cancelled: nobody
        // else ends the load then.
        if let Some(inbox) = load.filter(|inbox| !inbox.is_closed()) {
            inbox.close();
            self.caller.wake();
        }
        self.outbox.flush();
    }
}

#[cfg(test)]
mod tests;
