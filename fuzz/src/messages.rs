//! Fuzz body that decodes untrusted input of the native protocol: the preface, frames, and every kind of message.

use crate::plan::table_schema;
use arrow_array::{Array, RecordBatch};
use bytes::{Bytes, BytesMut};
use farpool_wire::{
    Assembler, DetectedProtocol, FrameKind, FrameReader, Message, Request, Response, Window, check_preface,
    opening, reply_to_stranger, split_frame,
};

/// Decodes the bytes as both sides of a connection would. After the preface come frames; without it, the
/// first byte is the kind of a message and the rest its body.
pub fn native_messages(data: &[u8]) {
    opens_alike_wherever_it_is_cut(data);
    match check_preface(data) {
        Ok(true) => connection(&data[farpool_wire::PREFACE.len()..]),
        Ok(false) => {}
        Err(_) => {
            assert!(!reply_to_stranger(data).is_empty());
            let Some((kind, body)) = data.split_first() else { return };
            let Some(kind) = FrameKind::from_number(*kind) else { return };
            let body = Bytes::copy_from_slice(body);
            receive(&Message { kind, stream: 1, bytes_on_wire: body.len() as u64, body });
        }
    }
}

/// Checks that the kind of a connection does not depend on the split of its first bytes, except that an unknown
/// protocol is answered as soon as it is recognized.
fn opens_alike_wherever_it_is_cut(data: &[u8]) {
    let whole = opening(data);
    for cut in 0..data.len().min(2 * farpool_wire::PREFACE.len()) {
        match opening(&data[..cut]) {
            DetectedProtocol::Incomplete => {}
            DetectedProtocol::Stranger(_) => assert!(matches!(whole, DetectedProtocol::Stranger(_))),
            settled => assert_eq!(settled, whole),
        }
    }
}

fn connection(bytes: &[u8]) {
    let mut buffer = BytesMut::from(bytes);
    let mut assembler = Assembler::new();
    let mut messages = Vec::new();
    while let Ok(Some((header, payload))) = split_frame(&mut buffer) {
        match assembler.push(header, payload) {
            Ok(Some(message)) => {
                receive(&message);
                messages.push(message);
            }
            Ok(None) => {}
            Err(_) => break,
        }
        assert!(assembler.incomplete_bytes() <= bytes.len());
    }
    assert_eq!(taken_in(bytes), messages);
}

/// Assembles messages as a client does, from reads of any length.
fn taken_in(mut bytes: &[u8]) -> Vec<Message> {
    let mut frame_reader = FrameReader::default();
    let mut messages = Vec::new();
    loop {
        match frame_reader.next(|_| Ok(true)) {
            Ok(Some(message)) => messages.push(message),
            Ok(None) if bytes.is_empty() => return messages,
            Ok(None) => {
                let (buffer, most) = frame_reader.room();
                let (read, rest) = bytes.split_at(most.min(bytes.len().div_ceil(2)));
                buffer.extend_from_slice(read);
                bytes = rest;
                frame_reader.read(read.len());
            }
            Err(_) => return messages,
        }
    }
}

fn receive(message: &Message) {
    let schema = table_schema();
    if let Ok(request) = Request::decode(message, Some(&schema)) {
        match &request {
            Request::LoadBatch(batch) => read_all(batch),
            Request::Credit { bytes } => drop(Window::new().granted(*bytes)),
            _ => {}
        }
        if let Some(again) = resent(request.encode()) {
            let again = Request::decode(&again, Some(&schema)).expect("what we send, we read");
            assert_eq!(again.kind(), request.kind());
        }
    }
    if let Ok(response) = Response::decode(message, Some(&schema)) {
        if let Response::Batch(batch) = &response {
            read_all(batch);
        }
        if let Some(again) = resent(response.encode()) {
            let again = Response::decode(&again, Some(&schema)).expect("what we send, we read");
            assert_eq!(format!("{again:?}"), format!("{response:?}"));
        }
    }
}

/// Encodes and decodes a message again; `None` if it was refused or is not a single message.
fn resent(encoded: farpool_model::Result<Vec<farpool_wire::Outgoing>>) -> Option<Message> {
    let mut messages = encoded.ok()?;
    let outgoing = messages.pop().filter(|_| messages.is_empty())?;
    let stream = u32::from(!outgoing.kind().is_keepalive());
    let mut buffer = BytesMut::from(&outgoing.frames(stream).concat()[..]);
    let mut assembler = Assembler::new();
    while let Some((header, payload)) = split_frame(&mut buffer).expect("our own frames are sound") {
        if let Some(message) = assembler.push(header, payload).expect("our own frames fit together") {
            return Some(message);
        }
    }
    None
}

/// Reads every value, so that a value that refers to missing bytes is detected.
fn read_all(batch: &RecordBatch) {
    for column in batch.columns() {
        column.to_data().validate_full().expect("a batch that was accepted is sound");
    }
}
