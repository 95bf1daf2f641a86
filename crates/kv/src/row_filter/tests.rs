//! Tests of row filters (SQL conditions evaluated on entries in place): their results are compared with a simple
//! evaluation of the same conditions on one row at a time, and searching a batch of slots with searching value by
//! value.

use super::{Batch, RowFilter};
use crate::cut::{KeyCut, ReadEntry};
use crate::predicate::plain_schema;
use crate::resp::{Protocol, Replies};
use crate::{Args, Keyspace, NoHost, RowSchema, Session, TimeAndRandom};
use arrow_schema::{DataType, Schema};
use farpool_memory::{Pool, PoolConfig};
use farpool_model::{CompareOp, Expr, LikePieces, Literal, TenantName, Value};
use proptest::prelude::*;
use std::cmp::Ordering;
use std::sync::Arc;

const NOW: u64 = 1_700_000_000_000;

const COLUMNS: &str =
    "id utf8, a u32, b i16, c bool, d f32, e utf8, f f64, g u64, h i8, i date, j timestamp, k binary, l i64";

fn run(keys: &Keyspace, args: &Args<'_>) {
    let mut bytes = Vec::new();
    let mut replies = Replies::new(&mut bytes, Protocol::Resp2);
    let moment = TimeAndRandom { now: NOW, random: 1 };
    Session::default().execute(keys, args, moment, &mut NoHost, &mut replies);
    assert!(!bytes.starts_with(b"-"), "{}", bytes.escape_ascii());
}

fn keyspace() -> Arc<Keyspace> {
    let pool = Pool::new(PoolConfig { bytes_limit: 64 << 20 }).unwrap();
    Arc::new(Keyspace::new(&pool, &TenantName::default(), [7; 16], 2))
}

/// Returns the value of a column as a constant of its type.
fn value_of(
    entry: ReadEntry<'_>,
    schema: Option<&RowSchema>,
    column: usize,
    data_type: &DataType,
) -> Literal {
    let bytes = match (schema, column) {
        (None, 0) => Some(entry.key()),
        (None, 1) => entry.string(),
        (None, _) => None,
        (Some(_), 0) => entry.key().get(2..),
        (Some(schema), column) => entry.row().and_then(|row| schema.field(row, column - 1)),
    };
    let number = |bytes: &[u8]| {
        let mut word = if bytes.last().is_some_and(|last| last >> 7 == 1) { [255; 16] } else { [0; 16] };
        word[..bytes.len()].copy_from_slice(bytes);
        i128::from_le_bytes(word)
    };
    let value = bytes.map_or(Value::Null, |bytes| match data_type {
        DataType::Boolean => Value::Bool(bytes[0] != 0),
        DataType::Float32 => Value::Float(f64::from(f32::from_le_bytes(bytes.try_into().unwrap()))),
        DataType::Float64 => Value::Float(f64::from_le_bytes(bytes.try_into().unwrap())),
        DataType::Utf8View => Value::Text(String::from_utf8(bytes.to_vec()).unwrap()),
        DataType::BinaryView => Value::Bytes(bytes.to_vec()),
        DataType::UInt8 | DataType::UInt16 | DataType::UInt32 | DataType::UInt64 => {
            Value::Int(number(&[bytes, &[0]].concat()))
        }
        _ => Value::Int(number(bytes)),
    });
    Literal::new(value, data_type.clone()).unwrap()
}

fn order(left: &Literal, right: &Literal) -> Option<Ordering> {
    match (left.value(), right.value()) {
        (Value::Float(a), Value::Float(b)) if *a == 0.0 && *b == 0.0 => Some(Ordering::Equal),
        _ => left.compare(right),
    }
}

fn holds(op: CompareOp, order: Ordering) -> bool {
    match op {
        CompareOp::Eq => order.is_eq(),
        CompareOp::NotEq => order.is_ne(),
        CompareOp::Lt => order.is_lt(),
        CompareOp::LtEq => order.is_le(),
        CompareOp::Gt => order.is_gt(),
        CompareOp::GtEq => order.is_ge(),
    }
}

