//! References of subqueries to columns of enclosing queries: finds the free ones (those that no query within the plan
//! binds), and replaces them.
//!
//! In DataFusion 55.2, outer references have no depth. A reference is bound by the innermost enclosing query whose rows
//! have a column of that name, because a nested query may use the name of an outer query's table for its own.

use datafusion::common::tree_node::{Transformed, TreeNode, TreeNodeRecursion};
use datafusion::common::{Column, DFSchemaRef};
use datafusion::error::Result;
use datafusion::logical_expr::expr::{Exists, InSubquery, SetComparison};
use datafusion::logical_expr::expr_rewriter::NamePreserver;
use datafusion::logical_expr::logical_plan::Subquery;
use datafusion::logical_expr::{Expr, LogicalPlan};
use std::collections::HashMap;
use std::sync::Arc;

/// The columns of an outer query, each with the column that replaces it.
pub(super) type Replacements = HashMap<Column, Column>;

/// Returns the subquery of an expression node; `None` if the node is no subquery.
pub(super) fn subquery_of(expr: &Expr) -> Option<&Subquery> {
    match expr {
        Expr::ScalarSubquery(subquery)
        | Expr::Exists(Exists { subquery, .. })
        | Expr::InSubquery(InSubquery { subquery, .. })
        | Expr::SetComparison(SetComparison { subquery, .. }) => Some(subquery),
        _ => None,
    }
}

/// Returns whether the expression contains a subquery.
pub(super) fn has_subquery(expr: &Expr) -> bool {
    expr.exists(|expr| Ok(subquery_of(expr).is_some())).unwrap_or(true)
}

/// Returns the columns of enclosing queries that `plan` refers to.
pub(super) fn free_columns(plan: &LogicalPlan) -> Result<Vec<Column>> {
    let mut found = Vec::new();
    collect(plan, &mut found)?;
    Ok(found)
}

/// Returns the columns of enclosing queries that an expression refers to; columns of the schemas `local` are the
/// query's own.
pub(super) fn free_columns_of(expr: &Expr, local: &[&DFSchemaRef]) -> Result<Vec<Column>> {
    let mut found = Vec::new();
    collect_of(expr, local, &mut found)?;
    Ok(found)
}

fn collect(plan: &LogicalPlan, found: &mut Vec<Column>) -> Result<()> {
    let local: Vec<&DFSchemaRef> = plan.inputs().into_iter().map(LogicalPlan::schema).collect();
    plan.apply_expressions(|expr| {
        collect_of(expr, &local, found)?;
        Ok(TreeNodeRecursion::Continue)
    })?;
    if let LogicalPlan::Join(join) = plan
        && let Some((lateral, _)) = lateral(&join.right)
    {
        collect(&join.left, found)?;
        return collect_unbound(&lateral.subquery, &[join.left.schema()], found);
    }
    plan.inputs().into_iter().try_for_each(|input| collect(input, found))
}

fn collect_of(expr: &Expr, local: &[&DFSchemaRef], found: &mut Vec<Column>) -> Result<()> {
    expr.apply(|expr| {
        if let Expr::OuterReferenceColumn(_, column) = expr {
            add(column.clone(), found);
        }
        if let Some(subquery) = subquery_of(expr) {
            collect_unbound(&subquery.subquery, local, found)?;
        }
        Ok(TreeNodeRecursion::Continue)
    })?;
    Ok(())
}

fn collect_unbound(plan: &LogicalPlan, local: &[&DFSchemaRef], found: &mut Vec<Column>) -> Result<()> {
    let free = free_columns(plan)?.into_iter();
    free.filter(|column| !binds(local, column)).for_each(|column| add(column, found));
    Ok(())
}

fn add(column: Column, found: &mut Vec<Column>) {
    if !found.contains(&column) {
        found.push(column);
    }
}

fn binds(local: &[&DFSchemaRef], column: &Column) -> bool {
    local.iter().any(|schema| schema.has_column(column))
}

/// If `plan` is the right side of a lateral join, returns its subquery, and the alias around it if there is one;
/// otherwise `None`.
pub(super) fn lateral(plan: &LogicalPlan) -> Option<(&Subquery, Option<&LogicalPlan>)> {
    match plan {
        LogicalPlan::Subquery(subquery) => Some((subquery, None)),
        LogicalPlan::SubqueryAlias(alias) => match &*alias.input {
            LogicalPlan::Subquery(subquery) => Some((subquery, Some(plan))),
            LogicalPlan::Projection(projection) => match &*projection.input {
                LogicalPlan::Subquery(subquery) => Some((subquery, Some(plan))),
                _ => None,
            },
            _ => None,
        },
        _ => None,
    }
}

