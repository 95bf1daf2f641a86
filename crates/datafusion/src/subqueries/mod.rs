//! Rewrites subqueries used as values to joins where they refer to outer columns in ways that DataFusion
//! cannot plan: `select exists (select …)` with any comparison,
//! `select (select count(*) from u where u.b < t.b)`.
//!
//! Invariant: the new plan has the rows and columns of the old one; each of these subqueries has become a
//! column. A subquery of another form stays, and DataFusion reports that it is not supported.

mod exists;
mod scalar;

use datafusion::common::Column;
use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{Transformed, TreeNode, TreeNodeRecursion};
use datafusion::error::Result;
use datafusion::logical_expr::expr::{Exists, InSubquery, SetComparison};
use datafusion::logical_expr::expr_rewriter::NamePreserver;
use datafusion::logical_expr::{Expr, LogicalPlan, LogicalPlanBuilder};
use datafusion::optimizer::AnalyzerRule;
use std::collections::HashSet;
use std::sync::Arc;

/// The analyzer rule.
#[derive(Debug)]
pub(crate) struct SubqueriesAsValues;

impl AnalyzerRule for SubqueriesAsValues {
    fn name(&self) -> &'static str {
        "subqueries_as_values"
    }

    fn analyze(&self, plan: LogicalPlan, _: &ConfigOptions) -> Result<LogicalPlan> {
        let mut count = 0;
        plan.transform_up_with_subqueries(|plan| with_columns(plan, &mut count)).map(|plan| plan.data)
    }
}

/// Returns `plan` over an input that has a column for each such subquery in its expressions. `count` numbers
/// them.
fn with_columns(plan: LogicalPlan, count: &mut usize) -> Result<Transformed<LogicalPlan>> {
    let [input] = plan.inputs()[..] else { return Ok(Transformed::no(plan)) };
    // Operators that return all columns of their input.
    let passes_on = matches!(plan, LogicalPlan::Window(_) | LogicalPlan::Filter(_) | LogicalPlan::Sort(_));
    if !passes_on && !matches!(plan, LogicalPlan::Projection(_) | LogicalPlan::Aggregate(_)) {
        return Ok(Transformed::no(plan));
    }
    if !plan.expressions().iter().any(has_subquery) {
        return Ok(Transformed::no(plan));
    }
    // DataFusion plans EXISTS in conditions itself.
    let takes_exists = !matches!(plan, LogicalPlan::Filter(_) | LogicalPlan::Sort(_));
    // DataFusion plans scalar subqueries itself that refer to outer columns by equality only.
    let takes_equality = !matches!(plan, LogicalPlan::Filter(_) | LogicalPlan::Projection(_));
    let (mut input, columns) = (input.clone(), plan.schema().columns());
    if !passes_on {
        let used: HashSet<Column> = plan.expressions().iter().flat_map(used_columns).collect();
        let used = input.schema().columns().into_iter().filter(|column| used.contains(column));
        let used: Vec<Expr> = used.map(Expr::Column).collect();
        if !used.is_empty() {
            input = LogicalPlanBuilder::from(input).project(used)?.build()?;
        }
    }
    let names = NamePreserver::new(&plan);
    let changed = plan.clone().map_expressions(|expr| {
        let name = names.save(&expr);
        let changed = expr.transform_up(|expr| match expr {
            Expr::Exists(exists) if takes_exists => {
                *count += 1;
                let negated = exists.negated;
                let mark = exists::mark(&mut input, exists, *count)?;
                Ok(Transformed::yes(if negated { !mark } else { mark }))
            }
            Expr::ScalarSubquery(subquery) => {
                *count += 1;
                let value = scalar::value(&mut input, &subquery, takes_equality, *count)?;
                Ok(match value {
                    Some(value) => Transformed::yes(value),
                    None => Transformed::no(Expr::ScalarSubquery(subquery)),
                })
            }
            other => Ok(Transformed::no(other)),
        })?;
        Ok(changed.update_data(|expr| name.restore(expr)))
    })?;
    if !changed.transformed {
        return Ok(Transformed::no(plan));
    }
    let over = changed.data.with_new_exprs(changed.data.expressions(), vec![input])?;
    match passes_on {
        true => LogicalPlanBuilder::from(over).project(columns.into_iter().map(Expr::Column))?.build(),
        false => Ok(over),
    }
    .map(Transformed::yes)
}

fn has_subquery(expr: &Expr) -> bool {
    let is_one = |expr: &Expr| Ok(matches!(expr, Expr::Exists(_) | Expr::ScalarSubquery(_)));
    expr.exists(is_one).unwrap_or(true)
}

/// Returns the columns of its input that an expression needs, including those that its subqueries refer to.
fn used_columns(expr: &Expr) -> Vec<Column> {
    let mut columns = Vec::new();
    let visited = expr.apply(|expr| {
        match expr {
            Expr::Column(column) => columns.push(column.clone()),
            Expr::ScalarSubquery(subquery)
            | Expr::Exists(Exists { subquery, .. })
            | Expr::InSubquery(InSubquery { subquery, .. })
            | Expr::SetComparison(SetComparison { subquery, .. }) => {
                columns.extend(subquery.outer_ref_columns.iter().flat_map(outer_columns));
            }
            _ => {}
        }
        Ok(TreeNodeRecursion::Continue)
    });
    debug_assert!(visited.is_ok(), "the visitor never fails");
    columns
}

fn input_of(input: Arc<LogicalPlan>) -> LogicalPlan {
    Arc::unwrap_or_clone(input)
}

/// Returns the columns of the outer query that an expression refers to.
fn outer_columns(expr: &Expr) -> Vec<Column> {
    let mut columns = Vec::new();
    let visited = expr.apply(|expr| {
        if let Expr::OuterReferenceColumn(_, column) = expr {
            columns.push(column.clone());
        }
        Ok(TreeNodeRecursion::Continue)
    });
    debug_assert!(visited.is_ok(), "the visitor never fails");
    columns
}
