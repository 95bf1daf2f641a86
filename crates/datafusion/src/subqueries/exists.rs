//! EXISTS as a value: a join that marks the rows that have a match. The mark is never NULL.

use super::{input_of, outer_columns};
use crate::error;
use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::common::{Column, JoinType};
use datafusion::error::Result;
use datafusion::functions_aggregate::expr_fn::count;
use datafusion::logical_expr::expr::Exists;
use datafusion::logical_expr::expr_rewriter::strip_outer_reference;
use datafusion::logical_expr::utils::{conjunction, split_conjunction_owned};
use datafusion::logical_expr::{Expr, LogicalPlan, LogicalPlanBuilder, lit, scalar_subquery};
use farpool_model::Error;
use std::sync::Arc;

/// Replaces `input` by a join that marks the rows for which the query has rows, where the two share columns
/// in ways that a join can express; returns the mark.
pub(super) fn mark(input: &mut LogicalPlan, exists: Exists, number: usize) -> Result<Expr> {
    let name = format!("__exists_{number}");
    let (rows, shared) = taken_apart(LogicalPlan::clone(&exists.subquery.subquery))?;
    let is_known = |column: &Column| input.schema().has_column(column);
    let mut outer = shared.iter().flat_map(outer_columns);
    if !rows.all_out_ref_exprs().is_empty() || !outer.all(|column| is_known(&column)) {
        let what = "an EXISTS in SELECT that names a column of an outer query elsewhere than in its WHERE is not done";
        return Err(error::wrap(Error::invalid(what).advise("join the tables, and count the matches")));
    }
    // The columns that conditions compare, under a table name that no other table has.
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

/// Splits a query into its rows without the conditions on columns of the outer query, and these conditions.
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

/// Converts a condition of the subquery to one of the join: its own columns become those of `table`, and
/// outer references become plain columns.
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
