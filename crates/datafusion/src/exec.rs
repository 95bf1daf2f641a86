//! A program (the part of a query that a pool runs) as a leaf of DataFusion's physical plan.
//!
//! Invariant: one execution of the plan runs the program once, and the partitions share its result streams. The program
//! starts when the first partition is polled, so that dynamic filters which other operators have derived by then
//! ([`crate::dynamic`]) can still be added to the program.

use crate::dynamic::KeyWatch;
use crate::estimates;
use crate::shared::{Means, Share, SharePlace};
use crate::table::PoolTable;
use arrow_array::{RecordBatch, RecordBatchOptions};
use arrow_schema::SchemaRef;
use datafusion::catalog::Session;
use datafusion::common::Statistics;
use datafusion::common::tree_node::TreeNodeRecursion;
use datafusion::config::ConfigOptions;
use datafusion::error::{DataFusionError, Result};
use datafusion::execution::TaskContext;
use datafusion::physical_expr::EquivalenceProperties;
use datafusion::physical_plan::coop::cooperative;
use datafusion::physical_plan::execution_plan::{Boundedness, EmissionType, SchedulingType};
use datafusion::physical_plan::filter_pushdown::{
    ChildPushdownResult, FilterPushdownPhase, FilterPushdownPropagation,
};
use datafusion::physical_plan::metrics::{BaselineMetrics, ExecutionPlanMetricsSet, MetricsSet};
use datafusion::physical_plan::statistics::StatisticsArgs;
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::physical_plan::{
    DisplayAs, DisplayFormatType, ExecutionPlan, Partitioning, PhysicalExpr, PlanProperties,
    SendableRecordBatchStream,
};
use farpool_model::{OperatorAnswer, Output, Prepared, Program, Receipt};
use farpool_planner::cost;
use farpool_planner::explain;
use farpool_planner::joins::estimate::Estimate;
use farpool_planner::rows::Rows;
use farpool_sql::error;
use farpool_transfer::{BatchStream, Handle, ReceiptHandle, link};
use futures::{StreamExt, TryStreamExt};
use parking_lot::Mutex;
use std::fmt;
use std::sync::Arc;
use tokio::sync::OnceCell;

/// A node of DataFusion's physical plan that runs a program at a pool and returns its rows.
#[derive(Debug)]
pub(crate) struct PoolExec {
    table: PoolTable,
    /// The rows of the program behind its lookups, for estimates and EXPLAIN.
    rows: Rows,
    program: Program,
    prepared: Handle,
    /// Operators of the query over this table that were not pushed down, with the reasons; for EXPLAIN.
    kept: Vec<OperatorAnswer>,
    /// Dynamic filters: conditions that operators above derive while they run. When the plan is complete,
    /// [`crate::lineage`] removes those that might refer to a wrong column.
    dynamic: Mutex<Vec<Arc<dyn PhysicalExpr>>>,
    /// For each dynamic filter, by its id: the watch that collects the keys of the join which derives the filter.
    watches: Mutex<Vec<(u64, Arc<KeyWatch>)>>,
    /// Estimated costs of the program; `None` if there was no choice whether to push down.
    estimate: Option<cost::Estimate>,
    /// If this program runs as one with others ([`crate::shared`]), the part of the common result that belongs to this
    /// node.
    share: Arc<Mutex<Option<Share>>>,
    properties: Arc<PlanProperties>,
    metrics: ExecutionPlanMetricsSet,
    runs: Mutex<Runs>,
}

impl PoolExec {
    /// Creates a node that runs `program`, which the pool prepared as `prepared`; its columns get the names and types
    /// of `schema`.
    pub(crate) fn new(
        table: PoolTable,
        rows: Rows,
        program: Program,
        prepared: Handle,
        schema: SchemaRef,
        partitions: usize,
    ) -> Self {
        let emission = match program.output {
            Output::Rows(_) => EmissionType::Incremental,
            Output::Aggregate { .. } => EmissionType::Final,
        };
        let properties = PlanProperties::new(
            EquivalenceProperties::new(schema),
            Partitioning::UnknownPartitioning(partitions),
            emission,
            Boundedness::Bounded,
        )
        .with_scheduling_type(SchedulingType::Cooperative);
        let kept = table.kept().to_vec();
        PoolExec {
            table,
            rows,
            program,
            prepared,
            kept,
            dynamic: Mutex::default(),
            watches: Mutex::default(),
            estimate: None,
            share: Arc::default(),
            properties: Arc::new(properties),
            metrics: ExecutionPlanMetricsSet::new(),
            runs: Mutex::default(),
        }
    }

