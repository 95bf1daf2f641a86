//! Estimates, from a table's statistics, the rows that pass a filter and the bytes that leave the pool.
//!
//! The model is System R's (Selinger et al. 1979, table 1): values are uniform between minimum and maximum, an equality
//! selects 1/distinct of the rows, the operands of AND are independent, and OR is computed by inclusion and exclusion.
//! There are three refinements: the bounds of one column in an AND are intersected first (`a >= 1 AND a < 3` is one
//! range); fractions of NULLs are tracked, so that NOT does not turn NULL into true; and frequent values or a histogram
//! of a column are used if they are known (`crate::spread`).
//!
//! Invariant: every fraction is in [0, 1].

use crate::spread::{Values, is_like, numeric};
use arrow_schema::DataType;
use farpool_model::{
    Accumulation, Aggregate, ColumnStatistics, CompareOp, Expr, Literal, Output, Program, StateFunction,
    TableInfo, Value, limits, schema,
};

/// Assumed selectivity of a comparison about which nothing is known (System R's 1/3).
const UNKNOWN_COMPARISON: f64 = 1.0 / 3.0;
/// Assumed fraction of values that equal a constant, if the number of distinct values is not known.
const UNKNOWN_EQUALITY: f64 = 0.1;
/// Assumed fraction of strings that have a given prefix.
const LIKE_PREFIX: f64 = 0.05;
/// Assumed fraction of strings that match a pattern without a fixed prefix.
const LIKE_ANYWHERE: f64 = 0.1;
/// Assumed bytes of a string or binary of unknown length, including its view.
const BYTES_PER_STRING: f64 = 32.0;
/// Bytes for each pair of columns in an encoded state of moments.
const BYTES_PER_PAIR: f64 = 16.0;

/// Returns the fraction of the table's rows for which `expr` is true.
pub fn selectivity(expr: &Expr, info: &TableInfo) -> f64 {
    truth(expr, info).holds
}

/// Returns the number of rows that pass the filter of `program`.
pub fn rows_passed(program: &Program, info: &TableInfo) -> f64 {
    let fraction = program.filter.as_ref().map_or(1.0, |filter| selectivity(filter, info));
    info.rows as f64 * fraction
}

/// Returns the number of rows in the result of `program`.
pub fn rows(program: &Program, info: &TableInfo) -> f64 {
    let passed = rows_passed(program, info);
    let out = match &program.output {
        Output::Rows(_) => passed,
        Output::Aggregate { keys, .. } => {
            let groups = groups(keys.iter().map(|k| &k.expr), program.filter.as_ref(), passed, info);
            groups * having_selectivity(program)
        }
    };
    program.limit.map_or(out, |limit| out.min(limit as f64))
}

/// Returns the fraction of groups for which the condition on groups of `program` is true. Nothing is known of aggregates.
pub(crate) fn having_selectivity(program: &Program) -> f64 {
    if program.having.is_some() { UNKNOWN_COMPARISON } else { 1.0 }
}

/// Returns the bytes of the result of `program`, as plain Arrow.
pub fn bytes(program: &Program, info: &TableInfo) -> f64 {
    bytes_at(program, info, |expr| width(expr, info))
}

/// Returns the bytes of the result of `program` as the pool sends it. Columns, and group keys that are not strings, are
/// counted with their encoded size, because results are sent encoded if the link is slow enough to matter.
pub fn bytes_packed(program: &Program, info: &TableInfo) -> f64 {
    let is_grouped = matches!(program.output, Output::Aggregate { .. });
    let is_text = |expr: &Expr| expr.data_type(&info.schema).is_ok_and(|t| schema::is_bytes(&t));
    let packed =
        |expr: &Expr| if is_grouped && is_text(expr) { width(expr, info) } else { packed_width(expr, info) };
    bytes_at(program, info, packed)
}

fn bytes_at(program: &Program, info: &TableInfo, width: impl Fn(&Expr) -> f64) -> f64 {
    let width: f64 = match &program.output {
        Output::Rows(columns) => columns.iter().map(|c| width(&c.expr)).sum(),
        Output::Aggregate { keys, aggregates } => {
            keys.iter().map(|k| width(&k.expr)).chain(aggregates.iter().map(result_width)).sum()
        }
    };
    rows(program, info) * width
}

