//! Evaluates compiled expressions on decoded values: each kind of expression node by one of Arrow's kernels, or
//! by one of this file.

use super::compile::{Compiled, Node, Overflow};
use super::frame::{Evaluated, Frame};
use crate::failure;
use arrow_arith::{boolean, numeric, temporal};
use arrow_array::cast::AsArray;
use arrow_array::types::{Float32Type, Float64Type, Int64Type};
use arrow_array::{Array, ArrayRef, BooleanArray, Datum, new_null_array};
use arrow_buffer::{BooleanBuffer, BooleanBufferBuilder, NullBuffer};
use arrow_cast::{CastOptions, cast_with_options};
use arrow_ord::cmp;
use arrow_schema::{ArrowError, DataType};
use arrow_select::filter::prep_null_mask_filter;
use arrow_select::interleave::interleave;
use arrow_select::zip::zip;
use farpool_model::{ArithmeticOp, CompareOp, DatePart, Error, KeyFilter, Result};
use farpool_statistics::keys;
use std::sync::Arc;

type Kernel<T> = fn(&dyn Datum, &dyn Datum) -> Result<T, ArrowError>;

/// Evaluates `compiled` over `frame`, which must have at least one row.
pub(super) fn evaluate(compiled: &Compiled, frame: &Frame) -> Result<Evaluated> {
    match &compiled.node {
        Node::Column(index) => Ok(Evaluated::Array(frame.column(*index)?.clone())),
        Node::Literal(array) => Ok(Evaluated::Scalar(array.clone())),
        Node::Compare(op, l, r) => {
            let (l, r) = (one_zero(l.evaluate(frame)?), one_zero(r.evaluate(frame)?));
            let result = compare_kernel(*op)(&l, &r).map_err(failure::of_kernel)?;
            Ok(Evaluated::like(&[&l, &r], Arc::new(result)))
        }
        Node::And(parts) => connect(parts, frame, false),
        Node::Or(parts) => connect(parts, frame, true),
        Node::Not(e) => {
            let e = e.evaluate(frame)?;
            let result = boolean::not(e.inner().as_boolean()).map_err(failure::of_kernel)?;
            Ok(Evaluated::like(&[&e], Arc::new(result)))
        }
        Node::IsNull(e) => {
            let e = e.evaluate(frame)?;
            let result = boolean::is_null(e.inner()).map_err(failure::of_kernel)?;
            Ok(Evaluated::like(&[&e], Arc::new(result)))
        }
        Node::InList(e, members) => {
            let e = e.evaluate(frame)?;
            let result = members.test(e.inner())?;
            Ok(Evaluated::like(&[&e], Arc::new(result)))
        }
        Node::InFilter(values, filter) => {
            let values = values.iter().map(|e| e.array(frame)).collect::<Result<Vec<_>>>()?;
            may_have(filter, &values).map(Evaluated::Array)
        }
        Node::Pieces(value, pieces) => {
            let value = value.evaluate(frame)?;
            let result = matches(value.inner(), |text| pieces.is_match(text.as_bytes()));
            Ok(Evaluated::like(&[&value], Arc::new(result)))
        }
        Node::Regex(value, pattern) => {
            let value = value.evaluate(frame)?;
            let result = matches(value.inner(), |text| pattern.is_match(text));
            Ok(Evaluated::like(&[&value], Arc::new(result)))
        }
        Node::Arithmetic(op, l, r, overflow) => {
            let (l, r) = (l.evaluate(frame)?, r.evaluate(frame)?);
            let result = match overflow {
                Overflow::Impossible => unchecked(*op)(&l, &r).map_err(failure::of_data)?,
                Overflow::Checked => farpool_statistics::arithmetic(*op, &l, &r)?,
            };
            Ok(Evaluated::like(&[&l, &r], result))
        }
        Node::Negate(e, overflow) => {
            let e = e.evaluate(frame)?;
            let result = match overflow {
                Overflow::Impossible => numeric::neg_wrapping(e.inner()).map_err(failure::of_data)?,
                Overflow::Checked => farpool_statistics::negative(e.inner())?,
            };
            Ok(Evaluated::like(&[&e], result))
        }
        Node::Cast(e) => {
            let e = e.evaluate(frame)?;
            let options = CastOptions { safe: false, ..Default::default() };
            let result =
                cast_with_options(e.inner(), compiled.data_type(), &options).map_err(failure::of_data)?;
            Ok(Evaluated::like(&[&e], result))
        }
        Node::Extract(part, e) => {
            let e = e.evaluate(frame)?;
            let result = extract(*part, e.inner())?;
            Ok(Evaluated::like(&[&e], result))
        }
        Node::Case { branches, otherwise } => {
            let fallible = branches.iter().any(|(when, then)| when.is_fallible() || then.is_fallible())
                || otherwise.as_ref().is_some_and(|e| e.is_fallible());
            let kernel = if fallible { case_by_rows } else { case_at_once };
            kernel(compiled, branches, otherwise.as_deref(), frame).map(Evaluated::Array)
        }
    }
}

