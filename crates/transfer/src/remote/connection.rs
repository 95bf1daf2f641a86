//! One connection to a node, shared by all open requests. Each request has a stream of messages of its own.
//!
//! A reader task assembles frames into messages and puts each into the mailbox of its stream. The task that waits for
//! the stream decodes the message, so that several streams are decoded in parallel.
//!
//! Invariants: a stream that its owner drops before its last message is cancelled at the node. The connection ends if
//! the node sends a message that is not expected, or more bytes than the client has granted as credit (flow control),
//! or if it owes an answer and stays silent, even after a `Ping`.

use super::mailbox::{Mailbox, Share, Unread};
use super::sender::Sender;
use crate::Takes;
use bytes::{BufMut, BytesMut};
use farpool_model::{Error, Program, Result, Version, cast, limits};
use farpool_wire::sealed::{Digest, Opener, Proof};
use farpool_wire::{
    FrameHeader, FrameKind, FrameReader, Interest, Message, Outgoing, Request, Response, Socket,
};
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use tokio::task::AbortHandle;
use tokio::time::timeout;

/// Minimum number of bytes of a read after which the reader task yields to other tasks. Reason: the task that decodes
/// the messages may need the same thread.
const YIELD_BYTES: usize = 64 << 10;

/// Number of open streams of a connection from which the client opens another connection. Reason: it is less than what
/// a node allows, because the node may learn slightly later than the client that a stream has ended.
const STREAMS_MAX: usize = limits::STREAMS_PER_CONNECTION_MAX - 8;

/// The last stream id before another connection is opened, since ids are not reused. Reason: the other half of the ids
/// suffices for all tasks that chose this connection before.
const STREAM_LAST: u32 = u32::MAX / 2;

/// Time limits for a node that owes something and is silent.
#[derive(Clone, Copy, Debug)]
pub(super) struct Patience {
    /// Duration of silence after which the client sends a `Ping`.
    pub ping_after: Duration,
    /// Duration of further silence after which the client gives the connection up.
    pub pong_max: Duration,
    /// Maximum time without a message of any answer, although `Ping`s are answered; then the client gives the
    /// connection up.
    pub answer_max: Duration,
}

impl Default for Patience {
    fn default() -> Self {
        Patience {
            ping_after: Duration::from_millis(limits::PING_AFTER_MS),
            pong_max: Duration::from_millis(limits::PONG_MS_MAX),
            answer_max: Duration::from_millis(limits::ANSWER_MS_MAX),
        }
    }
}

/// Facts that the node told about itself in the handshake.
#[derive(Clone, Copy, Debug)]
pub(super) struct Greeting {
    /// Id of the node's process; 0 if the node sends none, in which case it remembers no outcomes of loads either.
    pub instance: u64,
    /// The newest version of any table at the time of the handshake.
    pub newest: Version,
    /// The parts of programs that the node takes.
    pub takes: Takes,
}

/// A connection after the handshake. Dropping it closes the socket.
#[derive(Debug)]
pub(super) struct Connection {
    shared: Arc<Shared>,
    tasks: [AbortHandle; 2],
    /// If the node encrypts its answers to this client: how it proves its identity, and the digest of the handshake.
    sealed: Option<(Proof, Digest)>,
    instance: u64,
    newest: AtomicU64,
    takes: Takes,
}

#[derive(Debug)]
struct Shared {
    socket: Arc<dyn Socket>,
    place: String,
    patience: Patience,
    sender: Sender,
    streams: Mutex<Streams>,
    unread: Arc<Unread>,
}

#[derive(Debug, Default)]
struct Streams {
    /// The open streams by their ids. The map is ordered so that simulations are reproducible: when the connection
    /// ends, tasks are woken in the order of their requests.
    open: BTreeMap<u32, Arc<Mailbox>>,
    last: u32,
    /// Ids of streams that were dropped before their end. Frames that still arrive on these streams are discarded.
    dropped: Vec<u32>,
    closed: Option<Closed>,
}

/// The reason why a connection has ended.
#[derive(Clone, Debug)]
enum Closed {
    /// The node went away or the network failed; with the operating system's message, if there is one.
    Gone(Option<String>),
    /// The client or the node reported an error, such as a violation of the protocol.
    Failed(Error),
}

