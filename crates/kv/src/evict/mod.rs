//! Eviction policies: Redis' policies under Redis' names.
//!
//! As in Redis, a few entries are sampled, and the best candidates for eviction stay in a small pool from which the
//! next victim is taken. This comes close to an exact order of all entries, which would cost 16 bytes or more per entry
//! (Redis' `maxmemory-samples` 5 and pool of 16). An entry needs only the 12 spare bits of its header for a [`Stamp`].
//! The pool names entries by hash, so a candidate may have been removed or used since; that is checked when it is
//! taken.
//!
//! Protocol for the entries of a shard, whose spaces all share one [`Evictor`]:
//! - A written entry gets the stamp [`Evictor::written`], one that is read gets [`Evictor::read`], stored only if it
//!   differs. Neither is called where [`Policy::needs_stamps`] is false.
//! - From time to time, [`Evictor::pass`] is called, and as many entries as [`Evictor::sweep_due`] says are visited in
//!   memory order; their stamps become [`Evictor::swept`]. [`Evictor::sweep_done`] follows at the end of all entries.
//! - When memory runs out, [`SAMPLES`] entries are given to [`Evictor::offer`], and [`Evictor::take`] names the victim.
//!   This repeats until there is memory, or until the policy has no victim and the command is refused.
//!
//! Victims depend on reads and on random numbers. Where the same state must be rebuilt (the log, snapshots), the
//! evicted keys are recorded, not the reads.

mod clock;
#[cfg(test)]
mod tests;

pub use clock::{STAMP_BITS, Stamp};

use clock::{CountClock, UseClock};

/// Number of entries sampled for each victim; Redis' `maxmemory-samples`.
pub const SAMPLES: usize = 5;

/// Capacity of the pool of candidates; Redis' `EVPOOL_SIZE`.
const CANDIDATES: usize = 16;

/// An eviction policy: the choice of keys to evict when memory is full.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Policy {
    /// Evicts nothing: commands that need memory are refused.
    #[default]
    NoEviction,
    /// Evicts the least recently used keys.
    AllKeysLru,
    /// Evicts the least frequently used keys.
    AllKeysLfu,
    /// Evicts random keys.
    AllKeysRandom,
    /// Evicts the least recently used of the keys that have an expiry.
    VolatileLru,
    /// Evicts the least frequently used of the keys that have an expiry.
    VolatileLfu,
    /// Evicts random keys that have an expiry.
    VolatileRandom,
    /// Evicts the keys that expire soonest.
    VolatileTtl,
}

impl Policy {
    /// All policies.
    pub const ALL: [Policy; 8] = [
        Policy::NoEviction,
        Policy::AllKeysLru,
        Policy::AllKeysLfu,
        Policy::AllKeysRandom,
        Policy::VolatileLru,
        Policy::VolatileLfu,
        Policy::VolatileRandom,
        Policy::VolatileTtl,
    ];

    /// Returns the name that `CONFIG GET maxmemory-policy` reports.
    pub fn name(self) -> &'static str {
        match self {
            Policy::NoEviction => "noeviction",
            Policy::AllKeysLru => "allkeys-lru",
            Policy::AllKeysLfu => "allkeys-lfu",
            Policy::AllKeysRandom => "allkeys-random",
            Policy::VolatileLru => "volatile-lru",
            Policy::VolatileLfu => "volatile-lfu",
            Policy::VolatileRandom => "volatile-random",
            Policy::VolatileTtl => "volatile-ttl",
        }
    }

    /// Returns the policy with this name; case is ignored.
    pub fn of_name(name: &[u8]) -> Option<Self> {
        Policy::ALL.into_iter().find(|policy| policy.name().as_bytes().eq_ignore_ascii_case(name))
    }

    /// Returns the position in [`Policy::ALL`].
    pub(crate) fn number(self) -> u8 {
        self as u8
    }

    /// Returns whether only keys with an expiry may be evicted.
    pub fn is_volatile(self) -> bool {
        match self {
            Policy::NoEviction | Policy::AllKeysLru | Policy::AllKeysLfu | Policy::AllKeysRandom => false,
            Policy::VolatileLru | Policy::VolatileLfu | Policy::VolatileRandom | Policy::VolatileTtl => true,
        }
    }

    /// Returns whether the policy depends on when or how often entries are used. If not, reads write no stamps.
    pub fn needs_stamps(self) -> bool {
        match self {
            Policy::AllKeysLru | Policy::AllKeysLfu | Policy::VolatileLru | Policy::VolatileLfu => true,
            Policy::NoEviction | Policy::AllKeysRandom | Policy::VolatileRandom | Policy::VolatileTtl => {
                false
            }
        }
    }
}

