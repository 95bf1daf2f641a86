//! The directory of a segment (an immutable file with column chunks of tables): one entry for each part, the stored
//! form of one column chunk.
//!
//! Layout of an entry, all numbers little-endian: number, offset, plain bytes and, from format 3 on, stored bytes, each
//! `u64`; the checksum, or in an encrypted segment the part's index in order of addition, `u32`; bytes of the head
//! `u32`; from format 3 on the codec `u8`; in format 5 the key that the part is under, `u8`: 0 for the segment's, 1 for
//! its table's; the tag of a part that is encrypted as a whole, or the block table of one that is compressed; under a
//! table's key the tag of the head; the head.
//!
//! Invariant: a decoded entry names bytes in front of the directory, and its lengths are consistent. Example: an entry
//! with offset 4096 and 100 stored bytes is rejected if the directory begins at 4190, so that a reader never takes
//! bytes of the directory for data.

use crate::blocks::{self, Blocks};
use crate::heads::PartHead;
use farpool_cipher::{TAG_BYTES, Tag};
use farpool_codec::Codec;
use farpool_model::Result;
use farpool_model::cast::{u32_checked, usize_saturating};
use std::borrow::Cow;
use std::collections::BTreeMap;

/// The format numbers of segments that this version writes.
pub(crate) const FORMAT: u32 = 3;
pub(crate) const ENCRYPTED_FORMAT: u32 = 5;
/// Older format that is still read. All parts are encrypted under the segment's key; there are no keys of tables.
const ENCRYPTED_SHARED_FORMAT: u32 = 4;
/// Older formats that are still read: no part is compressed.
const WHOLE_FORMAT: u32 = 1;
const ENCRYPTED_WHOLE_FORMAT: u32 = 2;

/// Minimum bytes of an entry: those of an entry of the first formats without tag and head.
const ENTRY_BYTES: usize = 32;

/// Codec code of a part that is not compressed.
const NO_CODEC: u8 = 0;

/// Code of the encryption key of a part: the key of the segment.
const OF_SEGMENT: u8 = 0;
/// Code of the encryption key of a part: the key of its table.
const OF_TABLE: u8 = 1;

/// Returns whether segments of a format are encrypted; `None` for an unknown format.
pub(crate) fn is_encrypted(format: u32) -> Option<bool> {
    match format {
        FORMAT | WHOLE_FORMAT => Some(false),
        ENCRYPTED_FORMAT | ENCRYPTED_SHARED_FORMAT | ENCRYPTED_WHOLE_FORMAT => Some(true),
        _ => None,
    }
}

/// Directory entry of one part of a segment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Part {
    /// Metadata of the column chunk.
    pub(crate) head: PartHead,
    /// Bytes of the data after decompression.
    pub bytes: u64,
    /// Bytes of the data on disk; fewer than `bytes` if the data are compressed.
    pub bytes_stored: u64,
    /// Id of the column chunk.
    pub(crate) number: u64,
    /// Offset of the data in the file.
    pub offset: u64,
    pub(crate) storage: PartStorage,
}

/// Storage form of the data of a part, with the checksum or authentication tag by which corruption is detected.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum PartStorage {
    /// Uncompressed and unencrypted, with a CRC-32.
    Plain(u32),
    /// Uncompressed and encrypted as a whole. The nonce is made from the number, the part's index in the order in which
    /// parts were added.
    Encrypted(u32, Tag),
    /// Compressed block by block, and encrypted block by block in an encrypted segment.
    Blocks(Blocks),
}

impl Part {
    /// Returns whether the part is encrypted under the key of its table, and not under that of the segment.
    pub fn is_of_table(&self) -> bool {
        matches!(self.head, PartHead::OfTable { .. })
    }

    /// Returns the index of the part in the order in which parts were added, from which nonces are made; 0 in a plain
    /// segment, which has no nonces.
    pub(crate) fn place(&self) -> u32 {
        match &self.storage {
            PartStorage::Plain(_) => 0,
            PartStorage::Encrypted(place, _) => *place,
            PartStorage::Blocks(blocks) => blocks.place,
        }
    }

