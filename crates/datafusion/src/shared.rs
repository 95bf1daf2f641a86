//! Programs that run as one where the planner finds that this takes less time ([`farpool_planner::groups`]): those of a batch,
//! and those of statements that a session is asked for at the same time ([`crate::window`]).
//!
//! Invariant: sharing changes no answer. What all of them compute is kept whole before the first is given its part, and a task
//! of its own reads it, so that none waits for another to go on; where that fails or has too many bytes, each runs its own
//! program.

use crate::kept::KeptRows;
use crate::table::PoolTable;
use arrow_array::{
    Array, ArrayRef, BooleanArray, RecordBatch, RecordBatchOptions, cast::AsArray, types::Int64Type,
};
use arrow_select::filter::{filter_record_batch, prep_null_mask_filter};
use datafusion::common::runtime::SpawnedTask;
use datafusion::execution::memory_pool::{MemoryLimit, MemoryPool};
use farpool_model::cast::usize_saturating;
use farpool_model::limits::{SHARED_RESULT_BYTES_MAX, SHARED_RESULT_BYTES_MIN, SHARED_RESULTS_PART};
use farpool_model::{Error, Program, Result};
use farpool_planner::cost::Rates;
use farpool_planner::explain;
use farpool_planner::groups::{Expected, Group, groups};
use farpool_planner::union::Part;
use farpool_transfer::{BatchStream, Handle, Pool, ReceiptHandle};
use futures::future::{self, BoxFuture};
use futures::{FutureExt, StreamExt, TryStreamExt, stream};
use parking_lot::Mutex;
use std::fmt;
use std::sync::{Arc, OnceLock};

/// One program in place of several.
pub(crate) struct Shared {
    pool: Arc<dyn Pool>,
    prepared: Handle,
    memory: Arc<dyn MemoryPool>,
    members: usize,
    together: Expected,
    apart: Expected,
    bytes_max: usize,
    result: OnceLock<future::Shared<BoxFuture<'static, Kept>>>,
    /// That of the program, once it has begun.
    receipt: OnceLock<ReceiptHandle>,
}

/// A whole result; `None` where each has to run its own program.
type Kept = Option<Arc<KeptRows>>;

/// What one of them gets of it.
#[derive(Clone, Debug)]
pub(crate) struct Share {
    shared: Arc<Shared>,
    part: Part,
}

impl fmt::Debug for Shared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Shared").field("members", &self.members).finish_non_exhaustive()
    }
}

/// A program, and where it is told of its share.
pub(crate) struct SharePlace {
    pub table: PoolTable,
    /// The program, over the version that it was prepared for.
    pub program: Program,
    /// Whether it runs in this process.
    pub is_here: bool,
    pub share: Arc<Mutex<Option<Share>>>,
}

/// What the grouping of programs depends on besides them.
pub(crate) struct Means {
    pub memory: Arc<dyn MemoryPool>,
    pub rates: Rates,
    /// Threads of the engine.
    pub threads: usize,
}

/// Has programs run together where that takes less time, with the results in memory.
pub(crate) async fn share(mut programs: Vec<SharePlace>, means: &Means) {
    let mut bytes_left = means.bytes();
    while let Some(first) = programs.pop() {
        let (mut of_table, others): (Vec<_>, Vec<_>) =
            programs.into_iter().partition(|other| read_the_same(&first, other));
        programs = others;
        of_table.push(first);
        // In their order.
        of_table.reverse();
        if of_table.len() > 1 {
            share_among(&of_table, means, &mut bytes_left).await;
        }
    }
}

impl Means {
    /// Bytes that all shared results may take.
    fn bytes(&self) -> usize {
        match self.memory.memory_limit() {
            MemoryLimit::Finite(bytes) => bytes / SHARED_RESULTS_PART,
            _ => SHARED_RESULT_BYTES_MAX * SHARED_RESULTS_PART,
        }
    }
}

fn read_the_same(a: &SharePlace, b: &SharePlace) -> bool {
    Arc::ptr_eq(a.table.pool(), b.table.pool())
        && (&a.program.table, a.program.version, a.is_here)
            == (&b.program.table, b.program.version, b.is_here)
}

