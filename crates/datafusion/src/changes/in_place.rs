//! UPDATE and DELETE that a pool (the store of the table) makes itself, because it can evaluate the condition and
//! compute the new values. No row leaves the pool, and row groups and columns that do not change are reused.

use super::sum;
use crate::fragment::Fragment;
use crate::pins;
use crate::rows::Rows;
use crate::table::PoolTable;
use datafusion::error::Result;
use datafusion::execution::session_state::SessionState;
use datafusion::functions_aggregate::expr_fn::count;
use datafusion::logical_expr::{Expr, LogicalPlan, LogicalPlanBuilder, Projection, lit};
use farpool_model::{Output, Program};
use farpool_planner::explain;
use farpool_sql::error;
use farpool_transfer::Handle;
use std::sync::Arc;

/// An UPDATE or DELETE of the rows that satisfy a condition, made by the pool.
#[derive(Clone)]
pub(super) struct InPlace {
    table: PoolTable,
    /// The plan that counts the rows to change. The pool is told the number with the change.
    count: Rows,
    /// The prepared program that selects the rows and computes their new values.
    handle: Handle,
}

/// Returns a plan that counts the rows of `changed`.
pub(super) fn counted(changed: LogicalPlan) -> Result<LogicalPlan> {
    LogicalPlanBuilder::from(changed).aggregate(Vec::<Expr>::new(), vec![count(lit(1))])?.build()
}

impl InPlace {
    /// Plans a DELETE of the rows of `changed`, a filter over the table. Returns `None` if the pool cannot carry it
    /// out.
    pub async fn delete(
        state: &Arc<SessionState>,
        table: &PoolTable,
        changed: &LogicalPlan,
    ) -> Result<Option<InPlace>> {
        let Some(found) = program_for(state, changed)? else { return Ok(None) };
        InPlace::plan(state, table, changed, Program { output: Output::Rows(Vec::new()), ..found }).await
    }

    /// Plans an UPDATE of the rows of `changed` (the whole table or a filter over it) to the values of `projection`.
    /// Returns `None` if the pool cannot carry it out.
    pub async fn update(
        state: &Arc<SessionState>,
        table: &PoolTable,
        changed: &LogicalPlan,
        projection: &Projection,
    ) -> Result<Option<InPlace>> {
        let names = projection.schema.fields().iter().map(|field| field.name());
        let (names, assigned): (Vec<&String>, Vec<Expr>) =
            names.zip(projection.expr.iter().cloned()).filter(|(name, expr)| is_assigned(name, expr)).unzip();
        // A program without new values would delete the rows.
        if assigned.is_empty() {
            return Ok(None);
        }
        let values = Projection::try_new(assigned, Arc::new(changed.clone()))?;
        let Some(mut program) = program_for(state, &LogicalPlan::Projection(values))? else {
            return Ok(None);
        };
        match &mut program.output {
            Output::Rows(columns) if columns.len() == names.len() => {
                columns.iter_mut().zip(names).for_each(|(column, name)| column.name.clone_from(name));
            }
            Output::Rows(_) | Output::Aggregate { .. } => return Ok(None),
        }
        InPlace::plan(state, table, changed, program).await
    }

    async fn plan(
        state: &Arc<SessionState>,
        table: &PoolTable,
        changed: &LogicalPlan,
        program: Program,
    ) -> Result<Option<InPlace>> {
        let handle = pins::prepare(&**state, (table, &[]), program).await.map_err(error::wrap)?;
        let of_table = &table.info().schema;
        let is_typed_so = handle.schema.fields().iter().all(|field| {
            of_table.field_with_name(field.name()).is_ok_and(|column| column.data_type() == field.data_type())
        });
        if !handle.is_exact() || !is_typed_so {
            return Ok(None);
        }
        let count = Rows::plan(state, &counted(changed.clone())?).await?;
        Ok(Some(InPlace { table: table.clone(), count, handle }))
    }

    /// Returns the plan that the engine runs for this change: the count of the rows.
    pub fn rows(&self) -> &Rows {
        &self.count
    }

    /// Describes, as an indented block for EXPLAIN, what the pool does.
    pub fn explain(&self) -> String {
        let scanned = farpool_planner::rows::Rows::of_table(self.table.source());
        explain::explain(&self.table.pool().url(), &self.handle, &[], &scanned)
    }

    /// Carries out the change; returns the number of changed rows.
    pub async fn run(&self) -> farpool_model::Result<u64> {
        let rows = sum(self.count.start()?).await?;
        if rows > 0 {
            self.table.pool().change_rows(&self.handle, rows).await?;
        }
        Ok(rows)
    }
}

/// Returns whether the expression gives the column `name` a new value.
fn is_assigned(name: &str, expr: &Expr) -> bool {
    !matches!(expr.clone().unalias_nested().data, Expr::Column(column) if column.name == name)
}

/// Returns the program for all rows of the plan, even if pushing it down costs more than running it here. Returns
/// `None` if no program without lookups can express the plan, or push-down is disabled.
fn program_for(state: &SessionState, plan: &LogicalPlan) -> Result<Option<Program>> {
    let optimized = state.optimize(plan)?;
    let fragment = Fragment::read(&optimized).ok().filter(|fragment| !fragment.rows.are_joined());
    let name = |i: usize| optimized.schema().field(i).name().clone();
    Ok(fragment.and_then(|fragment| fragment.program(name).ok()))
}
