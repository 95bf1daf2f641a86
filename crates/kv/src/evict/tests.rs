//! Tests of eviction: hit rates compared with caches that evict exactly the least recently or least frequently used
//! key, and the keys that each policy chooses.

use super::*;
use std::collections::{BTreeSet, HashMap};

const NOW: u64 = 1_700_000_000_000;

/// A pseudo-random number generator with a fixed seed (Marsaglia's xorshift).
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    fn below(&mut self, end: usize) -> usize {
        (self.next() % end as u64) as usize
    }
}

/// A generator of keys with Zipf's distribution.
struct Zipf(Vec<f64>);

impl Zipf {
    fn new(keys: usize, exponent: f64) -> Self {
        let mut sum = 0.0;
        let sums = (1..=keys).map(|rank| {
            sum += (rank as f64).powf(-exponent);
            sum
        });
        Zipf(sums.collect())
    }

    fn key(&self, random: &mut Random) -> u64 {
        let at = random.next() as f64 / u64::MAX as f64 * self.0[self.0.len() - 1];
        self.0.partition_point(|sum| *sum < at) as u64
    }
}

/// A cache of limited size that inserts a key when it is not found, evicting another.
trait Cache {
    /// Uses a key; returns whether it was a hit.
    fn use_key(&mut self, key: u64, now: u64) -> bool;
}

struct Entry {
    key: u64,
    facts: EvictionFacts,
}

/// A cache with a limited number of entries that uses an [`Evictor`] as a shard of the key-value store does.
struct Evicting {
    evictor: Evictor<u64>,
    capacity: usize,
    entries: Vec<Entry>,
    places: HashMap<u64, usize>,
    random: Random,
    swept: usize,
    sweeps: bool,
    /// Every `expiring`-th key has an expiry.
    expiring: u64,
}

impl Evicting {
    fn new(policy: Policy, capacity: usize) -> Self {
        let evictor = Evictor::new(policy, NOW);
        let (entries, places) = (Vec::new(), HashMap::new());
        Evicting {
            evictor,
            capacity,
            entries,
            places,
            random: Random(1),
            swept: 0,
            sweeps: true,
            expiring: 1,
        }
    }

    fn sweep(&mut self, now: u64) {
        self.evictor.pass(now);
        while self.sweeps && self.swept < self.evictor.sweep_due(self.entries.len()) {
            match self.entries.get_mut(self.swept) {
                Some(entry) => entry.facts.stamp = self.evictor.swept(entry.facts.stamp),
                None => {
                    self.swept = 0;
                    self.evictor.sweep_done();
                    continue;
                }
            }
            self.swept += 1;
        }
    }

    fn evict(&mut self) -> Option<u64> {
        let key = loop {
            let mut offered = 0;
            for _ in 0..100 * SAMPLES {
                let entry = &self.entries[self.random.below(self.entries.len())];
                offered += usize::from(self.evictor.offer(entry.key, entry.facts));
                if offered == SAMPLES {
                    break;
                }
            }
            let (places, entries) = (&self.places, &self.entries);
            let current = |key: u64| Some(entries[*places.get(&key)?].facts);
            match self.evictor.take(current) {
                Some(key) => break key,
                None if offered == 0 => return None,
                None => {}
            }
        };
        let place = self.places.remove(&key)?;
        self.entries.swap_remove(place);
        if let Some(moved) = self.entries.get(place) {
            self.places.insert(moved.key, place);
        }
        Some(key)
    }
}

impl Cache for Evicting {
    fn use_key(&mut self, key: u64, now: u64) -> bool {
        self.sweep(now);
        let random = (self.random.next() >> 32) as u32;
        if let Some(place) = self.places.get(&key) {
            let stamp = &mut self.entries[*place].facts.stamp;
            *stamp = self.evictor.read(*stamp, self.places.len(), random, now);
            return true;
        }
        if self.entries.len() == self.capacity {
            self.evict().expect("something can go");
        }
        let stamp = self.evictor.written(self.entries.len() + 1, now);
        let expiry = key.is_multiple_of(self.expiring).then_some(NOW + key);
        self.places.insert(key, self.entries.len());
        self.entries.push(Entry { key, facts: EvictionFacts { stamp, expiry } });
        false
    }
}

/// The reference cache: keeps an exact order of all entries and evicts the entry with the lowest rank.
struct Ordered {
    capacity: usize,
    ranks: HashMap<u64, (u64, u64)>,
    order: BTreeSet<((u64, u64), u64)>,
    uses: u64,
    counts: bool,
}

