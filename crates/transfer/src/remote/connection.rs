//! One connection to a node, shared by all requests that are open on it.
//!
//! A reader task puts frames together to messages and hands each to the stream it belongs to; whoever
//! waits for the stream decodes it, so that several streams are decoded in parallel.
//!
//! Invariants: a stream that its owner drops before its last message is cancelled at the node. A node that
//! sends what does not belong where it comes, or more than it has credit for, ends its connection, and so does
//! one that is expected to answer and falls silent, even to a `Ping`.

use super::mailbox::{Mailbox, Share, Unread};
use super::sender::Sender;
use bytes::{BufMut, BytesMut};
use farpool_model::{Error, Result, Version, cast, limits};
use farpool_wire::{FrameHeader, FrameKind, Intake, Interest, Message, Outgoing, Request, Response, Socket};
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use tokio::task::AbortHandle;
use tokio::time::timeout;

/// A read of so many bytes is followed by a turn for others.
const YIELD_BYTES: usize = 64 << 10;

/// Streams that a client opens before it makes another connection: fewer than a node allows, because the
/// node may learn a moment later than the client that a stream has ended.
const STREAMS_MAX: usize = limits::STREAMS_PER_CONNECTION_MAX - 8;

/// The stream after which another connection is made: numbers are not used twice. So many are left that those who
/// have just found room cannot use them up.
const STREAM_LAST: u32 = u32::MAX / 2;

/// How long a node may be silent while something is expected of it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Patience {
    /// Until it is asked whether it is there.
    pub ping_after: Duration,
    /// From then until the connection is given up.
    pub pong_max: Duration,
}

impl Default for Patience {
    fn default() -> Self {
        Patience {
            ping_after: Duration::from_millis(limits::PING_AFTER_MS),
            pong_max: Duration::from_millis(limits::PONG_MS_MAX),
        }
    }
}

/// Who the node is at the other end.
#[derive(Clone, Copy, Debug)]
pub(super) struct Greeting {
    /// Which process; 0 if it does not say, and knows of no outcomes of loads.
    pub instance: u64,
    /// The newest version of any table at that time.
    pub newest: Version,
}

/// A connection whose two sides have said hello. Closes when dropped.
#[derive(Debug)]
pub(super) struct Connection {
    shared: Arc<Shared>,
    tasks: [AbortHandle; 2],
    instance: u64,
    newest: AtomicU64,
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
    /// In order: those that wait learn of the end in the order in which they asked, in every run.
    open: BTreeMap<u32, Arc<Mailbox>>,
    last: u32,
    /// Dropped before their end: what has come of their next message is to be forgotten.
    dropped: Vec<u32>,
    closed: Option<Closed>,
}

/// Why a connection came to its end.
#[derive(Clone, Debug)]
enum Closed {
    /// The node, or what lies between, is gone; with what the system says about it.
    Gone(Option<String>),
    /// One of the sides said what was wrong.
    Failed(Error),
}

impl Connection {
    /// Takes over a socket after the hello; `received` is what came after it. `place` is how messages to
    /// people call the node; `unread` counts what waits on all connections to it.
    pub fn start(
        socket: Arc<dyn Socket>,
        received: BytesMut,
        place: String,
        patience: Patience,
        unread: Arc<Unread>,
        greeting: Greeting,
    ) -> Self {
        let (sender, streams) = Default::default();
        let shared = Arc::new(Shared { socket, place, patience, sender, streams, unread });
        let reader = shared.clone();
        let writer = shared.clone();
        let tasks = [
            tokio::spawn(async move { reader.read(received).await }).abort_handle(),
            tokio::spawn(async move { writer.sender.run(&*writer.socket).await }).abort_handle(),
        ];
        let (instance, newest) = (greeting.instance, AtomicU64::new(greeting.newest.0));
        Connection { shared, tasks, instance, newest }
    }

    /// The node, with the newest version that it is known to have had: what begins from now on makes newer ones.
    pub fn node(&self) -> Greeting {
        Greeting { instance: self.instance, newest: Version(self.newest.load(Ordering::Relaxed)) }
    }

    /// The node has told of this version.
    pub fn saw(&self, version: Version) {
        self.newest.fetch_max(version.0, Ordering::Relaxed);
    }

    /// Whether the connection works, as far as is known, and has a stream left.
    pub fn has_room(&self) -> bool {
        let streams = self.shared.streams.lock();
        streams.closed.is_none() && streams.open.len() < STREAMS_MAX && streams.last < STREAM_LAST
    }

    /// Whether the connection is known to be broken.
    pub fn is_closed(&self) -> bool {
        self.shared.streams.lock().closed.is_some()
    }

    /// Gives back what the node keeps of a program that was prepared on `stream`, which has ended.
    pub fn forget(&self, stream: u32) {
        if self.is_closed() {
            return;
        }
        let messages = Request::Cancel.encode().into_iter().flatten();
        messages.for_each(|message| self.shared.sender.send(&*self.shared.socket, stream, message));
    }

