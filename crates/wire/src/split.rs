//! Splits the bytes read from a socket into frames (the units of transmission of the native protocol: a header and a
//! payload).

use crate::frame::{FRAME_HEADER_BYTES, FrameHeader};
use bytes::{Buf, Bytes, BytesMut};
use farpool_model::Result;

/// Splits the first frame off `buffer` without copying it. Returns `None` if more bytes are needed; room for them is
/// then reserved in the buffer.
///
/// # Errors
/// Errors of [`FrameHeader::decode`].
pub fn split_frame(buffer: &mut BytesMut) -> Result<Option<(FrameHeader, Bytes)>> {
    let Some(bytes) = buffer.first_chunk::<FRAME_HEADER_BYTES>() else {
        return Ok(None);
    };
    let header = FrameHeader::decode(bytes)?;
    let payload = header.length as usize;
    let missing = (FRAME_HEADER_BYTES + payload).saturating_sub(buffer.len());
    if missing > 0 {
        buffer.reserve(missing);
        return Ok(None);
    }
    buffer.advance(FRAME_HEADER_BYTES);
    Ok(Some((header, buffer.split_to(payload).freeze())))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::FrameKind;

    #[test]
    fn frames_come_out_as_they_become_complete() {
        let header = FrameHeader { length: 3, kind: FrameKind::Batch, more: false, stream: 7 };
        let bytes = [&header.encode()[..], b"abc", &header.encode()[..], b"def"].concat();
        let mut buffer = BytesMut::new();
        let mut payloads = Vec::new();
        for byte in bytes {
            buffer.extend_from_slice(&[byte]);
            if let Some((found, payload)) = split_frame(&mut buffer).unwrap() {
                assert_eq!(found, header);
                payloads.push(payload);
            }
        }
        assert_eq!(payloads, [&b"abc"[..], b"def"]);
        assert!(buffer.is_empty());
    }

    #[test]
    fn a_damaged_header_is_an_error_as_soon_as_it_is_complete() {
        let mut buffer = BytesMut::from(&[0xff; 11][..]);
        assert!(split_frame(&mut buffer).unwrap().is_none());
        buffer.extend_from_slice(&[0xff]);
        assert!(split_frame(&mut buffer).is_err());
    }
}
