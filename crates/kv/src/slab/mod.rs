//! A slab allocator for the entries (key and value): size classes whose slab pages are allocated from the memory pool.
//!
//! An entry takes a slot of the smallest class that it fits (see `classes.rs`). All slots of a slab page have the size
//! of one class, and a slab page is one allocation (a *piece*) of the pool. The first page of a class has 2 KiB, or
//! more if four slots need more, and later ones have up to 64 KiB as the class grows, so that a space (a namespace of
//! keys) with ten keys takes a few KiB. An entry that fits no class has a page with a single slot. The design follows
//! Caribou (sections 4.2 to 4.4), which has pages of 32 KiB and the same two bitmaps.
//!
//! A slot is *free*, *written* or *reclaimable*. [`Slabs::allocate`] makes a free slot written, [`Slabs::free`] makes a
//! written slot free. [`Slabs::retire`] makes a written slot reclaimable: new scans skip the slot, but older scans can
//! still read its bytes, until [`Slabs::reclaim`] makes the slot free. Each page has one bitmap of its written slots
//! and one of its reclaimable slots.
//!
//! Cost: allocating and freeing take constant time. The pages of a class that have free slots are in lists, one list
//! per eighth of a page that is free. An allocation takes a slot of one of the fullest of these pages, so that emptier
//! pages drain. Compaction ([`Slabs::to_move`]) empties further pages on request.
//!
//! A page without entries returns to the pool, with two exceptions, so that an entry that is removed and added again
//! and again does not cause an allocation each time. A class with entries keeps one empty page, if the page has at most
//! a quarter of the bytes of the class or the smallest size. The class that lost its last entry most recently keeps a
//! page of the smallest size.
//!
//! Invariants: an address belongs to at most one entry; a page is in a list if and only if it has free slots and is not
//! being emptied by compaction; an operation that returns an error has changed nothing.

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

/// The class number of entries that are too large for every size class; each has a page of its own.
const LARGE: usize = CLASSES;

/// The slab allocator for the entries of one space in one shard: slots of a few sizes in slab pages of pool memory.
#[derive(Debug)]
pub struct Slabs {
    pool: Arc<Pool>,
    tenant: TenantName,
    meter: Arc<Meter>,
    table: PageTable,
    /// State of each size class by class number, up to the largest class used so far.
    classes: Vec<Class>,
    /// Id of the page that compaction is emptying.
    emptying: Option<u32>,
    /// Number of the class that the next compaction step examines first.
    compact_next: usize,
    /// Id of the slab page where compaction continues to look for sparsely used pool pages.
    scattered_next: usize,
    /// The class that keeps a page although it has no entries; at most one class does.
    lone: Option<usize>,
    /// Cuts (point-in-time views, see `cut.rs`) that have not ended, oldest first.
    cuts: Vec<Arc<Cut>>,
    /// Ended cuts whose slots are not all freed, each with the id of the first page that is left to do.
    ended: Vec<(Arc<Cut>, u32)>,
}

impl Slabs {
    /// Creates an allocator without pages; the first entry allocates one from `pool`, at the expense of `tenant`.
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

    /// Makes the allocator count its pages with `meter` and respect the limit of `meter`. Must be called before the
    /// first allocation, as pages allocated earlier would not be counted.
    #[must_use]
    pub(crate) fn metered(mut self, meter: Arc<Meter>) -> Self {
        self.meter = meter;
        self
    }

    /// Allocates a slot of at least `bytes` bytes and returns its address. The slot is written from now on, with
    /// unspecified contents.
    ///
    /// # Errors
    /// `OverLimit` when `bytes` exceeds [`ENTRY_BYTES_MAX`], or when the pool, the tenant's quota or `maxmemory` leaves
    /// no room for another page. No entry is changed then; cuts may have been ended to make room.
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

    /// Frees the slot of the entry at `place`. If a cut keeps the entry, makes the slot reclaimable instead.
    ///
    /// # Panics
    /// When there is no written slot at `place`.
    pub fn free(&mut self, place: EntryAddress) {
        if self.is_kept(place) {
            return self.retire(place);
        }
        let page = self.table.get_mut(place.page());
        page.clear(place.slot(), SlotState::Written);
        self.classes[place.class()].used -= 1;
        self.gave(place);
    }

    /// Makes the written slot at `place` reclaimable: scans that begin from now on skip the entry; its bytes stay until
    /// [`Self::reclaim`].
    ///
    /// # Panics
    /// When there is no written slot at `place`.
    pub fn retire(&mut self, place: EntryAddress) {
        self.table.retire(place.page(), place.slot());
        let class = &mut self.classes[place.class()];
        class.used -= 1;
        class.retired += 1;
    }

    /// Frees the reclaimable slot at `place`, whose entry was retired.
    ///
    /// # Panics
    /// When the slot at `place` is not reclaimable.
    pub fn reclaim(&mut self, place: EntryAddress) {
        let page = self.table.get_mut(place.page());
        page.clear(place.slot(), SlotState::Reclaimable);
        self.classes[place.class()].retired -= 1;
        self.gave(place);
    }

    /// Returns all bytes of the slot at `place`, at least as many as were asked of [`Self::allocate`].
    ///
    /// # Panics
    /// When the page of `place` has been removed. Whether the slot is in use is not checked.
    #[inline]
    pub fn bytes(&self, place: EntryAddress) -> &[u8] {
        let bytes = self.table.get(place.page()).extent.as_slice();
        match SLOT_BYTES.get(place.class()) {
            Some(slot_bytes) => &bytes[place.slot() * slot_bytes..][..*slot_bytes],
            None => bytes,
        }
    }

    /// Does the same as [`Self::bytes`], for writing.
    ///
    /// # Panics
    /// When the page of `place` has been removed. Whether the slot is in use is not checked.
    #[inline]
    pub fn bytes_mut(&mut self, place: EntryAddress) -> &mut [u8] {
        let bytes = self.table.get_mut(place.page()).extent.as_mut_slice();
        match SLOT_BYTES.get(place.class()) {
            Some(slot_bytes) => &mut bytes[place.slot() * slot_bytes..][..*slot_bytes],
            None => bytes,
        }
    }

    /// Returns all pages without entries to the pool, including those kept for further entries.
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

    /// Adds a page to a class without free slots and returns the page's id. If the pool has no room for a page of the
    /// size that [`Class::page_bytes_next`] suggests, tries the smallest size, then the free slots of the page that
    /// compaction is emptying, then ends cuts.
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

    /// Updates the lists of pages after the slot at `place` was freed: moves its page to another list, or returns the
    /// page to the pool if it is empty and not kept for further entries.
    fn gave(&mut self, place: EntryAddress) {
        let (id, class) = (place.page(), place.class());
        self.classes[class].gave(&mut self.table, id);
        let page = self.table.get(id);
        if page.is_empty() {
            if class == LARGE || page.is_closed() || page.next != NO_PAGE {
                // A page that becomes empty is put at the head of the list of empty pages, so a next page is another
                // empty one, which is kept.
                self.remove_page(id);
            }
            self.settle_empty(class);
        }
    }

    /// Returns the empty page of a class, if there is one, to the pool, unless it is kept for further entries. A class
    /// with entries keeps an empty page of the smallest size or of at most a quarter of the bytes of the class; of the
    /// classes without entries, only the one that lost its last entry most recently keeps a page, of the smallest size.
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
