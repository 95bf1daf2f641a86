//! Rewrites subqueries to joins (unnesting, decorrelation) before DataFusion's own rules do, which are incorrect for
//! many forms. The method is a general form of Neumann and Kemper's unnesting (see [`push`]): a subquery is evaluated
//! once for its domain, the distinct values of the outer columns that it refers to.
//!
//! DataFusion 55.2 returns incorrect rows for NOT IN (apache/datafusion#25336, #25347, #25473, #25480), for EXISTS and
//! IN of aggregates (#24960) and grouping sets (#25519), and for OFFSET (#25283); LATERAL with HAVING is not supported
//! (#21198). `tests/upstream.rs` of `crates/datafusion` fails when one of them is fixed; with all of them fixed, these
//! rules are obsolete.
//!
//! DataFusion still plans subqueries without outer references: scalar values, EXISTS and IN as conditions, and NOT IN
//! of a column.
//!
//! Invariant: the new plan has the rows and columns of the old one, and no outer reference remains. Nodes are visited
//! from the top: pushing the domain of an outer query down (see [`domain`]) gives the queries within it references to
//! the domain's columns, so that each nesting level is one step.

mod attach;
mod domain;
mod exists;
mod flat;
mod joins;
mod once;
mod one_row;
mod push;
mod references;
mod sorted;
mod values;

pub use once::{OncePlanner, are_shared};

use crate::error;
use attach::Attached;
use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::common::{DataFusionError, JoinType, ScalarValue};
use datafusion::error::Result;
use datafusion::functions_aggregate::expr_fn::{count, max, min};
use datafusion::logical_expr::expr::{Exists, InSubquery, SetComparison, SetQuantifier};
use datafusion::logical_expr::expr_rewriter::NamePreserver;
use datafusion::logical_expr::logical_plan::{Aggregate, Filter};
use datafusion::logical_expr::utils::{conjunction, split_conjunction_owned};
use datafusion::logical_expr::{
    BinaryExpr, Case, Expr, LogicalPlan, LogicalPlanBuilder, Operator, lit, scalar_subquery,
};
use datafusion::optimizer::AnalyzerRule;
use exists::any_row;
use farpool_model::Error;
use references::{free_columns, has_subquery, subquery_of};
use std::cell::Cell;
use std::sync::Arc;

/// The analyzer rule that rewrites subqueries.
#[derive(Debug)]
pub struct UnnestSubqueries;

impl AnalyzerRule for UnnestSubqueries {
    fn name(&self) -> &'static str {
        "unnest_subqueries"
    }

    fn analyze(&self, plan: LogicalPlan, _: &ConfigOptions) -> Result<LogicalPlan> {
        let names = Names::default();
        plan.transform_down_with_subqueries(|plan| unnested(plan, &names)).map(|plan| plan.data)
    }
}

/// Generates table names that no statement uses.
#[derive(Default)]
struct Names {
    count: Cell<usize>,
}

impl Names {
    fn table(&self) -> String {
        self.count.set(self.count.get() + 1);
        format!("__subquery_{}", self.count.get())
    }
}

fn refused(what: &str) -> DataFusionError {
    advised(what, "join the tables, or compute it in a query in FROM")
}

fn advised(what: &str, advice: &str) -> DataFusionError {
    error::wrap(Error::invalid(what).advise(advice))
}

/// Returns the plan node with its own subqueries rewritten to joins below it.
fn unnested(plan: LogicalPlan, names: &Names) -> Result<Transformed<LogicalPlan>> {
    if let LogicalPlan::Join(join) = plan {
        return joins::joined(join, names);
    }
    if !plan.expressions().iter().any(has_subquery) {
        return Ok(Transformed::no(plan));
    }
    let plan = one_row::with_nulls(plan)?;
    match plan {
        LogicalPlan::Filter(filter) => filtered(filter, names),
        LogicalPlan::Projection(_) | LogicalPlan::Aggregate(_) | LogicalPlan::Window(_) => {
            computed(plan, names)
        }
        LogicalPlan::Sort(sort) => sorted::sorted(sort, names),
        other => Ok(Transformed::no(other)),
    }
}

