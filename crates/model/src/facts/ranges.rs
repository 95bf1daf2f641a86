//! Ranges of integer values, computed in 128 bits, and the operations that may fail for values in these ranges.

use super::Facts;
use crate::date_part::units_per_day;
use crate::literal::integer_range;
use crate::{ArithmeticOp, DatePart, Expr, Value, schema};
use arrow_schema::{DECIMAL128_MAX_SCALE, DataType};

/// The minimum and maximum of a set of integers.
pub(super) type Range = (i128, i128);

/// Days before and after 1970 that calendar code can always represent: some 260,000 years.
const CALENDAR_DAYS: i128 = DatePart::CALENDAR_DAYS as i128;
/// Years before and after 1970 that calendar code represents at most; others are NULL.
const CALENDAR_YEARS: i64 = 262_144;

/// Returns whether the root of `expr` may fail for values for which its children do not.
pub(super) fn node_may_fail(expr: &Expr, data_type: &DataType, children: &[&Facts]) -> bool {
    match (expr, children) {
        (Expr::Arithmetic(op, ..), [left, right]) => arithmetic_may_fail(*op, left, right, data_type),
        (Expr::Negate(_), [value]) if !data_type.is_floating() => {
            outside(value.range.and_then(negative), data_type)
        }
        (Expr::Cast(_, to), [value]) => cast_may_fail(value, to),
        _ => false,
    }
}

fn arithmetic_may_fail(op: ArithmeticOp, left: &Facts, right: &Facts, result: &DataType) -> bool {
    if left.data_type.is_floating() {
        return false;
    }
    let (Some(l), Some(r)) = (left.range, right.range) else { return true };
    let is_decimal = matches!(left.data_type, DataType::Decimal128(..));
    match op {
        ArithmeticOp::Add | ArithmeticOp::Subtract | ArithmeticOp::Multiply => {}
        ArithmeticOp::Divide | ArithmeticOp::Modulo if holds(r, 0) => return true,
        ArithmeticOp::Divide if is_decimal => {}
        ArithmeticOp::Divide => {
            let least = integer_range(&left.data_type).map_or(i128::MIN, |(min, _)| min);
            // Dividing the least integer by -1 overflows, because its negation does not fit the type.
            return least < 0 && holds(r, -1) && holds(l, least);
        }
        ArithmeticOp::Modulo if is_decimal => {}
        ArithmeticOp::Modulo => return false,
    }
    let exact = decimal_result(op, (l, scale(&left.data_type)), (r, scale(&right.data_type)));
    match op {
        // A remainder is no larger than either side, and so fits the digits of the narrower one.
        ArithmeticOp::Modulo => exact.is_none(),
        ArithmeticOp::Add | ArithmeticOp::Subtract | ArithmeticOp::Multiply | ArithmeticOp::Divide => {
            outside(exact, result)
        }
    }
}

/// Returns the range of an operation on unscaled decimals with these scales; `None` if a step may overflow 128 bits.
fn decimal_result(op: ArithmeticOp, (l, s1): (Range, i16), (r, s2): (Range, i16)) -> Option<Range> {
    match op {
        ArithmeticOp::Add | ArithmeticOp::Subtract | ArithmeticOp::Modulo => {
            let common = s1.max(s2);
            let (l, r) = (times(l, ten_to(common - s1)?)?, times(r, ten_to(common - s2)?)?);
            match op {
                ArithmeticOp::Add => Some((l.0.checked_add(r.0)?, l.1.checked_add(r.1)?)),
                ArithmeticOp::Subtract => Some((l.0.checked_sub(r.1)?, l.1.checked_sub(r.0)?)),
                _ => symmetric(l),
            }
        }
        ArithmeticOp::Multiply => product(l, r),
        ArithmeticOp::Divide => {
            let power = (s1 + 4).min(i16::from(DECIMAL128_MAX_SCALE)) - s1 + s2;
            let (l, r) = match power {
                0.. => (times(l, ten_to(power)?)?, r),
                _ => (l, times(r, ten_to(-power)?)?),
            };
            symmetric(l).filter(|_| !holds(r, 0))
        }
    }
}

/// Returns whether Arrow's cast kernel may fail for a value in the range of `from`. A test compares both.
fn cast_may_fail(from: &Facts, to: &DataType) -> bool {
    use DataType::{BinaryView, Boolean, Date32, Decimal128, Float32, Float64, Timestamp, Utf8View};
    let source = &from.data_type;
    if source == to {
        return false;
    }
    let is_number = schema::is_numeric(source);
    match (source, to) {
        (Utf8View, BinaryView) => false,
        (Utf8View | BinaryView, _) => true,
        (Boolean, to) => !(to.is_numeric() && !matches!(to, Decimal128(..)) || *to == Utf8View),
        (_, Boolean) => !is_number,
        (_, Float32 | Float64) => !(is_number || matches!(source, Timestamp(..))),
        (_, Utf8View) if is_number => false,
        _ => from.range.is_none_or(|range| match (source, to) {
            (Date32, to) if to.is_integer() => outside(Some(range), to),
            (Date32, Utf8View) => range.0 < -CALENDAR_DAYS || range.1 > CALENDAR_DAYS,
            (Date32, Timestamp(unit, None)) => outside(times(range, units_per_day(*unit).into()), to),
            (Timestamp(unit, None), Date32 | Utf8View) => {
                let most = CALENDAR_DAYS * i128::from(units_per_day(*unit));
                range.0 < -most || range.1 > most
            }
            (Timestamp(_, None), Timestamp(_, Some(_))) => true,
            (Timestamp(old, _), Timestamp(new, _)) => {
                let factor = units_per_day(*new) / units_per_day(*old);
                outside(times(range, factor.max(1).into()), to)
            }
            (_, Decimal128(..)) if *source != Date32 => outside(rescaled(range, source, to, true), to),
            (source, to) if is_number || (matches!(source, Timestamp(..)) && to.is_integer()) => {
                outside(rescaled(range, source, to, false), to)
            }
            _ => true,
        }),
    }
}

