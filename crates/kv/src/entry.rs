//! How an entry lies in its slot: a header, its expiry if it has one, the key and the value.
//!
//! ```text
//! byte  0..2  from the lowest: kind of the value (2 bits), whether it is packed (1 bit), whether it expires (1 bit), when or how
//!              often it was used (12 bits)
//!       2..4  length of the key
//!       4..8  length of the value
//!       ...   when it expires (8 bytes, milliseconds since the epoch), if it does
//!       ...   the key, the value
//! ```
//! Numbers are little-endian. A packed value is compressed (`packing/known.rs`); its length is that of the compressed bytes. What is left of the slot is room for the value to grow. When it was used is no content: it may
//! change where the entry lies although a cut keeps that.

use crate::evict::{STAMP_BITS, Stamp};
use farpool_model::cast::u32_checked;
use std::ops::Range;

const HEADER_BYTES: usize = 8;
const EXPIRY_BYTES: usize = 8;

/// Bits of the first two bytes.
const KIND_MASK: u16 = 0b11;
const PACKED: u16 = 0b100;
const EXPIRES: u16 = 0b1000;
const STAMP_SHIFT: u32 = 4;

const _: () = assert!(STAMP_SHIFT + STAMP_BITS == u16::BITS);

/// What a value is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Bytes.
    String,
    /// The fields of a hash and their values, one behind the other.
    Fields,
    /// The number of a table of fields, of a hash that is large.
    Table,
    /// A row of a space that has a schema.
    Row,
}

impl Kind {
    /// The name, as `TYPE` tells it.
    pub fn name(self) -> &'static str {
        match self {
            Kind::String => "string",
            Kind::Fields | Kind::Table | Kind::Row => "hash",
        }
    }
}

/// Bytes of a slot for an entry of these sizes.
pub(crate) fn entry_bytes(key_bytes: usize, value_bytes: usize, expires: bool) -> usize {
    HEADER_BYTES + if expires { EXPIRY_BYTES } else { 0 } + key_bytes + value_bytes
}

/// The value of the entry that lies in `slot` if it is of a kind, not packed and never expires: this reads the header once.
#[inline]
pub(crate) fn value_of_kind(slot: &[u8], kind: Kind) -> Option<&[u8]> {
    let header = u64::from_le_bytes(*slot.first_chunk()?);
    if header & u64::from(KIND_MASK | EXPIRES | PACKED) != kind as u64 {
        return None;
    }
    let start = HEADER_BYTES + usize::from((header >> 16) as u16);
    slot.get(start..)?.get(..(header >> 32) as usize)
}

/// An entry that is read.
#[derive(Clone, Copy)]
pub(crate) struct Entry<'a>(&'a [u8]);

impl<'a> Entry<'a> {
    /// No entry: nothing may be read of it.
    pub const NONE: Entry<'static> = Entry(&[]);

    /// The entry that lies in `slot`, which [`write`] has filled.
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

    /// Whether the value is compressed.
    pub fn is_packed(self) -> bool {
        self.first() & PACKED != 0
    }

    #[inline]
    fn has_expiry(self) -> bool {
        self.first() & EXPIRES != 0
    }

    /// When or how often it was used.
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

    /// When it expires, in milliseconds since the epoch.
    pub fn expiry(self) -> Option<u64> {
        let bytes = self.0.get(HEADER_BYTES..HEADER_BYTES + EXPIRY_BYTES).filter(|_| self.has_expiry())?;
        bytes.try_into().ok().map(u64::from_le_bytes)
    }

    #[inline]
    pub fn key(self) -> &'a [u8] {
        &self.0[self.key_at()..][..self.key_bytes()]
    }

    /// Whether it has not expired.
    #[inline]
    pub fn is_valid(self, now: u64) -> bool {
        self.expiry().is_none_or(|expiry| expiry > now)
    }

    /// Where the bytes of the value lie in the slot.
    #[inline]
    pub fn stored_range(self) -> Range<usize> {
        let start = self.key_at() + self.key_bytes();
        start..start + self.value_bytes()
    }

    /// The bytes of the value as they are stored, compressed if it is packed.
    #[inline]
    pub fn stored(self) -> &'a [u8] {
        &self.0[self.key_at() + self.key_bytes()..][..self.value_bytes()]
    }

    /// All bytes of the entry.
    pub fn bytes(self) -> &'a [u8] {
        &self.0[..self.key_at() + self.key_bytes() + self.value_bytes()]
    }
}

/// Writes the header and the key of an entry into `slot`, and returns the place of its value. The key is at most 65,535
/// bytes long, the value less than 4 GiB, and the slot as long as [`entry_bytes`] says, or longer.
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

/// Says when or how often the entry that lies in `slot` was used.
pub(crate) fn set_stamp(slot: &mut [u8], stamp: Stamp) {
    let rest = u16::from_le_bytes([slot[0], slot[1]]) & (KIND_MASK | PACKED | EXPIRES);
    slot[..2].copy_from_slice(&(rest | stamp.bits() << STAMP_SHIFT).to_le_bytes());
}

/// The value of the entry that lies in `slot`, to be written.
pub(crate) fn value_mut(slot: &mut [u8]) -> &mut [u8] {
    let entry = Entry::of(slot);
    let (start, bytes) = (entry.key_at() + entry.key_bytes(), entry.value_bytes());
    &mut slot[start..][..bytes]
}
