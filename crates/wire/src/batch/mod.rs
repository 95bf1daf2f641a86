//! Schemas and batches as Arrow IPC messages ("encapsulated messages" of the Arrow columnar format).
//!
//! Invariants: schemas on the wire are canonical ([`farpool_model::schema`]), so that there are no dictionaries and no
//! nested types. Of the data behind string views, exactly the bytes that rows of the batch refer to are sent, each
//! once. Column buffers are sent from where they are, and are not copied together.
//!
//! Incoming bytes are not trusted: every count and offset is checked before Arrow's own decoder reads it, and that
//! decoder validates the values. The cost of decoding is bounded before it begins: memory by [`bytes_to_decode`]; time
//! because the strings of all rows together, each counted as often as rows refer to it, are no longer than a message.

mod compact;
mod compress;
mod read;
mod schema;
mod write;

pub(crate) use read::check;
pub use read::{bytes_to_decode, decode_batch};
pub use schema::{decode_schema, encode_schema};
pub(crate) use schema::{field_type, integer_type, time_unit};
pub use write::{EncodedBatch, encode_batch};

use bytes::Bytes;
use farpool_model::{Error, Result};

/// The four bytes with which an encapsulated message begins, before the length of its metadata.
const CONTINUATION: [u8; 4] = [0xff; 4];

/// Alignment of buffers in bytes, counted from the start of the message: a CPU cache line, as Arrow recommends. A
/// message that is received into aligned memory is therefore decoded without copying.
const ALIGNMENT: usize = 64;

static ZEROS: [u8; ALIGNMENT] = [0; ALIGNMENT];

/// Puts the prefix of an encapsulated message before its metadata, and padding behind them, so that a body after them
/// is aligned.
fn encapsulate(metadata: &[u8]) -> Bytes {
    let length = (8 + metadata.len()).next_multiple_of(ALIGNMENT);
    let mut bytes = Vec::with_capacity(length);
    bytes.extend_from_slice(&CONTINUATION);
    bytes.extend_from_slice(&((length - 8) as i32).to_le_bytes());
    bytes.extend_from_slice(metadata);
    bytes.resize(length, 0);
    bytes.into()
}

/// Returns the length of the metadata of an encapsulated message, including its prefix, and the parsed metadata.
fn metadata(message: &[u8]) -> Result<(usize, arrow_ipc::Message<'_>)> {
    let damaged = |what: &str| Error::corrupt(format!("a damaged Arrow message: {what}"));
    let Some((prefix, rest)) = message.split_at_checked(8) else {
        return Err(damaged("it is shorter than its prefix"));
    };
    if prefix[..4] != CONTINUATION {
        return Err(damaged("it does not begin with the continuation marker"));
    }
    let length = i32::from_le_bytes([prefix[4], prefix[5], prefix[6], prefix[7]]);
    let metadata = usize::try_from(length).ok().and_then(|length| rest.get(..length));
    let metadata = metadata.ok_or_else(|| damaged(&format!("its metadata has no {length} bytes")))?;
    let parsed = arrow_ipc::root_as_message(metadata).map_err(|error| damaged(&error.to_string()))?;
    // Version 5 of the metadata came with Arrow 1.0 (2020). Version 4 differs from it only in unions, which do not
    // occur here.
    if parsed.version() < arrow_ipc::MetadataVersion::V4 {
        return Err(damaged(&format!("it has metadata version {:?}", parsed.version())));
    }
    Ok((8 + metadata.len(), parsed))
}

/// Returns the total length of the strings of all views. A string that several views share counts once per view.
pub(crate) fn string_bytes(views: &[u8]) -> usize {
    let (views, _) = views.as_chunks::<16>();
    views.iter().map(|[a, b, c, d, ..]| u32::from_le_bytes([*a, *b, *c, *d]) as usize).sum()
}

#[cfg(test)]
mod tests;
