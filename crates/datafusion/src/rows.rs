//! A plan that returns rows, and its execution. The plan contains programs (parts of the query that a pool, the store
//! of the tables, runs), and DataFusion runs the rest.
//!
//! A plan that runs out of memory before its first row is replaced by another one, over the same versions of the
//! tables, with fewer hash joins (`crate::joins::HashTables`): the sorts of the sort-merge joins in their place can
//! spill. A plan whose joins a pool has begun to carry out and then refused, because they turned out too large for it, is
//! replaced by one that joins in the engine.

use crate::exec::PoolExec;
use crate::joins::{CompactRows, HashTables};
use crate::lineage::TrustedFilters;
use crate::plain::UnlessPlain;
use crate::spill::SpillFiles;
use arrow_array::{RecordBatch, RecordBatchOptions};
use arrow_schema::SchemaRef;
use datafusion::common::tree_node::{TreeNode, TreeNodeRecursion};
use datafusion::error::DataFusionError;
use datafusion::execution::SessionStateBuilder;
use datafusion::execution::TaskContext;
use datafusion::execution::disk_manager::DiskManagerBuilder;
use datafusion::execution::memory_pool::{MemoryLimit, MemoryPool};
use datafusion::execution::runtime_env::RuntimeEnv;
use datafusion::execution::session_state::SessionState;
use datafusion::logical_expr::LogicalPlan;
use datafusion::physical_optimizer::PhysicalOptimizerRule;
use datafusion::physical_plan::joins::{HashJoinExec, SortMergeJoinExec};
use datafusion::physical_plan::sorts::sort::SortExec;
use datafusion::physical_plan::{ExecutionPlan, ExecutionPlanProperties, SendableRecordBatchStream};
use farpool_model::{Receipt, Result};
use farpool_sql::checked::{FiltersFirst, GuardedFilters};
use farpool_sql::dialect::Headers;
use farpool_sql::{LambdaParameters, error, interrupt};
use farpool_transfer::{BatchStream, ReceiptHandle};
use futures::{StreamExt, TryStreamExt, stream};
use parking_lot::Mutex;
use std::sync::Arc;
use std::time::Duration;

/// The maximum share of the memory, as a divisor, that all sorts together reserve for merging their spilled runs. It is
/// smaller below joins, because more sorts run at a time there.
const PART_FOR_MERGES: usize = 2;
const PART_FOR_MERGES_OF_JOINS: usize = 4;

/// Bytes of memory for each spilled run in a merge: two batches of a hundred bytes per row, and as much for their sort
/// keys.
const RUN_BYTES: usize = 4 << 20;

/// Minimum number of spilled runs that a merge reads at a time: merging fewer than two makes no progress.
const RUNS_MIN: usize = 2;

/// Minimum number of rows of a batch if memory is short, because smaller batches cost too much time per row.
const BATCH_ROWS_MIN: usize = 512;

/// Duration and maximum number of the pauses in which a new plan waits for the memory of the failed one, whose tasks
/// may take a moment to end: 2 s in all.
const RELEASE_PAUSE: Duration = Duration::from_millis(5);
const RELEASE_PAUSES: usize = 400;

/// A plan that returns rows, and its current physical plan. Clones refer to the same plan.
#[derive(Clone)]
pub(crate) struct Rows {
    current: Arc<Mutex<Current>>,
    /// The columns of the result, with the names that the caller sees.
    schema: SchemaRef,
    source: Arc<Source>,
}

/// Inputs of physical planning: the session's state and the logical plan.
struct Source {
    state: Arc<SessionState>,
    plan: LogicalPlan,
    /// The engine's memory budget in bytes; `None` if it has no limit.
    memory_bytes: Option<usize>,
}

/// An extension of the session's configuration for statements whose joins the engine carries out, because a pool has
/// refused them.
pub(crate) struct JoinsHere;

