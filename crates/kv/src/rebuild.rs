//! Rebuilding: replaces all keys of a keyspace that serves clients, because changes at the end of its log are invalid
//! and must be rolled back.
//!
//! The old keys are removed and all shards are held (locked as by a long command). The log is replayed into another
//! keyspace, the *replacement*, whose shards then take the place of the old ones. Commands are refused during the
//! rebuild.
//!
//! Invariant: no client sees keys of a replacement before it is complete. Example:
//!
//! 1. `GET a` was accepted a moment before the rebuild began, and waits for the lock of the shard.
//! 2. If the rebuild locked shards one by one, `GET a` could be executed between two records of the replay and reply
//!    with an `a` that a later record removes.
//! 3. Instead, all shards are held from the beginning to the end, so `GET a` finds the keys as they are after the
//!    rebuild.

use crate::holds::{HoldAnnouncement, ShardGuard};
use crate::keyspace::Keyspace;
use std::fmt;
use std::sync::Arc;

/// A rebuild in progress; see [`Keyspace::begin_rebuild`]. If it is dropped before [`Rebuild::finish`], the keyspace
/// stays empty and refuses all commands.
pub struct Rebuild<'k> {
    keyspace: &'k Keyspace,
    // Declared before the announcement of the long command, so that the locks are released first when both are dropped.
    shards: Vec<ShardGuard<'k>>,
    _hold: HoldAnnouncement<'k>,
    replacement: Arc<Keyspace>,
}

impl Keyspace {
    /// Begins a rebuild: makes the keyspace refuse commands, blocks until running commands have ended, and removes all
    /// keys, definitions of spaces and settings. Transactions with watched keys fail, and reads of cuts (point-in-time
    /// views) fail with `Stale`.
    pub fn begin_rebuild(&self) -> Rebuild<'_> {
        self.refuse_commands(true);
        let all: Vec<usize> = (0..self.shards()).collect();
        let (mut shards, hold) = self.hold_all(&all);
        shards.iter_mut().for_each(|shard| shard.clear());
        self.clear_charges();
        // No memory limit during the replay, which may need more than the limit for a moment.
        self.meter().set_most(0);
        Rebuild { keyspace: self, shards, _hold: hold, replacement: Arc::new(self.empty_twin()) }
    }
}

impl Rebuild<'_> {
    /// Returns the keyspace into which the caller must replay the log. Its memory counts as that of the keyspace being
    /// rebuilt.
    pub fn replacement(&self) -> &Arc<Keyspace> {
        &self.replacement
    }

    /// Ends the rebuild: moves the replacement's keys to the keyspace, which accepts commands again.
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
