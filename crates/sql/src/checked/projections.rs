//! Keeps filters below the expressions that depend on them. DataFusion 55.2 moves projections below filters if that
//! makes rows narrower, and then evaluates expressions that may fail on rows that the filter would have removed. This
//! module is obsolete once upstream moves only projections that cannot fail.
//!
//! Invariant: no projection with checked arithmetic or a cast is directly below a filter. The rule runs last, so that
//! no other rule moves one there.

use super::function::CheckedFunction;
use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::error::Result;
use datafusion::physical_expr::expressions::CastExpr;
use datafusion::physical_expr::projection::{ProjectionExpr, update_expr};
use datafusion::physical_expr::{PhysicalExpr, ScalarFunctionExpr};
use datafusion::physical_optimizer::PhysicalOptimizerRule;
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::filter::{FilterExec, FilterExecBuilder};
use datafusion::physical_plan::projection::ProjectionExec;
use std::sync::Arc;

/// The physical optimizer rule; see the documentation of this module.
#[derive(Debug)]
pub struct FiltersFirst;

impl PhysicalOptimizerRule for FiltersFirst {
    fn name(&self) -> &'static str {
        "filters_first"
    }

    fn optimize(&self, plan: Arc<dyn ExecutionPlan>, _: &ConfigOptions) -> Result<Arc<dyn ExecutionPlan>> {
        let filtered = plan.transform_down(|plan| {
            Ok(match swapped(&plan)? {
                Some(plan) => Transformed::yes(plan),
                None => Transformed::no(plan),
            })
        });
        filtered.map(|plan| plan.data)
    }

    fn schema_check(&self) -> bool {
        true
    }
}

/// If `plan` is a filter above a projection that may fail, returns the projection above the filter; otherwise `None`.
fn swapped(plan: &Arc<dyn ExecutionPlan>) -> Result<Option<Arc<dyn ExecutionPlan>>> {
    let Some(filter) = plan.downcast_ref::<FilterExec>() else { return Ok(None) };
    let Some(projection) = filter.input().downcast_ref::<ProjectionExec>() else { return Ok(None) };
    let computed = projection.expr();
    let risky = computed.iter().map(|column| may_fail(&column.expr)).collect::<Result<Vec<bool>>>()?;
    if !risky.contains(&true) {
        return Ok(None);
    }
    let Some(predicate) = update_expr(filter.predicate(), computed, true)? else { return Ok(None) };
    let kept: Vec<ProjectionExpr> = match filter.projection() {
        Some(places) => places.iter().map(|place| computed[*place].clone()).collect(),
        None => computed.to_vec(),
    };
    let filter = FilterExecBuilder::from(filter)
        .with_input(Arc::clone(projection.input()))
        .with_predicate(predicate)
        .apply_projection(None)?
        .build()?;
    Ok(Some(Arc::new(ProjectionExec::try_new(kept, Arc::new(filter))?)))
}

fn may_fail(expr: &Arc<dyn PhysicalExpr>) -> Result<bool> {
    expr.exists(|expr| {
        let is_checked = expr
            .downcast_ref::<ScalarFunctionExpr>()
            .is_some_and(|call| call.fun().inner().downcast_ref::<CheckedFunction>().is_some());
        Ok(is_checked || expr.downcast_ref::<CastExpr>().is_some())
    })
}
