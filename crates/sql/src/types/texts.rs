//! Constant texts that stand for values of other types, where they are compared with such a value or cast to its type:
//! lists have PostgreSQL's form, `'{1,2}'`, and bytes that of PostgreSQL or DuckDB, `'\x0aff'` or `'a\x0A'`. DataFusion 55.2
//! compares no text with a list, casts a text to a list of that text, and takes the characters for the bytes. A text that
//! is not constant is not cast to a list.

use super::times::constant_text;
use crate::error::wrap;
use arrow_array::{ArrayRef, ListArray, StringArray};
use arrow_buffer::OffsetBuffer;
use arrow_cast::{CastOptions, cast_with_options};
use arrow_schema::{DataType, FieldRef};
use datafusion::common::tree_node::Transformed;
use datafusion::common::{DFSchema, DataFusionError, Result, ScalarValue};
use datafusion::logical_expr::expr::Cast;
use datafusion::logical_expr::planner::{ExprPlanner, PlannerResult, RawBinaryExpr};
use datafusion::logical_expr::{
    BinaryExpr, Expr, ExprSchemable, Operator, binary_expr, cast as logical_cast, lit,
};
use datafusion::sql::sqlparser::ast::BinaryOperator;
use farpool_model::{Error, brief, sql_name};
use farpool_postgres::values::{bytes_of_text, elements_of_text};
use std::sync::Arc;

/// Plans operations with a constant text, whose types the engine asks for while it plans, before the rule: comparisons with a
/// list, and the difference from a date or a timestamp.
#[derive(Debug)]
pub(super) struct ConstantTexts;

impl ExprPlanner for ConstantTexts {
    fn plan_binary_op(
        &self,
        expr: RawBinaryExpr,
        columns: &DFSchema,
    ) -> Result<PlannerResult<RawBinaryExpr>> {
        let is_one = constant_text(&expr.left).is_some() || constant_text(&expr.right).is_some();
        let op = match expr.op {
            _ if !is_one => return Ok(PlannerResult::Original(expr)),
            BinaryOperator::Minus => return Ok(difference(expr, columns)),
            BinaryOperator::Eq => Operator::Eq,
            BinaryOperator::NotEq => Operator::NotEq,
            BinaryOperator::Lt => Operator::Lt,
            BinaryOperator::LtEq => Operator::LtEq,
            BinaryOperator::Gt => Operator::Gt,
            BinaryOperator::GtEq => Operator::GtEq,
            _ => return Ok(PlannerResult::Original(expr)),
        };
        let RawBinaryExpr { left, right, .. } = expr.clone();
        let read = operands(BinaryExpr::new(Box::new(left), op, Box::new(right)), columns)?;
        Ok(match read.transformed {
            true => PlannerResult::Planned(Expr::BinaryExpr(read.data)),
            false => PlannerResult::Original(expr),
        })
    }
}

/// Plans a difference: the text is a date or a timestamp if the other operand is one.
fn difference(expr: RawBinaryExpr, columns: &DFSchema) -> PlannerResult<RawBinaryExpr> {
    let of_time = |text: &Expr, other: &Expr| {
        let to = other.get_type(columns).ok()?;
        let is_time = matches!(to, DataType::Date32 | DataType::Timestamp(..));
        constant_text(text).filter(|_| is_time).map(|_| logical_cast(text.clone(), to))
    };
    let (left, right) = match (of_time(&expr.left, &expr.right), of_time(&expr.right, &expr.left)) {
        (Some(left), _) => (left, expr.right),
        (None, Some(right)) => (expr.left, right),
        (None, None) => return PlannerResult::Original(expr),
    };
    PlannerResult::Planned(binary_expr(left, Operator::Minus, right))
}

/// Replaces a constant text by a list or by bytes, if the other side of the comparison is one.
pub(super) fn operands(binary: BinaryExpr, columns: &DFSchema) -> Result<Transformed<BinaryExpr>> {
    let BinaryExpr { left, op, right } = binary;
    let beside = |text: &Expr, other: &Expr| match constant_text(text) {
        Some(text) => match other.get_type(columns).unwrap_or(DataType::Null) {
            DataType::List(element) => list(text, &element).map(Some),
            data_type if is_of_bytes(&data_type) => bytes(text).map(Some),
            _ => Ok(None),
        },
        None => Ok(None),
    };
    if let Some(left) = beside(&left, &right)? {
        return Ok(Transformed::yes(BinaryExpr::new(Box::new(left), op, right)));
    }
    if let Some(right) = beside(&right, &left)? {
        return Ok(Transformed::yes(BinaryExpr::new(left, op, Box::new(right))));
    }
    Ok(Transformed::no(BinaryExpr::new(left, op, right)))
}

