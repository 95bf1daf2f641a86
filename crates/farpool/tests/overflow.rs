//! Tests of arithmetic on the extremes of every integer and decimal type, compared with DuckDB's results: in a pool,
//! above a scan, above a join and in a window.

use crate::support::pools::{self, Pools, Way};
use arrow::array::{ArrayRef, Int64Array, RecordBatch, StringArray};
use arrow::compute::cast;
use arrow::datatypes::DataType;
use arrow::util::display::{ArrayFormatter, FormatOptions};
use farpool::Session;
use std::collections::BTreeMap;
use std::sync::Arc;

/// A recorded answer: an operation on extremes of a type, with DuckDB's result.
struct Case {
    left: String,
    operator: String,
    right: String,
    /// DuckDB's result; `None` if it does not fit its type.
    result: Option<String>,
}

/// Returns the recorded answers by type.
fn recorded() -> BTreeMap<String, Vec<Case>> {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../testdata/arithmetic/answers.tsv");
    let text = std::fs::read_to_string(path).expect("the recorded answers");
    let mut cases: BTreeMap<String, Vec<Case>> = BTreeMap::new();
    for line in text.lines() {
        let [name, left, operator, right, result] = line.split('\t').collect::<Vec<_>>()[..] else {
            panic!("{line}");
        };
        let result = (result != "error").then(|| result.to_string());
        let (left, operator, right) = (left.to_string(), operator.to_string(), right.to_string());
        cases.entry(name.to_string()).or_default().push(Case { left, operator, right, result });
    }
    assert_eq!(cases.len(), 11, "eight types of integers and three of decimals");
    cases
}

fn data_type(name: &str) -> DataType {
    match name {
        "TINYINT" => DataType::Int8,
        "SMALLINT" => DataType::Int16,
        "INTEGER" => DataType::Int32,
        "BIGINT" => DataType::Int64,
        "UTINYINT" => DataType::UInt8,
        "USMALLINT" => DataType::UInt16,
        "UINTEGER" => DataType::UInt32,
        "UBIGINT" => DataType::UInt64,
        "DECIMAL(38,0)" => DataType::Decimal128(38, 0),
        "DECIMAL(38,10)" => DataType::Decimal128(38, 10),
        "DECIMAL(20,2)" => DataType::Decimal128(20, 2),
        other => panic!("{other}"),
    }
}

/// Creates a table with a row for each case, numbered from 0.
fn table(name: &str, cases: &[Case]) -> RecordBatch {
    let side = |of: fn(&Case) -> &str| -> ArrayRef {
        let texts: ArrayRef = Arc::new(StringArray::from_iter_values(cases.iter().map(of)));
        cast(&texts, &data_type(name)).expect("values of the type")
    };
    let id: ArrayRef = Arc::new(Int64Array::from_iter_values(0..cases.len() as i64));
    let columns = [("id", id), ("l", side(|case| &case.left)), ("r", side(|case| &case.right))];
    RecordBatch::try_from_iter_with_nullable(columns.into_iter().map(|(name, c)| (name, c, true)))
        .expect("a table")
}

/// Queries that compute an operation at different places (in a pool, above a scan, above a join, in a window), over
/// rows that satisfy a condition.
const SHAPES: [fn(&str, &str) -> String; 5] = [
    |op, rows| format!("SELECT id, l {op} r FROM t WHERE {rows}"),
    |op, rows| format!("SELECT id, max(l {op} r) FROM t WHERE {rows} GROUP BY id"),
    |op, rows| format!("SELECT t.id, t.l {op} o.r FROM t JOIN t AS o ON t.id = o.id WHERE t.{rows}"),
    |op, rows| format!("SELECT id, first_value(l {op} r) OVER (PARTITION BY id) FROM t WHERE {rows}"),
    |op, rows| format!("SELECT id, CASE WHEN {rows} THEN l {op} r END FROM t WHERE {rows}"),
];

