//! Rows that are kept in memory for statements that read them later.

use arrow_array::RecordBatch;
use datafusion::execution::memory_pool::{MemoryConsumer, MemoryPool, MemoryReservation};
use farpool_transfer::BatchStream;
use futures::{StreamExt, stream};
use std::sync::Arc;

/// A small number of rows, whose memory is reserved from the engine's.
#[derive(Debug)]
pub(crate) struct KeptRows {
    batches: Vec<RecordBatch>,
    bytes_max: usize,
    reserved: MemoryReservation,
}

impl KeptRows {
    /// Creates an empty set of at most `bytes_max` bytes.
    pub fn new(memory: &Arc<dyn MemoryPool>, bytes_max: usize) -> Self {
        let reserved = MemoryConsumer::new("rows of a batch").register(memory);
        KeptRows { batches: Vec::new(), bytes_max, reserved }
    }

    /// Adds rows; returns false if there are too many, or no memory for them.
    #[must_use]
    pub fn add(&mut self, batch: RecordBatch) -> bool {
        let bytes = batch.get_array_memory_size();
        let fits = self.reserved.size() + bytes <= self.bytes_max && self.reserved.try_grow(bytes).is_ok();
        if fits {
            self.batches.push(batch);
        }
        fits
    }

    /// Returns the rows.
    pub fn batches(&self) -> &[RecordBatch] {
        &self.batches
    }

    /// Returns the rows as a stream, which releases their memory when it ends or is dropped.
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
