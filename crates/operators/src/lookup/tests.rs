//! Compares lookups with nested loops over plain values, for random tables.

use super::*;
use crate::evaluate::{Compiled, Frame, truth};
use crate::group::HashKey;
use crate::pace::Pace;
use crate::tests::random::Random;
use crate::tests::rows_of;
use arrow_array::cast::AsArray;
use arrow_array::types::Int64Type;
use arrow_array::{
    ArrayRef, BooleanArray, Decimal128Array, Float64Array, Int32Array, Int64Array, RecordBatch,
    StringViewArray,
};
use arrow_schema::{DataType, Field, Schema, SchemaRef};
use farpool_model::{CompareOp, ErrorKind, Expr, LookupKey, LookupKind, Program, TableName, Value, limits};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// Types of join keys, and the values that random keys have.
#[derive(Clone, Copy, Debug)]
enum Key {
    /// Few values in a small range.
    Narrow,
    /// Few values in a range of some thousands.
    Sparse,
    /// Values from the whole range of the type.
    Wide,
    Text,
    /// Decimals, some of which do not fit 64 bits.
    Decimal,
    Float,
    Flag,
}

const KEYS: [Key; 7] = [Key::Narrow, Key::Sparse, Key::Wide, Key::Text, Key::Decimal, Key::Float, Key::Flag];

impl Key {
    fn array(self, rows: usize, random: &mut Random, nulls: usize) -> ArrayRef {
        let mut numbers = || -> Vec<Option<usize>> {
            (0..rows).map(|_| (!random.chance(nulls)).then(|| random.below(12))).collect()
        };
        let numbers = numbers().into_iter();
        let extreme = |n: usize| [i64::MIN, i64::MAX, -1, 0, 1, 1 << 40][n % 6];
        match self {
            Key::Narrow => Arc::new(Int32Array::from_iter(numbers.map(|n| n.map(|n| n as i32 - 3)))),
            Key::Sparse => Arc::new(Int64Array::from_iter(numbers.map(|n| n.map(|n| n as i64 * 999 - 7)))),
            Key::Wide => Arc::new(Int64Array::from_iter(numbers.map(|n| n.map(extreme)))),
            Key::Text => {
                let text = |n: usize| "a long text with more than twelve bytes"[..n * 3].to_string();
                Arc::new(StringViewArray::from_iter(numbers.map(|n| n.map(text))))
            }
            Key::Decimal => {
                let value = |n: usize| i128::from(extreme(n)) + ((n as i128 / 6) << 64);
                let array = Decimal128Array::from_iter(numbers.map(|n| n.map(value)));
                Arc::new(array.with_precision_and_scale(38, 2).unwrap())
            }
            Key::Float => {
                let value = |n: usize| [0.0, -0.0, f64::NAN, -f64::NAN, f64::INFINITY, 1.5][n % 6];
                Arc::new(Float64Array::from_iter(numbers.map(|n| n.map(value))))
            }
            Key::Flag => Arc::new(BooleanArray::from_iter(numbers.map(|n| n.map(|n| n % 2 == 0)))),
        }
    }
}

/// Rows of one side: join keys, a number, and the number of the row.
fn side(keys: &[Key], rows: usize, random: &mut Random, nulls: usize) -> RecordBatch {
    let mut columns: Vec<ArrayRef> = keys.iter().map(|key| key.array(rows, random, nulls)).collect();
    let numbers = (0..rows).map(|_| (!random.chance(nulls)).then(|| random.below(5) as i64));
    columns.push(Arc::new(Int64Array::from_iter(numbers)));
    columns.push(Arc::new(Int64Array::from_iter_values(0..rows as i64)));
    let field =
        |(at, column): (usize, &ArrayRef)| Field::new(format!("c{at}"), column.data_type().clone(), true);
    let fields: Vec<Field> = columns.iter().enumerate().map(field).collect();
    RecordBatch::try_new(Arc::new(Schema::new(fields)), columns).unwrap()
}

