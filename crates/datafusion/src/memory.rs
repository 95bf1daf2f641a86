//! The memory budget of the engine's operators while a statement runs. It is shared with the pool in this process, or
//! separate. Joins, sorts and groups that exceed it spill to files, or the statement fails.
//!
//! Invariant: all memory that DataFusion was granted is reserved from the budget.

use datafusion::common::DataFusionError;
use datafusion::execution::memory_pool::{
    FairSpillPool, MemoryConsumer, MemoryLimit, MemoryPool, MemoryReservation,
};
use farpool_memory::{Reservation, WorkMemory, size_text};
use farpool_model::TenantName;
use farpool_model::cast::u64_from;
use parking_lot::Mutex;
use std::fmt;
use std::sync::Arc;

/// The part of the budget, as a divisor, that operators which can spill leave to operators which cannot. Reason: the
/// merge of a sort's spilled runs cannot spill, and must hold a batch of each file.
const PART_FOR_OTHERS: usize = 4;

/// Bytes of an operator that are granted even if nothing is left. Reason: a merge join takes the rows of equal keys
/// without asking, at times more than there is, and an operator beside it that holds a few counts should not fail for
/// that. An operator is one of those of a plan, of which the number is limited.
const ALWAYS_GRANTED_BYTES: usize = 16 << 10;

/// The memory budget as DataFusion sees it. Operators that can spill get equal shares of the memory that the others
/// leave, as in DataFusion's fair pool. The budget may refuse earlier than DataFusion's pool would, because the pool in
/// this process reserves from it as well.
///
/// Rows in flight between threads (in repartitioning) are not counted. If they were refused, they would spill to files,
/// whose readers may wait forever (DataFusion before its fix of issue 24883). If they were counted, merges would lack
/// memory that sorts cannot free. They are few, unless one thread falls far behind the others; a share for them is left
/// free nevertheless.
#[derive(Debug)]
pub(crate) struct EngineMemory {
    dealt: FairSpillPool,
    reserved: Mutex<Reservation>,
    limit: usize,
    /// Maximum total of granted bytes at which operators that can spill still get more.
    spillable_max: usize,
}

/// Returns whether the memory consumer is a repartitioning, which holds rows in flight between threads.
fn is_on_its_way(consumer: &MemoryConsumer) -> bool {
    consumer.can_spill() && consumer.name().starts_with("RepartitionExec[")
}

impl EngineMemory {
    /// Creates a memory pool for DataFusion that reserves from the budget `work`.
    pub fn new(work: &Arc<WorkMemory>) -> Self {
        let account = work.account(&TenantName::default());
        EngineMemory {
            dealt: FairSpillPool::new(work.limit()),
            reserved: Mutex::new(account.empty()),
            limit: work.limit(),
            spillable_max: work.limit() - work.limit() / PART_FOR_OTHERS,
        }
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
        if is_on_its_way(reservation.consumer()) {
            return;
        }
        self.dealt.grow(reservation, additional);
        let mut reserved = self.reserved.lock();
        let bytes = reserved.bytes() + additional;
        reserved.set(bytes);
    }

    fn shrink(&self, reservation: &MemoryReservation, shrink: usize) {
        if is_on_its_way(reservation.consumer()) {
            return;
        }
        self.dealt.shrink(reservation, shrink);
        let given_back = self.reserved.lock().split(shrink);
        drop(given_back);
    }

    fn try_grow(&self, reservation: &MemoryReservation, additional: usize) -> Result<(), DataFusionError> {
        let consumer = reservation.consumer();
        if is_on_its_way(consumer) {
            return Ok(());
        }
        // An operator that holds no memory has nothing to spill, so that a refusal would make it fail.
        let can_do_with_less = consumer.can_spill() && reservation.size() > 0;
        if can_do_with_less && self.dealt.reserved() + additional > self.spillable_max {
            let message = format!("{} has had its part of the memory for work", consumer.name());
            return Err(DataFusionError::ResourcesExhausted(message));
        }
        if !consumer.can_spill() && reservation.size() + additional <= ALWAYS_GRANTED_BYTES {
            self.grow(reservation, additional);
            return Ok(());
        }
        let refused = |_| {
            let text = |bytes: usize| size_text(u64_from(bytes));
            let reserved = self.reserved.lock();
            DataFusionError::ResourcesExhausted(format!(
                "there is no memory for {}: it has {}, and wants {} more of the {} for work, of which {} are taken",
                consumer.name(),
                text(reservation.size()),
                text(additional),
                text(self.limit),
                text(reserved.bytes()),
            ))
        };
        self.dealt.try_grow(reservation, additional).map_err(refused)?;
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
        // Operators that can spill leave memory for those that cannot, and rows in flight are not counted.
        let sort = MemoryConsumer::new("sort").with_can_spill(true).register(&memory);
        sort.try_grow(48 << 20).unwrap();
        assert!(sort.try_grow(1).is_err());
        let merge = MemoryConsumer::new("merge").register(&memory);
        merge.try_grow(15 << 20).unwrap();
        let other_sort = MemoryConsumer::new("sort").with_can_spill(true).register(&memory);
        other_sort.try_grow(1 << 20).unwrap();
        assert!(other_sort.try_grow(1).is_err());
        let on_its_way = MemoryConsumer::new("RepartitionExec[0]").with_can_spill(true).register(&memory);
        on_its_way.try_grow(1 << 20).unwrap();
        assert_eq!((work.usage().bytes_used, memory.reserved()), (64 << 20, 64 << 20));
        drop((sort, other_sort, merge, on_its_way));
        assert_eq!(work.usage().bytes_used, 0);
        // DataFusion's infallible `grow` may exceed the limit.
        let must = MemoryConsumer::new("must").register(&memory);
        must.grow(80 << 20);
        assert_eq!(work.usage().bytes_used, 80 << 20);
        // A few bytes are there for everyone else, but no more.
        let groups = MemoryConsumer::new("groups").register(&memory);
        groups.try_grow(97).unwrap();
        groups.try_grow(2).unwrap();
        assert!(groups.try_grow(ALWAYS_GRANTED_BYTES).is_err());
    }
}
