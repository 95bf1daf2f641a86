//! Which keys go when memory is full: Redis' policies, by their names.
//!
//! As in Redis, a few entries are sampled, and those that could best be missed are kept in a pool of candidates from which the
//! next victim is taken: nearly as good as an order of all entries, which would cost 16 bytes or more for each (Redis'
//! `maxmemory-samples` 5 and pool of 16). An entry needs the 12 bits of a [`Stamp`] for it, which its header has left. The pool
//! names entries by their hash: a key in it may have gone, or have been used, which is found when its turn comes.
//!
//! How it is used, for the entries of a shard, all of whose spaces share one [`Evictor`]:
//! - an entry that is written gets [`Evictor::written`], one that is read [`Evictor::read`], which is stored only if it differs;
//!   neither is called where [`Policy::needs_stamps`] is false;
//! - from time to time [`Evictor::pass`] is called and so many entries as [`Evictor::sweep_due`] says are visited in the order of
//!   memory, whose stamps become [`Evictor::swept`]; at the end of all entries, [`Evictor::sweep_done`];
//! - where there is no room, [`SAMPLES`] entries are given to [`Evictor::offer`], and [`Evictor::take`] names the victim; until
//!   there is room, or the policy has no victim and the command is refused.
//!
//! Victims depend on reads and on random numbers: what has to be the same elsewhere is told the victims, not the reads.

mod clock;
#[cfg(test)]
mod tests;

pub use clock::{STAMP_BITS, Stamp};

use clock::{CountClock, UseClock};

/// Entries that are sampled for each victim, Redis' `maxmemory-samples`.
pub const SAMPLES: usize = 5;

/// Candidates that are kept, Redis' `EVPOOL_SIZE`.
const CANDIDATES: usize = 16;

/// Which keys go when memory is full.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Policy {
    /// None: commands that need memory are refused.
    #[default]
    NoEviction,
    /// Those that were not used for longest.
    AllKeysLru,
    /// Those that are used least often.
    AllKeysLfu,
    /// Any.
    AllKeysRandom,
    /// Of those that expire, those that were not used for longest.
    VolatileLru,
    /// Of those that expire, those that are used least often.
    VolatileLfu,
    /// Any that expire.
    VolatileRandom,
    /// Those that expire soonest.
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

    /// The name, as `CONFIG GET maxmemory-policy` tells it.
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

    /// The policy with this name, in any case.
    pub fn of_name(name: &[u8]) -> Option<Self> {
        Policy::ALL.into_iter().find(|policy| policy.name().as_bytes().eq_ignore_ascii_case(name))
    }

    /// Its position in [`Policy::ALL`].
    pub(crate) fn number(self) -> u8 {
        self as u8
    }

    /// Whether only keys that expire may go.
    pub fn is_volatile(self) -> bool {
        match self {
            Policy::NoEviction | Policy::AllKeysLru | Policy::AllKeysLfu | Policy::AllKeysRandom => false,
            Policy::VolatileLru | Policy::VolatileLfu | Policy::VolatileRandom | Policy::VolatileTtl => true,
        }
    }

    /// Whether it matters when or how often entries are used. Where it does not, reads change no entry.
    pub fn needs_stamps(self) -> bool {
        match self {
            Policy::AllKeysLru | Policy::AllKeysLfu | Policy::VolatileLru | Policy::VolatileLfu => true,
            Policy::NoEviction | Policy::AllKeysRandom | Policy::VolatileRandom | Policy::VolatileTtl => {
                false
            }
        }
    }
}

/// What decides whether an entry goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Facts {
    /// Its stamp, as its header has it.
    pub stamp: Stamp,
    /// When it expires, in milliseconds since the epoch.
    pub expiry: Option<u64>,
}

/// An entry that could go.
#[derive(Clone, Copy, Debug)]
struct Candidate<K> {
    key: K,
    facts: Facts,
    /// The greater, the less it would be missed.
    score: u64,
}

/// How the use of entries is told.
#[derive(Clone, Debug)]
enum Clock {
    /// Not at all.
    None,
    Use(UseClock),
    Count(CountClock),
}

/// Chooses victims among the entries of a shard. `K` names an entry: the number of its space and the hash of its key, which are
/// found again without a copy of the key.
#[derive(Clone, Debug)]
pub struct Evictor<K> {
    policy: Policy,
    clock: Clock,
    /// In the order of their scores; the last goes first.
    candidates: Vec<Candidate<K>>,
}

