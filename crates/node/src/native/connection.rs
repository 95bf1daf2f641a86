//! The connection of one client: reads requests, opens a stream for each, and stops all work of the streams when the
//! connection ends.
//!
//! Invariants: reading never waits for a request to be executed, so that it notices at once when the client cancels a
//! request, gives credit (permission to send more) or disconnects. A client that sends without pause gets no more than
//! its turn on the reading thread.

use super::inbox::Inbox;
use super::outbox::Outbox;
use super::turn::Turn;
use super::{load, requests};
use crate::Caller;
use crate::admission::{PATIENCE, waited};
use crate::backups::Backup;
use crate::prepared_programs::PreparedPrograms;
use bytes::{Bytes, BytesMut};
use farpool_memory::Reservation;
use farpool_model::{Error, Result, cast};
use farpool_pipeline::{Cancel, Run};
use farpool_wire::sealed::Sealer;
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

/// Maximum bytes per read of the socket. Reason for 256 KiB: with less, system calls take more time; with more, the
/// bytes do not stay in the CPU caches.
const READ_BYTES: usize = 256 << 10;

/// Maximum bytes per read while memory is short; enough for requests without rows.
const READ_BYTES_SHORT: usize = 16 << 10;

/// Maximum bytes of incomplete messages per connection while memory is short. Beyond that, the connection waits for
/// memory before it reads more.
const HELD_BYTES_SHORT: usize = 64 << 10;

/// Minimum bytes of an answer whose memory is charged to the tenant while the answer waits to be sent.
const ANSWER_BYTES_MIN: u64 = 64 << 10;

/// The work that is in progress for an open stream, so that it can be stopped when the client cancels the stream or
/// disconnects.
pub(crate) enum StreamWork {
    /// A request that waits for a worker or for memory, or is being executed.
    Request(RequestCancel),
    /// The run (execution) of a program.
    Run(Arc<Run>),
    /// A load in progress: the queue of its received rows.
    Load(Arc<Inbox>),
    /// An answer that waits to be sent; the reservation of its memory.
    Answer(#[expect(dead_code, reason = "held until it has left")] Reservation),
}

/// Tells the work for a request that the client no longer wants the answer.
#[derive(Clone, Default)]
pub(crate) struct RequestCancel {
    /// Flag that is checked by work for the request.
    pub cancel: Cancel,
    /// Notification of tasks that wait for something on behalf of the request.
    pub gone: Arc<Notify>,
}

impl StreamWork {
    /// Stops the work of the stream, because the client no longer wants the answer.
    fn abandon(self) {
        match self {
            StreamWork::Request(cancel_signal) => {
                cancel_signal.cancel.set();
                cancel_signal.gone.notify_one();
            }
            StreamWork::Run(run) => run.cancel(),
            StreamWork::Load(inbox) => inbox.close(),
            StreamWork::Answer(_) => {}
        }
    }
}

/// A connection whose client has been authenticated.
pub(crate) struct Connection {
    pub caller: Caller,
    pub outbox: Outbox<StreamWork>,
    /// The prepared programs of the client, by handle.
    pub prepared_programs: Mutex<PreparedPrograms>,
    /// The backup that the client reads; its files are not removed before this is dropped.
    pub backup: Mutex<Option<Arc<Backup>>>,
    /// The async runtime on which workers start waits; `None` if the connection is not served by one.
    pub runtime: Option<Handle>,
    socket: Arc<dyn Socket>,
    /// Number of received bytes of messages that are incomplete.
    incomplete: AtomicUsize,
    /// A counter that grows with each read and each frame handled; if it does not grow, the client may be gone. Frames
    /// are counted, too, because frames that arrived in one read may be handled much later.
    received: AtomicU64,
}

impl Connection {
    /// Creates the connection of `caller`.
    pub fn new(caller: Caller, socket: Arc<dyn Socket>) -> Arc<Self> {
        let waiting = caller.clone();
        let outbox = Outbox::new(socket.clone(), caller.clock().clone(), Box::new(move || waiting.wake()));
        let received = AtomicU64::new(0);
        Arc::new(Connection {
            caller,
            outbox,
            prepared_programs: Mutex::default(),
            backup: Mutex::default(),
            runtime: Handle::try_current().ok(),
            socket,
            incomplete: AtomicUsize::new(0),
            received,
        })
    }

