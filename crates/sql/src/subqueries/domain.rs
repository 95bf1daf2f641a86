//! The domain of a subquery: the distinct values of the outer columns that the subquery refers to. The subquery is
//! evaluated once for each of them.

use super::Names;
use super::references::Replacements;
use arrow_schema::DataType;
use datafusion::common::tree_node::{TreeNode, TreeNodeRecursion};
use datafusion::common::{Column, DFSchemaRef, JoinType, NullEquality};
use datafusion::error::Result;
use datafusion::logical_expr::logical_plan::{Distinct, Join, JoinConstraint};
use datafusion::logical_expr::{Expr, ExprSchemable, LogicalPlan, LogicalPlanBuilder, lit};
use std::sync::Arc;

/// The distinct values of outer columns, as a plan.
#[derive(Clone)]
pub(super) struct Domain {
    pub plan: LogicalPlan,
    /// The columns of `plan`.
    pub columns: Vec<Column>,
    /// For each of `columns`, the outer column that it has the values of.
    pub outer: Vec<Column>,
}

impl Domain {
    /// Creates the domain of the columns `outer` of `rows`.
    pub(super) fn of(rows: &LogicalPlan, outer: &[Column], names: &Names) -> Result<Domain> {
        if outer.is_empty() {
            let plan = LogicalPlanBuilder::empty(true).build()?;
            return Ok(Domain { plan, columns: Vec::new(), outer: Vec::new() });
        }
        let table = names.table();
        let (rows, sources) = narrowed(rows, outer.to_vec());
        let columns: Vec<Column> =
            (0..outer.len()).map(|place| Column::new(Some(table.as_str()), format!("d{place}"))).collect();
        let values = sources
            .into_iter()
            .zip(&columns)
            .map(|(source, column)| {
                Expr::Column(source).alias_qualified(column.relation.clone(), column.name.as_str())
            })
            .collect::<Vec<_>>();
        let plan = LogicalPlanBuilder::from(rows.clone()).project(values)?.distinct()?.build()?;
        Ok(Domain { plan, columns, outer: outer.to_vec() })
    }

    /// Returns which outer column is replaced by which column of the domain.
    pub(super) fn replacements(&self) -> Replacements {
        self.outer.iter().cloned().zip(self.columns.iter().cloned()).collect()
    }

    /// Returns the domain's columns as expressions.
    pub(super) fn exprs(&self) -> Vec<Expr> {
        self.columns.iter().cloned().map(Expr::Column).collect()
    }

    /// Gives the domain's columns in `plan` a new table name; returns the plan and the new columns.
    pub(super) fn renamed(&self, plan: LogicalPlan, names: &Names) -> Result<(LogicalPlan, Vec<Column>)> {
        let table = names.table();
        let mut new = Vec::new();
        let exprs: Vec<Expr> = plan
            .schema()
            .columns()
            .into_iter()
            .map(|column| match self.columns.contains(&column) {
                true => {
                    let renamed = Column::new(Some(table.as_str()), column.name.as_str());
                    new.push((column.clone(), renamed.clone()));
                    Expr::Column(column).alias_qualified(renamed.relation, renamed.name)
                }
                false => Expr::Column(column),
            })
            .collect();
        let plan = LogicalPlanBuilder::from(plan).project(exprs)?.build()?;
        let place = |wanted: &Column| new.iter().find(|(old, _)| old == wanted).map(|(_, new)| new.clone());
        Ok((plan, self.columns.iter().filter_map(place).collect()))
    }
}

