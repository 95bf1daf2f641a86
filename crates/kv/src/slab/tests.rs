//! Tests of the slab allocator for entries: its contents compared with a map, its memory when entries come and go, and
//! its errors in small pools.

use super::*;
use farpool_memory::PoolConfig;
use farpool_model::ErrorKind;
use farpool_model::limits::PAGE_BYTES;
use std::collections::{BTreeMap, BTreeSet};

mod compaction;
mod model;
mod scans;

fn pool(pages: usize) -> Arc<Pool> {
    Pool::new(PoolConfig { bytes_limit: pages * PAGE_BYTES }).unwrap()
}

fn slabs_of(pool: &Arc<Pool>) -> Slabs {
    Slabs::new(Arc::clone(pool), TenantName::new("shop").unwrap())
}

fn slabs(pages: usize) -> Slabs {
    slabs_of(&pool(pages))
}

/// A pseudo-random number generator (xorshift).
struct Random(u64);

impl Random {
    fn below(&mut self, end: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 % end as u64) as usize
    }
}

/// Allocates a slot for each of `sizes`; returns the addresses.
fn allocate_all(slabs: &mut Slabs, sizes: impl IntoIterator<Item = usize>) -> Vec<EntryAddress> {
    sizes.into_iter().map(|bytes| slabs.allocate(bytes).unwrap()).collect()
}

/// Returns the addresses of all written slots, scanned at most `max` per step.
fn written(slabs: &Slabs, max: usize) -> Vec<EntryAddress> {
    let (mut out, mut cursor) = (Vec::new(), SlabCursor::default());
    while let Some(next) = slabs.written_from(cursor, max, &mut out) {
        assert!(next > cursor, "a step goes on");
        cursor = next;
    }
    out
}

#[test]
fn a_slot_has_the_bytes_that_were_asked_for() {
    let mut slabs = slabs(64);
    for bytes in [0, 1, 64, 65, 500, 513, 4096, 16_384, 16_385, 100_000, 3 << 20] {
        let place = slabs.allocate(bytes).unwrap();
        assert!(slabs.bytes(place).len() >= bytes, "{bytes}");
        slabs.bytes_mut(place).fill(7);
        assert!(slabs.bytes(place).iter().all(|byte| *byte == 7));
        assert_eq!(EntryAddress::from_bits(place.to_bits() | 1 << 50), place);
        assert!(place.to_bits() >> EntryAddress::BITS == 0);
    }
}

#[test]
fn memory_returns_to_the_pool() {
    let pool = pool(64);
    let mut slabs = slabs_of(&pool);
    let places: Vec<_> = (0..50_000).map(|n| slabs.allocate(64 + n % 900).unwrap()).collect();
    assert!(pool.usage().bytes_used > 16 << 20);
    places.into_iter().for_each(|place| slabs.free(place));
    // At most one page stays: that of the class that lost its last entry most recently, if it has the size of a class's
    // first page.
    assert!(slabs.usage().pages_bytes <= 4096, "{:?}", slabs.usage());
    assert!(pool.usage().bytes_used <= PAGE_BYTES as u64);
    slabs.trim();
    assert_eq!(slabs.usage().pages_bytes, 0);
    assert_eq!(pool.usage().bytes_used, 0);
}

#[test]
fn large_entries_take_their_bytes_and_return_them_at_once() {
    let pool = pool(600);
    let mut slabs = slabs_of(&pool);
    let place = slabs.allocate(40_000).unwrap();
    assert_eq!(slabs.usage().pages_bytes, 40_000);
    slabs.free(place);
    assert_eq!(pool.usage().bytes_used, 0);
    let largest = slabs.allocate(ENTRY_BYTES_MAX).unwrap();
    assert_eq!(slabs.bytes(largest).len(), ENTRY_BYTES_MAX);
    let error = slabs.allocate(ENTRY_BYTES_MAX + 1).unwrap_err();
    assert_eq!(error.kind, ErrorKind::OverLimit);
    assert!(error.to_string().contains("an entry has at most"), "{error}");
    drop(slabs);
    assert_eq!(pool.usage().bytes_used, 0);
}

#[test]
fn one_entry_that_comes_and_goes_keeps_its_page() {
    let mut slabs = slabs(64);
    for others in [0, 9, 40, 5_000] {
        let held: Vec<_> = (0..others).map(|_| slabs.allocate(150).unwrap()).collect();
        // Fills the class's pages until the next entry gets a new page for itself.
        let mut full = Vec::new();
        let pages = slabs.usage().pages_bytes;
        while slabs.usage().pages_bytes == pages {
            full.push(slabs.allocate(150).unwrap());
        }
        let with = slabs.usage().pages_bytes;
        for _ in 0..3 {
            slabs.free(full.pop().unwrap());
            assert_eq!(slabs.usage().pages_bytes, with, "beside {others}");
            full.push(slabs.allocate(150).unwrap());
            assert_eq!(slabs.usage().pages_bytes, with);
        }
        held.into_iter().chain(full).for_each(|place| slabs.free(place));
    }
}

