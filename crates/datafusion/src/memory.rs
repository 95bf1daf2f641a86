//! Memory for what the engine keeps while a statement runs: the same budget as that of the pool in this process, or
//! one of its own. Joins, sorts and groups that do not fit are written to files, or the statement is refused.
//!
//! Invariant: what DataFusion has been promised is reserved from the budget.

use datafusion::common::DataFusionError;
use datafusion::execution::memory_pool::{
    FairSpillPool, MemoryConsumer, MemoryLimit, MemoryPool, MemoryReservation,
};
use farpool_memory::{Reservation, WorkMemory};
use farpool_model::TenantName;
use parking_lot::Mutex;
use std::fmt;
use std::sync::Arc;

/// DataFusion's view of a budget. Operators that can write to files have equal parts of what the others leave, as
/// DataFusion deals it out; the budget may refuse sooner, because the pool works from it too.
#[derive(Debug)]
pub(crate) struct EngineMemory {
    dealt: FairSpillPool,
    reserved: Mutex<Reservation>,
}

impl EngineMemory {
    /// The view of `work`.
    pub fn new(work: &Arc<WorkMemory>) -> Self {
        let account = work.account(&TenantName::default());
        EngineMemory { dealt: FairSpillPool::new(work.limit()), reserved: Mutex::new(account.empty()) }
    }
}

impl fmt::Display for EngineMemory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.dealt)
    }
}

impl MemoryPool for EngineMemory {
    fn name(&self) -> &'static str {
        "farpool"
    }

    fn register(&self, consumer: &MemoryConsumer) {
        self.dealt.register(consumer);
    }

    fn unregister(&self, consumer: &MemoryConsumer) {
        self.dealt.unregister(consumer);
    }

    fn grow(&self, reservation: &MemoryReservation, additional: usize) {
        self.dealt.grow(reservation, additional);
        let mut reserved = self.reserved.lock();
        let bytes = reserved.bytes() + additional;
        reserved.set(bytes);
    }

    fn shrink(&self, reservation: &MemoryReservation, shrink: usize) {
        self.dealt.shrink(reservation, shrink);
        let given_back = self.reserved.lock().split(shrink);
        drop(given_back);
    }

    fn try_grow(&self, reservation: &MemoryReservation, additional: usize) -> Result<(), DataFusionError> {
        self.dealt.try_grow(reservation, additional)?;
        let grown = self.reserved.lock().try_grow(additional);
        grown.map_err(|error| {
            self.dealt.shrink(reservation, additional);
            DataFusionError::ResourcesExhausted(error.message)
        })
    }

    fn reserved(&self) -> usize {
        self.dealt.reserved()
    }

    fn memory_limit(&self) -> MemoryLimit {
        self.dealt.memory_limit()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_engine_has_is_reserved_and_what_the_pool_has_is_not_the_engines() {
        let work = WorkMemory::new(64 << 20);
        let memory: Arc<dyn MemoryPool> = Arc::new(EngineMemory::new(&work));
        let join = MemoryConsumer::new("join").register(&memory);
        join.try_grow(16 << 20).unwrap();
        assert_eq!(work.usage().bytes_used, 16 << 20);
        let of_pool = work.account(&TenantName::default()).try_reserve(40 << 20).unwrap();
        let error = join.try_grow(16 << 20).unwrap_err();
        assert!(
            matches!(&error, DataFusionError::ResourcesExhausted(m) if m.contains("8.0 MiB are free")),
            "{error}"
        );
        assert_eq!((join.size(), memory.reserved()), (16 << 20, 16 << 20));
        drop(of_pool);
        join.try_grow(16 << 20).unwrap();
        join.shrink(1 << 20);
        assert_eq!(work.usage().bytes_used, 31 << 20);
        drop(join);
        assert_eq!(work.usage().bytes_used, 0);
        // DataFusion may take what it must have.
        let must = MemoryConsumer::new("must").register(&memory);
        must.grow(80 << 20);
        assert_eq!(work.usage().bytes_used, 80 << 20);
    }
}
