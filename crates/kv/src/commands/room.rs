//! Eviction for a command that found no memory: keys are evicted by the policy until the value fits.
//!
//! Victims are chosen from the shard of the written key first, as their slots can be reused at once. When that shard
//! has none, and for large values, which need whole pieces of the pool, victims come from other shards: those that the
//! command holds, and those that are unlocked at this moment, as a command waits for no lock while it holds shards. If
//! that fails because other commands hold the shards, the command ends, memory is freed without it
//! ([`Keyspace::make_room`]), and it is executed again.
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

/// Most evictions for one change of one key.
const EVICTIONS: usize = 16_384;

/// Most evictions between two attempts to write: the first attempt is after one, then the number doubles.
const BATCH: usize = 64;

/// Least bytes of a value that gets a piece of the pool to itself, so that freed slots of its shard are of no use to
/// it.
const LARGE_BYTES: usize = 16 << 10;

/// The hashes of the keys that a command names or has written, which must not be evicted.
#[derive(Default)]
pub(crate) struct ProtectedKeys {
    hashes: Vec<u64>,
    is_sorted: bool,
    /// Number of shards that the command has locked.
    pub shards: usize,
    /// Whether a value found no memory although victims may be left: in shards that other commands held, or beyond
    /// [`EVICTIONS`].
    pub wants_room: bool,
}

impl ProtectedKeys {
    /// Creates an empty list for a command that has locked `shards` shards.
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
    /// Calls `f` on the table of the key, and again after evictions while it fails for lack of memory. `bytes` is about
    /// what it needs. If `f` fails, it must not have changed anything.
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

    /// Evicts some keys and touches their watches; returns whether another attempt may succeed.
    #[cold]
    fn make_room(&mut self, bytes: usize, eviction_count: &mut EvictionCount) -> bool {
        // Entries kept for cuts are freed first.
        if self.shard.give_up_cut() {
            return true;
        }
        if !self.writes || eviction_count.evicted >= EVICTIONS || !self.shard.could_have(bytes) {
            return false;
        }
        let wanted = eviction_count.evicted.clamp(1, BATCH);
        let is_large = bytes >= LARGE_BYTES;
        let mut evicted = 0;
        // For a large value, victims come from all shards alike, so only one attempt in [`Keyspace::shards`] begins
        // here.
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
        // Evicted slots of other sizes must be returned to the pool to be of use.
        if eviction_count.evicted >= BATCH / 2 || here < wanted {
            self.shard.give_back();
        }
        if eviction_count.evicted >= EVICTIONS {
            self.protected.wants_room = true;
        }
        evicted > 0
    }

    /// Evicts keys of this key's shard; returns how many.
    fn evict_here(&mut self, wanted: usize, before: usize) -> usize {
        let random = self.random.wrapping_add(before as u64);
        evict_some(self.shard, self.recorder, self.protected.sorted(), (wanted, random))
    }

    /// Evicts keys of other shards; returns how many.
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

    /// Reserves memory so that [`KeyHandle::put_as`] of this value will not fail. Returns whether this has created the
    /// key; otherwise nothing visible changes.
    fn prepare(&mut self, kind: Kind, value: &[u8]) -> Result<bool> {
        let (hash, key) = (self.hash, self.key);
        self.with_room(value.len(), |table, _| table.prepare_plain(hash, key, (kind, value)))
    }

    /// Removes a key that [`KeyHandle::prepare`] has created.
    fn take_back(&mut self) {
        self.shard.table_mut(self.space).remove(self.hash, self.key);
    }

    /// Notes that the command uses the key.
    pub(super) fn note_use(&mut self) {
        self.shard.note_use(self.space, self.hash, self.key, self.random, self.now);
    }

    /// Returns the stamp of the key's use, and the evictor that interprets it.
    pub(super) fn use_of(&self) -> Option<(&Evictor<(SpaceId, u64)>, Stamp)> {
        let facts = self.shard.table(self.space)?.facts(self.hash, self.key, self.now)?;
        Some((self.shard.evictor(), facts.stamp))
    }

    /// Counts a read, if the command changes nothing.
    pub(super) fn count_read(&self, is_there: bool) {
        if !self.writes {
            self.shard.count_read(is_there);
        }
    }
}

/// Evicts keys of a shard and touches their watches; returns how many.
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
    /// Evicts keys of shards that are unlocked; returns how many, and how many shards were locked. Each eviction is
    /// recorded before its shard is released, so that the log has it before later changes of the same key.
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

    /// Evicts keys for a command that found no memory and holds no shards now; returns how many.
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
        // A cut would keep the evicted entries.
        while taken.give_up_cut() {}
        let evicted = evict_some(taken, &mut recorder, protected, (wanted, random));
        taken.give_back();
        // A failed append is reported to the next command that writes.
        taken.note_record(&recorder.finish().0);
        evicted
    }
}

impl<'j> Context<'j, '_> {
    /// Sets all keys, without expiry, all or none; in the selected space, or in a named one. If a key is given twice,
    /// the last value counts.
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
