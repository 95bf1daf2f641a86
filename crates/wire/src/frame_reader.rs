//! Assembles the bytes read from a socket into messages. The rest of a large payload is read directly into its message,
//! so that it is not copied, and starts at an address that is aligned for values of any width.
//!
//! Invariant: memory is bounded as in the [`Assembler`], plus one read or one small frame that was read in advance.

use crate::frame::{FRAME_HEADER_BYTES, FrameHeader};
use crate::message::{Assembler, Incomplete, Message};
use crate::split::split_frame;
use bytes::BytesMut;
use farpool_model::{Result, limits};

/// Minimum size in bytes of a payload that is read directly into its message; smaller ones are first read completely
/// into the read buffer.
const DIRECT_BYTES_MIN: usize = 16 << 10;

/// Maximum bytes per read if the size of the next message is unknown.
const READ_BYTES: usize = 64 << 10;

/// Maximum bytes per read if the next frame of a large message is expected: enough for its header, with little of its
/// payload, which would have to be copied.
const HEADER_READ_BYTES: usize = 1 << 10;

/// The receiving side of one connection: turns bytes into messages.
#[derive(Debug, Default)]
pub struct FrameReader {
    /// Bytes that have been read and belong to no message yet.
    buffer: BytesMut,
    assembler: Assembler,
    direct: Option<DirectFrame>,
    /// Whether the last frame's message continues in another frame.
    more: bool,
    /// Size in bytes of the largest message of several frames so far. As much is reserved for the next one.
    largest: usize,
}

/// A frame whose payload is read directly into its message.
#[derive(Debug)]
struct DirectFrame {
    header: FrameHeader,
    message: Incomplete,
    missing: usize,
}

impl FrameReader {
    /// Creates the frame reader of a connection from which the bytes `received` have been read already.
    pub fn new(received: BytesMut) -> Self {
        FrameReader { buffer: received, ..FrameReader::default() }
    }

    /// Returns the buffer for the next read, with room reserved in it, and the maximum number of bytes to read (at
    /// least one).
    pub fn room(&mut self) -> (&mut BytesMut, usize) {
        match &mut self.direct {
            Some(direct) => (&mut direct.message.body, direct.missing),
            None => {
                let wanted = if self.more { HEADER_READ_BYTES } else { READ_BYTES };
                self.buffer.reserve(wanted);
                (&mut self.buffer, wanted)
            }
        }
    }

    /// Records that `bytes` bytes were read into the buffer of [`FrameReader::room`].
    pub fn read(&mut self, bytes: usize) {
        if let Some(direct) = &mut self.direct {
            direct.missing = direct.missing.saturating_sub(bytes);
        }
    }

    /// Returns the next complete message; `None` if more bytes must be read first. Skips frames that `wanted` rejects.
    ///
    /// # Errors
    /// Errors of [`FrameHeader::decode`] and [`Assembler::push`], and of `wanted` for a frame that is not allowed.
    pub fn next(&mut self, wanted: impl Fn(&FrameHeader) -> Result<bool>) -> Result<Option<Message>> {
        loop {
            if let Some(direct) = self.direct.take_if(|direct| direct.missing == 0) {
                if !wanted(&direct.header)? {
                    continue;
                }
                let bytes = direct.message.body.len();
                if let Some(message) = self.assembler.end(direct.header, direct.message)? {
                    self.largest = self.largest.max(bytes).min(limits::STREAM_WINDOW_BYTES);
                    return Ok(Some(message));
                }
            }
            if self.direct.is_some() || self.begin_direct()? {
                return Ok(None);
            }
            let Some((header, payload)) = split_frame(&mut self.buffer)? else { return Ok(None) };
            self.more = header.more;
            if !wanted(&header)? {
                continue;
            }
            if let Some(message) = self.assembler.push(header, payload)? {
                return Ok(Some(message));
            }
        }
    }

    /// Returns the bytes of memory that hold received data of incomplete messages, for a memory budget over all
    /// connections. From one call of [`FrameReader::next`] that needs more bytes to the next, they grow by at most one
    /// frame or one read, and by the size of the largest message so far.
    pub fn bytes_held(&self) -> usize {
        let direct = self.direct.as_ref().map_or(0, |direct| direct.message.body.capacity());
        self.buffer.capacity() + direct + self.assembler.bytes_held()
    }

    /// Drops the incomplete message of the stream, which has ended, if there is one.
    pub fn forget(&mut self, stream: u32) {
        self.assembler.forget(stream);
    }

