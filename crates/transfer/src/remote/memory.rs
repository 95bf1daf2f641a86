//! The memory into which the results of remote queries are decoded. All pools of this process that use TCP share it.
//!
//! Invariant: after [`limits::RESULT_IDLE_MS`] in which no result was read, only results that the caller still holds
//! take memory; the rest goes back to the system.

use farpool_columns::{ResultBuffer, ResultMemory};
use farpool_model::limits;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, LazyLock};
use std::time::Duration;
use tokio::runtime::Handle;

/// The memory of this process for results of pools that are reached over TCP.
static OF_PROCESS: LazyLock<Arc<Results>> = LazyLock::new(Results::new);

/// Memory for results, and the number of results that are being read.
#[derive(Debug)]
pub(super) struct Results {
    /// The reserved range of addresses; `None` if the system grants none, in which case results come from the usual
    /// allocator.
    memory: Option<Arc<ResultMemory>>,
    /// Number of results that are being read at the moment.
    reading: AtomicUsize,
    begun: AtomicU64,
    /// Whether a task is waiting to release the memory, so that no second one is started.
    waiting: AtomicBool,
}

impl Results {
    /// Creates memory for results that is not shared with other pools of the process.
    pub fn new() -> Arc<Results> {
        let memory = ResultMemory::new(limits::RESULT_BYTES_MAX).ok();
        let (reading, begun, waiting) = Default::default();
        Arc::new(Results { memory, reading, begun, waiting })
    }

    /// Returns the memory that is shared within this process.
    pub fn of_process() -> Arc<Results> {
        OF_PROCESS.clone()
    }

    /// Counts a result as being read until the returned guard is dropped.
    pub fn begin(self: &Arc<Self>) -> Reading {
        self.reading.fetch_add(1, Ordering::Relaxed);
        self.begun.fetch_add(1, Ordering::Relaxed);
        Reading(self.clone())
    }

    /// Waits until no result has been read for the duration `idle`, and returns the unused memory to the system.
    async fn trim_when_idle(&self, idle: Duration) {
        loop {
            let begun = self.begun.load(Ordering::Relaxed);
            tokio::time::sleep(idle).await;
            if begun == self.begun.load(Ordering::Relaxed) && self.reading.load(Ordering::Relaxed) == 0 {
                break;
            }
        }
        if let Some(memory) = &self.memory {
            memory.trim();
        }
    }
}

/// Guard that counts a result as being read until it is dropped.
#[derive(Debug)]
pub(super) struct Reading(Arc<Results>);

impl Reading {
    /// Creates a buffer in which one reader of the result decodes rows.
    pub fn room(&self) -> ResultBuffer {
        ResultBuffer::new(self.0.memory.clone())
    }
}

impl Drop for Reading {
    fn drop(&mut self) {
        let results = &self.0;
        results.reading.fetch_sub(1, Ordering::Relaxed);
        let Ok(runtime) = Handle::try_current() else { return };
        if !results.waiting.swap(true, Ordering::Relaxed) {
            let waiting = Waiting(results.clone());
            let idle = Duration::from_millis(limits::RESULT_IDLE_MS);
            runtime.spawn(async move { waiting.0.trim_when_idle(idle).await });
        }
    }
}

/// Guard that clears `waiting` when dropped, so that another task can be started later even if the runtime drops the
/// current one.
struct Waiting(Arc<Results>);

impl Drop for Waiting {
    fn drop(&mut self) {
        self.0.waiting.store(false, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use arrow_array::{ArrayRef, Int64Array, RecordBatch};
    use arrow_schema::{DataType, Field, Schema};
    use farpool_columns::{Parcel, pack_array, pack_chunks};

    /// Decodes a parcel (encoded column chunks) to 4 MiB of rows.
    fn rows(room: &mut ResultBuffer) -> Vec<RecordBatch> {
        let values: ArrayRef = Arc::new(Int64Array::from_iter_values(0..limits::ROW_GROUP_ROWS as i64));
        let schema = Arc::new(Schema::new(vec![Field::new("c", DataType::Int64, true)]));
        let chunk = Arc::new(pack_array(&values).expect("packs"));
        let body = pack_chunks(values.len(), &[chunk]).concat().into();
        let next = |_| Parcel::read(&body, &schema)?.next(limits::ROW_GROUP_ROWS, room);
        (0..8).map(next).collect::<farpool_model::Result<_>>().expect("a parcel")
    }

    #[tokio::test(start_paused = true)]
    async fn memory_is_kept_while_results_are_read_and_let_go_when_none_has_been_for_a_while() {
        let idle = Duration::from_millis(limits::RESULT_IDLE_MS);
        let results = Results::new();
        let memory = results.memory.as_ref().expect("addresses for results");
        let reading = results.begin();
        let other = results.begin();
        let mut room = reading.room();
        let rows = rows(&mut room);
        assert!(memory.bytes_used() > 0);
        drop((rows, room, reading));
        assert!(memory.bytes_used() == 0 && memory.bytes_kept() > 0);
        tokio::time::sleep(3 * idle).await;
        assert!(memory.bytes_kept() > 0, "another result is being read");
        drop(other);
        tokio::time::sleep(3 * idle).await;
        assert_eq!(memory.bytes_kept(), 0);
        assert!(!results.waiting.load(Ordering::Relaxed), "the next result has its own task");
    }
}
