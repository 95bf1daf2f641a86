//! The pages of one class: lists of those with free slots, by how empty they are, and counts.
//!
//! The lists are doubly linked through the pages, so that a page changes its list in constant time.

use super::classes::SLAB_PAGE_BYTES;
use super::page::{EMPTY, LISTS, ListMembership, NO_PAGE};
use super::table::PageTable;

/// The pages of one class; see the module documentation.
#[derive(Debug)]
pub struct Class {
    heads: [u32; LISTS],
    /// Bitmap of the lists that have pages.
    listed: u16,
    /// Number of pages.
    pub pages: usize,
    /// Bytes of the pages.
    pub bytes: usize,
    /// Number of slots.
    pub slots: usize,
    /// Number of free slots in pages that are not being emptied.
    pub free: usize,
    /// Number of written slots.
    pub used: usize,
    /// Number of reclaimable slots.
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
    /// Returns the page from which the next slot is allocated.
    #[inline]
    pub fn fullest(&self) -> Option<u32> {
        (self.listed != 0).then(|| self.heads[self.listed.trailing_zeros() as usize])
    }

    /// Returns one of the pages with the most free slots, without the empty ones. Where there is a choice, not the page
    /// from which the next slot is allocated, so that an entry is not moved over and over.
    pub fn emptiest_in_use(&self, table: &PageTable) -> Option<u32> {
        let listed = self.listed & !(1 << EMPTY);
        let head = (listed != 0).then(|| self.heads[listed.ilog2() as usize])?;
        let next = table.get(head).next;
        Some(if self.fullest() == Some(head) && next != NO_PAGE { next } else { head })
    }

    /// Returns a page without entries.
    pub fn empty(&self) -> Option<u32> {
        (self.listed & (1 << EMPTY) != 0).then_some(self.heads[EMPTY])
    }

    /// Returns the size of the next page: at most a quarter of the class, to bound the unused part, but at least
    /// `first`.
    pub fn page_bytes_next(&self, first: usize) -> usize {
        let quarter = (self.bytes / 4).clamp(first, SLAB_PAGE_BYTES);
        1 << quarter.ilog2()
    }

    /// Adds a page whose slots are all free.
    pub fn added(&mut self, table: &mut PageTable, id: u32, bytes: usize) {
        let slots = table.get(id).slots();
        self.pages += 1;
        self.bytes += bytes;
        self.slots += slots;
        self.open(table, id);
    }

    /// Removes a page without entries.
    pub fn removed(&mut self, table: &mut PageTable, id: u32) {
        self.close(table, id);
        let page = table.get(id);
        self.pages -= 1;
        self.bytes -= page.extent.len();
        self.slots -= page.slots();
    }

    /// Accounts for a slot of a listed page that was allocated.
    #[inline]
    pub fn took(&mut self, table: &mut PageTable, id: u32) {
        self.free -= 1;
        self.used += 1;
        self.relist(table, id);
    }

    /// Accounts for a slot of a page that was freed.
    #[inline]
    pub fn gave(&mut self, table: &mut PageTable, id: u32) {
        if !table.get(id).is_closed() {
            self.free += 1;
            self.relist(table, id);
        }
    }

    /// Takes a page out of the lists, so that none of its slots is allocated.
    pub fn close(&mut self, table: &mut PageTable, id: u32) {
        if !table.get(id).is_closed() {
            self.free -= table.get(id).free();
            self.unlink(table, id);
            table.get_mut(id).membership = ListMembership::Closed;
        }
    }

    /// Puts a closed page into the lists.
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

    /// Takes a page out of its list.
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

    /// Puts a page at the head of the list that it belongs in.
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
