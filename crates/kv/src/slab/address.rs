//! Addresses of slots.

use std::fmt;

const SLOT_BITS: u32 = 10;
const PAGE_BITS: u32 = 32;

/// The address of an entry in its [`Slabs`](super::Slabs): 48 bits.
///
/// From the highest bit: 6 bits for the size class (one past the last class stands for entries in pieces of their own),
/// 32 for the page, 10 for the slot in the page. Scans order places by page and slot, the lower 42 bits, and not by
/// class.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct EntryAddress(u64);

impl EntryAddress {
    /// Number of bits of a place.
    pub const BITS: u32 = 48;

    pub(super) fn new(class: usize, page: u32, slot: usize) -> EntryAddress {
        EntryAddress((class as u64) << (PAGE_BITS + SLOT_BITS) | u64::from(page) << SLOT_BITS | slot as u64)
    }

    /// Returns the place as a number below 2^48.
    #[inline]
    pub fn to_bits(self) -> u64 {
        self.0
    }

    /// Returns the place from a number that [`Self::to_bits`] returned; higher bits are ignored.
    #[inline]
    pub fn from_bits(bits: u64) -> EntryAddress {
        EntryAddress(bits & ((1 << EntryAddress::BITS) - 1))
    }

    #[inline]
    pub(super) fn class(self) -> usize {
        (self.0 >> (PAGE_BITS + SLOT_BITS)) as usize
    }

    #[inline]
    pub(super) fn page(self) -> u32 {
        SlabCursor::of(self).page()
    }

    #[inline]
    pub(super) fn slot(self) -> usize {
        SlabCursor::of(self).slot()
    }
}

impl fmt::Debug for EntryAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Place({}/{}/{})", self.class(), self.page(), self.slot())
    }
}

/// The position of a scan of slabs: the page and slot where it continues. The default is the beginning.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct SlabCursor(u64);

impl SlabCursor {
    pub(super) fn new(page: usize, slot: usize) -> SlabCursor {
        SlabCursor((page as u64) << SLOT_BITS | slot as u64)
    }

    /// Returns the cursor from which a scan returns the entry at `place` first.
    pub fn of(place: EntryAddress) -> SlabCursor {
        SlabCursor(place.0 & ((1 << (PAGE_BITS + SLOT_BITS)) - 1))
    }

    /// Returns whether a scan at this cursor has passed `place`. Example: a scan is at page 5, slot 0. An entry that
    /// moves from page 6 (not passed) to page 2 (passed) would be missed by it.
    pub fn is_past(self, place: EntryAddress) -> bool {
        SlabCursor::of(place) < self
    }

    #[inline]
    pub(super) fn page(self) -> u32 {
        (self.0 >> SLOT_BITS) as u32
    }

    #[inline]
    pub(super) fn slot(self) -> usize {
        (self.0 & ((1 << SLOT_BITS) - 1)) as usize
    }
}
