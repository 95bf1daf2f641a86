//! Room for what a command writes: other keys of its shard go where the policy says so.

use super::Slot;
use super::{Context, Done};
use crate::effects::Effect;
use crate::entry::Kind;
use crate::evict::{Evictor, Stamp};
use crate::fields::keep_last;
use crate::journal::Recorder;
use crate::shard::SpaceId;
use crate::spaces::Space;
use crate::table::Table;
use farpool_model::{ErrorKind, Result};
use std::sync::Arc;

/// Keys that are evicted at most for one change of one key.
const EVICTIONS: usize = 16_384;

/// Keys that are evicted before it is tried again whether there is room, at most: one at first, twice as many each time.
const BATCH: usize = 64;

/// Hashes of the keys that a command names or has written: they are not evicted.
#[derive(Default)]
pub(crate) struct Kept {
    hashes: Vec<u64>,
    is_sorted: bool,
}

impl Kept {
    pub fn add(&mut self, hash: u64) {
        self.hashes.push(hash);
        self.is_sorted = false;
    }

    fn sorted(&mut self) -> &[u64] {
        if !self.is_sorted {
            self.hashes.sort_unstable();
            self.is_sorted = true;
        }
        &self.hashes
    }
}

/// What has been done to make room.
#[derive(Default)]
struct Effort {
    evicted: usize,
}

impl<'j> Slot<'_, '_, 'j> {
    /// Does something to the table of the key that needs room, of about so many bytes, and makes room for it if there is none.
    /// What fails must leave everything as it was.
    pub(super) fn with_room<T>(
        &mut self,
        bytes: usize,
        mut f: impl FnMut(&mut Table, &mut Recorder<'j>) -> Result<T>,
    ) -> Result<T> {
        let mut effort = Effort::default();
        loop {
            match f(self.shard.table_mut(self.space), self.recorder) {
                Err(error) if error.kind == ErrorKind::OverLimit && self.make_room(bytes, &mut effort) => {}
                done => return done,
            }
        }
    }

    /// Evicts some keys, and tells who watches them; returns whether something may have changed.
    #[cold]
    fn make_room(&mut self, bytes: usize, effort: &mut Effort) -> bool {
        // What statements read goes first.
        if self.shard.give_up_cut() {
            return true;
        }
        if !self.writes || effort.evicted >= EVICTIONS || !self.shard.could_have(bytes) {
            return false;
        }
        let wanted = effort.evicted.clamp(1, BATCH);
        let mut evicted = 0;
        while evicted < wanted {
            let random = self.random.wrapping_add((effort.evicted + evicted) as u64);
            let Some((space, key)) = self.shard.evict(self.kept.sorted(), random) else { break };
            self.recorder.add(&Effect::Remove { space, key: &key });
            self.shard.touch(crate::session::selected(space), &key);
            evicted += 1;
        }
        effort.evicted += evicted;
        // Slots of other sizes are of no use here.
        if effort.evicted >= BATCH / 2 || evicted < wanted {
            self.shard.give_back();
        }
        evicted > 0
    }

    /// Sees to it that [`Slot::put_as`] of this value will not fail, without changing what others see but a key that comes to be.
    /// Returns whether one did.
    fn prepare(&mut self, kind: Kind, value: &[u8]) -> Result<bool> {
        let (hash, key) = (self.hash, self.key);
        self.with_room(value.len(), |table, _| table.prepare_plain(hash, key, (kind, value)))
    }

    /// Takes back that a key came to be.
    fn take_back(&mut self) {
        self.shard.table_mut(self.space).remove(self.hash, self.key);
    }

    /// Says that the command uses the key.
    pub(super) fn note_use(&mut self) {
        self.shard.note_use(self.space, self.hash, self.key, self.random, self.now);
    }

    /// When or how often the key was used, and what understands that.
    pub(super) fn use_of(&self) -> Option<(&Evictor<(SpaceId, u64)>, Stamp)> {
        let facts = self.shard.table(self.space)?.facts(self.hash, self.key, self.now)?;
        Some((self.shard.evictor(), facts.stamp))
    }

    /// Counts a value that is read, of commands that change nothing.
    pub(super) fn count_read(&self, is_there: bool) {
        if !self.writes {
            self.shard.count_read(is_there);
        }
    }
}

impl<'j> Context<'j, '_> {
    /// Gives all keys their values, which do not expire, or none if there is no room: of the selected space, or of one with a
    /// name. Of a key that is there twice, the last value counts.
    pub(super) fn put_all(
        &mut self,
        space: Option<&Arc<Space>>,
        kind: Kind,
        mut pairs: Vec<(&[u8], &[u8])>,
    ) -> Done {
        keep_last(&mut pairs);
        let mut added = Vec::new();
        for (key, value) in &pairs {
            let mut slot = self.slot_of(space, key);
            let prepared = match kind {
                Kind::Row => Ok(()),
                Kind::String | Kind::Fields | Kind::Table => slot.check_no_rows(),
            };
            match prepared.and_then(|()| Ok(slot.prepare(kind, value)?)) {
                Ok(true) => added.push(*key),
                Ok(false) => {}
                Err(refusal) => {
                    added.into_iter().for_each(|key| self.slot_of(space, key).take_back());
                    return Err(refusal);
                }
            }
        }
        pairs.into_iter().try_for_each(|(key, value)| self.slot_of(space, key).put_as(kind, value, None))
    }

    fn slot_of<'k>(&mut self, space: Option<&Arc<Space>>, key: &'k [u8]) -> Slot<'_, 'k, 'j> {
        match space {
            Some(named) => self.slot_in(named.id, Some(named), key),
            None => self.slot(key),
        }
    }
}

#[cfg(test)]
#[path = "room_tests.rs"]
mod tests;
