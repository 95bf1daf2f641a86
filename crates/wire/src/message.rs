//! Messages: one or more frames of one kind on one stream. Assembles them from frames, and splits them into frames.
//!
//! Invariant: the memory of an [`Assembler`] is bounded, for each message by its kind and for the connection as a
//! whole, whatever the peer sends. It grows with the bytes received, not with announced sizes. A short message gets
//! memory of its own, so that keeping the message does not keep the whole read buffer alive.

use crate::frame::{FRAME_HEADER_BYTES, FrameHeader};
use crate::verbs::FrameKind;
use bytes::{Bytes, BytesMut};
use farpool_model::{Error, Result, cast, limits};
use std::collections::HashMap;

/// Maximum size in bytes of a payload that is copied out of the read buffer. Reason: a small payload that shared the
/// buffer would keep all of it alive.
const COPIED_BYTES_MAX: usize = 16 << 10;

/// A complete received message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Message {
    /// The kind of the message.
    pub kind: FrameKind,
    /// Id of the stream; 0 stands for the connection itself.
    pub stream: u32,
    /// The body: the payloads of all frames of the message, one after the other.
    pub body: Bytes,
    /// Bytes of the message on the wire, including the headers of frames: what it takes of the stream's credit (see
    /// [`crate::flow`]).
    pub bytes_on_wire: u64,
}

/// A message to be sent, as pieces of memory that need not be adjacent.
#[derive(Clone, Debug)]
pub struct Outgoing {
    kind: FrameKind,
    pieces: Vec<Bytes>,
    bytes: usize,
}

impl Outgoing {
    /// Creates a message whose body consists of `pieces`, one after the other.
    ///
    /// # Errors
    /// `OverLimit` if it is larger than a message of this kind may be.
    pub fn new(kind: FrameKind, pieces: Vec<Bytes>) -> Result<Self> {
        let bytes = pieces.iter().map(Bytes::len).sum();
        if bytes > kind.message_bytes_max() {
            return Err(too_large(kind));
        }
        Ok(Outgoing { kind, pieces, bytes })
    }

    /// Creates a message from an encrypted body. Its size was checked before encryption.
    pub(crate) fn sealed(kind: FrameKind, body: Bytes) -> Self {
        Outgoing { kind, bytes: body.len(), pieces: vec![body] }
    }

    /// Returns the pieces of the body.
    pub(crate) fn pieces(&self) -> impl Iterator<Item = &[u8]> {
        self.pieces.iter().map(|piece| &piece[..])
    }

    /// Returns the kind, the pieces of the body, and their total bytes.
    pub(crate) fn into_parts(self) -> (FrameKind, Vec<Bytes>, usize) {
        (self.kind, self.pieces, self.bytes)
    }

    /// Returns the kind of the message.
    pub fn kind(&self) -> FrameKind {
        self.kind
    }

    /// Returns the bytes of the message on the wire, including the headers of frames: what it takes of the stream's
    /// credit (see [`crate::flow`]).
    pub fn bytes_on_wire(&self) -> u64 {
        let frames = self.bytes.div_ceil(limits::FRAME_BYTES_MAX).max(1);
        cast::u64_from(self.bytes + frames * FRAME_HEADER_BYTES)
    }

    /// Splits the message into frames on the stream with id `stream`. Returns headers and pieces of payloads in the
    /// order in which they must be written, one after the other or as one vectored write.
    pub fn frames(self, stream: u32) -> Vec<Bytes> {
        let mut out = Vec::with_capacity(self.pieces.len() + 1);
        let mut remaining = self.bytes;
        let mut pieces = self.pieces.into_iter().filter(|piece| !piece.is_empty());
        let mut piece = Bytes::new();
        loop {
            let mut length = remaining.min(limits::FRAME_BYTES_MAX);
            remaining -= length;
            let header = FrameHeader {
                length: cast::u32_checked(length),
                kind: self.kind,
                more: remaining > 0,
                stream,
            };
            out.push(Bytes::copy_from_slice(&header.encode()));
            while length > 0 {
                if piece.is_empty() {
                    piece = pieces.next().expect("the pieces sum up to the message's bytes");
                }
                let part = piece.split_to(length.min(piece.len()));
                length -= part.len();
                out.push(part);
            }
            if remaining == 0 {
                return out;
            }
        }
    }
}

/// Assembles the frames of one connection into messages. Frames of different streams may alternate. Within a stream, a
/// message must end before the next one begins, except that control frames may come between its frames.
#[derive(Debug, Default)]
pub struct Assembler {
    incomplete: HashMap<u32, Incomplete>,
    incomplete_bytes: usize,
}

