//! An interpreter of programs for tests: evaluates row by row on plain values, slowly, and as close to the
//! definitions of [`farpool_model`] as possible.

use arrow_arith::temporal;
use arrow_array::{Array, ArrayRef};
use arrow_schema::{DataType, Schema};
use farpool_model::literal::integer_range;
use farpool_model::{
    Aggregate, AggregateFunction, ArithmeticOp, CompareOp, DatePart, Error, Expr, Literal, Output, Program,
    Result, StateFunction, Value,
};
use farpool_statistics::{Moments, Sketch, State, keys};
use std::cmp::Ordering;
use std::collections::BTreeMap;

type Row = [Value];

/// Returns the rows of the result of `program`.
pub(super) fn run(program: &Program, schema: &Schema, rows: &[Vec<Value>]) -> Result<Vec<Vec<Value>>> {
    let mut kept = Vec::new();
    for row in rows {
        let passes = match &program.filter {
            None => true,
            Some(filter) => passes(filter, row, schema)?,
        };
        if passes {
            kept.push(row);
        }
    }
    match &program.output {
        Output::Rows(columns) => {
            kept.into_iter().map(|row| columns.iter().map(|c| eval(&c.expr, row, schema)).collect()).collect()
        }
        Output::Aggregate { keys, aggregates } => {
            let mut groups: BTreeMap<String, (Vec<Value>, Vec<&Vec<Value>>)> = BTreeMap::new();
            if keys.is_empty() {
                groups.insert(String::new(), (Vec::new(), Vec::new()));
            }
            for row in kept {
                let key: Vec<Value> =
                    keys.iter().map(|k| eval(&k.expr, row, schema).map(canonical)).collect::<Result<_>>()?;
                let name = key.iter().map(name).collect();
                groups.entry(name).or_insert_with(|| (key, Vec::new())).1.push(row);
            }
            let finish = |(key, rows): (Vec<Value>, Vec<&Vec<Value>>)| {
                let mut out = key;
                for a in aggregates {
                    out.push(aggregate(a, &rows, schema)?);
                }
                Ok(out)
            };
            let groups = groups.into_values().map(finish).collect::<Result<Vec<_>>>()?;
            let Some(having) = &program.having else { return Ok(groups) };
            let result = program.result_schema(schema)?;
            let keep = |group: Vec<Value>| {
                Ok((eval(having, &group, &result)? == Value::Bool(true)).then_some(group))
            };
            groups.into_iter().filter_map(|group| keep(group).transpose()).collect()
        }
    }
}

fn name(value: &Value) -> String {
    match value {
        Value::Float(v) => format!("{:x};", v.to_bits()),
        other => format!("{other:?};"),
    }
}

fn canonical(value: Value) -> Value {
    match value {
        // Adding 0.0 turns -0.0 into 0.0, which is the same group key.
        Value::Float(v) => Value::Float(v + 0.0),
        other => other,
    }
}

/// Evaluates a filter: an AND stops at the first operand that is not true; operands that may fail come last.
fn passes(filter: &Expr, row: &Row, schema: &Schema) -> Result<bool> {
    if let Expr::And(parts) = filter {
        for part in ordered(parts, schema) {
            if !passes(part, row, schema)? {
                return Ok(false);
            }
        }
        return Ok(true);
    }
    Ok(eval(filter, row, schema)? == Value::Bool(true))
}

fn ordered<'a>(parts: &'a [Expr], schema: &Schema) -> Vec<&'a Expr> {
    let mut parts: Vec<&Expr> = parts.iter().collect();
    parts.sort_by_key(|p| p.may_fail(schema).unwrap());
    parts
}