/// Prepares the programs that do what several of these do. They are left as they are where the pool would do it in another
/// way than each of them.
async fn share_among(places: &[SharePlace], means: &Means, bytes_left: &mut usize) {
    let programs: Vec<&Program> = places.iter().map(|place| &place.program).collect();
    let Some(SharePlace { table, is_here, .. }) = places.first() else { return };
    let place = table.run_place(means.threads, *is_here);
    let bytes_max = (*bytes_left).min(SHARED_RESULT_BYTES_MAX) as f64;
    for group in groups(&programs, table.info(), place, &means.rates, bytes_max) {
        let Group { members, union, together, apart } = group;
        // Estimates may be wrong, but not without bound.
        let bytes = usize_saturating(together.bytes_plain as u64);
        let bytes_max = bytes.saturating_mul(2).max(SHARED_RESULT_BYTES_MIN);
        if bytes > *bytes_left {
            continue;
        }
        let Ok(prepared) = table.pool().prepare(&union.program, &table.info().schema).await else { continue };
        if !prepared.is_exact() {
            continue;
        }
        *bytes_left -= bytes;
        let shared = Arc::new(Shared {
            pool: Arc::clone(table.pool()),
            prepared,
            memory: Arc::clone(&means.memory),
            members: members.len(),
            together,
            apart,
            bytes_max,
            result: OnceLock::new(),
            receipt: OnceLock::new(),
        });
        for (member, part) in members.into_iter().zip(union.parts) {
            *places[member].share.lock() = Some(Share { shared: Arc::clone(&shared), part });
        }
    }
}

impl Share {
    /// Says how many run as one, and what is expected of it.
    pub fn explain(&self) -> String {
        explain::shared_line(self.shared.members, &self.shared.together, &self.shared.apart)
    }

    /// Compares what was expected and what was seen of the one program; `None` if it has not run, or in vain.
    pub fn outcome(&self) -> Option<String> {
        self.shared.result.get()?.peek()?.as_ref()?;
        let receipt = self.shared.receipt.get()?.get()?;
        Some(explain::shared_outcome(self.shared.members, &self.shared.together, &receipt))
    }

    /// Returns the streams that together are this program's result; `None` where it has to run by itself. Whoever comes first
    /// runs the program, of which `receipt` is told; others get what is there.
    pub async fn streams(
        &self,
        streams: usize,
        receipt: impl FnOnce(ReceiptHandle) + Send + 'static,
    ) -> Result<Option<Vec<BatchStream>>> {
        let Shared { pool, prepared, memory, bytes_max, result, .. } = &*self.shared;
        let result = result.get_or_init(|| {
            let kept = KeptRows::new(memory, *bytes_max);
            let shared = Arc::downgrade(&self.shared);
            let receipt = move |handle: ReceiptHandle| {
                if let Some(shared) = shared.upgrade() {
                    let _ = shared.receipt.set(handle.clone());
                }
                receipt(handle);
            };
            let task = SpawnedTask::spawn(run(Arc::clone(pool), prepared.clone(), streams, kept, receipt));
            task.map(|ended| ended.ok().and_then(Result::ok).flatten()).boxed().shared()
        });
        let Some(kept) = result.clone().await else { return Ok(None) };
        let mut parts: Vec<Vec<RecordBatch>> = (0..streams).map(|_| Vec::new()).collect();
        for (at, batch) in kept.batches().iter().enumerate() {
            parts[at % streams].push(batch.clone());
        }
        // Rows are picked out when they are taken: all of them, for each program, would be memory that nobody counts.
        let picked = |part| {
            let share = self.clone();
            stream::iter(part).map(move |batch| share.own(&batch)).boxed()
        };
        Ok(Some(parts.into_iter().map(picked).collect()))
    }

    /// This program's columns and rows of a batch.
    fn own(&self, batch: &RecordBatch) -> Result<RecordBatch> {
        let failed = |error: arrow_schema::ArrowError| Error::internal(error.to_string());
        let fields = batch.schema().project(&self.part.columns).map_err(failed)?;
        let columns = self.part.columns.iter().map(|at| Arc::clone(batch.column(*at))).collect();
        let options = RecordBatchOptions::new().with_row_count(Some(batch.num_rows()));
        let own = RecordBatch::try_new_with_options(Arc::new(fields), columns, &options).map_err(failed)?;
        match self.part.rows {
            Some(rows) => filter_record_batch(&own, &is_own(batch.column(rows))).map_err(failed),
            None => Ok(own),
        }
    }
}

/// Which rows a column says are a program's own ([`Part::rows`]).
fn is_own(column: &ArrayRef) -> BooleanArray {
    match column.as_boolean_opt() {
        Some(says) if says.null_count() > 0 => prep_null_mask_filter(says),
        Some(says) => says.clone(),
        None => BooleanArray::from_unary(column.as_primitive::<Int64Type>(), |count| count != 0),
    }
}

/// Runs a program and adds its result to `kept`; `None` where that is too large.
async fn run(
    pool: Arc<dyn Pool>,
    prepared: Handle,
    streams: usize,
    mut kept: KeptRows,
    receipt: impl FnOnce(ReceiptHandle),
) -> Result<Kept> {
    let execution = pool.execute_prepared(&prepared, None, streams).await?;
    receipt(execution.receipt);
    let mut batches = stream::select_all(execution.streams);
    while let Some(batch) = batches.try_next().await? {
        if !kept.add(batch) {
            return Ok(None);
        }
    }
    Ok(Some(Arc::new(kept)))
}
