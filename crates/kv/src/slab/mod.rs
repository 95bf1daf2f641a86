//! Slabs: the memory of entries, in size classes, taken from the pool a slab page at a time.
//!
//! An entry takes a slot of the smallest class that it fits (see `classes.rs`); a slab page has slots of one
//! class and is a piece of the pool. The pages of a class grow with its use, from 2 KiB to 64 KiB, so that a
//! space with ten keys takes a few KiB. Entries larger than the largest class are pieces of their own: pages
//! with one slot. After Caribou (sections 4.2 to 4.4), which has pages of 32 KiB and the same two bitmaps.
//!
//! A slot is *free*, *written* or *reclaimable*. [`Slabs::allocate`] makes a free slot written,
//! [`Slabs::free`] makes it free again. [`Slabs::retire`] makes it reclaimable: scans that begin from now on
//! do not see it, but its bytes stay for the scans that still may read them, until [`Slabs::reclaim`]. Each
//! page has a bitmap of its written and one of its reclaimable slots.
//!
//! Cost: allocating and freeing take constant time. The open pages of a class are kept in lists by how many
//! eighths of them are free; an allocation takes a slot of the fullest, so that emptier pages drain. A page
//! without entries returns to the pool, except one per class that still has entries, if it is at most a
//! quarter of the class or of the smallest size, and the smallest page of the class that became empty last:
//! where one entry comes and goes, the pool is not asked each time. Compaction ([`Slabs::to_move`]) empties
//! pages on request.
//!
//! Invariants: a place belongs to at most one entry; a page is in the list of its eighth if and only if it
//! has free slots and is not being emptied; an error leaves everything as it was.

mod address;
mod classes;
mod compact;
mod cut;
mod lists;
mod page;
mod scan;
mod table;
#[cfg(test)]
mod tests;
mod usage;

pub use address::{EntryAddress, SlabCursor};
pub use cut::{Cut, CutCursor, CutPart};
pub use usage::{ClassUsage, SlabUsage};

pub(crate) use classes::slot_bytes_of as slot_bytes;

use crate::meter::Meter;
use classes::{CLASSES, PAGE_BYTES_FIRST, SLAB_PAGE_BYTES, SLOT_BYTES, class_of};
use farpool_memory::{Extent, Pool, Tenure};
use farpool_model::limits::ENTRY_BYTES_MAX;
use farpool_model::{Error, Result, TenantName};
use lists::Class;
use page::{NO_PAGE, Page, SlotState};
use std::sync::Arc;
use table::PageTable;

/// The class number of entries that are pieces of their own.
const LARGE: usize = CLASSES;

/// The memory of one space's entries in one shard; see the module documentation.
#[derive(Debug)]
pub struct Slabs {
    pool: Arc<Pool>,
    tenant: TenantName,
    meter: Arc<Meter>,
    table: PageTable,
    /// Classes up to the largest one in use.
    classes: Vec<Class>,
    /// The page that compaction is emptying.
    emptying: Option<u32>,
    /// The class where compaction continues.
    compact_next: usize,
    /// The number of the page where compaction continues to look for pool pages with little in use.
    scattered_next: usize,
    /// The class whose only page is kept although it is empty.
    lone: Option<usize>,
    /// Cuts that are kept, oldest first.
    cuts: Vec<Arc<Cut>>,
    /// Cuts that have ended, each with the first page whose slots were not freed yet.
    ended: Vec<(Arc<Cut>, u32)>,
}

impl Slabs {
    /// Creates slabs without memory of the pool.
    pub fn new(pool: Arc<Pool>, tenant: TenantName) -> Self {
        let (table, classes) = (PageTable::default(), Vec::new());
        Slabs {
            pool,
            tenant,
            meter: Arc::default(),
            table,
            classes,
            emptying: None,
            compact_next: 0,
            scattered_next: 0,
            lone: None,
            cuts: Vec::new(),
            ended: Vec::new(),
        }
    }

    /// Counts memory with `meter` and respects its limit; nothing may have been allocated yet.
    #[must_use]
    pub(crate) fn metered(mut self, meter: Arc<Meter>) -> Self {
        self.meter = meter;
        self
    }

    /// Allocates a slot of at least `bytes` bytes with unspecified contents. The slot counts as written from now on.
    ///
    /// # Errors
    /// `OverLimit` when an entry of this size is not allowed, or when the pool or the tenant's quota has no
    /// room for another page; nothing is changed then.
    pub fn allocate(&mut self, bytes: usize) -> Result<EntryAddress> {
        let Some(class) = class_of(bytes) else { return self.allocate_large(bytes) };
        let id = match self.classes.get(class).and_then(Class::fullest) {
            Some(id) => id,
            None => self.add_page(class)?,
        };
        let page = self.table.get_mut(id);
        let slot = page.take();
        self.classes[class].took(&mut self.table, id);
        Ok(EntryAddress::new(class, id, slot))
    }

    /// Frees the slot of an entry; if a cut keeps it, the slot becomes reclaimable instead.
    ///
    /// # Panics
    /// When there is no entry at `place`.
    pub fn free(&mut self, place: EntryAddress) {
        if self.is_kept(place) {
            return self.retire(place);
        }
        let page = self.table.get_mut(place.page());
        page.clear(place.slot(), SlotState::Written);
        self.classes[place.class()].used -= 1;
        self.gave(place);
    }

    /// Hides an entry from scans that begin from now on, and keeps its bytes until [`Self::reclaim`].
    ///
    /// # Panics
    /// When there is no entry at `place`.
    pub fn retire(&mut self, place: EntryAddress) {
        self.table.retire(place.page(), place.slot());
        let class = &mut self.classes[place.class()];
        class.used -= 1;
        class.retired += 1;
    }