/// Returns a plan below `rows` that has all values of `columns`, and these columns in it. Operators that only add other
/// columns or rows are skipped, together with the subqueries in them.
fn narrowed(rows: &LogicalPlan, columns: Vec<Column>) -> (&LogicalPlan, Vec<Column>) {
    let below = match rows {
        LogicalPlan::Projection(projection) => {
            let fields = projection.schema.columns();
            let source = |column: &Column| {
                let place = fields.iter().position(|field| field == column)?;
                match projection.expr[place].clone().unalias() {
                    Expr::Column(source) => Some(source),
                    _ => None,
                }
            };
            let sources: Option<Vec<Column>> = columns.iter().map(source).collect();
            sources.map(|sources| (&*projection.input, sources))
        }
        LogicalPlan::SubqueryAlias(alias) => {
            let (fields, inner) = (alias.schema.columns(), alias.input.schema().columns());
            let source = |column: &Column| {
                fields.iter().position(|field| field == column).map(|place| inner[place].clone())
            };
            let sources: Option<Vec<Column>> = columns.iter().map(source).collect();
            sources.map(|sources| (&*alias.input, sources))
        }
        LogicalPlan::Sort(sort) if sort.fetch.is_none() => Some((&*sort.input, columns.clone())),
        LogicalPlan::Join(join) if matches!(join.join_type, JoinType::Left | JoinType::LeftMark) => columns
            .iter()
            .all(|column| join.left.schema().has_column(column))
            .then(|| (&*join.left, columns.clone())),
        _ => None,
    };
    match below {
        Some((below, columns)) => narrowed(below, columns),
        None => (rows, columns),
    }
}

/// Joins two plans on pairs of equal expressions; NULL equals NULL.
pub(super) fn join_null_safe(
    left: LogicalPlan,
    right: LogicalPlan,
    join_type: JoinType,
    on: Vec<(Expr, Expr)>,
    filter: Option<Expr>,
) -> Result<LogicalPlan> {
    let on = on
        .into_iter()
        .map(|(one, other)| Ok((key(one, left.schema())?, key(other, right.schema())?)))
        .collect::<Result<_>>()?;
    let (left, right) = (Arc::new(left), Arc::new(right));
    let equality = NullEquality::NullEqualsNull;
    Join::try_new(left, right, on, filter, join_type, JoinConstraint::On, equality, false)
        .map(LogicalPlan::Join)
}

/// Replaces -0.0 by 0.0 if the expression is a float: the two are equal, but have different hashes.
fn key(expr: Expr, schema: &DFSchemaRef) -> Result<Expr> {
    Ok(match expr.get_type(schema)? {
        DataType::Float64 => expr + lit(0.0_f64),
        DataType::Float32 => expr + lit(0.0_f32),
        _ => expr,
    })
}

/// Returns whether a plan returns the same rows each time that it runs. It must have no LIMIT (which may choose other
/// rows among equal ones), no function that depends on the order of unordered rows, and no volatile function.
pub(super) fn is_repeatable(plan: &LogicalPlan) -> Result<bool> {
    let mut is_repeatable = true;
    plan.apply_with_subqueries(|plan| {
        let is_of_rows = !matches!(
            plan,
            LogicalPlan::Limit(_)
                | LogicalPlan::Window(_)
                | LogicalPlan::Extension(_)
                | LogicalPlan::RecursiveQuery(_)
                | LogicalPlan::Distinct(Distinct::On(_))
        ) && !matches!(plan, LogicalPlan::Sort(sort) if sort.fetch.is_some());
        let mut is_of_values = true;
        plan.apply_expressions(|expr| {
            is_of_values &= !expr.is_volatile() && !expr.exists(|expr| Ok(depends_on_order(expr)))?;
            Ok(TreeNodeRecursion::Continue)
        })?;
        is_repeatable &= is_of_rows && is_of_values;
        Ok(match is_repeatable {
            true => TreeNodeRecursion::Continue,
            false => TreeNodeRecursion::Stop,
        })
    })?;
    Ok(is_repeatable)
}

fn depends_on_order(expr: &Expr) -> bool {
    let Expr::AggregateFunction(function) = expr else { return false };
    !matches!(function.func.name(), "count" | "min" | "max" | "bool_and" | "bool_or")
}