fn table(batch: &RecordBatch, piece: usize, keys: &[usize]) -> LookupTable {
    let pieces = (0..batch.num_rows()).step_by(piece);
    let pieces = pieces.map(|from| batch.slice(from, piece.min(batch.num_rows() - from))).collect();
    let build =
        LookupBuild::new(batch.schema(), pieces, keys, HashKey::new(7), Needs::MatchesAndCondition).unwrap();
    built(&build, piece.is_multiple_of(2))
}

/// A pace that ends every step at once.
struct Hurried;

impl Pace for Hurried {
    fn rows(&mut self, _: usize) -> usize {
        0
    }

    fn ends(&mut self) -> bool {
        true
    }
}

/// Builds a table in the shortest steps, by two threads if `together`.
fn built(build: &LookupBuild, together: bool) -> LookupTable {
    let work = || while build.step(&mut Hurried).unwrap() != BuildStep::Done {};
    #[expect(clippy::disallowed_methods, reason = "a test has threads of its own")]
    std::thread::scope(|scope| {
        if together {
            scope.spawn(work);
        }
        work();
    });
    let table = build.take().unwrap().unwrap();
    assert!(build.take().unwrap().is_none(), "a table is taken once");
    table
}

/// A lookup with the join keys at the same positions on both sides.
fn described(kind: LookupKind, keys: &[usize], residual: Option<&Expr>) -> farpool_model::Lookup {
    let table = TableName::new("t").unwrap();
    let keys = keys.iter().map(|key| LookupKey { row: *key, result: *key }).collect();
    let program = Program::scan(table, &Schema::empty(), &[]);
    farpool_model::Lookup {
        kind,
        program,
        table_schema: Schema::empty().into(),
        given: None,
        keys,
        residual: residual.cloned(),
        mark: "mark".to_string(),
    }
}

fn equal(left: &Value, right: &Value) -> bool {
    match (left, right) {
        (Value::Float(l), Value::Float(r)) => (l + 0.0).to_bits() == (r + 0.0).to_bits(),
        _ => left == right,
    }
}

/// Text of a row that distinguishes all values.
fn text(row: &[Value]) -> String {
    let bits = |value: &Value| match value {
        Value::Float(float) => format!("{:x}", float.to_bits()),
        other => format!("{other:?}"),
    };
    row.iter().map(bits).collect::<Vec<_>>().join(" | ")
}

/// Joins by nested loops. Returns `None` if a scalar subquery has several rows.
fn naive(
    kind: LookupKind,
    (scanned, table): (&RecordBatch, &RecordBatch),
    keys: usize,
    residual: impl Fn(&[Value], &[Value]) -> bool,
) -> Option<Vec<String>> {
    let rows = |batch: &RecordBatch| rows_of(batch.columns(), batch.num_rows());
    let (scanned, table) = (rows(scanned), rows(table));
    let width = table.first().map_or(keys + 2, Vec::len);
    let mut result = Vec::new();
    for row in &scanned {
        let same = |other: &&Vec<Value>| {
            let equal = |key: usize| row[key] != Value::Null && equal(&row[key], &other[key]);
            (0..keys).all(equal) && residual(row, other)
        };
        let matches: Vec<&Vec<Value>> = table.iter().filter(same).collect();
        let joined = |other: &[Value]| text(&[&row[..], other].concat());
        let has_null = row[0] == Value::Null || table.iter().any(|other| other[0] == Value::Null);
        let is_in = match (table.is_empty(), matches.is_empty()) {
            (true, _) => Value::Bool(false),
            (false, false) => Value::Bool(true),
            (false, true) if has_null => Value::Null,
            (false, true) => Value::Bool(false),
        };
        match kind {
            LookupKind::Inner => result.extend(matches.iter().map(|other| joined(other))),
            LookupKind::Single if matches.len() > 1 => return None,
            LookupKind::Left | LookupKind::Single if matches.is_empty() => {
                result.push(joined(&vec![Value::Null; width]));
            }
            LookupKind::Left | LookupKind::Single => result.extend(matches.iter().map(|other| joined(other))),
            LookupKind::Semi => result.extend((!matches.is_empty()).then(|| joined(&[]))),
            LookupKind::Anti => result.extend(matches.is_empty().then(|| joined(&[]))),
            LookupKind::NotIn => result.extend((is_in == Value::Bool(false)).then(|| joined(&[]))),
            LookupKind::Exists => result.push(joined(&[Value::Bool(!matches.is_empty())])),
            LookupKind::In => result.push(joined(&[is_in])),
        }
    }
    result.sort();
    Some(result)
}

