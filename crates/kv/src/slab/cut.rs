//! Cuts: point-in-time views (snapshots) of the entries, readable while entries are written and removed.
//!
//! A cut is a copy of the bitmaps of written slots. Until the cut ends, freeing one of its slots makes the slot
//! reclaimable instead, and none of its entries is changed in place; so the slots of the cut keep their contents (copy
//! on write). The cost is proportional to the number of entries that change while there is a cut. Example:
//!
//! 1. A cut is taken while slot 7 holds `a = 1`.
//! 2. `SET a 2` must not overwrite slot 7: it allocates slot 9 and retires slot 7.
//! 3. The cut ends; [`Slabs::reclaim_some`] frees slot 7, unless another cut has this slot, too.

use super::{EntryAddress, LARGE, SLOT_BYTES, Slabs};
use crate::row_filter::Slots;
use farpool_model::limits::KV_CUTS_MAX;
use std::sync::Arc;

/// Number of slab pages per call of [`Slabs::reclaim_some`] that are examined for slots to free, which bounds the time
/// that a call takes.
const PAGES_PER_STEP: u32 = 256;

/// A point-in-time view of the entries: the set of slots that were written when [`Slabs::cut`] took it.
#[derive(Debug, Default)]
pub struct Cut {
    /// By page id, the index in `words` of the first word of the page's bitmap; a last element is the length of
    /// `words`.
    starts: Vec<u32>,
    words: Vec<u64>,
}

/// A range of consecutive slab pages whose entries belong to one point-in-time view (see [`Cut`]). Readers process a
/// cut one part at a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CutPart {
    /// Id of the first slab page, and of the first one after the part.
    pages: (u32, u32),
    /// Number of entries of the cut in these pages, including expired ones.
    pub entries: usize,
    /// Bytes of the slots of these entries, including unused bytes of the slots.
    pub bytes: usize,
}

/// The position of a reader in a [`CutPart`]: the slab page and the word of its bitmap that come next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CutCursor {
    page: u32,
    /// Index of the next word of the page's bitmap; a word stands for 64 slots.
    word: usize,
}

impl Cut {
    fn words_of(&self, page: u32) -> &[u64] {
        let bound = |at: u32| self.starts.get(at as usize).map_or(self.words.len(), |start| *start as usize);
        &self.words[bound(page)..bound(page.saturating_add(1))]
    }

    /// Returns whether the slot at `place` belongs to the cut.
    pub(crate) fn has(&self, place: EntryAddress) -> bool {
        let words = self.words_of(place.page());
        words.get(place.slot() / 64).is_some_and(|word| word >> (place.slot() % 64) & 1 == 1)
    }

    /// Returns the bytes of the copied bitmaps, which are not memory of the pool.
    pub fn bytes(&self) -> usize {
        self.starts.len() * size_of::<u32>() + self.words.len() * size_of::<u64>()
    }
}

impl CutPart {
    /// Returns the cursor with which reading of this part begins.
    pub fn begin(&self) -> CutCursor {
        CutCursor { page: self.pages.0, word: 0 }
    }
}

impl Slabs {
    /// Takes a point-in-time view of the written entries, and keeps them until [`Slabs::end_cut`] or
    /// [`Slabs::give_up_cut`]. If there are already [`KV_CUTS_MAX`] cuts, ends the oldest. A cut takes one bit per
    /// slot, at most 1/512 of the bytes of the slab pages.
    pub fn cut(&mut self) -> Arc<Cut> {
        let mut cut = Cut::default();
        let mut id = 0;
        while let Some((found, page)) = self.table.from(id) {
            let start = farpool_model::cast::u32_checked(cut.words.len());
            cut.starts.resize(found + 1, start);
            cut.words.extend((0..page.words()).map(|word| page.written_word(word)));
            id = found + 1;
        }
        let end = farpool_model::cast::u32_checked(cut.words.len());
        cut.starts.push(end);
        let cut = Arc::new(cut);
        // The number of cuts is limited because each change of an entry checks all of them.
        while self.cuts.len() >= KV_CUTS_MAX {
            let oldest = self.cuts[0].clone();
            self.end_cut(&oldest);
        }
        self.cuts.push(cut.clone());
        cut
    }

    /// Returns whether there is a cut, or an ended cut whose slots are not all freed.
    pub fn has_cuts(&self) -> bool {
        !self.cuts.is_empty() || !self.ended.is_empty()
    }

    /// Returns whether there is a cut that has not ended.
    pub fn has_kept_cuts(&self) -> bool {
        !self.cuts.is_empty()
    }

    /// Returns whether a cut that has not ended contains the entry at `place`; the entry must then not be changed in
    /// place.
    #[inline]
    pub fn is_kept(&self, place: EntryAddress) -> bool {
        !self.cuts.is_empty() && self.cuts.iter().any(|cut| cut.has(place))
    }

    /// Ends a cut, if it has not ended. Reclaimable slots that only this cut kept are freed by later calls of
    /// [`Slabs::reclaim_some`].
    pub fn end_cut(&mut self, cut: &Arc<Cut>) {
        if let Some(at) = self.cuts.iter().position(|other| Arc::ptr_eq(other, cut)) {
            self.ended.push((self.cuts.remove(at), 0));
        }
    }

