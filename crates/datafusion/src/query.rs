//! One planned statement: its schema, its result, and what it cost.

use crate::error;
use crate::exec::PoolExec;
use arrow_array::RecordBatch;
use arrow_schema::SchemaRef;
use datafusion::common::tree_node::{TreeNode, TreeNodeRecursion};
use datafusion::error::DataFusionError;
use datafusion::execution::TaskContext;
use datafusion::execution::session_state::SessionState;
use datafusion::logical_expr::LogicalPlan;
use datafusion::physical_plan::{ExecutionPlan, displayable, execute_stream};
use datafusion::prelude::SessionContext;
use farpool_model::{Receipt, Result, TableName};
use farpool_transfer::{BatchStream, Pool};
use futures::{StreamExt, TryStreamExt};
use std::fmt::{self, Write};
use std::sync::Arc;

/// A statement that is planned.
pub struct Query {
    schema: SchemaRef,
    work: Work,
}

enum Work {
    Rows(Arc<dyn ExecutionPlan>, Arc<TaskContext>),
    Command(SessionContext, Command),
}

/// A statement that changes something, when it is run.
pub(crate) enum Command {
    /// One of DataFusion's.
    Plan(LogicalPlan),
    /// Drops a table of a pool.
    DropTable(Arc<dyn Pool>, TableName),
}

impl fmt::Debug for Query {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Query").field("schema", &self.schema).finish_non_exhaustive()
    }
}

impl Query {
    pub(crate) async fn plan(state: SessionState, plan: &LogicalPlan) -> Result<Self, DataFusionError> {
        let physical = state.create_physical_plan(plan).await?;
        Ok(Query { schema: physical.schema(), work: Work::Rows(physical, state.task_ctx()) })
    }

    pub(crate) fn command(context: &SessionContext, command: Command) -> Self {
        let schema = match &command {
            Command::Plan(plan) => Arc::clone(plan.schema().inner()),
            Command::DropTable(..) => Arc::new(arrow_schema::Schema::empty()),
        };
        Query { schema, work: Work::Command(context.clone(), command) }
    }

    /// Whether a program is part of it, which its pool has looked at.
    pub(crate) fn asks_a_pool(&self) -> bool {
        match &self.work {
            Work::Rows(plan, _) => !programs(plan, |_| ()).is_empty(),
            Work::Command(..) => false,
        }
    }

    /// The columns of the result.
    pub fn schema(&self) -> &SchemaRef {
        &self.schema
    }

    /// Runs it. Dropping the stream cancels the programs at the pool.
    ///
    /// # Errors
    /// What goes wrong before the first batch.
    pub async fn execute(&self) -> Result<BatchStream> {
        match &self.work {
            Work::Rows(plan, context) => {
                let guard = CancelOnDrop(Arc::clone(plan));
                let batches = execute_stream(Arc::clone(plan), Arc::clone(context)).map_err(error::unwrap)?;
                let batches = batches.map_err(error::unwrap);
                Ok(batches
                    .inspect(move |_| {
                        let _ = &guard;
                    })
                    .boxed())
            }
            Work::Command(context, Command::Plan(plan)) => {
                let frame = context.execute_logical_plan(plan.clone()).await.map_err(error::unwrap)?;
                let batches = frame.execute_stream().await.map_err(error::unwrap)?;
                Ok(batches.map_err(error::unwrap).boxed())
            }
            Work::Command(_, Command::DropTable(pool, name)) => {
                pool.drop_table(name).await?;
                Ok(futures::stream::empty().boxed())
            }
        }
    }

    /// Runs it to the end.
    ///
    /// # Errors
    /// What goes wrong.
    pub async fn collect(&self) -> Result<Vec<RecordBatch>> {
        self.execute().await?.try_collect().await
    }

    /// What runs at the pool, with the pool's answers, and what remains here.
    pub fn explain(&self) -> String {
        let Work::Rows(plan, _) = &self.work else { return "nothing is computed\n".to_string() };
        let mut text = String::new();
        let programs = programs(plan, PoolExec::explain);
        text.push_str(if programs.is_empty() { "Nothing runs at a pool.\n" } else { "At the pool:\n" });
        for program in programs {
            program.lines().for_each(|line| {
                let _ = writeln!(text, "  {line}");
            });
        }
        text.push_str("Here:\n");
        for line in displayable(plan.as_ref()).indent(false).to_string().lines() {
            let _ = writeln!(text, "  {line}");
        }
        text
    }

    /// What was expected of the programs and joins that have run and what came of them, a line each.
    pub fn outcome(&self) -> String {
        match &self.work {
            Work::Rows(plan, _) => {
                let programs: String = programs(plan, PoolExec::outcome).into_iter().flatten().collect();
                programs + &crate::joins::outcomes(plan)
            }
            Work::Command(..) => String::new(),
        }
    }

    /// What the programs of the query cost, those that have ended.
    pub fn receipt(&self) -> Receipt {
        let mut total = Receipt::default();
        if let Work::Rows(plan, _) = &self.work {
            programs(plan, PoolExec::receipt).iter().for_each(|receipt| total.merge(receipt));
        }
        total
    }
}

/// What `f` says of each program of `plan`.
fn programs<T>(plan: &Arc<dyn ExecutionPlan>, f: impl Fn(&PoolExec) -> T) -> Vec<T> {
    let mut found = Vec::new();
    let visited = plan.apply(|node| {
        if let Some(program) = node.downcast_ref::<PoolExec>() {
            found.push(f(program));
        }
        Ok(TreeNodeRecursion::Continue)
    });
    debug_assert!(visited.is_ok(), "the visitor cannot fail");
    found
}

/// Ends the programs of a plan whose result nobody reads any more.
struct CancelOnDrop(Arc<dyn ExecutionPlan>);

impl Drop for CancelOnDrop {
    fn drop(&mut self) {
        programs(&self.0, PoolExec::cancel);
    }
}