/// Joins by a lookup.
fn looked_up(lookup: &Lookup, scanned: &RecordBatch, piece: usize) -> farpool_model::Result<Vec<String>> {
    let mut result = Vec::new();
    for from in (0..scanned.num_rows()).step_by(piece) {
        let mut probing = lookup.probe(scanned.slice(from, piece.min(scanned.num_rows() - from)))?;
        while let Some(batch) = lookup.next(&mut probing)? {
            assert!(batch.num_rows() <= limits::BATCH_ROWS);
            assert_eq!(batch.schema(), *lookup.schema());
            result.extend(rows_of(batch.columns(), batch.num_rows()).iter().map(|row| text(row)));
        }
    }
    result.sort();
    Ok(result)
}

#[test]
fn lookups_join_as_nested_loops_do() {
    let mut random = Random::new(46);
    let (mut refused, mut joined, mut conditions) = (0, 0, 0);
    let mut forms: BTreeMap<&str, usize> = BTreeMap::new();
    for round in 0..400 {
        let count = 1 + random.below(3);
        let keys: Vec<Key> = (0..count).map(|_| KEYS[random.below(KEYS.len())]).collect();
        let nulls = [0, 0, 15][random.below(3)];
        let sizes = [0, 1, 30, 300];
        let scanned = side(&keys, sizes[random.below(4)], &mut random, nulls);
        let others = side(&keys, sizes[random.below(4)], &mut random, nulls);
        let positions: Vec<usize> = (0..count).collect();
        let built = Arc::new(table(&others, 1 + random.below(70), &positions));
        *forms.entry(built.index().unwrap().form()).or_default() += 1;
        assert!(built.bytes() > 0);
        // The number of the scanned row against that of the other row.
        let op = [CompareOp::NotEq, CompareOp::Lt, CompareOp::Eq][random.below(3)];
        let condition = Expr::compare(op, Expr::Column(count), Expr::Column(2 * count + 2));
        conditions += usize::from(check_condition(&built, &scanned, &others, count));
        for kind in LookupKind::ALL {
            let has_residual = random.chance(50) && !kind.minds_nulls();
            if kind.minds_nulls() && count > 1 {
                continue;
            }
            let residual = |left: &[Value], right: &[Value]| match (&left[count], &right[count]) {
                _ if !has_residual => true,
                (Value::Int(left), Value::Int(right)) => match op {
                    CompareOp::NotEq => left != right,
                    CompareOp::Lt => left < right,
                    _ => left == right,
                },
                _ => false,
            };
            let described = described(kind, &positions, has_residual.then_some(&condition));
            let lookup = Lookup::new(&described, &scanned.schema(), built.clone(), |_| true).unwrap();
            let result = looked_up(&lookup, &scanned, 1 + random.below(200));
            let Some(expected) = naive(kind, (&scanned, &others), count, residual) else {
                assert_eq!(result.unwrap_err().kind, ErrorKind::Invalid);
                refused += 1;
                continue;
            };
            joined += expected.len();
            assert_eq!(result.unwrap(), expected, "{kind:?} on {keys:?} in round {round}");
        }
    }
    assert!(refused > 20 && joined > 100_000 && conditions > 100, "{refused} {joined} {conditions}");
    assert!(forms.len() == 3 && forms.values().all(|count| *count > 3), "{forms:?}");
}

