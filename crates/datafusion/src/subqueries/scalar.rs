//! Scalar subqueries that return one row of aggregates for each outer row: outer rows get numbers, are joined
//! with the rows that belong to them, and grouped by number (a general form of Kim's and Dayal's unnesting:
//! Neumann and Kemper, "Unnesting Arbitrary Queries", 2015, which joins distinct values instead of rows).
//!
//! The outer plan runs once, as it would without the subquery, so that it need not return the same rows
//! twice.

use super::{input_of, outer_columns};
use crate::error;
use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::common::{Column, JoinType};
use datafusion::error::Result;
use datafusion::functions_aggregate::expr_fn::first_value;
use datafusion::functions_window::expr_fn::row_number;
use datafusion::logical_expr::expr::AggregateFunction;
use datafusion::logical_expr::expr_rewriter::strip_outer_reference;
use datafusion::logical_expr::logical_plan::{Aggregate, Subquery};
use datafusion::logical_expr::utils::{conjunction, split_conjunction_owned};
use datafusion::logical_expr::{BinaryExpr, Case, Expr, LogicalPlan, LogicalPlanBuilder, Operator, lit};
use farpool_model::Error;
use std::collections::HashMap;

/// Returns the value of `subquery` for each row of `input`, and replaces `input` by a join that has it;
/// `None` where DataFusion can plan it, or where the query has another form. `takes_equality` says that
/// DataFusion cannot plan it even where it refers to outer columns by equality only.
pub(super) fn value(
    input: &mut LogicalPlan,
    subquery: &Subquery,
    takes_equality: bool,
    number: usize,
) -> Result<Option<Expr>> {
    if subquery.outer_ref_columns.is_empty() {
        return Ok(None);
    }
    let Some((value, aggregate)) = aggregated(LogicalPlan::clone(&subquery.subquery), number)? else {
        return Ok(None);
    };
    let Some(Rows { plan, shared, columns, is_direct }) = rows(input_of(aggregate.input))? else {
        return Ok(None);
    };
    let in_rows = |expr: Expr| substituted(expr, &columns);
    let functions = aggregate.aggr_expr.into_iter().map(in_rows).collect::<Result<Vec<_>>>()?;
    let all = || shared.iter().chain(&functions).chain([&value]);
    let is_known = |column: Column| input.schema().has_column(&column);
    let has_plan = !takes_equality
        && is_direct
        && shared.iter().all(is_plain_equality)
        && !functions.iter().chain([&value]).any(Expr::contains_outer);
    if has_plan || !all().flat_map(outer_columns).all(is_known) || all().any(has_any_subquery) {
        return Ok(None);
    }
    functions.iter().try_for_each(is_of_this_query)?;
    // The rows get a table name that no other table has.
    let table = format!("__rows_{number}");
    let own = plan.schema().columns();
    let place = |column: &Column| own.iter().position(|known| known == column);
    let in_join = |expr: Expr| {
        let named = expr.transform_up(|expr| match &expr {
            Expr::Column(column) => match place(column) {
                Some(place) => Ok(Transformed::yes(column_of(&table, place))),
                None => Ok(Transformed::no(expr)),
            },
            _ => Ok(Transformed::no(expr)),
        });
        named.map(|expr| strip_outer_reference(expr.data))
    };
    let named = own.iter().enumerate().map(|(i, column)| Expr::Column(column.clone()).alias(name_of(i)));
    let matching = LogicalPlanBuilder::from(plan)
        .project(named.chain([lit(true).alias(FOUND)]))?
        .alias(table.as_str())?
        .build()?;
    let conditions = match shared.is_empty() {
        true => vec![lit(true)],
        false => shared.into_iter().map(in_join).collect::<Result<_>>()?,
    };
    let is_found = Expr::Column(Column::new(Some(table.as_str()), FOUND));
    let functions = functions
        .into_iter()
        .enumerate()
        .map(|(i, function)| Ok(of_rows_where(&is_found, in_join(function)?)?.alias(value_name(number, i))));
    let functions = functions.collect::<Result<Vec<_>>>()?;
    let row = format!("__row_{number}");
    let (numbered, carried) = with_numbers(std::mem::take(input), &row)?;
    *input = numbered
        .join_on(matching, JoinType::Left, conditions)?
        .aggregate([Expr::Column(Column::from_name(row))], functions.into_iter().chain(carried))?
        .build()?;
    Ok(Some(strip_outer_reference(value)))
}