/// Evaluates an expression for one row.
pub(super) fn eval(expr: &Expr, row: &Row, schema: &Schema) -> Result<Value> {
    Ok(match expr {
        Expr::Column(index) => row[*index].clone(),
        Expr::Literal(literal) => literal.value().clone(),
        Expr::Compare(op, l, r) => {
            let (l, r) = (eval(l, row, schema)?, eval(r, row, schema)?);
            compare(&l, &r).map_or(Value::Null, |order| Value::Bool(holds(*op, order)))
        }
        Expr::And(parts) => connect(parts, row, schema, false)?,
        Expr::Or(parts) => connect(parts, row, schema, true)?,
        Expr::Not(e) => match eval(e, row, schema)? {
            Value::Bool(v) => Value::Bool(!v),
            other => other,
        },
        Expr::IsNull(e) => Value::Bool(eval(e, row, schema)? == Value::Null),
        Expr::InList(e, list) => {
            let value = eval(e, row, schema)?;
            let equal = |l: &Literal| compare(&value, l.value()) == Some(Ordering::Equal);
            if value == Value::Null {
                Value::Null
            } else if list.iter().any(equal) {
                Value::Bool(true)
            } else if list.iter().any(Literal::is_null) {
                Value::Null
            } else {
                Value::Bool(false)
            }
        }
        Expr::InSet(e, set) => match eval(e, row, schema)? {
            Value::Int(v) => Value::Bool(set.iter().any(|key| i128::from(key) == v)),
            other => other,
        },
        Expr::InFilter(values, filter) => {
            let values: Vec<Value> = values.iter().map(|e| eval(e, row, schema)).collect::<Result<_>>()?;
            let hashes = values.iter().map(|value| match value {
                Value::Int(v) => Some(keys::of_integer(*v)),
                Value::Text(v) => Some(keys::of_bytes(v.as_bytes())),
                Value::Bytes(v) => Some(keys::of_bytes(v)),
                _ => None,
            });
            match hashes.collect::<Option<Vec<u64>>>() {
                Some(hashes) => Value::Bool(filter.contains(hashes.into_iter().reduce(keys::and).unwrap())),
                None => Value::Null,
            }
        }
        Expr::Like { value, pattern, case_insensitive } => match eval(value, row, schema)? {
            Value::Text(text) => {
                let fold = |s: &str| if *case_insensitive { s.to_lowercase() } else { s.to_string() };
                let (text, pattern): (Vec<char>, Vec<char>) =
                    (fold(&text).chars().collect(), fold(pattern).chars().collect());
                Value::Bool(like(&text, &pattern))
            }
            other => other,
        },
        Expr::Regex { value, pattern } => match eval(value, row, schema)? {
            Value::Text(text) => {
                let array = arrow_array::StringArray::from(vec![text]);
                let flags = pattern.is_case_insensitive().then_some("i");
                let found = arrow_string::regexp::regexp_is_match_scalar(&array, pattern.as_str(), flags);
                Value::Bool(found.expect("a sound pattern").value(0))
            }
            other => other,
        },
        Expr::Arithmetic(op, l, r) => {
            let types = (l.data_type(schema)?, r.data_type(schema)?);
            arithmetic(*op, eval(l, row, schema)?, eval(r, row, schema)?, &types, &expr.data_type(schema)?)?
        }
        Expr::Negate(e) => match (eval(e, row, schema)?, expr.data_type(schema)?) {
            (Value::Int(v), t) => Value::Int(fit(-v, &t)?),
            (Value::Float(v), _) => Value::Float(-v),
            (other, _) => other,
        },
        Expr::Cast(e, to) => cast(eval(e, row, schema)?, &e.data_type(schema)?, to)?,
        Expr::Extract(part, e) => match eval(e, row, schema)? {
            Value::Int(time) => extract(*part, time, &e.data_type(schema)?)?,
            other => other,
        },
        Expr::Case { branches, otherwise } => {
            for (when, then) in branches {
                if eval(when, row, schema)? == Value::Bool(true) {
                    return eval(then, row, schema);
                }
            }
            otherwise.as_ref().map_or(Ok(Value::Null), |e| eval(e, row, schema))?
        }
        Expr::Opaque { reason, .. } => return Err(Error::invalid(reason.clone())),
    })
}