/// Replaces outer references in an expression of the query itself by columns; columns of the schemas `local` are the
/// query's own.
pub(super) fn replaced(expr: Expr, local: &[&DFSchemaRef], by: &Replacements) -> Result<Expr> {
    let made = expr.transform_up(|expr| match expr {
        Expr::OuterReferenceColumn(field, column) => Ok(match by.get(&column) {
            Some(new) => Transformed::yes(Expr::Column(new.clone())),
            None => Transformed::no(Expr::OuterReferenceColumn(field, column)),
        }),
        other => in_subqueries(other, local, by),
    })?;
    Ok(made.data)
}

/// Replaces outer references in the subquery of an expression node by references to other outer columns.
fn in_subqueries(expr: Expr, local: &[&DFSchemaRef], by: &Replacements) -> Result<Transformed<Expr>> {
    if subquery_of(&expr).is_none() {
        return Ok(Transformed::no(expr));
    }
    let left: Replacements = by
        .iter()
        .filter(|(column, _)| !binds(local, column))
        .map(|(column, new)| (column.clone(), new.clone()))
        .collect();
    let nested = |subquery: Subquery| replaced_within(subquery, &left);
    Ok(Transformed::yes(match expr {
        Expr::ScalarSubquery(subquery) => Expr::ScalarSubquery(nested(subquery)?),
        Expr::Exists(mut exists) => {
            exists.subquery = nested(exists.subquery)?;
            Expr::Exists(exists)
        }
        Expr::InSubquery(mut within) => {
            within.subquery = nested(within.subquery)?;
            Expr::InSubquery(within)
        }
        Expr::SetComparison(mut compared) => {
            compared.subquery = nested(compared.subquery)?;
            Expr::SetComparison(compared)
        }
        other => other,
    }))
}

/// Replaces outer references in a nested query by references to other outer columns.
pub(super) fn replaced_within(subquery: Subquery, by: &Replacements) -> Result<Subquery> {
    let plan = nested(Arc::unwrap_or_clone(subquery.subquery), by)?;
    let outer_ref_columns = plan.all_out_ref_exprs();
    Ok(Subquery { subquery: Arc::new(plan), outer_ref_columns, spans: subquery.spans })
}

fn nested(plan: LogicalPlan, by: &Replacements) -> Result<LogicalPlan> {
    if by.is_empty() {
        return Ok(plan);
    }
    let schemas: Vec<DFSchemaRef> =
        plan.inputs().into_iter().map(|input| Arc::clone(input.schema())).collect();
    let names = NamePreserver::new(&plan);
    let plan = plan.map_expressions(|expr| {
        let name = names.save(&expr);
        let local: Vec<&DFSchemaRef> = schemas.iter().collect();
        let made = expr.transform_up(|expr| match expr {
            Expr::OuterReferenceColumn(field, column) => Ok(match by.get(&column) {
                Some(new) => Transformed::yes(Expr::OuterReferenceColumn(field, new.clone())),
                None => Transformed::no(Expr::OuterReferenceColumn(field, column)),
            }),
            other => in_subqueries(other, &local, by),
        })?;
        Ok(made.update_data(|expr| name.restore(expr)))
    })?;
    let is_lateral = matches!(&plan.data, LogicalPlan::Join(join) if lateral(&join.right).is_some());
    let left: Replacements = match is_lateral {
        true => by
            .iter()
            .filter(|(column, _)| !schemas[0].has_column(column))
            .map(|(column, new)| (column.clone(), new.clone()))
            .collect(),
        false => by.clone(),
    };
    let mut place = 0;
    let plan = plan.data.map_children(|child| {
        let by = if place == 0 { by } else { &left };
        place += 1;
        nested(child, by).map(Transformed::yes)
    })?;
    match plan.data {
        LogicalPlan::Subquery(subquery) => {
            let outer_ref_columns = subquery.subquery.all_out_ref_exprs();
            Ok(LogicalPlan::Subquery(Subquery { outer_ref_columns, ..subquery }))
        }
        plan => Ok(plan),
    }
}
