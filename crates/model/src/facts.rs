//! What is known of an expression's values before any row is read: their type, the range of integers, and
//! whether computing them may fail on some row.
//!
//! Whoever decides by one of these asks here, so that a node's answer, the order in which its operators evaluate
//! and what an engine expects agree. One pass from the leaves up, in time linear in the expression.
//!
//! Invariant: if `may_fail` is false, then no row makes Arrow's kernels fail, provided that every column keeps
//! within the range of its type (for a decimal: its precision). Integer arithmetic wraps and does not fail.

use crate::literal::integer_range;
use crate::{ArithmeticOp, Error, Expr, Result, TableInfo, Value, brief, limits, schema};
use arrow_schema::{DECIMAL128_MAX_PRECISION, DECIMAL128_MAX_SCALE, DataType, Schema, TimeUnit};

/// The least and the greatest of some integers.
type Range = (i128, i128);

/// Days before and after 1970 that calendar code can certainly represent: some 260,000 years.
const CALENDAR_DAYS: i128 = 95_000_000;
const SECONDS_PER_DAY: i128 = 86_400;

/// What is known of the values of one expression.
#[derive(Clone, Debug, PartialEq)]
pub struct Facts {
    /// The canonical type.
    pub data_type: DataType,
    /// The least and greatest value that is not NULL, where values are held as integers.
    pub range: Option<(i128, i128)>,
    /// Whether evaluation may fail on some row: a division by zero, a cast that does not fit, a decimal that
    /// overflows. Such a part must not run on rows that an earlier condition would have removed.
    pub may_fail: bool,
}

impl Facts {
    /// The facts of `expr` over a table with `schema`, which is canonical.
    ///
    /// # Errors
    /// `Invalid` when a column does not exist, the parts do not fit together, or the expression is
    /// [`Expr::Opaque`]; `OverLimit` when it is nested too deeply or a list is too long.
    pub fn of(expr: &Expr, schema: &Schema) -> Result<Facts> {
        at(expr, schema, &|_| None, 0)
    }

    /// The facts of `expr` over the rows that `table` has, whose values keep within the bounds that are known.
    ///
    /// # Errors
    /// As [`Facts::of`].
    pub fn within(expr: &Expr, table: &TableInfo) -> Result<Facts> {
        let bounds = |column: usize| {
            let known = table.columns.get(column)?;
            Some((known.min.as_ref()?.as_int()?, known.max.as_ref()?.as_int()?))
        };
        at(expr, &table.schema, &bounds, 0)
    }

    /// The facts of one node, from those of its [`Expr::children`] in their order.
    ///
    /// # Errors
    /// As [`Facts::of`].
    pub fn of_node(expr: &Expr, schema: &Schema, children: &[&Facts]) -> Result<Facts> {
        let data_type = type_of(expr, schema, children)?;
        let may_fail = children.iter().any(|child| child.may_fail) || node_may_fail(expr, children);
        let range = range_of(expr, &data_type, children);
        Ok(Facts { data_type, range, may_fail })
    }
}

/// `bounds` has the least and the greatest value of a column, where that is known.
fn at(expr: &Expr, schema: &Schema, bounds: &dyn Fn(usize) -> Option<Range>, depth: usize) -> Result<Facts> {
    if depth > limits::EXPR_DEPTH_MAX {
        return Err(too_deep());
    }
    let children = expr.children().into_iter().map(|child| at(child, schema, bounds, depth + 1));
    let children = children.collect::<Result<Vec<Facts>>>()?;
    let facts = Facts::of_node(expr, schema, &children.iter().collect::<Vec<_>>())?;
    Ok(match expr {
        Expr::Column(column) => Facts { range: bounds(*column).or(facts.range), ..facts },
        _ => facts,
    })
}

pub(crate) fn too_deep() -> Error {
    Error::over_limit(format!("an expression may be nested {} levels deep", limits::EXPR_DEPTH_MAX))
}

