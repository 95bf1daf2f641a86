//! Training of compression dictionaries, which are samples of the first values of a space.
//!
//! When a space has some hundred values, a dictionary is made in the background and logged. It is kept as long as the
//! space exists, so later values that look different are compressed less. Existing values are recompressed step by
//! step.

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

/// Minimum number of values of a space for which a dictionary is trained.
const VALUES: usize = 256;

/// Divisor: a sample must fill at least 1/4 of the maximum size of a dictionary, because a dictionary of a few short
/// values would not suit later values.
const PART_LEAST: usize = 4;

/// Maximum number of spaces per step for which a dictionary is tried to be trained.
const TRIES: usize = 4;

/// Maximum bytes that one value contributes to a dictionary, so that a dictionary consists of several values.
const PIECE_BYTES: usize = 512;

impl Keyspace {
    /// Trains a dictionary for one space that has none and has enough values; returns whether there was such a space.
    /// Takes some milliseconds; shards are locked only while values are sampled and the dictionary is set.
    pub(crate) fn train_one(&self, now: u64) -> bool {
        let spaces = self.spaces();
        let mut wanting = spaces.packers().filter(|(_, packer)| packer.wants_dictionary()).peekable();
        if wanting.peek().is_none() {
            return false;
        }
        let counts = self.keys_by_space();
        let has_enough = |id: &SpaceId| counts.get(id).is_some_and(|keys| *keys >= VALUES);
        let mut ready: Vec<_> = wanting.filter(|(id, _)| has_enough(id)).collect();
        // Begins with another space each time, so that spaces whose sample is too small do not keep others from being
        // tried.
        let first = usize_saturating(now / 64) % ready.len().max(1);
        ready.rotate_left(first);
        ready.into_iter().take(TRIES).any(|(id, packer)| {
            spaces.numbered(id).is_some_and(|space| self.train(space, packer.compression(), now))
        })
    }

    fn train(&self, space: &Arc<Space>, compression: Compression, now: u64) -> bool {
        let room = compression.dictionary_bytes();
        // If there is no memory for the dictionary, the space stays without one.
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

    /// Returns the first bytes of some values of a space, from all shards, at most `most` bytes in total.
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
        // If a long command holds a shard, nothing is changed, and a later step tries again.
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
        // If appending the record fails, the next command that writes reports the error. Values are right without this
        // record.
        drop(recorder.finish().0);
        Ok(())
    }

    /// Sets the dictionary of a space from a log record.
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

    /// Sets the definitions of spaces from a log record.
    pub(crate) fn store_spaces(&self, spaces: Spaces) {
        // The compressors have their memory already, so it is no error here if the tenant's quota is exceeded.
        self.charge_packers(&spaces).ok();
        let spaces = Arc::new(spaces);
        (0..self.shards()).for_each(|shard| self.lock(shard).set_spaces(&spaces));
    }

    /// Charges the memory of the packers (compressors) of `spaces` to the tenant, and releases the charges for packers
    /// that no space uses any more.
    ///
    /// # Errors
    /// `OverLimit` when memory is too small.
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
