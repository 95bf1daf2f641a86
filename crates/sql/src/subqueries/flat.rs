//! Decomposes subqueries that consist of joins, filters and projections into two parts: the rows that they read,
//! without references to outer columns; and the conditions that have such references.

use super::references::{free_columns, has_subquery};
use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::common::{Column, JoinType};
use datafusion::error::Result;
use datafusion::logical_expr::utils::{conjunction, split_conjunction_owned};
use datafusion::logical_expr::{Expr, LogicalPlan, LogicalPlanBuilder};
use std::collections::HashMap;
use std::sync::Arc;

/// A subquery, decomposed into rows and conditions; see the documentation of this module.
pub(super) struct Flat {
    /// The rows that the subquery reads, without references to outer columns.
    pub plan: LogicalPlan,
    /// Conditions over columns of `plan` and outer references.
    pub conditions: Vec<Expr>,
    /// The subquery's columns as expressions over columns of `plan` and outer references.
    pub columns: HashMap<Column, Expr>,
    /// Whether the subquery's columns are columns of `plan` with the same names, without expressions in between.
    is_direct: bool,
}

/// Decomposes a subquery. Returns `None` if it has other operators above references to outer columns.
pub(super) fn flat(plan: LogicalPlan) -> Result<Option<Flat>> {
    let fields = plan.schema().columns();
    if free_columns(&plan)?.is_empty() {
        let columns = fields.into_iter().map(|column| (column.clone(), Expr::Column(column))).collect();
        return Ok(Some(Flat { plan, conditions: Vec::new(), columns, is_direct: true }));
    }
    Ok(match plan {
        LogicalPlan::Filter(filter) => {
            let Some(below) = flat(Arc::unwrap_or_clone(filter.input))? else { return Ok(None) };
            filtered(below, filter.predicate)?
        }
        LogicalPlan::Projection(projection) => {
            let Some(below) = flat(Arc::unwrap_or_clone(projection.input))? else { return Ok(None) };
            if projection.expr.iter().any(|expr| has_subquery(expr) || is_unfit(expr)) {
                return Ok(None);
            }
            let made = projection.expr.into_iter().map(|expr| substituted(expr, &below.columns));
            let columns = fields.into_iter().zip(made.collect::<Result<Vec<_>>>()?).collect();
            Some(Flat { columns, is_direct: false, ..below })
        }
        LogicalPlan::SubqueryAlias(alias) => {
            let inner = alias.input.schema().columns();
            flat(Arc::unwrap_or_clone(alias.input))?.map(|below| {
                let value = |column: &Column| below.columns[column].clone();
                let columns = fields.into_iter().zip(inner.iter().map(value)).collect();
                Flat { columns, is_direct: false, ..below }
            })
        }
        LogicalPlan::Subquery(subquery) => flat(Arc::unwrap_or_clone(subquery.subquery))?,
        LogicalPlan::Sort(sort) if sort.fetch.is_none() => flat(Arc::unwrap_or_clone(sort.input))?,
        LogicalPlan::Join(mut join) if join.join_type == JoinType::Inner => {
            if !free_columns(&join.left)?.is_empty() || !free_columns(&join.right)?.is_empty() {
                return Ok(None);
            }
            let Some(condition) = join.filter.take() else { return Ok(None) };
            let columns = fields.into_iter().map(|column| (column.clone(), Expr::Column(column))).collect();
            let plan = LogicalPlan::Join(join);
            filtered(Flat { plan, conditions: Vec::new(), columns, is_direct: true }, condition)?
        }
        _ => None,
    })
}

/// Returns whether an expression must stay in the subquery, because it could have another result over joined rows.
fn is_unfit(expr: &Expr) -> bool {
    expr.is_volatile() || expr.exists(|expr| Ok(matches!(expr, Expr::Unnest(_)))).unwrap_or(true)
}

fn filtered(below: Flat, predicate: Expr) -> Result<Option<Flat>> {
    let Flat { plan, mut conditions, columns, is_direct } = below;
    let parts = split_conjunction_owned(predicate).into_iter();
    let parts = parts.map(|part| substituted(part, &columns)).collect::<Result<Vec<_>>>()?;
    let schema = Arc::clone(plan.schema());
    let refers = |part: &Expr| super::references::free_columns_of(part, &[&schema]);
    let mut own = Vec::new();
    for part in parts {
        let is_shared = !refers(&part)?.is_empty();
        if part.is_volatile() || (has_subquery(&part) && (is_shared || !is_direct)) {
            return Ok(None);
        }
        match is_shared {
            true => conditions.push(part),
            false => own.push(part),
        }
    }
    let plan = match conjunction(own) {
        Some(own) => LogicalPlanBuilder::from(plan).filter(own)?.build()?,
        None => plan,
    };
    Ok(Some(Flat { plan, conditions, columns, is_direct }))
}

/// Removes the alias of an expression, and replaces the columns in it by the expressions in `columns`.
pub(super) fn substituted(expr: Expr, columns: &HashMap<Column, Expr>) -> Result<Expr> {
    let made = expr.unalias().transform_up(|expr| match &expr {
        Expr::Column(column) => Ok(match columns.get(column) {
            Some(known) => Transformed::yes(known.clone()),
            None => Transformed::no(expr),
        }),
        _ => Ok(Transformed::no(expr)),
    });
    made.map(|made| made.data)
}
