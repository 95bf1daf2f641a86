//! Attaches subqueries to the rows of an outer query by joins: a join adds a column for each subquery (a mark for
//! EXISTS, a value, counts for IN), or keeps only rows with a match.
//!
//! There are three ways. A subquery of joins, filters and projections is joined by its own conditions
//! ([`super::flat`]). An aggregate that is compared with the outer row by equality is grouped by the compared columns.
//! Any other subquery is evaluated for the domain (all distinct values) of the outer columns ([`super::push`]), and
//! joined by these columns.

use super::domain::{Domain, is_repeatable, join_null_safe};
use super::flat::{Flat, flat};
use super::push::push;
use super::references::free_columns;
use super::{Names, once, refused};
use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::common::{Column, DFSchema, ExprSchema, JoinType, ScalarValue};
use datafusion::error::Result;
use datafusion::functions_aggregate::expr_fn::count;
use datafusion::logical_expr::expr_rewriter::strip_outer_reference;
use datafusion::logical_expr::logical_plan::Aggregate;
use datafusion::logical_expr::{Case, Expr, ExprSchemable, LogicalPlan, LogicalPlanBuilder, lit};
use std::collections::HashMap;
use std::sync::Arc;

/// The rows of an outer query, to which its subqueries are attached.
pub(super) struct Attached<'a> {
    /// The rows, with a column for each subquery attached so far.
    pub plan: LogicalPlan,
    /// The rows without the columns of subqueries; domains are computed from them.
    rows: LogicalPlan,
    pub names: &'a Names,
    /// Whether a domain was computed from rows that may be different ones when they are read again (for instance
    /// because of `random()`). The caller then starts again with materialized rows.
    pub is_torn: bool,
}

/// A subquery whose columns have been qualified with a new table name.
pub(super) struct Renamed {
    pub plan: LogicalPlan,
    pub columns: HashMap<Column, Expr>,
    pub table: String,
}

impl<'a> Attached<'a> {
    pub(super) fn to(plan: LogicalPlan, names: &'a Names) -> Self {
        Attached { rows: plan.clone(), plan, names, is_torn: false }
    }

    /// Filters the rows by a condition.
    pub(super) fn filter(&mut self, condition: Expr) -> Result<()> {
        let plan = std::mem::take(&mut self.plan);
        self.plan = LogicalPlanBuilder::from(plan).filter(condition)?.build()?;
        Ok(())
    }

    /// Returns those columns of outer queries to which the subquery refers and that are columns of these rows.
    pub(super) fn shared(&self, subquery: &LogicalPlan) -> Result<Vec<Column>> {
        let mut columns = free_columns(subquery)?;
        columns.retain(|column| self.rows.schema().has_column(column));
        Ok(columns)
    }

    /// Joins the rows with `subquery` by a semi, an anti or a mark join. A row has a match if the subquery has a row
    /// whose first columns equal `compared`; with no `compared`, if it has any row. Returns the mark: whether the row
    /// has a match.
    pub(super) fn matched(
        &mut self,
        subquery: LogicalPlan,
        compared: &[Expr],
        join_type: JoinType,
    ) -> Result<Expr> {
        if compared.iter().any(is_null) {
            return self.without_match(join_type);
        }
        let fields: Vec<Column> = subquery.schema().columns().into_iter().take(compared.len()).collect();
        if let Some(Flat { plan, mut conditions, columns, .. }) = flat(subquery.clone())? {
            for (value, field) in compared.iter().zip(&fields) {
                conditions.push(self.as_outer(value)?.eq(columns[field].clone()));
            }
            return self.joined_on(plan, conditions, join_type);
        }
        let shared = self.shared(&subquery)?;
        let domain = self.domain(&shared)?;
        let plan = push(subquery, &domain, self.names)?;
        let all = domain.columns.iter().cloned().chain(fields).collect::<Vec<_>>();
        let values: Vec<Expr> =
            shared.into_iter().map(Expr::Column).chain(compared.iter().cloned()).collect();
        self.null_safe(plan, &all, &values, compared.len(), join_type)
    }

    /// Applies a semi, an anti or a mark join for which no row has a match; returns the mark.
    fn without_match(&mut self, join_type: JoinType) -> Result<Expr> {
        if join_type == JoinType::LeftSemi {
            self.filter(lit(false))?;
        }
        Ok(lit(false))
    }