impl Connection {
    /// Starts the tasks of a connection over a socket after the handshake. `received` are the bytes that came after the
    /// handshake's. `place` names the node in error messages; `unread` limits the unread messages on all connections to
    /// it.
    pub fn start(
        socket: Arc<dyn Socket>,
        received: BytesMut,
        place: String,
        patience: Patience,
        unread: Arc<Unread>,
        greeting: Greeting,
        sealed: Option<(Proof, Digest)>,
    ) -> Self {
        let (sender, streams) = Default::default();
        let shared = Arc::new(Shared { socket, place, patience, sender, streams, unread });
        let reader = shared.clone();
        let writer = shared.clone();
        let tasks = [
            tokio::spawn(async move { reader.read(received).await }).abort_handle(),
            tokio::spawn(async move { writer.sender.run(&*writer.socket).await }).abort_handle(),
        ];
        let Greeting { instance, newest, takes } = greeting;
        Connection { shared, tasks, sealed, instance, newest: AtomicU64::new(newest.0), takes }
    }

    /// Returns what the node told in the handshake, with the newest table version known so far. A load that begins later
    /// creates a newer version.
    pub fn node(&self) -> Greeting {
        let newest = Version(self.newest.load(Ordering::Relaxed));
        Greeting { instance: self.instance, newest, takes: self.takes }
    }

    /// Checks that the node takes the plan of `program`, before it is sent.
    ///
    /// # Errors
    /// `Invalid` if the program has a part that the node does not know.
    pub fn check_takes(&self, program: &Program) -> Result<()> {
        let Some(missing) = self.takes.missing(program) else { return Ok(()) };
        let place = &self.shared.place;
        Err(Error::invalid(format!("the node at {place} does not know {missing}"))
            .advise("upgrade the node, or let the engine do this"))
    }

    /// Records a table version that the node has reported.
    pub fn saw(&self, version: Version) {
        self.newest.fetch_max(version.0, Ordering::Relaxed);
    }

    /// Returns whether the connection is not known to be broken, and can open another stream.
    pub fn has_room(&self) -> bool {
        let streams = self.shared.streams.lock();
        streams.closed.is_none() && streams.open.len() < STREAMS_MAX && streams.last < STREAM_LAST
    }

    /// Returns whether the connection is known to be broken.
    pub fn is_closed(&self) -> bool {
        self.shared.streams.lock().closed.is_some()
    }

    /// Tells the node to release the program that was prepared on the stream with id `stream`, which has ended.
    pub fn forget(&self, stream: u32) {
        if self.is_closed() {
            return;
        }
        let messages = Request::Cancel.encode().into_iter().flatten();
        messages.for_each(|message| self.shared.sender.send(&*self.shared.socket, stream, message));
    }

    /// Opens a stream with `request`. `doing` completes the error message "the pool went away while …".
    ///
    /// # Errors
    /// `Unavailable` if the connection is broken; an error if the request cannot be encoded.
    pub fn open(self: &Arc<Self>, request: &Request, doing: &'static str) -> Result<Channel> {
        self.open_bound(request, doing, None)
    }

    /// Opens a stream like [`Connection::open`], for a request that names a prepared program. `prepared` is the digest
    /// of the program's preparation, which encrypted answers must be bound to.
    ///
    /// # Errors
    /// Errors of [`Connection::open`].
    pub fn open_bound(
        self: &Arc<Self>,
        request: &Request,
        doing: &'static str,
        prepared: Option<Digest>,
    ) -> Result<Channel> {
        let mut messages = request.encode()?;
        let mut opener = None;
        if let Some((proof, shown)) = self.sealed.as_ref().filter(|_| request.kind().may_be_sealed()) {
            let plain = messages.pop().ok_or_else(|| Error::internal("a request without a message"))?;
            let (sealed, opens) = Opener::new(plain, proof, *shown, prepared)?;
            (messages, opener) = (vec![sealed], Some(Arc::new(opens)));
        }
        let mailbox = Arc::new(Mailbox::new(request.kind(), self.shared.unread.clone()));
        let opened = self.shared.streams.lock().open(mailbox.clone());
        let id = opened.map_err(|closed| closed.error(&self.shared.place, doing))?;
        let mut channel = Channel { connection: self.clone(), id, mailbox, opener, doing, bytes_on_wire: 0 };
        messages.into_iter().for_each(|message| channel.send(message));
        Ok(channel)
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.tasks.iter().for_each(AbortHandle::abort);
    }
}

impl Closed {
    fn gone(error: &io::Error) -> Self {
        Closed::Gone(Some(error.to_string()))
    }

    fn error(&self, place: &str, doing: &str) -> Error {
        match self {
            Closed::Gone(why) => {
                let why = why.as_ref().map(|why| format!(": {why}")).unwrap_or_default();
                Error::unavailable(format!("the pool at {place} went away while {doing}{why}"))
                    .advise("see whether it still runs, and try again")
            }
            Closed::Failed(error) => error.clone(),
        }
    }
}

impl Streams {
    fn open(&mut self, mailbox: Arc<Mailbox>) -> Result<u32, Closed> {
        if let Some(closed) = &self.closed {
            return Err(closed.clone());
        }
        // The first stream id is 1, because 0 stands for the connection itself.
        self.last += 1;
        self.open.insert(self.last, mailbox);
        Ok(self.last)
    }
}

