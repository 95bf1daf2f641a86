//! Unnests lateral queries in joins, and subqueries in the conditions of joins.

use super::attach::Attached;
use super::domain::join_null_safe;
use super::flat::{Flat, flat, substituted};
use super::push::{either, push};
use super::references::{free_columns, free_columns_of, has_subquery, lateral};
use super::{Names, attached, filtered, is_value_of_engine, refused, values};
use datafusion::common::tree_node::{Transformed, TreeNode, TreeNodeRecursion};
use datafusion::common::{Column, JoinType, ScalarValue};
use datafusion::error::Result;
use datafusion::logical_expr::logical_plan::{Filter, Join, JoinConstraint};
use datafusion::logical_expr::utils::{conjunction, split_conjunction_owned};
use datafusion::logical_expr::{Expr, ExprSchemable, LogicalPlan, LogicalPlanBuilder, lit};
use std::collections::HashMap;
use std::sync::Arc;

/// Rewrites a join. A lateral right side becomes a join on the outer columns that it refers to. Subqueries in the
/// condition of an inner join move to a filter above the join. In the condition of any other join, each subquery must
/// refer to one side only.
pub(super) fn joined(mut join: Join, names: &Names) -> Result<Transformed<LogicalPlan>> {
    if let Some((subquery, alias)) = lateral(&join.right) {
        let query = match alias {
            None => LogicalPlan::clone(&subquery.subquery),
            Some(alias) => unwrapped(alias.clone())?,
        };
        return in_lateral(join, query, names).map(Transformed::yes);
    }
    // A lateral query has no mark in the plan if only queries within it refer to the left side. Enclosing queries have
    // been unnested already, so that any free column is one of the left side.
    if free_columns(&join.right)?.iter().any(|column| join.left.schema().has_column(column)) {
        let query = LogicalPlan::clone(&join.right);
        return in_lateral(join, query, names).map(Transformed::yes);
    }
    let is_ours = |filter: &Expr| has_subquery(filter) && !is_value_of_engine(filter);
    match join.filter.take() {
        Some(filter) if is_ours(&filter) && join.join_type == JoinType::Inner => {
            let (left, right) = (Arc::clone(&join.left), Arc::clone(&join.right));
            let equality = join.null_equality;
            let plain = Join::try_new(
                left,
                right,
                join.on,
                None,
                JoinType::Inner,
                JoinConstraint::On,
                equality,
                false,
            )?;
            let filter = Filter::try_new(filter, Arc::new(LogicalPlan::Join(plain)))?;
            filtered(filter, names)
        }
        Some(filter) if is_ours(&filter) => {
            join.filter = Some(filter);
            with_sides(join, names).map(Transformed::yes)
        }
        filter => {
            join.filter = filter;
            Ok(Transformed::no(LogicalPlan::Join(join)))
        }
    }
}

/// For an outer, semi or anti join: evaluates each subquery in its condition on the side to whose columns the subquery
/// refers.
fn with_sides(join: Join, names: &Names) -> Result<LogicalPlan> {
    let columns = join.schema.columns();
    let (mut left, mut right) = (Arc::unwrap_or_clone(join.left), Arc::unwrap_or_clone(join.right));
    let mut conditions = Vec::new();
    for condition in join.filter.into_iter().flat_map(split_conjunction_owned) {
        if !has_subquery(&condition) || is_value_of_engine(&condition) {
            conditions.push(condition);
            continue;
        }
        let uses = |side: &LogicalPlan| -> Result<bool> {
            let mut used = free_columns_of(&condition, &[])?;
            used.extend(condition.column_refs().into_iter().cloned());
            Ok(used.iter().all(|column| side.schema().has_column(column)))
        };
        let side = match (uses(&left)?, uses(&right)?) {
            (true, _) => &mut left,
            (_, true) => &mut right,
            _ => {
                return Err(refused(
                    "a subquery in ON of an outer join that names columns of both of its sides is not done",
                ));
            }
        };
        let (plan, value) = attached(std::mem::take(side), names, |rows| values(rows, condition.clone()))?;
        *side = plan;
        conditions.push(value);
    }
    let filter = conjunction(conditions);
    let (left, right) = (Arc::new(left), Arc::new(right));
    let made = Join::try_new(
        left,
        right,
        join.on,
        filter,
        join.join_type,
        JoinConstraint::On,
        join.null_equality,
        false,
    )?;
    LogicalPlanBuilder::from(LogicalPlan::Join(made)).project(columns.into_iter().map(Expr::Column))?.build()
}

/// Removes the plan nodes that mark lateral queries.
fn unwrapped(plan: LogicalPlan) -> Result<LogicalPlan> {
    let made = plan.transform_down(|plan| match plan {
        LogicalPlan::Subquery(subquery) => {
            Ok(Transformed::new(Arc::unwrap_or_clone(subquery.subquery), true, TreeNodeRecursion::Stop))
        }
        other => Ok(Transformed::no(other)),
    })?;
    Ok(made.data)
}