    /// Converts the columns of an expression over the outer rows to outer references, as in a subquery.
    fn as_outer(&self, expr: &Expr) -> Result<Expr> {
        let schema = self.plan.schema();
        let made = expr.clone().transform_up(|expr| match expr {
            Expr::Column(column) => {
                let field = Arc::clone(schema.field_from_column(&column)?);
                Ok(Transformed::yes(Expr::OuterReferenceColumn(field, column)))
            }
            other => Ok(Transformed::no(other)),
        })?;
        Ok(made.data)
    }

    /// Joins the rows with `plan`. The conditions are over columns of `plan` and outer references to the rows. Returns
    /// the mark.
    fn joined_on(&mut self, plan: LogicalPlan, conditions: Vec<Expr>, join_type: JoinType) -> Result<Expr> {
        let renamed = self.renamed(plan)?;
        let conditions =
            conditions.into_iter().map(|condition| renamed.in_join(condition)).collect::<Result<Vec<_>>>()?;
        let schema = self.plan.schema().join(renamed.plan.schema())?;
        let conditions = conditions.into_iter().map(|condition| known(condition, &schema));
        let conditions = conditions.collect::<Result<Vec<_>>>()?;
        let condition = conditions.into_iter().reduce(Expr::and).unwrap_or_else(|| lit(true));
        let left = LogicalPlanBuilder::from(std::mem::take(&mut self.plan));
        self.plan = left.join_on(renamed.plan, join_type, [condition])?.build()?;
        Ok(Expr::Column(Column::new(Some(renamed.table), "mark")))
    }

    /// Joins the rows with `plan`, where `columns` of `plan` equal `values`. NULL equals NULL, except in the last
    /// `strict` pairs. Returns the mark.
    fn null_safe(
        &mut self,
        plan: LogicalPlan,
        columns: &[Column],
        values: &[Expr],
        strict: usize,
        join_type: JoinType,
    ) -> Result<Expr> {
        let renamed = self.renamed_columns(plan, columns)?;
        let right = |column: &Column| renamed.columns[column].clone();
        let on: Vec<(Expr, Expr)> = values.iter().cloned().zip(columns.iter().map(right)).collect();
        let strict = on[on.len() - strict..].iter().map(|(left, right)| left.clone().eq(right.clone()));
        let filter = strict.reduce(Expr::and);
        let left = std::mem::take(&mut self.plan);
        self.plan = join_null_safe(left, renamed.plan, join_type, on, filter)?;
        Ok(Expr::Column(Column::new(Some(renamed.table), "mark")))
    }

    pub(super) fn domain(&mut self, shared: &[Column]) -> Result<Domain> {
        let domain = Domain::of(&self.rows, shared, self.names)?;
        self.is_torn |= !is_repeatable(&domain.plan)?;
        Ok(domain)
    }

    /// Attaches a column for `compared IN (subquery)`: whether the subquery's first column contains the value. It is
    /// NULL if that is not known because of NULLs.
    pub(super) fn contained(&mut self, subquery: LogicalPlan, compared: &Expr) -> Result<Expr> {
        let subquery = self.steady(subquery)?;
        let field = subquery.schema().columns().swap_remove(0);
        let is_known = !subquery.schema().field(0).is_nullable() && !compared.nullable(self.plan.schema())?;
        if is_known {
            return self.matched(subquery, std::slice::from_ref(compared), JoinType::LeftMark);
        }
        let functions = || vec![count(lit(1)), count(Expr::Column(field.clone()))];
        let shared = self.shared(&subquery)?;
        let (mark, counts) = if shared.is_empty() || is_repeatable(&subquery)? {
            let counted = Aggregate::try_new(Arc::new(subquery.clone()), Vec::new(), functions())?;
            let mark = self.matched(subquery, std::slice::from_ref(compared), JoinType::LeftMark)?;
            (mark, self.aggregates(LogicalPlan::Aggregate(counted))?)
        } else {
            let domain = self.domain(&shared)?;
            let plan = once::shared(push(subquery, &domain, self.names)?);
            let all: Vec<Column> = domain.columns.iter().chain([&field]).cloned().collect();
            let outer = shared.iter().cloned().map(Expr::Column);
            let values: Vec<Expr> = outer.chain([compared.clone()]).collect();
            let counted = Aggregate::try_new(Arc::new(plan.clone()), domain.exprs(), functions())?;
            let mark = self.null_safe(plan, &all, &values, 1, JoinType::LeftMark)?;
            let columns = counted.schema.columns();
            (mark, self.by_domain(LogicalPlan::Aggregate(counted), &domain, &columns[shared.len()..])?)
        };
        let [rows, known] = <[Expr; 2]>::try_from(counts).map_err(|_| refused("this IN is not done"))?;
        let none = rows.clone().is_null().or(rows.clone().eq(lit(0_i64)));
        let open = compared.clone().is_null().or(rows.gt(known));
        Ok(Expr::Case(Case::new(
            None,
            vec![
                (Box::new(mark), Box::new(lit(true))),
                (Box::new(none), Box::new(lit(false))),
                (Box::new(open), Box::new(lit(ScalarValue::Boolean(None)))),
            ],
            Some(Box::new(lit(false))),
        )))
    }

