//! Compaction: empties pages that are at most three quarters full, so that they return to the pool.
//!
//! One page at a time is *closed*, which excludes it from allocation: one of the least filled of its class (to an
//! eighth of a page), if the free slots of other pages in use have room for its entries twice over. For a page that is
//! half full this is a whole page of free slots; an empty page that is kept does not count, so that each emptied page
//! is one page less. A page with only reclaimable slots left stays closed until they are reclaimed, and compaction
//! continues with the next page.
//!
//! A page of which at most a quarter is in use, and whose class has no room for its entries elsewhere, is emptied into
//! a smaller one: after most entries are deleted, each class would otherwise keep a page of 64 KiB for a few.
//!
//! If no class has such pages, slab pages are moved out of pool pages (2 MiB) of which at most a quarter is in use:
//! after most entries are deleted, one slab page would otherwise keep a page in use that is 32 times larger. Such a
//! slab page is emptied in the same way, and if its class has no free slots, into a new slab page at a lower address.
//! Any other address could cause entries to move back and forth.

use super::classes::{PAGE_BYTES_FIRST, SLOT_BYTES};
use super::page::Page;
use super::{EntryAddress, LARGE, Slabs};
use farpool_model::limits::PAGE_BYTES;

/// Least eighths of a page that are free before it is emptied: moving three entries then frees the room of at least
/// one.
const EIGHTHS_FREE: usize = 2;

/// A page is replaced by a smaller one when at most 1/4 of it is in use. More than 1/4 and at most half of the smaller
/// one is then in use, so that it is not replaced in turn.
const PART_WRITTEN: usize = 4;

/// Slab pages are moved out of a pool page when at most 1/4 of it is in use.
const PART_USED: usize = 4;

/// Slab pages per step whose pool page is examined, at some 0.1 µs each.
const PAGES_TRIED: usize = 32;

impl Slabs {
    /// Returns an entry to move so that its page becomes empty, or `None` when there is nothing to gain. A step
    /// examines at most 32 pool pages, so the next call may find something even after `None`. Takes constant time. The
    /// caller allocates as many bytes, which will be in another page, copies the entry, and frees or retires its place;
    /// the next call returns the next entry. An entry that cannot move now would be returned again: call
    /// [`Self::stop_moving`] and come back later.
    pub fn to_move(&mut self) -> Option<EntryAddress> {
        if let Some(place) = self.emptying.and_then(|id| self.next_of(id)) {
            return Some(place);
        }
        let classes = self.classes.len().min(LARGE);
        for step in 0..classes {
            let class = (self.compact_next + step) % classes;
            if let Some(id) = self.candidate(class).or_else(|| self.oversized(class)) {
                (self.emptying, self.compact_next) = (Some(id), class);
                self.classes[class].close(&mut self.table, id);
                if let Some(place) = self.next_of(id) {
                    return Some(place);
                }
            }
        }
        let id = self.scattered()?;
        self.emptying = Some(id);
        self.classes[usize::from(self.table.get(id).class)].close(&mut self.table, id);
        self.next_of(id)
    }

    /// Gives up emptying a page: its free slots can be allocated again.
    pub fn stop_moving(&mut self) {
        if let Some(id) = self.emptying.take() {
            let class = usize::from(self.table.get(id).class);
            self.classes[class].open(&mut self.table, id);
        }
    }

    /// Reopens the page that is being emptied for allocation, if it has free slots of a class.
    pub(super) fn reopen_for(&mut self, class: usize) -> Option<u32> {
        let page = self.table.get(self.emptying?);
        if usize::from(page.class) != class || page.free() == 0 {
            return None;
        }
        self.stop_moving();
        self.classes[class].fullest()
    }

    /// Returns the next entry of the page that is being emptied.
    fn next_of(&mut self, id: u32) -> Option<EntryAddress> {
        let page = self.table.get(id);
        let class = usize::from(page.class);
        if page.written() > self.classes[class].free {
            // The free slots elsewhere have been allocated meanwhile.
            self.stop_moving();
            return None;
        }
        let slot = page.first_written();
        if slot.is_none() {
            self.emptying = None;
        }
        slot.map(|slot| EntryAddress::new(class, id, slot))
    }

    /// Returns a slab page that should leave its pool page, and makes sure that there is room for its entries.
    fn scattered(&mut self) -> Option<u32> {
        for _ in 0..PAGES_TRIED {
            let Some((id, page)) = self.table.from(self.scattered_next) else {
                self.scattered_next = 0;
                return None;
            };
            self.scattered_next = id + 1;
            let class = usize::from(page.class);
            if class == LARGE || page.is_closed() || page.written() == 0 {
                continue;
            }
            if page.extent.page_bytes_used() > PAGE_BYTES / PART_USED {
                continue;
            }
            if self.classes[class].free - page.free() < page.written() {
                let slots = page.slots();
                let Some(extent) = page.extent.allocate_lower() else { continue };
                self.insert_page(class, extent, slots);
            }
            return Some(farpool_model::cast::u32_checked(id));
        }
        None
    }

    /// Returns a page that is too large for its entries, and adds a smaller one for these.
    fn oversized(&mut self, class: usize) -> Option<u32> {
        let id = self.classes[class].emptiest_in_use(&self.table)?;
        let page = self.table.get(id);
        let (entries, slot_bytes) = (entries(page), SLOT_BYTES[class]);
        let wanted = (2 * entries * slot_bytes).next_power_of_two().max(PAGE_BYTES_FIRST[class]);
        if entries * PART_WRITTEN > page.slots() || 2 * wanted > page.extent.len() {
            return None;
        }
        let extent = self.take_piece(wanted).ok()?;
        self.insert_page(class, extent, wanted / slot_bytes);
        Some(id)
    }

    fn candidate(&self, class: usize) -> Option<u32> {
        let of = &self.classes[class];
        let id = of.emptiest_in_use(&self.table)?;
        let page = self.table.get(id);
        let kept = of.empty().map_or(0, |id| self.table.get(id).free());
        let elsewhere = of.free - page.free() - kept;
        let is_worth = page.free() * 8 >= page.slots() * EIGHTHS_FREE && elsewhere >= 2 * entries(page);
        is_worth.then_some(id)
    }
}

/// Returns the number of entries of a page, including reclaimable ones.
fn entries(page: &Page) -> usize {
    page.slots() - page.free()
}
