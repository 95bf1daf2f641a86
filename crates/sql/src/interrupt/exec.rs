//! Wraps operators so that their streams can be stopped, and yield the thread after a millisecond of work.
//!
//! Invariant: wrapping does not change how a plan appears: names, types, properties and metrics are those of the
//! wrapped operators.

use super::current;
use super::filters;
use crate::bounded::{Charge, REPEATED_ROWS, Repeats, has_nested, rows_of_constant_lists};
use arrow_array::RecordBatch;
use arrow_schema::SchemaRef;
use datafusion::common::Statistics;
use datafusion::common::tree_node::{Transformed, TransformedResult, TreeNode, TreeNodeRecursion};
use datafusion::error::Result;
use datafusion::execution::{RecordBatchStream, SendableRecordBatchStream, TaskContext};
use datafusion::physical_plan::aggregates::AggregateExec;
use datafusion::physical_plan::execution_plan::{
    CardinalityEffect, ChildrenPropertiesMode, ReplaceChildrenOptions,
};
use datafusion::physical_plan::filter::FilterExec;
use datafusion::physical_plan::metrics::MetricsSet;
use datafusion::physical_plan::statistics::{ChildStats, StatisticsArgs};
use datafusion::physical_plan::{
    DisplayAs, DisplayFormatType, ExecutionPlan, InputDistributionRequirements, PhysicalExpr, PlanProperties,
};
use farpool_model::limits;
use futures::{Stream, StreamExt};
use std::any::Any;
use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

/// Wraps every operator of `plan` so that it can be stopped.
pub fn stoppable(plan: Arc<dyn ExecutionPlan>) -> Result<Arc<dyn ExecutionPlan>> {
    plan.transform_up(|node| {
        let node = in_small_batches(filters::checked(node)?)?;
        let node = match Repeats::of(&*node) {
            Some(repeats) => repeating(node, repeats)?,
            None if passes_repeated_on(&*node) => gathering(node)?,
            None => StoppableExec::over(node),
        };
        Ok(Transformed::yes(Arc::new(node) as _))
    })
    .data()
}

/// Wraps an operator that repeats lists or structs, so that it emits small batches and checks that there is memory for
/// each.
fn repeating(node: Arc<dyn ExecutionPlan>, repeats: Repeats) -> Result<StoppableExec> {
    let repeats = Arc::new(repeats);
    let checked = |child: &Arc<dyn ExecutionPlan>| {
        Arc::new(StoppableExec {
            rows_max: REPEATED_ROWS,
            batch_rows: Some(limits::BATCH_ROWS),
            repeats: Some(Arc::clone(&repeats)),
            ..StoppableExec::over(Arc::clone(child))
        }) as Arc<dyn ExecutionPlan>
    };
    let children = node.children().into_iter().map(checked).collect();
    let node = node.replace_children(children, ReplaceChildrenOptions::new(ChildrenPropertiesMode::Keep))?;
    Ok(StoppableExec { batch_rows: Some(REPEATED_ROWS), ..StoppableExec::over(node) })
}

/// Returns whether an operator returns lists or structs that an operator below it has repeated.
fn passes_repeated_on(node: &dyn ExecutionPlan) -> bool {
    let repeats = |child: &&Arc<dyn ExecutionPlan>| {
        // Casts explicitly, because the trait's own method would look at the operator within the wrapper.
        let child = (&***child as &dyn Any).downcast_ref::<StoppableExec>();
        child.is_some_and(|child| child.batch_rows == Some(REPEATED_ROWS))
    };
    has_nested(&node.schema(), &[]) && node.children().iter().any(repeats)
}

/// Wraps an operator that collects rows until a batch is full (a filter or a repartitioning), with an equally small
/// batch size.
fn gathering(node: Arc<dyn ExecutionPlan>) -> Result<StoppableExec> {
    let node = match node.downcast_ref::<FilterExec>() {
        Some(filter) => Arc::new(filter.with_batch_size(REPEATED_ROWS)?),
        None => node,
    };
    Ok(StoppableExec { batch_rows: Some(REPEATED_ROWS), ..StoppableExec::over(node) })
}

