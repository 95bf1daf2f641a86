//! Programs (the parts of queries that a pool runs, each over one table) that run as one (multi-query optimization) if
//! the planner crate expects this to take less time ([`farpool_planner::groups`]): those of a batch of statements, and
//! those of concurrent statements of a session ([`crate::window`]).
//!
//! Invariant: sharing changes no result. The common result is read completely by a separate task before the first
//! program gets its part of it, so that no program waits for another to proceed. If that fails or the result is too
//! large, each program runs separately.

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

/// One program that runs in place of several, its members.
pub(crate) struct Shared {
    pool: Arc<dyn Pool>,
    prepared: Handle,
    memory: Arc<dyn MemoryPool>,
    members: usize,
    together: Expected,
    apart: Expected,
    bytes_max: usize,
    result: OnceLock<future::Shared<BoxFuture<'static, Kept>>>,
    /// Handle to the execution statistics of the program; empty before it has started.
    receipt: OnceLock<ReceiptHandle>,
}

/// The complete common result; `None` if it failed or was too large, so that each member has to run its own program.
type Kept = Option<Arc<KeptRows>>;

/// The part of the common result that belongs to one of the members.
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

/// A program that may run as one with others, and the slot (`share`) for its part of the common result.
pub(crate) struct SharePlace {
    pub table: PoolTable,
    /// The program, which names the table version that it was prepared for.
    pub program: Program,
    /// Whether the program runs in this process rather than at a node.
    pub is_here: bool,
    pub share: Arc<Mutex<Option<Share>>>,
}

/// Inputs of the grouping of programs besides the programs: costs, threads, and memory for results.
pub(crate) struct Means {
    pub memory: Arc<dyn MemoryPool>,
    pub rates: Rates,
    /// Number of threads the query engine runs on.
    pub threads: usize,
}

/// Finds groups of programs for which one common program takes less time, and assigns each member its share. The common
/// results are stored in memory.
pub(crate) async fn share(mut programs: Vec<SharePlace>, means: &Means) {
    let mut bytes_left = means.bytes();
    while let Some(first) = programs.pop() {
        let (mut of_table, others): (Vec<_>, Vec<_>) =
            programs.into_iter().partition(|other| read_the_same(&first, other));
        programs = others;
        of_table.push(first);
        // Restores the order in which the programs were passed.
        of_table.reverse();
        if of_table.len() > 1 {
            share_among(&of_table, means, &mut bytes_left).await;
        }
    }
}

impl Means {
    /// Returns the maximum total size in bytes of all common results.
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

/// Prepares common programs, each for several of `places`, and assigns the shares. A group is left as it is if the pool
/// would not run the common program in the same way (exactly, at the same place) as each of its members.
async fn share_among(places: &[SharePlace], means: &Means, bytes_left: &mut usize) {
    let programs: Vec<&Program> = places.iter().map(|place| &place.program).collect();
    let Some(SharePlace { table, is_here, .. }) = places.first() else { return };
    let place = table.run_place(means.threads, *is_here);
    let bytes_max = (*bytes_left).min(SHARED_RESULT_BYTES_MAX) as f64;
    for group in groups(&programs, table.info(), place, &means.rates, bytes_max) {
        let Group { members, union, together, apart } = group;
        // The estimate may be wrong, so that a common result may take more bytes than estimated, up to a limit.
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
    /// Describes, for EXPLAIN, the number of programs that run as one, and the expected costs.
    pub fn explain(&self) -> String {
        explain::shared_line(self.shared.members, &self.shared.together, &self.shared.apart)
    }

    /// Compares the expected and the actual costs of the common program; `None` if it has not run, or failed.
    pub fn outcome(&self) -> Option<String> {
        self.shared.result.get()?.peek()?.as_ref()?;
        let receipt = self.shared.receipt.get()?.get()?;
        Some(explain::shared_outcome(self.shared.members, &self.shared.together, &receipt))
    }

    /// Returns the streams that together are this program's result; `None` if it has to run separately. The first
    /// caller runs the common program, and its handle to execution statistics is passed to `receipt`; other callers
    /// wait for that result.
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
        // Rows are selected only as the stream is polled: selecting them for every member in advance would take memory
        // that is not reserved.
        let picked = |part| {
            let share = self.clone();
            stream::iter(part).map(move |batch| share.own(&batch)).boxed()
        };
        Ok(Some(parts.into_iter().map(picked).collect()))
    }

    /// Returns the columns and rows of a batch of the common result that belong to this program.
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

/// Returns which rows belong to a program: those for which this column of the common result ([`Part::rows`]) is true or
/// not zero.
fn is_own(column: &ArrayRef) -> BooleanArray {
    match column.as_boolean_opt() {
        Some(says) if says.null_count() > 0 => prep_null_mask_filter(says),
        Some(says) => says.clone(),
        None => BooleanArray::from_unary(column.as_primitive::<Int64Type>(), |count| count != 0),
    }
}

/// Runs a common program and stores its result in `kept`; returns `None` if the result is too large.
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
