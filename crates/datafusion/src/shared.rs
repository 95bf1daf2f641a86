//! Programs of a batch that read the same rows of a table run as one ([`farpool_planner::union`]).
//!
//! Invariant: sharing changes no answer. What all of them compute is kept whole before the first is given its part, and a task
//! of its own reads it, so that none waits for another to go on; where that fails or has too many bytes, each runs its own
//! program.

use crate::kept::KeptRows;
use crate::table::PoolTable;
use arrow_array::{RecordBatch, RecordBatchOptions};
use datafusion::common::runtime::SpawnedTask;
use datafusion::execution::memory_pool::MemoryPool;
use farpool_model::limits::BATCH_RESULT_BYTES_MAX;
use farpool_model::{Error, Program, Result};
use farpool_planner::estimate;
use farpool_planner::union::{are_alike, union};
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
    result: OnceLock<future::Shared<BoxFuture<'static, Kept>>>,
}

/// A whole result; `None` where each has to run its own program.
type Kept = Option<Arc<KeptRows>>;

/// What one of them gets of it.
#[derive(Clone, Debug)]
pub(crate) struct Share {
    shared: Arc<Shared>,
    columns: Vec<usize>,
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
    pub share: Arc<Mutex<Option<Share>>>,
}

/// Has programs that read the same rows run together, with their result in `memory`.
pub(crate) async fn share(mut programs: Vec<SharePlace>, memory: &Arc<dyn MemoryPool>) {
    while let Some(first) = programs.pop() {
        let (mut alike, others): (Vec<_>, Vec<_>) =
            programs.into_iter().partition(|other| can_share(&first, other));
        programs = others;
        alike.push(first);
        share_among(&alike, memory).await;
    }
}

fn can_share(a: &SharePlace, b: &SharePlace) -> bool {
    Arc::ptr_eq(a.table.pool(), b.table.pool()) && are_alike(&a.program, &b.program)
}

/// Prepares the program that does what all of these do. They are left as they are where the pool would do it in another way
/// than each of them, or the result would be large.
async fn share_among(alike: &[SharePlace], memory: &Arc<dyn MemoryPool>) {
    let programs: Vec<_> = alike.iter().map(|place| &place.program).collect();
    let (Some(whole), Some(first)) = (union(&programs), alike.first()) else { return };
    let table = &first.table;
    if estimate::bytes(&whole.program, table.info()) > BATCH_RESULT_BYTES_MAX as f64 {
        return;
    }
    let Ok(prepared) = table.pool().prepare(&whole.program, &table.info().schema).await else { return };
    if !prepared.is_exact() {
        return;
    }
    let (pool, memory, members) = (Arc::clone(table.pool()), Arc::clone(memory), alike.len());
    let shared = Arc::new(Shared { pool, prepared, memory, members, result: OnceLock::new() });
    for (place, columns) in alike.iter().zip(whole.columns) {
        *place.share.lock() = Some(Share { shared: Arc::clone(&shared), columns });
    }
}

impl Share {
    /// Number of programs that run as one.
    pub fn members(&self) -> usize {
        self.shared.members
    }

    /// Returns the streams that together are this program's result; `None` where it has to run by itself. Whoever comes first
    /// runs the program, of which `receipt` is told; others get what is there.
    pub async fn streams(
        &self,
        streams: usize,
        receipt: impl FnOnce(ReceiptHandle) + Send + 'static,
    ) -> Result<Option<Vec<BatchStream>>> {
        let Shared { pool, prepared, memory, result, .. } = &*self.shared;
        let result = result.get_or_init(|| {
            let kept = KeptRows::new(memory);
            let task = SpawnedTask::spawn(run(Arc::clone(pool), prepared.clone(), streams, kept, receipt));
            task.map(|ended| ended.ok().and_then(Result::ok).flatten()).boxed().shared()
        });
        let Some(kept) = result.clone().await else { return Ok(None) };
        let mut parts: Vec<Vec<Result<RecordBatch>>> = (0..streams).map(|_| Vec::new()).collect();
        for (at, batch) in kept.batches().iter().enumerate() {
            parts[at % streams].push(Ok(self.own(batch)?));
        }
        Ok(Some(parts.into_iter().map(|part| stream::iter(part).boxed()).collect()))
    }

    /// This program's columns of a batch.
    fn own(&self, batch: &RecordBatch) -> Result<RecordBatch> {
        let fields = batch.schema();
        let (fields, columns) = (
            fields.project(&self.columns).map_err(|error| Error::internal(error.to_string()))?,
            self.columns.iter().map(|at| Arc::clone(batch.column(*at))).collect(),
        );
        let options = RecordBatchOptions::new().with_row_count(Some(batch.num_rows()));
        RecordBatch::try_new_with_options(Arc::new(fields), columns, &options)
            .map_err(|error| Error::internal(error.to_string()))
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