impl<K: Copy + PartialEq> Evictor<K> {
    /// Begins at a time in milliseconds since the epoch. When the policy changes, entries keep the stamps of the one before, which
    /// say something else until they are used: [`Evictor::written`] may be stored in all of them, or the first victims chosen
    /// badly, as in Redis.
    pub fn new(policy: Policy, now: u64) -> Self {
        let clock = match policy {
            Policy::AllKeysLru | Policy::VolatileLru => Clock::Use(UseClock::new(now)),
            Policy::AllKeysLfu | Policy::VolatileLfu => Clock::Count(CountClock::new(now)),
            Policy::NoEviction | Policy::AllKeysRandom | Policy::VolatileRandom | Policy::VolatileTtl => {
                Clock::None
            }
        };
        Evictor { policy, clock, candidates: Vec::new() }
    }

    /// The policy.
    pub fn policy(&self) -> Policy {
        self.policy
    }

    /// The stamp of a new entry, one of `entries`.
    #[inline]
    pub fn written(&mut self, entries: usize, now: u64) -> Stamp {
        match &mut self.clock {
            Clock::None => Stamp::default(),
            Clock::Use(clock) => clock.used(entries, now),
            Clock::Count(clock) => clock.new_stamp(),
        }
    }

    /// The stamp of an entry after it was read, or written again.
    #[inline]
    pub fn read(&mut self, stamp: Stamp, entries: usize, random: u32, now: u64) -> Stamp {
        match &mut self.clock {
            Clock::None => stamp,
            Clock::Use(clock) => clock.used(entries, now),
            Clock::Count(clock) => clock.used(stamp, random),
        }
    }

    /// Lets time pass.
    pub fn pass(&mut self, now: u64) {
        match &mut self.clock {
            Clock::None => {}
            Clock::Use(clock) => clock.pass(now),
            Clock::Count(clock) => clock.pass(now),
        }
    }

    /// How many of the entries the sweep that is under way should have visited by now; more than there are if it is late, which
    /// does no harm but that use is told less finely until it ends.
    pub fn sweep_due(&self, entries: usize) -> usize {
        match &self.clock {
            Clock::None => 0,
            Clock::Use(clock) => clock.sweep.due(entries),
            Clock::Count(clock) => clock.sweep.due(entries),
        }
    }

    /// The stamp of an entry that the sweep visits.
    pub fn swept(&self, stamp: Stamp) -> Stamp {
        match &self.clock {
            Clock::None => stamp,
            Clock::Use(clock) => clock.swept(stamp),
            Clock::Count(clock) => clock.swept(stamp),
        }
    }

    /// Says that the sweep has visited all entries, and the next begins.
    pub fn sweep_done(&mut self) {
        match &mut self.clock {
            Clock::None => {}
            Clock::Use(clock) => clock.sweep.done(),
            Clock::Count(clock) => clock.sweep.done(),
        }
    }

    /// Seconds since an entry was used, as `OBJECT IDLETIME` tells them; `None` where the policy does not know.
    pub fn idle_seconds(&self, stamp: Stamp, now: u64) -> Option<u64> {
        match &self.clock {
            Clock::Use(clock) => Some(clock.idle_seconds(stamp, now)),
            Clock::None | Clock::Count(_) => None,
        }
    }

    /// The counter of an entry, as `OBJECT FREQ` tells it; `None` where the policy does not count.
    pub fn frequency(&self, stamp: Stamp) -> Option<u8> {
        match &self.clock {
            Clock::Count(clock) => Some(clock.counter(stamp)),
            Clock::None | Clock::Use(_) => None,
        }
    }

    /// Takes note of an entry that was chosen at random; returns whether the policy may evict it.
    pub fn offer(&mut self, key: K, facts: Facts) -> bool {
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

    fn score(&self, facts: Facts) -> Option<u64> {
        if self.policy.is_volatile() && facts.expiry.is_none() {
            return None;
        }
        Some(match (&self.clock, self.policy) {
            (_, Policy::NoEviction) => return None,
            (Clock::Use(clock), _) => clock.age(facts.stamp).into(),
            (Clock::Count(clock), _) => (u8::MAX - clock.counter(facts.stamp)).into(),
            (Clock::None, Policy::VolatileTtl) => u64::MAX - facts.expiry?,
            (Clock::None, _) => 0,
        })
    }

    /// Takes the next victim: the candidate that is missed least, of those that still are what they were when they were offered,
    /// as `current` says. Others are forgotten. `None` when more have to be offered.
    pub fn take(&mut self, mut current: impl FnMut(K) -> Option<Facts>) -> Option<K> {
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
