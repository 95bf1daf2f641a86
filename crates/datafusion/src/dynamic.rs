//! Conditions that other operators find out while they run, such as the least and greatest key on the
//! build side of a hash join, or the worst row that a top-k still wants.
//!
//! Invariant: they only thin out. A part that cannot be said in the model's terms is left out of a
//! conjunction and makes a disjunction useless; the operator that made the filter decides in the end.

use crate::literal;
use datafusion::common::ScalarValue;
use datafusion::logical_expr::Operator;
use datafusion::physical_expr::ScalarFunctionExpr;
use datafusion::physical_expr::expressions::{
    BinaryExpr, CaseExpr, Column, DynamicFilterPhysicalExpr, InListExpr, IsNullExpr,
    Literal as PhysicalLiteral,
};
use datafusion::physical_plan::PhysicalExpr;
use farpool_model::{
    Answer, CompareOp, Expr, KeySet, Literal, NamedExpr, Output, Program, TableInfo, cast, limits,
};
use farpool_planner::{estimate, split};
use std::cmp::Ordering;
use std::sync::Arc;

/// Rows of the table for each value of a list, below which looking the values up (and sending them) costs
/// more than the join saves.
const ROWS_PER_LISTED_VALUE_MIN: u64 = 16;

/// Values from which on a list of integers goes as a set: looking one up takes as long whatever their number.
const SET_KEYS_MIN: usize = 64;

/// Keys of a join's smaller side, over all partitions, up to which they are looked at. DataFusion hands them
/// over as one expression each, which costs some 100 ns (of several columns, a microsecond) before the scan
/// can start: with 256 Ki, TPC-H's Q3, Q5 and Q13 took 20 to 60 % longer than without any.
pub(crate) const KEYS_MAX: usize = 128 << 10;

/// The part of the rows that a set must remove at least, to be worth a look-up for each row.
const SET_REMOVES_MIN: f64 = 0.2;

/// Bytes that a row which does not leave saves, at least: two packed keys.
const ROW_BYTES_SAVED: f64 = 4.0;

/// Those of `offered` that can be made use of in `program`: dynamic ones over a program in which a row less
/// going in is no more than a row less coming out.
pub(crate) fn usable(program: &Program, offered: &[Arc<dyn PhysicalExpr>]) -> Vec<Arc<dyn PhysicalExpr>> {
    if program.limit.is_some() || outputs(program).is_empty() {
        return Vec::new();
    }
    offered.iter().filter(|f| f.downcast_ref::<DynamicFilterPhysicalExpr>().is_some()).cloned().collect()
}

/// What the columns of the result are on which a condition may move in front of the program: all columns
/// of rows, the keys of groups.
fn outputs(program: &Program) -> &[NamedExpr] {
    match &program.output {
        Output::Rows(columns) => columns,
        Output::Aggregate { keys, .. } => keys,
    }
}

/// The program with what the dynamic filters say now. They are written over its result.
pub(crate) fn narrowed(program: Program, dynamic: &[Arc<dyn PhysicalExpr>], info: &TableInfo) -> Program {
    let column = |index: usize| outputs(&program).get(index).map(|o| o.expr.clone());
    let current = dynamic.iter().filter_map(|f| {
        let now = f.downcast_ref::<DynamicFilterPhysicalExpr>()?.current().ok()?;
        implied(&now, &column)
    });
    let useful = |e: &Expr| pays(e, info) && split::place(e.clone(), &info.schema).answer == Answer::Exact;
    let conditions = current.flat_map(split::conjuncts).filter_map(|e| compact(e, info));
    // All sets together must fit a plan, whichever way they are written.
    let mut bytes_left = limits::PLAN_BYTES_MAX / 2;
    let mut fits = |e: &Expr| {
        let left = bytes_left.checked_sub(set_bytes(e));
        bytes_left = left.unwrap_or(bytes_left);
        left.is_some()
    };
    let found: Vec<Expr> = conditions.filter(useful).filter(|e| fits(e)).collect();
    if found.is_empty() {
        return program;
    }
    let filter = split::conjunction(program.filter.clone().into_iter().chain(found));
    let narrowed = Program { filter, ..program.clone() };
    // Several long lists together may be too much.
    if narrowed.result_schema(&info.schema).is_ok() { narrowed } else { program }
}