/// The physical plan that runs next or ran last.
struct Current {
    plan: Arc<dyn ExecutionPlan>,
    context: Arc<TaskContext>,
    /// Number of earlier physical plans that ran out of memory.
    failed: usize,
    /// Whether pools carry out no joins, because one has refused some.
    joins_here: bool,
    /// Execution statistics of the programs of earlier physical plans, which ran out of memory or were refused.
    spent: Vec<ReceiptHandle>,
}

/// Returns the optimizer rules for physical plans. `tables` is the limit of hash tables; `None` if there is no limit.
pub(crate) fn physical_rules(
    tables: Option<HashTables>,
) -> Vec<Arc<dyn PhysicalOptimizerRule + Send + Sync>> {
    rules_of_all_plans(tables)
        .into_iter()
        .map(|rule| interrupt::rules::physical(Arc::new(UnlessPlain(rule))))
        .collect()
}

/// Returns the same rules as [`physical_rules`], but applied also to plans that they would not change
/// ([`crate::plain`]).
pub(crate) fn rules_of_all_plans(
    tables: Option<HashTables>,
) -> Vec<Arc<dyn PhysicalOptimizerRule + Send + Sync>> {
    let mut rules = crate::joins::rules(tables);
    rules.insert(0, Arc::new(LambdaParameters));
    rules.push(Arc::new(FiltersFirst));
    rules.push(Arc::new(TrustedFilters));
    rules.push(Arc::new(CompactRows));
    rules.push(Arc::new(GuardedFilters));
    rules
}

impl Rows {
    /// Makes the physical plan for the rows of `plan`.
    pub async fn plan(state: &Arc<SessionState>, plan: &LogicalPlan) -> Result<Self, DataFusionError> {
        let memory_bytes = match state.runtime_env().memory_pool.memory_limit() {
            MemoryLimit::Finite(bytes) => Some(bytes),
            _ => None,
        };
        let source = Source { state: Arc::clone(state), plan: plan.clone(), memory_bytes };
        let physical = state.create_physical_plan(plan).await?;
        let context = source.context(state, &physical)?;
        let schema = physical.schema();
        let current = Current { plan: physical, context, failed: 0, joins_here: false, spent: Vec::new() };
        Ok(Rows { schema, current: Arc::new(Mutex::new(current)), source: Arc::new(source) })
    }

    /// Sets `headers` as the names of the result's columns.
    pub fn with_headers(mut self, headers: &Headers) -> Self {
        self.schema = headers.over(&self.schema);
        self
    }

    /// Returns the schema of the result.
    pub fn schema(&self) -> SchemaRef {
        Arc::clone(&self.schema)
    }

    /// Returns the physical plan that runs next or ran last.
    pub fn operators(&self) -> Arc<dyn ExecutionPlan> {
        Arc::clone(&self.current.lock().plan)
    }

    /// Starts the plan, and returns the stream of its rows. Dropping the stream cancels the programs at the pool.
    pub fn start(&self) -> Result<BatchStream> {
        let guard = CancelOnDrop(self.clone());
        let batches = self.run().map_err(error::unwrap)?;
        let (schema, has_headers) = (Arc::clone(&self.schema), self.schema != self.operators().schema());
        let named = move |batch: RecordBatch| {
            let _ = &guard;
            if !has_headers {
                return Ok(batch);
            }
            let options = RecordBatchOptions::new().with_row_count(Some(batch.num_rows()));
            let columns = batch.columns().to_vec();
            RecordBatch::try_new_with_options(Arc::clone(&schema), columns, &options)
                .map_err(|error| error::unwrap(error.into()))
        };
        let batches = match self.source.memory_bytes.is_some() || self.has_lookups() {
            true => stream::once(self.clone().begun(batches)).try_flatten().boxed(),
            false => batches.map_err(error::unwrap).boxed(),
        };
        Ok(batches.map(move |batch| named(batch?)).boxed())
    }

