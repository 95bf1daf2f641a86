//! Attaches subqueries that are used as scalar values. If an aggregate without GROUP BY is compared with the outer row
//! by equality, it is grouped by the compared columns; so is a look-up of a value by equality. Other subqueries are
//! evaluated for the domain (the distinct values) of their outer columns ([`super::domain`]).

use super::attach::Attached;
use super::flat::{Flat, flat, substituted};
use super::one_row::one_of;
use super::push::{either, of_no_rows, push};
use super::references::{free_columns_of, has_subquery};
use super::{Names, refused};
use datafusion::common::tree_node::TreeNode;
use datafusion::common::{Column, JoinType, NullEquality, ScalarValue};
use datafusion::error::Result;
use datafusion::functions_aggregate::expr_fn::{count, first_value};
use datafusion::logical_expr::expr::AggregateFunction;
use datafusion::logical_expr::expr_rewriter::strip_outer_reference;
use datafusion::logical_expr::logical_plan::{Aggregate, FetchType, Join, JoinConstraint};
use datafusion::logical_expr::{BinaryExpr, Expr, LogicalPlan, LogicalPlanBuilder, Operator, lit};
use std::collections::HashMap;
use std::sync::Arc;

impl Attached<'_> {
    /// Attaches the value of a scalar subquery; the value is NULL if the subquery has no row. Returns the value as an
    /// expression over the rows.
    pub(super) fn value(&mut self, subquery: LogicalPlan) -> Result<Expr> {
        if let Some((mut values, aggregate)) = above_aggregate(subquery.clone(), self.names)?
            && let Some(value) = values.0.pop()
            && values.0.is_empty()
        {
            let made = self.aggregates(LogicalPlan::Aggregate(aggregate))?;
            let columns = values.1.into_iter().zip(made).collect();
            return Ok(strip_outer_reference(substituted(value, &columns)?));
        }
        let field = subquery.schema().columns().swap_remove(0);
        if let Some(value) = self.looked_up(&subquery, &field)? {
            return Ok(value);
        }
        let shared = self.shared(&subquery)?;
        let is_one = has_one_row(&subquery)?;
        let domain = self.domain(&shared)?;
        let mut plan = push(subquery, &domain, self.names)?;
        let table = self.names.table();
        let rows = Column::new(Some(table.as_str()), "rows");
        let value = Column::new(Some(table.as_str()), "value");
        if !is_one {
            let counted = [
                count(lit(1)).alias_qualified(Some(table.as_str()), "rows"),
                first_value(Expr::Column(field), Vec::new()).alias_qualified(Some(table.as_str()), "value"),
            ];
            plan =
                LogicalPlan::Aggregate(Aggregate::try_new(Arc::new(plan), domain.exprs(), counted.to_vec())?);
        }
        let wanted = match is_one {
            true => vec![
                plan.schema().columns().into_iter().find(|c| !domain.columns.contains(c)).unwrap_or(value),
            ],
            false => vec![rows, value],
        };
        let mut wanted = self.by_domain(plan, &domain, &wanted)?.into_iter();
        Ok(match (wanted.next(), wanted.next()) {
            (Some(rows), Some(value)) => one_of(rows, value),
            (Some(value), None) => value,
            _ => lit(ScalarValue::Null),
        })
    }

    /// If the subquery looks a value up by equality with outer columns, attaches the value; returns `None` for other
    /// subqueries.
    fn looked_up(&mut self, subquery: &LogicalPlan, field: &Column) -> Result<Option<Expr>> {
        let Some(Flat { plan, conditions, columns, .. }) = flat(subquery.clone())? else { return Ok(None) };
        let value = columns[field].clone();
        let Some(keys) = keys(&conditions, &plan)? else { return Ok(None) };
        if keys.is_empty() || value.contains_outer() || has_subquery(&value) {
            return Ok(None);
        }
        let functions = [count(lit(1)), first_value(value, Vec::new())];
        let made = self.grouped(plan, keys, functions.to_vec())?;
        match <[Expr; 3]>::try_from(made) {
            Ok([_, rows, value]) => Ok(Some(one_of(rows, value))),
            Err(_) => Ok(None),
        }
    }

    /// Groups the rows of `plan` by the first expressions of `keys`, computes `functions` for each group, and joins the
    /// groups with the outer rows by equality with the second expressions. Returns a column that is NULL for rows
    /// without a group, then the values of the functions.
    fn grouped(
        &mut self,
        plan: LogicalPlan,
        keys: Vec<(Expr, Expr)>,
        functions: Vec<Expr>,
    ) -> Result<Vec<Expr>> {
        let table = self.names.table();
        let (own, outer): (Vec<Expr>, Vec<Expr>) = keys.into_iter().unzip();
        let count = own.len();
        let made = Aggregate::try_new(Arc::new(plan), own, functions)?;
        let columns = made.schema.columns();
        let named = columns.into_iter().enumerate().map(|(place, column)| {
            Expr::Column(column).alias_qualified(Some(table.as_str()), format!("c{place}"))
        });
        let found = lit(true).alias_qualified(Some(table.as_str()), "found");
        let all: Vec<Expr> = named.chain([found]).collect();
        let plan = LogicalPlanBuilder::from(LogicalPlan::Aggregate(made)).project(all.clone())?.build()?;
        let at = |place: usize| Expr::Column(Column::new(Some(table.as_str()), format!("c{place}")));
        let on = outer.into_iter().map(strip_outer_reference).zip((0..count).map(at)).collect();
        let (left, right) = (Arc::new(std::mem::take(&mut self.plan)), Arc::new(plan));
        let equality = NullEquality::NullEqualsNothing;
        let join = Join::try_new(left, right, on, None, JoinType::Left, JoinConstraint::On, equality, false)?;
        self.plan = LogicalPlan::Join(join);
        let found = Expr::Column(Column::new(Some(table.as_str()), "found"));
        Ok([found].into_iter().chain((count..all.len() - 1).map(at)).collect())
    }

    /// Attaches the values of an aggregate without GROUP BY; returns them as expressions over the rows.
    pub(super) fn aggregates(&mut self, plan: LogicalPlan) -> Result<Vec<Expr>> {
        let LogicalPlan::Aggregate(aggregate) = &plan else {
            return Err(refused("this subquery is not an aggregate"));
        };
        is_of_this_query(&aggregate.aggr_expr)?;
        let empty = |functions: &[Expr], rows: &LogicalPlan| {
            functions.iter().map(|function| of_no_rows(function, rows)).collect::<Result<Vec<_>>>()
        };
        if let Some(Flat { plan: rows, conditions, columns, .. }) =
            flat(LogicalPlan::clone(&aggregate.input))?
            && let Some(keys) = keys(&conditions, &rows)?
            && !keys.is_empty()
        {
            let functions = aggregate.aggr_expr.iter().cloned();
            let functions =
                functions.map(|function| substituted(function, &columns)).collect::<Result<Vec<_>>>()?;
            if !functions.iter().any(|function| function.contains_outer() || has_subquery(function)) {
                let empty = empty(&functions, &rows)?;
                let functions = functions.into_iter().enumerate();
                let functions = functions.map(|(place, function)| function.alias(format!("a{place}")));
                let mut made = self.grouped(rows, keys, functions.collect())?;
                let found = made.remove(0);
                let values = made.into_iter().zip(empty).map(|(value, empty)| match empty.is_null() {
                    true => value,
                    false => either(found.clone().is_not_null(), value, lit(empty)),
                });
                return Ok(values.collect());
            }
        }
        let shared = self.shared(&plan)?;
        let fields = plan.schema().columns();
        if shared.is_empty() {
            let renamed = self.renamed_columns(plan, &fields)?;
            let left = LogicalPlanBuilder::from(std::mem::take(&mut self.plan));
            self.plan = left.cross_join(renamed.plan)?.build()?;
            return Ok(fields.iter().map(|field| renamed.columns[field].clone()).collect());
        }
        let domain = self.domain(&shared)?;
        let plan = push(plan, &domain, self.names)?;
        self.by_domain(plan, &domain, &fields)
    }
}