fn connect(parts: &[Expr], row: &Row, schema: &Schema, absorbing: bool) -> Result<Value> {
    let mut result = Value::Bool(!absorbing);
    for part in ordered(parts, schema) {
        match eval(part, row, schema)? {
            Value::Bool(v) if v == absorbing => return Ok(Value::Bool(absorbing)),
            Value::Null => result = Value::Null,
            _ => {}
        }
    }
    Ok(result)
}

fn compare(left: &Value, right: &Value) -> Option<Ordering> {
    match (left, right) {
        (Value::Bool(a), Value::Bool(b)) => Some(a.cmp(b)),
        (Value::Int(a), Value::Int(b)) => Some(a.cmp(b)),
        (Value::Float(a), Value::Float(b)) if *a == 0.0 && *b == 0.0 => Some(Ordering::Equal),
        (Value::Float(a), Value::Float(b)) => Some(a.total_cmp(b)),
        (Value::Text(a), Value::Text(b)) => Some(a.as_bytes().cmp(b.as_bytes())),
        (Value::Bytes(a), Value::Bytes(b)) => Some(a.cmp(b)),
        _ => None,
    }
}

fn holds(op: CompareOp, order: Ordering) -> bool {
    match op {
        CompareOp::Eq => order == Ordering::Equal,
        CompareOp::NotEq => order != Ordering::Equal,
        CompareOp::Lt => order == Ordering::Less,
        CompareOp::LtEq => order != Ordering::Greater,
        CompareOp::Gt => order == Ordering::Greater,
        CompareOp::GtEq => order != Ordering::Less,
    }
}

fn like(text: &[char], pattern: &[char]) -> bool {
    match pattern {
        [] => text.is_empty(),
        ['%', rest @ ..] => (0..=text.len()).any(|skip| like(&text[skip..], rest)),
        ['_', rest @ ..] => !text.is_empty() && like(&text[1..], rest),
        ['\\', c, rest @ ..] => text.first() == Some(c) && like(&text[1..], rest),
        [c, rest @ ..] => text.first() == Some(c) && like(&text[1..], rest),
    }
}

/// Returns the value; an error if the type cannot hold it.
fn fit(value: i128, data_type: &DataType) -> Result<i128> {
    let (min, max) = match data_type {
        DataType::Decimal128(digits, _) => {
            let most = 10_i128.pow(u32::from(*digits)) - 1;
            (-most, most)
        }
        integer => integer_range(integer).unwrap(),
    };
    if (min..=max).contains(&value) { Ok(value) } else { Err(overflow()) }
}

fn overflow() -> Error {
    Error::invalid("overflow")
}

fn arithmetic(
    op: ArithmeticOp,
    left: Value,
    right: Value,
    types: &(DataType, DataType),
    result: &DataType,
) -> Result<Value> {
    match (left, right) {
        (Value::Float(a), Value::Float(b)) => {
            let value = match op {
                ArithmeticOp::Add => a + b,
                ArithmeticOp::Subtract => a - b,
                ArithmeticOp::Multiply => a * b,
                ArithmeticOp::Divide => a / b,
                ArithmeticOp::Modulo => a % b,
            };
            Ok(Value::Float(if *result == DataType::Float32 { f64::from(value as f32) } else { value }))
        }
        (Value::Int(a), Value::Int(b)) => {
            let scale = |t: &DataType| if let DataType::Decimal128(_, s) = t { i32::from(*s) } else { 0 };
            let (s1, s2, s) = (scale(&types.0), scale(&types.1), scale(result));
            let up = |v: i128, by: i32| {
                10_i128.checked_pow(by as u32).and_then(|f| v.checked_mul(f)).ok_or_else(overflow)
            };
            let common = s1.max(s2);
            let value = match op {
                ArithmeticOp::Add => up(a, common - s1)?.checked_add(up(b, common - s2)?),
                ArithmeticOp::Subtract => up(a, common - s1)?.checked_sub(up(b, common - s2)?),
                ArithmeticOp::Multiply => a.checked_mul(b),
                ArithmeticOp::Divide => up(a, s - s1 + s2)?.checked_div(b),
                ArithmeticOp::Modulo => up(a, common - s1)?.checked_rem(up(b, common - s2)?),
            };
            fit(value.ok_or_else(overflow)?, result).map(Value::Int)
        }
        _ => Ok(Value::Null),
    }
}