/// The properties of an entry that its eviction score depends on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EvictionFacts {
    /// Stamp in the entry's header.
    pub stamp: Stamp,
    /// Expiry in milliseconds since the epoch.
    pub expiry: Option<u64>,
}

/// An entry in the pool of candidates.
#[derive(Clone, Copy, Debug)]
struct Candidate<K> {
    key: K,
    facts: EvictionFacts,
    /// Eviction score: the highest score is evicted first.
    score: u64,
}

/// The measure of use that the policy needs.
#[derive(Clone, Debug)]
enum UseTracker {
    /// No measure: the policy picks keys without regard to their use.
    None,
    Use(UseClock),
    Count(CountClock),
}

/// Chooses victims among the entries of a shard. `K` identifies an entry by the number of its space and the hash of its
/// key, so that it can be looked up without a copy of the key.
#[derive(Clone, Debug)]
pub struct Evictor<K> {
    policy: Policy,
    clock: UseTracker,
    /// Sorted by ascending score; the last one is evicted first.
    candidates: Vec<Candidate<K>>,
}

impl<K: Copy + PartialEq> Evictor<K> {
    /// Creates an evictor at `now`, in milliseconds since the epoch. After a change of policy, entries still carry
    /// stamps of the old one, which are meaningless until the entry is used again. The caller may store
    /// [`Evictor::written`] in all entries, or accept badly chosen victims at first, as Redis does.
    pub fn new(policy: Policy, now: u64) -> Self {
        let clock = match policy {
            Policy::AllKeysLru | Policy::VolatileLru => UseTracker::Use(UseClock::new(now)),
            Policy::AllKeysLfu | Policy::VolatileLfu => UseTracker::Count(CountClock::new(now)),
            Policy::NoEviction | Policy::AllKeysRandom | Policy::VolatileRandom | Policy::VolatileTtl => {
                UseTracker::None
            }
        };
        Evictor { policy, clock, candidates: Vec::new() }
    }

    /// Returns the policy.
    pub fn policy(&self) -> Policy {
        self.policy
    }

    /// Returns the stamp of a newly written entry. `entries` is the number of entries in the shard.
    #[inline]
    pub fn written(&mut self, entries: usize, now: u64) -> Stamp {
        match &mut self.clock {
            UseTracker::None => Stamp::default(),
            UseTracker::Use(clock) => clock.used(entries, now),
            UseTracker::Count(clock) => clock.new_stamp(),
        }
    }

    /// Returns the stamp of an entry after it was read or overwritten.
    #[inline]
    pub fn read(&mut self, stamp: Stamp, entries: usize, random: u32, now: u64) -> Stamp {
        match &mut self.clock {
            UseTracker::None => stamp,
            UseTracker::Use(clock) => clock.used(entries, now),
            UseTracker::Count(clock) => clock.used(stamp, random),
        }
    }

    /// Advances the clock to `now`.
    pub fn pass(&mut self, now: u64) {
        match &mut self.clock {
            UseTracker::None => {}
            UseTracker::Use(clock) => clock.pass(now),
            UseTracker::Count(clock) => clock.pass(now),
        }
    }