/// A message some of whose frames have not been received yet.
#[derive(Debug)]
pub(crate) struct Incomplete {
    kind: FrameKind,
    pub(crate) body: BytesMut,
    frames: u64,
}

impl Assembler {
    /// Creates the assembler of a new connection.
    pub fn new() -> Self {
        Assembler::default()
    }

    /// Adds the next frame; returns the message if it is complete now, otherwise `None`.
    ///
    /// # Errors
    /// `Corrupt` if the payload is not as long as the header says, or a message is interrupted by another one;
    /// `OverLimit` if a message is larger than its kind may be, or too many are incomplete. The connection cannot be
    /// used after an error.
    pub fn push(&mut self, header: FrameHeader, payload: Bytes) -> Result<Option<Message>> {
        let FrameHeader { length, kind, more, stream } = header;
        if payload.len() != length as usize {
            return Err(Error::corrupt(format!(
                "a damaged frame: its header says {length} bytes, its payload has {}",
                payload.len()
            )));
        }
        if kind.is_control() {
            return self.whole(kind, stream, payload).map(Some);
        }
        if !more && !self.incomplete.contains_key(&stream) {
            return self.whole(kind, stream, payload).map(Some);
        }
        let mut message = self.begin(header)?;
        message.body.extend_from_slice(&payload);
        self.end(header, message)
    }

    /// Removes and returns the incomplete message of a frame's stream, or a new one. The caller appends the frame's
    /// payload and passes the message to [`Assembler::end`].
    pub(crate) fn begin(&mut self, header: FrameHeader) -> Result<Incomplete> {
        let FrameHeader { length, kind, stream, .. } = header;
        let message = match self.incomplete.remove(&stream) {
            None => Incomplete { kind, body: BytesMut::new(), frames: 0 },
            Some(begun) => begun,
        };
        self.incomplete_bytes -= message.body.len();
        if message.kind != kind {
            return Err(Error::corrupt(format!(
                "on stream {stream} {} begins before {} has ended",
                kind.name(),
                message.kind.name()
            )));
        }
        if message.body.len() + length as usize > kind.body_bytes_max() {
            return Err(too_large(kind));
        }
        Ok(message)
    }

    /// Drops the incomplete message of the stream, which has ended, if there is one.
    pub fn forget(&mut self, stream: u32) {
        if let Some(begun) = self.incomplete.remove(&stream) {
            self.incomplete_bytes -= begun.body.len();
        }
    }

    /// Returns the received bytes of incomplete messages.
    pub fn incomplete_bytes(&self) -> usize {
        self.incomplete_bytes
    }

    /// Returns the bytes of memory allocated for incomplete messages, which are more than
    /// [`Assembler::incomplete_bytes`]. For a memory budget over all connections, which should ask after each frame.
    pub fn bytes_held(&self) -> usize {
        self.incomplete.values().map(|message| message.body.capacity()).sum()
    }

    fn whole(&self, kind: FrameKind, stream: u32, body: Bytes) -> Result<Message> {
        if body.len() > kind.body_bytes_max() {
            return Err(too_large(kind));
        }
        let body = if body.len() < COPIED_BYTES_MAX { Bytes::copy_from_slice(&body) } else { body };
        let bytes_on_wire = cast::u64_from(body.len() + FRAME_HEADER_BYTES);
        Ok(Message { kind, stream, body, bytes_on_wire })
    }

    /// Takes the message to which the payload of a frame has been appended. Returns the message if it is complete;
    /// otherwise keeps it and returns `None`.
    pub(crate) fn end(&mut self, header: FrameHeader, mut message: Incomplete) -> Result<Option<Message>> {
        let FrameHeader { kind, more, stream, .. } = header;
        message.frames += 1;
        if !more {
            let headers = message.frames * cast::u64_from(FRAME_HEADER_BYTES);
            let bytes_on_wire = cast::u64_from(message.body.len()) + headers;
            return Ok(Some(Message { kind, stream, body: message.body.freeze(), bytes_on_wire }));
        }
        let full = self.incomplete_bytes + message.body.len() > limits::INCOMPLETE_BYTES_MAX;
        if full || self.incomplete.len() >= limits::STREAMS_PER_CONNECTION_MAX {
            return Err(Error::over_limit(format!(
                "{} incomplete messages of {} bytes on one connection are too many",
                self.incomplete.len() + 1,
                self.incomplete_bytes + message.body.len()
            )));
        }
        self.incomplete_bytes += message.body.len();
        self.incomplete.insert(stream, message);
        Ok(None)
    }
}

fn too_large(kind: FrameKind) -> Error {
    Error::over_limit(format!("a {} message may have {} bytes", kind.name(), kind.message_bytes_max()))
}