    /// Sets the estimated costs of the program.
    pub(crate) fn with_estimate(mut self, estimate: cost::Estimate) -> Self {
        self.estimate = Some(estimate);
        self
    }

    /// Describes, as an indented block, the pool's part of the query, and the operators that are not pushed down.
    pub(crate) fn explain(&self) -> String {
        let place = self.table.pool().place(&self.prepared);
        let text = explain::explain(&place, &self.prepared, &self.kept, &self.rows);
        let text = text + &self.estimate.as_ref().map(explain::estimate_line).unwrap_or_default();
        text + &self.share.lock().as_ref().map(Share::explain).unwrap_or_default()
    }

    /// Compares the estimated costs with the actual ones, as text; `None` if the program has not run.
    pub(crate) fn outcome(&self) -> Option<String> {
        let (program, rows) = (&self.prepared.effective, &self.rows);
        let place = self.table.pool().url();
        let runs = self.runs.lock();
        let shared = self.share.lock().as_ref().and_then(Share::outcome);
        shared.or_else(|| {
            explain::outcome(&place, program, rows, self.estimate.as_ref(), &runs.receipt(), runs.added())
        })
    }

    /// Returns the sum of the execution statistics ([`Receipt`]) of the executions that have ended.
    pub(crate) fn receipt(&self) -> Receipt {
        let mut total = self.runs.lock().receipt();
        if total.operators.is_empty() {
            total.operators = self.prepared.answers.clone();
        }
        total.operators.extend(self.kept.iter().cloned());
        total
    }

    /// Returns handles to the execution statistics ([`Receipt`]) of all executions so far, including those still
    /// running.
    pub(crate) fn handles(&self) -> Vec<ReceiptHandle> {
        self.runs.lock().seen.iter().filter_map(|seen| seen.receipt.lock().clone()).collect()
    }

    /// Drops the streams that no partition has taken, which cancels the program at the pool.
    pub(crate) fn cancel(&self) {
        let mut runs = self.runs.lock();
        runs.open.iter().for_each(|run| run.streams.lock().clear());
        runs.open.clear();
    }

    /// Returns the estimated number of rows of the program's result.
    pub(crate) fn estimated(&self) -> Estimate {
        Estimate::of_program(&self.prepared.effective, &self.rows)
    }

    /// Returns the time that the program is expected to take, in nanoseconds.
    pub(crate) fn expected_ns(&self, means: &Means) -> f64 {
        let place = self.table.run_place(means.threads, self.table.pool().is_here(&self.prepared));
        let estimate = cost::estimate(&self.prepared.effective, &self.rows, place, &means.rates);
        estimate.costs.first().map_or(0.0, |push| push.ns)
    }

    /// Returns what [`crate::shared`] needs to run this program as one with others. Returns `None` if the program
    /// cannot be shared: the engine has to redo a part of its work (the pool's answer is not exact), dynamic filters are
    /// added to it when it starts, or it has lookups.
    pub(crate) fn share_place(&self) -> Option<SharePlace> {
        let may = self.dynamic.lock().is_empty() && self.prepared.is_exact() && !self.rows.are_joined();
        let place = || SharePlace {
            table: self.table.clone(),
            program: self.prepared.narrowed(None),
            is_here: self.table.pool().is_here(&self.prepared),
            share: Arc::clone(&self.share),
        };
        may.then(place)
    }

    /// Returns the pool's answers (what it will do of the program).
    pub(crate) fn prepared(&self) -> &Prepared {
        &self.prepared
    }

    fn dynamic(&self) -> Vec<Arc<dyn PhysicalExpr>> {
        self.dynamic.lock().clone()
    }

    /// Keeps only the dynamic filters for which `trusted` is true.
    pub(crate) fn retain_dynamic(&self, trusted: impl Fn(&Arc<dyn PhysicalExpr>) -> bool) {
        self.dynamic.lock().retain(|filter| trusted(filter));
    }

    /// Returns whether the dynamic filter with this id is used.
    pub(crate) fn listens_to(&self, id: u64) -> bool {
        self.dynamic.lock().iter().any(|filter| filter.expression_id() == Some(id))
    }

    /// Sets the watch that collects the join keys for the dynamic filter with this id.
    pub(crate) fn listen_at(&self, id: u64, watch: &Arc<KeyWatch>) {
        self.watches.lock().push((id, Arc::clone(watch)));
    }

    fn partitions(&self) -> usize {
        self.properties.partitioning.partition_count()
    }

