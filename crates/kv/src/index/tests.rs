//! Tests of the hash index of a space: its contents compared with a map of the standard library, and its guarantees
//! about memory, errors and scans.

use super::bucket::SLOTS;
use super::{Index, IndexOrder, IndexOrders, KeyHasher};
use crate::slab::EntryAddress;
use farpool_memory::{Failures, Pool, PoolConfig};
use farpool_model::{ErrorKind, Result, TenantName};
use proptest::prelude::*;
use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// An index and a map with the same entries. Keys are numbers, and `hash` gives the hash of a key as permuted by the
/// index.
struct World {
    pool: Arc<Pool>,
    index: Index,
    hash: fn(u64) -> u64,
    map: HashMap<u64, EntryAddress>,
    /// The key by the number of the entry's address, for all addresses ever used.
    keys: Vec<u64>,
}

impl World {
    fn new(pages: usize, hash: fn(u64) -> u64) -> World {
        World::failing(pages, hash, None)
    }

    fn failing(pages: usize, hash: fn(u64) -> u64, failures: Option<Arc<dyn Failures>>) -> World {
        let pool = Pool::failing(PoolConfig { bytes_limit: pages << 21 }, failures).unwrap();
        let index = Index::new(Arc::clone(&pool), TenantName::new("t").unwrap(), IndexOrder::new(99));
        World { pool, index, hash, map: HashMap::new(), keys: Vec::new() }
    }

    fn place(&mut self, key: u64) -> EntryAddress {
        self.keys.push(key);
        EntryAddress::from_bits(self.keys.len() as u64 - 1)
    }

    /// Returns the hash function of keys in the form that the index expects: before the index's own permutation.
    fn given(&self) -> impl Fn(u64) -> u64 + use<> {
        let (hash, order) = (self.hash, self.index.order);
        move |key| order.inverse(hash(key))
    }

    fn find(&self, key: u64) -> Option<EntryAddress> {
        self.index.find(self.given()(key), |place| self.keys[place.to_bits() as usize] == key)
    }

    /// Inserts a key or replaces its entry.
    fn put(&mut self, key: u64) -> Result<()> {
        let place = self.place(key);
        if let Some(&old) = self.map.get(&key) {
            self.index.replace(self.given()(key), old, place);
        } else {
            let (keys, hash) = (&self.keys, self.given());
            self.index.insert(hash(key), place, |place| hash(keys[place.to_bits() as usize]))?;
        }
        self.map.insert(key, place);
        Ok(())
    }

    fn remove(&mut self, key: u64) {
        let hash = self.given()(key);
        match self.map.remove(&key) {
            Some(place) => assert!(self.index.remove(hash, place)),
            None => assert!(!self.index.remove(hash, EntryAddress::from_bits(1 << 40))),
        }
    }

    fn step(&mut self, budget: usize) -> Result<bool> {
        let (keys, hash) = (&self.keys, self.given());
        self.index.step(|place| hash(keys[place.to_bits() as usize]), budget)
    }

    fn settle(&mut self) {
        while self.step(100).unwrap() {}
    }

    fn load(&self) -> f64 {
        self.index.len() as f64 / self.index.slots() as f64
    }

    /// Returns the addresses that a scan returns if the index does not change meanwhile.
    fn scan(&self) -> Vec<EntryAddress> {
        let (mut out, mut cursor, hash) = (Vec::new(), 0, self.given());
        loop {
            cursor = self.index.scan(cursor, |place| hash(self.keys[place.to_bits() as usize]), &mut out);
            if cursor == 0 {
                let distinct: HashSet<&EntryAddress> = out.iter().collect();
                assert_eq!(distinct.len(), out.len(), "none is returned twice");
                return out;
            }
        }
    }

    /// Checks that the index has exactly the entries of the map, and the invariants in the documentation of the module.
    fn check(&self) {
        assert_eq!(self.index.len(), self.map.len());
        for (&key, &place) in &self.map {
            assert_eq!(self.find(key), Some(place), "key {key}");
        }
        let live: HashSet<EntryAddress> = self.map.values().copied().collect();
        assert_eq!(self.scan().into_iter().collect::<HashSet<_>>(), live);
        let table = &self.index.table;
        for bucket in 0..table.len() {
            let content = table.read(bucket);
            for route in content.summary.routes() {
                assert!(self.index.is_used(bucket, route), "bucket {bucket} names {route:?} for nothing");
            }
        }
    }
}

/// Returns a well-distributed hash.
fn good(key: u64) -> u64 {
    KeyHasher::new([7; 16]).hash(&key.to_le_bytes())
}