/// Returns the bytes of one value of `expr`: encoded as in the pool if it is a column, else as plain Arrow.
pub(crate) fn packed_width(expr: &Expr, info: &TableInfo) -> f64 {
    let plain = width(expr, info);
    match expr {
        Expr::Column(index) if info.rows > 0 => {
            let encoded = info.columns.get(*index).map_or(0, |column| column.bytes_encoded);
            if encoded > 0 { (encoded as f64 / info.rows as f64).min(plain) } else { plain }
        }
        _ => plain,
    }
}

/// Returns the number of distinct combinations of the group keys `keys` among the `rows` rows that pass `filter`; 1 if
/// there are no keys.
pub fn groups<'a>(
    keys: impl Iterator<Item = &'a Expr>,
    filter: Option<&Expr>,
    rows: f64,
    info: &TableInfo,
) -> f64 {
    let domain: f64 = keys.map(|key| distinct_left(key, filter, info)).product();
    if domain <= 1.0 { 1.0 } else { distinct_met(domain, rows) }
}

/// Returns whether the pool can treat the group keys `keys` as one integer, which is fast: a single key that is not a
/// string, or several keys that take at most 64 bits together, where a string key must have few distinct values (a
/// dictionary).
pub(crate) fn keys_are_narrow<'a>(mut keys: impl Iterator<Item = &'a Expr>, info: &TableInfo) -> bool {
    let (mut count, mut bits) = (0, 0.0);
    let all_fixed = keys.all(|key| {
        count += 1;
        let key_bits = key_bits(key, info);
        bits += key_bits.unwrap_or(0.0);
        key_bits.is_some()
    });
    all_fixed && (count == 1 || bits <= 64.0)
}

/// Returns the number of bits that distinguish the values of a group key; `None` for a string, unless it is a column
/// with few distinct values. Computed values are assumed to be as dense as their number of distinct values allows.
fn key_bits(key: &Expr, info: &TableInfo) -> Option<f64> {
    let data_type = key.data_type(&info.schema).ok()?;
    let is_text = schema::is_bytes(&data_type);
    let bits_of = |values: f64| (values + 1.0).log2().ceil();
    let Expr::Column(index) = key else {
        return (!is_text).then(|| bits_of(distinct_values(key, info)));
    };
    let column = info.columns.get(*index);
    if is_text {
        let texts = column?.distinct_count? as f64;
        let row_groups = (info.rows as f64 / limits::ROW_GROUP_ROWS as f64).ceil();
        return (texts * row_groups <= limits::TEXTS_NUMBERED_MAX as f64).then(|| bits_of(texts));
    }
    Some(column.and_then(domain_values).map_or(8.0 * type_width(&data_type), bits_of))
}

/// Returns how many of `domain` distinct, equally frequent values occur among `rows` rows, by Cardenas' formula: `d (1
/// - e^(-rows/d))`.
pub fn distinct_met(domain: f64, rows: f64) -> f64 {
    let met = domain * (1.0 - (-rows / domain).exp());
    // For tiny fractions the formula's difference loses all its digits; nearly every row then has a distinct value.
    if rows / domain < 1e-6 { rows } else { met.min(rows) }
}

/// Returns the number of distinct values of a group key that are left by those conditions of `filter` that concern only
/// this key.
fn distinct_left(key: &Expr, filter: Option<&Expr>, info: &TableInfo) -> f64 {
    let parts = match filter {
        Some(Expr::And(parts)) => parts.as_slice(),
        Some(other) => std::slice::from_ref(other),
        None => &[],
    };
    let (mut ranges, mut most) = (Vec::new(), f64::INFINITY);
    for part in parts {
        match part {
            Expr::Compare(CompareOp::NotEq, ..) => {}
            Expr::Compare(CompareOp::Eq, l, r) if constant_beside(key, l, r) => most = 1.0,
            Expr::Compare(_, l, r) if constant_beside(key, l, r) => ranges.push(part.clone()),
            Expr::InList(value, list) if **value == *key => most = most.min(list.len() as f64),
            Expr::InSet(value, set) if **value == *key => most = most.min(set.count() as f64),
            Expr::InFilter(values, filter) if values.contains(key) => most = most.min(filter.count() as f64),
            _ => {}
        }
    }
    let in_ranges = distinct_values(key, info) * conjunction(&ranges, info).holds;
    in_ranges.min(most).max(1.0)
}