/// Converts the range to the scale of another type; digits that do not fit are rounded (`rounds`) or truncated.
fn rescaled(range: Range, from: &DataType, to: &DataType, rounds: bool) -> Option<Range> {
    match scale(to) - scale(from) {
        digits @ 0.. => times(range, ten_to(digits)?),
        digits => {
            let Some(divisor) = ten_to(-digits) else { return Some((0, 0)) };
            let half = if rounds { divisor / 2 } else { 0 };
            Some((range.0.checked_sub(half)? / divisor, range.1.checked_add(half)? / divisor))
        }
    }
}

/// Returns the range of the values of `expr` on rows where it does not fail; `None` if it is not known.
pub(super) fn range_of(expr: &Expr, data_type: &DataType, children: &[&Facts]) -> Option<Range> {
    let all = type_range(data_type)?;
    let within = |range: Option<Range>| {
        let cut = range.map(|(min, max)| (min.max(all.0), max.min(all.1)));
        // The range is empty if evaluation fails on every row; then the range of the type is as good as any.
        cut.filter(|(min, max)| min <= max).unwrap_or(all)
    };
    Some(match (expr, children) {
        (Expr::Literal(literal), _) => match literal.value() {
            Value::Int(value) => (*value, *value),
            _ => all,
        },
        (Expr::Arithmetic(op, ..), [left, right]) => {
            let sides = left.range.zip(right.range);
            let (s1, s2) = (scale(&left.data_type), scale(&right.data_type));
            within(sides.and_then(|(l, r)| match op {
                ArithmeticOp::Divide | ArithmeticOp::Modulo if data_type.is_integer() => symmetric(l),
                op => decimal_result(*op, (l, s1), (r, s2)),
            }))
        }
        (Expr::Negate(_), [value]) => within(value.range.and_then(negative)),
        (Expr::Cast(..), [value]) if is_exact(data_type) && is_exact(&value.data_type) => {
            let rounds = !data_type.is_integer();
            within(value.range.and_then(|range| rescaled(range, &value.data_type, data_type, rounds)))
        }
        (Expr::Extract(part, _), [value]) => extract_range(*part, value)?,
        (Expr::Case { .. }, [_, values @ ..]) => {
            // The children alternate between conditions and values, and the last is a value.
            let values = values.iter().step_by(2).chain(values.last()).filter(|v| v.data_type == *data_type);
            let ranges = values.map(|value| value.range).collect::<Option<Vec<Range>>>()?;
            ranges.into_iter().reduce(|a, b| (a.0.min(b.0), a.1.max(b.1)))?
        }
        _ => all,
    })
}

/// Returns the range of a part of times; values that are NULL because the calendar ends before them do not count.
fn extract_range(part: DatePart, times: &Facts) -> Option<Range> {
    let units_per_day = DatePart::units_per_day(&times.data_type)?;
    let known = times.range.and_then(|(first, last)| Some((first.try_into().ok()?, last.try_into().ok()?)));
    let range = match known {
        Some(times) if DatePart::are_of_calendar(times, units_per_day) => part.range(times, units_per_day),
        _ if matches!(part, DatePart::Year | DatePart::IsoYear) => (-CALENDAR_YEARS, CALENDAR_YEARS),
        // The other parts have the same range over all times.
        _ => part.range((0, 0), 1),
    };
    Some((range.0.into(), range.1.into()))
}

fn is_exact(data_type: &DataType) -> bool {
    data_type.is_integer() || matches!(data_type, DataType::Decimal128(..))
}

fn negative((min, max): Range) -> Option<Range> {
    Some((max.checked_neg()?, min.checked_neg()?))
}

/// Returns the range of a type whose values are stored as integers (for a decimal, the range of its precision); `None`
/// for other types.
fn type_range(data_type: &DataType) -> Option<Range> {
    match data_type {
        DataType::Decimal128(precision, _) => {
            let most = ten_to(i16::from(*precision))? - 1;
            Some((-most, most))
        }
        other => integer_range(other),
    }
}

fn outside(range: Option<Range>, data_type: &DataType) -> bool {
    match (range, type_range(data_type)) {
        (Some((min, max)), Some((least, greatest))) => min < least || max > greatest,
        _ => true,
    }
}

fn holds((min, max): Range, value: i128) -> bool {
    min <= value && value <= max
}

fn times(range: Range, factor: i128) -> Option<Range> {
    Some((range.0.checked_mul(factor)?, range.1.checked_mul(factor)?))
}

/// Returns the range of all values that are no farther from zero than those of `range`; `None` for the minimum of
/// 128-bit integers, which cannot be negated.
fn symmetric(range: Range) -> Option<Range> {
    let most = range.0.checked_abs()?.max(range.1.checked_abs()?);
    Some((-most, most))
}

fn product(l: Range, r: Range) -> Option<Range> {
    let corners =
        [l.0.checked_mul(r.0)?, l.0.checked_mul(r.1)?, l.1.checked_mul(r.0)?, l.1.checked_mul(r.1)?];
    Some((*corners.iter().min()?, *corners.iter().max()?))
}

fn scale(data_type: &DataType) -> i16 {
    match data_type {
        DataType::Decimal128(_, scale) => i16::from(*scale),
        _ => 0,
    }
}

fn ten_to(digits: i16) -> Option<i128> {
    10_i128.checked_pow(u32::try_from(digits).ok()?)
}
