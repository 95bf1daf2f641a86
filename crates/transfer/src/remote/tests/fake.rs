//! A scripted node for tests of the client: it sends and receives frames of the native protocol as a test says, at the
//! other end of a pipe in memory.

use crate::Takes;
use crate::remote::connection::Patience;
use crate::remote::dial::Dialer;
use crate::remote::memory::Results;
use crate::remote::{ClientOptions, Connector, RemotePool};
use arrow_array::{ArrayRef, Int64Array, RecordBatch};
use arrow_schema::SchemaRef;
use async_trait::async_trait;
use bytes::{Bytes, BytesMut};
use farpool_model::{
    OperatorAnswer, Prepared, Program, Receipt, Result, TableInfo, TableName, TenantName, Version,
};
use farpool_wire::socket::pipe;
use farpool_wire::{
    Assembler, FrameHeader, FrameKind, Message, PREFACE, Response, Socket, check_preface, split_frame,
};
use std::future::Future;
use std::io;
use std::sync::Arc;

/// Capacity of the pipe: smaller than most messages, so that they arrive in pieces.
const PIPE_BYTES: usize = 1000;

/// The node's side of one connection.
pub struct Peer {
    pub socket: Arc<dyn Socket>,
    buffer: BytesMut,
    assembler: Assembler,
}

impl Peer {
    /// Receives the next message; `None` when the client closes the connection.
    pub async fn receive(&mut self) -> Option<Message> {
        loop {
            while let Some((header, payload)) = split_frame(&mut self.buffer).unwrap() {
                if let Some(message) = self.assembler.push(header, payload).unwrap() {
                    return Some(message);
                }
            }
            if self.read().await == 0 {
                return None;
            }
        }
    }

    async fn read(&mut self) -> usize {
        self.buffer.reserve(4096);
        self.socket.read(&mut self.buffer).await.unwrap_or(0)
    }

    /// Receives messages until one of this kind comes.
    pub async fn receive_kind(&mut self, kind: FrameKind) -> Message {
        loop {
            let message = self.receive().await.expect("the client hung up");
            if message.kind == kind {
                return message;
            }
        }
    }

    /// Writes bytes; returns false if the client has closed the connection.
    pub async fn write(&mut self, bytes: &[u8]) -> bool {
        self.socket.write_all(bytes).await.is_ok()
    }

    pub async fn send(&mut self, stream: u32, response: &Response) -> bool {
        self.write(&frames(stream, response)).await
    }

    /// Waits until the client closes the connection.
    pub async fn closed(mut self) {
        while self.receive().await.is_some() {}
    }

    async fn greet(&mut self, takes: Takes) {
        while !check_preface(&self.buffer).unwrap() {
            self.read().await;
        }
        drop(self.buffer.split_to(PREFACE.len()));
        assert_eq!(self.receive().await.unwrap().kind, FrameKind::Hello);
        self.write(&PREFACE).await;
        let tenant = TenantName::default();
        self.send(
            0,
            &Response::Hello {
                version: 1,
                server: "fake".into(),
                tenant,
                instance: 1,
                newest: Version(0),
                sealing: None,
                lookups: takes.lookups,
                having: takes.having,
            },
        )
        .await;
    }
}

pub fn frame(stream: u32, kind: FrameKind, body: &[u8]) -> Vec<u8> {
    let header = FrameHeader { length: body.len().try_into().unwrap(), kind, more: false, stream };
    [&header.encode(), body].concat()
}

pub fn frames(stream: u32, response: &Response) -> Vec<u8> {
    let messages = response.encode().unwrap().into_iter();
    messages.flat_map(|message| message.frames(stream)).collect::<Vec<Bytes>>().concat()
}