    /// If the next payload is large and incomplete, starts to read it directly into its message, beginning with the
    /// bytes received so far. Returns whether it did.
    fn begin_direct(&mut self) -> Result<bool> {
        let Some(bytes) = self.buffer.first_chunk::<FRAME_HEADER_BYTES>() else { return Ok(false) };
        let header = FrameHeader::decode(bytes)?;
        let payload = header.length as usize;
        let here = self.buffer.len() - FRAME_HEADER_BYTES;
        if header.kind.is_control() || payload < DIRECT_BYTES_MIN || payload <= here {
            return Ok(false);
        }
        let mut message = self.assembler.begin(header)?;
        let expected = if header.more { self.largest } else { 0 };
        message.body.reserve(payload.max(expected.saturating_sub(message.body.len())));
        message.body.extend_from_slice(&self.buffer[FRAME_HEADER_BYTES..]);
        self.buffer.clear();
        self.more = header.more;
        self.direct = Some(DirectFrame { header, message, missing: payload - here });
        Ok(true)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{FrameKind, Outgoing};
    use bytes::Bytes;
    use proptest::prelude::*;

    #[test]
    fn what_is_held_is_told_and_a_short_message_holds_no_more_than_itself() {
        let batch = Outgoing::new(FrameKind::LoadBatch, vec![Bytes::from(vec![7; 3 << 20])]).unwrap();
        let frames = batch.frames(1).concat();
        let mut frame_reader = FrameReader::default();
        let mut at = 0;
        while at < frames.len() - 1 {
            let (buffer, most) = frame_reader.room();
            let count = most.min(frames.len() - 1 - at);
            buffer.extend_from_slice(&frames[at..at + count]);
            frame_reader.read(count);
            at += count;
            assert_eq!(frame_reader.next(|_| Ok(true)).unwrap(), None);
            assert!(
                frame_reader.bytes_held() >= at - at.div_ceil(limits::FRAME_BYTES_MAX) * FRAME_HEADER_BYTES
            );
        }
        frame_reader.forget(1);
        frame_reader.room().0.extend_from_slice(&frames[at..]);
        frame_reader.read(1);
        assert!(frame_reader.next(|header| Ok(header.stream == 2)).unwrap().is_none());
        assert!(frame_reader.bytes_held() <= 2 * READ_BYTES, "{}", frame_reader.bytes_held());

        let short = Outgoing::new(FrameKind::LoadBatch, vec![Bytes::from_static(b"abc")]).unwrap();
        let mut read = BytesMut::with_capacity(READ_BYTES);
        read.extend_from_slice(&short.frames(3).concat());
        let place = read.as_ptr_range();
        let message = FrameReader::new(read).next(|_| Ok(true)).unwrap().unwrap();
        assert!(!place.contains(&message.body.as_ptr()), "it holds what was read with it");
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        #[test]
        fn messages_come_out_as_they_went_in_however_they_are_read(
            sizes in prop::collection::vec(prop_oneof![0..100usize, 10_000..100_000usize, 0..1_700_000usize], 1..6),
            steps in prop::collection::vec(1..400_000usize, 1..20),
        ) {
            let body = |i: usize, size| Bytes::from((0..size).map(|b| (b * 7 + i) as u8).collect::<Vec<_>>());
            let bodies: Vec<Bytes> = sizes.iter().enumerate().map(|(i, size)| body(i, *size)).collect();
            let message = |body: &Bytes| Outgoing::new(FrameKind::Parcel, vec![body.clone()]).unwrap();
            // Frames of an unwanted stream are interleaved with the others.
            let frames = bodies.iter().flat_map(|body| [message(body).frames(1), message(body).frames(2)]);
            let sent = frames.flatten().collect::<Vec<_>>().concat();
            let mut frame_reader = FrameReader::new(BytesMut::from(&sent[..sent.len().min(5)]));
            let mut at = sent.len().min(5);
            let mut came = Vec::new();
            for step in steps.iter().cycle() {
                while let Some(message) = frame_reader.next(|header| Ok(header.stream == 1)).unwrap() {
                    came.push(message);
                }
                if at == sent.len() {
                    break;
                }
                let (buffer, most) = frame_reader.room();
                let count = most.min(*step).min(sent.len() - at);
                buffer.extend_from_slice(&sent[at..at + count]);
                frame_reader.read(count);
                at += count;
            }
            prop_assert_eq!(came.len(), bodies.len());
            for (message, body) in came.iter().zip(&bodies) {
                prop_assert_eq!(&message.body, body);
                let frames = body.len().div_ceil(limits::FRAME_BYTES_MAX).max(1);
                prop_assert_eq!(message.bytes_on_wire as usize, body.len() + frames * FRAME_HEADER_BYTES);
            }
        }
    }
}