/// If the operator groups by many grouping sets (all in one poll), or copies long lists for each row, splits its input
/// into small batches.
fn in_small_batches(node: Arc<dyn ExecutionPlan>) -> Result<Arc<dyn ExecutionPlan>> {
    let sets = node.downcast_ref::<AggregateExec>().map_or(1, |groups| groups.group_expr().groups().len());
    let rows_max = match rows_of_constant_lists(&*node)? {
        Some(rows) => rows,
        None if sets > SETS_AT_ONCE => (limits::BATCH_ROWS * SETS_AT_ONCE / sets).max(1),
        None => return Ok(node),
    };
    let small = |child: &Arc<dyn ExecutionPlan>| {
        Arc::new(StoppableExec { rows_max, ..StoppableExec::over(Arc::clone(child)) })
            as Arc<dyn ExecutionPlan>
    };
    let children = node.children().into_iter().map(small).collect();
    node.replace_children(children, ReplaceChildrenOptions::new(ChildrenPropertiesMode::Keep))
}

/// Maximum number of grouping sets by which a batch of the usual size is grouped within a few milliseconds.
const SETS_AT_ONCE: usize = 16;

/// An operator that can be stopped: the wrapper.
#[derive(Debug)]
struct StoppableExec {
    inner: Arc<dyn ExecutionPlan>,
    /// Maximum number of rows per batch that it returns.
    rows_max: usize,
    /// Batch size for the wrapped operator and those below it, if it differs from the session's.
    batch_rows: Option<usize>,
    /// If the operator above repeats these rows: how it does, so that the memory for each batch is checked.
    repeats: Option<Arc<Repeats>>,
}

impl StoppableExec {
    fn over(inner: Arc<dyn ExecutionPlan>) -> Self {
        StoppableExec { inner, rows_max: usize::MAX, batch_rows: None, repeats: None }
    }

    /// Returns a wrapper with the same settings around another operator.
    fn with_inner(&self, inner: Arc<dyn ExecutionPlan>) -> Arc<dyn ExecutionPlan> {
        let (rows_max, batch_rows, repeats) = (self.rows_max, self.batch_rows, self.repeats.clone());
        Arc::new(StoppableExec { inner, rows_max, batch_rows, repeats })
    }
}

/// Returns the context with `rows` as the batch size.
fn with_batch_rows(context: &TaskContext, rows: usize) -> Arc<TaskContext> {
    let config = context.session_config().clone().with_batch_size(rows);
    Arc::new(TaskContext::new(
        context.task_id(),
        context.session_id(),
        config,
        context.scalar_functions().clone(),
        context.higher_order_functions().clone(),
        context.aggregate_functions().clone(),
        context.window_functions().clone(),
        context.runtime_env(),
    ))
}

impl DisplayAs for StoppableExec {
    fn fmt_as(&self, format: DisplayFormatType, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.inner.fmt_as(format, f)
    }
}

impl ExecutionPlan for StoppableExec {
    fn name(&self) -> &str {
        self.inner.name()
    }

    fn downcast_delegate(&self) -> Option<&dyn ExecutionPlan> {
        Some(&*self.inner)
    }

    fn properties(&self) -> &Arc<PlanProperties> {
        self.inner.properties()
    }

    fn dynamic_expressions_produced(&self) -> Vec<Arc<dyn PhysicalExpr>> {
        self.inner.dynamic_expressions_produced()
    }

    fn input_distribution_requirements(&self) -> InputDistributionRequirements {
        self.inner.input_distribution_requirements()
    }

    fn maintains_input_order(&self) -> Vec<bool> {
        self.inner.maintains_input_order()
    }

    fn benefits_from_input_partitioning(&self) -> Vec<bool> {
        self.inner.benefits_from_input_partitioning()
    }

    fn children(&self) -> Vec<&Arc<dyn ExecutionPlan>> {
        self.inner.children()
    }

    fn apply_expressions(
        &self,
        f: &mut dyn FnMut(&Arc<dyn PhysicalExpr>) -> Result<TreeNodeRecursion>,
    ) -> Result<TreeNodeRecursion> {
        self.inner.apply_expressions(f)
    }