    fn run(&self) -> Result<SendableRecordBatchStream, DataFusionError> {
        let (plan, context) = {
            let current = self.current.lock();
            (Arc::clone(&current.plan), Arc::clone(&current.context))
        };
        interrupt::execute_apart(plan, context)
    }

    /// Waits for the first of `batches`, and returns them all. If memory runs out before the first row, or a pool refuses
    /// to go on with joins, returns the rows of a plan that needs less memory, or joins in the engine.
    async fn begun(self, mut batches: SendableRecordBatchStream) -> Result<BatchStream> {
        loop {
            let error = match first_with_rows(&mut batches).await {
                Ok(first) => {
                    let rest = batches.map_err(error::unwrap);
                    return Ok(stream::iter(first.map(Ok)).chain(rest).boxed());
                }
                Err(error) => error,
            };
            drop(batches);
            let replaced = match () {
                () if is_exhausted(&error) => self.plan_smaller().await,
                () if error::is_over_limit(&error) => self.plan_with_joins_here().await,
                () => Ok(false),
            };
            if !replaced.map_err(error::unwrap)? {
                return Err(self.explained(error));
            }
            batches = self.run().map_err(error::unwrap)?;
        }
    }

    /// Makes a new physical plan over the same versions of the tables, because a plan that has started cannot run
    /// again.
    pub async fn renew(&self) -> Result<(), DataFusionError> {
        let joins_here = self.current.lock().joins_here;
        let state = self.source.state(joins_here);
        let plan = state.create_physical_plan(&self.source.plan).await?;
        let context = self.source.context(&state, &plan)?;
        let mut current = self.current.lock();
        let spent = handles(&current.plan);
        current.spent.extend(spent);
        (current.plan, current.context) = (plan, context);
        Ok(())
    }

    /// Returns whether a program of the plan has lookups (joins that a pool carries out).
    fn has_lookups(&self) -> bool {
        self.programs(|program| !program.prepared().effective.lookups.is_empty()).contains(&true)
    }

    /// Replaces the physical plan by one whose joins the engine carries out. Returns false if that one has no others.
    async fn plan_with_joins_here(&self) -> Result<bool, DataFusionError> {
        if !self.has_lookups() || self.is_copy()? {
            return Ok(false);
        }
        let state = self.source.state(true);
        let plan = state.create_physical_plan(&self.source.plan).await?;
        let context = self.source.context(&state, &plan)?;
        let mut current = self.current.lock();
        let spent = handles(&current.plan);
        current.spent.extend(spent);
        (current.plan, current.context, current.joins_here) = (plan, context, true);
        Ok(true)
    }

    /// Returns whether the plan writes files by DataFusion's own writer. It does not run again, because it may have
    /// written some rows already.
    fn is_copy(&self) -> Result<bool, DataFusionError> {
        self.source.plan.exists(|node| Ok(matches!(node, LogicalPlan::Copy(_))))
    }

    /// Replaces the physical plan by one that needs less memory. Returns false if there is none.
    async fn plan_smaller(&self) -> Result<bool, DataFusionError> {
        let (failed, joins_here, joins) = {
            let current = self.current.lock();
            (current.failed, current.joins_here, joins(&current.plan))
        };
        if joins == 0 || self.is_copy()? {
            return Ok(false);
        }
        let Some(memory_bytes) = self.source.memory_bytes else { return Ok(false) };
        let Some(tables) = HashTables::after(failed + 1, memory_bytes) else { return Ok(false) };
        let state = self.source.state_for(tables, joins, memory_bytes, joins_here);
        let plan = state.create_physical_plan(&self.source.plan).await?;
        let context = self.source.context(&state, &plan)?;
        {
            let mut current = self.current.lock();
            let spent = handles(&current.plan);
            current.spent.extend(spent);
            // Dropping the old plan here also frees the hash tables that it still holds.
            (current.plan, current.context, current.failed) = (plan, context, failed + 1);
        }
        released(&*state.runtime_env().memory_pool, memory_bytes).await;
        Ok(true)
    }

