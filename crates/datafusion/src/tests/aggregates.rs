//! Tests that aggregates over the extreme values of each type agree with plain Rust code on wider integers, wherever
//! they run: in the pool, over VALUES, in groups, above a join, in windows, over distinct values.

use super::{Fake, rows, session};
use crate::Session;
use arrow_array::cast::AsArray;
use arrow_array::types::Float64Type;
use arrow_array::{
    Array, ArrayRef, BooleanArray, Decimal128Array, Float32Array, Float64Array, Int64Array, RecordBatch,
    UInt64Array,
};
use arrow_schema::{DataType, Field, FieldRef, Schema};
use datafusion::common::ScalarValue;
use datafusion::logical_expr::function::AccumulatorArgs;
use datafusion::logical_expr::{AggregateUDF, EmitTo, GroupsAccumulator};
use datafusion::physical_expr::expressions::{Column, Literal};
use datafusion::physical_plan::PhysicalExpr;
use farpool_sql::aggregates;
use proptest::prelude::*;
use std::cmp::Ordering;
use std::collections::BTreeSet;
use std::sync::Arc;

/// A row of the test table `e`: its group, and a value of each type.
#[derive(Clone, Copy, Debug)]
struct Row {
    g: i64,
    i: Option<i64>,
    u: Option<u64>,
    /// `DECIMAL(38, 0)`.
    d: Option<i128>,
    /// `DECIMAL(10, 2)`, in hundredths.
    p: Option<i128>,
    f: Option<f64>,
}

const D_MAX: i128 = 10_i128.pow(38) - 1;

/// Creates rows for each type: groups whose results fit the type, groups whose results do not, and some whose sums
/// leave the type's range only temporarily.
fn extremes() -> Vec<Row> {
    let row = |g, i: i64, u: u64, d: i128, p: i128, f: f64| Row {
        g,
        i: Some(i),
        u: Some(u),
        d: Some(d),
        p: Some(p),
        f: Some(f),
    };
    let null = |g| Row { g, i: None, u: None, d: None, p: None, f: None };
    vec![
        row(1, i64::MAX, u64::MAX, D_MAX, 9_999_999_999, f64::INFINITY),
        row(1, 1, 1, 1, -9_999_999_998, f64::INFINITY),
        null(1),
        row(2, i64::MAX, 3, D_MAX, 1, f64::NEG_INFINITY),
        row(2, i64::MAX, 2, D_MAX, 1, f64::NEG_INFINITY),
        row(2, -i64::MAX, 1, -D_MAX, 0, f64::NEG_INFINITY),
        row(3, i64::MIN, 0, -D_MAX, -1, f64::NAN),
        row(3, -1, 0, -1, -1, 1.5),
        row(3, 1, 0, 1, 0, -f64::NAN),
        row(4, 5, 5, 5, 5, -0.0),
        row(4, 5, 5, 5, 5, 0.0),
        null(4),
        row(4, -7, 7, 7, 8, -0.0),
        null(5),
        row(6, i64::MIN, u64::MAX, 1, 2, -f64::NAN),
        row(7, 1, 2, 3, 4, f64::MAX),
        row(7, 1, 2, 3, 4, f64::INFINITY),
        row(7, 2, 4, 9, 7, f64::MIN),
    ]
}

fn table(rows: &[Row]) -> RecordBatch {
    let of = |value: fn(&Row) -> Option<i128>, precision, scale| {
        let values = rows.iter().map(value).collect::<Decimal128Array>();
        Arc::new(values.with_precision_and_scale(precision, scale).unwrap())
    };
    let columns: Vec<(&str, ArrayRef)> = vec![
        ("id", Arc::new((0..rows.len() as i64).collect::<Int64Array>())),
        ("g", Arc::new(rows.iter().map(|row| Some(row.g)).collect::<Int64Array>())),
        ("i", Arc::new(rows.iter().map(|row| row.i).collect::<Int64Array>())),
        ("u", Arc::new(rows.iter().map(|row| row.u).collect::<UInt64Array>())),
        ("d", of(|row| row.d, 38, 0)),
        ("p", of(|row| row.p, 10, 2)),
        ("f", Arc::new(rows.iter().map(|row| row.f).collect::<Float64Array>())),
        ("h", Arc::new(rows.iter().map(|row| row.f.map(|f| f as f32)).collect::<Float32Array>())),
    ];
    RecordBatch::try_from_iter_with_nullable(columns.into_iter().map(|(name, c)| (name, c, true))).unwrap()
}

