//! Result rows that are stored in memory because they are made before they are read: those of a statement of a batch
//! that starts before the client requests its result (`batch.rs`), and the common result of several programs (parts of
//! queries that a pool runs) that run as one (`shared.rs`). Their bytes are limited; a result that does not fit is
//! discarded, and computed again when it is needed.

use arrow_array::RecordBatch;
use datafusion::execution::memory_pool::{MemoryConsumer, MemoryPool, MemoryReservation};
use farpool_transfer::BatchStream;
use futures::{StreamExt, stream};
use std::sync::Arc;

/// A limited number of rows. Their memory is reserved from the engine's memory.
#[derive(Debug)]
pub(crate) struct KeptRows {
    batches: Vec<RecordBatch>,
    bytes_max: usize,
    reserved: MemoryReservation,
}

impl KeptRows {
    /// Creates an empty store for at most `bytes_max` bytes of rows.
    pub fn new(memory: &Arc<dyn MemoryPool>, bytes_max: usize) -> Self {
        let reserved = MemoryConsumer::new("rows of a batch").register(memory);
        KeptRows { batches: Vec::new(), bytes_max, reserved }
    }

    /// Stores a batch and returns true; returns false, without storing it, if the limit or the engine's memory does not
    /// suffice.
    #[must_use]
    pub fn add(&mut self, batch: RecordBatch) -> bool {
        let bytes = batch.get_array_memory_size();
        let fits = self.reserved.size() + bytes <= self.bytes_max && self.reserved.try_grow(bytes).is_ok();
        if fits {
            self.batches.push(batch);
        }
        fits
    }

    /// Returns the stored batches.
    pub fn batches(&self) -> &[RecordBatch] {
        &self.batches
    }

    /// Returns the stored rows as a stream, which releases their memory when it ends or is dropped.
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
