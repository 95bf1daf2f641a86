//! Frames, the unit of transmission: a 12-byte header and a payload of at most [`limits::FRAME_BYTES_MAX`] bytes. A
//! message is one or more frames. Layout of the header, little-endian:
//!
//! ```text
//! 0        4      5       6          8        12
//! | length | kind | flags | reserved | stream |
//! ```
//!
//! Bit 0 of the flags (MORE) says that the message continues in the next frame of the stream. The other bits and the
//! reserved bytes are zero, so that a later version may give them a meaning.

use crate::verbs::FrameKind;
use farpool_model::{Error, Result, limits};

/// Bytes of a frame's header.
pub const FRAME_HEADER_BYTES: usize = 12;

const FLAG_MORE: u8 = 1;

/// The header of a frame, which precedes its payload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FrameHeader {
    /// Number of bytes of the payload that follows the header.
    pub length: u32,
    /// The kind of the message.
    pub kind: FrameKind,
    /// Whether the message continues in the next frame of its stream.
    pub more: bool,
    /// Id of the stream; 0 stands for the connection itself.
    pub stream: u32,
}

impl FrameHeader {
    /// Encodes the header.
    pub fn encode(&self) -> [u8; FRAME_HEADER_BYTES] {
        let mut bytes = [0; FRAME_HEADER_BYTES];
        bytes[0..4].copy_from_slice(&self.length.to_le_bytes());
        bytes[4] = self.kind.number();
        bytes[5] = if self.more { FLAG_MORE } else { 0 };
        bytes[8..12].copy_from_slice(&self.stream.to_le_bytes());
        bytes
    }

    /// Decodes and checks a header.
    ///
    /// # Errors
    /// `Corrupt` if the kind, the length or a flag is not one that version 1 of the protocol knows. The connection
    /// cannot be used after that, because the beginning of the next frame is unknown.
    pub fn decode(bytes: &[u8; FRAME_HEADER_BYTES]) -> Result<Self> {
        let [l0, l1, l2, l3, kind, flags, r0, r1, s0, s1, s2, s3] = *bytes;
        let length = u32::from_le_bytes([l0, l1, l2, l3]);
        let stream = u32::from_le_bytes([s0, s1, s2, s3]);
        let damaged = |what: String| Err(Error::corrupt(format!("a damaged frame: {what}")));
        let Some(kind) = FrameKind::from_number(kind) else {
            return damaged(format!("kind {kind} does not exist"));
        };
        if length as usize > limits::FRAME_BYTES_MAX {
            return damaged(format!(
                "a payload may have {} bytes, the header says {length}",
                limits::FRAME_BYTES_MAX
            ));
        }
        if flags & !FLAG_MORE != 0 || (r0, r1) != (0, 0) {
            return damaged(format!("reserved bits are set: flags {flags:#04x}, then {r0:#04x} {r1:#04x}"));
        }
        let more = flags & FLAG_MORE != 0;
        if more && kind.is_control() {
            return damaged(format!("{} has one frame only, but says that more follow", kind.name()));
        }
        if more && length == 0 {
            return damaged("an empty frame says that more follow".into());
        }
        if kind.is_keepalive() && stream != 0 {
            return damaged(format!("{} belongs on stream 0, not {stream}", kind.name()));
        }
        Ok(FrameHeader { length, kind, more, stream })
    }
}
