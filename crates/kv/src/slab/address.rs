//! Addresses of slots in a slab allocator (entries are stored in slots of a few sizes, in slab pages of equal slots),
//! and positions of scans over the slots.

use std::fmt;

const SLOT_BITS: u32 = 10;
const PAGE_BITS: u32 = 32;

/// The address of an entry's slot in its [`Slabs`](super::Slabs), a number of 48 bits.
///
/// From the highest bit: 6 bits for the number of the size class (the number after the last class stands for entries
/// too large for any class), 32 for the id of the slab page, 10 for the number of the slot in the page. Scans visit
/// addresses in ascending order of the lower 42 bits, that is, by page and slot and not by class.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct EntryAddress(u64);

impl EntryAddress {
    /// Number of bits of an address. Reason for 48: the hash index has as many for it in the 64-bit slots of its
    /// buckets.
    pub const BITS: u32 = 48;

    pub(super) fn new(class: usize, page: u32, slot: usize) -> EntryAddress {
        EntryAddress((class as u64) << (PAGE_BITS + SLOT_BITS) | u64::from(page) << SLOT_BITS | slot as u64)
    }

    /// Returns the address as a number below 2^48.
    #[inline]
    pub fn to_bits(self) -> u64 {
        self.0
    }

    /// Returns the address that [`Self::to_bits`] made into this number; bits from bit 48 on are ignored.
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

/// The position of a scan of [`Slabs`](super::Slabs): the slab page and slot where the scan continues. The default is
/// the beginning.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct SlabCursor(u64);

impl SlabCursor {
    pub(super) fn new(page: usize, slot: usize) -> SlabCursor {
        SlabCursor((page as u64) << SLOT_BITS | slot as u64)
    }

    /// Returns the cursor of a scan that visits the slot at `place` next.
    pub fn of(place: EntryAddress) -> SlabCursor {
        SlabCursor(place.0 & ((1 << (PAGE_BITS + SLOT_BITS)) - 1))
    }

    /// Returns whether a scan at this cursor has passed the slot at `place`. Example of the use: a scan is at page 5,
    /// slot 0. It would miss an entry that moves from page 6 (not passed) to page 2 (passed).
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
