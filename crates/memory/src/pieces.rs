//! What is free of the pages that pieces of one tenant share: ranges of bytes, by address and by length.
//!
//! A piece takes the shortest range that is long enough, the first of these by address. What is given back is joined
//! with the free ranges that touch it, across pages too, and pages that have become free as a whole leave. Both cost
//! the logarithm of the number of ranges.
//!
//! Invariants: no two ranges touch; none contains a whole page, so that what pieces share is less than two pages longer
//! than itself for each range.

use farpool_model::limits::PAGE_BYTES;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

/// See the file's comment.
#[derive(Debug, Default)]
pub(crate) struct FreePieces {
    /// The end of each range, by its start.
    by_start: BTreeMap<usize, usize>,
    /// Length and start of each range.
    by_length: BTreeSet<(usize, usize)>,
}

impl FreePieces {
    /// Takes the first `bytes` of a range, and gives its start.
    pub fn take(&mut self, bytes: usize) -> Option<usize> {
        let (length, start) = *self.by_length.range((bytes, 0)..).next()?;
        self.remove(start..start + length);
        self.insert(start + bytes..start + length);
        Some(start)
    }

    /// Makes a range free that is not. The pages that are free as a whole then, which are no longer in here.
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
