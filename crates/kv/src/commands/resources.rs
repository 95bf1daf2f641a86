//! The shards that a command has locked, and its recorder.

use super::room::ProtectedKeys;
use super::{Args, Keys};
use crate::holds::{HoldAnnouncement, ShardGuard};
use crate::journal::Recorder;
use crate::keyspace::Keyspace;
use crate::session::ExecutionMode;
use crate::shard::Shard;
use std::ops::Range;

/// The exclusive resources of a running command.
pub(crate) struct CommandResources<'a> {
    pub(super) shards: LockedShards<'a>,
    /// Announcement of a long command.
    _hold: Option<HoldAnnouncement<'a>>,
    pub(super) recorder: Recorder<'a>,
    /// Keys that must not be evicted to make room.
    pub(super) protected: ProtectedKeys,
    /// Whether the running command may change keys.
    pub(super) writes: bool,
    /// Address and hash of a key that was hashed ahead; the argument does not move while the command runs.
    known: Option<(Range<usize>, u64)>,
}

/// The command's shards other than the one of a key.
pub(super) struct OtherShards<'s, 'a>(
    pub &'s mut [(usize, ShardGuard<'a>)],
    pub &'s mut [(usize, ShardGuard<'a>)],
);

/// Locked shards, in ascending order.
pub(super) enum LockedShards<'a> {
    One(usize, ShardGuard<'a>),
    Several(Vec<(usize, ShardGuard<'a>)>),
}

impl<'a> CommandResources<'a> {
    /// Locks the shards of the keys of all commands; changes are recorded in `recorder`. Returns `None` at
    /// [`ExecutionMode::Short`] if a long command holds one of them.
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

    /// Locks the shard of a key with a known hash for a step; `None` if a long command holds it.
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

    /// Returns the hash of a key.
    #[inline]
    pub fn hash(&self, keyspace: &Keyspace, key: &[u8]) -> u64 {
        match &self.known {
            Some((place, hash)) if *place == place_of(key) => *hash,
            _ => keyspace.hash(key),
        }
    }

    /// Protects a key from eviction that the command does not name.
    pub fn keep(&mut self, keyspace: &Keyspace, key: &[u8]) {
        if keyspace.evicts() {
            self.protected.add(keyspace.hash(key));
        }
    }

    /// Appends the log record, then releases the shards: the order of records must be the order of changes. Returns the
    /// number of the latest record that the outcome depends on, if there is one, and the recorder's buffer. That is the
    /// record just appended, or the last one that changed the shards.
    pub fn finish(mut self) -> (farpool_model::Result<Option<u64>>, Vec<u8>) {
        let (appended, buffer) = self.recorder.finish();
        self.shards.for_each(|shard| shard.note_record(&appended));
        let depends_on = self.shards.last_record();
        (appended.map(|_| depends_on), buffer)
    }

    /// Returns the number of the last record that changed the shards, if there is one.
    pub fn last_record(&mut self) -> Option<u64> {
        self.shards.last_record()
    }

    /// Returns the hashes of the protected keys, if a value found no memory although more keys could be evicted.
    pub fn wants_room(&mut self) -> Option<Vec<u64>> {
        self.protected.wants_room.then(|| self.protected.sorted().to_vec())
    }

    pub fn shard(&mut self, shard: usize) -> &mut Shard {
        self.shards.get(shard)
    }
}

/// Returns the address range of a key.
#[inline]
fn place_of(key: &[u8]) -> Range<usize> {
    let start = key.as_ptr().addr();
    start..start + key.len()
}

/// Returns the shards of the commands' keys in ascending order, and whether they are all shards because a command needs
/// all.
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

    /// Returns all shards, for a command that needs all.
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

    /// Returns one shard, and the others.
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

    /// Returns a shard if the command has locked it.
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