fn in_lateral(join: Join, query: LogicalPlan, names: &Names) -> Result<LogicalPlan> {
    let columns: Vec<Column> = join.schema.columns();
    let on = join.on.iter().map(|(left, right)| left.clone().eq(right.clone()));
    let condition = conjunction(on.chain(join.filter.clone()));
    let left = Arc::unwrap_or_clone(join.left);
    let is_closed = !free_columns(&query)?.iter().any(|column| left.schema().has_column(column));
    if is_closed {
        let right = LogicalPlanBuilder::from(left);
        return right.join_on(query, join.join_type, condition)?.build();
    }
    let is_outer = match join.join_type {
        JoinType::Inner => false,
        JoinType::Left => true,
        _ => return Err(refused("LATERAL is done in inner joins and LEFT JOIN only")),
    };
    if !is_outer {
        let (plan, ()) = attached(left, names, |rows| rows.lateral(query.clone(), None, false))?;
        return match condition {
            Some(condition) => LogicalPlanBuilder::from(plan).filter(condition)?.build(),
            None => Ok(plan),
        }
        .and_then(|plan| {
            LogicalPlanBuilder::from(plan).project(columns.into_iter().map(Expr::Column))?.build()
        });
    }
    if condition.as_ref().is_some_and(has_subquery) {
        return Err(refused("a subquery in ON of LEFT JOIN LATERAL is not done"));
    }
    let (plan, ()) = attached(left, names, |rows| rows.lateral(query.clone(), condition.clone(), true))?;
    LogicalPlanBuilder::from(plan).project(columns.into_iter().map(Expr::Column))?.build()
}

impl Attached<'_> {
    /// Joins each of the rows with the rows of a lateral query. With `outer`, keeps rows for which the query has none,
    /// filled with NULLs. `condition` refers to columns of both.
    pub(super) fn lateral(&mut self, query: LogicalPlan, condition: Option<Expr>, outer: bool) -> Result<()> {
        let fields = query.schema().columns();
        let join_type = if outer { JoinType::Left } else { JoinType::Inner };
        let mut all: Vec<Expr> = self.plan.schema().columns().into_iter().map(Expr::Column).collect();
        if let Some(Flat { plan, conditions, columns, .. }) = flat(query.clone())? {
            let renamed = self.renamed(plan)?;
            let mut joined = Vec::new();
            for part in conditions {
                joined.push(renamed.in_join(part)?);
            }
            let mut values = HashMap::new();
            for field in &fields {
                let value = columns[field].clone();
                values.insert(field.clone(), renamed.in_join(value)?);
            }
            if let Some(condition) = condition {
                joined.push(substituted(condition, &values)?);
            }
            let found = Expr::Column(Column::new(Some(renamed.table.as_str()), "found"));
            let on = joined.into_iter().reduce(Expr::and).unwrap_or_else(|| lit(true));
            let left = LogicalPlanBuilder::from(std::mem::take(&mut self.plan));
            let plan = left.join_on(renamed.plan, join_type, [on])?;
            for field in fields {
                let value = match &values[&field] {
                    value
                        if !outer
                            || matches!(value, Expr::Column(column) if column.relation.as_ref().is_some_and(|t| t.table() == renamed.table)) =>
                    {
                        value.clone()
                    }
                    value => {
                        let none = ScalarValue::try_from(value.get_type(plan.schema())?)?;
                        either(found.clone().is_not_null(), value.clone(), lit(none))
                    }
                };
                all.push(value.alias_qualified(field.relation, field.name));
            }
            self.plan = plan.project(all)?.build()?;
            return Ok(());
        }
        let shared = self.shared(&query)?;
        let domain = self.domain(&shared)?;
        let plan = push(query, &domain, self.names)?;
        let columns: Vec<Column> = domain.columns.iter().chain(&fields).cloned().collect();
        let renamed = self.renamed_columns(plan, &columns)?;
        let on = domain.outer.iter().zip(&domain.columns);
        let on = on.map(|(outer, own)| (Expr::Column(outer.clone()), renamed.columns[own].clone())).collect();
        let condition = condition.map(|condition| substituted(condition, &renamed.columns)).transpose()?;
        let left = std::mem::take(&mut self.plan);
        let joined = join_null_safe(left, renamed.plan, join_type, on, condition)?;
        all.extend(
            fields
                .into_iter()
                .map(|field| renamed.columns[&field].clone().alias_qualified(field.relation, field.name)),
        );
        self.plan = LogicalPlanBuilder::from(joined).project(all)?.build()?;
        Ok(())
    }
}