    /// Returns whether the cut is of this allocator and has not ended.
    pub fn keeps(&self, cut: &Arc<Cut>) -> bool {
        self.cuts.iter().any(|other| Arc::ptr_eq(other, cut))
    }

    /// Frees all slots that ended cuts have kept. If no ended cut is left, ends the oldest cut first, because under
    /// memory pressure a write takes precedence over a reader. Returns whether there was a cut, ended or not.
    pub fn give_up_cut(&mut self) -> bool {
        if self.ended.is_empty() {
            let Some(oldest) = self.cuts.first().cloned() else { return false };
            self.end_cut(&oldest);
        }
        while self.reclaim_some() {}
        true
    }

    /// Frees slots that ended cuts have kept, in up to 256 slab pages; returns whether more pages are left to do.
    pub fn reclaim_some(&mut self) -> bool {
        let Some((cut, first)) = self.ended.pop() else { return false };
        let end = farpool_model::cast::u32_checked(cut.starts.len());
        let next = first.saturating_add(PAGES_PER_STEP).min(end);
        for id in first..next {
            self.reclaim_of(&cut, id);
        }
        if next < end {
            self.ended.push((cut, next));
        }
        !self.ended.is_empty()
    }

    fn reclaim_of(&mut self, cut: &Cut, id: u32) {
        for (word, kept) in cut.words_of(id).iter().enumerate() {
            let Some((_, page)) = self.table.from(id as usize).filter(|(found, _)| *found == id as usize)
            else {
                return;
            };
            if word >= page.words() {
                return;
            }
            let class = usize::from(page.class);
            let mut bits = page.reclaimable_word(word) & kept;
            while bits != 0 {
                let place = EntryAddress::new(class, id, word * 64 + bits.trailing_zeros() as usize);
                if !self.is_kept(place) {
                    self.reclaim(place);
                }
                bits &= bits - 1;
            }
        }
    }

    /// Divides a cut into parts. A part ends with the first slab page with which it has `entries` entries or `bytes`
    /// bytes of slots. The cut must not have ended, because pages of an ended cut may have been removed.
    pub fn parts_of(&self, cut: &Cut, entries: usize, bytes: usize) -> Vec<CutPart> {
        let mut parts = Vec::new();
        let mut part = CutPart { pages: (0, 0), entries: 0, bytes: 0 };
        for id in 0..farpool_model::cast::u32_checked(cut.starts.len().saturating_sub(1)) {
            let count: usize = cut.words_of(id).iter().map(|word| word.count_ones() as usize).sum();
            if count == 0 {
                continue;
            }
            // The page exists, because a page with entries of a cut that has not ended is never removed.
            let page = self.table.get(id);
            let slot_bytes = match usize::from(page.class) {
                LARGE => page.extent.len(),
                class => SLOT_BYTES[class],
            };
            part.pages.1 = id + 1;
            part.entries += count;
            part.bytes += count * slot_bytes;
            if part.entries >= entries || part.bytes >= bytes {
                parts.push(part);
                part = CutPart { pages: (id + 1, id + 1), entries: 0, bytes: 0 };
            }
        }
        if part.entries > 0 {
            parts.push(part);
        }
        parts
    }

    /// Calls `f` with batches of up to 64 slots of `cut`, in the pages of `part` from `cursor` on, until `f` returns
    /// false or the part ends. Returns the cursor of the next batch if `f` returned false; `None` at the end of the
    /// part. The cut must not have ended.
    pub(crate) fn read_cut<'a>(
        &'a self,
        cut: &Cut,
        part: &CutPart,
        cursor: CutCursor,
        mut f: impl FnMut(Slots<'a>) -> bool,
    ) -> Option<CutCursor> {
        let CutCursor { mut page, mut word } = cursor;
        while page < part.pages.1 {
            for (at, taken) in
                cut.words_of(page).iter().enumerate().skip(word).filter(|(_, taken)| **taken != 0)
            {
                // The page exists, because a page with entries of a cut that has not ended is never removed.
                let of_page = self.table.get(page);
                let bytes = of_page.extent.as_slice();
                let slot_bytes = SLOT_BYTES.get(usize::from(of_page.class)).copied().unwrap_or(bytes.len());
                let first = at * 64 * slot_bytes;
                let slots = of_page.slots().min((at + 1) * 64) - at * 64;
                let (bytes, ahead) = bytes[first..].split_at(slots * slot_bytes);
                let ahead = if ahead.is_empty() { self.begin_of(page + 1, part) } else { ahead };
                if !f(Slots { bytes, ahead, slot_bytes, taken: *taken }) {
                    return Some(CutCursor { page, word: at + 1 });
                }
            }
            (page, word) = (page + 1, 0);
        }
        None
    }

    /// Returns the bytes of the first existing page of `part` whose id is at least `page`, for prefetching; no bytes if
    /// there is none.
    fn begin_of(&self, page: u32, part: &CutPart) -> &[u8] {
        let next = self.table.from(page as usize).filter(|(found, _)| *found < part.pages.1 as usize);
        next.map_or(&[], |(_, page)| page.extent.as_slice())
    }
}
