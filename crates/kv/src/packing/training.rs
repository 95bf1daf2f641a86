//! Training of dictionaries: samples of a space's first values.
//!
//! A dictionary is made in the background once a space has some hundred values, then recorded and kept as long as the
//! space exists; values that look different later are compressed less. Existing values are recompressed step by step.

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

/// Least number of values of a space whose dictionary is trained.
const VALUES: usize = 256;

/// A sample must fill at least 1/4 of the dictionary; one made of a few short values would not suit later ones.
const PART_LEAST: usize = 4;

/// Spaces tried in one step.
const TRIES: usize = 4;

/// Most bytes that one value contributes, so that a dictionary covers several values.
const PIECE_BYTES: usize = 512;

impl Keyspace {
    /// Trains the dictionary of a space that lacks one and has enough values; returns whether it did. Takes some
    /// milliseconds; other threads wait only while the dictionary is set.
    pub(crate) fn train_one(&self, now: u64) -> bool {
        let spaces = self.spaces();
        let mut wanting = spaces.packers().filter(|(_, packer)| packer.wants_dictionary()).peekable();
        if wanting.peek().is_none() {
            return false;
        }
        let counts = self.keys_by_space();
        let has_enough = |id: &SpaceId| counts.get(id).is_some_and(|keys| *keys >= VALUES);
        let mut ready: Vec<_> = wanting.filter(|(id, _)| has_enough(id)).collect();
        // Rotates the order, so that spaces whose sample is too small do not block the others.
        let first = usize_saturating(now / 64) % ready.len().max(1);
        ready.rotate_left(first);
        ready.into_iter().take(TRIES).any(|(id, packer)| {
            spaces.numbered(id).is_some_and(|space| self.train(space, packer.compression(), now))
        })
    }

    fn train(&self, space: &Arc<Space>, compression: Compression, now: u64) -> bool {
        let room = compression.dictionary_bytes();
        // Without memory for a dictionary, the space has none.
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

    /// Returns prefixes of some values of a space, from all shards.
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
        // If a long command holds a shard, a later step tries again.
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
        // A failed append is reported to the next command that writes; values are correct without this record.
        drop(recorder.finish().0);
        Ok(())
    }

    /// Sets a dictionary that was recorded.
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

    /// Sets the definitions of spaces that were recorded.
    pub(crate) fn store_spaces(&self, spaces: Spaces) {
        // Their memory is in use already, so exceeding the tenant's quota is not an error here.
        self.charge_packers(&spaces).ok();
        let spaces = Arc::new(spaces);
        (0..self.shards()).for_each(|shard| self.lock(shard).set_spaces(&spaces));
    }

    /// Charges the memory of packers to the tenant, and releases charges for packers that no space uses any more.
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