/// Returns whether one of the two operands of a comparison is `key`, and the other a constant.
fn constant_beside(key: &Expr, left: &Expr, right: &Expr) -> bool {
    match (left, right) {
        (Expr::Literal(_), other) | (other, Expr::Literal(_)) => other == key,
        _ => false,
    }
}

/// Returns the number of distinct values of `expr` over the whole table; NULL counts as a value.
pub fn distinct_values(expr: &Expr, info: &TableInfo) -> f64 {
    let rows = (info.rows as f64).max(1.0);
    match expr {
        Expr::Literal(_) => 1.0,
        Expr::Column(index) => match info.columns.get(*index) {
            Some(column) => distinct(column, info) + f64::from(u8::from(column.null_count > 0)),
            None => rows,
        },
        Expr::Compare(..) | Expr::And(_) | Expr::Or(_) | Expr::Not(_) | Expr::IsNull(_) => 2.0,
        Expr::InList(..) | Expr::InSet(..) | Expr::InFilter(..) => 2.0,
        Expr::Like { .. } | Expr::Regex { .. } => 2.0,
        Expr::Case { branches, otherwise } => {
            let values = branches.iter().map(|(_, then)| then).chain(otherwise.as_deref());
            values.map(|value| distinct_values(value, info)).sum::<f64>().min(rows)
        }
        _ => expr.children().into_iter().map(|c| distinct_values(c, info)).product::<f64>().min(rows),
    }
}

fn distinct(column: &ColumnStatistics, info: &TableInfo) -> f64 {
    let rows = (info.rows as f64).max(1.0);
    if let Some(distinct) = column.distinct_count.or(column.distinct_estimate) {
        return (distinct as f64).clamp(1.0, rows);
    }
    // The distinct values were not counted exactly, because there are more than are tracked: assume a tenth of the
    // rows.
    let guess = (rows / 10.0).max(limits::DISTINCT_TRACKED_MAX as f64).min(rows);
    domain_values(column).map_or(guess, |domain| domain.clamp(1.0, rows))
}

/// Returns the number of integers from minimum to maximum, including both; `None` if these are not known or no
/// integers.
fn domain_values(column: &ColumnStatistics) -> Option<f64> {
    let (min, max) = (column.min.as_ref()?.as_int()?, column.max.as_ref()?.as_int()?);
    Some(max as f64 - min as f64 + 1.0)
}

/// Returns the bytes of one value of `expr` as plain Arrow.
pub fn width(expr: &Expr, info: &TableInfo) -> f64 {
    match expr.data_type(&info.schema) {
        Ok(data_type) => type_width(&data_type),
        Err(_) => BYTES_PER_STRING,
    }
}

pub(crate) fn result_width(aggregate: &Aggregate) -> f64 {
    match aggregate.function.accumulation() {
        Accumulation::State(StateFunction::Sketch(parameters)) => parameters.state_bytes() as f64,
        Accumulation::State(StateFunction::Moments(_)) => {
            BYTES_PER_PAIR * (aggregate.arguments.len() as f64 + 1.0).powi(2) / 2.0
        }
        Accumulation::Count | Accumulation::Sum | Accumulation::Mean | Accumulation::Fold(_) => {
            type_width(&aggregate.data_type)
        }
    }
}

fn type_width(data_type: &DataType) -> f64 {
    match data_type {
        DataType::Boolean => 1.0,
        other => other.primitive_width().map_or(BYTES_PER_STRING, |bytes| bytes as f64),
    }
}

/// The fraction of rows for which a condition is true, and the fraction for which it is NULL.
#[derive(Clone, Copy)]
struct Truth {
    holds: f64,
    unknown: f64,
}

impl Truth {
    fn new(holds: f64, unknown: f64) -> Self {
        let unknown = fraction(unknown);
        Truth { holds: fraction(holds).min(1.0 - unknown), unknown }
    }

    fn fails(self) -> f64 {
        fraction(1.0 - self.holds - self.unknown)
    }

    fn negated(self) -> Self {
        Truth::new(self.fails(), self.unknown)
    }
}

fn fraction(x: f64) -> f64 {
    if x.is_nan() { 1.0 } else { x.clamp(0.0, 1.0) }
}

