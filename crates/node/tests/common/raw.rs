//! A client for tests that sends single messages or arbitrary bytes of the native protocol, without the checks and the
//! bookkeeping of a real client.

use super::{Server, batch, scan};
use arrow_array::{RecordBatch, StringViewArray};
use bytes::BytesMut;
use farpool_model::{LoadMode, ResultForm, TableName};
use farpool_wire::{
    Assembler, FrameKind, Message, PREFACE, Request, Response, Socket, Window, split_frame, substrait,
};
use std::sync::Arc;
use std::time::Duration;
use tokio::net::TcpStream;
use tokio::time::timeout;

/// A client that sends only what a test tells it, whether or not the protocol allows it.
pub struct Raw {
    pub socket: Arc<dyn Socket>,
    buffer: BytesMut,
    assembler: Assembler,
}

impl Raw {
    pub async fn connect(server: &Server) -> Self {
        Raw::over(Arc::new(TcpStream::connect(server.address).await.unwrap())).await
    }

    /// Sends a hello over `socket`, which must be accepted.
    pub async fn over(socket: Arc<dyn Socket>) -> Self {
        Raw::with_token(socket, None).await
    }

    /// Does the same as [`Raw::over`], with a token.
    pub async fn with_token(socket: Arc<dyn Socket>, token: Option<&str>) -> Self {
        let mut raw = Raw::silent(socket);
        raw.socket.write_all(&hello_with(token)).await.unwrap();
        raw.expect_preface().await;
        assert_eq!(raw.next().await.unwrap().kind, FrameKind::Welcome);
        raw
    }

    /// Returns a client that has not sent anything, not even the preface.
    pub fn silent(socket: Arc<dyn Socket>) -> Self {
        Raw { socket, buffer: BytesMut::new(), assembler: Assembler::new() }
    }

    pub async fn expect_preface(&mut self) {
        while self.buffer.len() < PREFACE.len() {
            assert!(self.socket.read(&mut self.buffer).await.unwrap() > 0, "the node hung up");
        }
        assert_eq!(self.buffer.split_to(PREFACE.len())[..], PREFACE);
    }

    pub async fn send(&mut self, stream: u32, request: &Request) {
        self.socket.write_all(&frames(stream, request)).await.unwrap();
    }

    pub async fn execute(&mut self, stream: u32, table: &str) {
        self.send(stream, &execute(table)).await;
    }

    /// Loads a table of `rows` rows of [`batch`], sending no more than the node grants credit for (flow control).
    pub async fn load(&mut self, stream: u32, table: &str, rows: i64) {
        let schema = farpool_model::schema::canonical_schema(&batch(0, 0).schema()).unwrap();
        let table = TableName::new(table).unwrap();
        let begin =
            Request::LoadBegin { table, options: LoadMode::Create.into(), schema, rows_hint: None, id: None };
        self.send(stream, &begin).await;
        let mut window = Window::new();
        for start in (0..rows).step_by(50_000) {
            while !window.is_open() {
                let message = self.next().await.expect("credit");
                let Response::Credit { bytes } = Response::decode(&message, None).unwrap() else { panic!() };
                window.granted(bytes).unwrap();
            }
            for message in
                Request::LoadBatch(canonical_batch(start, rows.min(start + 50_000))).encode().unwrap()
            {
                window.sent(message.bytes_on_wire());
                self.socket.write_all(&message.frames(stream).concat()).await.unwrap();
            }
        }
        self.send(stream, &Request::LoadEnd).await;
        loop {
            match self.next().await.expect("an answer").kind {
                FrameKind::Credit => {}
                kind => break assert_eq!(kind, FrameKind::Loaded),
            }
        }
    }

    /// Returns the next message; `None` if the node sends nothing for half a second or disconnects. `None` does not
    /// prove that the node waits for the client, because on a busy machine a message may take longer.
    pub async fn next_soon(&mut self) -> Option<Message> {
        timeout(Duration::from_millis(500), self.next()).await.unwrap_or(None)
    }

    /// Returns the next message other than `Ping`, which is answered; `None` when the node disconnects.
    pub async fn next(&mut self) -> Option<Message> {
        loop {
            let message = self.next_of_any_kind().await?;
            if message.kind != FrameKind::Ping {
                return Some(message);
            }
            self.send(0, &Request::Pong).await;
        }
    }

    /// Returns the next message; `None` when the node disconnects.
    pub async fn next_of_any_kind(&mut self) -> Option<Message> {
        loop {
            while let Some((header, payload)) = split_frame(&mut self.buffer).unwrap() {
                if let Some(message) = self.assembler.push(header, payload).unwrap() {
                    return Some(message);
                }
            }
            if self.socket.read(&mut self.buffer).await.unwrap_or(0) == 0 {
                return None;
            }
        }
    }
}

/// Returns the first bytes of a client: the preface (protocol identification) and a hello.
pub fn hello() -> Vec<u8> {
    hello_with(None)
}

fn hello_with(token: Option<&str>) -> Vec<u8> {
    let hello = Request::Hello {
        version_min: 1,
        version_max: 1,
        token: token.map(str::to_string),
        timeout_ms: None,
        client: "raw".into(),
    };
    [&PREFACE[..], &frames(0, &hello)].concat()
}

/// Returns a request to scan all columns, with plain results.
pub fn execute(table: &str) -> Request {
    let schema = farpool_model::schema::canonical_schema(&batch(0, 0).schema()).unwrap();
    let plan = substrait::encode_program(&scan(table), &schema).unwrap();
    Request::Execute { plan, schema: None, results: ResultForm::Plain }
}

/// Returns the bytes of a request.
pub fn frames(stream: u32, request: &Request) -> Vec<u8> {
    let messages = request.encode().unwrap();
    messages.into_iter().flat_map(|message| message.frames(stream)).flatten().collect()
}

/// Returns [`batch`] with the types used on the wire.
pub fn canonical_batch(start: i64, end: i64) -> RecordBatch {
    let batch = batch(start, end);
    let schema = farpool_model::schema::canonical_schema(&batch.schema()).unwrap();
    let mut columns = batch.columns().to_vec();
    columns[2] = Arc::new(StringViewArray::from_iter_values(
        (start..end).map(|id| format!("word number {}", id % 100)),
    ));
    RecordBatch::try_new(schema, columns).unwrap()
}