    /// Attaches the columns `wanted` of a plan that was evaluated for a domain: joins it with the rows by the columns
    /// of the domain.
    pub(super) fn by_domain(
        &mut self,
        plan: LogicalPlan,
        domain: &Domain,
        wanted: &[Column],
    ) -> Result<Vec<Expr>> {
        let columns: Vec<Column> = domain.columns.iter().chain(wanted).cloned().collect();
        let renamed = self.renamed_columns(plan, &columns)?;
        let on = domain.outer.iter().zip(&domain.columns);
        let on = on.map(|(outer, own)| (Expr::Column(outer.clone()), renamed.columns[own].clone())).collect();
        let left = std::mem::take(&mut self.plan);
        self.plan = join_null_safe(left, renamed.plan, JoinType::Left, on, None)?;
        Ok(wanted.iter().map(|column| renamed.columns[column].clone()).collect())
    }

    /// Returns `plan`; materialized, if it may return different rows the next time that it is read.
    pub(super) fn steady(&self, plan: LogicalPlan) -> Result<LogicalPlan> {
        match self.shared(&plan)?.is_empty() && !is_repeatable(&plan)? {
            true => Ok(once::shared(plan)),
            false => Ok(plan),
        }
    }

    pub(super) fn renamed(&self, plan: LogicalPlan) -> Result<Renamed> {
        let columns = plan.schema().columns();
        self.renamed_columns(plan, &columns)
    }

    /// Projects columns to new names in a table name of their own, and adds a constant column `found`, which is NULL in
    /// unmatched rows of an outer join.
    pub(super) fn renamed_columns(&self, plan: LogicalPlan, columns: &[Column]) -> Result<Renamed> {
        let table = self.names.table();
        let mut values = Vec::new();
        let mut names = HashMap::new();
        for (place, column) in columns.iter().enumerate() {
            let name = format!("c{place}");
            values.push(Expr::Column(column.clone()).alias_qualified(Some(table.as_str()), name.as_str()));
            names.insert(column.clone(), Expr::Column(Column::new(Some(table.as_str()), name)));
        }
        values.push(lit(true).alias_qualified(Some(table.as_str()), "found"));
        let plan = LogicalPlanBuilder::from(plan).project(values)?.build()?;
        Ok(Renamed { plan, columns: names, table })
    }
}

impl Renamed {
    /// Converts an expression over the subquery's rows and outer references to an expression over the joined rows.
    pub(super) fn in_join(&self, expr: Expr) -> Result<Expr> {
        let made = expr.transform_up(|expr| match &expr {
            Expr::Column(column) => match self.columns.get(column) {
                Some(new) => Ok(Transformed::yes(new.clone())),
                None => Ok(Transformed::no(expr)),
            },
            _ => Ok(Transformed::no(expr)),
        })?;
        Ok(strip_outer_reference(made.data))
    }
}

/// Returns whether an expression is the constant NULL. DataFusion loses the condition of a mark join if it is one.
fn is_null(expr: &Expr) -> bool {
    match expr {
        Expr::Literal(value, _) => value.is_null(),
        Expr::Cast(cast) => is_null(&cast.expr),
        Expr::TryCast(cast) => is_null(&cast.expr),
        Expr::Alias(alias) => is_null(&alias.expr),
        _ => false,
    }
}

/// Simplifies `(x = y) IS NOT FALSE` to `x = y` if neither side can be NULL.
fn known(condition: Expr, schema: &DFSchema) -> Result<Expr> {
    match condition {
        Expr::IsNotFalse(inner) if !inner.nullable(schema)? => Ok(*inner),
        other => Ok(other),
    }
}