    /// Returns a copy of the node that has not run.
    fn fresh(&self) -> Self {
        PoolExec {
            table: self.table.clone(),
            rows: self.rows.clone(),
            program: self.program.clone(),
            prepared: self.prepared.clone(),
            kept: self.kept.clone(),
            dynamic: Mutex::new(self.dynamic()),
            watches: Mutex::new(self.watches.lock().clone()),
            estimate: self.estimate.clone(),
            share: Arc::new(Mutex::new(self.share.lock().clone())),
            properties: Arc::clone(&self.properties),
            metrics: ExecutionPlanMetricsSet::new(),
            runs: Mutex::default(),
        }
    }

    /// Returns the stream of `partition` for its next execution: the nth call for a partition belongs to the nth
    /// execution of the plan.
    fn stream(&self, partition: usize) -> BatchStream {
        let run = self.runs.lock().turn(partition, self.partitions());
        let pool = Arc::clone(self.table.pool());
        let (program, dynamic, table) = (self.program.clone(), self.dynamic(), self.table.clone());
        let rows = self.rows.clone();
        let prepared = self.prepared.clone();
        let watches = self.watches.lock().clone();
        let partitions = self.partitions();
        let share = self.share.lock().clone();
        let opened = async move {
            let start = link::now();
            run.started
                .get_or_try_init(|| async {
                    if let Some(share) = share {
                        let seen = Arc::clone(&run.seen);
                        let spent = move |receipt| *seen.receipt.lock() = Some(receipt);
                        if let Some(streams) = share.streams(partitions, spent).await? {
                            *run.streams.lock() = streams.into_iter().map(Some).collect();
                            return Ok(());
                        }
                    }
                    let found = crate::dynamic::conditions(&program, &dynamic, &watches, &rows);
                    let added = found.as_ref().map(|found| found.display(&rows.info.schema).to_string());
                    let execution = pool.execute_prepared(&prepared, found.as_ref(), partitions).await?;
                    *run.seen.receipt.lock() = Some(execution.receipt);
                    *run.seen.added.lock() = added;
                    *run.streams.lock() = execution.streams.into_iter().map(Some).collect();
                    farpool_model::Result::Ok(())
                })
                .await?;
            let stream = run.streams.lock().get_mut(partition).and_then(Option::take);
            let stream = stream.unwrap_or_else(|| futures::stream::empty().boxed());
            let receipt = run.seen.receipt.lock().clone().unwrap_or_default();
            Ok(Arc::clone(table.meter()).measured(stream, receipt, start))
        };
        futures::stream::once(opened).try_flatten().boxed()
    }
}

/// The executions of a program: one for each execution of the plan.
#[derive(Debug, Default)]
struct Runs {
    /// For each partition, how many times it has been executed.
    turns: Vec<usize>,
    open: Vec<Arc<Run>>,
    seen: Vec<Arc<Seen>>,
}

impl Runs {
    /// Adds up the execution statistics of the executions that have ended.
    fn receipt(&self) -> Receipt {
        let mut total = Receipt::default();
        for seen in &self.seen {
            if let Some(receipt) = seen.receipt.lock().as_ref().and_then(ReceiptHandle::get) {
                total.merge(&receipt);
            }
        }
        total
    }

    /// Returns, as text, the conditions that dynamic filters added to the last execution.
    fn added(&self) -> Option<String> {
        self.seen.last().and_then(|seen| seen.added.lock().clone())
    }

    fn turn(&mut self, partition: usize, partitions: usize) -> Arc<Run> {
        self.turns.resize(partitions, 0);
        let turn = self.turns[partition];
        self.turns[partition] += 1;
        while self.open.len() <= turn {
            let run = Arc::new(Run::default());
            self.seen.push(Arc::clone(&run.seen));
            self.open.push(run);
        }
        Arc::clone(&self.open[turn])
    }
}

#[derive(Default)]
struct Run {
    started: OnceCell<()>,
    streams: Mutex<Vec<Option<BatchStream>>>,
    seen: Arc<Seen>,
}

/// Facts about an execution that are kept after its end, for EXPLAIN ANALYZE and totals.
#[derive(Debug, Default)]
struct Seen {
    receipt: Mutex<Option<ReceiptHandle>>,
    /// The conditions, as text, that dynamic filters added when the execution started.
    added: Mutex<Option<String>>,
}

impl fmt::Debug for Run {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Run").field("started", &self.started.initialized()).finish_non_exhaustive()
    }
}

impl DisplayAs for PoolExec {
    fn fmt_as(&self, t: DisplayFormatType, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let shown = explain::one_line(&self.prepared.effective, &self.rows.info.schema);
        match t {
            DisplayFormatType::TreeRender => writeln!(f, "{}", shown.replace(", ", "\n")),
            DisplayFormatType::Default | DisplayFormatType::Verbose => {
                write!(f, "PoolExec: {shown}")?;
                self.dynamic().iter().try_for_each(|filter| write!(f, ", dynamic={filter}"))
            }
        }
    }
}

