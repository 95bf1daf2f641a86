//! Cuts: the entries of one moment, which stay readable while others are written.
//!
//! A cut is a copy of the bitmaps of written slots. While it is kept, a slot of it that is freed becomes reclaimable
//! instead, and an entry of it is not changed where it lies; so that its slots hold what they held. This costs what is
//! changed meanwhile, and nothing while there is no cut.

use super::{LARGE, Place, SLOT_BYTES, Slabs};
use crate::judge::Slots;
use farpool_model::limits::KV_CUTS_MAX;
use std::sync::Arc;

/// Pages that are looked through in one step for slots that no cut keeps any more.
const PAGES_PER_STEP: u32 = 256;

/// The slots of a cut.
#[derive(Debug, Default)]
pub struct Cut {
    /// For each page number, the first of its words; one more than there are pages.
    starts: Vec<u32>,
    words: Vec<u64>,
}

/// Consecutive pages of a cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CutPart {
    /// Number of the first page, and of the first one behind.
    pages: (u32, u32),
    /// Number of entries.
    pub entries: usize,
    /// Bytes of their slots.
    pub bytes: usize,
}

/// How far the reading of a part has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CutCursor {
    page: u32,
    /// Of the page's bitmap.
    word: usize,
}

impl Cut {
    fn words_of(&self, page: u32) -> &[u64] {
        let bound = |at: u32| self.starts.get(at as usize).map_or(self.words.len(), |start| *start as usize);
        &self.words[bound(page)..bound(page.saturating_add(1))]
    }

    /// Whether a slot is one of the cut.
    pub(crate) fn has(&self, place: Place) -> bool {
        let words = self.words_of(place.page());
        words.get(place.slot() / 64).is_some_and(|word| word >> (place.slot() % 64) & 1 == 1)
    }

    /// Bytes that it takes outside the pool.
    pub fn bytes(&self) -> usize {
        self.starts.len() * size_of::<u32>() + self.words.len() * size_of::<u64>()
    }
}

impl CutPart {
    /// The cursor from which the part is read.
    pub fn begin(&self) -> CutCursor {
        CutCursor { page: self.pages.0, word: 0 }
    }
}

impl Slabs {
    /// Keeps the entries that are written now until [`Slabs::end_cut`]. Costs 1/512 of the bytes of their slots at most.
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
        // Each change looks at all of them.
        while self.cuts.len() >= KV_CUTS_MAX {
            let oldest = self.cuts[0].clone();
            self.end_cut(&oldest);
        }
        self.cuts.push(cut.clone());
        cut
    }

    /// Whether there is a cut, or slots that are left of one.
    pub fn has_cuts(&self) -> bool {
        !self.cuts.is_empty() || !self.ended.is_empty()
    }

    /// Whether there is a cut that has not ended.
    pub fn has_kept_cuts(&self) -> bool {
        !self.cuts.is_empty()
    }

    /// Whether an entry must not be changed where it lies.
    #[inline]
    pub fn is_kept(&self, place: Place) -> bool {
        !self.cuts.is_empty() && self.cuts.iter().any(|cut| cut.has(place))
    }

    /// Ends a cut, if it has not ended. What it alone has kept is freed in steps of [`Slabs::reclaim_some`].
    pub fn end_cut(&mut self, cut: &Arc<Cut>) {
        if let Some(at) = self.cuts.iter().position(|other| Arc::ptr_eq(other, cut)) {
            self.ended.push((self.cuts.remove(at), 0));
        }
    }

    /// Whether a cut was not ended.
    pub fn keeps(&self, cut: &Arc<Cut>) -> bool {
        self.cuts.iter().any(|other| Arc::ptr_eq(other, cut))
    }

    /// Frees all that is left of cuts that have ended, or of the oldest that is kept, which ends by this: memory is wanted
    /// more. Returns whether there was one.
    pub fn give_up_cut(&mut self) -> bool {
        if self.ended.is_empty() {
            let Some(oldest) = self.cuts.first().cloned() else { return false };
            self.end_cut(&oldest);
        }
        while self.reclaim_some() {}
        true
    }

    /// Frees some of the slots that cuts have kept which have ended; returns whether there are more.
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
                let place = Place::new(class, id, word * 64 + bits.trailing_zeros() as usize);
                if !self.is_kept(place) {
                    self.reclaim(place);
                }
                bits &= bits - 1;
            }
        }
    }

    /// Divides a cut into parts of about so many entries and bytes.
    pub fn parts_of(&self, cut: &Cut, entries: usize, bytes: usize) -> Vec<CutPart> {
        let mut parts = Vec::new();
        let mut part = CutPart { pages: (0, 0), entries: 0, bytes: 0 };
        for id in 0..farpool_model::cast::u32_checked(cut.starts.len().saturating_sub(1)) {
            let count: usize = cut.words_of(id).iter().map(|word| word.count_ones() as usize).sum();
            if count == 0 {
                continue;
            }
            // A page that has entries of a cut stays.
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

    /// Calls `f` with the slots of a cut that is kept, up to 64 at a time, of the pages of `part` from `cursor` on, until it
    /// returns false. Returns the cursor of the next slots; `None` at the end.
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
                // A page that has entries of a cut stays.
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

    /// The bytes of the first page of a part from a number on; none where there is no such page.
    fn begin_of(&self, page: u32, part: &CutPart) -> &[u8] {
        let next = self.table.from(page as usize).filter(|(found, _)| *found < part.pages.1 as usize);
        next.map_or(&[], |(_, page)| page.extent.as_slice())
    }
}
