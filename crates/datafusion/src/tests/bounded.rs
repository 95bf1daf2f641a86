//! Tests that every registered function returns at most as many bytes as its computed bound, and fails if there is no
//! memory for its result.

use crate::session::{Session, SessionOptions};
use arrow_array::RecordBatch;
use arrow_array::cast::AsArray;
use arrow_array::types::Int64Type;
use arrow_schema::Field;
use datafusion::common::ScalarValue;
use datafusion::common::config::ConfigOptions;
use datafusion::logical_expr::{ColumnarValue, ScalarFunctionArgs};
use farpool_memory::WorkMemory;
use farpool_model::{ErrorKind, Result};
use farpool_sql::{REPEATED_ROWS, call_bytes_max, range_bytes};
use std::collections::BTreeSet;
use std::sync::Arc;

/// Bytes of a result that a computed bound need not include, such as a type's fixed overhead.
const SLACK: usize = 64;

fn session(work_bytes: usize) -> Session {
    let work = Some(WorkMemory::new(work_bytes));
    Session::new(SessionOptions { work, target_partitions: Some(2), ..SessionOptions::default() })
}

async fn run(session: &Session, text: &str) -> Result<Vec<RecordBatch>> {
    session.sql(text).await?.collect().await
}

/// Argument values, in SQL, for which functions have large results.
const VALUES: &[&str] = &[
    "repeat('ab', 150)",
    "repeat('é', 40)",
    "'a'",
    "700",
    "-3",
    "1.5",
    "[1, 2, 3, 2]",
    "['abc', 'de', 'abc']",
    "[[1, 2], [3]]",
    "date '2024-01-01'",
    "timestamp '2024-01-01 00:00:00'",
    "interval '1 day'",
    "true",
];