/// Attaches subqueries to rows by `attach`. If that reads rows twice that may differ, starts again with materialized
/// rows.
fn attached<'a, T>(
    rows: LogicalPlan,
    names: &'a Names,
    attach: impl Fn(&mut Attached<'a>) -> Result<T>,
) -> Result<(LogicalPlan, T)> {
    let mut first = Attached::to(rows.clone(), names);
    let made = attach(&mut first)?;
    if !first.is_torn {
        return Ok((first.plan, made));
    }
    let mut kept = Attached::to(once::shared(rows), names);
    let made = attach(&mut kept)?;
    Ok((kept.plan, made))
}

/// Rewrites a filter. Conditions without subqueries are applied first, so that no subquery fails for a row that they
/// exclude. An EXISTS or an IN becomes a semi or anti join.
fn filtered(filter: Filter, names: &Names) -> Result<Transformed<LogicalPlan>> {
    let columns = filter.input.schema().columns();
    let (nested, plain): (Vec<Expr>, Vec<Expr>) = split_conjunction_owned(filter.predicate.clone())
        .into_iter()
        .flat_map(|part| split_conjunction_owned(as_condition(part)))
        .partition(has_subquery);
    let (left, ours): (Vec<Expr>, Vec<Expr>) = nested.into_iter().partition(is_left_to_engine);
    if ours.is_empty() {
        return Ok(Transformed::no(LogicalPlan::Filter(filter)));
    }
    let rows = Arc::unwrap_or_clone(filter.input);
    let rows = match conjunction(plain.into_iter().chain(left)) {
        Some(condition) => LogicalPlanBuilder::from(rows).filter(condition)?.build()?,
        None => rows,
    };
    let (plan, ()) = attached(rows, names, |rows| {
        let mut rest = Vec::new();
        for condition in &ours {
            if !kept_by(rows, condition)? {
                rest.push(condition.clone());
            }
        }
        for condition in rest {
            let condition = values(rows, condition)?;
            rows.filter(condition)?;
        }
        Ok(())
    })?;
    let plan = LogicalPlanBuilder::from(plan).project(columns.into_iter().map(Expr::Column))?.build()?;
    Ok(Transformed::yes(plan))
}

/// Simplifies a comparison of rows (`dialect/tuples.rs`) used as a condition, where NULL and false are equivalent.
fn as_condition(expr: Expr) -> Expr {
    let (case, is_negated) = match &expr {
        Expr::Case(case) => (case, false),
        Expr::Not(inner) => match &**inner {
            Expr::Case(case) => (case, true),
            _ => return expr,
        },
        _ => return expr,
    };
    let [(yes, is_true), (open, is_null)] = case.when_then_expr.as_slice() else { return expr };
    let is_literal = |expr: &Expr, wanted: Option<bool>| match expr {
        Expr::Literal(ScalarValue::Boolean(value), _) => *value == wanted,
        Expr::Literal(value, _) => wanted.is_none() && value.is_null(),
        Expr::Cast(cast) => {
            matches!(&*cast.expr, Expr::Literal(value, _) if wanted.is_none() && value.is_null())
        }
        _ => false,
    };
    let is_comparison = case.expr.is_none()
        && matches!((&**yes, &**open), (Expr::Exists(_), Expr::Exists(_)))
        && is_literal(is_true, Some(true))
        && is_literal(is_null, None)
        && case.else_expr.as_ref().is_some_and(|other| is_literal(other, Some(false)));
    match (is_comparison, is_negated) {
        (false, _) => expr,
        (true, false) => Expr::clone(yes),
        (true, true) => (!Expr::clone(yes)).and(!Expr::clone(open)),
    }
}