/// Returns the conditions as pairs of expressions that must be equal: the first over rows of `plan`, the second over
/// outer references. Returns `None` if a condition has another form.
fn keys(conditions: &[Expr], plan: &LogicalPlan) -> Result<Option<Vec<(Expr, Expr)>>> {
    let mut keys: Vec<(Expr, Expr)> = Vec::new();
    for condition in conditions {
        let Expr::BinaryExpr(BinaryExpr { left, op: Operator::Eq, right }) = condition else {
            return Ok(None);
        };
        let is_own = |expr: &Expr| expr.any_column_refs() && !expr.contains_outer();
        let is_outer = |expr: &Expr| !expr.any_column_refs() && expr.contains_outer();
        let (own, outer) = match (is_own(left), is_outer(right), is_own(right), is_outer(left)) {
            (true, true, _, _) => (left, right),
            (_, _, true, true) => (right, left),
            _ => return Ok(None),
        };
        // Names of group keys leave out casts, so that two keys could get the same name.
        let is_named =
            |(known, _): &(Expr, Expr)| known.schema_name().to_string() == own.schema_name().to_string();
        if keys.iter().any(is_named) || has_subquery(own) || has_subquery(outer) {
            return Ok(None);
        }
        keys.push((Expr::clone(own), Expr::clone(outer)));
    }
    let local = plan.schema();
    let is_plain = |(own, _): &(Expr, Expr)| free_columns_of(own, &[local]).is_ok_and(|free| free.is_empty());
    Ok(keys.iter().all(is_plain).then_some(keys))
}

