//! The argument of the functions that execute commands on keys: access to the keys in the locked shards, the time of
//! the command, and the replies.

use super::command::{Command, KeyspaceFunction};
use super::handle::{KeyHandle, KeyPlace};
use super::{Args, CommandResources, Done, Predicates, Refusal};
use crate::effects::Effect;
use crate::holds::ShardGuard;
use crate::keyspace::Keyspace;
use crate::resp::Replies;
use crate::session::Host;
use crate::shard::SpaceId;
use crate::spaces::Space;
use crate::table::Table;
use farpool_model::limits::KV_KEY_BYTES_MAX;
use std::borrow::Cow;
use std::sync::Arc;

/// The argument of the function that executes a command on keys: access to the keys, the time, and the replies.
pub(crate) struct Context<'k, 'c> {
    pub keyspace: &'k Keyspace,
    pub space: SpaceId,
    /// Time in milliseconds since the epoch.
    pub now: u64,
    /// Random number that is passed in with the command, so that its result is reproducible.
    pub random: u64,
    pub replies: Replies<'c>,
    pub resources: &'c mut CommandResources<'k>,
    pub host: &'c mut dyn Host,
    pub predicates: &'c mut Predicates,
}

impl<'j, 'c> Context<'j, 'c> {
    /// Executes a command by calling its function `run`, after checking the lengths of the keys and noting their use
    /// for eviction.
    pub fn run(&mut self, (command, run): (&Command, KeyspaceFunction), args: &Args<'_>) -> Done {
        if let Some(key) = command.keys.of(args).find(|key| key.len() > KV_KEY_BYTES_MAX) {
            let message = format!("ERR a key of {} bytes: keys have at most {KV_KEY_BYTES_MAX}", key.len());
            return Err(Refusal(Cow::Owned(message)));
        }
        self.resources.writes = command.may_write();
        if command.uses && self.keyspace.notes_uses() {
            command.keys.of(args).for_each(|key| self.handle(key).note_use());
        }
        run(self, args)
    }

    pub fn handle<'k>(&mut self, key: &'k [u8]) -> KeyHandle<'_, 'k, 'j> {
        self.handle_and_replies(key).0
    }

    pub fn handle_and_replies<'k>(&mut self, key: &'k [u8]) -> (KeyHandle<'_, 'k, 'j>, &mut Replies<'c>) {
        let hash = self.resources.hash(self.keyspace, key);
        let (shard, _) = self.resources.shards.split(self.keyspace.shard_of(hash));
        let (space, named) = shard.owner(self.space, key);
        let place = KeyPlace { selected: self.space, space, named: named.cloned() };
        let moment = (self.now, self.random);
        let handle = KeyHandle::new(self.keyspace, &mut *self.resources, place, (hash, key), moment);
        (handle, &mut self.replies)
    }

    /// Returns a handle to a key in the given space, even if another space contains keys with this prefix.
    pub(super) fn handle_in<'k>(
        &mut self,
        space: SpaceId,
        named: Option<&Arc<Space>>,
        key: &'k [u8],
    ) -> KeyHandle<'_, 'k, 'j> {
        let hash = self.resources.hash(self.keyspace, key);
        let place = KeyPlace { selected: crate::session::selected(space), space, named: named.cloned() };
        let moment = (self.now, self.random);
        KeyHandle::new(self.keyspace, &mut *self.resources, place, (hash, key), moment)
    }

    /// Returns the ids of the selected space and of the named spaces that are part of it, for `SCAN`. Each id has a
    /// fixed index in the result, with `None` at unused ones, so that cursors of `SCAN` stay valid when spaces are
    /// created or dropped.
    pub fn scanned_spaces(&self) -> Vec<Option<SpaceId>> {
        let shards = self.all_taken();
        let mut places = vec![Some(self.space)];
        let named = shards.first().into_iter().flat_map(|(_, shard)| shard.parts(self.space)).skip(1);
        for id in named {
            let place = (id - crate::session::SPACES) as usize + 1;
            places.resize(places.len().max(place + 1), None);
            places[place] = Some(id);
        }
        places
    }

    pub(super) fn all_taken(&self) -> &[(usize, ShardGuard<'j>)] {
        self.resources.shards.several()
    }

    /// Iterates over the tables of the selected space and of the named spaces that are part of it, shard by shard.
    pub fn tables(&self) -> impl Iterator<Item = &Table> {
        self.all_taken()
            .iter()
            .flat_map(|(_, shard)| shard.parts(self.space).filter_map(|space| shard.table(space)))
    }

    /// Returns the table of a space in one shard; `None` if the space has no keys there.
    pub fn table_of(&self, shard: usize, space: SpaceId) -> Option<&Table> {
        self.all_taken().get(shard)?.1.table(space)
    }

    /// Removes all keys of all spaces.
    pub fn flush_all(&mut self) {
        let now = self.now;
        self.resources.shards.all().iter_mut().for_each(|(_, shard)| shard.flush_all(now));
        self.resources.recorder.add(&Effect::FlushAll);
    }

    /// Removes all keys of the selected space and of the named spaces that are part of it.
    pub fn flush(&mut self) {
        let (space, now) = (self.space, self.now);
        self.resources.shards.all().iter_mut().for_each(|(_, shard)| shard.flush(space, now));
        self.resources.recorder.add(&Effect::Flush { space });
    }
}
