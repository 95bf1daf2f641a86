//! A client that speaks the protocol byte by byte.

use super::{Server, batch, scan};
use bytes::BytesMut;
use farpool_model::ResultForm;
use farpool_wire::{Assembler, FrameKind, Message, PREFACE, Request, split_frame, substrait};
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;

/// A client without manners of its own.
pub struct Raw {
    pub socket: TcpStream,
    buffer: BytesMut,
    assembler: Assembler,
}

impl Raw {
    pub async fn connect(server: &Server) -> Self {
        let socket = TcpStream::connect(server.address).await.unwrap();
        let mut raw = Raw { socket, buffer: BytesMut::new(), assembler: Assembler::new() };
        raw.socket.write_all(&PREFACE).await.unwrap();
        let hello = Request::Hello { version_min: 1, version_max: 1, token: None, client: "raw".into() };
        raw.send(0, &hello).await;
        let mut preface = [0; PREFACE.len()];
        raw.socket.read_exact(&mut preface).await.unwrap();
        assert_eq!(preface, PREFACE);
        assert_eq!(raw.receive().await.unwrap().kind, FrameKind::Welcome);
        raw
    }

    pub async fn send(&mut self, stream: u32, request: &Request) {
        for message in request.encode().unwrap() {
            for piece in message.frames(stream) {
                self.socket.write_all(&piece).await.unwrap();
            }
        }
    }

    pub async fn execute(&mut self, stream: u32, table: &str) {
        let schema = farpool_model::schema::canonical_schema(&batch(0, 0).schema()).unwrap();
        let plan = substrait::encode_program(&scan(table), &schema).unwrap();
        self.send(stream, &Request::Execute { plan, results: ResultForm::Plain }).await;
    }

    /// The next message; `None` when the node says nothing for a while or hangs up.
    pub async fn receive(&mut self) -> Option<Message> {
        loop {
            while let Some((header, payload)) = split_frame(&mut self.buffer).unwrap() {
                if let Some(message) = self.assembler.push(header, payload).unwrap() {
                    return Some(message);
                }
            }
            match timeout(Duration::from_millis(500), self.socket.read_buf(&mut self.buffer)).await {
                Ok(Ok(bytes)) if bytes > 0 => {}
                _ => return None,
            }
        }
    }
}
