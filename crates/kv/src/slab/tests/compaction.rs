//! Tests of compaction in the slab allocator, which empties sparsely used pages by moving their entries.

use super::*;

/// Moves entries as compaction asks until it asks for no more; returns the number of moves.
fn compact(slabs: &mut Slabs) -> usize {
    let mut moves = 0;
    while let Some(place) = slabs.to_move() {
        let bytes = slabs.bytes(place).to_vec();
        let new = slabs.allocate(bytes.len()).unwrap();
        slabs.bytes_mut(new).copy_from_slice(&bytes);
        slabs.free(place);
        moves += 1;
    }
    moves
}

/// Allocates `entries` entries and frees all but about one in `part`, chosen at random; returns the number left.
fn thinned(slabs: &mut Slabs, entries: usize, part: usize) -> usize {
    let mut random = Random(9);
    let places: Vec<_> = (0..entries).map(|_| slabs.allocate(64 + random.below(1000)).unwrap()).collect();
    let mut kept = 0;
    for place in places {
        if random.below(part) == 0 {
            kept += 1;
        } else {
            slabs.free(place);
        }
    }
    kept
}

#[test]
fn what_is_left_of_many_entries_takes_little_more_than_when_it_is_new() {
    let (mut slabs, mut fresh) = (slabs(128), slabs(128));
    let kept = thinned(&mut slabs, 200_000, 100);
    let thin = slabs.usage();
    let moves = compact(&mut slabs);
    let mut random = Random(9);
    allocate_all(&mut fresh, (0..kept).map(|_| 64 + random.below(1000)));
    let (dense, new) = (slabs.usage(), fresh.usage());
    assert_eq!(dense.slots_used, kept);
    assert!(moves <= 2 * kept && moves > kept / 2, "{moves} moves of {kept}");
    assert!(dense.pages_bytes * 10 < thin.pages_bytes, "{} of {}", dense.pages_bytes, thin.pages_bytes);
    // Each of the 16 classes may have one page that is not full.
    assert!(dense.pages_bytes < new.pages_bytes + 16 * (64 << 10), "{dense:?} {new:?}");
    let pages = |usage: &SlabUsage| usage.classes.iter().map(|class| class.pages).sum::<usize>();
    assert!(pages(&dense) * 2 <= pages(&new) * 3, "{} pages, {} when new", pages(&dense), pages(&new));
}

#[test]
fn pages_that_are_nearly_full_are_left_alone() {
    let mut slabs = slabs(128);
    let mut random = Random(2);
    let places = allocate_all(&mut slabs, (0..100_000).map(|_| 100));
    places.into_iter().filter(|_| random.below(8) == 0).for_each(|place| slabs.free(place));
    // A few moves are accepted, because some of the first pages, which are small, have by chance enough free slots to
    // be emptied.
    assert!(compact(&mut slabs) < 500);
}

#[test]
fn compaction_ends_and_is_stable() {
    for part in [2, 3, 5, 20, 1000] {
        let mut slabs = slabs(64);
        let kept = thinned(&mut slabs, 20_000, part);
        compact(&mut slabs);
        assert_eq!(compact(&mut slabs), 0, "one in {part}");
        assert_eq!(slabs.usage().slots_used, kept);
        let usage = slabs.usage();
        for class in &usage.classes {
            let free = class.slots - class.slots_used;
            let largest = (64 << 10) / class.slot_bytes.unwrap();
            assert!(free <= class.slots / 4 + 3 * largest, "one in {part}: {class:?}");
        }
    }
}

#[test]
fn a_page_with_retired_entries_goes_when_they_are_reclaimed() {
    let mut slabs = slabs(64);
    let places = allocate_all(&mut slabs, (0..10_000).map(|_| 64));
    places.iter().skip(1).step_by(2).for_each(|place| slabs.free(*place));
    let before = slabs.usage().pages_bytes;
    let mut retired = Vec::new();
    while let Some(place) = slabs.to_move() {
        let new = slabs.allocate(64).unwrap();
        assert!(!retired.iter().any(|old: &EntryAddress| old.page() == new.page()));
        slabs.retire(place);
        retired.push(place);
    }
    assert_eq!(slabs.usage().pages_bytes, before, "the bytes of retired entries stay");
    retired.into_iter().for_each(|place| slabs.reclaim(place));
    assert!(slabs.usage().pages_bytes < before * 2 / 3);
}

#[test]
fn a_page_that_is_emptied_is_allocated_from_before_an_entry_is_refused() {
    let mut slabs = slabs(1);
    let mut places: Vec<_> = std::iter::from_fn(|| slabs.allocate(64).ok()).collect();
    places.drain(..).step_by(2).for_each(|place| slabs.free(place));
    let moving = slabs.to_move().unwrap();
    let free = |slabs: &Slabs| slabs.usage().classes.iter().map(|c| c.slots - c.slots_used).sum::<usize>();
    let room = free(&slabs);
    let taken: Vec<_> = std::iter::from_fn(|| slabs.allocate(64).ok()).collect();
    assert_eq!((taken.len(), free(&slabs)), (room, 0));
    assert!(taken.iter().any(|place| place.page() == moving.page()));
    assert_eq!(slabs.to_move(), None);
}

#[test]
fn pages_of_the_pool_empty_too() {
    let pool = pool(128);
    let mut slabs = slabs_of(&pool);
    thinned(&mut slabs, 200_000, 100);
    let before = pool.usage().bytes_used;
    // Compaction is called repeatedly, because each call examines only some of the pages.
    let moves = (0..100).map(|_| compact(&mut slabs)).sum::<usize>();
    let (taken, used) = (pool.usage().bytes_used, slabs.usage().pages_bytes);
    assert!(before > 100 << 20 && taken <= 2 * used as u64 + (4 << 20), "{taken} of {before} for {used}");
    assert!(moves < 10_000, "{moves}");
    let metadata = slabs.metadata_bytes();
    assert!(metadata * 20 < used, "{metadata} bytes beside {used}");
    assert_eq!((0..100).map(|_| compact(&mut slabs)).sum::<usize>(), 0);
}