/// Whether a condition saves more than it costs.
fn pays(condition: &Expr, info: &TableInfo) -> bool {
    if let Expr::InSet(_, set) = condition {
        let removed = 1.0 - estimate::selectivity(condition, info);
        let saved = info.rows as f64 * removed * ROW_BYTES_SAVED;
        return removed >= SET_REMOVES_MIN && saved >= set.bytes() as f64;
    }
    let listed = cast::u64_from(condition.node_count());
    listed < ROWS_PER_LISTED_VALUE_MIN || listed * ROWS_PER_LISTED_VALUE_MIN <= info.rows
}

/// Bytes of the sets in a condition, in memory.
fn set_bytes(condition: &Expr) -> usize {
    let here = if let Expr::InSet(_, set) = condition { set.bitmap_bytes() } else { 0 };
    here + condition.children().into_iter().map(set_bytes).sum::<usize>()
}

/// The condition with long lists of integers as sets; `None` when one stays too long.
fn compact(condition: Expr, info: &TableInfo) -> Option<Expr> {
    match condition {
        Expr::Or(parts) => {
            parts.into_iter().map(|part| compact(part, info)).collect::<Option<Vec<_>>>().map(Expr::Or)
        }
        Expr::InList(value, list) if list.len() >= SET_KEYS_MIN => match set_of(&value, &list, info) {
            Some(set) => Some(Expr::InSet(value, set)),
            None => (list.len() <= limits::IN_LIST_MAX).then_some(Expr::InList(value, list)),
        },
        other => Some(other),
    }
}

/// The list as a set, if it consists of integers of the value's own type.
fn set_of(value: &Expr, list: &[Literal], info: &TableInfo) -> Option<KeySet> {
    let data_type = value.data_type(&info.schema).ok()?;
    let key = |literal: &Literal| {
        let key = literal.as_int().filter(|_| *literal.data_type() == data_type);
        key.and_then(|key| i64::try_from(key).ok())
    };
    KeySet::new(&list.iter().map(key).collect::<Option<Vec<i64>>>()?)
}

/// A condition of the model that holds wherever `expr` is true; `None` for "always".
fn implied(expr: &Arc<dyn PhysicalExpr>, column: &dyn Fn(usize) -> Option<Expr>) -> Option<Expr> {
    if let Some(binary) = expr.downcast_ref::<BinaryExpr>() {
        let (left, right) = (implied(binary.left(), column), implied(binary.right(), column));
        return match binary.op() {
            Operator::And => Expr::all(left.into_iter().chain(right).collect()),
            Operator::Or => Some(Expr::Or(vec![left?, right?])),
            op => {
                let (left, right) = (value(binary.left(), column)?, value(binary.right(), column)?);
                Some(Expr::compare(compare_op(*op)?, left, right))
            }
        };
    }
    if let Some(list) = expr.downcast_ref::<InListExpr>() {
        return listed(list, column);
    }
    if let Some(inner) = expr.downcast_ref::<IsNullExpr>() {
        return Some(Expr::IsNull(Box::new(value(inner.arg(), column)?)));
    }
    if let Some(case) = expr.downcast_ref::<CaseExpr>() {
        return routed(case, column);
    }
    is_false(expr).then(|| literal::from_scalar(&ScalarValue::Boolean(Some(false))).map(Expr::Literal))?
}

/// `key IN (…)`, or of several keys `struct(key, …) IN (…)`, which implies a list for each.
fn listed(list: &InListExpr, column: &dyn Fn(usize) -> Option<Expr>) -> Option<Expr> {
    if list.negated() || list.list().len() > KEYS_MAX {
        return None;
    }
    let scalars = list.list().iter().map(|item| Some(item.downcast_ref::<PhysicalLiteral>()?.value()));
    let scalars = scalars.collect::<Option<Vec<&ScalarValue>>>()?;
    let Some(call) = list.expr().downcast_ref::<ScalarFunctionExpr>() else {
        let constants = scalars.into_iter().map(not_null).collect::<Option<Vec<Literal>>>()?;
        return Some(Expr::InList(Box::new(value(list.expr(), column)?), constants));
    };
    if call.name() != "struct" {
        return None;
    }
    let of_key = |(key, arg): (usize, &Arc<dyn PhysicalExpr>)| {
        let mut constants: Vec<Literal> = Vec::new();
        for scalar in &scalars {
            let ScalarValue::Struct(values) = scalar else { return None };
            constants.push(not_null(&ScalarValue::try_from_array(values.column(key), 0).ok()?)?);
        }
        constants.sort_by(|a, b| a.compare(b).unwrap_or(Ordering::Equal));
        constants.dedup();
        Some(Expr::InList(Box::new(value(arg, column)?), constants))
    };
    Expr::all(call.args().iter().enumerate().filter_map(of_key).collect())
}