    /// Frees the slot of an entry that was retired.
    ///
    /// # Panics
    /// When the entry at `place` was not retired.
    pub fn reclaim(&mut self, place: EntryAddress) {
        let page = self.table.get_mut(place.page());
        page.clear(place.slot(), SlotState::Reclaimable);
        self.classes[place.class()].retired -= 1;
        self.gave(place);
    }

    /// Returns the bytes of a written or reclaimable slot: the whole slot, at least as many as were asked for.
    ///
    /// # Panics
    /// When the page of `place` does not exist any more.
    #[inline]
    pub fn bytes(&self, place: EntryAddress) -> &[u8] {
        let bytes = self.table.get(place.page()).extent.as_slice();
        match SLOT_BYTES.get(place.class()) {
            Some(slot_bytes) => &bytes[place.slot() * slot_bytes..][..*slot_bytes],
            None => bytes,
        }
    }

    /// Returns the bytes of a slot for writing.
    ///
    /// # Panics
    /// When the page of `place` does not exist any more.
    #[inline]
    pub fn bytes_mut(&mut self, place: EntryAddress) -> &mut [u8] {
        let bytes = self.table.get_mut(place.page()).extent.as_mut_slice();
        match SLOT_BYTES.get(place.class()) {
            Some(slot_bytes) => &mut bytes[place.slot() * slot_bytes..][..*slot_bytes],
            None => bytes,
        }
    }

    /// Returns pages without entries, kept for further entries so far, to the pool.
    pub fn trim(&mut self) {
        for class in 0..self.classes.len() {
            while let Some(id) = self.classes[class].empty() {
                self.remove_page(id);
            }
        }
    }

    fn allocate_large(&mut self, bytes: usize) -> Result<EntryAddress> {
        if bytes > ENTRY_BYTES_MAX {
            return Err(Error::over_limit(format!(
                "an entry has at most {ENTRY_BYTES_MAX} bytes with its key, not {bytes}"
            )));
        }
        let extent = loop {
            match self.take_piece(bytes) {
                Err(_) if self.give_up_cut() => {}
                taken => break taken?,
            }
        };
        let id = self.insert_page(LARGE, extent, 1);
        let slot = self.table.get_mut(id).take();
        self.classes[LARGE].took(&mut self.table, id);
        Ok(EntryAddress::new(LARGE, id, slot))
    }

    /// Adds a page to a class without free slots. If the pool has no room for the size that the class's use suggests,
    /// falls back to the smallest page, then to slots of the page that is being emptied, then to ending cuts.
    fn add_page(&mut self, class: usize) -> Result<u32> {
        let first = PAGE_BYTES_FIRST[class];
        let wanted = self.classes.get(class).map_or(first, |class| class.page_bytes_next(first));
        let taken = match self.take_piece(wanted) {
            Err(_) if wanted > first => self.take_piece(first),
            taken => taken,
        };
        match taken {
            Ok(extent) => {
                let slots = extent.len() / SLOT_BYTES[class];
                Ok(self.insert_page(class, extent, slots))
            }
            Err(error) => match self.reopen_for(class) {
                Some(id) => Ok(id),
                None if self.give_up_cut() => match self.classes.get(class).and_then(Class::fullest) {
                    Some(id) => Ok(id),
                    None => self.add_page(class),
                },
                None => Err(error),
            },
        }
    }

    fn take_piece(&self, bytes: usize) -> Result<Extent> {
        self.meter.check(bytes)?;
        self.pool.allocate_piece(&self.tenant, bytes, Tenure::Staying)
    }

    fn insert_page(&mut self, class: usize, extent: Extent, slots: usize) -> u32 {
        if self.classes.len() <= class {
            self.classes.resize_with(class + 1, Class::default);
        }
        let bytes = extent.len();
        self.meter.took(bytes);
        let id = self.table.insert(Page::new(extent, class, slots));
        self.classes[class].added(&mut self.table, id, bytes);
        id
    }

    /// Updates the lists after a slot was freed: moves its page to another list, or removes an empty page.
    fn gave(&mut self, place: EntryAddress) {
        let (id, class) = (place.page(), place.class());
        self.classes[class].gave(&mut self.table, id);
        let page = self.table.get(id);
        if page.is_empty() {
            if class == LARGE || page.is_closed() || page.next != NO_PAGE {
                // An empty page is linked at the head of its list, so if there is a next one, that one is kept.
                self.remove_page(id);
            }
            self.settle_empty(class);
        }
    }

    /// Decides whether the empty page of a class is kept.
    fn settle_empty(&mut self, class: usize) {
        let of = &self.classes[class];
        let Some(id) = of.empty() else { return };
        let (bytes, first) = (self.table.get(id).extent.len(), PAGE_BYTES_FIRST[class]);
        let is_only = of.pages == 1;
        if bytes > first && (is_only || bytes > of.bytes / 4) {
            return self.remove_page(id);
        }
        if let Some(other) = self.lone.filter(|other| is_only && *other != class)
            && self.classes[other].pages == 1
            && let Some(id) = self.classes[other].empty()
        {
            self.remove_page(id);
        }
        if is_only {
            self.lone = Some(class);
        }
    }

    /// Returns a page without entries to the pool.
    fn remove_page(&mut self, id: u32) {
        let class = usize::from(self.table.get(id).class);
        self.classes[class].removed(&mut self.table, id);
        self.emptying = self.emptying.filter(|other| *other != id);
        let page = self.table.remove(id);
        self.meter.gave(page.extent.len());
    }
}

impl Drop for Slabs {
    fn drop(&mut self) {
        self.meter.gave(self.classes.iter().map(|class| class.bytes).sum());
    }
}

const _: () = assert!(SLAB_PAGE_BYTES <= farpool_model::limits::PAGE_BYTES);