impl Shared {
    async fn read(&self, received: BytesMut) {
        let closed = self.read_messages(FrameReader::new(received)).await.err().unwrap_or(Closed::Gone(None));
        // Tells a node that violates the protocol that the client reads no more; has no effect if the node is gone.
        drop(self.socket.end_writing());
        let mut streams = self.streams.lock();
        streams.closed = Some(closed);
        // Wakes the tasks that wait for messages: their streams have ended.
        std::mem::take(&mut streams.open).into_values().for_each(|mailbox| mailbox.close());
    }

    /// Reads and delivers messages until the node closes the connection; returns why it ended.
    async fn read_messages(&self, mut frame_reader: FrameReader) -> Result<(), Closed> {
        let mut incomplete = Share::new(self.unread.clone());
        loop {
            self.forget_dropped(&mut frame_reader);
            while let Some(message) =
                frame_reader.next(|header| self.is_wanted(header)).map_err(|e| self.at_fault(e))?
            {
                self.dispatch(message)?;
            }
            let bytes = cast::u64_from(frame_reader.bytes_held());
            incomplete.resize(bytes).map_err(|e| self.at_fault(e))?;
            match self.fill(&mut frame_reader).await? {
                0 => return Ok(()),
                // Yields, because the task that decodes these messages may need this very thread.
                bytes if bytes >= YIELD_BYTES => tokio::task::yield_now().await,
                _ => {}
            }
        }
    }

    async fn fill(&self, frame_reader: &mut FrameReader) -> Result<usize, Closed> {
        loop {
            let (buffer, most) = frame_reader.room();
            match self.socket.try_read(&mut buffer.limit(most)) {
                Ok(bytes) => {
                    frame_reader.read(bytes);
                    return Ok(bytes);
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => self.readable().await?,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(Closed::gone(&error)),
            }
        }
    }

    /// Waits until the socket has bytes to read. If a node that owes something stays silent, sends it a `Ping`, and
    /// fails if the node does not answer that either.
    async fn readable(&self) -> Result<(), Closed> {
        let Patience { ping_after, pong_max, .. } = self.patience;
        let mut asked = false;
        loop {
            let patience = if asked { pong_max } else { ping_after };
            if let Ok(ready) = timeout(patience, self.socket.ready(Interest::Readable)).await {
                return ready.map_err(|error| Closed::gone(&error));
            }
            match self.is_expecting() {
                false => asked = false,
                true if asked => return Err(Closed::Failed(self.silent(ping_after + pong_max))),
                true => {
                    self.ping()?;
                    asked = true;
                }
            }
        }
    }

    /// Returns whether some stream waits for a message of the node.
    fn is_expecting(&self) -> bool {
        self.streams.lock().open.values().any(|mailbox| !mailbox.has_ended())
    }

    fn silent(&self, waited: Duration) -> Error {
        let seconds = waited.as_secs();
        Error::unavailable(format!(
            "the pool at {} does not answer: nothing came for {seconds} s",
            self.place
        ))
        .advise("see whether it still runs and the network is up, and try again")
    }

    /// Fails if tasks wait for messages and all of them have waited for longer than [`Patience::answer_max`]: the node
    /// answers `Ping`s but no requests.
    fn check_progress(&self) -> Result<(), Closed> {
        let streams = self.streams.lock();
        let waiting = streams.open.values().filter(|mailbox| !mailbox.has_ended()).map(|m| m.waited()).min();
        match waiting.filter(|waited| *waited >= self.patience.answer_max) {
            None => Ok(()),
            Some(waited) => {
                let (place, minutes) = (&self.place, waited.as_secs() / 60);
                let message = format!(
                    "the pool at {place} answers, but not what it was asked: no part of it came for {minutes} min"
                );
                Err(Closed::Failed(
                    Error::unavailable(message).advise("see what it does (farpool queries), and try again"),
                ))
            }
        }
    }

    fn ping(&self) -> Result<(), Closed> {
        let messages = Request::Ping.encode().map_err(Closed::Failed)?;
        messages.into_iter().for_each(|message| self.sender.send(&*self.socket, 0, message));
        Ok(())
    }

    /// Returns whether the frame belongs to an open stream, so that it must be assembled; false for frames of a stream
    /// that was dropped while they were on their way.
    fn is_wanted(&self, header: &FrameHeader) -> Result<bool> {
        let FrameHeader { kind, stream, .. } = *header;
        if stream == 0 {
            return match kind.is_keepalive() || kind == FrameKind::Error {
                true => Ok(true),
                false => Err(Error::corrupt(format!("{} without a request", kind.name()))),
            };
        }
        let streams = self.streams.lock();
        match streams.open.get(&stream) {
            Some(mailbox) => mailbox.check(kind).map(|()| true),
            None if stream <= streams.last => Ok(false),
            None => Err(Error::corrupt(format!("{} on stream {stream}, which is not open", kind.name()))),
        }
    }

    fn forget_dropped(&self, frame_reader: &mut FrameReader) {
        let dropped = std::mem::take(&mut self.streams.lock().dropped);
        dropped.into_iter().for_each(|stream| frame_reader.forget(stream));
    }

    fn at_fault(&self, error: Error) -> Closed {
        Closed::Failed(error.at(&self.place))
    }

    fn dispatch(&self, message: Message) -> Result<(), Closed> {
        if message.stream == 0 {
            return self.take_notice(&message);
        }
        let mailbox = self.streams.lock().open.get(&message.stream).cloned();
        mailbox.map_or(Ok(()), |mailbox| mailbox.put(message)).map_err(|error| self.at_fault(error))
    }

    /// Handles a message about the connection itself (stream 0), such as `Ping`.
    fn take_notice(&self, message: &Message) -> Result<(), Closed> {
        match Response::decode(message, None).map_err(|error| self.at_fault(error))? {
            Response::Ping => {
                self.sender.pong(&*self.socket);
                self.check_progress()
            }
            Response::Pong => self.check_progress(),
            Response::Error(error) => Err(Closed::Failed(error)),
            _ => Ok(()),
        }
    }
}

/// The client's end of one open stream.
#[derive(Debug)]
pub(super) struct Channel {
    connection: Arc<Connection>,
    id: u32,
    mailbox: Arc<Mailbox>,
    /// Decrypts the node's answers; `None` if they are not encrypted.
    opener: Option<Arc<Opener>>,
    doing: &'static str,
    bytes_on_wire: u64,
}

impl Channel {
    /// Returns the stream's id.
    pub fn id(&self) -> u32 {
        self.id
    }

