//! Rebuilding: replaces all keys of a keyspace that serves clients by others, because changes at the end of its log do
//! not count.
//!
//! The new keys are applied to a keyspace of their own, the *replacement*, while the old ones are gone and all shards
//! are held; then the shards change hands. Commands that come meanwhile are refused.
//!
//! Invariant: no client sees keys of a replacement before it is complete.
//!
//! 1. A client has read `GET a`; its command was accepted a moment before the rebuild began, and waits for the shard.
//! 2. If the rebuild took shards one by one, this command could run between two records of the replay and see an `a`
//!    that a later record removes.
//! 3. All shards are held instead from the beginning to the end, so the command finds the keys as they are afterwards.

use crate::holds::{HoldAnnouncement, ShardGuard};
use crate::keyspace::Keyspace;
use std::fmt;
use std::sync::Arc;

/// A rebuild under way; see [`Keyspace::begin_rebuild`]. If it is dropped unfinished, the keyspace stays empty and
/// refuses all commands.
pub struct Rebuild<'k> {
    keyspace: &'k Keyspace,
    // Dropped before the announcement.
    shards: Vec<ShardGuard<'k>>,
    _hold: HoldAnnouncement<'k>,
    replacement: Arc<Keyspace>,
}

impl Keyspace {
    /// Refuses all commands from now on, waits for those that run, and removes all keys, definitions of spaces and
    /// settings. Watches of all keys are touched; reads of cuts fail with `Stale`.
    pub fn begin_rebuild(&self) -> Rebuild<'_> {
        self.refuse_commands(true);
        let all: Vec<usize> = (0..self.shards()).collect();
        let (mut shards, hold) = self.hold_all(&all);
        shards.iter_mut().for_each(|shard| shard.clear());
        self.clear_charges();
        // As at a start, the replay may need more than the limit for a moment.
        self.meter().set_most(0);
        Rebuild { keyspace: self, shards, _hold: hold, replacement: Arc::new(self.empty_twin()) }
    }
}

impl Rebuild<'_> {
    /// Returns the keyspace that the keys are to be applied to. Its memory counts as that of the old one.
    pub fn replacement(&self) -> &Arc<Keyspace> {
        &self.replacement
    }

    /// Puts the replacement's keys in place and accepts commands again.
    pub fn finish(mut self) {
        for (number, shard) in self.shards.iter_mut().enumerate() {
            shard.take_over(&mut self.replacement.lock(number));
        }
        self.keyspace.take_settings_of(&self.replacement);
        self.keyspace.refuse_commands(false);
    }
}

impl fmt::Debug for Rebuild<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Rebuild").field("keyspace", self.keyspace).finish_non_exhaustive()
    }
}