impl ExecutionPlan for PoolExec {
    fn name(&self) -> &'static str {
        "PoolExec"
    }

    fn properties(&self) -> &Arc<PlanProperties> {
        &self.properties
    }

    fn children(&self) -> Vec<&Arc<dyn ExecutionPlan>> {
        Vec::new()
    }

    fn apply_expressions(
        &self,
        f: &mut dyn FnMut(&Arc<dyn PhysicalExpr>) -> Result<TreeNodeRecursion>,
    ) -> Result<TreeNodeRecursion> {
        datafusion::physical_plan::execution_plan::apply_expression_roots(&self.dynamic(), f)
    }

    fn with_new_children(
        self: Arc<Self>,
        children: Vec<Arc<dyn ExecutionPlan>>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        if children.is_empty() {
            return Ok(self);
        }
        Err(DataFusionError::Internal("a program has no inputs".to_string()))
    }

    fn reset_state(self: Arc<Self>) -> Result<Arc<dyn ExecutionPlan>> {
        Ok(Arc::new(self.fresh()))
    }

    fn execute(&self, partition: usize, _context: Arc<TaskContext>) -> Result<SendableRecordBatchStream> {
        let schema = self.schema();
        let metrics = BaselineMetrics::new(&self.metrics, partition);
        let mut batches = self.stream(partition);
        let to = Arc::clone(&schema);
        let timed = futures::stream::poll_fn(move |context| {
            let timer = metrics.elapsed_compute().timer();
            let poll = batches.poll_next_unpin(context).map(|next| next.map(|batch| renamed(batch, &to)));
            timer.done();
            metrics.record_poll(poll)
        });
        Ok(Box::pin(cooperative(RecordBatchStreamAdapter::new(schema, timed))))
    }

    fn metrics(&self) -> Option<MetricsSet> {
        Some(self.metrics.clone_inner())
    }

    fn statistics_from_inputs(
        &self,
        _inputs: &[Arc<Statistics>],
        args: &StatisticsArgs,
    ) -> Result<Arc<Statistics>> {
        let whole = estimates::of_result(&self.prepared.effective, &self.rows.info);
        Ok(Arc::new(match args.partition() {
            None => whole,
            Some(_) => estimates::share(whole, self.partitions()),
        }))
    }

    fn handle_child_pushdown_result(
        &self,
        phase: FilterPushdownPhase,
        result: ChildPushdownResult,
        _config: &ConfigOptions,
    ) -> Result<FilterPushdownPropagation<Arc<dyn ExecutionPlan>>> {
        let offered: Vec<_> = result.parent_filters.iter().map(|f| Arc::clone(&f.filter)).collect();
        let unchanged = FilterPushdownPropagation::all_unsupported(result);
        let dynamic = crate::dynamic::usable(&self.program, &offered);
        if phase != FilterPushdownPhase::Post || !self.table.pushdown() || dynamic.is_empty() {
            return Ok(unchanged);
        }
        // DataFusion is told "unsupported", so that the operator that derived the dynamic filter still applies it: the
        // pool may remove only some of the rows.
        Ok(unchanged.with_updated_node(Arc::new(PoolExec { dynamic: Mutex::new(dynamic), ..self.fresh() })))
    }
}

/// Returns the batch with the column names and the nullability of the plan. Strings that came along with the program have the
/// plan's type, and not the pool's.
fn renamed(batch: farpool_model::Result<RecordBatch>, schema: &SchemaRef) -> Result<RecordBatch> {
    let batch = batch.map_err(error::wrap)?;
    let options = RecordBatchOptions::new().with_row_count(Some(batch.num_rows()));
    let columns = batch.columns().iter().zip(schema.fields());
    let columns = columns.map(|(column, field)| match column.data_type() == field.data_type() {
        true => Ok(Arc::clone(column)),
        false => arrow_cast::cast(column, field.data_type()),
    });
    let columns = columns.collect::<std::result::Result<_, _>>()?;
    Ok(RecordBatch::try_new_with_options(Arc::clone(schema), columns, &options)?)
}

/// Prepares `program` at the pool and creates its node. The number of partitions depends on the size of the table.
pub(crate) async fn plan(
    session: &dyn Session,
    table: &PoolTable,
    program: Program,
    schema: SchemaRef,
) -> Result<PoolExec> {
    let prepared = crate::pins::prepare(session, (table, &[]), program.clone()).await.map_err(error::wrap)?;
    let partitions = table.partitions(session.config().target_partitions());
    let rows = Rows::of_table(table.source());
    Ok(PoolExec::new(table.clone(), rows, program, prepared, schema, partitions))
}