/// Casts one value by Arrow's kernel, which defines the results of casts.
fn cast(value: Value, from: &DataType, to: &DataType) -> Result<Value> {
    let literal = Literal::new(value, from.clone())?;
    let array = crate::evaluate::scalar_of(&literal)?;
    let options = arrow_cast::CastOptions { safe: false, ..Default::default() };
    let cast = arrow_cast::cast_with_options(&array, to, &options);
    Ok(super::value_at(&cast.map_err(|e| Error::invalid(e.to_string()))?, 0))
}

fn extract(part: DatePart, time: i128, from: &DataType) -> Result<Value> {
    let array = crate::evaluate::scalar_of(&Literal::new(Value::Int(time), from.clone())?)?;
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
    let made = temporal::date_part(&array, part).map_err(|e| Error::invalid(e.to_string()))?;
    Ok(super::value_at(&made, 0))
}

/// Returns the state (sketch or moments) of all values. Binary arguments are states to be merged, because random
/// programs make no states of binary values.
fn state(a: &Aggregate, function: StateFunction, values: &[Vec<Value>], schema: &Schema) -> Result<Value> {
    let types = a.arguments.iter().map(|e| e.data_type(schema)).collect::<Result<Vec<_>>>()?;
    if types == [DataType::BinaryView] {
        let mut parts = values.iter().map(|value| match (&value[0], function) {
            (Value::Bytes(bytes), StateFunction::Sketch(_)) => {
                State::Sketch(Box::new(Sketch::from_bytes(bytes).unwrap()))
            }
            (Value::Bytes(bytes), StateFunction::Moments(_)) => {
                State::Moments(Box::new(Moments::from_bytes(bytes).unwrap()))
            }
            (other, _) => panic!("{other:?} is no state"),
        });
        let mut merged = parts.next().unwrap();
        parts.for_each(|part| merged.merge(&part).unwrap());
        return Ok(Value::Bytes(merged.to_bytes()));
    }
    let mut state = State::new(function, &types)?;
    let column = |(i, data_type): (usize, &DataType)| {
        let literal = |row: &Vec<Value>| Literal::new(row[i].clone(), data_type.clone());
        let parts = values.iter().map(|row| crate::evaluate::scalar_of(&literal(row)?));
        let parts = parts.collect::<Result<Vec<ArrayRef>>>()?;
        let parts: Vec<&dyn Array> = parts.iter().map(|part| &**part).collect();
        Ok(arrow_select::concat::concat(&parts).unwrap())
    };
    if !values.is_empty() {
        state.update(&types.iter().enumerate().map(column).collect::<Result<Vec<ArrayRef>>>()?)?;
    }
    Ok(Value::Bytes(state.to_bytes()))
}

