//! A plan that returns rows, and its execution.

use crate::dialect::Headers;
use crate::error;
use crate::exec::PoolExec;
use arrow_array::{RecordBatch, RecordBatchOptions};
use arrow_schema::SchemaRef;
use datafusion::common::tree_node::{TreeNode, TreeNodeRecursion};
use datafusion::error::DataFusionError;
use datafusion::execution::TaskContext;
use datafusion::execution::session_state::SessionState;
use datafusion::logical_expr::LogicalPlan;
use datafusion::physical_plan::{ExecutionPlan, execute_stream};
use farpool_model::Result;
use farpool_transfer::BatchStream;
use futures::StreamExt;
use std::sync::Arc;

/// A plan that returns rows. Clones refer to the same plan.
#[derive(Clone)]
pub(crate) struct Rows {
    plan: Arc<dyn ExecutionPlan>,
    /// The columns of the result, with their names in the result.
    schema: SchemaRef,
    context: Arc<TaskContext>,
}

impl Rows {
    /// Plans the rows of `plan`.
    pub async fn plan(state: &SessionState, plan: &LogicalPlan) -> Result<Self, DataFusionError> {
        let physical = state.create_physical_plan(plan).await?;
        Ok(Rows { schema: physical.schema(), plan: physical, context: state.task_ctx() })
    }

    /// Sets these headers as the names of the columns.
    pub fn with_headers(mut self, headers: &Headers) -> Self {
        self.schema = headers.over(&self.schema);
        self
    }

    /// The schema of the result.
    pub fn schema(&self) -> SchemaRef {
        Arc::clone(&self.schema)
    }

    /// The physical plan.
    pub fn operators(&self) -> &Arc<dyn ExecutionPlan> {
        &self.plan
    }

    /// Runs the plan. Dropping the stream cancels the programs at the pool.
    pub fn start(&self) -> Result<BatchStream> {
        let guard = CancelOnDrop(self.clone());
        let (plan, context) = (Arc::clone(&self.plan), Arc::clone(&self.context));
        let batches = execute_stream(plan, context).map_err(error::unwrap)?;
        let (schema, has_headers) = (Arc::clone(&self.schema), self.schema != self.plan.schema());
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
        Ok(batches.map(move |batch| named(batch.map_err(error::unwrap)?)).boxed())
    }

    /// Applies `f` to each program of the plan.
    pub fn programs<T>(&self, f: impl Fn(&PoolExec) -> T) -> Vec<T> {
        let mut found = Vec::new();
        let visited = self.plan.apply(|node| {
            if let Some(program) = node.downcast_ref::<PoolExec>() {
                found.push(f(program));
            }
            Ok(TreeNodeRecursion::Continue)
        });
        debug_assert!(visited.is_ok(), "the visitor cannot fail");
        found
    }
}

/// Cancels the programs of a plan when its result stream is dropped.
struct CancelOnDrop(Rows);

impl Drop for CancelOnDrop {
    fn drop(&mut self) {
        self.0.programs(PoolExec::cancel);
    }
}