/// Creates a client of a scripted node, which runs `script` on every connection after the handshake.
pub async fn pool<F>(script: impl Fn(Peer) -> F + Clone + Send + Sync + 'static) -> RemotePool
where
    F: Future<Output = ()> + Send + 'static,
{
    pool_with(Patience::default(), script).await
}

/// Creates a client like [`pool`], with the given time limits for a silent node.
pub async fn pool_with<F>(
    patience: Patience,
    script: impl Fn(Peer) -> F + Clone + Send + Sync + 'static,
) -> RemotePool
where
    F: Future<Output = ()> + Send + 'static,
{
    let greeted = move |mut peer: Peer| {
        let script = script.clone();
        async move {
            peer.greet(Takes::default()).await;
            script(peer).await;
        }
    };
    RemotePool::dial(dialer(patience, greeted), Results::new()).await.unwrap()
}

/// Creates a client like [`pool`], of a node that takes `takes`.
pub async fn pool_that_takes<F>(
    takes: Takes,
    script: impl Fn(Peer) -> F + Clone + Send + Sync + 'static,
) -> RemotePool
where
    F: Future<Output = ()> + Send + 'static,
{
    let greeted = move |mut peer: Peer| {
        let script = script.clone();
        async move {
            peer.greet(takes).await;
            script(peer).await;
        }
    };
    RemotePool::dial(dialer(Patience::default(), greeted), Results::new()).await.unwrap()
}

/// Creates a dialer to a scripted node, which runs `script` on every connection from its beginning.
pub fn dialer<F>(patience: Patience, script: impl Fn(Peer) -> F + Send + Sync + 'static) -> Dialer
where
    F: Future<Output = ()> + Send + 'static,
{
    let url = "farpool://fake:1".parse().unwrap();
    let mut dialer = Dialer::new(&url, ClientOptions::default(), Arc::new(Fake(script)));
    dialer.patience = patience;
    dialer
}

/// A connector whose connections all lead to a node that runs the script.
struct Fake<S>(S);

#[async_trait]
impl<F, S> Connector for Fake<S>
where
    F: Future<Output = ()> + Send + 'static,
    S: Fn(Peer) -> F + Send + Sync + 'static,
{
    async fn connect(&self) -> io::Result<Arc<dyn Socket>> {
        let (ours, theirs) = pipe(PIPE_BYTES);
        let (buffer, assembler) = (BytesMut::new(), Assembler::new());
        tokio::spawn((self.0)(Peer { socket: Arc::new(theirs), buffer, assembler }));
        Ok(Arc::new(ours))
    }
}

pub fn table_name() -> TableName {
    TableName::new("t").unwrap()
}

/// Returns a batch of `count` rows.
pub fn rows(count: i64) -> RecordBatch {
    let values: ArrayRef = Arc::new(Int64Array::from_iter_values(0..count));
    RecordBatch::try_from_iter_with_nullable([("a", values, true)]).unwrap()
}

pub fn schema() -> SchemaRef {
    rows(0).schema()
}

pub fn table() -> TableInfo {
    TableInfo {
        name: table_name(),
        version: Version(1),
        schema: schema(),
        rows: 10,
        bytes_plain: 80,
        bytes_encoded: 80,
        columns: vec![Default::default()],
        rows_profiled: None,
        encryption: None,
        bytes_resident: None,
        is_pinned: false,
    }
}

pub fn scan() -> Program {
    Program::scan(table_name(), &schema(), &[0])
}

pub fn prepared() -> Response {
    let answers: Vec<OperatorAnswer> = Vec::new();
    let prepared = Prepared { version: Version(1), answers, effective: scan(), schema: schema() };
    Response::Prepared { prepared, table_schema: schema() }
}

pub fn receipt() -> Response {
    Response::Receipt(Receipt::default())
}

/// Counts all rows of a result.
pub async fn count(mut execution: crate::Execution) -> Result<usize> {
    use futures::StreamExt;
    let mut rows = 0;
    for stream in &mut execution.streams {
        while let Some(batch) = stream.next().await {
            rows += batch?.num_rows();
        }
    }
    Ok(rows)
}
