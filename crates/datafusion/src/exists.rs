//! EXISTS as a value: `select exists (select …)`, of a query that shares columns with the one around it by any
//! comparison. DataFusion has it in conditions only; here it becomes a join that marks the rows that have a match.
//!
//! Invariant: the marked plan has the rows and columns of the plan before, in which each EXISTS has become a column that
//! is never NULL.

use crate::error;
use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{Transformed, TreeNode, TreeNodeRecursion};
use datafusion::common::{Column, JoinType};
use datafusion::error::Result;
use datafusion::functions_aggregate::expr_fn::count;
use datafusion::logical_expr::expr::Exists;
use datafusion::logical_expr::expr_rewriter::{NamePreserver, strip_outer_reference};
use datafusion::logical_expr::utils::{conjunction, split_conjunction_owned};
use datafusion::logical_expr::{Expr, LogicalPlan, LogicalPlanBuilder, lit, scalar_subquery};
use datafusion::optimizer::AnalyzerRule;
use farpool_model::Error;
use std::sync::Arc;

/// The rule.
#[derive(Debug)]
pub(crate) struct ExistsAsValue;

impl AnalyzerRule for ExistsAsValue {
    fn name(&self) -> &'static str {
        "exists_as_value"
    }

    fn analyze(&self, plan: LogicalPlan, _: &ConfigOptions) -> Result<LogicalPlan> {
        let mut marks = 0;
        plan.transform_up_with_subqueries(|plan| marked(plan, &mut marks)).map(|plan| plan.data)
    }
}

/// `plan` over an input that has a mark for each EXISTS in its expressions.
fn marked(plan: LogicalPlan, marks: &mut usize) -> Result<Transformed<LogicalPlan>> {
    let is_value = match &plan {
        LogicalPlan::Projection(_) | LogicalPlan::Aggregate(_) | LogicalPlan::Window(_) => has_exists(&plan)?,
        _ => false,
    };
    let [input] = plan.inputs()[..] else { return Ok(Transformed::no(plan)) };
    if !is_value {
        return Ok(Transformed::no(plan));
    }
    let (mut input, columns) = (input.clone(), plan.schema().columns());
    let names = NamePreserver::new(&plan);
    let changed = plan.clone().map_expressions(|expr| {
        let name = names.save(&expr);
        let changed = expr.transform_up(|expr| match expr {
            Expr::Exists(exists) => {
                let negated = exists.negated;
                let mark = mark(&mut input, exists, marks)?;
                Ok(Transformed::yes(if negated { !mark } else { mark }))
            }
            other => Ok(Transformed::no(other)),
        })?;
        Ok(changed.update_data(|expr| name.restore(expr)))
    })?;
    let is_window = matches!(plan, LogicalPlan::Window(_));
    let over = changed.data.with_new_exprs(changed.data.expressions(), vec![input])?;
    match is_window {
        // It passes on all columns of its input.
        true => LogicalPlanBuilder::from(over).project(columns.into_iter().map(Expr::Column))?.build(),
        false => Ok(over),
    }
    .map(Transformed::yes)
}

fn has_exists(plan: &LogicalPlan) -> Result<bool> {
    for expr in plan.expressions() {
        if expr.exists(|expr| Ok(matches!(expr, Expr::Exists(_))))? {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Whether the query has rows, for a row of `input`; where the two share columns by joining them.
fn mark(input: &mut LogicalPlan, exists: Exists, marks: &mut usize) -> Result<Expr> {
    *marks += 1;
    let name = format!("__exists_{marks}");
    let (rows, shared) = taken_apart(LogicalPlan::clone(&exists.subquery.subquery))?;
    let is_known = |column: &Column| input.schema().has_column(column);
    let mut outer = shared.iter().flat_map(outer_columns);
    if !rows.all_out_ref_exprs().is_empty() || !outer.all(|column| is_known(&column)) {
        let what = "an EXISTS in SELECT that names a column of an outer query elsewhere than in its WHERE is not done";
        return Err(error::wrap(Error::invalid(what).advise("join the tables, and count the matches")));
    }
    // The columns that conditions compare, under names that no other table has.
    let mut compared: Vec<Column> = Vec::new();
    let conditions = shared.into_iter().map(|condition| in_join(condition, &name, &mut compared));
    let conditions = conditions.collect::<Result<Vec<_>>>()?;
    let named =
        compared.into_iter().enumerate().map(|(n, column)| Expr::Column(column).alias(column_name(n)));
    let rows = LogicalPlanBuilder::from(rows);
    if conditions.is_empty() {
        let counted = rows.limit(0, Some(1))?.aggregate(Vec::<Expr>::new(), [count(lit(1))])?.build()?;
        return Ok(scalar_subquery(Arc::new(counted)).gt(lit(0_i64)));
    }
    let matches = rows.project(named.chain([lit(1).alias("row")]))?.alias(name.as_str())?.build()?;
    let left = LogicalPlanBuilder::from(std::mem::take(input));
    *input = left.join_on(matches, JoinType::LeftMark, conditions)?.build()?;
    Ok(Expr::Column(Column::new(Some(name), "mark")))
}

fn column_name(n: usize) -> String {
    format!("c{n}")
}

/// The rows that a query has without the conditions that name columns of the query around it, and these conditions.
fn taken_apart(plan: LogicalPlan) -> Result<(LogicalPlan, Vec<Expr>)> {
    Ok(match plan {
        // Whether there are rows does not depend on their order and columns.
        LogicalPlan::Projection(projection) => taken_apart(input_of(projection.input))?,
        LogicalPlan::Sort(sort) if sort.fetch.is_none() => taken_apart(input_of(sort.input))?,
        LogicalPlan::Filter(filter) => {
            let (rows, mut shared) = taken_apart(input_of(filter.input))?;
            let parts = split_conjunction_owned(filter.predicate);
            let (theirs, own): (Vec<Expr>, Vec<Expr>) = parts.into_iter().partition(Expr::contains_outer);
            shared.extend(theirs);
            let rows = match conjunction(own) {
                Some(own) => LogicalPlanBuilder::from(rows).filter(own)?.build()?,
                None => rows,
            };
            (rows, shared)
        }
        other => (other, Vec::new()),
    })
}

fn input_of(input: Arc<LogicalPlan>) -> LogicalPlan {
    Arc::unwrap_or_clone(input)
}

fn outer_columns(condition: &Expr) -> Vec<Column> {
    let mut columns = Vec::new();
    let visited = condition.apply(|expr| {
        if let Expr::OuterReferenceColumn(_, column) = expr {
            columns.push(column.clone());
        }
        Ok(TreeNodeRecursion::Continue)
    });
    debug_assert!(visited.is_ok(), "the visitor never fails");
    columns
}

/// A condition of the query as one of the join: its own columns are those of `table`, the others no longer outer ones.
fn in_join(condition: Expr, table: &str, compared: &mut Vec<Column>) -> Result<Expr> {
    let own = condition.transform_up(|expr| {
        let Expr::Column(column) = expr else { return Ok(Transformed::no(expr)) };
        let place = compared.iter().position(|known| *known == column).unwrap_or(compared.len());
        if place == compared.len() {
            compared.push(column);
        }
        Ok(Transformed::yes(Expr::Column(Column::new(Some(table), column_name(place)))))
    })?;
    Ok(strip_outer_reference(own.data))
}