/// Refuses an aggregate that refers to columns of the outer query only: by the standard it belongs to the
/// outer query and would group its rows (SQL:2016, 6.9; so do PostgreSQL and DuckDB).
fn is_of_this_query(function: &Expr) -> Result<()> {
    let is_of_other = function.exists(|expr| {
        let Expr::AggregateFunction(AggregateFunction { params, .. }) = expr else { return Ok(false) };
        let keys = params.order_by.iter().map(|key| &key.expr);
        let parts: Vec<&Expr> = params.args.iter().chain(params.filter.as_deref()).chain(keys).collect();
        Ok(parts.iter().any(|part| part.contains_outer()) && !parts.iter().any(|part| part.any_column_refs()))
    })?;
    match is_of_other {
        true => {
            let what = "an aggregate in a subquery names columns of the query around it alone, so that it belongs to that query";
            Err(error::wrap(
                Error::invalid(what).advise("aggregate there, in a query in FROM, and name the result"),
            ))
        }
        false => Ok(()),
    }
}

/// Adds a column with this name that numbers the rows, and returns their columns as aggregates of the rows
/// with the same number, which all have the same values. As group keys they could change, for 0.0 and -0.0
/// are one key.
fn with_numbers(rows: LogicalPlan, name: &str) -> Result<(LogicalPlanBuilder, Vec<Expr>)> {
    let columns = rows.schema().columns();
    let carried = columns.iter().map(|column| {
        let value = first_value(Expr::Column(column.clone()), Vec::new());
        value.alias_qualified(column.relation.clone(), column.name.as_str())
    });
    let carried = carried.collect();
    let numbered = LogicalPlanBuilder::from(rows).window([row_number()])?;
    let number = numbered.schema().columns().pop().map(|column| Expr::Column(column).alias(name));
    let numbered = numbered.project(columns.into_iter().map(Expr::Column).chain(number))?;
    Ok((numbered, carried))
}

/// Makes the aggregate ignore the row of NULLs that an outer row without a match gets. Arguments are not
/// evaluated on that row, because they could fail.
fn of_rows_where(is_found: &Expr, function: Expr) -> Result<Expr> {
    let guarded = |expr: Expr| match &expr {
        Expr::Column(_) => expr,
        _ if !expr.any_column_refs() => expr,
        _ => {
            let case = vec![(Box::new(is_found.clone()), Box::new(expr))];
            Expr::Case(Case::new(None, case, None))
        }
    };
    let function = function.transform_up(|expr| match expr {
        Expr::AggregateFunction(mut function) => {
            let params = &mut function.params;
            params.args = std::mem::take(&mut params.args).into_iter().map(guarded).collect();
            for key in &mut params.order_by {
                key.expr = guarded(std::mem::take(&mut key.expr));
            }
            let filter = params.filter.take().map(|filter| guarded(*filter));
            params.filter = Some(Box::new(match filter {
                Some(filter) => is_found.clone().and(filter),
                None => is_found.clone(),
            }));
            Ok(Transformed::yes(Expr::AggregateFunction(function)))
        }
        other => Ok(Transformed::no(other)),
    });
    Ok(function?.data.unalias())
}

/// Name of the column that tells whether an outer row has a match.
const FOUND: &str = "found";

fn name_of(place: usize) -> String {
    format!("c{place}")
}

fn column_of(table: &str, place: usize) -> Expr {
    Expr::Column(Column::new(Some(table), name_of(place)))
}

fn value_name(number: usize, place: usize) -> String {
    format!("__value_{number}_{place}")
}

/// Returns the value of the query's one row as an expression over its aggregates ([`value_name`]), and these.
/// `None` if the query may have more than one row, or has another form.
fn aggregated(plan: LogicalPlan, number: usize) -> Result<Option<(Expr, Aggregate)>> {
    let found = above(plan, number)?;
    Ok(found.and_then(|(values, aggregate)| match <[Expr; 1]>::try_from(values) {
        Ok([value]) => Some((value, aggregate)),
        Err(_) => None,
    }))
}

fn above(plan: LogicalPlan, number: usize) -> Result<Option<(Vec<Expr>, Aggregate)>> {
    Ok(match plan {
        LogicalPlan::Aggregate(aggregate) if aggregate.group_expr.is_empty() => {
            let places = 0..aggregate.aggr_expr.len();
            let column = |place| Expr::Column(Column::from_name(value_name(number, place)));
            Some((places.map(column).collect(), aggregate))
        }
        LogicalPlan::Projection(projection) => {
            let names = projection.input.schema().columns();
            let Some((values, aggregate)) = above(input_of(projection.input), number)? else {
                return Ok(None);
            };
            let values: HashMap<Column, Expr> = names.into_iter().zip(values).collect();
            let made = projection.expr.into_iter().map(|expr| substituted(expr, &values));
            Some((made.collect::<Result<_>>()?, aggregate))
        }
        // The filter leaves one row or none.
        LogicalPlan::Filter(filter) => {
            let names = filter.input.schema().columns();
            let Some((values, aggregate)) = above(input_of(filter.input), number)? else { return Ok(None) };
            let known: HashMap<Column, Expr> = names.into_iter().zip(values.iter().cloned()).collect();
            let condition = substituted(filter.predicate, &known)?;
            let kept = |value: Expr| {
                let case = vec![(Box::new(condition.clone()), Box::new(value))];
                Expr::Case(Case::new(None, case, None))
            };
            Some((values.into_iter().map(kept).collect(), aggregate))
        }
        LogicalPlan::SubqueryAlias(alias) => above(input_of(alias.input), number)?,
        LogicalPlan::Sort(sort) if sort.fetch.is_none() => above(input_of(sort.input), number)?,
        _ => None,
    })
}

