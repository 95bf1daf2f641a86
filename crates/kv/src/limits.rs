//! What the keys of a tenant may take, and which go when there is no room.

use crate::effects::Effect;
use crate::evict::Policy;
use crate::journal::Recorder;
use crate::keyspace::Keyspace;
use crate::session::Moment;
use crate::shard::Shard;
use farpool_model::Result;
use farpool_model::cast::usize_saturating;

/// The settings of a tenant's keys.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Limits {
    /// Bytes of the pool that keys and values may take; 0 where only the pool and the quota of the tenant are limits.
    pub maxmemory: u64,
    /// Which keys go when there is no room.
    pub policy: Policy,
}

/// What has happened to the keys of a tenant since the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Uses {
    /// Bytes of the pool that they take.
    pub bytes: usize,
    /// Keys that were evicted.
    pub evicted: u64,
    /// Keys that had expired and were removed.
    pub expired: u64,
    /// Values that were read, and those that were not there.
    pub hits: u64,
    /// See `hits`.
    pub misses: u64,
}

impl Keyspace {
    /// Changes the settings of all keys at one moment. Returns the number of the record, if there is one.
    ///
    /// # Errors
    /// Those of the journal; the settings have changed in memory if it fails when the change is appended.
    pub fn set_limits(&self, moment: Moment, change: impl FnOnce(&mut Limits)) -> Result<Option<u64>> {
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
        recorder.finish().0
    }

    /// Settings that were recorded. The limit counts when all records are applied: what they make may need more for a moment.
    pub(crate) fn apply_limits(&self, limits: Limits) {
        self.store_limits(limits);
        (0..self.shards()).for_each(|shard| self.lock(shard).set_policy(limits.policy, self.latest()));
    }

    /// Counts the settings that were recorded from now on.
    pub(crate) fn all_applied(&self) {
        self.meter().set_most(usize_saturating(self.limits().maxmemory));
        (0..self.shards()).for_each(|shard| self.lock(shard).all_found());
    }

    /// Whether more memory is in use than may be, and no key may go for it.
    pub(crate) fn is_full(&self) -> bool {
        self.meter().is_over() && !self.evicts()
    }

    /// What has happened to the keys.
    pub fn uses(&self) -> Uses {
        let mut uses = Uses { bytes: self.meter().used(), ..Uses::default() };
        for shard in 0..self.shards() {
            let (evicted, expired, hits, misses) = self.look(shard, Shard::counted, |known| known.counted);
            uses.evicted += evicted;
            uses.expired += expired;
            uses.hits += hits;
            uses.misses += misses;
        }
        uses
    }

    /// Evicts some keys of a shard where more is in use than may be; returns whether there is more to do.
    pub(crate) fn lower(&self, shard: usize, now: u64) -> bool {
        if !self.meter().is_over() || !self.evicts() {
            return false;
        }
        // Where changes cannot be recorded, keys stay.
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
        // What cannot be recorded any more is an error for whoever writes next.
        drop(recorder.finish().0);
        !victims.is_empty()
    }
}
