//! Decides which part of a query is pushed down to the pool: each condition of a filter; and whether an aggregation or
//! a projection that could run there should.
//!
//! Invariant: a condition is `Exact` only if the program with it passes every check of [`Program::result_schema`]. Any
//! other condition is evaluated by the engine as well.

use crate::cost::{self, Choice, Estimate, Place, Rates};
use crate::estimate;
use crate::rows::Rows;
use arrow_schema::{DataType, Schema};
use farpool_model::{Answer, Expr, Output, Program, Weakened, limits, weaken};

/// Place where a condition is evaluated.
#[derive(Clone, Debug, PartialEq)]
pub struct Placed {
    /// `Exact`: by the pool alone. `Superset`: the pool removes some rows, and the engine evaluates the condition
    /// again. `Refused`: by the engine alone.
    pub answer: Answer,
    /// The expression that is sent to the pool: the condition, or a weaker one without the parts that the pool cannot
    /// evaluate; `None` if nothing is sent.
    pub sent: Option<Expr>,
    /// The reason why the answer is not `Exact`.
    pub reason: Option<String>,
}

/// Splits a condition into the operands of its AND.
pub fn conjuncts(condition: Expr) -> Vec<Expr> {
    match condition {
        Expr::And(parts) => parts.into_iter().flat_map(conjuncts).collect(),
        other => vec![other],
    }
}

/// Joins conditions by AND; `None` if there are none. The inverse of [`conjuncts`].
pub fn conjunction(conditions: impl IntoIterator<Item = Expr>) -> Option<Expr> {
    Expr::all(conditions.into_iter().flat_map(conjuncts).collect())
}

/// Decides where `condition` is evaluated; it is one conjunct (operand of AND) of a filter over a table with the schema
/// `schema`.
pub fn place(condition: Expr, schema: &Schema) -> Placed {
    let (answer, sent, reason) = match weaken(&condition) {
        Weakened::Exact(expr) => (Answer::Exact, expr, None),
        Weakened::Superset(expr, reason) => (Answer::Superset, expr, Some(reason)),
        Weakened::Refused(reason) => {
            return Placed { answer: Answer::Refused, sent: None, reason: Some(reason) };
        }
    };
    match check(&sent, schema) {
        Ok(()) => Placed { answer, sent: Some(sent), reason },
        Err(reason) => Placed { answer: Answer::Refused, sent: None, reason: Some(reason) },
    }
}

/// Checks that a condition is well typed and boolean, and so small that a filter with other such conditions stays
/// within the limits.
fn check(condition: &Expr, schema: &Schema) -> Result<(), String> {
    if condition.bytes() > limits::EXPR_BYTES_MAX / 4 {
        return Err("the condition is too long".to_string());
    }
    // The check includes the AND that will contain the condition, because it adds a level of nesting.
    match Expr::And(vec![condition.clone()]).data_type(schema) {
        Ok(DataType::Boolean) => Ok(()),
        Ok(other) => Err(format!("the condition has type {other}")),
        Err(error) => Err(error.message),
    }
}

/// Returns the estimated cost of running `program` over `rows` at the pool, if that is better than letting the engine do a
/// part of it. The pool must be able to run all of the program exactly.
///
/// # Errors
/// The reason why it is not better.
pub fn worthwhile(program: &Program, rows: &Rows, place: Place, rates: &Rates) -> Result<Estimate, String> {
    if rows.are_joined()
        && let Some(reason) = rows.too_large().or_else(|| cost::joined::unfit(program, rows))
    {
        return Err(reason);
    }
    // This check does not apply to a top-k, which returns few rows, whatever their width.
    if let Output::Rows(columns) = &program.output
        && program.order.is_empty()
        && !rows.are_joined()
    {
        let info = &rows.info;
        // Computing values at the pool does not pay if they are larger than their inputs.
        let computed: f64 = columns.iter().map(|c| estimate::width(&c.expr, info)).sum();
        let mut inputs = std::collections::BTreeSet::new();
        columns.iter().for_each(|c| c.expr.collect_columns(&mut inputs));
        let needed: f64 = inputs.iter().map(|&i| estimate::width(&Expr::Column(i), info)).sum();
        if computed > needed {
            return Err("the computed columns are wider than the stored ones".to_string());
        }
    }
    let estimate = cost::estimate(program, rows, place, rates);
    if estimate.choice == Choice::Push { Ok(estimate) } else { Err(estimate.to_string()) }
}
