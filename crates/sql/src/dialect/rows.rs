//! Rewrites comparisons of rows, `(a, b) < (c, d)`, to comparisons of their parts, and comparisons with lists, `x =
//! ANY(list)`, to three-valued logic. DataFusion 55.2 compares rows as structs, in which NULL is less than all other
//! values, and treats NULLs in the list of ANY as values that are not equal. Its ALL is correct.

use super::parameters::parameter;
use super::{depth, refusal};
use datafusion::common::Result;
use datafusion::sql::sqlparser::ast::{
    Array, ArrayElemTypeDef, BinaryOperator, CastKind, DataType, Expr, FunctionArg, FunctionArgExpr,
    FunctionArguments, UnaryOperator, Value, ValueWithSpan,
};
use farpool_model::{brief, limits};
use farpool_postgres::values::elements_of_text;

/// Returns the parts of a row, `(a, b)` or `ROW(a, b)`; `None` for any other expression.
pub(super) fn parts(expr: &Expr) -> Option<Vec<&Expr>> {
    match expr {
        Expr::Nested(inner) => parts(inner),
        Expr::Tuple(parts) => Some(parts.iter().collect()),
        Expr::Function(function) if function.name.to_string().eq_ignore_ascii_case("row") => {
            let FunctionArguments::List(list) = &function.args else { return None };
            let part = |arg| match arg {
                &FunctionArg::Unnamed(FunctionArgExpr::Expr(ref part)) => Some(part),
                _ => None,
            };
            list.args.iter().map(part).collect()
        }
        _ => None,
    }
}

/// Rewrites a comparison of rows to comparisons of their parts. `copied` counts the expression nodes that are
/// duplicated.
///
/// # Errors
/// Fails if the rows have different numbers of columns, or the comparison becomes too large.
pub(super) fn apply(expr: &mut Expr, copied: &mut usize) -> Result<()> {
    let made = match &*expr {
        Expr::BinaryOp { left, op, right } => match parts(left).zip(parts(right)) {
            Some((left, right)) => compared(&left, op, &right, copied)?,
            None => None,
        },
        Expr::IsDistinctFrom(left, right) | Expr::IsNotDistinctFrom(left, right) => {
            match parts(left).zip(parts(right)) {
                Some((left, right)) => {
                    check_alike(&left, &right)?;
                    let is_negated = matches!(expr, Expr::IsDistinctFrom(..));
                    Some(distinct(&left, &right, is_negated))
                }
                None => None,
            }
        }
        Expr::Between { expr: value, negated, low, high } => match (parts(value), parts(low), parts(high)) {
            (Some(value), Some(low), Some(high)) => {
                charge(copied, value.iter().map(|part| depth::parts(*part)).sum(), value.len())?;
                let low = compared(&value, &BinaryOperator::GtEq, &low, copied)?;
                let high = compared(&value, &BinaryOperator::LtEq, &high, copied)?;
                let both = low.zip(high).map(|(low, high)| binary(low, BinaryOperator::And, high));
                both.map(|both| negated_if(*negated, both))
            }
            _ => None,
        },
        Expr::InList { expr: value, list, negated } => match parts(value) {
            Some(value) => one_of(&value, list, copied)?.map(|found| negated_if(*negated, found)),
            None => None,
        },
        // The elements of a parameter are filled in when they are known.
        Expr::AnyOp { compare_op: BinaryOperator::Eq, right, .. } if parameter(right).is_some() => None,
        Expr::AnyOp { left, compare_op, right, .. } => match elements(right, copied)? {
            Some(list) if *compare_op == BinaryOperator::Eq => Some(in_list(left, list, false)),
            Some(list) => of_list(left, compare_op, &list_of(list)),
            None => of_list(left, compare_op, right),
        },
        Expr::AllOp { left, compare_op, right } => match elements(right, copied)? {
            Some(list) if *compare_op == BinaryOperator::NotEq => Some(in_list(left, list, true)),
            Some(list) => Some(Expr::AllOp {
                left: left.clone(),
                compare_op: compare_op.clone(),
                right: Box::new(list_of(list)),
            }),
            None => None,
        },
        _ => None,
    };
    if let Some(made) = made {
        *expr = made;
    }
    Ok(())
}

