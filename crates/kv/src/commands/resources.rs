//! Resources that a command on keys holds during its execution: the locks of the shards (parts of the keys) that it uses, and the
//! recorder of its changes for the log.

use super::room::ProtectedKeys;
use super::{Args, Keys};
use crate::holds::{HoldAnnouncement, ShardGuard};
use crate::journal::Recorder;
use crate::keyspace::Keyspace;
use crate::session::ExecutionMode;
use crate::shard::Shard;
use std::ops::Range;

/// Resources that a command or transaction holds during its execution: its locked shards, and the recorder that collects its
/// changes for the log.
pub(crate) struct CommandResources<'a> {
    pub(super) shards: LockedShards<'a>,
    /// Announcement of a long command; tells other threads not to wait for its shards.
    _hold: Option<HoldAnnouncement<'a>>,
    pub(super) recorder: Recorder<'a>,
    /// Keys that must not be evicted to make room.
    pub(super) protected: ProtectedKeys,
    /// Whether the current command may change keys.
    pub(super) writes: bool,
    /// Memory addresses of a key argument whose hash was computed in advance, and this hash. The addresses identify the
    /// key, because the argument does not move during the execution.
    known: Option<(Range<usize>, u64)>,
}

/// The locked shards of a command before and after the shard of one key.
pub(super) struct OtherShards<'s, 'a>(
    pub &'s mut [(usize, ShardGuard<'a>)],
    pub &'s mut [(usize, ShardGuard<'a>)],
);

/// The locked shards of a command by number, ascending; always locked in this order, so that commands cannot deadlock.
pub(super) enum LockedShards<'a> {
    One(usize, ShardGuard<'a>),
    Several(Vec<(usize, ShardGuard<'a>)>),
}

impl<'a> CommandResources<'a> {
    /// Locks the shards of the keys of all `commands`. In [`ExecutionMode::Long`], blocks until it has all; in
    /// [`ExecutionMode::Short`], returns `None` if a long command holds one of them. Changes are added to `recorder`.
    pub fn of<'b>(
        keyspace: &'a Keyspace,
        recorder: Recorder<'a>,
        commands: impl Iterator<Item = (Keys, &'b Args<'b>)>,
        mode: ExecutionMode,
    ) -> Option<Self> {
        let mut protected = ProtectedKeys::default();
        let (wanted, takes_all) = wanted_shards(keyspace, commands, &mut protected);
        let (mut taken, hold) = match mode {
            ExecutionMode::Short => (keyspace.take_all(&wanted)?, None),
            ExecutionMode::Long => {
                let (taken, hold) = keyspace.hold_all(&wanted);
                (taken, Some(hold))
            }
        };
        let shards = match taken.pop() {
            Some(only) if wanted.len() == 1 && !takes_all => LockedShards::One(wanted[0], only),
            last => LockedShards::Several(wanted.into_iter().zip(taken.into_iter().chain(last)).collect()),
        };
        protected.shards = shards.count();
        Some(CommandResources { shards, _hold: hold, recorder, protected, writes: false, known: None })
    }

    /// Locks the shard of one key, whose hash is known, for a command in short mode; returns `None` if a long command
    /// holds the shard.
    pub fn one(keyspace: &'a Keyspace, recorder: Recorder<'a>, key: &[u8], hash: u64) -> Option<Self> {
        let mut protected = ProtectedKeys::of(1);
        if keyspace.evicts() {
            protected.add(hash);
        }
        let shard = keyspace.shard_of(hash);
        let shards = LockedShards::One(shard, keyspace.take(shard)?);
        Some(CommandResources {
            shards,
            _hold: None,
            recorder,
            protected,
            writes: false,
            known: Some((place_of(key), hash)),
        })
    }

    /// Returns the hash of a key, computed in advance if possible.
    #[inline]
    pub fn hash(&self, keyspace: &Keyspace, key: &[u8]) -> u64 {
        match &self.known {
            Some((place, hash)) if *place == place_of(key) => *hash,
            _ => keyspace.hash(key),
        }
    }

    /// Protects a key from eviction by this command, for a key that the arguments do not name.
    pub fn keep(&mut self, keyspace: &Keyspace, key: &[u8]) {
        if keyspace.evicts() {
            self.protected.add(keyspace.hash(key));
        }
    }

    /// Appends the log record of the changes, then releases the shards, so that records have the order of the changes
    /// in them. Returns the sequence number of the latest log record that the outcome depends on (the record just
    /// appended, or the last one of an earlier change to the shards), or `None` if there is none; also returns the
    /// recorder's buffer, to be reused.
    pub fn finish(mut self) -> (farpool_model::Result<Option<u64>>, Vec<u8>) {
        let (appended, buffer) = self.recorder.finish();
        self.shards.for_each(|shard| shard.note_record(&appended));
        let depends_on = self.shards.last_record();
        (appended.map(|_| depends_on), buffer)
    }

    /// Returns the sequence number of the last log record of a change to the shards; `None` if there is none.
    pub fn last_record(&mut self) -> Option<u64> {
        self.shards.last_record()
    }

    /// Returns whether the command, if it failed for lack of memory, is worth another attempt after
    /// [`Keyspace::make_room`]: it has left keys that may be evicted, because other commands hold their shards or because
    /// it had reached its limit of evictions. If so, returns the hashes of the keys that must not be evicted, those that
    /// the command names or has written; otherwise `None`.
    pub fn wants_room(&mut self) -> Option<Vec<u64>> {
        self.protected.wants_room.then(|| self.protected.sorted().to_vec())
    }

    pub fn shard(&mut self, shard: usize) -> &mut Shard {
        self.shards.get(shard)
    }
}

/// Returns the range of memory addresses of a key argument.
#[inline]
fn place_of(key: &[u8]) -> Range<usize> {
    let start = key.as_ptr().addr();
    start..start + key.len()
}

/// Returns the numbers of the shards that `commands` need, ascending, and whether one of the commands needs all shards.
/// Adds the keys to `protected` if keys may be evicted.
fn wanted_shards<'b>(
    keyspace: &Keyspace,
    commands: impl Iterator<Item = (Keys, &'b Args<'b>)>,
    protected: &mut ProtectedKeys,
) -> (Vec<usize>, bool) {
    let evicts = keyspace.evicts();
    let (mut wanted, mut takes_all) = (Vec::new(), false);
    for (keys, args) in commands {
        takes_all |= keys == Keys::All;
        for key in keys.of(args) {
            let hash = keyspace.hash(key);
            if evicts {
                protected.add(hash);
            }
            let shard = keyspace.shard_of(hash);
            if wanted.last() != Some(&shard) {
                wanted.push(shard);
            }
        }
    }
    if takes_all {
        return ((0..keyspace.shards()).collect(), true);
    }
    wanted.sort_unstable();
    wanted.dedup();
    (wanted, false)
}

