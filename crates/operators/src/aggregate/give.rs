//! Emits the results of groups as record batches, and splits groups into partitions for merging by several
//! threads.

use super::aggregation::Aggregation;
use super::store::Store;
use crate::failure;
use crate::group::Groups;
use crate::project::Emit;
use arrow_array::RecordBatch;
use arrow_select::concat::concat_batches;
use farpool_model::cast::u32_checked;
use farpool_model::{Result, limits};
use std::ops::ControlFlow;

/// Returns for each of `tasks` tasks (a power of two) the groups whose hash has that task's number in its top bits.
pub(super) fn partitions(groups: &Groups, tasks: usize) -> Vec<Vec<u32>> {
    let all = 0..u32_checked(groups.len());
    if tasks == 1 {
        return vec![all.collect()];
    }
    let mut partitions = vec![Vec::with_capacity(groups.len() / tasks * 9 / 8); tasks];
    let shift = u64::BITS - tasks.trailing_zeros();
    all.for_each(|group| partitions[(groups.hash(group) >> shift) as usize].push(group));
    partitions
}

/// Emits the results of the groups `wanted`, given by their ids. Stops when `emit` returns `Break`.
///
/// # Errors
/// `Invalid` when a sum does not fit its type.
pub(super) fn give(
    aggregation: &Aggregation,
    groups: &Groups,
    stores: &[Store],
    wanted: &[u32],
    emit: &mut Emit<'_>,
) -> Result<ControlFlow<()>> {
    for wanted in wanted.chunks(limits::BATCH_ROWS) {
        let mut arrays = groups.keys(wanted)?;
        arrays.extend(aggregation.finish(stores, wanted)?);
        let batch = RecordBatch::try_new(aggregation.schema.clone(), arrays).map_err(failure::of_kernel)?;
        if emit(batch).is_break() {
            return Ok(ControlFlow::Break(()));
        }
    }
    Ok(ControlFlow::Continue(()))
}

/// Combines small batches before they are emitted, because each emitted batch is a message with a cost of its own.
#[derive(Default)]
pub(crate) struct Batches {
    held: Vec<RecordBatch>,
    rows: usize,
    error: Option<farpool_model::Error>,
}

impl Batches {
    /// Adds a batch. Emits the pending batches first if there would be too many rows.
    pub(super) fn add(&mut self, batch: RecordBatch, emit: &mut Emit<'_>) -> ControlFlow<()> {
        if self.rows + batch.num_rows() > limits::BATCH_ROWS && self.flush(emit).is_break() {
            return ControlFlow::Break(());
        }
        self.rows += batch.num_rows();
        self.held.push(batch);
        ControlFlow::Continue(())
    }

    /// Emits the pending batches.
    ///
    /// # Errors
    /// Fails only on a bug in this crate.
    pub(super) fn finish(mut self, emit: &mut Emit<'_>) -> Result<()> {
        // Nothing is emitted after this, so that a `Break` needs no handling.
        let _ = self.flush(emit);
        self.error.map_or(Ok(()), Err)
    }

    fn flush(&mut self, emit: &mut Emit<'_>) -> ControlFlow<()> {
        self.rows = 0;
        let Some(first) = self.held.first() else { return ControlFlow::Continue(()) };
        match concat_batches(&first.schema(), &std::mem::take(&mut self.held)) {
            Ok(batch) => emit(batch),
            Err(error) => {
                self.error = Some(failure::of_kernel(error));
                ControlFlow::Break(())
            }
        }
    }
}