#[test]
fn small_spaces_take_little() {
    let pool = pool(64);
    let spaces: Vec<_> = (0..100)
        .map(|_| {
            let mut slabs = slabs_of(&pool);
            allocate_all(&mut slabs, (0..10).map(|_| 100));
            slabs
        })
        .collect();
    assert!(spaces.iter().all(|slabs| slabs.usage().pages_bytes == 2048));
    assert_eq!(pool.usage().bytes_used, PAGE_BYTES as u64);
    // 400 allocators, as of 100 spaces in four shards, each with one entry in each of three distant size classes.
    let shards: Vec<_> = (0..400)
        .map(|_| {
            let mut slabs = slabs_of(&pool);
            allocate_all(&mut slabs, [100, 700, 1500]);
            slabs
        })
        .collect();
    assert!(pool.usage().bytes_used < 20 << 20);
    drop(shards);
}

#[test]
fn small_entries_have_little_metadata() {
    let mut slabs = slabs(64);
    allocate_all(&mut slabs, (0..500_000).map(|_| 64));
    let usage = slabs.usage();
    assert_eq!((usage.slots_used, usage.slots_bytes), (500_000, 32_000_000));
    assert!(usage.pages_bytes < 32_000_000 + (64 << 10));
    assert!(usage.metadata_bytes * 100 < usage.slots_bytes, "{usage:?}");
    written(&slabs, 1000).into_iter().for_each(|place| slabs.retire(place));
    let retired = slabs.usage();
    assert_eq!((retired.slots_used, retired.slots_retired), (0, 500_000));
    assert!(retired.metadata_bytes > usage.metadata_bytes + 500_000 / 8 - 100);
    assert!(retired.metadata_bytes * 100 < usage.slots_bytes, "{retired:?}");
}

#[test]
fn a_full_pool_refuses_and_leaves_everything_as_it_was() {
    for bytes in [64, 1000, 16_000, 50_000] {
        let mut slabs = slabs(1);
        let mut places = Vec::new();
        let error = loop {
            match slabs.allocate(bytes) {
                Ok(place) => places.push(place),
                Err(error) => break error,
            }
        };
        assert_eq!(error.kind, ErrorKind::OverLimit);
        let usage = slabs.usage();
        assert!(usage.slots_bytes > PAGE_BYTES * 9 / 10, "{bytes}: {usage:?}");
        assert!(slabs.allocate(bytes).is_err());
        assert_eq!(slabs.usage(), usage);
        assert_eq!(written(&slabs, 100).len(), places.len());
        slabs.free(places.pop().unwrap());
        slabs.allocate(bytes).unwrap();
    }
}

#[test]
fn churn_does_not_creep() {
    let pool = pool(256);
    let mut slabs = slabs_of(&pool);
    let mut random = Random(3);
    let mut held: Vec<EntryAddress> = Vec::new();
    let mut most = 0;
    for step in 0..1_000_000 {
        // A triangle wave: the number of entries rises and falls, and their sizes do so twice as often.
        let wave = |up: usize, length: usize| up * (step % length).abs_diff(length / 2) / (length / 2);
        let wanted = 2000 + wave(8000, 100_000);
        while held.len() > wanted {
            slabs.free(held.swap_remove(random.below(held.len())));
        }
        held.push(slabs.allocate(50 + random.below(100 + wave(1500, 50_000))).unwrap());
        if step < 200_000 {
            most = most.max(pool.usage().bytes_used);
        }
        assert!(pool.usage().bytes_used <= most + (4 << 20), "step {step}");
    }
    held.into_iter().for_each(|place| slabs.free(place));
    slabs.trim();
    assert_eq!((slabs.usage().pages_bytes, pool.usage().bytes_used), (0, 0));
}

#[test]
#[should_panic(expected = "is not Written")]
fn a_slot_is_freed_once() {
    let mut slabs = slabs(1);
    let _stays = slabs.allocate(10).unwrap();
    let place = slabs.allocate(10).unwrap();
    slabs.free(place);
    slabs.free(place);
}

#[test]
#[should_panic(expected = "is not Reclaimable")]
fn only_retired_slots_are_reclaimed() {
    let mut slabs = slabs(1);
    let place = slabs.allocate(10).unwrap();
    slabs.reclaim(place);
}