    fn replace_children(
        self: Arc<Self>,
        children: Vec<Arc<dyn ExecutionPlan>>,
        options: ReplaceChildrenOptions,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        Arc::clone(&self.inner).replace_children(children, options).map(|inner| self.with_inner(inner))
    }

    fn with_new_children(
        self: Arc<Self>,
        children: Vec<Arc<dyn ExecutionPlan>>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        self.replace_children(children, ReplaceChildrenOptions::new(ChildrenPropertiesMode::Recompute))
    }

    fn reset_state(self: Arc<Self>) -> Result<Arc<dyn ExecutionPlan>> {
        Arc::clone(&self.inner).reset_state().map(|inner| self.with_inner(inner))
    }

    fn with_new_state(&self, state: Arc<dyn Any + Send + Sync>) -> Option<Arc<dyn ExecutionPlan>> {
        self.inner.with_new_state(state).map(|inner| self.with_inner(inner))
    }

    fn metrics(&self) -> Option<MetricsSet> {
        self.inner.metrics()
    }

    fn statistics_from_inputs(
        &self,
        inputs: &[Arc<Statistics>],
        args: &StatisticsArgs,
    ) -> Result<Arc<Statistics>> {
        self.inner.statistics_from_inputs(inputs, args)
    }

    fn child_stats_requests(&self, partition: Option<usize>) -> Vec<ChildStats> {
        self.inner.child_stats_requests(partition)
    }

    fn fetch(&self) -> Option<usize> {
        self.inner.fetch()
    }

    fn cardinality_effect(&self) -> CardinalityEffect {
        self.inner.cardinality_effect()
    }

    fn execute(&self, partition: usize, context: Arc<TaskContext>) -> Result<SendableRecordBatchStream> {
        current::check()?;
        let context = match self.batch_rows {
            Some(rows) => with_batch_rows(&context, rows),
            None => context,
        };
        Ok(Box::pin(StoppableStream {
            rows: self.inner.execute(partition, context)?,
            rows_max: self.rows_max,
            repeats: self.repeats.clone(),
            rest: None,
            charge: Arc::default(),
            has_ended: false,
        }))
    }
}

/// The stream of a wrapped operator's batches.
struct StoppableStream {
    rows: SendableRecordBatchStream,
    rows_max: usize,
    repeats: Option<Arc<Repeats>>,
    /// The rows of the last batch that exceeded the limit; they are returned next.
    rest: Option<RecordBatch>,
    /// The account of results of the operator's functions, which are charged until the batch for which they were
    /// computed has been consumed.
    charge: Arc<Charge>,
    has_ended: bool,
}

impl StoppableStream {
    /// Returns the first rows of the batch, as many as a batch may have, and keeps the rest.
    fn first_of(&mut self, mut batch: RecordBatch) -> Result<RecordBatch> {
        if batch.num_rows() > self.rows_max {
            self.rest = Some(batch.slice(self.rows_max, batch.num_rows() - self.rows_max));
            batch = batch.slice(0, self.rows_max);
        }
        self.repeats.as_ref().map_or(Ok(()), |repeats| repeats.check(&batch))?;
        Ok(batch)
    }
}

impl Stream for StoppableStream {
    type Item = Result<RecordBatch>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        if self.has_ended {
            return Poll::Ready(None);
        }
        if let Err(stopped) = current::check() {
            self.has_ended = true;
            return Poll::Ready(Some(Err(stopped)));
        }
        if current::is_turn_over() {
            context.waker().wake_by_ref();
            return Poll::Pending;
        }
        let this = &mut *self;
        if let Some(rest) = this.rest.take() {
            return Poll::Ready(Some(this.first_of(rest)));
        }
        let next = ready!(current::charging(&this.charge, || this.rows.poll_next_unpin(context)));
        this.has_ended = next.is_none();
        if this.has_ended {
            this.charge.release();
        }
        Poll::Ready(next.map(|batch| batch.and_then(|batch| this.first_of(batch))))
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        self.rows.size_hint()
    }
}

impl RecordBatchStream for StoppableStream {
    fn schema(&self) -> SchemaRef {
        self.rows.schema()
    }
}
