//! Memory limit, eviction policy and usage counters of a tenant's keys.

use crate::effects::Effect;
use crate::evict::Policy;
use crate::journal::Recorder;
use crate::keyspace::Keyspace;
use crate::session::TimeAndRandom;
use crate::shard::Shard;
use farpool_model::Result;
use farpool_model::cast::usize_saturating;

/// The settings of a tenant's keys.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Limits {
    /// Most bytes of the pool for keys and values; with 0, only the pool and the tenant's quota are limits.
    pub maxmemory: u64,
    /// Eviction policy.
    pub policy: Policy,
}

/// Usage counters of a tenant's keys since the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct UsageCounters {
    /// Bytes of the pool in use.
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
    /// Changes the settings while all shards are locked. Returns the number of the log record, if changes are recorded.
    ///
    /// # Errors
    /// Errors of the journal. If appending fails, the settings have changed in memory.
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

    /// Applies recorded settings. The memory limit takes effect only when replay is complete, as replay may need more
    /// for a moment.
    pub(crate) fn apply_limits(&self, limits: Limits) {
        self.store_limits(limits);
        (0..self.shards()).for_each(|shard| self.lock(shard).set_policy(limits.policy, self.latest()));
    }

    /// Puts the recorded memory limit into effect at the end of replay.
    pub(crate) fn all_applied(&self) {
        self.meter().set_most(usize_saturating(self.limits().maxmemory));
        (0..self.shards()).for_each(|shard| self.lock(shard).all_found());
    }

    /// Returns whether usage exceeds the limit and the policy evicts nothing.
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

    /// Evicts some keys of a shard while usage exceeds the limit; returns whether there is more to do.
    pub(crate) fn lower(&self, shard: usize, now: u64) -> bool {
        if !self.meter().is_over() || !self.evicts() {
            return false;
        }
        // Keys are kept while changes cannot be recorded: an eviction that is not in the log would be undone by a
        // restart.
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
        // A failed append is reported to the next command that writes.
        taken.note_record(&recorder.finish().0);
        !victims.is_empty()
    }
}
