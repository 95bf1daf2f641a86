//! Memory usage of a slab allocator, which stores the entries (key and value) of a space in slots of a few sizes.

use super::classes::SLOT_BYTES;
use super::{LARGE, Slabs};
use std::mem::size_of_val;

/// The memory usage of one [`Slabs`], in total and by size class.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SlabUsage {
    /// Bytes of the slab pages, which are memory of the pool.
    pub pages_bytes: usize,
    /// Bytes of the written and reclaimable slots.
    pub slots_bytes: usize,
    /// Number of written slots.
    pub slots_used: usize,
    /// Number of reclaimable slots.
    pub slots_retired: usize,
    /// Bytes of bitmaps, lists and tables, which are not memory of the pool.
    pub metadata_bytes: usize,
    /// The size classes that have pages, by ascending size of their slots.
    pub classes: Vec<ClassUsage>,
}

/// The memory usage of one size class.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClassUsage {
    /// Bytes of a slot; `None` for entries too large for any class, whose slots differ in size.
    pub slot_bytes: Option<usize>,
    /// Number of slab pages.
    pub pages: usize,
    /// Bytes of the slab pages.
    pub pages_bytes: usize,
    /// Number of slots.
    pub slots: usize,
    /// Number of written slots.
    pub slots_used: usize,
    /// Number of reclaimable slots.
    pub slots_retired: usize,
}

impl Slabs {
    /// Returns the memory usage, in time proportional to the number of classes.
    pub fn usage(&self) -> SlabUsage {
        let mut usage = SlabUsage { metadata_bytes: self.metadata_bytes(), ..SlabUsage::default() };
        for (number, class) in self.classes.iter().enumerate().filter(|(_, class)| class.pages > 0) {
            let slot_bytes = SLOT_BYTES.get(number).copied();
            usage.pages_bytes += class.bytes;
            usage.slots_bytes += slot_bytes.map_or(class.bytes, |bytes| (class.used + class.retired) * bytes);
            usage.slots_used += class.used;
            usage.slots_retired += class.retired;
            usage.classes.push(ClassUsage {
                slot_bytes,
                pages: class.pages,
                pages_bytes: class.bytes,
                slots: class.slots,
                slots_used: class.used,
                slots_retired: class.retired,
            });
        }
        usage
    }

    /// Returns the bytes of bitmaps, lists and tables, which are not memory of the pool, including what the pool itself
    /// needs to manage each page.
    pub fn metadata_bytes(&self) -> usize {
        self.table.metadata_bytes() + size_of_val(&*self.classes)
    }
}

const _: () = assert!(LARGE == SLOT_BYTES.len());
