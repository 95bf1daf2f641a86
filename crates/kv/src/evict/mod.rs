//! Eviction: the choice of keys to remove when memory is full, by the policies of Redis under their names.
//!
//! As in Redis, a few random entries are sampled, and the best candidates for eviction stay in a small pool, from which
//! the next victim is taken (Redis' `maxmemory-samples` 5, and a pool of 16). This is nearly as good as an exact order
//! (LRU or LFU) of all entries, which would take 16 bytes or more per entry. Here an entry needs only 12 bits of its
//! header, its [`Stamp`]. The pool identifies entries by hash, so a candidate may have been removed or used since it
//! was sampled; this is checked when it is taken.
//!
//! What a shard, whose spaces share one [`Evictor`], must do:
//! - Store the result of [`Evictor::written`] as the stamp of an entry that is written, and that of
//!   [`Evictor::read`], if it differs from the old stamp, for an entry that is read. Not needed if
//!   [`Policy::needs_stamps`] is false.
//! - From time to time, call [`Evictor::pass`], visit as many entries as [`Evictor::sweep_due`] says in memory order,
//!   and replace their stamps by the result of [`Evictor::swept`]. Call [`Evictor::sweep_done`] after the last entry.
//! - When memory is full, pass [`SAMPLES`] random entries to [`Evictor::offer`], and evict the victim that
//!   [`Evictor::take`] returns. Repeat this until there is memory, or until there is no victim and the command must
//!   fail.
//!
//! Victims depend on reads and on random numbers. So the log records which keys were evicted, from which the same state
//! can be rebuilt, and no reads.

mod clock;
#[cfg(test)]
mod tests;

pub use clock::{STAMP_BITS, Stamp};

use clock::{CountClock, UseClock};

/// Number of entries sampled for each victim; Redis' `maxmemory-samples`.
pub const SAMPLES: usize = 5;

/// Maximum number of candidates in the pool; Redis' `EVPOOL_SIZE`.
const CANDIDATES: usize = 16;

/// An eviction policy: which keys are evicted when memory is full (Redis' `maxmemory-policy`).
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
    /// All policies, in the order of their numbers in log records.
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

    /// Returns the policy with this name; `None` if there is none. Case is ignored.
    pub fn of_name(name: &[u8]) -> Option<Self> {
        Policy::ALL.into_iter().find(|policy| policy.name().as_bytes().eq_ignore_ascii_case(name))
    }

    /// Returns the index in [`Policy::ALL`].
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

/// The properties of an entry on which its eviction score depends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EvictionFacts {
    /// Stamp (record of use) in the entry's header.
    pub stamp: Stamp,
    /// Expiry in milliseconds since the epoch; `None` if the key does not expire.
    pub expiry: Option<u64>,
}

/// An entry in the pool of candidates.
#[derive(Clone, Copy, Debug)]
struct Candidate<K> {
    key: K,
    facts: EvictionFacts,
    /// Eviction score; the candidate with the highest score is evicted first.
    score: u64,
}

/// State by which the policy measures the use of entries.
#[derive(Clone, Debug)]
enum UseTracker {
    /// Use is not measured, because the policy chooses keys regardless of it.
    None,
    Use(UseClock),
    Count(CountClock),
}

/// Chooses victims (keys to evict) among the entries of a shard. `K` identifies an entry, by the id of its space and
/// the hash of its key, so that no copy of the key is needed.
#[derive(Clone, Debug)]
pub struct Evictor<K> {
    policy: Policy,
    clock: UseTracker,
    /// The candidates for eviction by ascending score; the last is evicted first.
    candidates: Vec<Candidate<K>>,
}

impl<K: Copy + PartialEq> Evictor<K> {
    /// Creates an evictor at the time `now`, in milliseconds since the epoch. After a change of policy, entries still
    /// have stamps of the old policy, which mean nothing until the entry is used again. The caller may store the result
    /// of [`Evictor::written`] in all entries, or accept that victims are badly chosen at first, as Redis does.
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

    /// Returns the stamp for a newly written entry. `entries` is the number of entries in the shard.
    #[inline]
    pub fn written(&mut self, entries: usize, now: u64) -> Stamp {
        match &mut self.clock {
            UseTracker::None => Stamp::default(),
            UseTracker::Use(clock) => clock.used(entries, now),
            UseTracker::Count(clock) => clock.new_stamp(),
        }
    }

    /// Returns the new stamp for an entry with the stamp `stamp` that is read or overwritten.
    #[inline]
    pub fn read(&mut self, stamp: Stamp, entries: usize, random: u32, now: u64) -> Stamp {
        match &mut self.clock {
            UseTracker::None => stamp,
            UseTracker::Use(clock) => clock.used(entries, now),
            UseTracker::Count(clock) => clock.used(stamp, random),
        }
    }

    /// Advances the clock, by which stamps record the use of entries, to `now`.
    pub fn pass(&mut self, now: u64) {
        match &mut self.clock {
            UseTracker::None => {}
            UseTracker::Use(clock) => clock.pass(now),
            UseTracker::Count(clock) => clock.pass(now),
        }
    }

    /// Returns how many of `entries` entries the current sweep (visit of all entries) should have visited by now. The
    /// result exceeds `entries` if the sweep is late, which only makes ages less precise until it ends.
    pub fn sweep_due(&self, entries: usize) -> usize {
        match &self.clock {
            UseTracker::None => 0,
            UseTracker::Use(clock) => clock.sweep.due(entries),
            UseTracker::Count(clock) => clock.sweep.due(entries),
        }
    }

    /// Returns the new stamp for an entry that the sweep visits.
    pub fn swept(&self, stamp: Stamp) -> Stamp {
        match &self.clock {
            UseTracker::None => stamp,
            UseTracker::Use(clock) => clock.swept(stamp),
            UseTracker::Count(clock) => clock.swept(stamp),
        }
    }

    /// Notes that the sweep has visited all entries, so that the next sweep begins.
    pub fn sweep_done(&mut self) {
        match &mut self.clock {
            UseTracker::None => {}
            UseTracker::Use(clock) => clock.sweep.done(),
            UseTracker::Count(clock) => clock.sweep.done(),
        }
    }

    /// Returns the seconds since the last use of an entry with this stamp, for `OBJECT IDLETIME`; `None` unless the
    /// policy is an LRU policy.
    pub fn idle_seconds(&self, stamp: Stamp, now: u64) -> Option<u64> {
        match &self.clock {
            UseTracker::Use(clock) => Some(clock.idle_seconds(stamp, now)),
            UseTracker::None | UseTracker::Count(_) => None,
        }
    }

    /// Returns the use counter of an entry with this stamp, for `OBJECT FREQ`; `None` unless the policy is an LFU
    /// policy.
    pub fn frequency(&self, stamp: Stamp) -> Option<u8> {
        match &self.clock {
            UseTracker::Count(clock) => Some(clock.counter(stamp)),
            UseTracker::None | UseTracker::Use(_) => None,
        }
    }

    /// Offers a random entry as a candidate; returns whether the policy may evict it.
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

    /// Removes the next victim from the pool and returns it: the candidate with the highest score whose properties,
    /// which `current` returns, have not changed since it was offered. Drops candidates that have changed. Returns
    /// `None` if the pool is empty, so that more entries must be offered.
    ///
    /// Without this check, an entry that was read after it was offered would still be evicted as the least used one.
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