fn truth(expr: &Expr, info: &TableInfo) -> Truth {
    let unknown = null_fraction(expr, info);
    let of_known = |x: f64| Truth::new(x * (1.0 - unknown), unknown);
    match expr {
        Expr::Literal(literal) => match literal.value() {
            Value::Bool(value) => Truth::new(f64::from(u8::from(*value)), 0.0),
            _ => Truth::new(0.0, 1.0),
        },
        Expr::Compare(op, left, right) => of_known(comparison(*op, left, right, info)),
        Expr::And(parts) => conjunction(parts, info),
        Expr::Or(parts) => {
            let negated: Vec<Truth> = parts.iter().map(|p| truth(p, info).negated()).collect();
            all(&negated).negated()
        }
        Expr::Not(inner) => truth(inner, info).negated(),
        Expr::IsNull(inner) => Truth::new(null_fraction(inner, info), 0.0),
        Expr::InList(value, list) => {
            let equal =
                |literal: &Literal| comparison(CompareOp::Eq, value, &Expr::Literal(literal.clone()), info);
            of_known(fraction(list.iter().filter(|l| !l.is_null()).map(equal).sum()))
        }
        Expr::InSet(value, set) => {
            of_known((set.count() as f64 / distinct_values(value, info).max(1.0)).min(1.0))
        }
        Expr::InFilter(values, filter) => {
            let keys: f64 = values.iter().map(|value| distinct_values(value, info)).product();
            of_known((filter.count() as f64 / keys.clamp(1.0, (info.rows as f64).max(1.0))).min(1.0))
        }
        Expr::Like { value, pattern, case_insensitive } => {
            let matches = |text: &str| is_like(text, pattern, *case_insensitive);
            of_known(matching(value, matches, like(value, pattern, info), info))
        }
        Expr::Regex { value, pattern } => {
            of_known(matching(value, |text| pattern.is_match(text), UNKNOWN_COMPARISON, info))
        }
        Expr::Column(_) => of_known(0.5),
        _ => of_known(UNKNOWN_COMPARISON),
    }
}

/// Returns the fractions for an AND of independent conditions.
fn all(parts: &[Truth]) -> Truth {
    let holds: f64 = parts.iter().map(|p| p.holds).product();
    let none_fails: f64 = parts.iter().map(|p| 1.0 - p.fails()).product();
    Truth::new(holds, none_fails - holds)
}

/// Returns the fractions for an AND. The bounds on each column are intersected first, so that `a >= 1 AND a < 3` is one
/// range. Bounds that a join derives from its keys are implied by the condition on these keys, so that they do not
/// count again.
fn conjunction(parts: &[Expr], info: &TableInfo) -> Truth {
    let mut ranges: Vec<(usize, f64, f64)> = Vec::new();
    let (mut truths, mut sets) = (Vec::new(), Vec::new());
    for part in parts {
        match bound(part, info) {
            Some((column, low, high)) => match ranges.iter_mut().find(|(c, ..)| *c == column) {
                Some((_, l, h)) => (*l, *h) = (l.max(low), h.min(high)),
                None => ranges.push((column, low, high)),
            },
            None => match column_of_keys(part) {
                Some(column) => sets.push((column, truth(part, info))),
                None => truths.push(truth(part, info)),
            },
        }
    }
    for (column, low, high) in ranges {
        let unknown = null_fraction(&Expr::Column(column), info);
        let within = (high - low).max(0.0) * (1.0 - unknown);
        match sets.iter_mut().find(|(of, _)| *of == column) {
            Some((_, keys)) => keys.holds = keys.holds.min(within),
            None => truths.push(Truth::new(within, unknown)),
        }
    }
    truths.extend(sets.into_iter().map(|(_, keys)| keys));
    all(&truths)
}

/// Returns the column if the condition is a set of join keys on a column; otherwise `None`.
fn column_of_keys(part: &Expr) -> Option<usize> {
    let value = match part {
        Expr::InSet(value, _) => &**value,
        Expr::InFilter(values, _) if values.len() == 1 => &values[0],
        _ => return None,
    };
    match value {
        Expr::Column(column) => Some(*column),
        _ => None,
    }
}

/// If the condition has the form `column < constant` (or `<=`, `>`, `>=`), returns the column, and the interval of its
/// cumulative distribution that satisfies the condition.
fn bound(part: &Expr, info: &TableInfo) -> Option<(usize, f64, f64)> {
    let Expr::Compare(op, left, right) = part else { return None };
    let (op, column, literal) = column_and_literal(*op, left, right)?;
    let statistics = info.columns.get(column)?;
    numeric(statistics.min.as_ref()?)?;
    let share = values(statistics, info).compare(op, literal)?;
    match op {
        CompareOp::Lt | CompareOp::LtEq => Some((column, 0.0, share)),
        CompareOp::Gt | CompareOp::GtEq => Some((column, 1.0 - share, 1.0)),
        CompareOp::Eq | CompareOp::NotEq => None,
    }
}

