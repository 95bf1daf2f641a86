//! One slab page, a block of memory divided into slots of one size class: its memory, the bitmaps of its written slots
//! (with an entry) and reclaimable slots (with a removed entry that a reader may still need), and its links in the
//! lists of pages with free slots.

use farpool_memory::Extent;
use std::mem::size_of_val;

/// Number of lists of pages with free slots per size class. List n < 8 has the pages of which n eighths (rounded down)
/// are free; the last list has the pages without entries.
pub const LISTS: usize = 9;

/// Number of the list of pages without entries.
pub const EMPTY: usize = LISTS - 1;

/// Page id that stands for no page, at both ends of a list.
pub const NO_PAGE: u32 = u32::MAX;

/// The state of a slot that is not free.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SlotState {
    /// The slot holds an entry.
    Written,
    /// The slot holds a retired (removed) entry, which scans that began earlier may still read.
    Reclaimable,
}

/// The list of pages with free slots that a page is in, if it is in one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ListMembership {
    /// The page is in the list with this number.
    Listed(u8),
    /// The page is in no list, because it has no free slots.
    Full,
    /// The page is in no list, because compaction is emptying it, or because it has not been put into a list yet.
    Closed,
}

/// A slab page with slots of one class.
#[derive(Debug)]
pub struct Page {
    pub extent: Extent,
    written: Box<[u64]>,
    /// Bitmap of the reclaimable slots; empty until the first slot of this page is retired.
    reclaimable: Box<[u64]>,
    /// Id of the next page in the list; [`NO_PAGE`] at the end.
    pub next: u32,
    pub previous: u32,
    slots: u16,
    free: u16,
    written_count: u16,
    /// Index of a word of the bitmaps before which no slot is free, where the search for a free slot begins.
    lowest: u8,
    pub class: u8,
    pub membership: ListMembership,
}

impl Page {
    /// Creates a page with `slots` free slots, at most 1024: an address has ten bits for the slot. The page is in no
    /// list yet.
    pub fn new(extent: Extent, class: usize, slots: usize) -> Page {
        Page {
            extent,
            written: vec![0; slots.div_ceil(64)].into(),
            reclaimable: Box::default(),
            next: NO_PAGE,
            previous: NO_PAGE,
            slots: slots as u16,
            free: slots as u16,
            written_count: 0,
            lowest: 0,
            class: class as u8,
            membership: ListMembership::Closed,
        }
    }

    pub fn slots(&self) -> usize {
        usize::from(self.slots)
    }

    pub fn free(&self) -> usize {
        usize::from(self.free)
    }

    /// Returns the number of written slots.
    pub fn written(&self) -> usize {
        usize::from(self.written_count)
    }

    /// Returns whether all slots are free, that is, none is written or reclaimable.
    pub fn is_empty(&self) -> bool {
        self.free == self.slots
    }

    pub fn is_closed(&self) -> bool {
        self.membership == ListMembership::Closed
    }

    /// Returns the list that the page belongs in by its number of free slots. Not for pages that compaction is
    /// emptying, which are in no list.
    pub fn list_wanted(&self) -> ListMembership {
        match self.free {
            0 => ListMembership::Full,
            free => ListMembership::Listed((u32::from(free) * 8 / u32::from(self.slots)) as u8),
        }
    }

    /// Returns the bytes of the two bitmaps, which are not memory of the pool.
    pub fn bitmap_bytes(&self) -> usize {
        size_of_val(&*self.written) + size_of_val(&*self.reclaimable)
    }

    /// Returns the number of 64-bit words of the bitmap of written slots.
    pub fn words(&self) -> usize {
        self.written.len()
    }

    /// Returns one word of the bitmap of written slots.
    #[inline]
    pub fn written_word(&self, word: usize) -> u64 {
        self.written[word]
    }

    /// Returns one word of the bitmap of reclaimable slots.
    #[inline]
    pub fn reclaimable_word(&self, word: usize) -> u64 {
        self.reclaimable.get(word).copied().unwrap_or(0)
    }

    /// Makes the lowest free slot written and returns its number.
    ///
    /// # Panics
    /// When the page has no free slot.
    pub fn take(&mut self) -> usize {
        assert!(self.free > 0, "a slot of a full page");
        let mut word = usize::from(self.lowest);
        // The loop ends before the bits past the last slot, as a lower bit is free (asserted above).
        loop {
            let free = !(self.written[word] | self.reclaimable_word(word));
            if free != 0 {
                let bit = free.trailing_zeros();
                self.written[word] |= 1 << bit;
                self.lowest = word as u8;
                self.free -= 1;
                self.written_count += 1;
                return word * 64 + bit as usize;
            }
            word += 1;
        }
    }

    /// Makes a written slot reclaimable; panics when the slot is not written.
    pub fn retire(&mut self, slot: usize) {
        if self.reclaimable.is_empty() {
            self.reclaimable = vec![0; self.written.len()].into();
        }
        let (word, bit) = (slot / 64, 1 << (slot % 64));
        assert!(self.written[word] & bit != 0, "no entry in slot {slot}");
        self.written[word] &= !bit;
        self.reclaimable[word] |= bit;
        self.written_count -= 1;
    }

    /// Frees a slot; panics when the slot is not in the given state.
    pub fn clear(&mut self, slot: usize, state: SlotState) {
        let (word, bit) = (slot / 64, 1 << (slot % 64));
        let (bits, written) = match state {
            SlotState::Written => (&mut self.written, 1),
            SlotState::Reclaimable => (&mut self.reclaimable, 0),
        };
        assert!(bits.get(word).is_some_and(|bits| bits & bit != 0), "slot {slot} is not {state:?}");
        bits[word] &= !bit;
        self.written_count -= written;
        self.free += 1;
        self.lowest = self.lowest.min(word as u8);
    }

    /// Returns the lowest written slot; `None` if no slot is written.
    pub fn first_written(&self) -> Option<usize> {
        let word = self.written.iter().position(|word| *word != 0)?;
        Some(word * 64 + self.written[word].trailing_zeros() as usize)
    }
}