    /// Returns the sealer that encrypts the answers on a stream; `None` if the client did not request sealed
    /// (end-to-end encrypted) answers.
    pub fn sealer(&self, stream: u32) -> Option<Arc<Sealer>> {
        self.outbox.with(|lanes| lanes.sealer(stream))
    }

    /// Sends a message with rows on a stream, encrypted if the client requested that. To be called on a worker, because
    /// encrypting takes time.
    ///
    /// # Errors
    /// `OverLimit` if the process may not lock memory for a key; the rows are then not sent.
    pub fn push(&self, stream: u32, message: Outgoing) -> Result<()> {
        match self.sealer(stream) {
            None => self.outbox.push(stream, message),
            Some(sealer) => {
                let sealed = sealer.seal(message)?;
                self.outbox.push_each(stream, |put| sealer.deliver(sealed, put));
            }
        }
        Ok(())
    }

    /// Returns `messages`, encrypted if the client requested that. The caller must send them at once and in order,
    /// because encrypted answers are numbered, and either before or after all rows.
    ///
    /// # Errors
    /// Errors of [`Connection::push`]; `Internal` when rows are missing.
    pub fn seal(&self, stream: u32, messages: Vec<Outgoing>) -> Result<Vec<Outgoing>> {
        let Some(sealer) = self.sealer(stream) else { return Ok(messages) };
        let seal = |message: Outgoing| match message.kind() {
            FrameKind::Error => sealer.seal_error(message),
            _ => sealer.seal_alone(message),
        };
        messages.into_iter().map(seal).collect()
    }

    /// Returns the message for an error, encrypted if the client requested that. If encrypting fails, the message is
    /// about that failure instead.
    fn error_message(&self, stream: u32, error: Error) -> Option<Outgoing> {
        let plain = |error| Response::Error(error).encode().ok()?.pop();
        let Some(sealer) = self.sealer(stream) else { return plain(error) };
        let message = plain(error)?;
        sealer.seal_error(message).or_else(|_| plain(cannot_encrypt()).ok_or_else(cannot_encrypt)).ok()
    }

    /// Sends an answer on a stream and closes the stream.
    pub fn answer(&self, stream: u32, response: &Response) {
        match response.encode() {
            Ok(messages) => self.end(stream, messages),
            Err(error) => self.fail(stream, error),
        }
    }

    /// Sends an error on a stream and closes the stream.
    pub fn fail(&self, stream: u32, error: Error) {
        match self.error_message(stream, error) {
            Some(message) => self.end_with(stream, vec![message]),
            None => tracing::error!("an error cannot be sent"),
        }
    }

    /// Stops the work of a stream and sends `error` to the client in place of the messages that are still queued.
    /// Returns false if the stream is not open.
    pub fn give_up(&self, stream: u32, error: Error) -> bool {
        let Some(message) = self.error_message(stream, error) else { return false };
        let work = self.outbox.with(|lanes| lanes.give_up(stream, message));
        let was_open = work.is_some();
        self.abandon(work);
        self.outbox.wake();
        was_open
    }

    /// Calls `work`, a part of the request on a stream. If `work` panics, which is a bug in the node, only the request
    /// ends.
    ///
    /// # Errors
    /// Errors of `work`; `Internal` after a panic if there is no open stream on which to send the error.
    pub fn guarded(&self, stream: u32, work: impl FnOnce() -> Result<()>) -> Result<()> {
        if let Ok(outcome) = catch_unwind(AssertUnwindSafe(work)) {
            return outcome;
        }
        let error = Error::internal("a defect in the pool ended this request")
            .advise("the pool goes on; please report this, with the pool's log");
        if self.give_up(stream, error.clone()) { Ok(()) } else { Err(error) }
    }

    /// Returns two counters: one that grows with what is received from the client, and the number of bytes sent to it.
    /// If neither grows, the client may be gone.
    pub fn progress(&self) -> (u64, u64) {
        (self.received.load(Ordering::Relaxed), self.outbox.with(|lanes| lanes.bytes_left()))
    }

