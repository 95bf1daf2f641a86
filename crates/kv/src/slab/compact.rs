//! Compaction of a slab allocator: empties slab pages (blocks of equal slots) that are at most three quarters full, by
//! moving their entries, so that the pages return to the pool.
//!
//! One slab page at a time is *closed*, that is, excluded from allocation. The page is one of those of its class with
//! the most free slots, counted in eighths of a page, and the other pages with entries must have at least twice as many
//! free slots as this page has entries. The slots of an empty page that is kept do not count, so that each emptied page
//! is one page less. If only reclaimable slots are left in a closed page, it stays closed until they are reclaimed, and
//! compaction continues with the next page.
//!
//! A page of which at most a quarter is in use, and whose class has no room for its entries elsewhere, is emptied into
//! a new, smaller page. Reason: after most entries are deleted, each class would otherwise keep a page of 64 KiB for a
//! few entries.
//!
//! If no class has a slab page of these two sorts, slab pages are moved out of pool pages (2 MiB) of which at most a
//! quarter is in use. Reason: after most entries are deleted, one slab page would otherwise keep a pool page in use
//! that is 32 times larger. Such a slab page is closed and emptied, too. If its class has too few free slots elsewhere,
//! its entries move into a new slab page at a lower address of the pool; a page at any other address could be chosen
//! for emptying in turn, so that entries would move back and forth.

use super::classes::{PAGE_BYTES_FIRST, SLOT_BYTES};
use super::page::Page;
use super::{EntryAddress, LARGE, Slabs};
use farpool_model::limits::PAGE_BYTES;

/// Minimum number of free eighths of a slab page for which it is emptied. Reason for 2: each three moved entries then
/// gain at least one slot of memory.
const EIGHTHS_FREE: usize = 2;

/// Divisor: a slab page is replaced by a smaller one when at most 1/4 of its slots is in use. More than 1/4 and at most
/// half of the smaller page is then in use, so that it is not replaced in turn.
const PART_WRITTEN: usize = 4;

/// Divisor: slab pages are moved out of a pool page when at most 1/4 of the pool page is in use.
const PART_USED: usize = 4;

/// Maximum number of slab pages per call whose pool page is examined, which takes some 0.1 µs per page.
const PAGES_TRIED: usize = 32;

impl Slabs {
    /// Returns the address of an entry to move so that its slab page becomes empty; `None` if nothing to gain was
    /// found. A later call may still return an entry, because a call examines the pool pages of at most 32 slab pages.
    /// Takes constant time.
    ///
    /// The caller allocates as many bytes, which are then in another page, copies the entry to them, and frees or
    /// retires the old address; the next call returns the next entry. If the caller cannot move the entry, it calls
    /// [`Self::stop_moving`], because this function would return the same entry again.
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

    /// Stops emptying the current page, if there is one, so that its free slots can be allocated again.
    pub fn stop_moving(&mut self) {
        if let Some(id) = self.emptying.take() {
            let class = usize::from(self.table.get(id).class);
            self.classes[class].open(&mut self.table, id);
        }
    }

    /// Reopens the page that is being emptied for allocation, if it belongs to `class` and has free slots. Returns the
    /// id of a page of `class` with free slots; `None` if there is none.
    pub(super) fn reopen_for(&mut self, class: usize) -> Option<u32> {
        let page = self.table.get(self.emptying?);
        if usize::from(page.class) != class || page.free() == 0 {
            return None;
        }
        self.stop_moving();
        self.classes[class].fullest()
    }

    /// Returns the next entry of page `id`, which is being emptied; `None` if the page has no written slots left, or if
    /// its entries no longer fit elsewhere.
    fn next_of(&mut self, id: u32) -> Option<EntryAddress> {
        let page = self.table.get(id);
        let class = usize::from(page.class);
        if page.written() > self.classes[class].free {
            // Other entries have taken the free slots elsewhere since the page was closed.
            self.stop_moving();
            return None;
        }
        let slot = page.first_written();
        if slot.is_none() {
            self.emptying = None;
        }
        slot.map(|slot| EntryAddress::new(class, id, slot))
    }

    /// Returns the id of a slab page whose pool page is at most a quarter in use, and makes room for its entries
    /// elsewhere; `None` if the slab pages examined by this call include no such page.
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

    /// Returns the id of a page of `class` that is too large for its entries, after adding a smaller page for them;
    /// `None` if there is no such page or no memory.
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

    /// Returns the id of a page of `class` whose entries fit into the free slots of other pages with entries twice over
    /// and at least two eighths of which are free; `None` if there is no such page.
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

/// Returns the number of written and reclaimable slots of a page.
fn entries(page: &Page) -> usize {
    page.slots() - page.free()
}
