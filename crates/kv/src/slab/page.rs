//! One slab page: its memory, and the bitmaps of its slots.

use farpool_memory::Extent;
use std::mem::size_of_val;

/// Number of lists of pages with free slots: one per eighth that is free, and one of empty pages.
pub const LISTS: usize = 9;

/// The list of pages without entries.
pub const EMPTY: usize = LISTS - 1;

/// The end of a list: no page.
pub const NO_PAGE: u32 = u32::MAX;

/// The state of a slot that is in use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SlotState {
    /// Holds an entry.
    Written,
    /// Holds a retired entry that a scan may still read.
    Reclaimable,
}

/// The list that a page is in, if any.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ListMembership {
    /// In the list with this number.
    Listed(u8),
    /// In no list, because it has no free slots.
    Full,
    /// In no list, because it is being emptied.
    Closed,
}

/// A slab page with slots of one class.
#[derive(Debug)]
pub struct Page {
    pub extent: Extent,
    written: Box<[u64]>,
    /// Allocated when the first slot is retired.
    reclaimable: Box<[u64]>,
    /// Neighbours in the list.
    pub next: u32,
    pub previous: u32,
    slots: u16,
    free: u16,
    written_count: u16,
    /// All words of the bitmaps before this one are full.
    lowest: u8,
    pub class: u8,
    pub membership: ListMembership,
}

impl Page {
    /// Creates a page whose slots are all free; at most 1024, so that they fit the narrow fields.
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

    /// Returns whether no slot is in use.
    pub fn is_empty(&self) -> bool {
        self.free == self.slots
    }

    pub fn is_closed(&self) -> bool {
        self.membership == ListMembership::Closed
    }

    /// Returns the list that the page belongs to by its number of free slots.
    pub fn list_wanted(&self) -> ListMembership {
        match self.free {
            0 => ListMembership::Full,
            free => ListMembership::Listed((u32::from(free) * 8 / u32::from(self.slots)) as u8),
        }
    }

    /// Returns the bytes of the bitmaps.
    pub fn bitmap_bytes(&self) -> usize {
        size_of_val(&*self.written) + size_of_val(&*self.reclaimable)
    }

    /// Returns the number of words of a bitmap.
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

    /// Allocates a free slot, which counts as written from now on.
    ///
    /// # Panics
    /// When the page has no free slot.
    pub fn take(&mut self) -> usize {
        assert!(self.free > 0, "a slot of a full page");
        let mut word = usize::from(self.lowest);
        // Bits past the last slot are never set, as the bits of all free slots come first.
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

    /// Makes a written slot reclaimable.
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

    /// Frees a slot that is in the given state.
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

    /// Returns the first written slot.
    pub fn first_written(&self) -> Option<usize> {
        let word = self.written.iter().position(|word| *word != 0)?;
        Some(word * 64 + self.written[word].trailing_zeros() as usize)
    }
}