/// Returns for each row whether its combination of values may be a join key in `filter` (false positives are
/// possible); NULL where one of the values is NULL.
fn may_have(filter: &KeyFilter, values: &[ArrayRef]) -> Result<ArrayRef> {
    let hashes = keys::of_rows(values)?;
    let hits = BooleanBuffer::collect_bool(hashes.len(), |row| filter.contains(hashes[row]));
    let nulls = values
        .iter()
        .fold(None, |all, array| NullBuffer::union(all.as_ref(), array.logical_nulls().as_ref()));
    Ok(Arc::new(BooleanArray::new(hits, nulls)))
}

/// Returns a part of each time; NULL for times beyond the calendar.
fn extract(part: DatePart, times: &ArrayRef) -> Result<ArrayRef> {
    let wrong = || Error::internal("a part of other values than times");
    let units_per_day = DatePart::units_per_day(times.data_type()).ok_or_else(wrong)?;
    let counts: ArrayRef = match times.data_type() {
        DataType::Date32 => cast(&cast(times, &DataType::Int32)?, &DataType::Int64)?,
        _ => cast(times, &DataType::Int64)?,
    };
    let counts = counts.as_primitive::<Int64Type>();
    // The values of NULLs count here, too, because the loop below computes with them.
    let range = counts
        .values()
        .iter()
        .fold((i64::MAX, i64::MIN), |(least, greatest), count| (least.min(*count), greatest.max(*count)));
    if DatePart::are_of_calendar(range, units_per_day) {
        return Ok(Arc::new(counts.unary::<_, Int64Type>(|count| part.of(count, units_per_day))));
    }
    let part = match part {
        DatePart::Year => temporal::DatePart::Year,
        DatePart::IsoYear => temporal::DatePart::YearISO,
        DatePart::Quarter => temporal::DatePart::Quarter,
        DatePart::Month => temporal::DatePart::Month,
        DatePart::Week => temporal::DatePart::Week,
        DatePart::Day => temporal::DatePart::Day,
        DatePart::DayOfYear => temporal::DatePart::DayOfYear,
        DatePart::DayOfWeek => temporal::DatePart::DayOfWeekSunday0,
        DatePart::IsoDayOfWeek => temporal::DatePart::DayOfWeekMonday1,
        DatePart::Hour => temporal::DatePart::Hour,
        DatePart::Minute => temporal::DatePart::Minute,
        DatePart::Second => temporal::DatePart::Second,
    };
    cast(&temporal::date_part(times, part).map_err(failure::of_kernel)?, &DataType::Int64)
}

/// Casts values to a type that has all of them.
fn cast(values: &ArrayRef, to: &DataType) -> Result<ArrayRef> {
    arrow_cast::cast(values, to).map_err(failure::of_kernel)
}

