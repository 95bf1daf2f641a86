//! Simplifies the subquery of EXISTS: only whether it has a row matters.

use datafusion::error::Result;
use datafusion::logical_expr::expr::GroupingSet;
use datafusion::logical_expr::logical_plan::{FetchType, SkipType};
use datafusion::logical_expr::{Expr, LogicalPlan};
use std::sync::Arc;

/// Returns a simpler query that has a row exactly if `plan` has one: without operators that keep at least one row if
/// there is one. Returns `None` if there is always a row.
pub(super) fn any_row(plan: LogicalPlan) -> Result<Option<LogicalPlan>> {
    Ok(match plan {
        LogicalPlan::Projection(projection) => {
            // If the projection unnests lists, there is a separate node for that above it, so that removing the
            // projection is safe.
            any_row(Arc::unwrap_or_clone(projection.input))?
        }
        LogicalPlan::SubqueryAlias(alias) => any_row(Arc::unwrap_or_clone(alias.input))?,
        LogicalPlan::Subquery(subquery) => any_row(Arc::unwrap_or_clone(subquery.subquery))?,
        LogicalPlan::Sort(sort) if sort.fetch.is_none_or(|fetch| fetch > 0) => {
            any_row(Arc::unwrap_or_clone(sort.input))?
        }
        LogicalPlan::Window(window) => any_row(Arc::unwrap_or_clone(window.input))?,
        LogicalPlan::Distinct(distinct) => any_row(LogicalPlan::clone(distinct.input()))?,
        LogicalPlan::Aggregate(aggregate) => match aggregate.group_expr.as_slice() {
            [] => None,
            [Expr::GroupingSet(set)] if has_empty_set(set) => None,
            [Expr::GroupingSet(_)] => Some(LogicalPlan::Aggregate(aggregate)),
            _ => any_row(Arc::unwrap_or_clone(aggregate.input))?,
        },
        LogicalPlan::Limit(limit) => {
            let skips_none = matches!(limit.get_skip_type()?, SkipType::Literal(0));
            let takes_some = match limit.get_fetch_type()? {
                FetchType::Literal(fetch) => fetch.is_none_or(|fetch| fetch > 0),
                FetchType::UnsupportedExpr => false,
            };
            match skips_none && takes_some {
                true => any_row(Arc::unwrap_or_clone(limit.input))?,
                false => Some(LogicalPlan::Limit(limit)),
            }
        }
        other => Some(other),
    })
}

/// Returns whether one of the grouping sets is empty: it groups all rows, and has a result row even for no rows.
pub(super) fn has_empty_set(set: &GroupingSet) -> bool {
    match set {
        GroupingSet::Rollup(_) | GroupingSet::Cube(_) => true,
        GroupingSet::GroupingSets(sets) => sets.iter().any(Vec::is_empty),
    }
}