fn type_of(expr: &Expr, schema: &Schema, children: &[&Facts]) -> Result<DataType> {
    let types: Vec<&DataType> = children.iter().map(|child| &child.data_type).collect();
    Ok(match (expr, types.as_slice()) {
        (Expr::Column(index), _) => match schema.fields().get(*index) {
            Some(field) => field.data_type().clone(),
            None => {
                let columns = schema.fields().len();
                return Err(Error::invalid(format!(
                    "there is no column {index}: the table has {columns} columns"
                )));
            }
        },
        (Expr::Literal(literal), _) => literal.data_type().clone(),
        (Expr::Compare(op, ..), [left, right]) => boolean(same_type(op.symbol(), left, right))?,
        (Expr::And(_) | Expr::Or(_), []) => {
            return Err(Error::invalid("AND and OR need at least one condition"));
        }
        (Expr::And(_) | Expr::Or(_) | Expr::Not(_), types) => {
            boolean(types.iter().zip(expr.children()).try_for_each(|(t, e)| require_boolean(t, e)))?
        }
        (Expr::IsNull(_), _) => DataType::Boolean,
        (Expr::InList(_, list), [value]) => {
            check_length("an IN list", "values", list.len(), limits::IN_LIST_MAX)?;
            boolean(list.iter().try_for_each(|l| same_type("IN", value, l.data_type())))?
        }
        (Expr::InSet(e, _), [value]) => {
            boolean(require(schema::is_integer_like(value), "a set of keys", value, e))?
        }
        (Expr::InFilter(..), []) => {
            return Err(Error::invalid("a filter of keys needs at least one value"));
        }
        (Expr::InFilter(values, _), types) => {
            let has_keys = |t: &DataType| schema::is_integer_like(t) || schema::is_bytes(t);
            let check = |(t, e): (&&DataType, &Expr)| require(has_keys(t), "a filter of keys", t, e);
            boolean(types.iter().zip(values).try_for_each(check))?
        }
        (Expr::Like { pattern, .. }, [value]) => {
            check_length("a LIKE pattern", "bytes", pattern.len(), limits::PATTERN_BYTES_MAX)?;
            boolean(same_type("LIKE", value, &DataType::Utf8View))?
        }
        (Expr::Regex { .. }, [value]) => {
            boolean(same_type("a regular expression", value, &DataType::Utf8View))?
        }
        (Expr::Arithmetic(op, ..), [left, right]) => arithmetic_type(*op, left, right)?,
        (Expr::Negate(_), [t]) => {
            let signed = t.is_signed_integer() || t.is_floating() || matches!(t, DataType::Decimal128(..));
            if !signed {
                return Err(Error::invalid(format!("a value of type {t} has no negative")));
            }
            (*t).clone()
        }
        (Expr::Cast(_, to), _) => {
            if schema::canonical_type(to).as_ref() != Some(to) {
                return Err(Error::invalid(format!("cast to {to}, a type that the pool does not hold")));
            }
            to.clone()
        }
        (Expr::Case { branches, otherwise }, types) => {
            case_type(types, branches.len(), otherwise.is_some(), expr)?
        }
        (Expr::Opaque { reason, .. }, _) => return Err(Error::invalid(reason.clone())),
        _ => return Err(Error::internal("an expression and the facts of another one's parts")),
    })
}

/// The type of a CASE whose parts have `types`: a condition and a value for each branch, then what is otherwise.
fn case_type(types: &[&DataType], branches: usize, otherwise: bool, expr: &Expr) -> Result<DataType> {
    let Some(first) = types.get(1).filter(|_| branches > 0) else {
        return Err(Error::invalid("CASE needs at least one WHEN"));
    };
    for ((place, data_type), part) in types.iter().enumerate().zip(expr.children()) {
        let is_condition = place % 2 == 0 && !(otherwise && place == 2 * branches);
        if is_condition {
            require_boolean(data_type, part)?;
        } else {
            same_type("CASE", first, data_type)?;
        }
    }
    Ok((*first).clone())
}

fn boolean(checked: Result<()>) -> Result<DataType> {
    checked.map(|()| DataType::Boolean)
}