/// The rows that a query aggregates.
struct Rows {
    /// All rows, whichever outer row they belong to.
    plan: LogicalPlan,
    /// Conditions that decide which outer row they belong to.
    shared: Vec<Expr>,
    /// The columns of the rows in the query above, as expressions over columns of `plan`.
    columns: HashMap<Column, Expr>,
    /// Whether the columns in the query above are the columns of `plan`.
    is_direct: bool,
}

/// Returns the rows of a plan; `None` if it refers to outer columns elsewhere than in its conditions and
/// projections.
fn rows(plan: LogicalPlan) -> Result<Option<Rows>> {
    let names = plan.schema().columns();
    let renamed = |rows: Rows, below: Vec<Column>| -> Result<Rows> {
        let columns = names.iter().cloned().zip(below.into_iter().map(Expr::Column));
        let columns = columns.map(|(name, column)| Ok((name, substituted(column, &rows.columns)?)));
        Ok(Rows { columns: columns.collect::<Result<_>>()?, is_direct: false, ..rows })
    };
    Ok(match plan {
        plan if plan.all_out_ref_exprs().is_empty() => {
            let columns = names.into_iter().map(|column| (column.clone(), Expr::Column(column)));
            Some(Rows { columns: columns.collect(), shared: Vec::new(), plan, is_direct: true })
        }
        LogicalPlan::Filter(filter) => {
            let Some(Rows { plan, mut shared, columns, is_direct }) = rows(input_of(filter.input))? else {
                return Ok(None);
            };
            let parts = split_conjunction_owned(filter.predicate).into_iter();
            let parts = parts.map(|part| substituted(part, &columns)).collect::<Result<Vec<_>>>()?;
            // Subqueries refer to columns by their names at this node.
            if parts.iter().any(|part| has_any_subquery(part) && (!is_direct || part.contains_outer())) {
                return Ok(None);
            }
            let (theirs, own): (Vec<Expr>, Vec<Expr>) = parts.into_iter().partition(Expr::contains_outer);
            shared.extend(theirs);
            let plan = match conjunction(own) {
                Some(own) => LogicalPlanBuilder::from(plan).filter(own)?.build()?,
                None => plan,
            };
            Some(Rows { plan, shared, columns, is_direct })
        }
        LogicalPlan::Projection(projection) => {
            let Some(below) = rows(input_of(projection.input))? else { return Ok(None) };
            let made = projection.expr.into_iter().map(|expr| substituted(expr, &below.columns));
            let columns = names.into_iter().zip(made.collect::<Result<Vec<_>>>()?).collect();
            Some(Rows { columns, is_direct: false, ..below })
        }
        LogicalPlan::SubqueryAlias(alias) => {
            let below = alias.input.schema().columns();
            rows(input_of(alias.input))?.map(|rows| renamed(rows, below)).transpose()?
        }
        LogicalPlan::Sort(sort) if sort.fetch.is_none() => rows(input_of(sort.input))?,
        _ => None,
    })
}

/// Removes the alias from the expression and substitutes its columns.
fn substituted(expr: Expr, columns: &HashMap<Column, Expr>) -> Result<Expr> {
    let made = expr.unalias().transform_up(|expr| match &expr {
        Expr::Column(column) => Ok(match columns.get(column) {
            Some(known) => Transformed::yes(known.clone()),
            None => Transformed::no(expr),
        }),
        _ => Ok(Transformed::no(expr)),
    });
    made.map(|made| made.data)
}

/// Whether a condition is an equality of a column with an expression of the outer query, which DataFusion
/// turns into a join itself.
fn is_plain_equality(condition: &Expr) -> bool {
    let Expr::BinaryExpr(BinaryExpr { left, op: Operator::Eq, right }) = condition else { return false };
    let is_column = |expr: &Expr| match expr {
        Expr::Column(_) => true,
        Expr::Cast(cast) => matches!(*cast.expr, Expr::Column(_)),
        _ => false,
    };
    (is_column(left) && !right.any_column_refs()) || (is_column(right) && !left.any_column_refs())
}

fn has_any_subquery(expr: &Expr) -> bool {
    let is_one = |expr: &Expr| {
        Ok(matches!(
            expr,
            Expr::Exists(_) | Expr::ScalarSubquery(_) | Expr::InSubquery(_) | Expr::SetComparison(_)
        ))
    };
    expr.exists(is_one).unwrap_or(true)
}
