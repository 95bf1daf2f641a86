//! The layout of an entry (key and value) in its slot: a header, the expiry if there is one, the key and the value.
//!
//! ```text
//! byte  0..2  from the lowest bit: kind of the value (2 bits), packed (1 bit), has an expiry (1 bit),
//!              stamp of its use (12 bits)
//!       2..4  length of the key
//!       4..8  length of the value
//!       ...   expiry (8 bytes, milliseconds since the epoch), if the entry has one
//!       ...   the key, the value
//! ```
//! Numbers are little-endian. A packed value is compressed (`packing/packers.rs`), and its length is that of the
//! compressed bytes. The rest of the slot is unused and lets the value grow in place. The stamp (a record of the last
//! use, for eviction) is not part of the contents: it may change in place even while a cut (point-in-time view) keeps
//! the entry.

use crate::evict::{STAMP_BITS, Stamp};
use farpool_model::cast::u32_checked;
use std::ops::Range;

const HEADER_BYTES: usize = 8;
const EXPIRY_BYTES: usize = 8;

/// Masks of the fields in the first two bytes of an entry's header.
const KIND_MASK: u16 = 0b11;
const PACKED: u16 = 0b100;
const EXPIRES: u16 = 0b1000;
const STAMP_SHIFT: u32 = 4;

const _: () = assert!(STAMP_SHIFT + STAMP_BITS == u16::BITS);

/// The kind of an entry's value, which is part of the entry's header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// The value is a string of bytes.
    String,
    /// The value is a small hash: its fields and their values back to back.
    Fields,
    /// The value is a large hash, stored as the id of its table of fields.
    Table,
    /// The value is a row of a named space with a schema (`rows/mod.rs`).
    Row,
}

impl Kind {
    /// Returns the type that the command `TYPE` replies with.
    pub fn name(self) -> &'static str {
        match self {
            Kind::String => "string",
            Kind::Fields | Kind::Table | Kind::Row => "hash",
        }
    }
}

/// Returns the bytes of an entry with a key and a value of these sizes.
pub(crate) fn entry_bytes(key_bytes: usize, value_bytes: usize, expires: bool) -> usize {
    HEADER_BYTES + if expires { EXPIRY_BYTES } else { 0 } + key_bytes + value_bytes
}

/// Returns the value of the entry in `slot` if it has the given kind, is not compressed and has no expiry; otherwise
/// `None`. Faster than [`Entry`], as it reads the header once.
#[inline]
pub(crate) fn value_of_kind(slot: &[u8], kind: Kind) -> Option<&[u8]> {
    let header = u64::from_le_bytes(*slot.first_chunk()?);
    if header & u64::from(KIND_MASK | EXPIRES | PACKED) != kind as u64 {
        return None;
    }
    let start = HEADER_BYTES + usize::from((header >> 16) as u16);
    slot.get(start..)?.get(..(header >> 32) as usize)
}

/// A view of an entry in its slot.
#[derive(Clone, Copy)]
pub(crate) struct Entry<'a>(&'a [u8]);

impl<'a> Entry<'a> {
    /// A placeholder for no entry; reading from it panics.
    pub const NONE: Entry<'static> = Entry(&[]);

    /// Returns a view of the entry that [`write`] has written to `slot`.
    pub fn of(slot: &'a [u8]) -> Self {
        Entry(slot)
    }

    #[inline]
    fn first(self) -> u16 {
        u16::from_le_bytes([self.0[0], self.0[1]])
    }

    #[inline]
    pub fn kind(self) -> Kind {
        match self.first() & KIND_MASK {
            1 => Kind::Fields,
            2 => Kind::Table,
            3 => Kind::Row,
            _ => Kind::String,
        }
    }

    /// Returns whether the value is compressed.
    pub fn is_packed(self) -> bool {
        self.first() & PACKED != 0
    }

    #[inline]
    fn has_expiry(self) -> bool {
        self.first() & EXPIRES != 0
    }

    /// Returns the stamp that records the use of the entry, for eviction.
    pub fn stamp(self) -> Stamp {
        Stamp::from_bits(self.first() >> STAMP_SHIFT)
    }