/// The columns of projections above an aggregate without GROUP BY, as expressions over the aggregate's columns; these
/// columns; and the aggregate.
type Above = ((Vec<Expr>, Vec<Column>), Aggregate);

fn above_aggregate(plan: LogicalPlan, names: &Names) -> Result<Option<Above>> {
    Ok(match plan {
        LogicalPlan::Aggregate(aggregate) if aggregate.group_expr.is_empty() => {
            let table = names.table();
            let columns: Vec<Column> = (0..aggregate.aggr_expr.len())
                .map(|place| Column::new(Some(table.as_str()), format!("a{place}")))
                .collect();
            Some(((columns.iter().cloned().map(Expr::Column).collect(), columns), aggregate))
        }
        LogicalPlan::Projection(projection) => {
            let fields = projection.input.schema().columns();
            let below = above_aggregate(Arc::unwrap_or_clone(projection.input), names)?;
            let Some(((values, columns), aggregate)) = below else { return Ok(None) };
            if projection.expr.iter().any(has_subquery) {
                return Ok(None);
            }
            let values: HashMap<Column, Expr> = fields.into_iter().zip(values).collect();
            let made = projection.expr.into_iter().map(|expr| substituted(expr, &values));
            Some(((made.collect::<Result<_>>()?, columns), aggregate))
        }
        LogicalPlan::SubqueryAlias(alias) => above_aggregate(Arc::unwrap_or_clone(alias.input), names)?,
        LogicalPlan::Subquery(subquery) => above_aggregate(Arc::unwrap_or_clone(subquery.subquery), names)?,
        LogicalPlan::Sort(sort) => above_aggregate(Arc::unwrap_or_clone(sort.input), names)?,
        _ => None,
    })
}

/// Returns whether the subquery has at most one row for each outer row.
fn has_one_row(plan: &LogicalPlan) -> Result<bool> {
    Ok(match plan {
        LogicalPlan::Aggregate(aggregate) => aggregate.group_expr.is_empty(),
        LogicalPlan::EmptyRelation(_) => true,
        LogicalPlan::Limit(limit) => match limit.get_fetch_type()? {
            FetchType::Literal(Some(fetch)) if fetch <= 1 => true,
            _ => has_one_row(&limit.input)?,
        },
        LogicalPlan::Projection(_)
        | LogicalPlan::Filter(_)
        | LogicalPlan::Sort(_)
        | LogicalPlan::Window(_)
        | LogicalPlan::Subquery(_)
        | LogicalPlan::SubqueryAlias(_)
        | LogicalPlan::Distinct(_) => plan
            .inputs()
            .into_iter()
            .map(has_one_row)
            .collect::<Result<Vec<_>>>()?
            .into_iter()
            .all(|is_one| is_one),
        _ => false,
    })
}

/// Refuses an aggregate that refers only to columns of the outer query. By the standard it belongs to the outer query
/// and would aggregate its rows (SQL:2016, 6.9; PostgreSQL and DuckDB agree), which is not supported.
fn is_of_this_query(functions: &[Expr]) -> Result<()> {
    let is_of_other = |function: &Expr| {
        function.exists(|expr| {
            let Expr::AggregateFunction(AggregateFunction { params, .. }) = expr else { return Ok(false) };
            let keys = params.order_by.iter().map(|key| &key.expr);
            let parts: Vec<&Expr> = params.args.iter().chain(params.filter.as_deref()).chain(keys).collect();
            Ok(parts.iter().any(|part| part.contains_outer())
                && !parts.iter().any(|part| part.any_column_refs()))
        })
    };
    for function in functions {
        if is_of_other(function)? {
            let what = "an aggregate in a subquery names columns of the query around it alone, so that it belongs to that query";
            return Err(super::advised(what, "aggregate there, in a query in FROM, and name the result"));
        }
    }
    Ok(())
}