/// Checks that the condition on join keys is true for every scanned row with a match. Returns whether there is one.
fn check_condition(built: &LookupTable, scanned: &RecordBatch, others: &RecordBatch, keys: usize) -> bool {
    let Some(condition) = built.condition((0..keys).map(Expr::Column).collect()) else { return false };
    let rows = |batch: &RecordBatch| rows_of(batch.columns(), batch.num_rows());
    let columns = scanned.columns().iter().cloned().enumerate().collect();
    let compiled = Compiled::new(&condition, &scanned.schema()).unwrap();
    let passing = compiled.array(&Frame::new(scanned.num_rows(), columns)).unwrap();
    let passing = truth(&passing);
    for (place, row) in rows(scanned).iter().enumerate() {
        let same = |other: &Vec<Value>| {
            (0..keys).all(|key| row[key] != Value::Null && equal(&row[key], &other[key]))
        };
        assert!(passing.value(place) || !rows(others).iter().any(same), "{condition} of {row:?}");
    }
    true
}

#[test]
fn integer_keys_of_any_range_are_found() {
    let mut random = Random::new(47);
    let mut forms: BTreeMap<&str, usize> = BTreeMap::new();
    for round in 0..300 {
        let rows = 1 + random.below(3000);
        let range = rows * [1, 3, 5, 40, 63, 70, 1000][round % 7];
        let least = [0, -5, i64::MIN, i64::MAX - range as i64][random.below(4)];
        let mut keys: Vec<i64> = (0..rows).map(|_| least + random.below(range) as i64).collect();
        let order = random.below(3);
        if order > 0 {
            keys.sort_unstable();
        }
        if order > 1 {
            keys.dedup();
        }
        let column: ArrayRef = Arc::new(Int64Array::from(keys.clone()));
        let batch = RecordBatch::try_from_iter([("key", column)]).unwrap();
        let built = table(&batch, 1 + random.below(700), &[0]);
        *forms.entry(built.index().unwrap().form()).or_default() += 1;
        let last: BTreeMap<i64, u32> = keys.iter().copied().zip(0..).collect();
        let more = |key: &i64| [key.wrapping_sub(1), *key, key.wrapping_add(1), key.wrapping_add(1 << 40)];
        let probed: Vec<i64> = keys.iter().flat_map(more).chain([i64::MIN, 0, i64::MAX]).collect();
        let expected: Vec<u32> = probed.iter().map(|key| last.get(key).copied().unwrap_or(NONE)).collect();
        let mut found = Vec::new();
        built.find(&[Arc::new(Int64Array::from(probed))], &mut found).unwrap();
        assert!(found == expected, "{rows} rows in a range of {range} from {least}");
    }
    assert!(forms.len() == 3 && forms.values().all(|count| *count > 30), "{forms:?}");
}