    #[inline]
    fn key_at(self) -> usize {
        if self.has_expiry() { HEADER_BYTES + EXPIRY_BYTES } else { HEADER_BYTES }
    }

    #[inline]
    fn key_bytes(self) -> usize {
        usize::from(u16::from_le_bytes([self.0[2], self.0[3]]))
    }

    #[inline]
    fn value_bytes(self) -> usize {
        u32::from_le_bytes([self.0[4], self.0[5], self.0[6], self.0[7]]) as usize
    }

    /// Returns the expiry in milliseconds since the epoch; `None` if the entry does not expire.
    pub fn expiry(self) -> Option<u64> {
        let bytes = self.0.get(HEADER_BYTES..HEADER_BYTES + EXPIRY_BYTES).filter(|_| self.has_expiry())?;
        bytes.try_into().ok().map(u64::from_le_bytes)
    }

    #[inline]
    pub fn key(self) -> &'a [u8] {
        &self.0[self.key_at()..][..self.key_bytes()]
    }

    /// Returns whether the entry has not expired at `now`.
    #[inline]
    pub fn is_valid(self, now: u64) -> bool {
        self.expiry().is_none_or(|expiry| expiry > now)
    }

    /// Returns the range of the stored value in the slot.
    #[inline]
    pub fn stored_range(self) -> Range<usize> {
        let start = self.key_at() + self.key_bytes();
        start..start + self.value_bytes()
    }

    /// Returns the value as stored: compressed if the entry is packed.
    #[inline]
    pub fn stored(self) -> &'a [u8] {
        &self.0[self.key_at() + self.key_bytes()..][..self.value_bytes()]
    }

    /// Returns all bytes of the entry: header, expiry, key and value, without the unused rest of the slot.
    pub fn bytes(self) -> &'a [u8] {
        &self.0[..self.key_at() + self.key_bytes() + self.value_bytes()]
    }
}

/// Writes the header, the expiry and the key of an entry into `slot`; returns the bytes for its value, which the caller
/// fills. The key must have at most 65,535 bytes, the value less than 4 GiB, and `slot` at least [`entry_bytes`] bytes.
pub(crate) fn write<'a>(
    slot: &'a mut [u8],
    (kind, is_packed): (Kind, bool),
    key: &[u8],
    value_bytes: usize,
    expiry: Option<u64>,
    stamp: Stamp,
) -> &'a mut [u8] {
    let (header, rest) = slot.split_at_mut(HEADER_BYTES);
    let expires = if expiry.is_some() { EXPIRES } else { 0 };
    let packed = if is_packed { PACKED } else { 0 };
    header[..2]
        .copy_from_slice(&(kind as u16 | packed | expires | stamp.bits() << STAMP_SHIFT).to_le_bytes());
    header[2..4].copy_from_slice(&(key.len() as u16).to_le_bytes());
    header[4..8].copy_from_slice(&u32_checked(value_bytes).to_le_bytes());
    let rest = match expiry {
        Some(expiry) => {
            let (place, rest) = rest.split_at_mut(EXPIRY_BYTES);
            place.copy_from_slice(&expiry.to_le_bytes());
            rest
        }
        None => rest,
    };
    let (place, rest) = rest.split_at_mut(key.len());
    place.copy_from_slice(key);
    &mut rest[..value_bytes]
}

/// Sets the stamp of the entry in `slot`.
pub(crate) fn set_stamp(slot: &mut [u8], stamp: Stamp) {
    let rest = u16::from_le_bytes([slot[0], slot[1]]) & (KIND_MASK | PACKED | EXPIRES);
    slot[..2].copy_from_slice(&(rest | stamp.bits() << STAMP_SHIFT).to_le_bytes());
}

/// Returns the stored value of the entry in `slot` for writing.
pub(crate) fn value_mut(slot: &mut [u8]) -> &mut [u8] {
    let entry = Entry::of(slot);
    let (start, bytes) = (entry.key_at() + entry.key_bytes(), entry.value_bytes());
    &mut slot[start..][..bytes]
}
