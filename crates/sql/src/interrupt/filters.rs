//! Join conditions that can be stopped with the statement (see `Scope`). A join evaluates its condition on one
//! batch of row pairs at a time, and continues within one poll as long as no pair satisfies the condition.

use super::current;
use arrow_array::{BooleanArray, RecordBatch};
use arrow_schema::{DataType, FieldRef, Schema};
use datafusion::common::tree_node::TreeNode;
use datafusion::error::{DataFusionError, Result};
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::logical_expr::ColumnarValue;
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_plan::joins::utils::JoinFilter;
use datafusion::physical_plan::joins::{
    HashJoinExec, NestedLoopJoinExec, NestedLoopJoinExecBuilder, SortMergeJoinExec,
};
use datafusion::physical_plan::stream::RecordBatchReceiverStream;
use datafusion::physical_plan::{ExecutionPlan, execute_stream};
use futures::StreamExt;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::Arc;
use tokio::runtime::{Handle, RuntimeFlavor};

/// If the operator is a join with a condition, returns it with a condition that can be stopped.
pub(super) fn checked(node: Arc<dyn ExecutionPlan>) -> Result<Arc<dyn ExecutionPlan>> {
    if let Some(join) = node.downcast_ref::<NestedLoopJoinExec>()
        && let Some(filter) = join.filter()
    {
        let builder = NestedLoopJoinExecBuilder::from(join).with_filter(Some(stoppable(filter)));
        return Ok(Arc::new(builder.build()?));
    }
    if let Some(join) = node.downcast_ref::<HashJoinExec>()
        && let Some(filter) = join.filter()
    {
        return join.builder().with_filter(Some(stoppable(filter))).build_exec();
    }
    if let Some(join) = node.downcast_ref::<SortMergeJoinExec>()
        && let Some(filter) = join.filter()
    {
        return Ok(Arc::new(SortMergeJoinExec::try_new(
            Arc::clone(join.left()),
            Arc::clone(join.right()),
            join.on().to_vec(),
            Some(stoppable(filter)),
            join.join_type(),
            join.sort_options().to_vec(),
            join.null_equality(),
        )?));
    }
    Ok(node)
}

/// Returns whether the plan has a join with a condition.
fn has_condition(plan: &Arc<dyn ExecutionPlan>) -> Result<bool> {
    plan.exists(|node| {
        let join = node.downcast_ref::<HashJoinExec>().map(|join| join.filter().is_some());
        let join =
            join.or_else(|| node.downcast_ref::<SortMergeJoinExec>().map(|join| join.filter().is_some()));
        Ok(join.unwrap_or_else(|| node.downcast_ref::<NestedLoopJoinExec>().is_some()))
    })
}

/// Runs a plan; in a separate task if one of its joins may compute for long within one poll. Reason: a stream cannot be
/// dropped while it is being polled. The caller can drop its handle of a task at any time, and with it the scope, so
/// that the join condition fails the next time that it is evaluated.
pub fn execute_apart(
    plan: Arc<dyn ExecutionPlan>,
    context: Arc<TaskContext>,
) -> Result<SendableRecordBatchStream> {
    let is_apart = has_condition(&plan)?;
    let mut rows = execute_stream(plan, context)?;
    if !is_apart {
        return Ok(rows);
    }
    let mut task = RecordBatchReceiverStream::builder(rows.schema(), 1);
    let sender = task.tx();
    task.spawn(async move {
        while let Some(batch) = rows.next().await {
            // The receiver was dropped, so that no further batches are needed.
            if sender.send(batch).await.is_err() {
                break;
            }
        }
        Ok(())
    });
    Ok(task.build())
}

fn stoppable(filter: &JoinFilter) -> JoinFilter {
    let condition = Arc::new(Condition(Arc::clone(filter.expression())));
    JoinFilter::new(condition, filter.column_indices().to_vec(), Arc::clone(filter.schema()))
}

/// Runs a part of a poll that has already taken long, while another thread takes over the other tasks of this thread.
/// Otherwise joins on all threads of a runtime would block the very tasks that could stop them.
fn beside_others<T>(work: impl FnOnce() -> T) -> T {
    let can_leave =
        || Handle::try_current().is_ok_and(|runtime| runtime.runtime_flavor() == RuntimeFlavor::MultiThread);
    match current::is_turn_over() && can_leave() {
        true => tokio::task::block_in_place(work),
        false => work(),
    }
}

/// A join condition that fails if the statement has been stopped.
#[derive(Debug)]
struct Condition(Arc<dyn PhysicalExpr>);

impl PartialEq for Condition {
    fn eq(&self, other: &Self) -> bool {
        self.0.eq(&other.0)
    }
}

impl Eq for Condition {}

impl Hash for Condition {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.0.hash(state);
    }
}

impl fmt::Display for Condition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl PhysicalExpr for Condition {
    fn data_type(&self, input: &Schema) -> Result<DataType> {
        self.0.data_type(input)
    }

    fn nullable(&self, input: &Schema) -> Result<bool> {
        self.0.nullable(input)
    }

    fn return_field(&self, input: &Schema) -> Result<FieldRef> {
        self.0.return_field(input)
    }

    fn evaluate(&self, batch: &RecordBatch) -> Result<ColumnarValue> {
        current::check()?;
        // Only the resulting booleans outlive the call, so that other results of functions within the condition are
        // released at once.
        beside_others(|| current::charging_for_now(|| self.0.evaluate(batch)))
    }

    fn evaluate_selection(&self, batch: &RecordBatch, selection: &BooleanArray) -> Result<ColumnarValue> {
        current::check()?;
        beside_others(|| current::charging_for_now(|| self.0.evaluate_selection(batch, selection)))
    }

    fn children(&self) -> Vec<&Arc<dyn PhysicalExpr>> {
        vec![&self.0]
    }

    fn with_new_children(
        self: Arc<Self>,
        children: Vec<Arc<dyn PhysicalExpr>>,
    ) -> Result<Arc<dyn PhysicalExpr>> {
        let [inner] = <[_; 1]>::try_from(children)
            .map_err(|_| DataFusionError::Internal("a condition has one expression".to_string()))?;
        Ok(Arc::new(Condition(inner)))
    }

    fn fmt_sql(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt_sql(f)
    }
}