fn aggregate(a: &Aggregate, rows: &[&Vec<Value>], schema: &Schema) -> Result<Value> {
    let mut values = Vec::new();
    let mut tuples = Vec::new();
    for row in rows {
        if let Some(filter) = &a.filter
            && eval(filter, row, schema)? != Value::Bool(true)
        {
            continue;
        }
        let tuple =
            a.arguments.iter().map(|argument| eval(argument, row, schema)).collect::<Result<Vec<_>>>()?;
        values.push(tuple.first().cloned().unwrap_or(Value::Bool(true)));
        tuples.push(tuple);
    }
    if let AggregateFunction::State(function) = a.function {
        return state(a, function, &tuples, schema);
    }
    values.retain(|v| *v != Value::Null);
    if a.function == AggregateFunction::Count {
        return Ok(Value::Int(values.len() as i128));
    }
    let Some(first) = values.first().cloned() else { return Ok(Value::Null) };
    let scale = |t: &DataType| if let DataType::Decimal128(_, s) = t { i32::from(*s) } else { 0 };
    let argument = a.arguments.first().map(|e| e.data_type(schema)).transpose()?.unwrap_or(DataType::Null);
    let ints = values.iter().map(|v| if let Value::Int(i) = v { *i } else { 0 });
    let bools = || values.iter().map(|v| *v == Value::Bool(true));
    Ok(match (a.function, &first) {
        (AggregateFunction::Count | AggregateFunction::State(_), _) => unreachable!("answered above"),
        (AggregateFunction::AnyValue, _) => first,
        (AggregateFunction::BitAnd, _) => Value::Int(ints.reduce(|l, r| l & r).unwrap()),
        (AggregateFunction::BitOr, _) => Value::Int(ints.reduce(|l, r| l | r).unwrap()),
        (AggregateFunction::BitXor, _) => Value::Int(ints.reduce(|l, r| l ^ r).unwrap()),
        (AggregateFunction::BoolAnd, _) => Value::Bool(bools().all(|b| b)),
        (AggregateFunction::BoolOr, _) => Value::Bool(bools().any(|b| b)),
        (function @ (AggregateFunction::Min | AggregateFunction::Max), _) => {
            let wanted = if function == AggregateFunction::Min { Ordering::Less } else { Ordering::Greater };
            let key = |v: &Value| if let Value::Float(f) = v { f.is_nan() } else { false };
            let order = |l: &Value, r: &Value| match (key(l), key(r)) {
                // Unlike comparisons, minimum and maximum distinguish -0.0 and 0.0; otherwise they would depend on
                // the order of rows.
                (false, false) => match (l, r) {
                    (Value::Float(l), Value::Float(r)) => l.total_cmp(r),
                    _ => compare(l, r).unwrap(),
                },
                (l, r) => l.cmp(&r),
            };
            values.into_iter().fold(first, |best, v| if order(&v, &best) == wanted { v } else { best })
        }
        (function @ (AggregateFunction::Sum | AggregateFunction::Avg), Value::Float(_)) => {
            let sum: f64 =
                values.iter().map(|v| if let Value::Float(f) = v { *f } else { 0.0 }).sum::<f64>() + 0.0;
            Value::Float(if function == AggregateFunction::Avg { sum / values.len() as f64 } else { sum })
        }
        (function @ (AggregateFunction::Sum | AggregateFunction::Avg), _) => {
            let sum = ints.clone().try_fold(0_i128, i128::checked_add);
            if function == AggregateFunction::Avg && a.data_type == DataType::Float64 {
                return Ok(Value::Float(sum.unwrap() as f64 / values.len() as f64));
            }
            // Sums of more than 128 bits have a separate test.
            let sum = sum.ok_or_else(|| Error::invalid("sum"))?;
            let result = if function == AggregateFunction::Avg {
                let factor = 10_i128.pow((scale(&a.data_type) - scale(&argument)) as u32);
                let scaled = sum.checked_mul(factor).ok_or_else(|| Error::invalid("avg"))?;
                let (count, away) = (values.len() as i128, scaled.signum());
                scaled / count + if 2 * (scaled % count).abs() >= count { away } else { 0 }
            } else {
                sum
            };
            let (min, max) = match &a.data_type {
                DataType::Decimal128(p, _) => {
                    (1 - 10_i128.pow(u32::from(*p)), 10_i128.pow(u32::from(*p)) - 1)
                }
                other => integer_range(other).unwrap(),
            };
            if result < min || result > max {
                return Err(Error::invalid("overflow"));
            }
            Value::Int(result)
        }
    })
}