/// Applies a condition by a semi or an anti join. Returns false, without applying it, if its form does not allow that.
fn kept_by(rows: &mut Attached<'_>, condition: &Expr) -> Result<bool> {
    let (condition, is_negated) = match condition {
        Expr::Not(inner) => (&**inner, true),
        other => (other, false),
    };
    match condition {
        Expr::Exists(Exists { subquery, negated }) => {
            let keeps_matches = *negated == is_negated;
            let join_type = if keeps_matches { JoinType::LeftSemi } else { JoinType::LeftAnti };
            match any_row(LogicalPlan::clone(&subquery.subquery))? {
                Some(subquery) if !free_columns(&subquery)?.is_empty() => {
                    rows.matched(subquery, &[], join_type)?;
                }
                Some(subquery) => {
                    let some = has_rows(subquery)?;
                    rows.filter(if keeps_matches { some } else { !some })?;
                }
                None => rows.filter(lit(keeps_matches))?,
            }
            Ok(true)
        }
        Expr::InSubquery(InSubquery { expr, subquery, negated }) if *negated == is_negated => {
            if has_subquery(expr) {
                return Ok(false);
            }
            rows.matched(LogicalPlan::clone(&subquery.subquery), &[Expr::clone(expr)], JoinType::LeftSemi)?;
            Ok(true)
        }
        _ => Ok(false),
    }
}

/// Returns whether DataFusion plans a condition correctly: its subqueries have no outer references, and each is a
/// scalar value, an EXISTS, an IN, or a NOT IN of a column.
fn is_left_to_engine(condition: &Expr) -> bool {
    let is_closed = |subquery: &datafusion::logical_expr::Subquery| {
        free_columns(&subquery.subquery).is_ok_and(|columns| columns.is_empty())
    };
    match condition {
        Expr::Exists(exists) => is_closed(&exists.subquery),
        Expr::InSubquery(within) => {
            let is_column = matches!(&*within.expr, Expr::Column(_));
            is_closed(&within.subquery) && !has_subquery(&within.expr) && (is_column || !within.negated)
        }
        other => {
            let is_other = |expr: &Expr| match expr {
                Expr::ScalarSubquery(subquery) => Ok(!is_closed(subquery)),
                expr => Ok(subquery_of(expr).is_some()),
            };
            !other.exists(is_other).unwrap_or(true)
        }
    }
}

/// Rewrites an operator with subqueries in its expressions: attaches the values of the subqueries to the input, and
/// makes the expressions refer to these columns.
fn computed(plan: LogicalPlan, names: &Names) -> Result<Transformed<LogicalPlan>> {
    if plan.expressions().iter().filter(|expr| has_subquery(expr)).all(is_value_of_engine) {
        return Ok(Transformed::no(plan));
    }
    // These operators also return all columns of their input, so that the attached columns must be removed again.
    let passes_on = matches!(plan, LogicalPlan::Window(_) | LogicalPlan::Sort(_));
    let columns = plan.schema().columns();
    let Some(rows) = plan.inputs().first().map(|input| LogicalPlan::clone(input)) else {
        return Ok(Transformed::no(plan));
    };
    let preserver = NamePreserver::new(&plan);
    let (input, changed) = attached(rows, names, |rows| {
        let changed = plan.clone().map_expressions(|expr| {
            if !has_subquery(&expr) {
                return Ok(Transformed::no(expr));
            }
            let name = preserver.save(&expr);
            values(rows, expr).map(|expr| Transformed::yes(name.restore(expr)))
        })?;
        Ok(changed.data)
    })?;
    let over = changed.with_new_exprs(changed.expressions(), vec![input])?;
    match passes_on {
        true => LogicalPlanBuilder::from(over).project(columns.into_iter().map(Expr::Column))?.build(),
        false => Ok(over),
    }
    .map(Transformed::yes)
}

/// Returns whether all subqueries of an expression are scalar values without outer references, which DataFusion plans
/// correctly.
fn is_value_of_engine(expr: &Expr) -> bool {
    let is_other = |expr: &Expr| match expr {
        Expr::ScalarSubquery(subquery) => Ok(!free_columns(&subquery.subquery)?.is_empty()),
        expr => Ok(subquery_of(expr).is_some()),
    };
    !expr.exists(is_other).unwrap_or(true)
}