    /// Appends the directory entry of the part to `out`, in the newest format.
    pub(crate) fn encode(&self, is_encrypted: bool, out: &mut Vec<u8>) -> Result<()> {
        let (tag, head) = match &self.head {
            PartHead::OfTable { tag, bytes } => (Some(tag), Cow::Borrowed(&bytes[..])),
            head => (None, head.open()?),
        };
        for number in [self.number, self.offset, self.bytes, self.bytes_stored] {
            out.extend_from_slice(&number.to_le_bytes());
        }
        let (check, codec, rest) = match &self.storage {
            PartStorage::Plain(checksum) => (*checksum, NO_CODEC, &[][..]),
            PartStorage::Encrypted(place, tag) => (*place, NO_CODEC, &tag[..]),
            PartStorage::Blocks(blocks) => (blocks.place, blocks.codec.code(), &blocks.table[..]),
        };
        out.extend_from_slice(&check.to_le_bytes());
        out.extend_from_slice(&u32_checked(head.len()).to_le_bytes());
        out.push(codec);
        if is_encrypted {
            out.push(if tag.is_some() { OF_TABLE } else { OF_SEGMENT });
        }
        out.extend_from_slice(rest);
        out.extend(tag.into_iter().flatten());
        out.extend_from_slice(&head);
        Ok(())
    }

    /// Decodes the next entry of a directory that begins at offset `end`, in a segment of this format. Returns `None`
    /// if it is inconsistent.
    fn decode(cursor: &mut ByteCursor<'_>, end: u64, format: u32) -> Option<Part> {
        let is_encrypted = is_encrypted(format)?;
        let has_codecs = !matches!(format, WHOLE_FORMAT | ENCRYPTED_WHOLE_FORMAT);
        let (number, offset, bytes) = (cursor.u64()?, cursor.u64()?, cursor.u64()?);
        let bytes_stored = if has_codecs { cursor.u64()? } else { bytes };
        let (check, head_bytes) = (cursor.u32()?, cursor.u32()?);
        let codec = if has_codecs { cursor.u8()? } else { NO_CODEC };
        let is_of_table = match if format == ENCRYPTED_FORMAT { cursor.u8()? } else { OF_SEGMENT } {
            OF_SEGMENT => false,
            OF_TABLE => true,
            _ => return None,
        };
        let storage = match (codec, is_encrypted) {
            (NO_CODEC, false) => PartStorage::Plain(check),
            (NO_CODEC, true) => PartStorage::Encrypted(check, cursor.tag()?),
            (codec, _) => {
                let entries = blocks::count(usize_saturating(bytes));
                let table = cursor.take(entries.checked_mul(Blocks::entry_bytes(is_encrypted))?)?.to_vec();
                let blocks = Blocks { codec: Codec::of_code(codec)?, place: check, table };
                blocks.fit(bytes, bytes_stored, is_encrypted).then_some(PartStorage::Blocks(blocks))?
            }
        };
        let tag = if is_of_table { Some(cursor.tag()?) } else { None };
        let head = cursor.take(head_bytes as usize)?;
        let head = match tag {
            None => PartHead::Clear(head.to_vec()),
            Some(tag) => PartHead::OfTable { tag, bytes: head.into() },
        };
        let is_whole = matches!(storage, PartStorage::Blocks(_)) || bytes == bytes_stored;
        let is_within = offset.checked_add(bytes_stored)? <= end;
        (is_whole && is_within).then_some(Part { head, bytes, bytes_stored, number, offset, storage })
    }
}

/// Decodes the directory of a segment of this format. `end` is the offset of the directory, which follows all data.
/// Returns the parts by the ids of their column chunks; `None` if an entry is inconsistent.
pub(crate) fn parts(directory: &[u8], end: u64, format: u32) -> Option<BTreeMap<u64, Part>> {
    let (mut cursor, mut parts) = (ByteCursor(directory), BTreeMap::new());
    while cursor.0.len() >= ENTRY_BYTES {
        let part = Part::decode(&mut cursor, end, format)?;
        parts.insert(part.number, part);
    }
    cursor.0.is_empty().then_some(parts)
}

/// Decodes bytes field by field from the front. Its methods return `None` if too few bytes are left.
pub(crate) struct ByteCursor<'a>(pub &'a [u8]);

impl<'a> ByteCursor<'a> {
    pub fn take(&mut self, bytes: usize) -> Option<&'a [u8]> {
        let (front, rest) = self.0.split_at_checked(bytes)?;
        self.0 = rest;
        Some(front)
    }

    pub fn u8(&mut self) -> Option<u8> {
        self.take(1).map(|byte| byte[0])
    }

    pub fn u32(&mut self) -> Option<u32> {
        self.take(4).map(u32_of)
    }

    pub fn u64(&mut self) -> Option<u64> {
        Some(u64::from_le_bytes(self.take(8)?.try_into().ok()?))
    }

    pub fn tag(&mut self) -> Option<Tag> {
        self.take(TAG_BYTES)?.try_into().ok()
    }
}

fn u32_of(bytes: &[u8]) -> u32 {
    bytes.first_chunk().map_or(0, |bytes| u32::from_le_bytes(*bytes))
}
