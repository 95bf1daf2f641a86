//! Free ranges of bytes in the pages that pieces (allocations of any size) of one tenant share, indexed by address
//! and by length.
//!
//! A piece takes the shortest range that is long enough (best fit), of several equally short ones the first by address.
//! A large piece must begin at a multiple of the system's page size; if that makes most of the short ranges useless, it
//! takes a longer one. A freed range is joined with the free ranges next to it, also across pages. Pages that are then
//! entirely free are removed from the set. Both operations cost the logarithm of the number of ranges.
//!
//! Invariants: no two ranges touch; no range contains a whole page, so that each range wastes less than two pages.
//!
//! Example, with pages of 100 bytes: 150..180 and 230..250 are free, and 180..230 is freed. The three ranges become
//! 150..250, which contains no whole page and stays. When 100..150 is freed, too, 100..250 contains the page 100..200:
//! it leaves the set, and 200..250 stays.

use farpool_model::limits::PAGE_BYTES;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

/// Maximum number of ranges that are tried, from the shortest one that is long enough on, for a suitable start address.
const TIGHT_TRIED: usize = 8;

/// Maximum number of ranges that are tried, from the lowest address on, for one that is long enough. Trying that many
/// takes some microseconds.
const LOW_TRIED: usize = 512;

/// Free ranges of one tenant and tenure; see the comment of this file.
#[derive(Debug, Default)]
pub(crate) struct FreePieces {
    /// End of each range by its start.
    by_start: BTreeMap<usize, usize>,
    /// Length and start of each range.
    by_length: BTreeSet<(usize, usize)>,
}

impl FreePieces {
    /// Takes `bytes` of the best fitting range, from its first multiple of `alignment` on, and returns where they
    /// start; `None` if no range fits.
    pub fn take(&mut self, bytes: usize, alignment: usize) -> Option<usize> {
        let fits = |(length, start): &(usize, usize)| {
            let middle = start.next_multiple_of(alignment);
            (middle + bytes <= start + length).then_some((*start..start + length, middle))
        };
        // A range of `bytes` or a little more may have no aligned start with enough bytes after it, and there may be many
        // such ranges. To bound the time, only the shortest few are tried; after them the shortest range with
        // `alignment` bytes to spare, which always fits.
        let mut tight = self.by_length.range((bytes, 0)..).take(TIGHT_TRIED);
        let wide = || self.by_length.range((bytes + alignment, 0)..).next();
        let (free, start) = tight.find_map(fits).or_else(|| wide().and_then(fits))?;
        self.cut(free, start, bytes);
        Some(start)
    }

    /// Takes bytes as [`Self::take`] does, but from the first range by address that has enough of them before `end`.
    /// Tries only the first [`LOW_TRIED`] ranges.
    pub fn take_before(&mut self, end: usize, bytes: usize, alignment: usize) -> Option<usize> {
        let fits = |(start, free_end): (&usize, &usize)| {
            let middle = start.next_multiple_of(alignment);
            (middle + bytes <= *free_end.min(&end)).then_some((*start..*free_end, middle))
        };
        let (free, start) = self.by_start.range(..end).take(LOW_TRIED).find_map(fits)?;
        self.cut(free, start, bytes);
        Some(start)
    }

    /// Takes `bytes` at `start` out of the free range `free`.
    fn cut(&mut self, free: Range<usize>, start: usize, bytes: usize) {
        let is_within = free.start <= start && start + bytes <= free.end;
        assert!(is_within, "{bytes} bytes at {start} are not within the free range {free:?}");
        self.remove(free.clone());
        self.insert(free.start..start);
        self.insert(start + bytes..free.end);
    }

    /// Frees the range of a piece. Returns the pages that are then entirely free, which are removed from the set.
    pub fn give(&mut self, piece: Range<usize>) -> Range<usize> {
        let mut free = piece;
        if let Some((&start, &end)) = self.by_start.range(..free.start).next_back() {
            assert!(end <= free.start, "the bytes {free:?} overlap free ones before them");
            if end == free.start {
                self.remove(start..end);
                free.start = start;
            }
        }
        let next = self.by_start.range(free.start..).next();
        assert!(
            next.is_none_or(|(next, _)| free.end <= *next),
            "the bytes {free:?} overlap free ones behind them"
        );
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

    /// Returns the free bytes of the page with this index.
    pub fn bytes_in(&self, page: usize) -> usize {
        let (from, to) = (page * PAGE_BYTES, (page + 1) * PAGE_BYTES);
        let before = self.by_start.range(..from).next_back();
        let free = |(start, end): (&usize, &usize)| (*end).min(to).saturating_sub((*start).max(from));
        before.into_iter().chain(self.by_start.range(from..to)).map(free).sum()
    }

    /// Returns the bytes of all ranges.
    pub fn bytes(&self) -> usize {
        self.by_length.iter().map(|(length, _)| length).sum()
    }

    fn insert(&mut self, range: Range<usize>) {
        if !range.is_empty() {
            let is_new = self.by_length.insert((range.len(), range.start));
            let before = self.by_start.insert(range.start, range.end);
            assert!(is_new && before.is_none(), "a free range is added once");
        }
    }

    fn remove(&mut self, range: Range<usize>) {
        let had_length = self.by_length.remove(&(range.len(), range.start));
        let end = self.by_start.remove(&range.start);
        assert!(had_length && end == Some(range.end), "both indexes have the same free ranges");
    }
}