    /// Sends a message on the stream.
    pub fn send(&mut self, message: Outgoing) {
        self.bytes_on_wire += message.bytes_on_wire();
        self.mailbox.sent(message.kind(), message.bytes_on_wire());
        let shared = &self.connection.shared;
        shared.sender.send(&*shared.socket, self.id, message);
    }

    /// Grants the node credit for `bytes` more bytes of rows (flow control).
    pub fn grant(&mut self, bytes: u64) -> Result<()> {
        self.mailbox.granting(bytes)?;
        Request::Credit { bytes }.encode()?.into_iter().for_each(|message| self.send(message));
        Ok(())
    }

    /// Returns the decryptor of the node's answers; `None` if they are not encrypted.
    pub fn opener(&self) -> Option<&Arc<Opener>> {
        self.opener.as_ref()
    }

    /// Polls for the next message; returns an error if the connection broke. An encrypted message has been decrypted,
    /// except for one with rows, which its reader decrypts (so that several threads can).
    pub fn poll_receive(&mut self, context: &mut std::task::Context<'_>) -> std::task::Poll<Result<Message>> {
        self.mailbox.poll_take(context).map(|message| match message {
            Some(message) => {
                self.bytes_on_wire += message.bytes_on_wire;
                let Some(opener) = &self.opener else { return Ok(message) };
                opener.check(&message)?;
                match message.kind {
                    FrameKind::Batch | FrameKind::Parcel => Ok(message),
                    _ => opener.open(message),
                }
            }
            None => Err(self.broken()),
        })
    }

    /// Waits for and returns the next message; an error if the connection broke.
    pub async fn receive(&mut self) -> Result<Message> {
        std::future::poll_fn(|context| self.poll_receive(context)).await
    }

    /// Waits until the node has granted enough credit to send rows of a load. Returns false if the load has ended.
    pub async fn may_send(&mut self) -> bool {
        std::future::poll_fn(|context| self.mailbox.poll_may_send(context)).await
    }

    /// Returns the bytes sent and received on the stream, including the heads of frames.
    pub fn bytes_on_wire(&self) -> u64 {
        self.bytes_on_wire
    }

    fn broken(&self) -> Error {
        let shared = &self.connection.shared;
        let closed = shared.streams.lock().closed.clone().unwrap_or(Closed::Gone(None));
        closed.error(&shared.place, self.doing)
    }
}

impl Drop for Channel {
    fn drop(&mut self) {
        let mut streams = self.connection.shared.streams.lock();
        streams.open.remove(&self.id);
        if self.mailbox.has_ended() || streams.closed.is_some() {
            return;
        }
        streams.dropped.push(self.id);
        drop(streams);
        if let Ok(messages) = Request::Cancel.encode() {
            messages.into_iter().for_each(|message| self.send(message));
        }
    }
}
