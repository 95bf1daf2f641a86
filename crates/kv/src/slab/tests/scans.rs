//! Tests of scans of the slab allocator in steps, while entries are added and removed between the steps.

use super::*;

#[test]
fn a_place_that_stays_is_returned_once_under_churn() {
    for seed in 1..30 {
        let mut random = Random(seed);
        let mut slabs = slabs(64);
        let mut all: Vec<_> = (0..5000).map(|_| slabs.allocate(random.below(3000)).unwrap()).collect();
        let mut stays = Vec::new();
        for _ in 0..1000 {
            stays.push(all.swap_remove(random.below(all.len())));
        }
        let (mut seen, mut cursor) = (Vec::new(), SlabCursor::default());
        while let Some(next) = slabs.written_from(cursor, 1 + random.below(40), &mut seen) {
            cursor = next;
            churn(&mut slabs, &mut all, &mut random);
        }
        let once: BTreeSet<_> = seen.iter().map(|place| place.to_bits()).collect();
        assert_eq!(once.len(), seen.len(), "seed {seed}: a place comes twice");
        assert!(stays.iter().all(|place| once.contains(&place.to_bits())), "seed {seed}: a place is missed");
    }
}

/// Frees and allocates entries (`others`) in waves, so that many pages are taken from the pool and returned.
fn churn(slabs: &mut Slabs, others: &mut Vec<EntryAddress>, random: &mut Random) {
    let count = random.below(200);
    for _ in 0..count.min(others.len()) {
        let place = others.swap_remove(random.below(others.len()));
        if random.below(4) == 0 {
            slabs.retire(place);
            slabs.reclaim(place);
        } else {
            slabs.free(place);
        }
    }
    for _ in 0..random.below(200) {
        others.push(slabs.allocate(random.below(3000)).unwrap());
    }
}

#[test]
fn a_step_is_bounded_and_goes_on() {
    let mut slabs = slabs(64);
    let places = allocate_all(&mut slabs, (0..10_000).map(|_| 100));
    let mut out = Vec::new();
    assert_eq!(slabs.written_from(SlabCursor::default(), 0, &mut out), Some(SlabCursor::default()));
    let next = slabs.written_from(SlabCursor::default(), 7, &mut out).unwrap();
    assert_eq!(out, places[..7]);
    assert!(next.is_past(places[6]) && !next.is_past(places[7]));
    // A scan returns nothing from pages that have only retired (removed but kept) entries. As a step visits only a few
    // pages, the scan needs several steps.
    places.iter().for_each(|place| slabs.retire(*place));
    out.clear();
    let mut steps = 0;
    let mut cursor = Some(SlabCursor::default());
    while let Some(from) = cursor {
        cursor = slabs.written_from(from, 2, &mut out);
        steps += 1;
    }
    assert!(out.is_empty() && steps > 10, "{steps} steps");
    assert_eq!(slabs.kept_from(SlabCursor::default(), 1 << 20, &mut out), None);
    assert_eq!(out, places);
}

#[test]
fn a_retired_entry_keeps_its_bytes_until_it_is_reclaimed() {
    let mut slabs = slabs(1);
    let place = slabs.allocate(64).unwrap();
    slabs.bytes_mut(place).fill(1);
    slabs.retire(place);
    assert!(written(&slabs, 10).is_empty());
    for _ in 0..1000 {
        let other = slabs.allocate(64).unwrap();
        slabs.bytes_mut(other).fill(2);
    }
    assert!(slabs.bytes(place).iter().all(|byte| *byte == 1));
    slabs.reclaim(place);
    let again = (0..1000).map(|_| slabs.allocate(64).unwrap()).find(|other| *other == place);
    assert_eq!(again, Some(place));
}