async fn answer(session: &Session, sql: &str) -> farpool::model::Result<BTreeMap<usize, String>> {
    let batches = session.sql(sql).await?.collect().await?;
    let mut rows = BTreeMap::new();
    for batch in batches {
        let options = FormatOptions::default();
        let cells: Vec<_> =
            batch.columns().iter().map(|c| ArrayFormatter::try_new(c, &options).expect("a column")).collect();
        for row in 0..batch.num_rows() {
            rows.insert(
                cells[0].value(row).to_string().parse().expect("a number"),
                cells[1].value(row).to_string(),
            );
        }
    }
    Ok(rows)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn extremes_of_every_type_are_as_recorded_or_an_error() {
    let pools = Pools::start(256 << 20).await;
    let mut failed = 0;
    for (name, cases) in recorded() {
        let batch = table(&name, &cases);
        pools::load(&*pools.embedded, "t", batch.schema(), vec![batch]).await;
        for (way, pushdown) in [(Way::Embedded, true), (Way::Remote, true), (Way::Embedded, false)] {
            let session = pools.session(way, pushdown).await;
            for (place, shape) in SHAPES.iter().enumerate() {
                failed += check(&session, &name, &cases, *shape, place).await;
            }
        }
    }
    assert!(failed > 500, "{failed} operations were tried that do not fit");
}

/// Checks, for each operator, one query over all rows whose results fit, and queries over single rows whose results do
/// not fit, of which only some are chosen, at regular distances. Returns the number of these rows.
async fn check(
    session: &Session,
    name: &str,
    cases: &[Case],
    shape: fn(&str, &str) -> String,
    place: usize,
) -> usize {
    let numbered: Vec<(usize, &Case)> = cases.iter().enumerate().collect();
    let mut failed = 0;
    for operator in ["+", "-", "*", "/", "%"] {
        let of: Vec<_> = numbered.iter().filter(|(_, case)| case.operator == operator).collect();
        let expected: BTreeMap<usize, String> =
            of.iter().filter_map(|(id, case)| Some((*id, case.result.clone()?))).collect();
        if expected.is_empty() {
            continue;
        }
        let ids: Vec<String> = expected.keys().map(usize::to_string).collect();
        let sql = shape(operator, &format!("id IN ({})", ids.join(", ")));
        let actual = answer(session, &sql).await.unwrap_or_else(|error| panic!("{name}: {sql}: {error}"));
        assert_eq!(actual, expected, "{name}: {sql}");
        let overflows = of.iter().filter(|(_, case)| case.result.is_none());
        for (id, case) in overflows.skip(place).step_by(SHAPES.len()) {
            let sql = shape(operator, &format!("id = {id}"));
            let Case { left, right, .. } = case;
            let shown = format!("{name}: {sql} of {left} and {right}");
            let error = answer(session, &sql).await.expect_err(&shown);
            assert!(error.message.contains(" out of range: "), "{shown}: {error}");
            assert!(error.message.contains(&format!("{left} {operator} ")), "{shown}: {error}");
            assert!(error.advice.is_some_and(|advice| advice.starts_with("cast one side to")), "{shown}");
            failed += 1;
        }
    }
    failed
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn bounds_of_columns_decide_what_is_pushed() {
    let pools = Pools::start(256 << 20).await;
    let column = |values: [i64; 3]| Arc::new(Int64Array::from(values.to_vec())) as ArrayRef;
    for (greatest, pushed) in [(1_000_000, true), (i64::MAX, false)] {
        let columns = [("a", column([1, 2, greatest])), ("b", column([5, 7, 9]))];
        let batch = RecordBatch::try_from_iter(columns).expect("a table");
        pools::load(&*pools.embedded, "t", batch.schema(), vec![batch]).await;
        let session = pools.session(Way::Remote, true).await;
        let query = session.sql("SELECT sum(CASE WHEN b < 8 THEN a * b ELSE 0 END) FROM t").await;
        let query = query.expect("plans");
        let words: Vec<String> = query.explain().split_whitespace().map(str::to_string).collect();
        assert_eq!(words.join(" ").contains("aggregate exact"), pushed, "{}", query.explain());
        let batches = query.collect().await.expect("the largest is in no row that is multiplied");
        let sum = ArrayFormatter::try_new(batches[0].column(0), &FormatOptions::default()).expect("a column");
        assert_eq!(sum.value(0).to_string(), "19");
    }
}
