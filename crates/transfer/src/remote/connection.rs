//! One connection to a node, shared by all requests that are open on it.
//!
//! A reader task puts frames together to messages and hands each to the stream it belongs to; whoever
//! waits for the stream decodes it, so that several streams are decoded in parallel. What lies in a stream
//! unread is bounded by the credit that its reader gives.
//!
//! Invariant: a stream that its owner drops before its last message is cancelled at the node.

use super::sender::Sender;
use bytes::{BufMut, BytesMut};
use farpool_model::{Error, Result, limits};
use farpool_wire::{FrameKind, Intake, Message, Outgoing, Request, Response};
use parking_lot::Mutex;
use std::collections::HashMap;
use std::io;
use std::sync::Arc;
use tokio::net::TcpStream;
use tokio::sync::mpsc::{self, UnboundedReceiver, UnboundedSender};
use tokio::task::AbortHandle;

/// A read of so many bytes is followed by a turn for others.
const YIELD_BYTES: usize = 64 << 10;

/// Streams that a client opens before it makes another connection: fewer than a node allows, because the
/// node may learn a moment later than the client that a stream has ended.
const STREAMS_MAX: usize = limits::STREAMS_PER_CONNECTION_MAX - 8;

/// A connection whose two sides have said hello. Closes when dropped.
#[derive(Debug)]
pub(super) struct Connection {
    shared: Arc<Shared>,
    tasks: [AbortHandle; 2],
}

#[derive(Debug)]
struct Shared {
    socket: TcpStream,
    place: String,
    sender: Sender,
    streams: Mutex<Streams>,
}

#[derive(Debug)]
struct Streams {
    open: HashMap<u32, UnboundedSender<Message>>,
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
    /// people call the node.
    pub fn start(socket: TcpStream, received: BytesMut, place: String) -> Self {
        let streams = Streams { open: HashMap::new(), last: 0, dropped: Vec::new(), closed: None };
        let shared =
            Arc::new(Shared { socket, place, sender: Sender::default(), streams: Mutex::new(streams) });
        let reader = shared.clone();
        let writer = shared.clone();
        let tasks = [
            tokio::spawn(async move { reader.read(received).await }).abort_handle(),
            tokio::spawn(async move { writer.sender.run(&writer.socket).await }).abort_handle(),
        ];
        Connection { shared, tasks }
    }

    /// Whether the connection works, as far as is known, and has a stream left.
    pub fn has_room(&self) -> bool {
        let streams = self.shared.streams.lock();
        streams.closed.is_none() && streams.open.len() < STREAMS_MAX
    }

    /// Whether the connection is known to be broken.
    pub fn is_closed(&self) -> bool {
        self.shared.streams.lock().closed.is_some()
    }

    /// Opens a stream with `request`. `doing` completes "the pool went away while …".
    ///
    /// # Errors
    /// `Unavailable` when the connection is broken; what is wrong with the request.
    pub fn open(self: &Arc<Self>, request: &Request, doing: &'static str) -> Result<Channel> {
        let messages = request.encode()?;
        let (sender, receiver) = mpsc::unbounded_channel();
        let opened = self.shared.streams.lock().open(sender);
        let id = opened.map_err(|closed| closed.error(&self.shared.place, doing))?;
        let connection = self.clone();
        let mut channel = Channel { connection, id, receiver, doing, bytes_on_wire: 0, ended: false };
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
    fn open(&mut self, sender: UnboundedSender<Message>) -> Result<u32, Closed> {
        if let Some(closed) = &self.closed {
            return Err(closed.clone());
        }
        loop {
            // 0 is the connection itself.
            self.last = self.last.checked_add(1).unwrap_or(1);
            if !self.open.contains_key(&self.last) {
                self.open.insert(self.last, sender);
                return Ok(self.last);
            }
        }
    }
}

impl Shared {
    async fn read(&self, received: BytesMut) {
        let closed = self.read_messages(Intake::new(received)).await.err().unwrap_or(Closed::Gone(None));
        let mut streams = self.streams.lock();
        streams.closed = Some(closed);
        // Whoever waits for a message sees the end of its stream.
        streams.open.clear();
    }

