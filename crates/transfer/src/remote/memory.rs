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
            runtime.spawn(trim_when_idle(Waiting));
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

async fn trim_when_idle(waiting: Waiting) {
    loop {
        let begun = BEGUN.load(Ordering::Relaxed);
        tokio::time::sleep(Duration::from_millis(limits::RESULT_IDLE_MS)).await;
        if begun == BEGUN.load(Ordering::Relaxed) && READING.load(Ordering::Relaxed) == 0 {
            break;
        }
    }
    if let Some(memory) = &*MEMORY {
        memory.trim();
    }
    drop(waiting);
}