/// Replaces the cast of a constant text to a list or to bytes by these.
///
/// # Errors
/// Fails for a text that is not constant, or not a list.
pub(super) fn cast(cast: Cast, columns: &DFSchema) -> Result<Transformed<Expr>> {
    if is_of_bytes(cast.field.data_type())
        && let Some(text) = constant_text(&cast.expr)
    {
        let read = bytes(text)?;
        return Ok(Transformed::yes(Expr::Cast(Cast { expr: Box::new(read), ..cast })));
    }
    let DataType::List(element) = cast.field.data_type() else {
        return Ok(Transformed::no(Expr::Cast(cast)));
    };
    if let Some(text) = constant_text(&cast.expr) {
        return list(text, element).map(Transformed::yes);
    }
    match cast.expr.get_type(columns)? {
        DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View => {
            let error = Error::invalid(format!(
                "only a constant text is cast to {}",
                sql_name(cast.field.data_type())
            ));
            Err(wrap(error.advise(
                "use string_to_array(text, ',') and cast its result, or [x] for a list of one value",
            )))
        }
        _ => Ok(Transformed::no(Expr::Cast(cast))),
    }
}

fn is_of_bytes(data_type: &DataType) -> bool {
    matches!(data_type, DataType::Binary | DataType::LargeBinary | DataType::BinaryView)
}

/// Reads bytes.
fn bytes(text: &str) -> Result<Expr> {
    let wrong = || {
        let error = Error::invalid(format!("invalid input syntax for type blob: \"{}\"", brief(text)));
        wrap(error.advise("write bytes as '\\x0aff'"))
    };
    let read = bytes_of_text(text).or_else(|| bytes_with_escapes(text)).ok_or_else(wrong)?;
    Ok(lit(ScalarValue::Binary(Some(read))))
}

/// Reads a text in which `\x` and two digits are a byte, as in DuckDB.
fn bytes_with_escapes(text: &str) -> Option<Vec<u8>> {
    let (mut out, mut rest) = (Vec::with_capacity(text.len()), text);
    while let Some((before, behind)) = rest.split_once("\\x") {
        out.extend_from_slice(before.as_bytes());
        out.push(u8::from_str_radix(behind.get(..2)?, 16).ok()?);
        rest = &behind[2..];
    }
    out.extend_from_slice(rest.as_bytes());
    (!rest.contains('\\')).then_some(out)
}

/// Reads a list whose elements have this type.
fn list(text: &str, element: &FieldRef) -> Result<Expr> {
    let wrong = || {
        wrap(
            Error::invalid(format!("malformed array literal: \"{}\"", brief(text)))
                .advise("a list is written as '{1,2}' in a text, or as [1, 2]"),
        )
    };
    let elements = elements_of_text(text).ok_or_else(wrong)?;
    let texts: ArrayRef = Arc::new(StringArray::from(elements));
    let options = CastOptions { safe: false, ..CastOptions::default() };
    let values = cast_with_options(&texts, element.data_type(), &options)
        .map_err(|error| DataFusionError::ArrowError(Box::new(error), None))?;
    let list =
        ListArray::try_new(Arc::clone(element), OffsetBuffer::from_lengths([values.len()]), values, None)
            .map_err(|error| DataFusionError::ArrowError(Box::new(error), None))?;
    Ok(lit(ScalarValue::List(Arc::new(list))))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_read_in_both_forms() {
        let read = |text| match bytes(text) {
            Ok(Expr::Literal(ScalarValue::Binary(bytes), _)) => bytes,
            _ => None,
        };
        assert_eq!(read("\\x0aFF").as_deref(), Some(&[10, 255][..]));
        assert_eq!(read("a\\x0A\\xffb").as_deref(), Some(&[97, 10, 255, 98][..]));
        assert_eq!(read("a\\\\b\\001").as_deref(), Some(&[97, 92, 98, 1][..]));
        assert_eq!(read("é").as_deref(), Some("é".as_bytes()));
        assert_eq!((read("\\x0"), read("\\xgg"), read("\\x1é")), (None, None, None));
    }
}