/// Evaluates a condition naively: true, false, or `None` for unknown.
fn evaluate(expr: &Expr, column: &dyn Fn(usize) -> Literal) -> Option<bool> {
    let literal = |expr: &Expr| match expr {
        Expr::Column(at) => column(*at),
        Expr::Literal(literal) => literal.clone(),
        _ => unreachable!(),
    };
    match expr {
        Expr::Column(_) | Expr::Literal(_) => match literal(expr).value() {
            Value::Bool(truth) => Some(*truth),
            _ => None,
        },
        Expr::And(parts) => {
            let all: Vec<_> = parts.iter().map(|part| evaluate(part, column)).collect();
            if all.contains(&Some(false)) {
                Some(false)
            } else {
                all.into_iter().collect::<Option<Vec<_>>>().map(|_| true)
            }
        }
        Expr::Or(parts) => {
            let all: Vec<_> = parts.iter().map(|part| evaluate(part, column)).collect();
            if all.contains(&Some(true)) {
                Some(true)
            } else {
                all.into_iter().collect::<Option<Vec<_>>>().map(|_| false)
            }
        }
        Expr::Not(inner) => evaluate(inner, column).map(|truth| !truth),
        Expr::IsNull(inner) => Some(literal(inner).is_null()),
        Expr::Compare(op, left, right) => {
            order(&literal(left), &literal(right)).map(|order| holds(*op, order))
        }
        Expr::InList(value, list) => {
            let value = literal(value);
            let orders: Vec<_> = list.iter().map(|one| order(&value, one)).collect();
            match () {
                () if value.is_null() => None,
                () if orders.contains(&Some(Ordering::Equal)) => Some(true),
                () => orders.into_iter().collect::<Option<Vec<_>>>().map(|_| false),
            }
        }
        Expr::Like { value, pattern, .. } => match literal(value).value() {
            Value::Text(text) => Some(regex(pattern, text)),
            _ => None,
        },
        _ => unreachable!(),
    }
}

/// Returns whether `text` matches a LIKE pattern, by trying every length for each `%`.
fn regex(pattern: &str, text: &str) -> bool {
    match (pattern.chars().next(), text.chars().next()) {
        (None, first) => first.is_none(),
        (Some('%'), first) => {
            regex(&pattern[1..], text) || first.is_some_and(|first| regex(pattern, &text[first.len_utf8()..]))
        }
        (Some('_'), Some(first)) => regex(&pattern[1..], &text[first.len_utf8()..]),
        (Some(wanted), Some(first)) => {
            wanted == first && regex(&pattern[wanted.len_utf8()..], &text[first.len_utf8()..])
        }
        (Some(_), None) => false,
    }
}

fn op() -> impl Strategy<Value = CompareOp> {
    prop::sample::select(vec![
        CompareOp::Eq,
        CompareOp::NotEq,
        CompareOp::Lt,
        CompareOp::LtEq,
        CompareOp::Gt,
        CompareOp::GtEq,
    ])
}

/// Returns a strategy for constants of a type, with few different values, so that comparisons often find equal ones.
fn constant(data_type: DataType) -> impl Strategy<Value = Literal> {
    (0_usize..10).prop_map(move |choice| {
        let (least, most) = farpool_model::literal::integer_range(&data_type).unwrap_or((0, 0));
        let value = match &data_type {
            _ if choice == 0 => Value::Null,
            DataType::Boolean => Value::Bool(choice % 2 == 0),
            DataType::Float32 | DataType::Float64 => Value::Float(
                [0.0, -0.0, 1.5, -1.5, f64::NAN, f64::INFINITY, f64::NEG_INFINITY, 1.0, -2.0][choice - 1],
            ),
            DataType::Utf8View => {
                Value::Text(["", "a", "ab", "ba", "é", "abc", "b", "aa", "cab"][choice - 1].to_string())
            }
            DataType::BinaryView => Value::Bytes(
                [&b""[..], b"a", b"\xff", b"ab", b"\0", b"b", b"aa", b"c", b"ca"][choice - 1].to_vec(),
            ),
            _ => Value::Int([least, most, 0, 1, 2, 3, 5, 7, if least < 0 { -1 } else { 9 }][choice - 1]),
        };
        Literal::new(value, data_type.clone()).unwrap()
    })
}

fn leaf(schema: &Schema) -> BoxedStrategy<Expr> {
    let types: Vec<DataType> = schema.fields().iter().map(|field| field.data_type().clone()).collect();
    (0..types.len())
        .prop_flat_map(move |at| {
            let data_type = types[at].clone();
            let column = move || Box::new(Expr::Column(at));
            let compared =
                (op(), constant(data_type.clone()), any::<bool>()).prop_map(move |(op, constant, swaps)| {
                    let constant = Box::new(Expr::Literal(constant));
                    if swaps {
                        Expr::Compare(op, constant, column())
                    } else {
                        Expr::Compare(op, column(), constant)
                    }
                });
            let listed = prop::collection::vec(constant(data_type.clone()), 1..8)
                .prop_map(move |list| Expr::InList(column(), list));
            let is_null = Just(Expr::IsNull(column()));
            let other = match data_type {
                DataType::Boolean => Just(*column()).boxed(),
                DataType::Utf8View => "[ab%_]{0,4}"
                    .prop_map(move |pattern| Expr::Like { value: column(), pattern, case_insensitive: false })
                    .boxed(),
                _ => Just(Expr::Not(Box::new(Expr::IsNull(column())))).boxed(),
            };
            prop_oneof![4 => compared, 2 => listed, 1 => is_null, 2 => other]
        })
        .boxed()
}