fn check_alike(left: &[&Expr], right: &[&Expr]) -> Result<()> {
    match left.len() == right.len() && !left.is_empty() {
        true => Ok(()),
        false => {
            let what = format!("a row of {} columns is compared with one of {}", left.len(), right.len());
            Err(refusal(&what, "compare rows of as many columns"))
        }
    }
}

/// Returns the comparison of two rows as an expression over their parts; `None` if the operator is not a comparison.
fn compared(
    left: &[&Expr],
    op: &BinaryOperator,
    right: &[&Expr],
    copied: &mut usize,
) -> Result<Option<Expr>> {
    use BinaryOperator::{And, Eq, Gt, GtEq, Lt, LtEq, NotEq, Or};
    let strict = match op {
        Eq | NotEq => None,
        Lt | LtEq => Some(Lt),
        Gt | GtEq => Some(Gt),
        _ => return Ok(None),
    };
    check_alike(left, right)?;
    let pairs = || left.iter().zip(right).map(|(left, right)| ((*left).clone(), (*right).clone()));
    let Some(strict) = strict else {
        let joins = if *op == Eq { And } else { Or };
        return Ok(joined(pairs().map(|(left, right)| binary(left, op.clone(), right)).collect(), &joins));
    };
    // All parts but the last are compared twice (for "less" and for "equal"), so that they are duplicated.
    let twice = left[1..].iter().chain(&right[1..]).map(|part| depth::parts(*part)).sum::<usize>();
    charge(copied, twice, left.len())?;
    let mut made: Option<Expr> = None;
    for (left, right) in pairs().rev() {
        made = Some(match made {
            None => binary(left, op.clone(), right),
            Some(rest) => {
                let is_equal = binary(left.clone(), Eq, right.clone());
                binary(binary(left, strict.clone(), right), Or, binary(is_equal, And, rest))
            }
        });
    }
    Ok(made)
}

/// Returns the condition that a row is in a list of rows; `None` if the elements of the list are not rows.
fn one_of(value: &[&Expr], list: &[Expr], copied: &mut usize) -> Result<Option<Expr>> {
    let Some(rows) = list.iter().map(parts).collect::<Option<Vec<_>>>() else { return Ok(None) };
    let own = value.iter().map(|part| depth::parts(*part)).sum::<usize>();
    charge(copied, own.saturating_mul(rows.len()), value.len())?;
    let each = rows.iter().map(|row| compared(value, &BinaryOperator::Eq, row, copied));
    let each: Option<Vec<Expr>> = each.collect::<Result<_>>()?;
    Ok(each.and_then(|each| joined(each, &BinaryOperator::Or)))
}

/// Adds to the number of duplicated expression nodes; fails above a limit.
fn charge(copied: &mut usize, more: usize, columns: usize) -> Result<()> {
    *copied = copied.saturating_add(more);
    match *copied <= limits::SQL_NODES_MAX && columns <= limits::SQL_ROW_PARTS_MAX {
        true => Ok(()),
        false => {
            Err(refusal("comparisons of rows make too large an expression", "join with the rows instead"))
        }
    }
}

fn distinct(left: &[&Expr], right: &[&Expr], is_distinct: bool) -> Expr {
    let pair = |(left, right): (&&Expr, &&Expr)| {
        let (left, right) = (Box::new((*left).clone()), Box::new((*right).clone()));
        Expr::Nested(Box::new(match is_distinct {
            true => Expr::IsDistinctFrom(left, right),
            false => Expr::IsNotDistinctFrom(left, right),
        }))
    };
    let op = if is_distinct { BinaryOperator::Or } else { BinaryOperator::And };
    let mut pairs = left.iter().zip(right).map(pair);
    let first = pairs.next().unwrap_or_else(|| Expr::value(Value::Null));
    pairs.fold(first, |made, pair| binary(made, op.clone(), pair))
}

