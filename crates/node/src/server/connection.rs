//! One client's connection: reads requests, hands each to a stream of its own, and takes care that
//! nothing of it outlives the connection.
//!
//! Invariant: the reader never waits for a request to be carried out, so that it sees at once when the
//! client cancels, gives credit or goes away.

use super::inbox::Inbox;
use super::outbox::Outbox;
use super::{load, requests};
use crate::Node;
use bytes::BytesMut;
use farpool_model::{Error, Result, TenantName};
use farpool_pipeline::{Region, Run};
use farpool_wire::{Assembler, FrameHeader, FrameKind, Message, Outgoing, Request, Response, split_frame};
use std::io;
use std::sync::Arc;
use tokio::net::TcpStream;

/// Bytes to read at a time: below, system calls cost more; above, the bytes leave the CPU caches.
const READ_BYTES: usize = 256 << 10;

/// What the connection keeps for an open stream.
pub(crate) enum Work {
    /// A request that is being looked at.
    Request,
    /// A program that runs.
    Run(Arc<Run>),
    /// A load under way.
    Load(Arc<Inbox>),
}

impl Work {
    /// Stops what is under way.
    fn abandon(self) {
        match self {
            Work::Request => {}
            Work::Run(run) => run.cancel(),
            Work::Load(inbox) => inbox.close(),
        }
    }
}

/// A connection whose client has said who it is.
pub(crate) struct Connection {
    pub node: Arc<Node>,
    pub tenant: TenantName,
    /// The client's share of the node (Farview, section 4.2).
    pub region: Arc<Region>,
    pub outbox: Outbox<Work>,
    socket: Arc<TcpStream>,
}

impl Connection {
    /// The connection of `tenant`.
    pub fn new(node: Arc<Node>, tenant: TenantName, socket: TcpStream) -> Arc<Self> {
        let socket = Arc::new(socket);
        let scheduler = Arc::downgrade(&node);
        let on_room = move || {
            if let Some(node) = scheduler.upgrade() {
                node.wake();
            }
        };
        let outbox = Outbox::new(socket.clone(), Box::new(on_room));
        Arc::new(Connection { node, tenant, region: Arc::default(), outbox, socket })
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

    /// Stops whatever runs for the client; `last` tells it why.
    pub fn close(&self, last: Option<Error>) {
        let last = last.and_then(|error| Response::Error(error).encode().ok());
        let works = self.outbox.close(last.and_then(|mut messages| messages.pop()));
        self.abandon(works);
    }

    /// Stops what was under way on streams that are closed.
    fn abandon(&self, works: impl IntoIterator<Item = Work>) {
        works.into_iter().for_each(Work::abandon);
        // A program that has made all its rows cannot be cancelled any more; it may wait for room to end.
        self.node.wake();
    }

    /// Serves requests until the client closes the connection.
    ///
    /// # Errors
    /// What the client did wrong, so that the connection cannot go on.
    pub async fn serve(self: &Arc<Self>, mut buffer: BytesMut) -> Result<()> {
        let mut assembler = Assembler::new();
        loop {
            while let Some((header, payload)) = split_frame(&mut buffer)? {
                if !self.is_wanted(header) {
                    assembler.forget(header.stream);
                } else if let Some(message) = assembler.push(header, payload)? {
                    self.receive(message, &mut assembler)?;
                }
            }
            // What was answered on the spot leaves before the next wait.
            self.outbox.flush();
            buffer.reserve(READ_BYTES);
            if self.read(&mut buffer).await == 0 {
                return Ok(());
            }
        }
    }

    /// Reads until the client closes the connection.
    pub async fn ignore_the_rest(&self) {
        let mut ignored = BytesMut::with_capacity(READ_BYTES);
        while self.read(&mut ignored).await > 0 {
            ignored.clear();
        }
    }

    /// Reads some bytes; a connection that broke has ended.
    async fn read(&self, buffer: &mut BytesMut) -> usize {
        loop {
            match self.socket.try_read_buf(buffer) {
                Ok(bytes) => return bytes,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    if self.socket.readable().await.is_err() {
                        return 0;
                    }
                }
                Err(_) => return 0,
            }
        }
    }

    /// False for rows of a load that was refused: they need not be put together.
    fn is_wanted(&self, header: FrameHeader) -> bool {
        header.kind != FrameKind::LoadBatch || self.outbox.with(|lanes| lanes.work(header.stream).is_some())
    }

    fn receive(self: &Arc<Self>, message: Message, assembler: &mut Assembler) -> Result<()> {
        let stream = message.stream;
        if stream == 0 {
            return Err(Error::corrupt(format!("{} on stream 0", message.kind.name())));
        }
        match message.kind {
            FrameKind::Credit => self.grant(&message),
            FrameKind::Cancel => {
                assembler.forget(stream);
                let work = self.outbox.with(|lanes| lanes.remove(stream));
                self.abandon(work);
                Ok(())
            }
            FrameKind::LoadBatch | FrameKind::LoadEnd => self.feed(message),
            FrameKind::LoadBegin => load::begin(self, &message),
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
                self.node.wake();
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
        inbox.map_or(Ok(()), |inbox| inbox.put(message))
    }

    fn end(&self, stream: u32, mut messages: Vec<Outgoing>) {
        let Some(last) = messages.pop() else { return };
        self.outbox.with(|lanes| {
            for message in messages {
                lanes.push(stream, message);
            }
            lanes.end(stream, last);
        });
        self.outbox.flush();
    }
}
