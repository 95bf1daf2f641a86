//! Bringing the partial aggregations of all workers together.
//!
//! Groups are split by the top bits of their hash into partitions that have nothing to do with one another,
//! so that as many threads as there are may merge; few groups are not worth splitting. A lone partial has
//! each group once and needs no table.

use super::compile::Aggregation;
use super::general::Partial;
use super::store::Store;
use crate::failure;
use crate::group::Groups;
use crate::project::Emit;
use arrow_array::RecordBatch;
use farpool_model::cast::u32_checked;
use farpool_model::{Result, limits};

/// Groups up to which one task merges all.
const GROUPS_PER_TASK: usize = 64 << 10;

/// Bits of the hash that name a partition.
const PARTITION_BITS: u32 = 4;

/// Partial aggregations on their way to the result.
pub(crate) struct Merging {
    partials: Vec<Partial>,
    partition_bits: u32,
}

impl Merging {
    /// Takes the partials of all workers.
    pub(crate) fn new(aggregation: &Aggregation, mut partials: Vec<Partial>) -> Self {
        if aggregation.keys.is_empty() {
            if partials.is_empty() {
                partials.push(aggregation.partial());
            }
        } else {
            partials.retain(|p| p.groups.len() > 0);
        }
        let groups: usize = partials.iter().map(|p| p.groups.len()).sum();
        let partition_bits = if groups > GROUPS_PER_TASK { PARTITION_BITS } else { 0 };
        Merging { partials, partition_bits }
    }

    /// The number of tasks.
    pub(crate) fn tasks(&self) -> usize {
        if self.partials.is_empty() { 0 } else { 1 << self.partition_bits }
    }

    /// Merges one partition and lets its groups go.
    ///
    /// # Errors
    /// `Invalid` when a sum does not fit its type.
    pub(crate) fn run(&self, aggregation: &Aggregation, task: usize, emit: &mut Emit<'_>) -> Result<()> {
        if let [partial] = self.partials.as_slice() {
            let mine = self.groups_of(partial, task);
            return give(aggregation, &partial.groups, &partial.stores, &mine, emit);
        }
        let mut merged = aggregation.partial();
        let mut to = Vec::new();
        for partial in &self.partials {
            let from = self.groups_of(partial, task);
            merged.groups.intern_groups(&partial.groups, &from, &mut to)?;
            merged.make_room();
            for (store, other) in merged.stores.iter_mut().zip(&partial.stores) {
                store.merge(other, &from, &to)?;
            }
        }
        let all: Vec<u32> = (0..u32_checked(merged.groups.len())).collect();
        give(aggregation, &merged.groups, &merged.stores, &all, emit)
    }

    fn groups_of(&self, partial: &Partial, task: usize) -> Vec<u32> {
        let groups = 0..u32_checked(partial.groups.len());
        if self.partition_bits == 0 {
            return groups.collect();
        }
        let shift = 64 - self.partition_bits;
        groups.filter(|group| partial.groups.hash(*group) >> shift == task as u64).collect()
    }
}

fn give(
    aggregation: &Aggregation,
    groups: &Groups,
    stores: &[Store],
    wanted: &[u32],
    emit: &mut Emit<'_>,
) -> Result<()> {
    for wanted in wanted.chunks(limits::BATCH_ROWS) {
        let mut arrays = groups.keys(wanted)?;
        arrays.extend(aggregation.finish(stores, wanted)?);
        let batch = RecordBatch::try_new(aggregation.schema.clone(), arrays).map_err(failure::of_kernel)?;
        if emit(batch).is_break() {
            break;
        }
    }
    Ok(())
}
