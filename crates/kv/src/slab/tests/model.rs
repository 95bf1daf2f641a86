//! Tests of the slab allocator by random operations, compared with a map from addresses of slots to their contents.

use super::*;
use proptest::prelude::*;

#[derive(Clone, Debug)]
enum Step {
    Allocate { bytes: usize, count: usize },
    Free { from: usize, count: usize },
    Retire { from: usize, count: usize },
    Reclaim { from: usize, count: usize },
    Compact { moves: usize, retires: bool },
    StopMoving,
    Trim,
}

fn step() -> impl Strategy<Value = Step> {
    let bytes = prop_oneof![8 => 0..1200usize, 2 => 1200..17_000usize, 1 => 17_000..200_000usize];
    let some = || (any::<usize>(), 1..400usize);
    prop_oneof![
        5 => (bytes, 1..300usize).prop_map(|(bytes, count)| Step::Allocate { bytes, count }),
        4 => some().prop_map(|(from, count)| Step::Free { from, count }),
        2 => some().prop_map(|(from, count)| Step::Retire { from, count }),
        2 => some().prop_map(|(from, count)| Step::Reclaim { from, count }),
        2 => (1..300usize, any::<bool>()).prop_map(|(moves, retires)| Step::Compact { moves, retires }),
        1 => Just(Step::StopMoving),
        1 => Just(Step::Trim),
    ]
}

/// The expected contents of a slot.
struct Entry {
    bytes: usize,
    mark: u64,
}

struct World {
    slabs: Slabs,
    pool: Arc<Pool>,
    live: BTreeMap<u64, Entry>,
    retired: BTreeMap<u64, Entry>,
    marks: u64,
}

impl World {
    fn new() -> World {
        let pool = pool(3);
        let slabs = slabs_of(&pool);
        World { slabs, pool, live: BTreeMap::new(), retired: BTreeMap::new(), marks: 0 }
    }

    fn allocate(&mut self, bytes: usize) -> bool {
        let before = self.slabs.usage();
        let place = match self.slabs.allocate(bytes) {
            Ok(place) => place,
            Err(error) => {
                assert_eq!(error.kind, ErrorKind::OverLimit);
                assert_eq!(self.slabs.usage(), before);
                return false;
            }
        };
        self.marks += 1;
        let entry = Entry { bytes, mark: self.marks };
        fill(self.slabs.bytes_mut(place), &entry);
        assert!(!self.retired.contains_key(&place.to_bits()));
        assert!(self.live.insert(place.to_bits(), entry).is_none(), "a place is given once");
        true
    }

    fn carry_out(&mut self, step: &Step) {
        match *step {
            Step::Allocate { bytes, count } => {
                let _ = (0..count).all(|_| self.allocate(bytes));
            }
            Step::Free { from, count } => {
                for bits in some_of(&self.live, from, count) {
                    self.check_and_remove(bits, true);
                    self.slabs.free(EntryAddress::from_bits(bits));
                }
            }
            Step::Retire { from, count } => {
                for bits in some_of(&self.live, from, count) {
                    self.slabs.retire(EntryAddress::from_bits(bits));
                    let entry = self.live.remove(&bits).unwrap();
                    self.retired.insert(bits, entry);
                }
            }
            Step::Reclaim { from, count } => {
                for bits in some_of(&self.retired, from, count) {
                    self.check_and_remove(bits, false);
                    self.slabs.reclaim(EntryAddress::from_bits(bits));
                }
            }
            Step::Compact { moves, retires } => {
                let _ = (0..moves).all(|_| self.move_one(retires));
            }
            Step::StopMoving => self.slabs.stop_moving(),
            Step::Trim => self.slabs.trim(),
        }
    }

    fn check_and_remove(&mut self, bits: u64, is_live: bool) {
        let map = if is_live { &mut self.live } else { &mut self.retired };
        let entry = map.remove(&bits).unwrap();
        check(self.slabs.bytes(EntryAddress::from_bits(bits)), &entry);
    }

    fn move_one(&mut self, retires: bool) -> bool {
        let Some(old) = self.slabs.to_move() else { return false };
        let entry = self.live.remove(&old.to_bits()).expect("what moves is written");
        let bytes = self.slabs.bytes(old).to_vec();
        let new = self.slabs.allocate(entry.bytes).expect("there is room for what moves");
        assert_ne!(new.page(), old.page(), "nothing is allocated in a page that is emptied");
        self.slabs.bytes_mut(new).copy_from_slice(&bytes);
        if retires {
            self.slabs.retire(old);
            self.retired.insert(old.to_bits(), Entry { ..entry });
        } else {
            self.slabs.free(old);
        }
        assert!(self.live.insert(new.to_bits(), entry).is_none());
        true
    }

    fn check(&self) {
        for (bits, entry) in self.live.iter().chain(&self.retired) {
            check(self.slabs.bytes(EntryAddress::from_bits(*bits)), entry);
        }
        let usage = self.slabs.usage();
        assert_eq!((usage.slots_used, usage.slots_retired), (self.live.len(), self.retired.len()));
        assert!(usage.slots_bytes <= usage.pages_bytes);
        assert!(usage.pages_bytes as u64 <= self.pool.usage().bytes_used);
        let places =
            |places: &[EntryAddress]| places.iter().map(|place| place.to_bits()).collect::<BTreeSet<_>>();
        let keys = |map: &BTreeMap<u64, Entry>| map.keys().copied().collect::<BTreeSet<_>>();
        assert_eq!(places(&written(&self.slabs, 17)), keys(&self.live));
        let (mut retired, mut kept) = (Vec::new(), Vec::new());
        self.slabs.retired_from(SlabCursor::default(), 1 << 20, &mut retired);
        self.slabs.kept_from(SlabCursor::default(), 1 << 20, &mut kept);
        assert_eq!(places(&retired), keys(&self.retired));
        assert_eq!(kept.len(), self.live.len() + self.retired.len());
    }
}

/// Returns up to `count` consecutive keys of the map, beginning at the index `from` modulo the number of keys.
fn some_of(map: &BTreeMap<u64, Entry>, from: usize, count: usize) -> Vec<u64> {
    map.keys().copied().skip(from % map.len().max(1)).take(count).collect()
}

/// Fills the slot with the entry's mark at both ends and every 64 bytes, so that overlapping slots are detected.
fn fill(bytes: &mut [u8], entry: &Entry) {
    bytes.chunks_mut(64).for_each(|chunk| chunk[..8].copy_from_slice(&entry.mark.to_le_bytes()));
    *bytes.last_mut().unwrap() = entry.mark as u8;
}

fn check(bytes: &[u8], entry: &Entry) {
    assert!(bytes.len() >= entry.bytes);
    assert!(bytes.chunks(64).all(|chunk| chunk[..8] == entry.mark.to_le_bytes()));
    assert_eq!(*bytes.last().unwrap(), entry.mark as u8);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 96, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn slabs_do_what_a_map_does(steps in prop::collection::vec(step(), 1..80)) {
        let mut world = World::new();
        for step in &steps {
            world.carry_out(step);
            world.check();
        }
        let (live, retired) = (some_of(&world.live, 0, usize::MAX), some_of(&world.retired, 0, usize::MAX));
        live.into_iter().for_each(|bits| world.slabs.free(EntryAddress::from_bits(bits)));
        retired.into_iter().for_each(|bits| world.slabs.reclaim(EntryAddress::from_bits(bits)));
        world.slabs.trim();
        prop_assert_eq!(world.slabs.usage().pages_bytes, 0);
        prop_assert_eq!(world.pool.usage().bytes_used, 0);
    }
}