    /// Adds advice to the error of a plan that ran out of memory, if the statement can be written so that it needs
    /// less.
    fn explained(&self, error: DataFusionError) -> farpool_model::Error {
        let is_not_in = |plan: &Arc<dyn ExecutionPlan>| {
            plan.exists(|node| Ok(node.downcast_ref::<HashJoinExec>().is_some_and(|join| join.null_aware)))
        };
        let is_not_in = is_exhausted(&error) && is_not_in(&self.operators()).unwrap_or(false);
        let error = error::unwrap(error);
        match is_not_in {
            true => error.advise(
                "give the statement more memory (--work-memory), or write NOT EXISTS in place of NOT IN, which needs the \
                 values of its subquery in memory",
            ),
            false => error,
        }
    }

    /// Applies `f` to each program of the plan.
    pub fn programs<T>(&self, f: impl Fn(&PoolExec) -> T) -> Vec<T> {
        programs(&self.operators(), f)
    }

    /// Returns the sum of the execution statistics (see [`Receipt`]) of the programs that have ended, including those
    /// of replaced plans.
    pub fn receipt(&self) -> Receipt {
        let spent = self.current.lock().spent.clone();
        let mut total = Receipt::default();
        spent.iter().filter_map(ReceiptHandle::get).for_each(|receipt| total.merge(&receipt));
        self.programs(PoolExec::receipt).iter().for_each(|receipt| total.merge(receipt));
        total
    }
}

impl Source {
    /// Returns the session's state; with `joins_here`, that of plans whose joins the engine carries out.
    fn state(&self, joins_here: bool) -> SessionState {
        let mut state = SessionState::clone(&self.state);
        if joins_here {
            state.config_mut().set_extension(Arc::new(JoinsHere));
        }
        state
    }

    /// Returns the session's state for a plan with the hash table limit `tables`, whose threads are few enough that
    /// each sort below its `joins` joins has enough memory.
    fn state_for(
        &self,
        tables: HashTables,
        joins: usize,
        memory_bytes: usize,
        joins_here: bool,
    ) -> SessionState {
        let mut state = SessionStateBuilder::new_from_existing(self.state(joins_here))
            .with_physical_optimizer_rules(physical_rules(Some(tables)))
            .build();
        let execution = &mut state.config_mut().options_mut().execution;
        let threads = execution.target_partitions.min(tables.threads_max(joins, memory_bytes));
        execution.target_partitions = threads;
        state
    }

    /// Returns the context in which `plan` runs, with settings for spilling: what the sorts reserve for merging must
    /// leave them memory to sort in, and merges must leave memory for the sort of a join's other side, which starts
    /// later.
    fn context(
        &self,
        state: &SessionState,
        plan: &Arc<dyn ExecutionPlan>,
    ) -> Result<Arc<TaskContext>, DataFusionError> {
        let context = state.task_ctx();
        let Some(memory_bytes) = self.memory_bytes else { return Ok(context) };
        let usual = context.session_config().options().execution.sort_spill_reservation_bytes;
        let merged = sum(plan, |node| usize::from(node.is::<SortMergeJoinExec>()));
        let part = if merged > 0 { PART_FOR_MERGES_OF_JOINS } else { PART_FOR_MERGES };
        let reserved = usual.min(memory_bytes / part / sum(plan, sorts).max(1));
        if reserved == usual && merged == 0 {
            return Ok(context);
        }
        let mut config = context.session_config().clone();
        config.options_mut().execution.sort_spill_reservation_bytes = reserved;
        let files = config.get_extension::<SpillFiles>().filter(|_| merged > 0);
        let Some(files) = files else {
            return Ok(Arc::new(TaskContext::from(state).with_session_config(config)));
        };
        // A sort-merge join merges the runs of both its sides at once, in each partition.
        let merges = 2 * most(plan, sorts).max(1);
        let merge_bytes = memory_bytes / 2 / merges;
        let runs = (merge_bytes / RUN_BYTES).max(RUNS_MIN);
        if merge_bytes < RUNS_MIN * RUN_BYTES {
            // The memory does not suffice for that many runs in a merge, so that smaller batches are merged.
            let rows = config.batch_size() * merge_bytes / (RUNS_MIN * RUN_BYTES);
            config = config.with_batch_size(rows.max(BATCH_ROWS_MIN));
        }
        let disk =
            DiskManagerBuilder::default().with_temp_file_factory(files).with_max_spill_merge_fan_in(runs);
        let runtime =
            RuntimeEnv { disk_manager: Arc::new(disk.build()?), ..(*context.runtime_env()).clone() };
        let context = TaskContext::from(state).with_session_config(config);
        Ok(Arc::new(context.with_runtime(Arc::new(runtime))))
    }
}