/// Returns the elements of a constant list that is written as a text, `'{1,2}'::int[]`; `None` for another expression.
///
/// # Errors
/// Fails for a text that is not a list.
fn elements(list: &Expr, copied: &mut usize) -> Result<Option<Vec<Expr>>> {
    let (text, element) = match list {
        Expr::Nested(inner) => return elements(inner, copied),
        Expr::Cast {
            expr: value,
            data_type: DataType::Array(ArrayElemTypeDef::SquareBracket(element, _)),
            ..
        } => match &**value {
            Expr::Value(ValueWithSpan { value: Value::SingleQuotedString(text), .. }) => (text, element),
            _ => return Ok(None),
        },
        _ => return Ok(None),
    };
    let wrong = || refusal(&format!("malformed array literal: \"{}\"", brief(text)), "write '{1,2}'");
    let element = |text: Option<String>| Expr::Cast {
        kind: CastKind::DoubleColon,
        expr: Box::new(Expr::value(text.map_or(Value::Null, Value::SingleQuotedString))),
        data_type: (**element).clone(),
        array: false,
        format: None,
    };
    let elements = elements_of_text(text).ok_or_else(wrong)?;
    // Each becomes a node of the statement, many times as large as its text. The lists of a statement count together.
    *copied = copied.saturating_add(elements.len());
    if *copied > limits::SQL_NODES_MAX {
        let what = format!("lists of {copied} values; a statement may compare {}", limits::SQL_NODES_MAX);
        return Err(refusal(&what, "load the values as a table, and join with it"));
    }
    Ok(Some(elements.into_iter().map(element).collect()))
}

fn list_of(elements: Vec<Expr>) -> Expr {
    Expr::Array(Array { elem: elements, named: true })
}

/// Returns the condition that a value is among these elements, of which there may be none.
pub(super) fn in_list(value: &Expr, list: Vec<Expr>, negated: bool) -> Expr {
    match list.is_empty() {
        true => Expr::value(Value::Boolean(negated)),
        false => Expr::Nested(Box::new(Expr::InList { expr: Box::new(value.clone()), list, negated })),
    }
}

/// Returns the condition for `x = ANY(list)`, for any comparison operator; `None` for a subquery.
pub(super) fn of_list(left: &Expr, op: &BinaryOperator, right: &Expr) -> Option<Expr> {
    use BinaryOperator::{Eq, Gt, GtEq, Lt, LtEq, NotEq};
    let mut list = right;
    while let Expr::Nested(inner) = list {
        list = inner;
    }
    let opposite = match op {
        _ if matches!(list, Expr::Subquery(_)) => return None,
        Eq => NotEq,
        NotEq => Eq,
        Lt => GtEq,
        LtEq => Gt,
        Gt => LtEq,
        GtEq => Lt,
        _ => return None,
    };
    if let (Eq, Expr::Array(array)) = (op, list)
        && !array.elem.is_empty()
    {
        let (expr, list) = (Box::new(left.clone()), array.elem.clone());
        return Some(Expr::Nested(Box::new(Expr::InList { expr, list, negated: false })));
    }
    let all =
        Expr::AllOp { left: Box::new(left.clone()), compare_op: opposite, right: Box::new(right.clone()) };
    Some(negated_if(true, all))
}

fn negated_if(is_negated: bool, expr: Expr) -> Expr {
    match is_negated {
        true => Expr::Nested(Box::new(Expr::UnaryOp {
            op: UnaryOperator::Not,
            expr: Box::new(Expr::Nested(Box::new(expr))),
        })),
        false => expr,
    }
}

fn binary(left: Expr, op: BinaryOperator, right: Expr) -> Expr {
    Expr::Nested(Box::new(Expr::BinaryOp { left: Box::new(left), op, right: Box::new(right) }))
}

/// Combines expressions by AND or OR to a balanced tree, because a chain would be deeper.
fn joined(mut each: Vec<Expr>, op: &BinaryOperator) -> Option<Expr> {
    while each.len() > 1 {
        let mut pairs = each.into_iter();
        let mut next = Vec::new();
        while let Some(left) = pairs.next() {
            next.push(match pairs.next() {
                Some(right) => binary(left, op.clone(), right),
                None => left,
            });
        }
        each = next;
    }
    each.pop()
}
