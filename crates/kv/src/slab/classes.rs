//! Size classes: multiples of 64 bytes, each about an eighth larger than the previous one.
//!
//! Up to 512 bytes, each multiple of 64 is a class; beyond, there are eight classes per doubling. Slots above 1 KiB are
//! enlarged as far as possible without changing the number of slots per page of 64 KiB, so that few bytes are lost at
//! the end of the page. An entry of more than 512 bytes wastes at most 11 % of its slot up to 4 KiB, and 20 % up to 16
//! KiB.
//!
//! An entry larger than 16 KiB gets a slab page of its own, which wastes less than 64 bytes. Reason: a page of 64 KiB
//! would have at most three such slots, and allocating a page takes less time than copying the entry.

/// All slot sizes are multiples of this number of bytes, the size of a cache line (and of Caribou's block, section
/// 4.3).
const UNIT: usize = 64;

/// Bytes of the slots of the largest class: a quarter of a slab page.
const SLOT_BYTES_LARGEST: usize = SLAB_PAGE_BYTES / 4;

/// Bytes of the slab pages of a class with many entries: 1/32 of a pool page (2 MiB).
pub const SLAB_PAGE_BYTES: usize = 64 << 10;

/// Minimum bytes of the first slab page of a class. Reason for 2 KiB: many small spaces take little memory; 400 such
/// pages take 0.8 MiB.
const PAGE_BYTES_SMALLEST: usize = 2 << 10;

/// Minimum number of slots in the first slab page of a class.
const SLOTS_FIRST: usize = 4;

/// Number of size classes (sizes of slots).
pub const CLASSES: usize = build().1;

/// Bytes of a slot by class number, ascending.
pub const SLOT_BYTES: [usize; CLASSES] = slot_bytes();

/// Bytes of the first slab page by class number; powers of two.
pub const PAGE_BYTES_FIRST: [usize; CLASSES] = page_bytes_first();

/// By number of units of 64 bytes, the number of the smallest class with slots of that size.
const CLASS_OF_UNITS: [u8; SLOT_BYTES_LARGEST / UNIT + 1] = class_of_units();

/// Returns the number of the smallest class with slots of at least `bytes` bytes; `None` if `bytes` exceeds the largest
/// slot.
#[inline]
pub fn class_of(bytes: usize) -> Option<usize> {
    CLASS_OF_UNITS.get(bytes.div_ceil(UNIT)).map(|class| usize::from(*class))
}

/// Returns the bytes of the slot that an entry of `bytes` bytes takes, also if the entry is too large for any class.
pub fn slot_bytes_of(bytes: usize) -> usize {
    class_of(bytes).map_or_else(|| bytes.next_multiple_of(UNIT), |class| SLOT_BYTES[class])
}

const fn build() -> ([usize; 64], usize) {
    let (mut all, mut count, mut wanted) = ([0; 64], 0, UNIT);
    while wanted <= SLOT_BYTES_LARGEST {
        let slots = SLAB_PAGE_BYTES / wanted;
        let bytes = if wanted <= 1024 { wanted } else { SLAB_PAGE_BYTES / slots / UNIT * UNIT };
        if count == 0 || bytes > all[count - 1] {
            all[count] = bytes;
            count += 1;
        }
        wanted += if wanted < 512 { UNIT } else { (1 << wanted.ilog2()) / 8 };
    }
    (all, count)
}

const fn slot_bytes() -> [usize; CLASSES] {
    let (all, mut sizes, mut class) = (build().0, [0; CLASSES], 0);
    while class < CLASSES {
        sizes[class] = all[class];
        class += 1;
    }
    sizes
}

const fn page_bytes_first() -> [usize; CLASSES] {
    let (mut sizes, mut class) = ([PAGE_BYTES_SMALLEST; CLASSES], 0);
    while class < CLASSES {
        let bytes = (SLOT_BYTES[class] * SLOTS_FIRST).next_power_of_two();
        if bytes > PAGE_BYTES_SMALLEST {
            sizes[class] = bytes;
        }
        class += 1;
    }
    sizes
}

const fn class_of_units() -> [u8; SLOT_BYTES_LARGEST / UNIT + 1] {
    let (mut all, mut units, mut class) = ([0; SLOT_BYTES_LARGEST / UNIT + 1], 0, 0);
    while units < all.len() {
        if units * UNIT > SLOT_BYTES[class] {
            class += 1;
        }
        all[units] = class as u8;
        units += 1;
    }
    all
}

const _: () = assert!(CLASSES < 63 && SLOT_BYTES[CLASSES - 1] == SLOT_BYTES_LARGEST);
const _: () = assert!(PAGE_BYTES_FIRST[CLASSES - 1] <= SLAB_PAGE_BYTES);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_size_has_the_smallest_class_that_it_fits() {
        for bytes in 0..=SLOT_BYTES_LARGEST {
            let class = class_of(bytes).unwrap();
            assert!(bytes <= SLOT_BYTES[class] && (class == 0 || bytes > SLOT_BYTES[class - 1]), "{bytes}");
        }
        assert_eq!(class_of(SLOT_BYTES_LARGEST + 1), None);
        assert_eq!(class_of(usize::MAX), None);
    }

    #[test]
    fn slots_are_multiples_of_64_bytes_and_waste_little() {
        for (class, pair) in SLOT_BYTES.windows(2).enumerate() {
            let (smaller, bytes) = (pair[0], pair[1]);
            assert_eq!(bytes % UNIT, 0);
            let wasted = bytes - (smaller + 1);
            let most = if bytes <= 512 { UNIT } else { bytes * if bytes <= 4096 { 112 } else { 205 } / 1000 };
            assert!(wasted <= most, "{} bytes in a slot of {bytes}, class {class}", smaller + 1);
        }
    }

    #[test]
    fn a_full_page_has_hardly_any_bytes_besides_its_slots() {
        for bytes in SLOT_BYTES {
            assert!(SLAB_PAGE_BYTES % bytes <= SLAB_PAGE_BYTES / 40, "{bytes}");
        }
    }
}
