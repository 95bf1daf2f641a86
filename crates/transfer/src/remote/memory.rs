//! The memory that the results of all remote queries of this process are decoded to.
//!
//! Invariant: when no query has been read for [`limits::RESULT_IDLE_MS`], the memory holds no more than the results
//! that their owners keep.

use farpool_columns::{ResultMemory, Room};
use farpool_model::limits;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, LazyLock};
use std::time::Duration;
use tokio::runtime::Handle;

/// Without it, which takes a system that does not even give addresses, results go to the allocator.
static MEMORY: LazyLock<Option<Arc<ResultMemory>>> =
    LazyLock::new(|| ResultMemory::new(limits::RESULT_BYTES_MAX).ok());

/// Results that are being read, and how many there have been.
static READING: AtomicUsize = AtomicUsize::new(0);
static BEGUN: AtomicU64 = AtomicU64::new(0);

/// Whether a task waits to let the memory go.
static WAITING: AtomicBool = AtomicBool::new(false);

/// A result that is being read.
pub(super) struct Reading;

impl Reading {
    /// From now to when it is dropped.
    pub fn begin() -> Reading {
        READING.fetch_add(1, Ordering::Relaxed);
        BEGUN.fetch_add(1, Ordering::Relaxed);
        Reading
    }

    /// Where one of its readers may decode to.
    pub fn room(&self) -> Room {
        Room::new(MEMORY.clone())
    }
}

impl Drop for Reading {
    fn drop(&mut self) {
        READING.fetch_sub(1, Ordering::Relaxed);
        let Ok(runtime) = Handle::try_current() else { return };
        if !WAITING.swap(true, Ordering::Relaxed) {
            runtime.spawn(trim_when_idle(Waiting, Duration::from_millis(limits::RESULT_IDLE_MS)));
        }
    }
}

/// Also when the task is dropped, with its runtime, another may wait.
struct Waiting;

impl Drop for Waiting {
    fn drop(&mut self) {
        WAITING.store(false, Ordering::Relaxed);
    }
}

/// Gives the memory back once no result has been read for `idle`.
async fn trim_when_idle(waiting: Waiting, idle: Duration) {
    loop {
        let begun = BEGUN.load(Ordering::Relaxed);
        tokio::time::sleep(idle).await;
        if begun == BEGUN.load(Ordering::Relaxed) && READING.load(Ordering::Relaxed) == 0 {
            break;
        }
    }
    if let Some(memory) = &*MEMORY {
        memory.trim();
    }
    drop(waiting);
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

    #[tokio::test]
    async fn memory_is_kept_while_results_are_read_and_let_go_when_none_has_been_for_a_while() {
        let memory = MEMORY.as_ref().expect("addresses for results");
        let idle = Duration::from_millis(50);
        let reading = Reading::begin();
        let other = Reading::begin();
        let mut room = reading.room();
        let rows = rows(&mut room);
        assert!(memory.bytes_used() > 0);
        // Here, and not when the result is dropped, so that the time to wait is short.
        WAITING.store(true, Ordering::Relaxed);
        drop((rows, room, reading));
        assert!(memory.bytes_used() == 0 && memory.bytes_kept() > 0);
        let trimming = tokio::spawn(trim_when_idle(Waiting, idle));
        tokio::time::sleep(3 * idle).await;
        assert!(memory.bytes_kept() > 0 && !trimming.is_finished(), "another result is being read");
        drop(other);
        trimming.await.expect("the task ends");
        assert_eq!(memory.bytes_kept(), 0);
        assert!(!WAITING.load(Ordering::Relaxed));
    }
}
