//! Eviction for a command that found no memory: evicts keys as the eviction policy says until the new value fits.
//!
//! Victims (keys to evict) are chosen from the shard of the written key first, because their slots can be reused at
//! once. If that shard has no victims, and for large values, which need whole slab pages, victims come from other
//! shards: those that the command has locked, and those that are unlocked at this moment. The command does not block on
//! the others, because blocking while it holds shards could deadlock. If no memory is found because other commands hold
//! shards, the command ends, keys are evicted while it holds no shards ([`Keyspace::make_room`]), and it is executed
//! again.
//!
//! Invariant: keys that a command or its transaction names are never evicted. Example: `MSET a 1 b 2` creates `a` and
//! then finds no memory for `b`. If `a` were evicted for it, the reply `OK` would be wrong.

use super::resources::OtherShards;
use super::{Context, Done, KeyHandle};
use crate::effects::Effect;
use crate::entry::Kind;
use crate::evict::{Evictor, Stamp};
use crate::fields::keep_last;
use crate::journal::Recorder;
use crate::keyspace::Keyspace;
use crate::shard::{Shard, SpaceId};
use crate::spaces::Space;
use crate::table::Table;
use farpool_model::{ErrorKind, Result};
use std::sync::Arc;

/// Maximum number of evictions for one change of one key, which bounds the time that the change takes.
const EVICTIONS: usize = 16_384;

/// Maximum number of evictions between two attempts to write. The first attempt follows one eviction; then the number
/// of evictions doubles.
const BATCH: usize = 64;

/// Minimum bytes of a large value. Reason for 16 KiB: larger entries get a slab page of their own, for which the slots
/// of evicted entries in the same shard are of no use.
const LARGE_BYTES: usize = 16 << 10;

/// The keys that a command or its transaction names or has written, as hashes; they must not be evicted. Also what is
/// needed to decide whether to try again ([`Keyspace::make_room`]).
#[derive(Default)]
pub(crate) struct ProtectedKeys {
    hashes: Vec<u64>,
    is_sorted: bool,
    /// Number of shards that the command has locked.
    pub shards: usize,
    /// Whether a value found no memory although there may be keys to evict: in shards that other commands hold, or
    /// beyond [`EVICTIONS`].
    pub wants_room: bool,
}

impl ProtectedKeys {
    /// Creates an empty set for a command that has locked `shards` shards.
    pub fn of(shards: usize) -> Self {
        ProtectedKeys { shards, ..ProtectedKeys::default() }
    }

    pub fn add(&mut self, hash: u64) {
        self.hashes.push(hash);
        self.is_sorted = false;
    }

    pub(super) fn sorted(&mut self) -> &[u64] {
        if !self.is_sorted {
            self.hashes.sort_unstable();
            self.is_sorted = true;
        }
        &self.hashes
    }
}

/// The number of evictions so far for one value.
#[derive(Default)]
struct EvictionCount {
    evicted: usize,
}

