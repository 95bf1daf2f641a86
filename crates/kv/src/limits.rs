//! The memory limit and the eviction policy of a tenant's keys, which clients change by `CONFIG SET`, and the usage
//! counters.

use crate::effects::Effect;
use crate::evict::Policy;
use crate::journal::Recorder;
use crate::keyspace::Keyspace;
use crate::session::TimeAndRandom;
use crate::shard::Shard;
use farpool_model::Result;
use farpool_model::cast::usize_saturating;

/// The memory limit and the eviction policy of a tenant's keys.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Limits {
    /// Maximum bytes of pool memory for keys and values (Redis' `maxmemory`). 0 means that only the size of the pool
    /// and the tenant's quota limit them.
    pub maxmemory: u64,
    /// The keys that are evicted when memory is full.
    pub policy: Policy,
}

/// Memory in use, and counters since the start, of a tenant's keys.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct UsageCounters {
    /// Bytes of pool memory that the tenant's keys take.
    pub bytes: usize,
    /// Number of evicted keys.
    pub evicted: u64,
    /// Number of expired keys that were removed.
    pub expired: u64,
    /// Number of reads that found a value.
    pub hits: u64,
    /// Number of reads that found none.
    pub misses: u64,
}

impl Keyspace {
    /// Changes the limits by calling `change` while all shards are locked; blocks until they are. Returns the sequence
    /// number of the log record; `None` if changes are not logged.
    ///
    /// # Errors
    /// Errors of the journal. If appending the record failed, the limits have changed in memory only.
    pub fn set_limits(&self, moment: TimeAndRandom, change: impl FnOnce(&mut Limits)) -> Result<Option<u64>> {
        let now = self.asked_at(moment.now);
        if let Some(journal) = self.journal() {
            journal.check(0)?;
        }
        let all: Vec<usize> = (0..self.shards()).collect();
        let (mut shards, _hold) = self.hold_all(&all);
        let before = self.limits();
        let mut limits = before;
        change(&mut limits);
        self.store_limits(limits);
        self.meter().set_most(usize_saturating(limits.maxmemory));
        if limits.policy != before.policy {
            shards.iter_mut().for_each(|shard| shard.set_policy(limits.policy, now));
        }
        let mut recorder = Recorder::new(self.journal(), Vec::new(), now, moment.random);
        recorder.add(&Effect::Limits { limits });
        let appended = recorder.finish().0;
        shards.iter_mut().for_each(|shard| shard.note_record(&appended));
        appended
    }

    /// Applies limits from a log record. The memory limit takes effect only when replay is complete, because replay may
    /// need more memory for a moment.
    pub(crate) fn apply_limits(&self, limits: Limits) {
        self.store_limits(limits);
        (0..self.shards()).for_each(|shard| self.lock(shard).set_policy(limits.policy, self.latest()));
    }

    /// Puts the recorded memory limit into effect at the end of replay.
    pub(crate) fn all_applied(&self) {
        self.meter().set_most(usize_saturating(self.limits().maxmemory));
        (0..self.shards()).for_each(|shard| self.lock(shard).all_found());
    }

    /// Returns whether usage exceeds the memory limit and the policy evicts no keys.
    pub(crate) fn is_full(&self) -> bool {
        self.meter().is_over() && !self.evicts()
    }

    /// Returns the usage counters.
    pub fn uses(&self) -> UsageCounters {
        let mut uses = UsageCounters { bytes: self.meter().used(), ..UsageCounters::default() };
        for shard in 0..self.shards() {
            let (evicted, expired, hits, misses) = self.look(shard, Shard::counted, |known| known.counted);
            uses.evicted += evicted;
            uses.expired += expired;
            uses.hits += hits;
            uses.misses += misses;
        }
        uses
    }

    /// Evicts some keys of a shard if usage exceeds the memory limit, as after the limit was lowered; returns whether
    /// keys were evicted, so that another call may be needed.
    pub(crate) fn lower(&self, shard: usize, now: u64) -> bool {
        if !self.meter().is_over() || !self.evicts() {
            return false;
        }
        // No key is evicted while changes cannot be logged, because a restart would undo the eviction.
        if self.journal().is_some_and(|journal| journal.check(0).is_err()) {
            return false;
        }
        let Some(mut taken) = self.take(shard) else { return false };
        let victims = taken.lower(now.wrapping_mul(shard as u64 + 1));
        let mut recorder = Recorder::new(self.journal(), Vec::new(), now, now ^ (shard as u64) << 48);
        for (space, key) in &victims {
            recorder.add(&Effect::Remove { space: *space, key });
            taken.touch(crate::session::selected(*space), key);
        }
        // If appending the log record fails, the next command that writes reports the error.
        taken.note_record(&recorder.finish().0);
        !victims.is_empty()
    }
}
