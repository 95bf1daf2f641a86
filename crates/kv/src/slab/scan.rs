//! Scans of a slab allocator: return the addresses of its written slots (with an entry) or reclaimable slots (with a
//! removed entry that a reader may still need), a bounded number per call.
//!
//! A scan visits slots in the order of page id and slot number, and a cursor is such a pair. An entry keeps both until
//! it is moved, so a scan is not affected by pages and entries that are added and removed elsewhere.

use super::page::Page;
use super::{EntryAddress, SlabCursor, Slabs};

impl Slabs {
    /// Appends the addresses of at most `max` written slots to `out`, from `cursor` on. Returns the cursor where the
    /// scan continues; `None` at the end. A call may append fewer than `max` although more follow, because it also
    /// visits at most `max` pages. So a call takes time proportional to `max`; a whole scan visits each page and one
    /// word per 64 page ids.
    ///
    /// During a scan from the default cursor to the end, a slot that is written throughout is returned exactly once,
    /// and every other slot at most once, whatever is allocated, freed and compacted between the calls. This holds for
    /// slots, not for entries: an entry that moves from ahead of the cursor to a slot behind it is missed (see
    /// [`SlabCursor::is_past`]), and an entry that moves from behind the cursor to a slot ahead of it is returned
    /// twice.
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

    /// Does the same as [`Self::written_from`] for written and reclaimable slots, that is, for all entries whose bytes
    /// are still there.
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
