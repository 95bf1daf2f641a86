//! Names of slots.

use std::fmt;

const SLOT_BITS: u32 = 10;
const PAGE_BITS: u32 = 32;

/// The name of an entry's memory in its [`Slabs`](super::Slabs): 48 bits.
///
/// From the highest: 6 bits of the size class (one beyond the last is that of entries that are pieces of
/// their own), 32 of the page, 10 of the slot in the page. Places are not ordered by class in scans, but by
/// page and slot, which are the lower 42 bits.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Place(u64);

impl Place {
    /// Number of bits that a place takes.
    pub const BITS: u32 = 48;

    pub(super) fn new(class: usize, page: u32, slot: usize) -> Place {
        Place((class as u64) << (PAGE_BITS + SLOT_BITS) | u64::from(page) << SLOT_BITS | slot as u64)
    }

    /// The place as a number below 2^48.
    #[inline]
    pub fn to_bits(self) -> u64 {
        self.0
    }

    /// Returns the place that [`Self::to_bits`] gave the number of; bits above the 48 are ignored.
    #[inline]
    pub fn from_bits(bits: u64) -> Place {
        Place(bits & ((1 << Place::BITS) - 1))
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

impl fmt::Debug for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Place({}/{}/{})", self.class(), self.page(), self.slot())
    }
}

/// How far a scan of slabs has come: the page and slot from which it goes on. The default is the beginning.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct SlabCursor(u64);

impl SlabCursor {
    pub(super) fn new(page: usize, slot: usize) -> SlabCursor {
        SlabCursor((page as u64) << SLOT_BITS | slot as u64)
    }

    /// The cursor from which a scan returns the entry at `place` first.
    pub fn of(place: Place) -> SlabCursor {
        SlabCursor(place.0 & ((1 << (PAGE_BITS + SLOT_BITS)) - 1))
    }

    /// Whether a scan that has come to this cursor is past `place`: an entry that moves there from a place
    /// that it is not past would be missed.
    pub fn is_past(self, place: Place) -> bool {
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