impl<'j> KeyHandle<'_, '_, 'j> {
    /// Calls `f` with the table of the key. As long as `f` fails for lack of memory, evicts keys and calls `f` again,
    /// which must therefore change nothing when it fails. `bytes` is about the memory that `f` needs. Returns the
    /// result of the last call.
    pub(super) fn with_room<T>(
        &mut self,
        bytes: usize,
        mut f: impl FnMut(&mut Table, &mut Recorder<'j>) -> Result<T>,
    ) -> Result<T> {
        let mut eviction_count = EvictionCount::default();
        loop {
            match f(self.shard.table_mut(self.space), self.recorder) {
                Err(error)
                    if error.kind == ErrorKind::OverLimit && self.make_room(bytes, &mut eviction_count) => {}
                done => return done,
            }
        }
    }

    /// Frees some memory, by ending a cut (point-in-time view) or by evicting keys; returns whether another attempt may
    /// succeed.
    #[cold]
    fn make_room(&mut self, bytes: usize, eviction_count: &mut EvictionCount) -> bool {
        // Entries that only cuts keep are freed before any key is evicted.
        if self.shard.give_up_cut() {
            return true;
        }
        if !self.writes || eviction_count.evicted >= EVICTIONS || !self.shard.could_have(bytes) {
            return false;
        }
        let wanted = eviction_count.evicted.clamp(1, BATCH);
        let is_large = bytes >= LARGE_BYTES;
        let mut evicted = 0;
        // For a large value, victims come from all shards with equal probability, so only one of as many attempts as
        // there are shards begins with this shard.
        let begins_here = !is_large
            || self
                .random
                .wrapping_add(eviction_count.evicted as u64)
                .is_multiple_of(self.keyspace.shards() as u64);
        if begins_here {
            evicted += self.evict_here(wanted, eviction_count.evicted);
        }
        let here = evicted;
        if evicted < wanted {
            evicted += self.evict_elsewhere(wanted - evicted, eviction_count.evicted);
        }
        if evicted < wanted && !begins_here {
            evicted += self.evict_here(wanted - evicted, eviction_count.evicted);
        }
        eviction_count.evicted += evicted;
        // Slots of another size class are of use only after their pages have returned to the pool.
        if eviction_count.evicted >= BATCH / 2 || here < wanted {
            self.shard.give_back();
        }
        if eviction_count.evicted >= EVICTIONS {
            self.protected.wants_room = true;
        }
        evicted > 0
    }

    /// Evicts up to `wanted` keys of this key's shard, after `before` earlier evictions; returns the number of evicted
    /// keys.
    fn evict_here(&mut self, wanted: usize, before: usize) -> usize {
        let random = self.random.wrapping_add(before as u64);
        evict_some(self.shard, self.recorder, self.protected.sorted(), (wanted, random))
    }

    /// Evicts up to `wanted` keys of other shards without blocking; returns the number of evicted keys.
    fn evict_elsewhere(&mut self, wanted: usize, before: usize) -> usize {
        let (random, mut evicted) = (self.random.wrapping_add(before as u64), 0);
        let OtherShards(first, second) = &mut self.others;
        for (_, shard) in first.iter_mut().chain(second.iter_mut()) {
            while shard.give_up_cut() {}
            evicted += evict_some(shard, self.recorder, self.protected.sorted(), (wanted - evicted, random));
            shard.give_back();
            if evicted == wanted {
                return evicted;
            }
        }
        let (more, busy) =
            self.keyspace.evict_of_others(self.protected.sorted(), (wanted - evicted, random), self.now);
        if evicted + more == 0 && busy > self.protected.shards {
            self.protected.wants_room = true;
        }
        evicted + more
    }

    /// Reserves memory so that [`KeyHandle::put_as`] of this value cannot fail for lack of memory. Returns true if the
    /// key did not exist and was created for this; otherwise the key is unchanged.
    fn prepare(&mut self, kind: Kind, value: &[u8]) -> Result<bool> {
        let (hash, key) = (self.hash, self.key);
        self.with_room(value.len(), |table, _| table.prepare_plain(hash, key, (kind, value)))
    }

    /// Removes the key again that [`KeyHandle::prepare`] has created.
    fn take_back(&mut self) {
        self.shard.table_mut(self.space).remove(self.hash, self.key);
    }

    /// Notes a use of the key for eviction (LRU and LFU).
    pub(super) fn note_use(&mut self) {
        self.shard.note_use(self.space, self.hash, self.key, self.random, self.now);
    }

    /// Returns the stamp (the 12 bits in the entry that record its use) and the evictor that interprets it; `None` for
    /// an absent key.
    pub(super) fn use_of(&self) -> Option<(&Evictor<(SpaceId, u64)>, Stamp)> {
        let facts = self.shard.table(self.space)?.facts(self.hash, self.key, self.now)?;
        Some((self.shard.evictor(), facts.stamp))
    }

    /// Counts a read and whether it found a value, if the command cannot change keys.
    pub(super) fn count_read(&self, is_there: bool) {
        if !self.writes {
            self.shard.count_read(is_there);
        }
    }
}

/// Evicts up to `wanted` keys of a shard, adds their removal to the log record and touches their watches; returns the
/// number of evicted keys. Keys whose hash is in `protected` (sorted) stay.
fn evict_some(
    shard: &mut Shard,
    recorder: &mut Recorder<'_>,
    protected: &[u64],
    (wanted, random): (usize, u64),
) -> usize {
    for evicted in 0..wanted {
        let Some((space, key)) = shard.evict(protected, random.wrapping_add(evicted as u64)) else {
            return evicted;
        };
        recorder.add(&Effect::Remove { space, key: &key });
        shard.touch(crate::session::selected(space), &key);
    }
    wanted
}

impl Keyspace {
    /// Evicts keys of the shards that are not locked by anyone. Returns the number of evicted keys, and the number of
    /// shards that were locked. Each eviction is logged before its shard is released, so that it precedes later changes
    /// of the same key in the log.
    fn evict_of_others(&self, protected: &[u64], (wanted, random): (usize, u64), now: u64) -> (usize, usize) {
        let (count, mut evicted, mut busy) = (self.shards(), 0, 0);
        let first = (random >> 32) as usize % count;
        for shard in (first..count).chain(0..first) {
            if evicted == wanted {
                break;
            }
            match self.try_lock(shard) {
                Some(mut taken) => {
                    evicted += self.evict_of(&mut taken, protected, (wanted - evicted, random), (shard, now));
                }
                None => busy += 1,
            }
        }
        (evicted, busy)
    }

