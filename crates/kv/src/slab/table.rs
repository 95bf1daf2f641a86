//! The slab pages (blocks of equal slots) of a slab allocator by id, with a bitmap of the ids in use, so that a scan
//! skips the unused ids.
//!
//! A page keeps its id until it is removed. A new page gets the lowest unused id, so that the table shrinks with the
//! number of pages; finding this id takes 1/64 ns per page. The table grows by doubling, which copies 88 bytes per page
//! and takes a millisecond when the slab pages have some GiB.

use super::page::Page;
use std::mem::size_of;

/// Estimated bytes that the pool itself needs to manage one slab page.
const PIECE_METADATA_BYTES: usize = 128;

/// The table of the slab pages of an allocator by id, with a bitmap of the ids in use.
#[derive(Debug, Default)]
pub struct PageTable {
    pages: Vec<Option<Page>>,
    /// Bitmap of the page ids in use.
    present: Vec<u64>,
    /// Index of a word of `present` before which all ids are in use.
    lowest: usize,
    /// Number of slab pages in the table.
    count: usize,
    /// Bytes of the bitmaps of all pages.
    bitmap_bytes: usize,
}

impl PageTable {
    /// Adds a page and returns its id, the lowest unused one.
    pub fn insert(&mut self, page: Page) -> u32 {
        self.bitmap_bytes += page.bitmap_bytes();
        self.count += 1;
        let is_full = |word: &u64| *word == u64::MAX;
        self.lowest += self.present[self.lowest..].iter().take_while(|word| is_full(word)).count();
        let free = self.present.get(self.lowest).map_or(0, |word| word.trailing_ones() as usize);
        let at = self.lowest * 64 + free;
        if at >= self.pages.len() {
            self.pages.resize_with(at + 1, || None);
            self.present.resize(at / 64 + 1, 0);
        }
        self.present[at / 64] |= 1 << (at % 64);
        self.pages[at] = Some(page);
        farpool_model::cast::u32_checked(at)
    }

    /// Removes and returns the page with this id; panics when there is none.
    pub fn remove(&mut self, id: u32) -> Page {
        let at = id as usize;
        let page = self.pages[at].take().expect("a page is removed once");
        self.count -= 1;
        self.bitmap_bytes -= page.bitmap_bytes();
        self.present[at / 64] &= !(1 << (at % 64));
        self.lowest = self.lowest.min(at / 64);
        self.shorten();
        page
    }

    /// Truncates the table after the page with the highest id. Halves the capacity if at most a quarter of it is used.
    fn shorten(&mut self) {
        let words = self.present.iter().rposition(|word| *word != 0).map_or(0, |last| last + 1);
        let last = self.present[..words].last().map_or(0, |word| word.ilog2() as usize + 1);
        self.pages.truncate(words.saturating_sub(1) * 64 + last);
        self.present.truncate(words);
        self.lowest = self.lowest.min(words);
        if self.pages.len() * 4 <= self.pages.capacity() {
            self.pages.shrink_to(self.pages.len() * 2);
            self.present.shrink_to(words * 2);
        }
    }

    /// Returns the page with this id.
    ///
    /// # Panics
    /// When there is none.
    #[inline]
    pub fn get(&self, id: u32) -> &Page {
        self.pages[id as usize].as_ref().expect("the page of an entry stays")
    }

    /// Returns the page with this id for writing; panics when there is none.
    #[inline]
    pub fn get_mut(&mut self, id: u32) -> &mut Page {
        self.pages[id as usize].as_mut().expect("the page of an entry stays")
    }

    /// Makes a written slot of page `id` reclaimable.
    pub fn retire(&mut self, id: u32, slot: usize) {
        let page = self.get_mut(id);
        let before = page.bitmap_bytes();
        page.retire(slot);
        self.bitmap_bytes += self.get(id).bitmap_bytes() - before;
    }

    /// Returns the page with the lowest id that is at least `id`, with its id; `None` if there is none.
    pub fn from(&self, id: usize) -> Option<(usize, &Page)> {
        let mut word = id / 64;
        let mut bits = self.present.get(word)? & (u64::MAX << (id % 64));
        while bits == 0 {
            word += 1;
            bits = *self.present.get(word)?;
        }
        let id = word * 64 + bits.trailing_zeros() as usize;
        Some((id, self.pages[id].as_ref()?))
    }

    /// Returns the bytes of the table and the bitmaps of the pages, which are not memory of the pool, and what the pool
    /// needs to manage the pages.
    pub fn metadata_bytes(&self) -> usize {
        self.pages.capacity() * size_of::<Option<Page>>()
            + self.present.capacity() * size_of::<u64>()
            + self.count * PIECE_METADATA_BYTES
            + self.bitmap_bytes
    }
}
