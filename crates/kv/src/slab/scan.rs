//! Scans of slabs: iterate over slots in use, a bounded number at a time.
//!
//! The order is by page number and slot. Both are stable as long as an entry is not moved, and a cursor is such a pair;
//! so pages and entries that come and go elsewhere do not affect what a scan returns.

use super::page::Page;
use super::{EntryAddress, SlabCursor, Slabs};

impl Slabs {
    /// Appends at most `max` places of written slots to `out`, from `cursor` on, and returns the cursor where the scan
    /// continues, or `None` at the end. A call may append fewer although more follow, because it visits at most `max`
    /// pages: the cost of a call is proportional to `max`, and that of a whole scan to the pages with entries plus 1/64
    /// of the highest page number.
    ///
    /// Over a scan from the default cursor to the end, a place that is written throughout is appended exactly once,
    /// whatever is allocated, freed and compacted between the calls, and every other place at most once. This holds for
    /// places, not for entries: an entry that moves behind the cursor is missed, see [`SlabCursor::is_past`], and one
    /// that moves ahead of it is returned again.
    pub fn written_from(
        &self,
        cursor: SlabCursor,
        max: usize,
        out: &mut Vec<EntryAddress>,
    ) -> Option<SlabCursor> {
        self.walk(cursor, max, out, Page::written_word)
    }

    /// Does the same as [`Self::written_from`] for reclaimable slots.
    pub fn retired_from(
        &self,
        cursor: SlabCursor,
        max: usize,
        out: &mut Vec<EntryAddress>,
    ) -> Option<SlabCursor> {
        self.walk(cursor, max, out, Page::reclaimable_word)
    }

    /// Does the same as [`Self::written_from`] for written and reclaimable slots: the entries seen by a scan that began
    /// before some were retired.
    pub fn kept_from(
        &self,
        cursor: SlabCursor,
        max: usize,
        out: &mut Vec<EntryAddress>,
    ) -> Option<SlabCursor> {
        self.walk(cursor, max, out, |page, word| page.written_word(word) | page.reclaimable_word(word))
    }

    fn walk(
        &self,
        cursor: SlabCursor,
        max: usize,
        out: &mut Vec<EntryAddress>,
        bits_of: impl Fn(&Page, usize) -> u64,
    ) -> Option<SlabCursor> {
        let (mut pages_left, end) = (max, out.len() + max);
        let (mut id, mut slot) = (cursor.page() as usize, cursor.slot());
        while let Some((found, page)) = self.table.from(id) {
            if found != id {
                (id, slot) = (found, 0);
            }
            if pages_left == 0 {
                return Some(SlabCursor::new(id, slot));
            }
            pages_left -= 1;
            for word in slot / 64..page.words() {
                let before = if word == slot / 64 { slot % 64 } else { 0 };
                let mut bits = bits_of(page, word) & (u64::MAX << before);
                while bits != 0 {
                    let slot = word * 64 + bits.trailing_zeros() as usize;
                    if out.len() == end {
                        return Some(SlabCursor::new(id, slot));
                    }
                    out.push(EntryAddress::new(usize::from(page.class), id as u32, slot));
                    bits &= bits - 1;
                }
            }
            (id, slot) = (id + 1, 0);
        }
        None
    }
}