    /// Evicts keys of all shards, for a command that found no memory and has released its shards. Blocks on the shards'
    /// locks, one after the other. Returns the number of evicted keys. `protected` has the hashes of the command's
    /// keys, sorted.
    pub(crate) fn make_room(&self, protected: &[u64], random: u64, now: u64) -> usize {
        let first = (random >> 32) as usize % self.shards();
        let all = (first..self.shards()).chain(0..first);
        all.map(|shard| self.evict_of(&mut self.lock(shard), protected, (BATCH, random), (shard, now))).sum()
    }

    fn evict_of(
        &self,
        taken: &mut Shard,
        protected: &[u64],
        (wanted, random): (usize, u64),
        (shard, now): (usize, u64),
    ) -> usize {
        let mut recorder = Recorder::new(self.journal(), Vec::new(), now, random ^ (shard as u64) << 48);
        // Cuts are ended first, because they would keep the memory of evicted entries.
        while taken.give_up_cut() {}
        let evicted = evict_some(taken, &mut recorder, protected, (wanted, random));
        taken.give_back();
        // If appending the log record fails, the next command that writes reports the error.
        taken.note_record(&recorder.finish().0);
        evicted
    }
}

impl<'j> Context<'j, '_> {
    /// Sets all keys to these values of kind `kind`, without expiry, in the selected space or in the named space
    /// `space`. Sets none if memory is too small for all. If a key is given twice, the last value counts.
    pub(super) fn put_all(
        &mut self,
        space: Option<&Arc<Space>>,
        kind: Kind,
        mut pairs: Vec<(&[u8], &[u8])>,
    ) -> Done {
        keep_last(&mut pairs);
        let mut added = Vec::new();
        for (key, value) in &pairs {
            let mut handle = self.handle_of(space, key);
            let prepared = match kind {
                Kind::Row => Ok(()),
                Kind::String | Kind::Fields | Kind::Table => handle.check_no_rows(),
            };
            match prepared.and_then(|()| Ok(handle.prepare(kind, value)?)) {
                Ok(true) => added.push(*key),
                Ok(false) => {}
                Err(refusal) => {
                    added.into_iter().for_each(|key| self.handle_of(space, key).take_back());
                    return Err(refusal);
                }
            }
        }
        pairs.into_iter().try_for_each(|(key, value)| self.handle_of(space, key).put_as(kind, value, None))
    }

    fn handle_of<'k>(&mut self, space: Option<&Arc<Space>>, key: &'k [u8]) -> KeyHandle<'_, 'k, 'j> {
        match space {
            Some(named) => self.handle_in(named.id, Some(named), key),
            None => self.handle(key),
        }
    }
}

#[cfg(test)]
#[path = "room_tests.rs"]
mod tests;