impl Ordered {
    fn new(capacity: usize, counts: bool) -> Self {
        Ordered { capacity, ranks: HashMap::new(), order: BTreeSet::new(), uses: 0, counts }
    }
}

impl Cache for Ordered {
    fn use_key(&mut self, key: u64, _: u64) -> bool {
        self.uses += 1;
        let before = self.ranks.get(&key).copied();
        match before {
            Some(rank) => drop(self.order.remove(&(rank, key))),
            None if self.ranks.len() == self.capacity => {
                let (_, victim) = self.order.pop_first().unwrap();
                self.ranks.remove(&victim);
            }
            None => {}
        }
        let count = if self.counts { before.map_or(1, |(count, _)| count + 1) } else { 0 };
        let rank = (count, self.uses);
        self.ranks.insert(key, rank);
        self.order.insert((rank, key));
        before.is_some()
    }
}

/// Returns the hit rate of 150,000 uses of 20,000 keys with Zipf's distribution, after as many uses for warm-up. A
/// thousand uses take a second.
fn hits(cache: &mut dyn Cache, exponent: f64) -> f64 {
    const USES: u64 = 150_000;
    let (zipf, mut random) = (Zipf::new(20_000, exponent), Random(88_172_645_463_325_252));
    let mut use_all = |from: u64| {
        (from..from + USES).filter(|time| cache.use_key(zipf.key(&mut random), NOW + time)).count()
    };
    use_all(0);
    use_all(USES) as f64 / USES as f64
}

#[test]
fn hit_rates_are_near_those_of_true_orders() {
    for (exponent, capacity) in [(0.99, 2000), (0.99, 200), (0.7, 4000), (1.2, 1000)] {
        let of = |policy| hits(&mut Evicting::new(policy, capacity), exponent);
        let (lru, lfu) = (of(Policy::AllKeysLru), of(Policy::AllKeysLfu));
        let any = of(Policy::AllKeysRandom);
        let true_lru = hits(&mut Ordered::new(capacity, false), exponent);
        let true_lfu = hits(&mut Ordered::new(capacity, true), exponent);
        println!(
            "Zipf {exponent}, {capacity} of 20,000: LRU {lru:.4} of {true_lru:.4}, LFU {lfu:.4} of {true_lfu:.4}, random {any:.4}"
        );
        assert!((lru - true_lru).abs() < 0.01, "LRU {lru} of {true_lru}");
        assert!(lfu > true_lru && lfu > true_lfu - 0.03, "LFU {lfu} of {true_lfu}");
        assert!(any < lru - 0.01, "random {any}, LRU {lru}");
    }
}

#[test]
fn what_is_old_stays_old_however_long_that_is() {
    for sweeps in [true, false] {
        let mut cache = Evicting::new(Policy::AllKeysLru, 1000);
        cache.sweeps = sweeps;
        assert!((0..1000).all(|key| !cache.use_key(key, NOW)));
        // Half of the keys stay unused for longer than the clock of stamps can represent.
        for time in 0..400_000 {
            assert!(cache.use_key(500 + time % 500, NOW + time));
        }
        let evicted: Vec<u64> = (0..400).map(|_| cache.evict().unwrap()).collect();
        assert!(evicted.iter().all(|key| *key < 500), "{sweeps}: {evicted:?}");
    }
}

#[test]
fn it_is_known_how_long_entries_were_not_used() {
    let mut evictor = Evictor::<u64>::new(Policy::AllKeysLru, NOW);
    let stamp = evictor.written(1_000_000, NOW);
    assert_eq!(evictor.idle_seconds(stamp, NOW), Some(0));
    // An hour passes without any use.
    (1..3600).for_each(|second| evictor.pass(NOW + second * 1000));
    let idle = evictor.idle_seconds(stamp, NOW + 3_600_000).unwrap();
    assert!((3300..=3600).contains(&idle), "{idle}");
    let used = evictor.read(stamp, 1_000_000, 0, NOW + 3_600_000);
    assert_eq!(evictor.idle_seconds(used, NOW + 3_600_000), Some(0));
    assert_eq!(evictor.frequency(stamp), None);
}

