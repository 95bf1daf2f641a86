//! Conditions that other operators find out while they run, such as the least and greatest key on the
//! build side of a hash join, or the worst row that a top-k still wants.
//!
//! Invariant: they only thin out. A part that cannot be said in the model's terms is left out of a
//! conjunction and makes a disjunction useless; the operator that made the filter decides in the end.

use crate::literal;
use arrow_schema::Schema;
use datafusion::common::ScalarValue;
use datafusion::logical_expr::Operator;
use datafusion::physical_expr::expressions::{
    BinaryExpr, CaseExpr, Column, DynamicFilterPhysicalExpr, InListExpr, IsNullExpr,
    Literal as PhysicalLiteral,
};
use datafusion::physical_plan::PhysicalExpr;
use farpool_model::{CompareOp, Expr, Output, Program, limits};
use farpool_planner::split;
use std::cmp::Ordering;
use std::sync::Arc;

/// Those of `offered` that can be made use of in `program`: dynamic ones over a program that gives rows
/// and does not count them, and whose columns are plain columns of the table.
pub(crate) fn usable(program: &Program, offered: &[Arc<dyn PhysicalExpr>]) -> Vec<Arc<dyn PhysicalExpr>> {
    if !matches!(program.output, Output::Rows(_)) || program.limit.is_some() {
        return Vec::new();
    }
    offered.iter().filter(|f| f.downcast_ref::<DynamicFilterPhysicalExpr>().is_some()).cloned().collect()
}

/// The program with what the dynamic filters say now. `columns` is the schema of its result, in which
/// they are written, and `table` that of the table.
pub(crate) fn narrowed(
    program: Program,
    dynamic: &[Arc<dyn PhysicalExpr>],
    columns: &Schema,
    table: &Schema,
) -> Program {
    let Output::Rows(outputs) = &program.output else { return program };
    let current = dynamic.iter().filter_map(|f| {
        let now = f.downcast_ref::<DynamicFilterPhysicalExpr>()?.current().ok()?;
        implied(&now, &|index| outputs.get(index).map(|o| o.expr.clone()))
    });
    let useful = |e: &Expr| {
        e.node_count() <= limits::IN_LIST_MAX && Expr::And(vec![e.clone()]).data_type(table).is_ok()
    };
    let found: Vec<Expr> = current.flat_map(split::conjuncts).filter(useful).collect();
    debug_assert_eq!(columns.fields().len(), outputs.len());
    if found.is_empty() {
        return program;
    }
    let filter = split::conjunction(program.filter.clone().into_iter().chain(found));
    Program { filter, ..program }
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
        if list.negated() || list.list().len() > limits::IN_LIST_MAX {
            return None;
        }
        let constants = list.list().iter().map(|item| {
            let scalar = item.downcast_ref::<PhysicalLiteral>()?.value();
            // NULL equals nothing; it would only turn false into unknown.
            if scalar.is_null() { None } else { literal::from_scalar(scalar) }
        });
        let value = value(list.expr(), column)?;
        let constants = constants.collect::<Option<Vec<_>>>()?;
        return Some(Expr::InList(Box::new(value), constants));
    }
    if let Some(inner) = expr.downcast_ref::<IsNullExpr>() {
        return Some(Expr::IsNull(Box::new(value(inner.arg(), column)?)));
    }
    if let Some(case) = expr.downcast_ref::<CaseExpr>() {
        return routed(case, column);
    }
    is_false(expr).then(|| literal::from_scalar(&ScalarValue::Boolean(Some(false))).map(Expr::Literal))?
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
            if column == other_column && a.len() + b.len() <= limits::IN_LIST_MAX =>
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