    /// Closes all streams and stops their work; sends the error `last`, if given, to the client.
    pub fn close(&self, last: Option<Error>) {
        let last = last.and_then(|error| Response::Error(error).encode().ok());
        let works = self.outbox.close(last.and_then(|mut messages| messages.pop()));
        self.abandon(works);
    }

    /// Stops the work of streams that have been closed.
    fn abandon(&self, works: impl IntoIterator<Item = StreamWork>) {
        let mut any = false;
        for work in works {
            any = true;
            work.abandon();
        }
        // Wakes all tasks of the caller, because stopped work may be waiting: a finished program for room in its
        // stream, a load for rows, a request for its turn.
        if any {
            self.caller.wake();
        }
    }

    /// Serves requests until the client closes the connection.
    ///
    /// # Errors
    /// Violations of the protocol, after which the connection cannot continue.
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
            // Sends the answers that this thread has queued, before the thread waits for more bytes.
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

    /// Waits until there is memory to read more, and returns the maximum bytes of the next read. `held` is the number
    /// of bytes received that do not form a complete message yet.
    ///
    /// # Errors
    /// `OverLimit` when memory was short for too long; the connection then ends, because others may need the memory of
    /// what it has received.
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

    /// Returns whether incomplete messages of this client take more memory than they may while memory is short.
    pub fn is_in_the_way(&self) -> bool {
        self.incomplete.load(Ordering::Relaxed) > HELD_BYTES_SHORT
    }

    /// Reads and discards bytes until the client closes the connection.
    pub async fn ignore_the_rest(&self) {
        let mut ignored = BytesMut::new();
        while self.read(&mut ignored, READ_BYTES_SHORT, &mut Turn::new()).await > 0 {
            ignored.clear();
            tokio::task::yield_now().await;
        }
    }

    /// Reads at most about `wanted` bytes into `buffer`; returns their number, or 0 at the end, also if the connection
    /// broke. Begins a new `turn` when it had to wait.
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
                    // An idle connection keeps no buffer, so that many connections take little memory.
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

    /// Returns whether the message that a frame belongs to is needed: true except for rows of a load that was refused.
    fn is_wanted(&self, header: FrameHeader) -> bool {
        header.kind != FrameKind::LoadBatch || self.outbox.with(|lanes| lanes.work(header.stream).is_some())
    }

    /// Handles a complete message from the client. When it cancels a stream, also drops the incomplete messages of this
    /// stream in `assembler`.
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
                self.prepared_programs.lock().remove(stream);
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

    /// Passes rows, or the end of the rows, to the load on the message's stream. Ignores rows without a load, which a
    /// client may have sent before it learned that its load was refused.
    fn feed(&self, message: Message) -> Result<()> {
        let inbox = self.outbox.with(|lanes| match lanes.work(message.stream) {
            Some(StreamWork::Load(inbox)) => Ok(Some(inbox.clone())),
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

    /// Sends `messages`, encrypted if the client requested that, and closes the stream.
    pub fn end(&self, stream: u32, messages: Vec<Outgoing>) {
        match self.seal(stream, messages) {
            Ok(messages) => self.end_with(stream, messages),
            Err(error) => self.fail(stream, error),
        }
    }

    fn end_with(&self, stream: u32, mut messages: Vec<Outgoing>) {
        let bytes: u64 = messages.iter().map(Outgoing::bytes_on_wire).sum();
        let Some(last) = messages.pop() else { return };
        let answer = (bytes >= ANSWER_BYTES_MIN)
            .then(|| StreamWork::Answer(self.caller.account().take(cast::usize_saturating(bytes))));
        let (before, load) = self.outbox.with(|lanes| {
            let load = match lanes.work(stream) {
                Some(StreamWork::Load(inbox)) => Some(inbox.clone()),
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
        // If the client has reused the number of a cancelled stream for a load, these messages may answer the cancelled
        // request and close the new stream. The load is closed here, because nothing else would end it.
        if let Some(inbox) = load.filter(|inbox| !inbox.is_closed()) {
            inbox.close();
            self.caller.wake();
        }
        self.outbox.flush();
    }
}

fn cannot_encrypt() -> Error {
    Error::over_limit("the node cannot encrypt its answer")
        .advise("see the node's limit of locked memory (ulimit -l)")
}

#[cfg(test)]
mod tests;
