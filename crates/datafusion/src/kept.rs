//! Rows that are kept in memory for statements that come to them later.

use arrow_array::RecordBatch;
use datafusion::execution::memory_pool::{MemoryConsumer, MemoryPool, MemoryReservation};
use farpool_transfer::BatchStream;
use futures::{StreamExt, stream};
use std::sync::Arc;

/// Few rows, counted in the memory of the engine.
#[derive(Debug)]
pub(crate) struct KeptRows {
    batches: Vec<RecordBatch>,
    bytes_max: usize,
    reserved: MemoryReservation,
}

impl KeptRows {
    /// None so far, and no more than `bytes_max`.
    pub fn new(memory: &Arc<dyn MemoryPool>, bytes_max: usize) -> Self {
        let reserved = MemoryConsumer::new("rows of a batch").register(memory);
        KeptRows { batches: Vec::new(), bytes_max, reserved }
    }

    /// Adds rows; returns false where these are too many, or there is no memory for them.
    #[must_use]
    pub fn add(&mut self, batch: RecordBatch) -> bool {
        let bytes = batch.get_array_memory_size();
        let fits = self.reserved.size() + bytes <= self.bytes_max && self.reserved.try_grow(bytes).is_ok();
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
        let KeptRows { batches, reserved, .. } = self;
        stream::iter(batches)
            .map(move |batch| {
                let _ = &reserved;
                Ok(batch)
            })
            .boxed()
    }
}
