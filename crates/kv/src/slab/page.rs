//! One slab page: its memory, and the bitmaps of its slots.

use farpool_memory::Extent;
use std::mem::size_of_val;

/// Lists of pages with free slots: by the eighths of a page that are free, and one of empty pages.
pub const LISTS: usize = 9;

/// The list of pages without entries.
pub const EMPTY: usize = LISTS - 1;

/// No page: the end of a list.
pub const NO_PAGE: u32 = u32::MAX;

/// What a slot in use holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// An entry.
    Written,
    /// What a scan may still read.
    Reclaimable,
}

/// Where a page is found when it is not in a list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Standing {
    /// In this list.
    Listed(u8),
    /// In none, because it has no free slots.
    Full,
    /// In none, because it is being emptied.
    Closed,
}

/// A slab page with slots of one class.
#[derive(Debug)]
pub struct Page {
    pub extent: Extent,
    written: Box<[u64]>,
    /// Empty before the first slot is retired.
    reclaimable: Box<[u64]>,
    /// The next and the previous page of the list.
    pub next: u32,
    pub previous: u32,
    slots: u16,
    free: u16,
    written_count: u16,
    /// No word of the bitmaps before this one has a free slot.
    lowest: u8,
    pub class: u8,
    pub standing: Standing,
}

impl Page {
    /// A page whose slots are all free; at most 1024 of them, so that they fit the narrow fields.
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
            standing: Standing::Closed,
        }
    }

    pub fn slots(&self) -> usize {
        usize::from(self.slots)
    }

    pub fn free(&self) -> usize {
        usize::from(self.free)
    }

    /// Number of written slots.
    pub fn written(&self) -> usize {
        usize::from(self.written_count)
    }

    /// Whether no slot is in use.
    pub fn is_empty(&self) -> bool {
        self.free == self.slots
    }

    pub fn is_closed(&self) -> bool {
        self.standing == Standing::Closed
    }

    /// The list that the page belongs in by its free slots.
    pub fn list_wanted(&self) -> Standing {
        match self.free {
            0 => Standing::Full,
            free => Standing::Listed((u32::from(free) * 8 / u32::from(self.slots)) as u8),
        }
    }

    /// Bytes of the bitmaps.
    pub fn bitmap_bytes(&self) -> usize {
        size_of_val(&*self.written) + size_of_val(&*self.reclaimable)
    }

    /// Number of words of a bitmap.
    pub fn words(&self) -> usize {
        self.written.len()
    }

    /// One word of the bitmap of written slots.
    #[inline]
    pub fn written_word(&self, word: usize) -> u64 {
        self.written[word]
    }

    /// One word of the bitmap of reclaimable slots.
    #[inline]
    pub fn reclaimable_word(&self, word: usize) -> u64 {
        self.reclaimable.get(word).copied().unwrap_or(0)
    }

    /// Makes a free slot written.
    ///
    /// # Panics
    /// When the page has no free slot.
    pub fn take(&mut self) -> usize {
        assert!(self.free > 0, "a slot of a full page");
        let mut word = usize::from(self.lowest);
        // The bits behind the last slot are never set: those of free slots come before them.
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

    /// Makes a slot free that is in the given state.
    pub fn clear(&mut self, slot: usize, state: State) {
        let (word, bit) = (slot / 64, 1 << (slot % 64));
        let (bits, written) = match state {
            State::Written => (&mut self.written, 1),
            State::Reclaimable => (&mut self.reclaimable, 0),
        };
        assert!(bits.get(word).is_some_and(|bits| bits & bit != 0), "slot {slot} is not {state:?}");
        bits[word] &= !bit;
        self.written_count -= written;
        self.free += 1;
        self.lowest = self.lowest.min(word as u8);
    }

    /// The first written slot.
    pub fn first_written(&self) -> Option<usize> {
        let word = self.written.iter().position(|word| *word != 0)?;
        Some(word * 64 + self.written[word].trailing_zeros() as usize)
    }
}