fn lists() -> Vec<Vec<&'static str>> {
    let one = VALUES.iter().map(|value| vec![*value]);
    let two = VALUES.iter().flat_map(|a| VALUES.iter().map(|b| vec![*a, *b]));
    let three = ["repeat('ab', 150)", "'a'", "700", "[1, 2, 3, 2]", "['abc', 'de', 'abc']"];
    let three = three
        .iter()
        .flat_map(|a| three.iter().map(|b| (*a, *b)).collect::<Vec<_>>())
        .flat_map(|(a, b)| three.map(|c| vec![a, b, c]));
    let more = [
        vec!["repeat('ab', 150)", "'a'", "'\\1xy\\0'", "'g'"],
        vec!["repeat('ab', 150)", "''", "'long'", "'g'"],
        vec!["repeat('ab', 150)", "'(b)'", "'$1$1$1'", "'g'"],
        vec!["date '2024-01-01'", "date '2026-01-01'", "interval '1 day'"],
        vec!["timestamp '2024-01-01'", "timestamp '2024-03-01'", "interval '1 hour'"],
        vec!["1", "5000", "7"],
        vec!["[1, 2, 2]", "2", "9", "3"],
    ];
    one.chain(two).chain(three).chain(more).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn results_of_every_registered_function_are_within_their_bounds() {
    let session = session(256 << 20);
    let state = session.context().state();
    let names: BTreeSet<String> =
        state.scalar_functions().values().map(|function| function.name().to_string()).collect();
    assert!(names.len() > 150, "{}", names.len());
    let (mut met, mut wrong) = (BTreeSet::new(), Vec::new());
    let scalars = scalars_of_values(&session).await;
    for name in &names {
        for list in lists() {
            let args: Vec<&ScalarValue> = list
                .iter()
                .filter_map(|value| scalars.iter().find(|(v, _)| v == value))
                .map(|(_, s)| s)
                .collect();
            if args.len() < list.len() {
                continue;
            }
            let text = format!("SELECT \"{name}\"({})", list.join(", "));
            let Ok(batches) = run(&session, &text).await else { continue };
            let Some(batch) = batches.first().filter(|batch| batch.num_rows() == 1) else { continue };
            met.insert(name.clone());
            let call = call(args);
            let bound = call_bytes_max(name, &call).unwrap();
            let made = range_bytes(batch.column(0), 0, 1);
            if made > bound + SLACK {
                wrong.push(format!("{text}: {made} bytes, where {bound} are the bound"));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    // Most functions accept some of the arguments in `VALUES`; functions of sketches and JSON need others.
    assert!(met.len() * 2 > names.len(), "{} of {}", met.len(), names.len());
}

async fn scalars_of_values(session: &Session) -> Vec<(&'static str, ScalarValue)> {
    let mut scalars = Vec::new();
    let all: BTreeSet<&str> = lists().into_iter().flatten().collect();
    for value in all {
        let batches = run(session, &format!("SELECT {value}")).await.unwrap();
        scalars.push((value, ScalarValue::try_from_array(batches[0].column(0), 0).unwrap()));
    }
    scalars
}

fn call(args: Vec<&ScalarValue>) -> ScalarFunctionArgs {
    let field = |value: &ScalarValue| Arc::new(Field::new("", value.data_type(), true));
    ScalarFunctionArgs {
        arg_fields: args.iter().map(|value| field(value)).collect(),
        return_field: Arc::new(Field::new("", args[0].data_type(), true)),
        args: args.into_iter().cloned().map(ColumnarValue::Scalar).collect(),
        number_rows: 1,
        config_options: Arc::new(ConfigOptions::default()),
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_there_is_no_memory_for_is_refused_with_the_name_of_the_function() {
    let constant = format!("SELECT '{}' FROM range(20000)", "x".repeat(10_000));
    for (name, text) in [
        ("a constant", constant.as_str()),
        ("string_agg", "SELECT length(string_agg(repeat('x', 100), ',') OVER ()) FROM range(30000)"),
        ("a constant", "SELECT max(repeat('x', 50000)) FROM range(20000)"),
        ("a constant", "SELECT count(DISTINCT repeat('x', 50000)) FROM range(20000)"),
        ("a constant", "SELECT max(CASE WHEN value % 2 = 0 THEN repeat('x', 50000) END) FROM range(20000)"),
        ("a constant", "SELECT max(greatest(value::varchar, repeat('x', 50000))) FROM range(20000)"),
        (
            "a constant",
            "SELECT max(nvl(CASE WHEN value % 2 = 0 THEN 'a' END, repeat('x', 50000))) FROM range(20000)",
        ),
        ("a constant", "SELECT last_value(repeat('x', 50000)) OVER (ORDER BY value) FROM range(20000)"),
        (
            "string_agg",
            "SELECT string_agg(s, ',') FILTER (WHERE value = 7) OVER () FROM (SELECT value, repeat('x', 100000 * (value = 7)::int) s FROM range(3000))",
        ),
        (
            "array_agg",
            "SELECT array_agg(value) OVER (ORDER BY value ROWS BETWEEN 20000 PRECEDING AND CURRENT ROW) FROM range(30000)",
        ),
        (
            "first_value",
            "SELECT first_value(s) OVER (ORDER BY value) FROM (SELECT value, repeat('x', 100000 * (value = 0)::int) s FROM range(3000))",
        ),
        ("generate_series", "SELECT length(generate_series(1, 10000000000)) FROM range(3)"),
        ("range", "SELECT length(range(0, 10000000000 + value)) FROM range(3)"),
        ("repeat", "SELECT repeat('x', 1000000000 + value) FROM range(3)"),
        ("||", "SELECT repeat('x', 20000) || value FROM range(20000)"),
        ("repeat", "SELECT repeat('x', 1000000) FROM range(20000)"),
        ("lpad", "SELECT lpad('x', 1000000000 + value, 'ab') FROM range(3)"),
        ("rpad", "SELECT rpad('x', 1000000000 + value) FROM range(3)"),
        ("replace", "SELECT replace(repeat('x', 10000 + value), 'x', repeat('y', 100000)) FROM range(3)"),
        (
            "regexp_replace",
            "SELECT regexp_replace(repeat('x', 10000 + value), 'x', repeat('y', 100000), 'g') FROM range(3)",
        ),
        ("array_repeat", "SELECT array_repeat(value, 100000000) FROM range(3)"),
        (
            "array_transform",
            "SELECT len(list_transform(range(0, 100000 + value), x -> list_transform(range(0, 2000), y -> x * y))) FROM range(3)",
        ),
        ("array_resize", "SELECT array_resize([value], 1000000000, 7) FROM range(3)"),
        (
            "concat",
            "SELECT concat(a, a, a, a, a, a, a, a) FROM (SELECT repeat('x', 4000000 + value) a FROM range(3))",
        ),
    ] {
        // Tasks of a statement that has failed may take a moment to release their memory.
        let error = run(&session(64 << 20), text).await.unwrap_err();
        assert_eq!(error.kind, ErrorKind::OverLimit, "{text}: {error}");
        assert!(error.message.starts_with(name), "{text}: {error}");
        assert!(error.advice.as_deref().unwrap_or_default().contains("--work-memory"), "{text}: {error}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_fits_is_made_although_all_batches_together_would_not() {
    let session = session(64 << 20);
    for (text, rows) in [
        ("SELECT repeat('x', 1000 + value % 2) FROM range(200000)", 200_000),
        ("SELECT value FROM range(100000) WHERE length(repeat('x', value % 3000)) = 7", 34),
        ("SELECT count(DISTINCT left(repeat('ab', 500 + value % 5), 700)) FROM range(100000)", 1),
        ("SELECT array_length(range(0, value)) FROM range(3000)", 3000),
        ("SELECT length(repeat('x', 3000000)) FROM range(3)", 3),
        ("SELECT len(list_filter(range(0, 100000), x -> x + value < 9)) FROM range(200)", 200),
        ("SELECT x FROM (SELECT unnest(range(0, 100000)) x FROM range(8192)) LIMIT 200007", 200_007),
        ("SELECT x FROM (SELECT unnest(range(0, 1000000)) x FROM range(1000)) LIMIT 2000007", 2_000_007),
        (
            "SELECT array_length(l) FROM (SELECT range(0, 1000000) l, 1 k) WHERE k IN (SELECT value FROM range(5000))",
            1,
        ),
        ("SELECT repeat('x', 20000) FROM range(3)", 3),
        ("SELECT len(list_filter(range(0, 10000), x -> value * x > 5)) FROM range(300)", 300),
        (
            "SELECT len(list_transform(range(0, 20000 + value), x -> len(list_transform(range(0, 200), y -> x * y)))) FROM range(3)",
            3,
        ),
        ("SELECT value FROM range(100000) WHERE repeat('x', 20000) <> value::varchar", 100_000),
    ] {
        let batches = run(&session, text).await.unwrap_or_else(|error| panic!("{text}: {error}"));
        assert_eq!(batches.iter().map(RecordBatch::num_rows).sum::<usize>(), rows, "{text}");
    }
}

/// Runs that were sorted are merged by tasks, which compute the keys anew.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn keys_of_a_merge_are_computed_while_the_statement_runs() {
    let texts = "(SELECT lpad(value::varchar, 500, 'x') t FROM range(20000))";
    let text = format!("SELECT t FROM {texts} ORDER BY substr(t, 1, 300)");
    let batches = run(&session(512 << 20), &text).await.unwrap();
    assert_eq!(batches.iter().map(RecordBatch::num_rows).sum::<usize>(), 20_000);
}

/// Joins and UNNEST repeat string views, but do not copy the bytes of the strings.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn texts_that_are_repeated_are_not_copied() {
    let session = session(64 << 20);
    let one = "(SELECT repeat('x', 3000000) t, 7 k)";
    for text in [
        format!("SELECT sum(length(t)) FROM {one}, range(5000)"),
        format!("SELECT sum(length(t)) FROM {one} JOIN range(5000) ON k > 0 OR value < 0"),
        format!("SELECT sum(length(t)) FROM range(5000) JOIN {one} ON k = value * 0 + 7"),
        format!("SELECT sum(length(t)) FROM range(5000) LEFT JOIN {one} ON length(t) > value"),
        format!("SELECT sum(length(t)) FROM (SELECT t, unnest(range(0, 5000)) FROM {one})"),
        format!("SELECT sum(length((SELECT t FROM {one}))) FROM range(5000)"),
    ] {
        let batches = run(&session, &text).await.unwrap_or_else(|error| panic!("{text}: {error}"));
        assert_eq!(batches[0].column(0).as_primitive::<Int64Type>().value(0), 15_000_000_000, "{text}");
    }
}

/// A statement that repeats a long list in each of 5,000 rows would need gigabytes at once, and fails. With short lists
/// it succeeds.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn lists_that_are_repeated_are_within_the_memory() {
    let session = session(64 << 20);
    for (name, from) in [
        ("a join", "SELECT l FROM (SELECT range(0, ELEMENTS) l), range(5000)"),
        ("a join", "SELECT l FROM (SELECT range(0, ELEMENTS) l, 1 k) JOIN range(5000) ON k = value * 0 + 1"),
        ("a join", "SELECT l FROM range(5000) JOIN (SELECT range(0, ELEMENTS) l, 1 k) ON k > value * 0"),
        ("a join", "SELECT [s] l FROM (SELECT struct(range(0, ELEMENTS)) s), range(5000)"),
        ("unnest", "SELECT l, unnest(range(0, 5000)) FROM (SELECT range(0, ELEMENTS) l)"),
    ] {
        let text = |elements: &str| {
            let from = from.replace("ELEMENTS", elements);
            format!("SELECT count(l), max(array_length(l)) FROM ({from})")
        };
        let batches = run(&session, &text("500")).await.unwrap_or_else(|error| panic!("{from}: {error}"));
        assert_eq!(batches[0].column(0).as_primitive::<Int64Type>().value(0), 5000, "{from}");
        let error = run(&session, &text("100000")).await.unwrap_err();
        assert_eq!(error.kind, ErrorKind::OverLimit, "{from}: {error}");
        assert!(error.message.starts_with(name), "{from}: {error}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_filter_above_a_join_gathers_few_repeated_lists() {
    let session = session(64 << 20);
    let joined = "(SELECT range(0, 100) l, 1 i) a LEFT JOIN (SELECT value k FROM range(5000)) b ON i <= k";
    let text = format!("SELECT l FROM (SELECT l, k FROM {joined}) WHERE l[k % 100 + 1] + k >= 0");
    let batches = run(&session, &text).await.unwrap();
    let rows: Vec<usize> = batches.iter().map(RecordBatch::num_rows).collect();
    assert_eq!(rows.iter().sum::<usize>(), 4999);
    assert!(rows.iter().all(|rows| *rows <= REPEATED_ROWS), "{rows:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn slices_give_what_the_whole_batch_gives() {
    let (bounded, plain) = (session(1 << 30), Session::new(SessionOptions::default()));
    for text in [
        "SELECT sum(length(repeat(v, 50))), md5(string_agg(repeat(v, 3), ',' ORDER BY value)) FROM (SELECT value, repeat(chr((65 + value % 26)::int), 1000) v FROM range(9000))",
        "SELECT sum(list_sum(range(0, value))) FROM range(3000)",
        "SELECT sum(length(v || v || 'x')) FROM (SELECT lpad(value::varchar, 3000, 'é') v FROM range(9000))",
    ] {
        assert_eq!(run(&bounded, text).await.unwrap(), run(&plain, text).await.unwrap(), "{text}");
    }
}
