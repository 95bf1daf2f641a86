//! The slab pages (blocks of equal slots) of one size class: lists of the pages with free slots, one list per free
//! eighth of a page, and counters.
//!
//! The lists are doubly linked by page ids in the pages, so that a page moves to another list in constant time.

use super::classes::SLAB_PAGE_BYTES;
use super::page::{EMPTY, LISTS, ListMembership, NO_PAGE};
use super::table::PageTable;

/// The slab pages of one size class: counters, and the heads of the lists of pages with free slots.
#[derive(Debug)]
pub struct Class {
    heads: [u32; LISTS],
    /// Bitmap of the lists that are not empty; bit n stands for list n.
    listed: u16,
    /// Number of slab pages of the class, in lists or not.
    pub pages: usize,
    /// Bytes of the slab pages of the class.
    pub bytes: usize,
    /// Number of slots in all these pages.
    pub slots: usize,
    /// Number of free slots in pages that are not being emptied.
    pub free: usize,
    /// Number of slots with an entry (written slots).
    pub used: usize,
    /// Number of slots with a removed entry that a reader may still need (reclaimable slots).
    pub retired: usize,
}

impl Default for Class {
    fn default() -> Self {
        Class {
            heads: [NO_PAGE; LISTS],
            listed: 0,
            pages: 0,
            bytes: 0,
            slots: 0,
            free: 0,
            used: 0,
            retired: 0,
        }
    }
}

impl Class {
    /// Returns the page from which the next slot is allocated: the head of the first non-empty list, in which pages are
    /// fullest. `None` if no listed page has a free slot.
    #[inline]
    pub fn fullest(&self) -> Option<u32> {
        (self.listed != 0).then(|| self.heads[self.listed.trailing_zeros() as usize])
    }

    /// Returns a page with entries of the list with the most free slots; `None` if all pages are empty or full. If
    /// possible, not the page from which the next slot is allocated, because an entry that is moved out of it might be
    /// moved back.
    pub fn emptiest_in_use(&self, table: &PageTable) -> Option<u32> {
        let listed = self.listed & !(1 << EMPTY);
        let head = (listed != 0).then(|| self.heads[listed.ilog2() as usize])?;
        let next = table.get(head).next;
        Some(if self.fullest() == Some(head) && next != NO_PAGE { next } else { head })
    }

    /// Returns a listed page without entries, if there is one.
    pub fn empty(&self) -> Option<u32> {
        (self.listed & (1 << EMPTY) != 0).then_some(self.heads[EMPTY])
    }

    /// Returns the bytes of the next page: a quarter of the class's bytes, which bounds the unused part, rounded down
    /// to a power of two; at least `first`, the size of the class's first page, and at most [`SLAB_PAGE_BYTES`].
    pub fn page_bytes_next(&self, first: usize) -> usize {
        let quarter = (self.bytes / 4).clamp(first, SLAB_PAGE_BYTES);
        1 << quarter.ilog2()
    }

    /// Counts a new page whose slots are all free, and puts it into a list.
    pub fn added(&mut self, table: &mut PageTable, id: u32, bytes: usize) {
        let slots = table.get(id).slots();
        self.pages += 1;
        self.bytes += bytes;
        self.slots += slots;
        self.open(table, id);
    }

    /// Takes a page without entries out of its list and the counters. The caller removes it from `table`.
    pub fn removed(&mut self, table: &mut PageTable, id: u32) {
        self.close(table, id);
        let page = table.get(id);
        self.pages -= 1;
        self.bytes -= page.extent.len();
        self.slots -= page.slots();
    }

    /// Updates counters and lists after a slot of the listed page `id` was allocated.
    #[inline]
    pub fn took(&mut self, table: &mut PageTable, id: u32) {
        self.free -= 1;
        self.used += 1;
        self.relist(table, id);
    }

    /// Updates the counter `free` and the lists after a slot of page `id` was freed. The caller updates the counter
    /// `used` or `retired`.
    #[inline]
    pub fn gave(&mut self, table: &mut PageTable, id: u32) {
        if !table.get(id).is_closed() {
            self.free += 1;
            self.relist(table, id);
        }
    }

    /// Takes a page out of its list, so that none of its slots is allocated while compaction empties it.
    pub fn close(&mut self, table: &mut PageTable, id: u32) {
        if !table.get(id).is_closed() {
            self.free -= table.get(id).free();
            self.unlink(table, id);
            table.get_mut(id).membership = ListMembership::Closed;
        }
    }

    /// Reopens a page that compaction has closed (excluded from allocation): puts it into the list that matches its
    /// free slots.
    pub fn open(&mut self, table: &mut PageTable, id: u32) {
        self.free += table.get(id).free();
        self.link(table, id);
    }

    #[inline]
    fn relist(&mut self, table: &mut PageTable, id: u32) {
        let page = table.get(id);
        if page.membership != page.list_wanted() {
            self.unlink(table, id);
            self.link(table, id);
        }
    }

    /// Takes a page out of its list, if it is in one.
    fn unlink(&mut self, table: &mut PageTable, id: u32) {
        let page = table.get(id);
        let ListMembership::Listed(list) = page.membership else { return };
        let (list, next, previous) = (usize::from(list), page.next, page.previous);
        if next != NO_PAGE {
            table.get_mut(next).previous = previous;
        }
        if previous != NO_PAGE {
            table.get_mut(previous).next = next;
            return;
        }
        self.heads[list] = next;
        if next == NO_PAGE {
            self.listed &= !(1 << list);
        }
    }

    /// Puts a page at the head of the list that matches its free slots; into no list if none is free.
    fn link(&mut self, table: &mut PageTable, id: u32) {
        let page = table.get_mut(id);
        page.membership = page.list_wanted();
        let ListMembership::Listed(list) = page.membership else { return };
        let head = &mut self.heads[usize::from(list)];
        (page.next, page.previous) = (*head, NO_PAGE);
        let next = std::mem::replace(head, id);
        self.listed |= 1 << list;
        if next != NO_PAGE {
            table.get_mut(next).previous = id;
        }
    }
}
