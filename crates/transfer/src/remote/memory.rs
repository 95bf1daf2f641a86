//! The memory that the results of remote queries are decoded to, for all pools of this process that share it.
//!
//! Invariant: when no query has been read for [`limits::RESULT_IDLE_MS`], the memory holds no more than the results
//! that their owners keep.

use farpool_columns::{ResultMemory, Room};
use farpool_model::limits;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, LazyLock};
use std::time::Duration;
use tokio::runtime::Handle;

/// What the pools share that are reached over TCP.
static OF_PROCESS: LazyLock<Arc<Results>> = LazyLock::new(Results::new);

/// See the file's comment.
#[derive(Debug)]
pub(super) struct Results {
    /// Without it, which takes a system that does not even give addresses, results go to the allocator.
    memory: Option<Arc<ResultMemory>>,
    /// Results that are being read, and how many there have been.
    reading: AtomicUsize,
    begun: AtomicU64,
    /// Whether a task waits to let the memory go.
    waiting: AtomicBool,
}

impl Results {
    /// Memory that is shared with no other.
    pub fn new() -> Arc<Results> {
        let memory = ResultMemory::new(limits::RESULT_BYTES_MAX).ok();
        let (reading, begun, waiting) = Default::default();
        Arc::new(Results { memory, reading, begun, waiting })
    }

    /// The memory that this process shares.
    pub fn of_process() -> Arc<Results> {
        OF_PROCESS.clone()
    }

    /// A result is read from now on to when what is returned is dropped.
    pub fn begin(self: &Arc<Self>) -> Reading {
        self.reading.fetch_add(1, Ordering::Relaxed);
        self.begun.fetch_add(1, Ordering::Relaxed);
        Reading(self.clone())
    }

    /// Gives the memory back once no result has been read for `idle`.
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

/// A result that is being read.
#[derive(Debug)]
pub(super) struct Reading(Arc<Results>);

impl Reading {
    /// Where one of its readers may decode to.
    pub fn room(&self) -> Room {
        Room::new(self.0.memory.clone())
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

/// Also when the task is dropped, with its runtime, another may wait.
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

    /// 4 MiB of rows, decoded from a parcel.
    fn rows(room: &mut Room) -> Vec<RecordBatch> {
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