/// Applies `is_match` to each string that is not NULL.
fn matches(array: &ArrayRef, is_match: impl Fn(&str) -> bool) -> BooleanArray {
    let strings = array.as_string_view();
    let nulls = strings.nulls().filter(|nulls| nulls.null_count() > 0);
    let test = |row| nulls.is_none_or(|nulls| nulls.is_valid(row)) && is_match(strings.value(row));
    BooleanArray::new(BooleanBuffer::collect_bool(strings.len(), test), nulls.cloned())
}

/// Replaces -0.0 by 0.0 in floats, because they are equal in SQL but not in Arrow's comparisons.
fn one_zero(values: Evaluated) -> Evaluated {
    let map = |array: &ArrayRef| -> Option<ArrayRef> {
        Some(match array.data_type() {
            DataType::Float32 => {
                Arc::new(array.as_primitive::<Float32Type>().unary::<_, Float32Type>(plus_zero32))
            }
            DataType::Float64 => {
                Arc::new(array.as_primitive::<Float64Type>().unary::<_, Float64Type>(plus_zero))
            }
            _ => return None,
        })
    };
    match map(values.inner()) {
        Some(array) if matches!(values, Evaluated::Scalar(_)) => Evaluated::Scalar(array),
        Some(array) => Evaluated::Array(array),
        None => values,
    }
}

/// Returns 0.0 for -0.0, and any other value unchanged.
pub(super) fn plus_zero(value: f64) -> f64 {
    if value == 0.0 { 0.0 } else { value }
}

fn plus_zero32(value: f32) -> f32 {
    if value == 0.0 { 0.0 } else { value }
}

fn compare_kernel(op: CompareOp) -> Kernel<BooleanArray> {
    match op {
        CompareOp::Eq => cmp::eq,
        CompareOp::NotEq => cmp::neq,
        CompareOp::Lt => cmp::lt,
        CompareOp::LtEq => cmp::lt_eq,
        CompareOp::Gt => cmp::gt,
        CompareOp::GtEq => cmp::gt_eq,
    }
}

/// Returns Arrow's kernel without overflow checks. The caller must know that all results fit their type.
fn unchecked(op: ArithmeticOp) -> Kernel<ArrayRef> {
    match op {
        ArithmeticOp::Add => numeric::add_wrapping,
        ArithmeticOp::Subtract => numeric::sub_wrapping,
        ArithmeticOp::Multiply => numeric::mul_wrapping,
        ArithmeticOp::Divide => numeric::div,
        ArithmeticOp::Modulo => numeric::rem,
    }
}

/// Evaluates a three-valued AND (`absorbing` is false) or OR (`absorbing` is true). An operand with the value
/// `absorbing` decides the result of its row. Operands that may fail are evaluated only on rows that earlier operands
/// have not decided.
fn connect(parts: &[Compiled], frame: &Frame, absorbing: bool) -> Result<Evaluated> {
    let kernel = if absorbing { boolean::or_kleene } else { boolean::and_kleene };
    let mut sofar: Option<BooleanArray> = None;
    for part in parts {
        let next = match &sofar {
            Some(decided) if part.is_fallible() => {
                on_undecided(part, frame, &undecided(decided, absorbing), absorbing)?
            }
            _ => part.array(frame)?.as_boolean().clone(),
        };
        sofar = Some(match sofar {
            Some(sofar) => kernel(&sofar, &next).map_err(failure::of_kernel)?,
            None => next,
        });
    }
    let result = sofar.ok_or_else(|| farpool_model::Error::internal("AND or OR of nothing"))?;
    Ok(Evaluated::Array(Arc::new(result)))
}

/// Returns a mask of the rows whose value in `decided` is not `absorbing`.
fn undecided(decided: &BooleanArray, absorbing: bool) -> BooleanArray {
    let values = if absorbing { decided.values().clone() } else { !decided.values() };
    let decided = match decided.nulls() {
        Some(nulls) => &values & nulls.inner(),
        None => values,
    };
    BooleanArray::new(!&decided, None)
}

