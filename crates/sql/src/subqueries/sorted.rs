//! Unnests subqueries in ORDER BY, which may refer to columns that are not in the result.

use super::references::{Replacements, free_columns_of, replaced};
use super::{Names, computed, refused};
use datafusion::common::Column;
use datafusion::common::tree_node::Transformed;
use datafusion::error::Result;
use datafusion::logical_expr::logical_plan::Projection;
use datafusion::logical_expr::{Expr, LogicalPlan, LogicalPlanBuilder, Sort, SortExpr};
use std::sync::Arc;

/// Unnests the subqueries in ORDER BY. Columns that they refer to are added to the projection below the sort, and are
/// removed again above it.
pub(super) fn sorted(mut sort: Sort, names: &Names) -> Result<Transformed<LogicalPlan>> {
    let schema = Arc::clone(sort.input.schema());
    let mut missing = Vec::new();
    for key in &sort.expr {
        missing.extend(free_columns_of(&key.expr, &[&schema])?);
    }
    if missing.is_empty() {
        return computed(LogicalPlan::Sort(sort), names);
    }
    let LogicalPlan::Projection(projection) = &*sort.input else {
        return match matches!(&*sort.input, LogicalPlan::Distinct(_)) {
            true => Err(refused("ORDER BY names a column that SELECT DISTINCT does not return")),
            false => computed(LogicalPlan::Sort(sort), names),
        };
    };
    missing.retain(|column| projection.input.schema().has_column(column));
    let table = names.table();
    let mut by = Replacements::new();
    let mut all = projection.expr.clone();
    for column in missing {
        if by.contains_key(&column) {
            continue;
        }
        let new = Column::new(Some(table.as_str()), format!("k{}", by.len()));
        all.push(Expr::Column(column.clone()).alias_qualified(new.relation.clone(), new.name.as_str()));
        by.insert(column, new);
    }
    let wider = Projection::try_new(all, Arc::clone(&projection.input))?;
    let keys = sort.expr.into_iter().map(|key| {
        let expr = replaced(key.expr, &[&schema], &by)?;
        Ok(SortExpr { expr, ..key })
    });
    sort.expr = keys.collect::<Result<_>>()?;
    sort.input = Arc::new(LogicalPlan::Projection(wider));
    let over = computed(LogicalPlan::Sort(sort), names)?.data;
    let columns = schema.columns().into_iter().map(Expr::Column);
    LogicalPlanBuilder::from(over).project(columns)?.build().map(Transformed::yes)
}