impl<'a> LockedShards<'a> {
    pub fn all(&mut self) -> &mut [(usize, ShardGuard<'a>)] {
        match self {
            LockedShards::One(..) => &mut [],
            LockedShards::Several(shards) => shards,
        }
    }

    /// Returns the locked shards of a command that needs all shards.
    pub fn several(&self) -> &[(usize, ShardGuard<'a>)] {
        match self {
            LockedShards::One(..) => &[],
            LockedShards::Several(shards) => shards,
        }
    }

    fn for_each(&mut self, mut f: impl FnMut(&mut Shard)) {
        match self {
            LockedShards::One(_, guard) => f(guard),
            LockedShards::Several(guards) => guards.iter_mut().for_each(|(_, guard)| f(guard)),
        }
    }

    fn last_record(&mut self) -> Option<u64> {
        let mut recorded = 0;
        self.for_each(|shard| recorded = recorded.max(shard.recorded()));
        recorded.checked_sub(1)
    }

    fn count(&self) -> usize {
        match self {
            LockedShards::One(..) => 1,
            LockedShards::Several(shards) => shards.len(),
        }
    }

    /// Returns the locked shard with this number, and the other locked shards; panics if the command has not locked it.
    pub fn split(&mut self, shard: usize) -> (&mut Shard, OtherShards<'_, 'a>) {
        match self {
            LockedShards::One(taken, guard) => {
                debug_assert_eq!(*taken, shard, "a key of the command");
                (&mut **guard, OtherShards(&mut [], &mut []))
            }
            LockedShards::Several(guards) => {
                let at = guards.binary_search_by_key(&shard, |(shard, _)| *shard);
                let (before, rest) = guards.split_at_mut(at.expect("the shards of all keys were taken"));
                let (taken, behind) = rest.split_first_mut().expect("it was found");
                (&mut *taken.1, OtherShards(before, behind))
            }
        }
    }

    /// Returns the shard with this number; `None` if the command has not locked it.
    pub fn at(&self, shard: usize) -> Option<&Shard> {
        match self {
            LockedShards::One(taken, guard) => (*taken == shard).then(|| &**guard),
            LockedShards::Several(guards) => {
                let at = guards.binary_search_by_key(&shard, |(shard, _)| *shard).ok()?;
                Some(&*guards[at].1)
            }
        }
    }

    pub fn get(&mut self, shard: usize) -> &mut Shard {
        match self {
            LockedShards::One(taken, guard) => {
                debug_assert_eq!(*taken, shard, "a key of the command");
                guard
            }
            LockedShards::Several(guards) => {
                let at = guards.binary_search_by_key(&shard, |(shard, _)| *shard);
                &mut guards[at.expect("the shards of all keys were taken")].1
            }
        }
    }
}