/// Returns whether the engine ran out of memory.
fn is_exhausted(error: &DataFusionError) -> bool {
    matches!(error.find_root(), DataFusionError::ResourcesExhausted(_))
}

async fn first_with_rows(
    batches: &mut SendableRecordBatchStream,
) -> Result<Option<RecordBatch>, DataFusionError> {
    while let Some(batch) = batches.try_next().await? {
        if batch.num_rows() > 0 {
            return Ok(Some(batch));
        }
    }
    Ok(None)
}

/// Waits until the tasks of a dropped execution have released their memory. Gives up after a while, because the memory
/// may belong to another statement.
async fn released(memory: &dyn MemoryPool, memory_bytes: usize) {
    for _ in 0..RELEASE_PAUSES {
        if memory.reserved() <= memory_bytes / 8 {
            return;
        }
        tokio::time::sleep(RELEASE_PAUSE).await;
    }
}

fn of_all(plan: &Arc<dyn ExecutionPlan>, mut f: impl FnMut(&Arc<dyn ExecutionPlan>)) {
    let visited = plan.apply(|node| {
        f(node);
        Ok(TreeNodeRecursion::Continue)
    });
    debug_assert!(visited.is_ok(), "the visitor cannot fail");
}

/// Returns the sum of `f` over all operators of the plan.
fn sum(plan: &Arc<dyn ExecutionPlan>, f: impl Fn(&Arc<dyn ExecutionPlan>) -> usize) -> usize {
    let mut total = 0;
    of_all(plan, |node| total += f(node));
    total
}

/// Returns the maximum of `f` over all operators of the plan.
fn most(plan: &Arc<dyn ExecutionPlan>, f: impl Fn(&Arc<dyn ExecutionPlan>) -> usize) -> usize {
    let mut most = 0;
    of_all(plan, |node| most = most.max(f(node)));
    most
}

fn joins(plan: &Arc<dyn ExecutionPlan>) -> usize {
    sum(plan, |node| usize::from(node.is::<HashJoinExec>() || node.is::<SortMergeJoinExec>()))
}

/// Returns the number of sorts that run at a time for this operator: one for each partition if it is a sort, else none.
fn sorts(node: &Arc<dyn ExecutionPlan>) -> usize {
    match node.is::<SortExec>() {
        true => node.children()[0].output_partitioning().partition_count(),
        false => 0,
    }
}

fn programs<T>(plan: &Arc<dyn ExecutionPlan>, f: impl Fn(&PoolExec) -> T) -> Vec<T> {
    let mut found = Vec::new();
    of_all(plan, |node| found.extend(node.downcast_ref::<PoolExec>().map(&f)));
    found
}

fn handles(plan: &Arc<dyn ExecutionPlan>) -> Vec<ReceiptHandle> {
    programs(plan, PoolExec::handles).into_iter().flatten().collect()
}

/// Cancels the programs of a plan when its result stream is dropped.
struct CancelOnDrop(Rows);

impl Drop for CancelOnDrop {
    fn drop(&mut self) {
        self.0.programs(PoolExec::cancel);
    }
}
