//! A plan for rows, and how it runs.

use crate::error;
use crate::exec::PoolExec;
use arrow_schema::SchemaRef;
use datafusion::common::tree_node::{TreeNode, TreeNodeRecursion};
use datafusion::error::DataFusionError;
use datafusion::execution::TaskContext;
use datafusion::execution::session_state::SessionState;
use datafusion::logical_expr::LogicalPlan;
use datafusion::physical_plan::{ExecutionPlan, execute_stream};
use farpool_model::Result;
use farpool_transfer::BatchStream;
use futures::{StreamExt, TryStreamExt};
use std::sync::Arc;

/// A plan that gives rows. Clones are the same plan.
#[derive(Clone)]
pub(crate) struct Rows {
    plan: Arc<dyn ExecutionPlan>,
    context: Arc<TaskContext>,
}

impl Rows {
    /// That for the rows of `plan`.
    pub async fn plan(state: &SessionState, plan: &LogicalPlan) -> Result<Self, DataFusionError> {
        let physical = state.create_physical_plan(plan).await?;
        Ok(Rows { plan: physical, context: state.task_ctx() })
    }

    /// Their columns.
    pub fn schema(&self) -> SchemaRef {
        self.plan.schema()
    }

    /// The operators.
    pub fn operators(&self) -> &Arc<dyn ExecutionPlan> {
        &self.plan
    }

    /// Runs it. Dropping the stream cancels the programs at the pool.
    pub fn start(&self) -> Result<BatchStream> {
        let guard = CancelOnDrop(self.clone());
        let (plan, context) = (Arc::clone(&self.plan), Arc::clone(&self.context));
        let batches = execute_stream(plan, context).map_err(error::unwrap)?;
        let watched = batches.map_err(error::unwrap).inspect(move |_| {
            let _ = &guard;
        });
        Ok(watched.boxed())
    }

    /// What `f` says of each program.
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

/// Ends the programs of a plan whose result nobody reads any more.
struct CancelOnDrop(Rows);

impl Drop for CancelOnDrop {
    fn drop(&mut self) {
        self.0.programs(PoolExec::cancel);
    }
}