#[test]
fn a_hash_table_of_many_regions_has_all_rows_whoever_fills_it() {
    // Strings around the length of those that a view has in itself, and numbers far apart; some keys are in many rows.
    let rows = 150_000_u64;
    let number = |row: u64| (row % 90_000).min(row / 2).wrapping_mul(0x9e37_79b9_7f4a_7c15).cast_signed();
    let text = |row: u64| format!("{:0width$}", row % 70_001, width = 5 + (row % 70_001 % 12) as usize);
    let numbers: ArrayRef = Arc::new(Int64Array::from_iter_values((0..rows).map(number)));
    let texts: ArrayRef = Arc::new(StringViewArray::from_iter_values((0..rows).map(text)));
    let batch = RecordBatch::try_from_iter([("number", numbers), ("text", texts)]).unwrap();
    for keys in [&[0][..], &[1], &[0, 1]] {
        let key = |row: u64| {
            let key = |key: &usize| if *key == 0 { number(row).to_string() } else { text(row) };
            keys.iter().map(key).collect::<Vec<String>>()
        };
        let mut chains: BTreeMap<Vec<String>, Vec<u32>> = BTreeMap::new();
        for row in 0..rows {
            chains.entry(key(row)).or_default().push(row as u32);
        }
        let built = table(&batch, 40_000, keys);
        let index = built.index().unwrap();
        assert_eq!((index.form(), index.is_unique()), ("hashed", false));
        let probed: Vec<ArrayRef> = keys.iter().map(|key| batch.column(*key).slice(17, 9_000)).collect();
        let mut found = Vec::new();
        built.find(&probed, &mut found).unwrap();
        for (row, found) in (17..).zip(found) {
            let known = |row: u32| (row != NONE).then_some(row);
            let chain = std::iter::successors(known(found), |row| known(index.before(*row)));
            let chain: Vec<u32> = chain.collect();
            let expected: Vec<u32> = chains[&key(row)].iter().rev().copied().collect();
            assert_eq!(chain, expected, "{:?}", key(row));
        }
        let (other, absent): (ArrayRef, ArrayRef) = (
            Arc::new(Int64Array::from_iter_values((0..5_000).map(|row| row * 3 + 1))),
            Arc::new(StringViewArray::from_iter_values((0..5_000).map(|row| format!("{row:020}")))),
        );
        let probed = keys.iter().map(|key| if *key == 0 { other.clone() } else { absent.clone() });
        let mut found = Vec::new();
        built.find(&probed.collect::<Vec<_>>(), &mut found).unwrap();
        assert!(found.iter().all(|row| *row == NONE));
    }
}

#[test]
fn a_set_of_keys_alone_tells_whether_a_row_has_a_match() {
    let mut random = Random::new(48);
    let (mut exact, mut others) = (0, 0);
    for round in 0..300 {
        let range = [3, 100, 5_000, 1 << 40][round % 4];
        let mut column = |rows: usize| {
            let keys = (0..rows).map(|_| (!random.chance(9)).then(|| random.below(range) as i64 - 50));
            let column: ArrayRef = Arc::new(Int64Array::from_iter(keys));
            RecordBatch::try_from_iter_with_nullable([("key", column, true)]).unwrap()
        };
        let (side, scanned) = (column(round % 70), column(500));
        let once = round % 3 == 0;
        let pieces = vec![
            side.slice(0, side.num_rows() / 2),
            side.slice(side.num_rows() / 2, side.num_rows().div_ceil(2)),
        ];
        let needs = Needs::Existence { once };
        let build = LookupBuild::new(side.schema(), pieces, &[0], HashKey::new(7), needs).unwrap();
        let built = Arc::new(built(&build, round % 2 == 0));
        let known: Vec<i64> = side.column(0).as_primitive::<Int64Type>().iter().flatten().collect();
        let distinct: BTreeSet<i64> = known.iter().copied().collect();
        assert_eq!((built.rows(), built.has_null_keys()), (known.len(), known.len() < side.num_rows()));
        let is_small = known.is_empty() || distinct.last().unwrap() - distinct.first().unwrap() < 8 << 20;
        assert_eq!(built.is_exact(), is_small && (!once || distinct.len() == known.len()), "round {round}");
        let keys = scanned.column(0).as_primitive::<Int64Type>();
        let is_matched = |key: Option<i64>| key.is_some_and(|key| distinct.contains(&key));
        if !built.is_exact() {
            let mut found = Vec::new();
            built.find(&[scanned.column(0).clone()], &mut found).unwrap();
            let found: Vec<bool> = found.iter().map(|row| *row != NONE).collect();
            assert_eq!(found, keys.iter().map(is_matched).collect::<Vec<_>>());
            others += 1;
            continue;
        }
        exact += 1;
        let condition = built.condition(vec![Expr::Column(0)]).unwrap();
        let compiled = Compiled::new(&condition, &scanned.schema()).unwrap();
        let frame = Frame::new(scanned.num_rows(), [(0, scanned.column(0).clone())].into());
        let passing = truth(&compiled.array(&frame).unwrap());
        assert_eq!(passing, keys.iter().map(|key| Some(is_matched(key))).collect::<BooleanArray>());
        // A lookup takes the rows for which that was tested.
        for kind in [LookupKind::Inner, LookupKind::Semi, LookupKind::Anti] {
            let lookup =
                Lookup::new(&described(kind, &[0], None), &scanned.schema(), built.clone(), |at| at == 0);
            let lookup = lookup.unwrap();
            let mut probing = lookup.probe(scanned.clone()).unwrap();
            let mut rows = 0;
            while let Some(batch) = lookup.next(&mut probing).unwrap() {
                rows += batch.num_rows();
            }
            assert_eq!(rows, scanned.num_rows(), "{kind:?}");
        }
    }
    assert!(exact > 100 && others > 50, "{exact} {others}");
}