    /// Reads until the other side closes the connection.
    async fn read_messages(&self, mut intake: Intake) -> Result<(), Closed> {
        let wanted = |stream: u32| stream == 0 || self.streams.lock().open.contains_key(&stream);
        loop {
            self.forget_dropped(&mut intake);
            while let Some(message) = intake.next(wanted).map_err(|e| self.damaged(e))? {
                self.dispatch(message)?;
            }
            match self.fill(&mut intake).await {
                Ok(0) => return Ok(()),
                // Whoever decodes what has come may be waiting for this very thread.
                Ok(bytes) if bytes >= YIELD_BYTES => tokio::task::yield_now().await,
                Ok(_) => {}
                Err(error) => return Err(Closed::Gone(Some(error.to_string()))),
            }
        }
    }

    async fn fill(&self, intake: &mut Intake) -> io::Result<usize> {
        loop {
            let (buffer, most) = intake.room();
            match self.socket.try_read_buf(&mut buffer.limit(most)) {
                Ok(bytes) => {
                    intake.read(bytes);
                    return Ok(bytes);
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    self.socket.readable().await?;
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
    }

    fn forget_dropped(&self, intake: &mut Intake) {
        let dropped = std::mem::take(&mut self.streams.lock().dropped);
        dropped.into_iter().for_each(|stream| intake.forget(stream));
    }

    fn damaged(&self, error: Error) -> Closed {
        Closed::Failed(error.at(&self.place))
    }

    fn dispatch(&self, message: Message) -> Result<(), Closed> {
        if message.stream == 0 {
            return Err(match Response::decode(&message, None) {
                Ok(Response::Error(error)) => Closed::Failed(error),
                _ => self.damaged(Error::corrupt(format!("{} without a request", message.kind.name()))),
            });
        }
        let streams = self.streams.lock();
        if let Some(sender) = streams.open.get(&message.stream) {
            // The receiver may be gone a moment before the stream is taken out.
            drop(sender.send(message));
        }
        Ok(())
    }
}

/// One open stream.
#[derive(Debug)]
pub(super) struct Channel {
    connection: Arc<Connection>,
    id: u32,
    receiver: UnboundedReceiver<Message>,
    doing: &'static str,
    bytes_on_wire: u64,
    ended: bool,
}

impl Channel {
    /// Sends a message.
    pub fn send(&mut self, message: Outgoing) {
        self.bytes_on_wire += message.bytes_on_wire();
        let shared = &self.connection.shared;
        shared.sender.send(&shared.socket, self.id, message);
    }

    /// Gives the node credit.
    pub fn grant(&mut self, bytes: u64) -> Result<()> {
        Request::Credit { bytes }.encode()?.into_iter().for_each(|message| self.send(message));
        Ok(())
    }

    /// The next message; an error when the connection broke.
    pub fn poll_receive(&mut self, context: &mut std::task::Context<'_>) -> std::task::Poll<Result<Message>> {
        self.receiver.poll_recv(context).map(|message| match message {
            Some(message) => {
                self.bytes_on_wire += message.bytes_on_wire;
                self.ended = message.kind == FrameKind::Error;
                Ok(message)
            }
            None => {
                self.ended = true;
                Err(self.broken())
            }
        })
    }

    /// As [`Channel::poll_receive`].
    pub async fn receive(&mut self) -> Result<Message> {
        std::future::poll_fn(|context| self.poll_receive(context)).await
    }

    /// Says that the stream's last message has come: there is nothing to cancel.
    pub fn end(&mut self) {
        self.ended = true;
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
        if self.ended || streams.closed.is_some() {
            return;
        }
        streams.dropped.push(self.id);
        drop(streams);
        if let Ok(messages) = Request::Cancel.encode() {
            messages.into_iter().for_each(|message| self.send(message));
        }
    }
}