/// Replaces the subqueries in an expression by columns with their values, which are attached to `rows`.
fn values(rows: &mut Attached<'_>, expr: Expr) -> Result<Expr> {
    let made = expr.transform_up(|expr| {
        Ok(match expr {
            Expr::Exists(Exists { subquery, negated }) => {
                let some = exists(rows, LogicalPlan::clone(&subquery.subquery))?;
                Transformed::yes(if negated { !some } else { some })
            }
            Expr::InSubquery(InSubquery { expr, subquery, negated }) => {
                is_steady(&expr)?;
                let some = rows.contained(LogicalPlan::clone(&subquery.subquery), &expr)?;
                Transformed::yes(if negated { !some } else { some })
            }
            Expr::SetComparison(comparison) => Transformed::yes(compared(rows, comparison)?),
            Expr::ScalarSubquery(subquery) if !free_columns(&subquery.subquery)?.is_empty() => {
                Transformed::yes(rows.value(LogicalPlan::clone(&subquery.subquery))?)
            }
            other => Transformed::no(other),
        })
    })?;
    Ok(made.data)
}

fn exists(rows: &mut Attached<'_>, subquery: LogicalPlan) -> Result<Expr> {
    match any_row(subquery)? {
        Some(subquery) if free_columns(&subquery)?.is_empty() => has_rows(subquery),
        Some(subquery) => rows.matched(subquery, &[], JoinType::LeftMark),
        None => Ok(lit(true)),
    }
}

/// Returns the condition that a query without outer references has at least one row.
fn has_rows(subquery: LogicalPlan) -> Result<Expr> {
    let counted = LogicalPlanBuilder::from(subquery)
        .limit(0, Some(1))?
        .aggregate(Vec::<Expr>::new(), [count(lit(1))])?
        .build()?;
    Ok(scalar_subquery(Arc::new(counted)).gt(lit(0_i64)))
}

/// Checks that an operand is not volatile, because the comparison evaluates it several times.
fn is_steady(operand: &Expr) -> Result<()> {
    match operand.is_volatile() {
        true => {
            let what = "a value that changes from call to call is compared with the rows of a query";
            Err(advised(what, "compute it in a subquery"))
        }
        false => Ok(()),
    }
}

/// Returns the value of a comparison with any or all rows of a query (`x > ANY (…)`), computed from counts and extremes
/// of the query's column.
fn compared(rows: &mut Attached<'_>, comparison: SetComparison) -> Result<Expr> {
    let SetComparison { expr, subquery, op, quantifier } = comparison;
    let subquery = LogicalPlan::clone(&subquery.subquery);
    is_steady(&expr)?;
    let is_any = matches!(quantifier, SetQuantifier::Any);
    match (op, is_any) {
        (Operator::Eq, true) => return rows.contained(subquery, &expr),
        (Operator::NotEq, false) => return rows.contained(subquery, &expr).map(|some| !some),
        _ => {}
    }
    let column = Expr::Column(subquery.schema().columns().swap_remove(0));
    let functions = vec![count(lit(1)), count(column.clone()), min(column.clone()), max(column)];
    let counted = Aggregate::try_new(Arc::new(subquery), Vec::new(), functions)?;
    let made = rows.aggregates(LogicalPlan::Aggregate(counted))?;
    let [count, known, least, greatest] =
        <[Expr; 4]>::try_from(made).map_err(|_| refused("this comparison with a query is not done"))?;
    let with = |other: Expr| Expr::BinaryExpr(BinaryExpr::new(expr.clone(), op, Box::new(other)));
    let decides = match (op, is_any) {
        (Operator::NotEq, true) => with(least).or(with(greatest)),
        (Operator::Eq, false) => with(least).and(with(greatest)),
        (Operator::Gt | Operator::GtEq, true) | (Operator::Lt | Operator::LtEq, false) => with(least),
        (Operator::Lt | Operator::LtEq, true) | (Operator::Gt | Operator::GtEq, false) => with(greatest),
        _ => {
            let what = format!("{op} ANY and {op} ALL are not done");
            return Err(advised(&what, "compare with =, <>, <, <=, > or >="));
        }
    };
    let decides = if is_any { decides } else { !decides };
    let open = expr.is_null().or(count.clone().gt(known));
    let when = |condition: Expr, value: Expr| (Box::new(condition), Box::new(value));
    Ok(Expr::Case(Case::new(
        None,
        vec![
            when(count.eq(lit(0_i64)), lit(!is_any)),
            when(decides, lit(is_any)),
            when(open, lit(ScalarValue::Boolean(None))),
        ],
        Some(Box::new(lit(!is_any))),
    )))
}
