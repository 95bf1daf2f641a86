//! Rows that are kept in memory for statements that come to them later.

use arrow_array::RecordBatch;
use datafusion::execution::memory_pool::{MemoryConsumer, MemoryPool, MemoryReservation};
use farpool_model::limits::BATCH_RESULT_BYTES_MAX;
use farpool_transfer::BatchStream;
use futures::{StreamExt, stream};
use std::sync::Arc;

/// Few rows, counted in the memory of the engine.
#[derive(Debug)]
pub(crate) struct KeptRows {
    batches: Vec<RecordBatch>,
    reserved: MemoryReservation,
}

impl KeptRows {
    /// None so far.
    pub fn new(memory: &Arc<dyn MemoryPool>) -> Self {
        KeptRows { batches: Vec::new(), reserved: MemoryConsumer::new("rows of a batch").register(memory) }
    }

    /// Adds rows; returns false where these are too many, or there is no memory for them.
    #[must_use]
    pub fn add(&mut self, batch: RecordBatch) -> bool {
        let bytes = batch.get_array_memory_size();
        let fits =
            self.reserved.size() + bytes <= BATCH_RESULT_BYTES_MAX && self.reserved.try_grow(bytes).is_ok();
        if fits {
            self.batches.push(batch);
        }
        fits
    }

    /// The rows.
    pub fn batches(&self) -> &[RecordBatch] {
        &self.batches
    }

    /// The rows, whose memory is counted until the last has left.
    pub fn into_stream(self) -> BatchStream {
        let KeptRows { batches, reserved } = self;
        stream::iter(batches)
            .map(move |batch| {
                let _ = &reserved;
                Ok(batch)
            })
            .boxed()
    }
}