fn condition(schema: &Schema) -> impl Strategy<Value = Expr> + use<> {
    leaf(schema).prop_recursive(3, 16, 4, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 1..5).prop_map(Expr::And),
            prop::collection::vec(inner.clone(), 1..5).prop_map(Expr::Or),
            inner.prop_map(|inner| Expr::Not(Box::new(inner))),
        ]
    })
}

/// Compares the entries of a cut that a filter keeps with those for which the condition is true.
fn check(cut: &KeyCut, schema: &Schema, rows: Option<&RowSchema>, condition: &Expr) {
    let prefix_bytes = if rows.is_some() { 2 } else { 0 };
    let Some(filter) = RowFilter::of(condition, rows, prefix_bytes) else { return };
    for part in cut.parts(100, 1 << 20).unwrap() {
        let (mut kept, mut wanted, mut entries) = (Vec::new(), Vec::new(), 0);
        let count = cut
            .read(&part, Some(&filter), |some| kept.extend(some.iter().map(|entry| entry.key().to_vec())))
            .unwrap();
        cut.read(&part, None, |some| {
            for entry in some {
                entries += 1;
                let column = |at: usize| value_of(*entry, rows, at, schema.field(at).data_type());
                if evaluate(condition, &column) == Some(true) {
                    wanted.push(entry.key().to_vec());
                }
            }
        })
        .unwrap();
        assert_eq!(count.entries, entries, "entries that are dropped were read");
        if filter.is_exact() {
            assert_eq!(kept, wanted, "{condition}");
        } else {
            assert!(wanted.iter().all(|key| kept.contains(key)), "{condition}");
        }
    }
}

/// Formats a value as the text that clients write in `HSET`; `None` for values without such a text.
fn text_of(literal: &Literal) -> Option<Vec<u8>> {
    Some(match (literal.value(), literal.data_type()) {
        (Value::Null, _) => return None,
        (Value::Bool(truth), _) => truth.to_string().into_bytes(),
        (Value::Int(days), DataType::Date32) => (*days as i32).to_le_bytes().to_vec(),
        (Value::Int(number), _) => number.to_string().into_bytes(),
        (Value::Float(number), _) => number.to_string().into_bytes(),
        (Value::Text(text), _) => text.clone().into_bytes(),
        (Value::Bytes(bytes), _) => bytes.clone(),
    })
}