/// Computes the expected text of an aggregate over some rows, in plain Rust. `None` if the result does not fit its
/// type.
type Naive = fn(&[Row]) -> Option<String>;

fn shown(value: Option<i128>, scale: usize) -> String {
    let Some(value) = value else { return "NULL".to_string() };
    let digits = format!("{:0>width$}", value.unsigned_abs(), width = scale + 1);
    let (whole, part) = digits.split_at(digits.len() - scale);
    let sign = if value < 0 { "-" } else { "" };
    if scale == 0 { format!("{sign}{whole}") } else { format!("{sign}{whole}.{part}") }
}

/// Returns the sum of the values; `None` if there are none. In these tests it fits in 128 bits.
fn total(values: impl Iterator<Item = i128>) -> Option<i128> {
    values.reduce(|l, r| l.checked_add(r).expect("a sum of 128 bits"))
}

fn within(value: Option<i128>, low: i128, high: i128, scale: usize) -> Option<String> {
    value.is_none_or(|value| (low..=high).contains(&value)).then(|| shown(value, scale))
}

fn mean(values: Vec<i128>) -> Option<String> {
    // The mean has a scale that is larger by 4, and is rounded half away from zero.
    let count = values.len() as i128;
    let mean = total(values.into_iter()).map(|sum| {
        let twice = 2 * sum * 10_000;
        (twice + sum.signum() * count) / (2 * count)
    });
    within(mean, 1 - 10_i128.pow(14), 10_i128.pow(14) - 1, 6)
}

fn distinct<T: Ord>(values: impl Iterator<Item = T>) -> impl Iterator<Item = T> {
    values.collect::<BTreeSet<T>>().into_iter()
}

/// Compares floats as farpool does: NaN is the greatest, whatever its sign; -0.0 is less than 0.0.
fn order(l: &f64, r: &f64) -> Ordering {
    l.is_nan().cmp(&r.is_nan()).then(if l.is_nan() { Ordering::Equal } else { l.total_cmp(r) })
}

fn float(value: Option<f64>) -> Option<String> {
    Some(value.map_or("NULL".to_string(), |value| format!("{value:?}")))
}

fn single(value: Option<f64>) -> Option<String> {
    Some(value.map_or("NULL".to_string(), |value| format!("{:?}", value as f32)))
}

const CALLS: &[(&str, Naive)] = &[
    ("sum(i)", |rows| {
        within(total(rows.iter().filter_map(|r| r.i).map(i128::from)), i64::MIN.into(), i64::MAX.into(), 0)
    }),
    ("sum(u)", |rows| within(total(rows.iter().filter_map(|r| r.u).map(i128::from)), 0, u64::MAX.into(), 0)),
    ("sum(d)", |rows| {
        // The sum of the two greatest 38-digit values does not fit in 128 bits.
        let (low, high) = rows
            .iter()
            .filter_map(|r| r.d)
            .fold((0, 0), |(low, high), d| (low + d % 10_i128.pow(19), high + d / 10_i128.pow(19)));
        let is_null = rows.iter().all(|r| r.d.is_none());
        let sum = high.checked_mul(10_i128.pow(19)).and_then(|high| high.checked_add(low));
        if is_null {
            Some("NULL".to_string())
        } else {
            sum.and_then(|sum| within(Some(sum), -D_MAX, D_MAX, 0))
        }
    }),
    ("sum(p)", |rows| within(total(rows.iter().filter_map(|r| r.p)), -D_MAX, D_MAX, 2)),
    ("avg(p)", |rows| mean(rows.iter().filter_map(|r| r.p).collect())),
    ("mean(p)", |rows| mean(rows.iter().filter_map(|r| r.p).collect())),
    ("min(f)", |rows| float(rows.iter().filter_map(|r| r.f).min_by(order))),
    ("max(f)", |rows| float(rows.iter().filter_map(|r| r.f).max_by(order))),
    ("min(h)", |rows| single(rows.iter().filter_map(|r| r.f).map(|f| f64::from(f as f32)).min_by(order))),
    ("max(h)", |rows| single(rows.iter().filter_map(|r| r.f).map(|f| f64::from(f as f32)).max_by(order))),
    ("min(i)", |rows| Some(shown(rows.iter().filter_map(|r| r.i).min().map(i128::from), 0))),
    ("max(u)", |rows| Some(shown(rows.iter().filter_map(|r| r.u).max().map(i128::from), 0))),
    ("sum(DISTINCT i)", |rows| {
        let values = distinct(rows.iter().filter_map(|r| r.i)).map(i128::from);
        within(total(values), i64::MIN.into(), i64::MAX.into(), 0)
    }),
    ("sum(DISTINCT u)", |rows| {
        within(total(distinct(rows.iter().filter_map(|r| r.u)).map(i128::from)), 0, u64::MAX.into(), 0)
    }),
    ("sum(DISTINCT p)", |rows| within(total(distinct(rows.iter().filter_map(|r| r.p))), -D_MAX, D_MAX, 2)),
    ("avg(DISTINCT p)", |rows| mean(distinct(rows.iter().filter_map(|r| r.p)).collect())),
];