/// Returns one of few hashes, so that buckets and the stash overflow.
fn poor(key: u64) -> u64 {
    good(key % 7)
}

/// Returns hashes that differ only in bits that select buckets of large tables.
fn narrow(key: u64) -> u64 {
    good(key) & !0xffc0
}

#[derive(Clone, Debug)]
enum Step {
    Put(u64),
    PutMany(u64, u64),
    Remove(u64),
    RemoveMany(u64, u64),
    Find(u64),
    Work(usize),
    Refuse(bool),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let key = || 0..2_000u64;
    let step = prop_oneof![
        4 => key().prop_map(Step::Put),
        2 => (key(), 0..400u64).prop_map(|(first, count)| Step::PutMany(first, count)),
        4 => key().prop_map(Step::Remove),
        2 => (key(), 0..400u64).prop_map(|(first, count)| Step::RemoveMany(first, count)),
        2 => key().prop_map(Step::Find),
        2 => (0..50usize).prop_map(Step::Work),
        1 => any::<bool>().prop_map(Step::Refuse),
    ];
    proptest::collection::vec(step, 1..60)
}

#[derive(Debug, Default)]
struct Refusing(AtomicBool);

impl Failures for Refusing {
    fn next_fails(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

/// Returns hashes that nearly all select the first bucket, as keys from the scan of a larger table do.
fn of_a_scan(key: u64) -> u64 {
    good(key) & !0xffff
}

fn run(hash: fn(u64) -> u64, steps: Vec<Step>) {
    let refusing = Arc::new(Refusing::default());
    let mut world = World::failing(4, hash, Some(Arc::clone(&refusing) as Arc<dyn Failures>));
    let put = |world: &mut World, key| {
        if let Err(error) = world.put(key) {
            assert_eq!(error.kind, ErrorKind::OverLimit);
            if !refusing.0.load(Ordering::Relaxed) {
                // Memory is available again, but the table is too full because an earlier allocation failed. Background
                // work lets it grow, and the insert then succeeds.
                world.settle();
                world.put(key).unwrap();
            }
        }
    };
    for step in steps {
        match step {
            Step::Put(key) => put(&mut world, key),
            Step::PutMany(first, count) => (first..first + count).for_each(|key| put(&mut world, key)),
            Step::Remove(key) => world.remove(key),
            Step::RemoveMany(first, count) => (first..first + count).for_each(|key| world.remove(key)),
            Step::Find(key) => assert_eq!(world.find(key), world.map.get(&key).copied()),
            Step::Work(budget) => {
                let result = world.step(budget);
                assert!(result.is_ok() || refusing.0.load(Ordering::Relaxed));
            }
            Step::Refuse(refuses) => refusing.0.store(refuses, Ordering::Relaxed),
        }
        world.check();
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn is_a_map(steps in steps()) {
        run(good, steps);
    }

    #[test]
    fn is_a_map_with_keys_that_collide(steps in steps()) {
        run(poor, steps);
    }

    #[test]
    fn is_a_map_with_keys_that_crowd_together(steps in steps()) {
        run(narrow, steps);
    }

    #[test]
    fn is_a_map_with_keys_in_the_order_of_its_scan(steps in steps()) {
        run(of_a_scan, steps);
    }

    /// Checks that a scan returns all keys that are present throughout, although the table is resized and entries are
    /// displaced between its steps.
    #[test]
    fn a_scan_returns_what_stays(
        stay in 0..600u64,
        turns in proptest::collection::vec((0..900u64, 0..900u64, 0..40usize), 1..12),
        every in 1..40usize,
    ) {
        let mut world = World::new(4, good);
        (0..stay).for_each(|key| world.put(key).unwrap());
        let mut turns = turns.into_iter().cycle();
        let (mut out, mut cursor, mut calls) = (Vec::new(), 0, 0);
        loop {
            let hash = world.given();
            let hash_of = |place: EntryAddress| hash(world.keys[place.to_bits() as usize]);
            cursor = world.index.scan(cursor, hash_of, &mut out);
            calls += 1;
            if cursor == 0 {
                break;
            }
            if calls % every == 0 && calls < 4_000 {
                let (first, count, budget) = turns.next().unwrap();
                for key in 1_000 + first..1_000 + first + count {
                    if world.map.contains_key(&key) { world.remove(key) } else { world.put(key).unwrap() }
                }
                world.step(budget).unwrap();
            }
        }
        let seen: HashSet<u64> = out.iter().map(|place| world.keys[place.to_bits() as usize]).collect();
        for key in 0..stay {
            prop_assert!(seen.contains(&key), "key {} was missed", key);
        }
    }
}

#[test]
fn without_keys_there_is_nothing() {
    let mut world = World::new(1, good);
    assert!(world.index.is_empty());
    assert_eq!((world.find(1), world.index.any(3), world.scan()), (None, None, vec![]));
    assert!(!world.step(10).unwrap());
    world.remove(1);
    assert_eq!((world.index.usage(), world.pool.bytes_used()), (0, 0));
}

#[test]
fn a_small_space_takes_little() {
    let mut world = World::new(1, good);
    (0..10).for_each(|key| world.put(key).unwrap());
    assert_eq!(world.index.usage(), 256);
}

#[test]
fn a_full_table_is_full_at_any_size() {
    let mut world = World::new(8, good);
    for key in 0..200_000 {
        world.put(key).unwrap();
        if key > 1_000 && key % 777 == 0 {
            assert!(world.load() > 0.9, "{} after {key}", world.load());
            let slots = world.index.usage() / 64 * SLOTS;
            assert!(world.index.len() as f64 / slots as f64 > 0.9 * 8.0 / 9.0, "{:?}", world.index);
        }
    }
    // Inserts alone have kept the table at its target load: few entries are left in the stash for background work.
    assert!(world.index.stash.len() < 20, "{:?}", world.index);
    world.settle();
    assert_eq!(world.index.stash.len(), 0);
    world.check();
}

#[test]
fn most_lookups_end_at_home() {
    let mut world = World::new(8, good);
    (0..100_000).for_each(|key| world.put(key).unwrap());
    let table = &world.index.table;
    let names = |key| {
        let hash = super::KeyHash(good(key));
        table.read(table.address(hash.home())).summary.has(hash.route())
    };
    let misses = (100_000..200_000).filter(|&key| names(key)).count();
    assert!(misses < 8_000, "{misses} of 100,000 misses read a second line");
}

#[test]
fn memory_follows_what_lives() {
    let mut world = World::new(8, good);
    (0..100_000).for_each(|key| world.put(key).unwrap());
    (1_000..100_000).for_each(|key| world.remove(key));
    // The table has shrunk during the removals, without background work.
    assert!(world.load() > 0.6, "{:?}", world.index);
    world.settle();
    assert!(world.index.usage() < 1_000 * 64 / SLOTS * 10 / 6 * 9 / 8 + 256, "{}", world.index.usage());
    world.check();
    (0..1_000).for_each(|key| world.remove(key));
    assert_eq!((world.index.usage(), world.pool.bytes_used()), (0, 0));
    world.check();
}

#[test]
fn keys_that_all_collide_are_taken() {
    let mut world = World::new(4, |_| 12345);
    (0..2_000).for_each(|key| world.put(key).unwrap());
    // The table does not grow further when it is less than half full; the remaining entries are in the stash, whose
    // memory is charged to the pool.
    let (slots, usage) = (world.index.slots(), world.index.usage());
    assert!(slots < 2_000 * 2 + SLOTS, "{:?}", world.index);
    assert!((32 * 2_000..100 * 2_000).contains(&usage), "{usage} bytes: {:?}", world.index);
    world.settle();
    world.check();
    (0..1_995).for_each(|key| world.remove(key));
    world.settle();
    assert_eq!(world.index.stash.len(), 0, "{:?}", world.index);
    world.check();
    (1_995..2_000).for_each(|key| world.remove(key));
    assert_eq!((world.index.usage(), world.pool.bytes_used()), (0, 0));
}

/// 100,000 keys, almost all of which are removed and inserted again in the order of a scan of the same table.
#[test]
fn a_table_takes_keys_in_the_order_of_its_own_scan() {
    let mut world = World::new(8, good);
    (0..100_000).for_each(|key| world.put(key).unwrap());
    let order: Vec<u64> = world.scan().iter().map(|place| world.keys[place.to_bits() as usize]).collect();
    let (gone, kept) = order.split_at(99_990);
    gone.iter().for_each(|key| world.remove(*key));
    world.settle();
    let mut most = 0;
    for key in gone {
        world.put(*key).unwrap();
        most = most.max(world.index.stash.len());
    }
    assert!(kept.iter().all(|key| world.find(*key).is_some()));
    assert!(most < 2_000, "{most} in the stash");
    world.settle();
    assert_eq!(world.index.stash.len(), 0, "{:?}", world.index);
    world.check();
}

#[test]
fn every_index_has_an_order_of_its_own() {
    let orders = IndexOrders::new(KeyHasher::new([3; 16]), "tenant");
    let of_other = IndexOrders::new(KeyHasher::new([3; 16]), "other");
    let hashes: Vec<u64> = (0..100_000).map(good).collect();
    let mut all = vec![of_other.next()];
    all.extend((0..20).map(|_| orders.next()));
    let emptied = all[0].next();
    all.push(emptied);
    for (at, first) in all.iter().enumerate() {
        // The keys of one 64th of the buckets of one index must be spread over all buckets of another.
        let of_scan: Vec<u64> = hashes.iter().copied().filter(|hash| first.of(*hash) % 64 == 5).collect();
        for second in &all[at + 1..] {
            let mut counts = [0usize; 16];
            of_scan.iter().for_each(|hash| counts[(second.of(*hash) % 16) as usize] += 1);
            let (least, most) = (counts.iter().min().unwrap(), counts.iter().max().unwrap());
            assert!(
                *least > 40 && *most < 160,
                "{counts:?} of {} for {first:?} and {second:?}",
                of_scan.len()
            );
        }
        assert!(hashes.iter().all(|hash| first.inverse(first.of(*hash)) == *hash));
    }
}

#[test]
fn a_pool_without_memory_is_used_up_first() {
    let refusing = Arc::new(Refusing::default());
    let mut world = World::failing(4, good, Some(Arc::clone(&refusing) as Arc<dyn Failures>));
    (0..10_000).for_each(|key| world.put(key).unwrap());
    refusing.0.store(true, Ordering::Relaxed);
    let error = (10_000..).find_map(|key| world.put(key).err()).unwrap();
    assert_eq!((error.kind, error.message.contains("made to fail")), (ErrorKind::OverLimit, true), "{error}");
    assert!(world.load() > 0.94, "{:?}", world.index);
    assert!(world.step(100).is_err());
    world.check();
    refusing.0.store(false, Ordering::Relaxed);
    world.settle();
    assert!(world.load() < 0.93, "{:?}", world.index);
    (0..12_000).for_each(|key| world.put(key).unwrap());
    world.check();
}

#[test]
fn a_small_pool_is_filled_and_can_be_emptied() {
    let mut world = World::new(1, good);
    let error = (0..).find_map(|key| world.put(key).err()).unwrap();
    assert_eq!(error.kind, ErrorKind::OverLimit);
    assert!(error.message.contains("the pool cannot give"), "{error}");
    assert!(world.map.len() * 10 > 1 << 20, "{:?}", world.index);
    world.check();
    let keys: Vec<u64> = world.map.keys().copied().collect();
    for key in keys {
        world.remove(key);
    }
    assert_eq!((world.index.usage(), world.pool.bytes_used()), (0, 0));
}

#[test]
fn random_entries_are_of_all() {
    let mut world = World::new(4, good);
    (0..100).for_each(|key| world.put(key).unwrap());
    let seen: HashSet<EntryAddress> = (0..5_000).filter_map(|random| world.index.any(random)).collect();
    assert_eq!(seen, world.map.values().copied().collect());
}

#[test]
fn the_hash_is_siphash_1_3() {
    use std::hash::Hasher;
    let mut standard = std::collections::hash_map::DefaultHasher::new();
    standard.write(b"user:1");
    assert_eq!(KeyHasher::new([0; 16]).hash(b"user:1"), standard.finish());
    let secret = KeyHasher::new([42; 16]);
    assert_ne!(secret.hash(b"user:1"), standard.finish());
    assert_eq!(format!("{secret:?}"), "KeyHasher(..)");
}

#[test]
fn a_table_for_keys_that_are_expected_does_not_grow_again() {
    let mut world = World::new(8, |key| key.wrapping_mul(0x9E37_79B9_7F4A_7C15));
    world.index.expect(50_000, |_| unreachable!("there are no entries yet"));
    let before = world.index.usage();
    for key in 0..50_000 {
        let place = world.place(key);
        let hash = world.given();
        let World { index, keys, .. } = &mut world;
        index.insert(hash(key), place, |place| hash(keys[place.to_bits() as usize])).unwrap();
    }
    assert_eq!(world.index.usage(), before);
    assert!((0..50_000).all(|key| world.find(key).is_some()));
    // A request for more than the pool's memory grows the table as far as possible and does not fail.
    let hash = world.given();
    world.index.expect(usize::MAX, |place| hash(world.keys[place.to_bits() as usize]));
    assert!(world.find(7).is_some());
}