    /// Returns how many entries the running sweep should have visited by now. The result exceeds `entries` when the
    /// sweep is late; ages are then less precise until it ends, and nothing else breaks.
    pub fn sweep_due(&self, entries: usize) -> usize {
        match &self.clock {
            UseTracker::None => 0,
            UseTracker::Use(clock) => clock.sweep.due(entries),
            UseTracker::Count(clock) => clock.sweep.due(entries),
        }
    }

    /// Returns the stamp of an entry after the sweep visits it.
    pub fn swept(&self, stamp: Stamp) -> Stamp {
        match &self.clock {
            UseTracker::None => stamp,
            UseTracker::Use(clock) => clock.swept(stamp),
            UseTracker::Count(clock) => clock.swept(stamp),
        }
    }

    /// Notes that the sweep has visited all entries; the next sweep begins.
    pub fn sweep_done(&mut self) {
        match &mut self.clock {
            UseTracker::None => {}
            UseTracker::Use(clock) => clock.sweep.done(),
            UseTracker::Count(clock) => clock.sweep.done(),
        }
    }

    /// Returns the seconds since an entry was used, for `OBJECT IDLETIME`; `None` unless the policy is an LRU one.
    pub fn idle_seconds(&self, stamp: Stamp, now: u64) -> Option<u64> {
        match &self.clock {
            UseTracker::Use(clock) => Some(clock.idle_seconds(stamp, now)),
            UseTracker::None | UseTracker::Count(_) => None,
        }
    }

    /// Returns the counter of an entry, for `OBJECT FREQ`; `None` unless the policy is an LFU one.
    pub fn frequency(&self, stamp: Stamp) -> Option<u8> {
        match &self.clock {
            UseTracker::Count(clock) => Some(clock.counter(stamp)),
            UseTracker::None | UseTracker::Use(_) => None,
        }
    }

    /// Offers a randomly sampled entry as a candidate; returns whether the policy may evict it.
    pub fn offer(&mut self, key: K, facts: EvictionFacts) -> bool {
        let Some(score) = self.score(facts) else { return false };
        self.candidates.retain(|other| other.key != key);
        let at = self.candidates.partition_point(|other| other.score <= score);
        if self.candidates.len() == CANDIDATES {
            if at == 0 {
                return true;
            }
            self.candidates.remove(0);
            self.candidates.insert(at - 1, Candidate { key, facts, score });
        } else {
            self.candidates.insert(at, Candidate { key, facts, score });
        }
        true
    }

    fn score(&self, facts: EvictionFacts) -> Option<u64> {
        if self.policy.is_volatile() && facts.expiry.is_none() {
            return None;
        }
        Some(match (&self.clock, self.policy) {
            (_, Policy::NoEviction) => return None,
            (UseTracker::Use(clock), _) => clock.age(facts.stamp).into(),
            (UseTracker::Count(clock), _) => (u8::MAX - clock.counter(facts.stamp)).into(),
            (UseTracker::None, Policy::VolatileTtl) => u64::MAX - facts.expiry?,
            (UseTracker::None, _) => 0,
        })
    }

    /// Takes the next victim: the candidate with the highest score whose facts, as told by `current`, have not changed
    /// since it was offered. Changed candidates are dropped. Returns `None` when the pool is empty and more entries
    /// must be offered.
    ///
    /// Without that check, an entry that was read after it was offered would be evicted as the coldest one.
    pub fn take(&mut self, mut current: impl FnMut(K) -> Option<EvictionFacts>) -> Option<K> {
        while let Some(Candidate { key, facts, .. }) = self.candidates.pop() {
            let is_same = current(key).is_some_and(|now| {
                self.swept(now.stamp) == self.swept(facts.stamp) && now.expiry == facts.expiry
            });
            if is_same {
                return Some(key);
            }
        }
        None
    }
}