async fn sessions() -> Vec<(&'static str, Session)> {
    let keys = RecordBatch::try_from_iter([("k", Arc::new(Int64Array::from_iter_values(0..9)) as ArrayRef)]);
    let (rows, keys) = (extremes(), keys.unwrap());
    let mut sessions = Vec::new();
    for (name, pushdown, fake) in [
        ("without push-down", false, Fake::default()),
        ("embedded", true, Fake::default()),
        ("remote", true, Fake { remote: true, ..Fake::default() }),
        ("refusing aggregation", true, Fake { refuses_aggregation: true, ..Fake::default() }),
    ] {
        let pool = fake.with("e", vec![table(&rows)]).await.with("keys", vec![keys.clone()]).await;
        sessions.push((name, session(&Arc::new(pool), pushdown).await));
    }
    sessions
}

/// Runs `sql`, in which `{}` stands for the condition that selects groups: first with all groups whose results fit
/// their types; then with each other group alone, for which the statement must fail.
async fn check(sessions: &[(&str, Session)], sql: &str, expected: &[(i64, Option<Vec<String>>)]) {
    for (name, session) in sessions {
        let (fit, unfit): (Vec<_>, Vec<_>) = expected.iter().partition(|(_, rows)| rows.is_some());
        let groups: Vec<String> = fit.iter().map(|(group, _)| group.to_string()).collect();
        let fitting = sql.replace("{}", &format!("e.g IN ({})", groups.join(", ")));
        let wanted: Vec<String> = fit.iter().flat_map(|(_, rows)| rows.clone().unwrap()).collect();
        if !fit.is_empty() {
            assert_eq!(rows(session, &fitting).await.as_ref(), Ok(&wanted), "{name}: {fitting}");
        }
        for (group, _) in unfit {
            let unfitting = sql.replace("{}", &format!("e.g = {group}"));
            let error = rows(session, &unfitting).await.unwrap_err();
            assert!(error.message.contains(" overflows "), "{name}: {unfitting}: {error}");
            assert_eq!(
                error.advice.as_deref(),
                Some("cast the argument to a wider type, such as DECIMAL(38, 0)"),
                "{name}: {unfitting}"
            );
        }
    }
}

/// Returns the rows by group; each row with its position among all rows.
fn grouped() -> Vec<(i64, Vec<(usize, Row)>)> {
    let rows: Vec<(usize, Row)> = extremes().into_iter().enumerate().collect();
    let groups = rows.chunk_by(|l, r| l.1.g == r.1.g).map(|rows| (rows[0].1.g, rows.to_vec()));
    groups.collect()
}

