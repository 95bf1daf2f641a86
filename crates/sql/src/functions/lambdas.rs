//! Renumbers the parameters of lambdas, so that they stay behind all columns when operators are merged.
//!
//! DataFusion 55.2 gives a lambda's parameter a column index that begins after the columns of the operator's input:
//! over 2 columns, `x -> x + i` has `x` at index 2. If a projection is merged with the one below it, it is evaluated
//! over the input of that one, which may have 5 columns. Columns are then renumbered, but parameters are not, so that
//! index 2 is taken for a column ("Field of physical LambdaVariable …"). Only the order of the indexes matters, so that
//! parameters with large indexes stay parameters. This rule is obsolete once upstream renumbers parameters when it
//! merges projections.

use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::config::ConfigOptions;
use datafusion::error::Result;
use datafusion::physical_expr::expressions::LambdaVariable;
use datafusion::physical_expr::projection::ProjectionExpr;
use datafusion::physical_optimizer::PhysicalOptimizerRule;
use datafusion::physical_plan::filter::{FilterExec, FilterExecBuilder};
use datafusion::physical_plan::projection::ProjectionExec;
use datafusion::physical_plan::{ExecutionPlan, PhysicalExpr};
use std::sync::Arc;

/// The first index for parameters: more than any operator has columns.
const FIRST: usize = 1 << 24;

/// The physical optimizer rule. It runs before all rules that move expressions.
#[derive(Debug)]
pub struct LambdaParameters;

impl PhysicalOptimizerRule for LambdaParameters {
    fn name(&self) -> &'static str {
        "lambda_parameters"
    }

    fn optimize(&self, plan: Arc<dyn ExecutionPlan>, _: &ConfigOptions) -> Result<Arc<dyn ExecutionPlan>> {
        plan.transform_up(renumbered).map(|plan| plan.data)
    }

    fn schema_check(&self) -> bool {
        true
    }
}

fn renumbered(plan: Arc<dyn ExecutionPlan>) -> Result<Transformed<Arc<dyn ExecutionPlan>>> {
    if let Some(projection) = plan.downcast_ref::<ProjectionExec>() {
        let exprs = projection.expr().iter().map(|column| behind_columns(&column.expr));
        let exprs = exprs.collect::<Result<Vec<_>>>()?;
        if exprs.iter().any(|expr| expr.transformed) {
            let names = projection.expr().iter().map(|column| column.alias.clone());
            let exprs = exprs.into_iter().zip(names).map(|(expr, name)| ProjectionExpr::new(expr.data, name));
            let projection = ProjectionExec::try_new(exprs, Arc::clone(projection.input()))?;
            return Ok(Transformed::yes(Arc::new(projection)));
        }
    }
    if let Some(filter) = plan.downcast_ref::<FilterExec>() {
        let predicate = behind_columns(filter.predicate())?;
        if predicate.transformed {
            let filter = FilterExecBuilder::from(filter).with_predicate(predicate.data).build()?;
            return Ok(Transformed::yes(Arc::new(filter)));
        }
    }
    Ok(Transformed::no(plan))
}

fn behind_columns(expr: &Arc<dyn PhysicalExpr>) -> Result<Transformed<Arc<dyn PhysicalExpr>>> {
    Arc::clone(expr).transform_up(|expr| {
        let parameter = expr.downcast_ref::<LambdaVariable>().filter(|parameter| parameter.index() < FIRST);
        let Some(parameter) = parameter else { return Ok(Transformed::no(expr)) };
        let (place, field) = (FIRST + parameter.index(), Arc::clone(parameter.field()));
        Ok(Transformed::yes(Arc::new(LambdaVariable::new(place, field))))
    })
}