#[test]
fn counters_grow_ever_slower_and_decay_with_time() {
    let mut evictor = Evictor::<u64>::new(Policy::AllKeysLfu, NOW);
    let mut random = Random(7);
    let mut stamp = evictor.written(1, NOW);
    let mut counters = Vec::new();
    for uses in 1..=1_000_000 {
        stamp = evictor.read(stamp, 1, (random.next() >> 32) as u32, NOW);
        if [1, 100, 1000, 100_000, 1_000_000].contains(&uses) {
            counters.push(evictor.frequency(stamp).unwrap());
        }
    }
    // After 100, 1,000, 100,000 and 1,000,000 uses, the counter must be near the values in Redis' documentation for a
    // `lfu-log-factor` of 10: 10, 18, 142, 255.
    assert_eq!(counters[0], 6);
    assert!((8..=12).contains(&counters[1]) && (15..=23).contains(&counters[2]), "{counters:?}");
    assert!((125..=160).contains(&counters[3]) && counters[4] == 255, "{counters:?}");
    for minutes in 1..=4 {
        evictor.pass(NOW + minutes * 60_000 + 1);
        assert_eq!(evictor.frequency(stamp), Some(255 - minutes as u8));
    }
    // The counter no longer decays, because the clock stands still when no sweep corrects stamps; ages would wrap
    // around otherwise.
    assert!(evictor.sweep_due(100) >= 100);
    evictor.pass(NOW + 100 * 60_000);
    assert_eq!(evictor.frequency(stamp), Some(251));
    stamp = evictor.swept(stamp);
    evictor.sweep_done();
    evictor.pass(NOW + 102 * 60_000);
    assert_eq!(evictor.frequency(stamp), Some(249));
    assert_eq!(evictor.idle_seconds(stamp, NOW), None);
}

fn facts(stamp: Stamp, expiry: Option<u64>) -> EvictionFacts {
    EvictionFacts { stamp, expiry }
}

#[test]
fn only_keys_that_expire_go_where_the_policy_says_so() {
    for policy in Policy::ALL {
        let mut evictor = Evictor::new(policy, NOW);
        assert_eq!(Policy::of_name(policy.name().to_uppercase().as_bytes()), Some(policy));
        let stamp = evictor.written(1, NOW);
        assert_eq!(evictor.offer(1, facts(stamp, None)), policy.name().starts_with("allkeys"));
        assert_eq!(evictor.offer(2, facts(stamp, Some(5))), policy != Policy::NoEviction);
        assert_eq!(policy.needs_stamps(), policy.name().ends_with("lru") || policy.name().ends_with("lfu"));
    }
    assert_eq!(Policy::of_name(b"lru"), None);
    let mut cache = Evicting::new(Policy::VolatileLru, 1000);
    cache.expiring = 10;
    assert!((0..1000).all(|key| !cache.use_key(key, NOW)));
    assert!((0..100).all(|_| cache.evict().unwrap().is_multiple_of(10)));
    assert_eq!(cache.evict(), None);
}

#[test]
fn the_soonest_to_expire_of_all_that_were_offered_goes() {
    let mut evictor = Evictor::new(Policy::VolatileTtl, NOW);
    for key in 0..100_u64 {
        assert!(evictor.offer(key, facts(Stamp::default(), Some(1000 - key * 7 % 100))));
    }
    let current = |key: u64| Some(facts(Stamp::default(), Some(1000 - key * 7 % 100)));
    let taken: Vec<u64> = std::iter::from_fn(|| evictor.take(current)).map(|key| key * 7 % 100).collect();
    assert_eq!(taken, (84..100).rev().collect::<Vec<u64>>());
}

#[test]
fn candidates_that_are_gone_or_were_used_are_passed_over() {
    let mut evictor = Evictor::new(Policy::AllKeysLru, NOW);
    let old: Vec<Stamp> = (0..4).map(|_| evictor.written(1, NOW)).collect();
    let now = evictor.written(1, NOW);
    assert!((0..4).all(|key| evictor.offer(key, facts(old[key], None))));
    // Offering an entry a second time does not add a second candidate.
    evictor.offer(2, facts(old[2], None));
    let taken: Vec<usize> = std::iter::from_fn(|| {
        evictor.take(|key| match key {
            0 => None,
            1 => Some(facts(now, None)),
            key => Some(facts(old[key], None)),
        })
    })
    .collect();
    assert_eq!(taken, [2, 3]);
    assert_eq!(Stamp::from_bits(now.bits()), now);
    assert_eq!(now.bits() >> STAMP_BITS, 0);
}