/// NULL equals nothing, so a key that is NULL would be left out; but it cannot be told from one that
/// matters to a join in which NULLs are equal.
fn not_null(scalar: &ScalarValue) -> Option<Literal> {
    if scalar.is_null() { None } else { literal::from_scalar(scalar) }
}

fn is_false(expr: &Arc<dyn PhysicalExpr>) -> bool {
    let constant = expr.downcast_ref::<PhysicalLiteral>().map(PhysicalLiteral::value);
    constant == Some(&ScalarValue::Boolean(Some(false)))
}

/// `CASE hash(key) % n WHEN 0 THEN … WHEN 1 THEN … END`, as partitioned joins write it: whatever the
/// hash, one of the branches holds.
fn routed(case: &CaseExpr, column: &dyn Fn(usize) -> Option<Expr>) -> Option<Expr> {
    let branches = case.when_then_expr().iter().map(|(_, then)| then).chain(case.else_expr());
    let branches = branches.filter(|branch| !is_false(branch));
    let branches: Option<Vec<Expr>> = branches.map(|branch| implied(branch, column)).collect();
    hull(&branches?.into_iter().map(split::conjuncts).collect::<Vec<_>>())
}

/// What all of `branches`, each a conjunction, imply: the widest of their bounds on a column, and all
/// values of their lists together. Hashing spreads the keys, so little is lost against the disjunction.
fn hull(branches: &[Vec<Expr>]) -> Option<Expr> {
    let (first, rest) = branches.split_first()?;
    let widened = first.iter().filter_map(|part| {
        rest.iter().try_fold(part.clone(), |wide, branch| branch.iter().find_map(|other| wider(&wide, other)))
    });
    Expr::all(widened.collect())
}

/// A condition that both imply, if they are of one form about one column.
fn wider(one: &Expr, other: &Expr) -> Option<Expr> {
    match (one, other) {
        (Expr::Compare(op, column, a), Expr::Compare(other_op, other_column, b))
            if op == other_op && column == other_column =>
        {
            let (Expr::Literal(a), Expr::Literal(b)) = (&**a, &**b) else { return None };
            let a_is_less = a.compare(b)? == Ordering::Less;
            let wide = match op {
                CompareOp::GtEq | CompareOp::Gt => {
                    if a_is_less {
                        a
                    } else {
                        b
                    }
                }
                CompareOp::LtEq | CompareOp::Lt => {
                    if a_is_less {
                        b
                    } else {
                        a
                    }
                }
                CompareOp::Eq | CompareOp::NotEq => return None,
            };
            Some(Expr::compare(*op, (**column).clone(), Expr::Literal(wide.clone())))
        }
        (Expr::InList(column, a), Expr::InList(other_column, b))
            if column == other_column && a.len() + b.len() <= KEYS_MAX =>
        {
            Some(Expr::InList(column.clone(), a.iter().chain(b).cloned().collect()))
        }
        _ => None,
    }
}

fn value(expr: &Arc<dyn PhysicalExpr>, column: &dyn Fn(usize) -> Option<Expr>) -> Option<Expr> {
    if let Some(found) = expr.downcast_ref::<Column>() {
        return match column(found.index())? {
            Expr::Column(index) => Some(Expr::Column(index)),
            _ => None,
        };
    }
    let scalar = expr.downcast_ref::<PhysicalLiteral>()?.value();
    if scalar.is_null() {
        return None;
    }
    literal::from_scalar(scalar).map(Expr::Literal)
}

fn compare_op(op: Operator) -> Option<CompareOp> {
    Some(match op {
        Operator::Eq => CompareOp::Eq,
        Operator::Lt => CompareOp::Lt,
        Operator::LtEq => CompareOp::LtEq,
        Operator::Gt => CompareOp::Gt,
        Operator::GtEq => CompareOp::GtEq,
        _ => return None,
    })
}