fn require_boolean(data_type: &DataType, expr: &Expr) -> Result<()> {
    if *data_type == DataType::Boolean {
        return Ok(());
    }
    Err(Error::invalid(format!("{} has type {data_type}, where a boolean is needed", brief(expr))))
}

fn require(holds: bool, what: &str, data_type: &DataType, expr: &Expr) -> Result<()> {
    if holds {
        return Ok(());
    }
    Err(Error::invalid(format!("{what} for {}, which has type {data_type}", brief(expr))))
}

fn check_length(what: &str, unit: &str, length: usize, most: usize) -> Result<()> {
    if length <= most {
        return Ok(());
    }
    Err(Error::over_limit(format!("{what} may have {most} {unit}, this one has {length}")))
}

fn same_type(what: &str, left: &DataType, right: &DataType) -> Result<()> {
    if left == right {
        return Ok(());
    }
    Err(Error::invalid(format!("{what} needs two values of one type, these are {left} and {right}"))
        .advise("cast one of them"))
}

/// The type of `left op right`: the common type of integers and floats; for decimals the precision and
/// scale that Arrow's kernels give.
///
/// # Errors
/// `Invalid` when the types are not numbers of one kind, or no decimal type holds the result.
pub fn arithmetic_type(op: ArithmeticOp, left: &DataType, right: &DataType) -> Result<DataType> {
    use DataType::Decimal128;
    let (Decimal128(p1, s1), Decimal128(p2, s2)) = (left, right) else {
        if left == right && (left.is_integer() || left.is_floating()) {
            return Ok(left.clone());
        }
        return Err(Error::invalid(format!("{left} {} {right} is not defined here", op.symbol())));
    };
    let (p1, s1, p2, s2) = (i16::from(*p1), i16::from(*s1), i16::from(*p2), i16::from(*s2));
    let (precision, scale) = match op {
        ArithmeticOp::Add | ArithmeticOp::Subtract => {
            let scale = s1.max(s2);
            (scale + (p1 - s1).max(p2 - s2) + 1, scale)
        }
        ArithmeticOp::Multiply => (p1 + p2 + 1, s1 + s2),
        ArithmeticOp::Divide => {
            let scale = (s1 + 4).min(i16::from(DECIMAL128_MAX_SCALE));
            (p1 + scale - s1 + s2, scale)
        }
        ArithmeticOp::Modulo => {
            let scale = s1.max(s2);
            (scale + (p1 - s1).min(p2 - s2), scale)
        }
    };
    // Arrow's remainder aligns scales modulo 2^128.
    let aligned = op != ArithmeticOp::Modulo || (s1 - s2).abs() <= i16::from(DECIMAL128_MAX_PRECISION);
    let result = schema::decimal(precision.min(i16::from(DECIMAL128_MAX_PRECISION)), scale);
    result.filter(|_| aligned).ok_or_else(|| {
        Error::invalid(format!("no decimal type holds {left} {} {right}", op.symbol()))
            .advise("cast one of them to a decimal of another scale")
    })
}

/// Whether this node itself may fail, its children aside.
fn node_may_fail(expr: &Expr, children: &[&Facts]) -> bool {
    match (expr, children) {
        (Expr::Arithmetic(op, ..), [left, right]) => arithmetic_may_fail(*op, left, right),
        (Expr::Negate(_), [value]) => {
            let is_decimal = matches!(value.data_type, DataType::Decimal128(..));
            is_decimal && value.range.is_none_or(|(min, _)| min == i128::MIN)
        }
        (Expr::Cast(_, to), [value]) => cast_may_fail(value, to),
        _ => false,
    }
}

fn arithmetic_may_fail(op: ArithmeticOp, left: &Facts, right: &Facts) -> bool {
    if left.data_type.is_floating() {
        return false;
    }
    let (Some(l), Some(r)) = (left.range, right.range) else { return true };
    let divides = matches!(op, ArithmeticOp::Divide | ArithmeticOp::Modulo);
    if divides && holds(r, 0) {
        return true;
    }
    if !matches!(left.data_type, DataType::Decimal128(..)) {
        let least = integer_range(&left.data_type).map_or(i128::MIN, |(min, _)| min);
        // The least integer has no negative.
        return op == ArithmeticOp::Divide && least < 0 && holds(r, -1) && holds(l, least);
    }
    decimal_result(op, (l, scale(&left.data_type)), (r, scale(&right.data_type))).is_none()
}