fn on_undecided(part: &Compiled, frame: &Frame, mask: &BooleanArray, fill: bool) -> Result<BooleanArray> {
    if mask.true_count() == mask.len() {
        return Ok(part.array(frame)?.as_boolean().clone());
    }
    let values = part.array(&frame.filter(mask, part.columns())?)?;
    Ok(scatter(mask, values.as_boolean(), fill))
}

/// Returns an array that has `values` in the rows where `mask` is true, in order, and `fill` in the others.
fn scatter(mask: &BooleanArray, values: &BooleanArray, fill: bool) -> BooleanArray {
    let place = |source: &BooleanBuffer, fill: bool| {
        let mut out = BooleanBufferBuilder::new(mask.len());
        out.append_n(mask.len(), fill);
        mask.values().set_indices().enumerate().for_each(|(i, row)| out.set_bit(row, source.value(i)));
        out.finish()
    };
    let nulls = values.nulls().map(|nulls| NullBuffer::new(place(nulls.inner(), true)));
    BooleanArray::new(place(values.values(), fill), nulls)
}

type Branches = [(Compiled, Compiled)];

/// Evaluates a CASE whose operands cannot fail, each on all rows. The results are combined from the last branch to
/// the first.
fn case_at_once(
    case: &Compiled,
    branches: &Branches,
    otherwise: Option<&Compiled>,
    frame: &Frame,
) -> Result<ArrayRef> {
    let mut result = match otherwise {
        Some(otherwise) => otherwise.evaluate(frame)?,
        None => Evaluated::Scalar(new_null_array(case.data_type(), 1)),
    };
    for (when, then) in branches.iter().rev() {
        let mask = truth(&when.array(frame)?);
        let then = then.evaluate(frame)?;
        result = Evaluated::Array(zip(&mask, &then, &result).map_err(failure::of_kernel)?);
    }
    result.into_array(frame.rows())
}

/// Evaluates a CASE with operands that may fail, each only on the rows that no earlier branch has taken.
fn case_by_rows(
    case: &Compiled,
    branches: &Branches,
    otherwise: Option<&Compiled>,
    frame: &Frame,
) -> Result<ArrayRef> {
    let rows = frame.rows();
    let mut arrays: Vec<ArrayRef> = vec![new_null_array(case.data_type(), 1)];
    let mut places = vec![(0_usize, 0_usize); rows];
    let mut remaining = BooleanArray::new(BooleanBuffer::new_set(rows), None);
    let mut give = |mask: &BooleanArray, value: &Compiled| -> Result<()> {
        let array = value.array(&frame.filter(mask, value.columns())?)?;
        let rows = mask.values().set_indices().enumerate();
        rows.for_each(|(i, row)| places[row] = (arrays.len(), i));
        arrays.push(array);
        Ok(())
    };
    for (when, then) in branches {
        if remaining.true_count() == 0 {
            break;
        }
        let holds = on_undecided(when, frame, &remaining, false)?;
        let taken = truth(&(Arc::new(holds) as ArrayRef));
        give(&taken, then)?;
        remaining = BooleanArray::new(remaining.values() & &!taken.values(), None);
    }
    if let Some(otherwise) = otherwise {
        give(&remaining, otherwise)?;
    }
    let arrays: Vec<&dyn Array> = arrays.iter().map(AsRef::as_ref).collect();
    interleave(&arrays, &places).map_err(failure::of_kernel)
}

/// Returns a mask of the rows where a boolean is true (neither false nor NULL).
pub(crate) fn truth(array: &ArrayRef) -> BooleanArray {
    let array = array.as_boolean();
    if array.nulls().is_some() { prep_null_mask_filter(array) } else { array.clone() }
}