fn of_groups(naive: Naive) -> Vec<(i64, Option<Vec<String>>)> {
    let of = |(group, rows): (i64, Vec<(usize, Row)>)| {
        let rows: Vec<Row> = rows.into_iter().map(|(_, row)| row).collect();
        (group, naive(&rows).map(|shown| vec![format!("{group}|{shown}")]))
    };
    grouped().into_iter().map(of).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn in_groups_and_above_a_join() {
    let sessions = sessions().await;
    for (call, naive) in CALLS {
        let expected = of_groups(*naive);
        check(&sessions, &format!("SELECT g, {call} FROM e WHERE {{}} GROUP BY g ORDER BY g"), &expected)
            .await;
        let joined = "SELECT k, {call} FROM e JOIN keys ON e.g = keys.k WHERE {} GROUP BY k ORDER BY k";
        check(&sessions, &joined.replace("{call}", call), &expected).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_groups() {
    let sessions = sessions().await;
    for (call, naive) in CALLS {
        for expected in of_groups(*naive) {
            let (group, unjoined) = (expected.0, std::slice::from_ref(&expected));
            check(&sessions, &format!("SELECT {group}, {call} FROM e WHERE {{}}"), unjoined).await;
            let joined = format!("SELECT {group}, {call} FROM e JOIN keys ON e.g = keys.k WHERE {{}}");
            check(&sessions, &joined, unjoined).await;
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn in_windows() {
    let sessions = sessions().await;
    for (call, naive) in CALLS {
        for (frame, width) in
            [("ROWS BETWEEN 1 PRECEDING AND CURRENT ROW", 2), ("ROWS UNBOUNDED PRECEDING", 99)]
        {
            let of = |(group, rows): (i64, Vec<(usize, Row)>)| {
                let row = |end: usize| {
                    let frame: Vec<Row> = rows[..end].iter().map(|(_, row)| *row).collect();
                    let shown = naive(&frame[end.saturating_sub(width)..])?;
                    Some(format!("{}|{shown}", rows[end - 1].0))
                };
                (group, (1..=rows.len()).map(row).collect::<Option<Vec<String>>>())
            };
            let expected: Vec<_> = grouped().into_iter().map(of).collect();
            let window = format!("{call} OVER (PARTITION BY g ORDER BY id {frame})");
            check(&sessions, &format!("SELECT id, {window} FROM e WHERE {{}} ORDER BY id"), &expected).await;
        }
    }
}

/// Runs the aggregates over VALUES, and over types that a pool does not support.
#[tokio::test]
async fn over_values() {
    let pool = Arc::new(Fake::default());
    let session = session(&pool, true).await;
    let max = i64::MAX;
    let wide = "9".repeat(76);
    let hundredths = "(values (0.01),(0.01),(0.00)) t(x)";
    let ok = |value: &str| Ok(vec![value.to_string()]);
    let overflow = |what: &str, to: &str| Err(format!("{what} overflows {to}"));
    let cases: Vec<(String, Result<Vec<String>, String>)> = vec![
        (format!("sum(x) from (values ({max}),(1)) t(x)"), overflow("sum of \"sum(t.x)\"", "BIGINT")),
        (format!("sum(x) from (values ({max}),(1),(-1)) t(x)"), ok(&max.to_string())),
        (format!("sum(x + 1) from (values ({}),(-5)) t(x)", max - 1), ok(&(max - 4).to_string())),
        (format!("sum(x + -10), sum(x + -20) from (values ({max}),(5)) t(x)"), {
            ok(&format!("{}|{}", max - 15, max - 35))
        }),
        (format!("avg(cast(x as decimal(10, 2))) from {hundredths}"), ok("0.006667")),
        (format!("avg(-cast(x as decimal(10, 2))) from {hundredths}"), ok("-0.006667")),
        (format!("avg(arrow_cast(x, 'Decimal32(9, 2)')) from {hundredths}"), ok("0.006667")),
        (
            "sum(arrow_cast(x, 'Decimal32(9, 0)')) from (values (999999999),(1)) t(x)".to_string(),
            overflow("", "DECIMAL(9,0)"),
        ),
        (
            "sum(arrow_cast(x, 'Decimal64(18, 0)')) from (values (999999999),(1)) t(x)".to_string(),
            ok("1000000000"),
        ),
        (
            format!("sum(cast(x as decimal(76, 0))) from (values ('{wide}'),('{wide}'),('-{wide}')) t(x)"),
            ok(&wide),
        ),
        (
            "max(arrow_cast(x, 'Float16')) from (values ('-inf'::double)) t(x) group by x".to_string(),
            ok("-inf"),
        ),
        (
            "min(arrow_cast(x, 'Float16')) from (values ('inf'::double),('nan'::double)) t(x)".to_string(),
            ok("inf"),
        ),
        // The expected results are DuckDB's.
        ("percentile_cont(0.9) within group (order by x) from (values (21.0::double),(21.5::double)) t(x)".to_string(), ok("21.45")),
        ("percentile_cont(0.9) within group (order by x desc) from (values (1.0::double),(3.0::double),(7.0::double)) t(x)".to_string(), ok("1.4")),
        ("percentile_cont(x, 0.3) from (values (0.0::double),(1e9::double)) t(x)".to_string(), ok("300000000.0")),
        ("percentile_cont(distinct x, 0.5) from (values (0.0::double),(1.0::double),(1.0::double)) t(x)".to_string(), ok("0.5")),
        ("percentile_cont(x, 1.0) from (values ('-inf'::double)) t(x) group by x".to_string(), ok("-inf")),
        ("percentile_cont(x, 0.5) over (order by x rows 1 preceding) from (values (1.0::double),(2.0::double),(4.0::double)) t(x)".to_string(), Ok(vec!["1.0".to_string(), "1.5".to_string(), "3.0".to_string()])),
    ];
    for (sql, expected) in cases {
        let found = rows(&session, &format!("select {sql}")).await;
        match expected {
            Ok(expected) => assert_eq!(found.as_ref(), Ok(&expected), "{sql}"),
            Err(expected) => {
                let message = found.unwrap_err().message;
                assert!(message.replace('\\', "").contains(&expected), "{sql}: {message}");
            }
        }
    }
}

#[test]
fn percentiles_take_all_of_several_states() {
    for is_distinct in [false, true] {
        let floats: Vec<FieldRef> =
            ["x", "q"].map(|name| Arc::new(Field::new(name, DataType::Float64, true))).into();
        let function = aggregates::percentile_cont();
        let exprs: [Arc<dyn PhysicalExpr>; 2] =
            [Arc::new(Column::new("x", 0)), Arc::new(Literal::new(ScalarValue::from(0.5)))];
        let new = || {
            let arguments = AccumulatorArgs {
                return_field: Arc::clone(&floats[0]),
                schema: &Schema::empty(),
                ignore_nulls: false,
                order_bys: &[],
                is_reversed: false,
                name: "x",
                is_distinct,
                exprs: &exprs,
                expr_fields: &floats,
            };
            function.accumulator(arguments).unwrap()
        };
        let state = |values: &[f64]| {
            let mut part = new();
            part.update_batch(&[Arc::new(Float64Array::from(values.to_vec()))]).unwrap();
            part.state().unwrap().remove(0)
        };
        let states = [state(&[1.0, 2.0]), state(&[]), state(&[40.0, 50.0, 60.0])];
        let mut whole = new();
        whole.merge_batch(&[ScalarValue::iter_to_array(states).unwrap()]).unwrap();
        assert_eq!(whole.evaluate().unwrap(), ScalarValue::from(40.0), "distinct: {is_distinct}");
    }
}

/// Creates an accumulator for many groups (`GroupsAccumulator`), as DataFusion does.
fn accumulator(function: &AggregateUDF, argument: &DataType) -> Box<dyn GroupsAccumulator> {
    let fields: Vec<FieldRef> = vec![Arc::new(Field::new("x", argument.clone(), true))];
    let arguments = AccumulatorArgs {
        return_field: function.return_field(&fields).unwrap(),
        schema: &Schema::empty(),
        ignore_nulls: false,
        order_bys: &[],
        is_reversed: false,
        name: "x",
        is_distinct: false,
        exprs: &[],
        expr_fields: &fields,
    };
    function.create_groups_accumulator(arguments).unwrap()
}

/// Returns the results of four groups whose rows arrive in batches. Each batch is accumulated separately, or converted
/// to states row by row; the states are emitted in two pieces and merged.
fn in_parts(
    function: &AggregateUDF,
    values: &dyn Array,
    groups: &[usize],
    filter: &BooleanArray,
    cuts: &[usize],
) -> ArrayRef {
    let mut whole = accumulator(function, values.data_type());
    let ends = cuts.iter().copied().chain([values.len()]);
    let mut start = 0;
    for (part, end) in ends.enumerate() {
        let end = end.clamp(start, values.len());
        let (rows, filter) = (values.slice(start, end - start), filter.slice(start, end - start));
        let filter = (filter.true_count() < filter.len()).then_some(&filter);
        let groups = &groups[start..end];
        start = end;
        let mut piece = accumulator(function, values.data_type());
        if part % 2 == 1 {
            let states = piece.convert_to_state(&[rows], filter).unwrap();
            whole.merge_batch(&states, groups, 4).unwrap();
            continue;
        }
        let known: Vec<usize> = groups.iter().copied().collect::<BTreeSet<usize>>().into_iter().collect();
        let numbers: Vec<usize> = groups.iter().map(|group| known.binary_search(group).unwrap()).collect();
        piece.update_batch(&[rows], &numbers, filter, known.len()).unwrap();
        let (first, rest) = known.split_at(known.len() / 2);
        for (emit_to, known) in [(EmitTo::First(first.len()), first), (EmitTo::All, rest)] {
            let states = piece.state(emit_to).unwrap();
            whole.merge_batch(&states, known, 4).unwrap();
        }
    }
    whole.evaluate(EmitTo::All).unwrap()
}

proptest! {
    #[test]
    fn extremes_of_floats_are_those_of_a_naive_fold(
        rows in prop::collection::vec(
            (0_usize..4, prop::option::weighted(0.8, prop::sample::select(vec![
                f64::INFINITY, f64::NEG_INFINITY, f64::NAN, -f64::NAN, 0.0, -0.0, 1.5, -1.5, f64::MAX, f64::MIN,
            ])), prop::bool::weighted(0.9)),
            0..40,
        ),
        cuts in prop::collection::vec(0_usize..40, 3),
    ) {
        let mut cuts = cuts;
        cuts.sort_unstable();
        // Each group has a row without a value in the first batch.
        let rows: Vec<_> = (0..4).map(|group| (group, None, true)).chain(rows).collect();
        cuts.insert(0, 4);
        let values: Float64Array = rows.iter().map(|row| row.1).collect();
        let groups: Vec<usize> = rows.iter().map(|row| row.0).collect();
        let filter: BooleanArray = rows.iter().map(|row| Some(row.2)).collect();
        for (function, wanted) in [(aggregates::min(), Ordering::Less), (aggregates::max(), Ordering::Greater)] {
            let found = in_parts(&function, &values, &groups, &filter, &cuts);
            let found = found.as_primitive::<Float64Type>();
            for group in 0..4 {
                let of = rows.iter().filter(|row| row.0 == group && row.2).filter_map(|row| row.1);
                let best = of.reduce(|l, r| if order(&r, &l) == wanted { r } else { l });
                let shown = found.is_valid(group).then(|| found.value(group));
                prop_assert_eq!(float(shown), float(best), "{} of {}", function.name(), group);
            }
        }
    }

    #[test]
    fn sums_are_those_of_a_naive_fold(
        rows in prop::collection::vec((0_usize..4, prop::option::weighted(0.8, any::<i64>()), any::<bool>()), 0..40),
        cuts in prop::collection::vec(0_usize..40, 3),
    ) {
        let mut cuts = cuts;
        cuts.sort_unstable();
        // Rows that subtract most of what the others add, so that each sum fits its type at the end.
        let undone = rows.iter().map(|row| (row.0, row.1.map(|value| value / 1000 - value), row.2));
        let first = (0..4).map(|group| (group, None, true));
        let rows: Vec<_> = first.chain(rows.iter().copied()).chain(undone).collect();
        cuts.insert(0, 4);
        let values: Int64Array = rows.iter().map(|row| row.1).collect();
        let groups: Vec<usize> = rows.iter().map(|row| row.0).collect();
        let filter: BooleanArray = rows.iter().map(|row| Some(row.2)).collect();
        let found = in_parts(&aggregates::sum(), &values, &groups, &filter, &cuts);
        let naive = |group| {
            let of = rows.iter().filter(|row| row.0 == group && row.2).filter_map(|row| row.1);
            total(of.map(i128::from)).map(|sum| i64::try_from(sum).unwrap())
        };
        let expected: ArrayRef = Arc::new((0..4).map(naive).collect::<Int64Array>());
        prop_assert_eq!(&found, &expected);
    }
}
