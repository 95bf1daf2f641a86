//! Free parts of the pages that pieces of one tenant share: ranges of bytes, by address and by length.
//!
//! A piece takes the shortest range that is long enough (best fit), the first of these by address. A freed
//! range is joined with the free ranges that touch it, across pages too, and pages that are then entirely
//! free leave the set. Both cost the logarithm of the number of ranges.
//!
//! Invariants: no two ranges touch; none contains a whole page, so that each range wastes less than two pages
//! of the memory that pieces share.

use farpool_model::limits::PAGE_BYTES;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

/// The free ranges of one tenant; see the comment of this file.
#[derive(Debug, Default)]
pub(crate) struct FreePieces {
    /// The end of each range, by its start.
    by_start: BTreeMap<usize, usize>,
    /// Length and start of each range.
    by_length: BTreeSet<(usize, usize)>,
}

impl FreePieces {
    /// Takes the first `bytes` of the best fitting range and returns their start.
    pub fn take(&mut self, bytes: usize) -> Option<usize> {
        let (length, start) = *self.by_length.range((bytes, 0)..).next()?;
        self.remove(start..start + length);
        self.insert(start + bytes..start + length);
        Some(start)
    }

    /// Frees a range. Returns the pages that are then entirely free, which are removed from the set.
    pub fn give(&mut self, piece: Range<usize>) -> Range<usize> {
        let mut free = piece;
        if let Some((&start, &end)) = self.by_start.range(..free.start).next_back()
            && end == free.start
        {
            self.remove(start..end);
            free.start = start;
        }
        if let Some(&end) = self.by_start.get(&free.end) {
            self.remove(free.end..end);
            free.end = end;
        }
        let pages = free.start.div_ceil(PAGE_BYTES)..free.end / PAGE_BYTES;
        if pages.is_empty() {
            self.insert(free);
            return 0..0;
        }
        self.insert(free.start..pages.start * PAGE_BYTES);
        self.insert(pages.end * PAGE_BYTES..free.end);
        pages
    }

    /// Bytes of all ranges.
    pub fn bytes(&self) -> usize {
        self.by_length.iter().map(|(length, _)| length).sum()
    }

    fn insert(&mut self, range: Range<usize>) {
        if !range.is_empty() {
            self.by_length.insert((range.len(), range.start));
            self.by_start.insert(range.start, range.end);
        }
    }

    fn remove(&mut self, range: Range<usize>) {
        self.by_length.remove(&(range.len(), range.start));
        self.by_start.remove(&range.start);
    }
}
