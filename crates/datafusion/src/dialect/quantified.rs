//! Comparisons with a subquery as values: `select x in (select …), x > all (select …)`. The engine supports
//! them as conditions only; as values they are computed from the minimum, the maximum and counts of the
//! subquery's rows.
//!
//! SQL's rules about NULL hold: with a NULL among the rows, or as `x`, the result is NULL unless another row
//! decides.

use super::{aliases, depth, refusal, sql};
use datafusion::common::{DataFusionError, Result};
use datafusion::execution::SessionState;
use datafusion::sql::sqlparser::ast::{BinaryOperator, Expr, Query, Select, VisitMut, VisitorMut};
use farpool_model::limits;
use std::ops::ControlFlow;

/// Rewrites comparisons in the columns of the SELECT. `copied` counts the expressions that are duplicated.
pub(super) fn apply(select: &mut Select, state: &SessionState, copied: &mut usize) -> Result<()> {
    match select.projection.visit(&mut Rewrite { within: 0, state, copied }) {
        ControlFlow::Break(error) => Err(error),
        ControlFlow::Continue(()) => Ok(()),
    }
}

struct Rewrite<'a> {
    /// Depth of nested queries at this position: their own columns are rewritten separately.
    within: usize,
    state: &'a SessionState,
    copied: &'a mut usize,
}

impl VisitorMut for Rewrite<'_> {
    type Break = DataFusionError;

    fn pre_visit_query(&mut self, _: &mut Query) -> ControlFlow<DataFusionError> {
        self.within += 1;
        ControlFlow::Continue(())
    }

    fn post_visit_query(&mut self, _: &mut Query) -> ControlFlow<DataFusionError> {
        self.within -= 1;
        ControlFlow::Continue(())
    }

    fn post_visit_expr(&mut self, expr: &mut Expr) -> ControlFlow<DataFusionError> {
        if self.within > 0 {
            return ControlFlow::Continue(());
        }
        match self.value(expr) {
            Ok(Some(made)) => *expr = made,
            Ok(None) => {}
            Err(error) => return ControlFlow::Break(error),
        }
        ControlFlow::Continue(())
    }
}

impl Rewrite<'_> {
    /// Returns the value that replaces a comparison with a subquery.
    fn value(&mut self, expr: &Expr) -> Result<Option<Expr>> {
        let (left, rows, text) = match expr {
            Expr::InSubquery { expr, subquery, negated: false } => (expr, subquery, IN.to_string()),
            Expr::InSubquery { expr, subquery, negated: true } => (expr, subquery, format!("NOT {IN}")),
            Expr::AnyOp { left, compare_op, right, .. } => match &**right {
                Expr::Subquery(rows) => (left, rows, any(compare_op)?),
                _ => return Ok(None),
            },
            Expr::AllOp { left, compare_op, right } => match &**right {
                Expr::Subquery(rows) => (left, rows, all(compare_op)?),
                _ => return Ok(None),
            },
            _ => return Ok(None),
        };
        if aliases::is_volatile(self.state, left) {
            let what = "a value that changes from call to call is compared with the rows of a query";
            return Err(refusal(what, "compute it in a subquery"));
        }
        *self.copied += depth::parts(expr) * COPIES;
        if *self.copied > limits::SQL_NODES_MAX {
            return Err(refusal("comparisons with queries make too large an expression", "use joins"));
        }
        let of_rows =
            |what: &str| sql::expr(&format!("(SELECT {what} FROM ({rows}) AS \"rows of it\"({COMPARED}))"));
        let mut same = of_rows("count(*)")?;
        if let Expr::Subquery(query) = &mut same {
            let condition = sql::expr_with(&format!("{COMPARED} = x"), &[("x", Expr::clone(left))])?;
            if let datafusion::sql::sqlparser::ast::SetExpr::Select(select) = &mut *query.body {
                select.selection = Some(condition);
            }
        }
        sql::expr_with(
            &text,
            &[
                ("x", Expr::Nested(left.clone())),
                ("same_", same),
                ("rows_", of_rows("count(*)")?),
                ("known", of_rows(&format!("count({COMPARED})"))?),
                ("least_", of_rows(&format!("min({COMPARED})"))?),
                ("greatest_", of_rows(&format!("max({COMPARED})"))?),
            ],
        )
        .map(Some)
    }
}

/// Name of the subquery's column, chosen so that no column of the outer query is confused with it.
const COMPARED: &str = "\"value of the row\"";

/// Most copies of a part of a comparison in its replacement.
const COPIES: usize = 5;

const IN: &str = "(CASE WHEN same_ > 0 THEN true WHEN rows_ = 0 THEN false WHEN x IS NULL OR rows_ > known THEN NULL \
    ELSE false END)";

/// Returns the expression for "the comparison holds for any row".
fn any(op: &BinaryOperator) -> Result<String> {
    let decides = match op {
        BinaryOperator::Eq => return Ok(IN.to_string()),
        BinaryOperator::NotEq => "(x <> least_ OR x <> greatest_)".to_string(),
        _ => format!("x {op} {}", extreme(op, "least_", "greatest_")?),
    };
    Ok(format!(
        "(CASE WHEN rows_ = 0 THEN false WHEN {decides} THEN true WHEN x IS NULL OR rows_ > known THEN NULL ELSE false END)"
    ))
}

/// Returns the expression for "the comparison holds for all rows".
fn all(op: &BinaryOperator) -> Result<String> {
    let decides = match op {
        BinaryOperator::NotEq => return Ok(format!("NOT {IN}")),
        BinaryOperator::Eq => "(x = least_ AND x = greatest_)".to_string(),
        _ => format!("x {op} {}", extreme(op, "greatest_", "least_")?),
    };
    Ok(format!(
        "(CASE WHEN rows_ = 0 THEN true WHEN NOT {decides} THEN false WHEN x IS NULL OR rows_ > known THEN NULL ELSE true END)"
    ))
}

/// Returns the row that decides: `above` where the value must be greater, else `below`.
fn extreme(op: &BinaryOperator, above: &'static str, below: &'static str) -> Result<&'static str> {
    match op {
        BinaryOperator::Gt | BinaryOperator::GtEq => Ok(above),
        BinaryOperator::Lt | BinaryOperator::LtEq => Ok(below),
        other => Err(refusal(
            &format!("{other} ANY and {other} ALL are not done"),
            "compare with =, <>, <, <=, > or >=",
        )),
    }
}