#[test]
fn a_batch_that_matches_millions_of_pairs_is_joined_piece_by_piece() {
    let rows = 20_000;
    let ones: ArrayRef = Arc::new(Int64Array::from(vec![1; rows]));
    let schema: SchemaRef = Arc::new(Schema::new(vec![Field::new("one", DataType::Int64, true)]));
    let batch = RecordBatch::try_new(schema.clone(), vec![ones]).unwrap();
    let built = Arc::new(table(&batch, 8192, &[0]));
    let lookup = |kind, residual: Option<&Expr>| {
        Lookup::new(&described(kind, &[0], residual), &schema, built.clone(), |_| true).unwrap()
    };
    let inner = lookup(LookupKind::Inner, None);
    let mut probing = inner.probe(batch.slice(0, limits::BATCH_ROWS)).unwrap();
    for _ in 0..100 {
        assert_eq!(inner.next(&mut probing).unwrap().unwrap().num_rows(), limits::BATCH_ROWS);
    }
    // One match is enough, and no match takes a piece for every few pairs.
    let same = Expr::compare(CompareOp::Eq, Expr::Column(0), Expr::Column(1));
    let other = Expr::compare(CompareOp::NotEq, Expr::Column(0), Expr::Column(1));
    for (condition, pieces) in [(same, 10), (other, 10 * rows / limits::BATCH_ROWS)] {
        let semi = lookup(LookupKind::Semi, Some(&condition));
        let mut probing = semi.probe(batch.slice(0, 10)).unwrap();
        let mut taken = 0;
        while semi.next(&mut probing).unwrap().is_some() {
            taken += 1;
        }
        assert!((pieces..=pieces + 3).contains(&taken) || taken <= pieces, "{taken} pieces, not {pieces}");
    }
}

#[test]
fn a_lookup_that_makes_no_sense_is_refused() {
    let schema: SchemaRef = Arc::new(Schema::new(vec![
        Field::new("a", DataType::Int64, true),
        Field::new("b", DataType::Utf8View, true),
    ]));
    let build = |keys: &[usize]| {
        LookupBuild::new(schema.clone(), Vec::new(), keys, HashKey::default(), Needs::Matches)
    };
    assert!(build(&[]).is_err() && build(&[2]).is_err());
    let built = Arc::new(build(&[0]).unwrap().finish().unwrap());
    let refused = |lookup: &farpool_model::Lookup| {
        let error = Lookup::new(lookup, &schema, built.clone(), |_| true).err().unwrap();
        assert_eq!(error.kind, ErrorKind::Invalid, "{error}");
    };
    let invalid = |kind, keys: &[usize], residual: Option<&Expr>| refused(&described(kind, keys, residual));
    let keys = vec![LookupKey { row: 1, result: 0 }];
    refused(&farpool_model::Lookup { keys, ..described(LookupKind::Inner, &[0], None) });
    invalid(LookupKind::Inner, &[7], None);
    invalid(LookupKind::Inner, &[], None);
    invalid(LookupKind::Inner, &[0], Some(&Expr::Column(0)));
    let condition = Expr::IsNull(Box::new(Expr::Column(0)));
    invalid(LookupKind::In, &[0], Some(&condition));
}
