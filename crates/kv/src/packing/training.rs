//! The dictionary of a space: a sample of its first values.
//!
//! It is taken in the background once a space has some hundred values, recorded, and kept for as long as the space is there:
//! values that change their looks later are compressed less. What was there before is packed again step by step.

use super::{Compression, Packer};
use crate::effects::Effect;
use crate::journal::Recorder;
use crate::keyspace::Keyspace;
use crate::shard::SpaceId;
use crate::spaces::{Space, Spaces};
use farpool_memory::Tenure;
use farpool_model::Result;
use farpool_model::cast::usize_saturating;
use std::sync::Arc;

/// Values that a space has when its dictionary is made, at least.
const VALUES: usize = 256;

/// The part of a dictionary that values must fill, at least: one of some short values would be none for those to come.
const PART_LEAST: usize = 4;

/// Spaces that are tried in one step.
const TRIES: usize = 4;

/// Bytes of one value that become part of it, at most: it is of several values.
const PIECE_BYTES: usize = 512;

impl Keyspace {
    /// Makes the dictionary of a space that wants one and has enough values; returns whether it did. Some milliseconds, in which
    /// nobody waits but for the moment in which it is set.
    pub(crate) fn train_one(&self, now: u64) -> bool {
        let spaces = self.spaces();
        let mut wanting = spaces.packers().filter(|(_, packer)| packer.wants_dictionary()).peekable();
        if wanting.peek().is_none() {
            return false;
        }
        let counts = self.keys_by_space();
        let has_enough = |id: &SpaceId| counts.get(id).is_some_and(|keys| *keys >= VALUES);
        let mut ready: Vec<_> = wanting.filter(|(id, _)| has_enough(id)).collect();
        // Those that have no values for a sample do not keep others waiting.
        let first = usize_saturating(now / 64) % ready.len().max(1);
        ready.rotate_left(first);
        ready.into_iter().take(TRIES).any(|(id, packer)| {
            spaces.numbered(id).is_some_and(|space| self.train(space, packer.compression(), now))
        })
    }

    fn train(&self, space: &Arc<Space>, compression: Compression, now: u64) -> bool {
        let room = compression.dictionary_bytes();
        // Without room for it, a space goes without.
        let reserved =
            self.pool.allocate_piece(&self.tenant, Packer::bytes_with(compression), Tenure::Staying);
        if reserved.is_err() || self.journal().is_some_and(|journal| journal.check(room).is_err()) {
            return false;
        }
        let Ok(sample) = self.sample(space.id, room) else { return false };
        if sample.len() < room / PART_LEAST {
            return false;
        }
        let packer = Arc::new(Packer::new(compression, &sample));
        drop(reserved);
        self.set_dictionary(space, &packer, now).is_ok()
    }

    /// The beginnings of some values of a space, of all shards.
    fn sample(&self, space: SpaceId, most: usize) -> Result<Vec<u8>> {
        let mut sample = Vec::with_capacity(most);
        for shard in 0..self.shards() {
            let end = most * (shard + 1) / self.shards();
            if let Some(table) = self.lock(shard).table(space) {
                table.sample_values(end, PIECE_BYTES, &mut sample)?;
            }
        }
        Ok(sample)
    }

    fn set_dictionary(&self, space: &Arc<Space>, packer: &Arc<Packer>, now: u64) -> Result<()> {
        if let Some(journal) = self.journal() {
            journal.check(packer.dictionary().len())?;
        }
        // Where a long command has keys, another time will do.
        let all: Vec<usize> = (0..self.shards()).collect();
        let Some(mut shards) = self.take_all(&all) else { return Ok(()) };
        let before = Arc::clone(shards[0].spaces());
        let is_there = before.numbered(space.id).is_some_and(|other| Arc::ptr_eq(other, space));
        let Some(spaces) = before.with_packer(space.id, packer).filter(|_| is_there) else { return Ok(()) };
        self.charge_packers(&spaces)?;
        let spaces = Arc::new(spaces);
        shards.iter_mut().for_each(|shard| shard.set_spaces(&spaces));
        let mut recorder = Recorder::new(self.journal(), Vec::new(), now, now ^ u64::from(space.id) << 32);
        recorder.add(&Effect::Dictionary { space: space.id, dictionary: packer.dictionary() });
        // What cannot be recorded any more is an error for whoever writes next; values are right without it.
        drop(recorder.finish().0);
        Ok(())
    }

    /// A dictionary that was recorded.
    pub(crate) fn apply_dictionary(&self, space: SpaceId, dictionary: &[u8]) {
        let spaces = self.spaces();
        let Some(old) = spaces.packer(space) else { return };
        let packer = Packer::new(old.compression(), dictionary);
        if !packer.is_like(old)
            && let Some(spaces) = spaces.with_packer(space, &Arc::new(packer))
        {
            self.store_spaces(spaces);
        }
    }

    /// Sets the spaces that were recorded.
    pub(crate) fn store_spaces(&self, spaces: Spaces) {
        // They are in memory already, whether there is room for them in the quota of the tenant or not.
        self.charge_packers(&spaces).ok();
        let spaces = Arc::new(spaces);
        (0..self.shards()).for_each(|shard| self.lock(shard).set_spaces(&spaces));
    }

    /// Has the tenant pay for what packers take, and no longer for those that are gone.
    ///
    /// # Errors
    /// `OverLimit` where there is no room for them.
    pub(crate) fn charge_packers(&self, spaces: &Spaces) -> Result<()> {
        let mut charges = self.charges.lock();
        let meter = self.meter();
        charges.retain(|(packer, extent)| {
            let stays = spaces.packers().any(|(_, other)| Arc::ptr_eq(packer, other));
            if !stays {
                meter.gave(extent.len());
            }
            stays
        });
        for (_, packer) in spaces.packers().filter(|(_, packer)| packer.bytes() > 0) {
            if charges.iter().any(|(other, _)| Arc::ptr_eq(packer, other)) {
                continue;
            }
            meter.check(packer.bytes())?;
            let extent = self.pool.allocate_piece(&self.tenant, packer.bytes(), Tenure::Staying)?;
            meter.took(extent.len());
            charges.push((Arc::clone(packer), extent));
        }
        Ok(())
    }
}