    /// Opens a stream with `request`. `doing` completes "the pool went away while …".
    ///
    /// # Errors
    /// `Unavailable` when the connection is broken; what is wrong with the request.
    pub fn open(self: &Arc<Self>, request: &Request, doing: &'static str) -> Result<Channel> {
        let messages = request.encode()?;
        let mailbox = Arc::new(Mailbox::new(request.kind(), self.shared.unread.clone()));
        let opened = self.shared.streams.lock().open(mailbox.clone());
        let id = opened.map_err(|closed| closed.error(&self.shared.place, doing))?;
        let mut channel = Channel { connection: self.clone(), id, mailbox, doing, bytes_on_wire: 0 };
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
        // The first is 1: 0 is the connection itself.
        self.last += 1;
        self.open.insert(self.last, mailbox);
        Ok(self.last)
    }
}

impl Shared {
    async fn read(&self, received: BytesMut) {
        let closed = self.read_messages(Intake::new(received)).await.err().unwrap_or(Closed::Gone(None));
        // A node that was at fault learns that nobody listens any more. One that is gone need not.
        drop(self.socket.end_writing());
        let mut streams = self.streams.lock();
        streams.closed = Some(closed);
        // Whoever waits for a message sees the end of its stream.
        std::mem::take(&mut streams.open).into_values().for_each(|mailbox| mailbox.close());
    }

    /// Reads until the other side closes the connection.
    async fn read_messages(&self, mut intake: Intake) -> Result<(), Closed> {
        let mut incomplete = Share::new(self.unread.clone());
        loop {
            self.forget_dropped(&mut intake);
            while let Some(message) =
                intake.next(|header| self.is_wanted(header)).map_err(|e| self.at_fault(e))?
            {
                self.dispatch(message)?;
            }
            let bytes = cast::u64_from(intake.bytes_held());
            incomplete.resize(bytes).map_err(|e| self.at_fault(e))?;
            match self.fill(&mut intake).await? {
                0 => return Ok(()),
                // Whoever decodes what has come may be waiting for this very thread.
                bytes if bytes >= YIELD_BYTES => tokio::task::yield_now().await,
                _ => {}
            }
        }
    }

    async fn fill(&self, intake: &mut Intake) -> Result<usize, Closed> {
        loop {
            let (buffer, most) = intake.room();
            match self.socket.try_read(&mut buffer.limit(most)) {
                Ok(bytes) => {
                    intake.read(bytes);
                    return Ok(bytes);
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => self.readable().await?,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(Closed::gone(&error)),
            }
        }
    }

    /// Waits until something comes. A node of which something is expected is asked after a while whether it is
    /// there, and given up when not even that is answered.
    async fn readable(&self) -> Result<(), Closed> {
        let Patience { ping_after, pong_max } = self.patience;
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

    /// Whether a stream waits for the node.
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

    fn ping(&self) -> Result<(), Closed> {
        let messages = Request::Ping.encode().map_err(Closed::Failed)?;
        messages.into_iter().for_each(|message| self.sender.send(&*self.socket, 0, message));
        Ok(())
    }

    /// Whether frames like this one are to be put together: not those that were under way when their stream was
    /// cancelled.
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

    fn forget_dropped(&self, intake: &mut Intake) {
        let dropped = std::mem::take(&mut self.streams.lock().dropped);
        dropped.into_iter().for_each(|stream| intake.forget(stream));
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

    /// Takes a message about the connection itself.
    fn take_notice(&self, message: &Message) -> Result<(), Closed> {
        match Response::decode(message, None).map_err(|error| self.at_fault(error))? {
            Response::Ping => {
                self.sender.pong(&*self.socket);
                Ok(())
            }
            Response::Error(error) => Err(Closed::Failed(error)),
            _ => Ok(()),
        }
    }
}

/// One open stream.
#[derive(Debug)]
pub(super) struct Channel {
    connection: Arc<Connection>,
    id: u32,
    mailbox: Arc<Mailbox>,
    doing: &'static str,
    bytes_on_wire: u64,
}

impl Channel {
    /// Its number.
    pub fn id(&self) -> u32 {
        self.id
    }

    /// Sends a message.
    pub fn send(&mut self, message: Outgoing) {
        self.bytes_on_wire += message.bytes_on_wire();
        self.mailbox.sent(message.kind(), message.bytes_on_wire());
        let shared = &self.connection.shared;
        shared.sender.send(&*shared.socket, self.id, message);
    }

    /// Gives the node credit.
    pub fn grant(&mut self, bytes: u64) -> Result<()> {
        self.mailbox.granting(bytes)?;
        Request::Credit { bytes }.encode()?.into_iter().for_each(|message| self.send(message));
        Ok(())
    }

    /// The next message; an error when the connection broke.
    pub fn poll_receive(&mut self, context: &mut std::task::Context<'_>) -> std::task::Poll<Result<Message>> {
        self.mailbox.poll_take(context).map(|message| match message {
            Some(message) => {
                self.bytes_on_wire += message.bytes_on_wire;
                Ok(message)
            }
            None => Err(self.broken()),
        })
    }

    /// As [`Channel::poll_receive`].
    pub async fn receive(&mut self) -> Result<Message> {
        std::future::poll_fn(|context| self.poll_receive(context)).await
    }

    /// Waits until rows of a load may be sent; false once the load has ended.
    pub async fn may_send(&mut self) -> bool {
        std::future::poll_fn(|context| self.mailbox.poll_may_send(context)).await
    }

    /// Bytes of the stream, both ways, frames included.
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