#[test]
fn of_many_conditions_some_are_left_out() {
    let keys = keyspace();
    for number in 0..200 {
        run(&keys, &[b"SET", format!("k{number}").as_bytes(), format!("v{number}").as_bytes()]);
    }
    let schema = plain_schema(false);
    let differs = |number: usize, op: CompareOp| {
        let text = Literal::new(Value::Text(format!("v{number}")), DataType::Utf8View).unwrap();
        Expr::Compare(op, Box::new(Expr::Column(1)), Box::new(Expr::Literal(text)))
    };
    let all = |op: CompareOp, count: usize| (0..count).map(|number| differs(number, op)).collect::<Vec<_>>();
    let cut = keys.cut(0, NOW);
    for (count, is_exact) in
        [(super::build::CONDITIONS, true), (super::build::CONDITIONS + 1, false), (100_000, false)]
    {
        let condition = Expr::And(all(CompareOp::NotEq, count));
        let filter = RowFilter::of(&condition, None, 0).unwrap();
        assert_eq!(filter.is_exact(), is_exact, "{count}");
        if count < 1000 {
            check(&cut, schema, None, &condition);
        }
        // Alternatives of an OR cannot be left out individually: a filter is compiled for all of them or, if there are
        // too many, not at all.
        let any = RowFilter::of(&Expr::Or(all(CompareOp::Eq, count)), None, 0);
        assert_eq!(any.is_some(), is_exact, "{count}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(150))]

    #[test]
    fn a_filter_of_rows_keeps_what_its_condition_is_true_for(
        conditions in prop::collection::vec(condition(&RowSchema::parse(COLUMNS).unwrap().to_arrow()), 1..8),
        rows in prop::collection::vec(
            RowSchema::parse(COLUMNS).unwrap().to_arrow().fields().iter().skip(1)
                .map(|field| constant(field.data_type().clone()).boxed()).collect::<Vec<_>>(),
            1..150),
        gone in prop::collection::vec(0_usize..150, 0..20),
    ) {
        let keys = keyspace();
        run(&keys, &[b"FP.SPACE", b"CREATE", b"t", COLUMNS.as_bytes(), b"PREFIX", b"t:"]);
        let schema = RowSchema::parse(COLUMNS).unwrap();
        let set = |at: usize, values: &[Literal]| {
            let mut args: Vec<Vec<u8>> = vec![b"HSET".to_vec(), format!("t:{at}").into_bytes()];
            for (field, value) in schema.fields().iter().zip(values) {
                let is_moment = matches!(field.kind, crate::ColumnType::Date | crate::ColumnType::Timestamp);
                let Some(mut text) = text_of(value) else { continue };
                if is_moment {
                    // Dates and timestamps are stored as numbers, because their text form is another one than `text_of`
                    // returns.
                    let bytes = match value.as_int() {
                        Some(number) if (0..100_000).contains(&number) => (number as i64).to_le_bytes(),
                        _ => continue,
                    };
                    text = field.kind.value_text(&bytes[..field.kind.width().unwrap()]).into_owned();
                }
                args.extend([field.name.clone().into_bytes(), text]);
            }
            let args: Vec<&[u8]> = args.iter().map(Vec::as_slice).collect();
            if args.len() > 2 {
                run(&keys, &args);
            }
        };
        rows.iter().enumerate().for_each(|(at, values)| set(at, values));
        let space = keys.spaces().named("t").unwrap().id;
        let cut = keys.cut(space, NOW);
        // Changes after the cut (point-in-time view) was taken must not affect what the filter reads.
        for at in gone {
            run(&keys, &[b"DEL", format!("t:{at}").as_bytes()]);
            set(at + 1, &rows[at % rows.len()]);
        }
        for condition in &conditions {
            check(&cut, &schema.to_arrow(), Some(&schema), condition);
        }
    }

    #[test]
    fn a_filter_of_strings_keeps_what_its_condition_is_true_for(
        conditions in prop::collection::vec(condition(plain_schema(false)), 1..8),
        values in prop::collection::vec("[ab]{0,3}|[abc]{0,200}|é{0,9}", 1..200),
        hashes in 0_usize..3,
    ) {
        let keys = keyspace();
        for (at, value) in values.iter().enumerate() {
            run(&keys, &[b"SET", format!("a{at}b").as_bytes(), value.as_bytes()]);
        }
        (0..hashes).for_each(|at| run(&keys, &[b"HSET", format!("h{at}").as_bytes(), b"a", b"b"]));
        for condition in &conditions {
            let mut columns = std::collections::BTreeSet::new();
            condition.collect_columns(&mut columns);
            // Conditions on column 2 (`ttl`) are left out, because the naive evaluation does not know expiries.
            if !columns.contains(&2) {
                check(&keys.cut(0, NOW), plain_schema(false), None, condition);
            }
        }
    }

    #[test]
    fn slots_are_searched_as_values_are(
        values in prop::collection::vec("[ab]{0,12}|[abc]{40,200}", 1..200),
        gone in prop::collection::vec(0_usize..200, 0..60),
        needle in "[ab]{1,3}",
    ) {
        let keys = keyspace();
        // The second `SET` shortens the value, so that keys and unused ends of slots contain the needle, too. A search
        // must not find it there.
        for (at, value) in values.iter().enumerate() {
            run(&keys, &[b"SET", format!("{needle}{at}{needle}").as_bytes(), format!("{value}{needle}").as_bytes()]);
            run(&keys, &[b"SET", format!("{needle}{at}{needle}").as_bytes(), value.as_bytes()]);
        }
        for at in gone {
            run(&keys, &[b"DEL", format!("{needle}{at}{needle}").as_bytes()]);
        }
        let pieces = LikePieces::of(&format!("%{needle}%")).unwrap();
        let cut = keys.cut(0, NOW);
        for part in cut.parts(100, 1 << 20).unwrap() {
            cut.read_slots(&part, |slots| {
                let mut batch = Batch::new();
                batch.fill(slots, crate::entry::Kind::String, NOW);
                let each = batch.values().iter().enumerate().filter(|(_, value)| pieces.is_match(value));
                let each = each.fold(0, |found, (row, _)| found | 1 << row);
                if let Some(found) = batch.find(pieces.anywhere().unwrap(), batch.all()) {
                    assert_eq!(found, each);
                }
            });
        }
    }
}