fn column_and_literal<'a>(
    op: CompareOp,
    left: &'a Expr,
    right: &'a Expr,
) -> Option<(CompareOp, usize, &'a Literal)> {
    match (left, right) {
        (Expr::Column(column), Expr::Literal(literal)) => Some((op, *column, literal)),
        (Expr::Literal(literal), Expr::Column(column)) => Some((op.swapped(), *column, literal)),
        _ => None,
    }
}

/// Returns the fraction of the rows in which neither operand is NULL for which the comparison is true.
fn comparison(op: CompareOp, left: &Expr, right: &Expr, info: &TableInfo) -> f64 {
    let of_columns = || match (op, left, right) {
        (CompareOp::Lt | CompareOp::LtEq, Expr::Column(l), Expr::Column(r)) => less(*l, *r, info),
        (CompareOp::Gt | CompareOp::GtEq, Expr::Column(l), Expr::Column(r)) => less(*r, *l, info),
        _ => None,
    };
    let with_constant = |(op, column, literal): (CompareOp, usize, &Literal)| {
        if literal.is_null() {
            return Some(0.0);
        }
        values(info.columns.get(column)?, info).compare(op, literal)
    };
    let known = column_and_literal(op, left, right).and_then(with_constant).or_else(of_columns);
    known.unwrap_or_else(|| {
        let most = distinct_values(left, info).max(distinct_values(right, info)).max(1.0);
        match op {
            CompareOp::Eq => (1.0 / most).min(UNKNOWN_EQUALITY),
            CompareOp::NotEq => 1.0 - (1.0 / most).min(UNKNOWN_EQUALITY),
            _ => UNKNOWN_COMPARISON,
        }
    })
}

/// Returns the fraction of rows in which one column is less than another; `None` if it cannot be estimated.
fn less(left: usize, right: usize, info: &TableInfo) -> Option<f64> {
    values(info.columns.get(left)?, info).less_than(&values(info.columns.get(right)?, info))
}

fn values<'a>(column: &'a ColumnStatistics, info: &TableInfo) -> Values<'a> {
    Values::new(column, distinct(column, info), info)
}

/// Returns the fraction of strings that match: frequent values are tested with `matches`; of the others, the fraction
/// `of_rest` is assumed to match.
fn matching(value: &Expr, matches: impl Fn(&str) -> bool, of_rest: f64, info: &TableInfo) -> f64 {
    let holds = |literal: &Literal| matches!(literal.value(), Value::Text(text) if matches(text));
    match value {
        Expr::Column(index) => {
            info.columns.get(*index).map_or(of_rest, |column| values(column, info).matching(holds, of_rest))
        }
        _ => of_rest,
    }
}

fn like(value: &Expr, pattern: &str, info: &TableInfo) -> f64 {
    match pattern.find(['%', '_', '\\']) {
        None => (1.0 / distinct_values(value, info).max(1.0)).min(UNKNOWN_EQUALITY),
        Some(_) if pattern.chars().all(|c| c == '%') => 1.0,
        Some(0) => LIKE_ANYWHERE,
        Some(_) => LIKE_PREFIX,
    }
}

/// Returns the fraction of rows for which the value is NULL, assuming that its columns are NULL independently.
fn null_fraction(expr: &Expr, info: &TableInfo) -> f64 {
    match expr {
        Expr::Column(index) => match info.columns.get(*index) {
            Some(column) if info.rows > 0 => fraction(column.null_count as f64 / info.rows as f64),
            _ => 0.0,
        },
        Expr::Literal(literal) => f64::from(u8::from(literal.is_null())),
        Expr::IsNull(_) | Expr::Case { .. } | Expr::Opaque { .. } => 0.0,
        Expr::And(_) | Expr::Or(_) | Expr::Not(_) => 0.0,
        _ => {
            let known = expr.children().into_iter().map(|c| 1.0 - null_fraction(c, info));
            fraction(1.0 - known.product::<f64>())
        }
    }
}