/// The range of an operation on unscaled decimals with their scales; `None` if a step may leave 128 bits.
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

/// Whether Arrow's cast kernel may fail on a value of `from`; see the test that compares the two.
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
            (Date32, Timestamp(unit, None)) => outside(times(range, units_per_day(*unit)), to),
            (Timestamp(unit, None), Date32 | Utf8View) => {
                let most = CALENDAR_DAYS * units_per_day(*unit);
                range.0 < -most || range.1 > most
            }
            (Timestamp(_, None), Timestamp(_, Some(_))) => true,
            (Timestamp(old, _), Timestamp(new, _)) => {
                let factor = units_per_day(*new) / units_per_day(*old);
                outside(times(range, factor.max(1)), to)
            }
            (_, Decimal128(..)) if *source != Date32 => outside(rescaled(range, source, to, true), to),
            (source, to) if is_number || (matches!(source, Timestamp(..)) && to.is_integer()) => {
                outside(rescaled(range, source, to, false), to)
            }
            _ => true,
        }),
    }
}

/// The range in the scale of another type, which rounds or truncates digits that it has no place for.
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

/// The range that the values of a node keep within.
fn range_of(expr: &Expr, data_type: &DataType, children: &[&Facts]) -> Option<Range> {
    let all = type_range(data_type)?;
    let within = |range: Option<Range>| range.filter(|(min, max)| all.0 <= *min && *max <= all.1);
    Some(match (expr, children) {
        (Expr::Literal(literal), _) => match literal.value() {
            Value::Int(value) => (*value, *value),
            _ => all,
        },
        (Expr::Arithmetic(op, ..), [left, right]) => {
            let sides = left.range.zip(right.range);
            let (s1, s2) = (scale(&left.data_type), scale(&right.data_type));
            let exact = sides.and_then(|(l, r)| match op {
                ArithmeticOp::Divide | ArithmeticOp::Modulo if s1 == 0 && s2 == 0 => None,
                op => decimal_result(*op, (l, s1), (r, s2)),
            });
            match data_type {
                // Nothing holds decimals to their precision; what does not fit 128 bits has failed.
                DataType::Decimal128(..) => exact.unwrap_or((i128::MIN, i128::MAX)),
                // What does not fit has wrapped.
                _ => within(exact).unwrap_or(all),
            }
        }
        (Expr::Negate(_), [value]) => {
            let negative = value.range.and_then(|(min, max)| Some((max.checked_neg()?, min.checked_neg()?)));
            match data_type {
                DataType::Decimal128(..) => negative.unwrap_or((i128::MIN, i128::MAX)),
                _ => within(negative).unwrap_or(all),
            }
        }
        (Expr::Cast(..), [value]) if data_type.is_integer() && value.data_type.is_integer() => {
            within(value.range).unwrap_or(all)
        }
        (Expr::Case { .. }, [_, values @ ..]) => {
            // Every other part is a value, and so is the last.
            let values = values.iter().step_by(2).chain(values.last()).filter(|v| v.data_type == *data_type);
            let ranges = values.map(|value| value.range).collect::<Option<Vec<Range>>>()?;
            ranges.into_iter().reduce(|a, b| (a.0.min(b.0), a.1.max(b.1)))?
        }
        _ => all,
    })
}

/// The values of a type that is held as integers; of a decimal those of its precision.
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

/// What lies no farther from zero; `None` with the least number of 128 bits, which has no negative.
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

fn units_per_day(unit: TimeUnit) -> i128 {
    SECONDS_PER_DAY
        * match unit {
            TimeUnit::Second => 1,
            TimeUnit::Millisecond => 1_000,
            TimeUnit::Microsecond => 1_000_000,
            TimeUnit::Nanosecond => 1_000_000_000,
        }
}
