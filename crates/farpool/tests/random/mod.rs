//! Random tables and random SQL: the pool's result equals DataFusion's own over the same rows in memory.
//!
//! Tables have every type that the pool supports, NULLs, NaN, -0.0, infinities, extreme integers, empty, long and
//! non-ASCII strings, no row, one row, and sometimes about one row more or less than a row group. Queries have
//! operators that the node runs, that it refuses, and that it can run only in part.
//!
//! The seeds are fixed: `FARPOOL_RANDOM_CASES=1000` runs more, `FARPOOL_RANDOM_SEED=n` repeats one case.

mod query;
mod rng;
mod table;

use crate::support::pools::{self, Pools, Way};
use arrow::array::{Array, ArrayRef, AsArray, RecordBatch};
use arrow::datatypes::{DataType, Float32Type, Float64Type};
use arrow::util::display::{ArrayFormatter, FormatOptions};
use datafusion::datasource::MemTable;
use datafusion::error::DataFusionError;
use datafusion::execution::FunctionRegistry;
use datafusion::prelude::{SessionConfig, SessionContext};
use farpool::{Session, SessionOptions};
use query::Query;
use rng::Rng;
use std::sync::Arc;
use table::Table;

/// Number of tables, unless the environment sets another.
const CASES: u64 = 120;

/// Number of queries on each table.
const QUERIES: usize = 12;

/// Memory of the pools in bytes: enough for every table.
const POOL_BYTES: usize = 1 << 30;

/// Memory for groups, in bytes, with which a pool returns most groups in parts (partial aggregates).
const TIGHT_BYTES: usize = 4 << 10;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_pool_answers_as_datafusion_does() {
    let number = |name: &str| std::env::var(name).ok().and_then(|value| value.parse::<u64>().ok());
    let seeds = match number("FARPOOL_RANDOM_SEED") {
        Some(seed) => seed..seed + 1,
        None => 0..number("FARPOOL_RANDOM_CASES").unwrap_or(CASES),
    };
    let pools = Pools::start(POOL_BYTES).await;
    let tight = Pools::start_within(POOL_BYTES, TIGHT_BYTES).await;
    let mut failures = Vec::new();
    for seed in seeds.clone() {
        let pools = if seed.is_multiple_of(3) { &tight } else { &pools };
        failures.extend(case(pools, seed).await);
    }
    println!("{} tables, {QUERIES} queries each", seeds.count());
    let shown = failures.iter().take(10).cloned().collect::<Vec<_>>().join("\n\n");
    assert!(failures.is_empty(), "{} queries differ:\n\n{shown}", failures.len());
}

/// Runs the queries of one seed on all pools. Returns descriptions of the results that differ.
async fn case(pools: &Pools, seed: u64) -> Vec<String> {
    let mut rng = Rng::new(seed);
    let table = Table::random(&mut rng);
    pools::load(&*pools.embedded, "t", table.schema.clone(), table.batches.clone()).await;
    let reference = reference(&table);
    let way = match seed % 8 {
        0 => Way::Remote,
        2 | 6 => Way::Near,
        4 => Way::Plain,
        _ => Way::Embedded,
    };
    let mut failures = Vec::new();
    for _ in 0..QUERIES {
        let query = Query::random(&mut rng, &table);
        let expected = run_reference(&reference, &query.sql).await;
        let actual = run_pool(pools, way, &query.sql).await;
        if let Some(difference) = difference(&query, expected, actual) {
            failures.push(format!(
                "FARPOOL_RANDOM_SEED={seed} ({way:?}, {} rows)\n{}\n{}\n{difference}",
                table.rows,
                table.describe(),
                query.sql
            ));
        }
    }
    failures
}

fn reference(table: &Table) -> SessionContext {
    let context = SessionContext::new_with_config(SessionConfig::new().with_target_partitions(2));
    // DataFusion's own mean of decimals is truncated, and its arithmetic wraps, so that farpool's replacements are used
    // here, too. `overflow.rs` tests that they are correct.
    let ours = Session::new(SessionOptions::default());
    for rule in &ours.context().state().analyzer().rules {
        if rule.name() == "checked_arithmetic" {
            context.add_analyzer_rule(Arc::clone(rule));
        }
    }
    context.register_udaf(ours.context().udaf("avg").expect("every session has it").as_ref().clone());
    let memory = MemTable::try_new(table.schema.clone(), vec![table.batches.clone()]);
    context.register_table("t", Arc::new(memory.expect("the batches have the schema"))).expect("no other t");
    context
}

type Rows = Result<(Vec<DataType>, Vec<String>), String>;

async fn run_reference(context: &SessionContext, sql: &str) -> Rows {
    let text = |error: DataFusionError| error.to_string();
    let frame = context.sql(sql).await.map_err(text)?;
    let tasks = Arc::new(frame.task_ctx());
    let plan = frame.create_physical_plan().await.map_err(text)?;
    let types = plan.schema().fields().iter().map(|field| field.data_type().clone()).collect();
    let batches = datafusion::physical_plan::collect(plan, tasks).await.map_err(text)?;
    Ok((types, rows(&batches)))
}

async fn run_pool(pools: &Pools, way: Way, sql: &str) -> Rows {
    let session = pools.session(way, true).await;
    let query = session.sql(sql).await.map_err(|error| error.to_string())?;
    let types = query.schema().fields().iter().map(|field| field.data_type().clone()).collect();
    let batches = query.collect().await.map_err(|error| error.to_string())?;
    Ok((types, rows(&batches)))
}

fn difference(query: &Query, expected: Rows, actual: Rows) -> Option<String> {
    match (expected, actual) {
        (Ok((types, _)), Ok((got, _))) if types != got => Some(format!("expected {types:?}, got {got:?}")),
        (Ok((_, expected)), Ok((_, actual))) if query.limited => {
            let lengths = (expected.len(), actual.len());
            (lengths.0 != lengths.1).then(|| format!("expected {} rows, got {}", lengths.0, lengths.1))
        }
        (Ok((_, expected)), Ok((_, actual))) => rows_difference(&expected, &actual),
        (Err(_), Err(_)) => None,
        // Whether a division by zero occurs depends on which rows are evaluated first.
        (Err(_), Ok(_)) | (Ok(_), Err(_)) if query.may_fail => None,
        // DataFusion evaluates both sides of AND; the pool and farpool's sessions skip rows for which the other side
        // decides the result.
        (Err(error), Ok(_)) if error.contains(" out of range: ") => None,
        (Err(error), Ok(_)) => Some(format!("only DataFusion fails: {error}")),
        (Ok(_), Err(error)) => Some(format!("only the pool fails: {error}")),
    }
}

/// Describes the first difference between two sorted lists of rows; `None` if they are equal.
fn rows_difference(expected: &[String], actual: &[String]) -> Option<String> {
    if expected == actual {
        return None;
    }
    let at =
        expected.iter().zip(actual).position(|(l, r)| l != r).unwrap_or(expected.len().min(actual.len()));
    let row = |rows: &[String]| rows.get(at).map_or("nothing".to_string(), |r| r.chars().take(400).collect());
    Some(format!(
        "{} rows against {}; in row {at} of the sorted rows\n  expected {}\n  got      {}",
        expected.len(),
        actual.len(),
        row(expected),
        row(actual)
    ))
}

/// Returns the rows as sorted texts; floats by their bits, so that -0.0 and NaN are distinguished.
fn rows(batches: &[RecordBatch]) -> Vec<String> {
    let mut rows = Vec::new();
    for batch in batches {
        let columns: Vec<Vec<String>> = batch.columns().iter().map(texts).collect();
        rows.extend(
            (0..batch.num_rows())
                .map(|row| columns.iter().map(|column| column[row].as_str()).collect::<Vec<_>>().join(" | ")),
        );
    }
    rows.sort_unstable();
    rows
}

fn texts(column: &ArrayRef) -> Vec<String> {
    let each = |text: &dyn Fn(usize) -> String| -> Vec<String> {
        let rows = 0..column.len();
        rows.map(|row| if column.is_null(row) { "NULL".to_string() } else { text(row) }).collect()
    };
    match column.data_type() {
        DataType::Float32 => {
            let values = column.as_primitive::<Float32Type>();
            each(&|row| format!("{:?}", values.value(row)))
        }
        DataType::Float64 => {
            let values = column.as_primitive::<Float64Type>();
            each(&|row| format!("{:?}", values.value(row)))
        }
        _ => {
            let options = FormatOptions::default();
            let formatter = ArrayFormatter::try_new(column, &options).expect("every type prints");
            each(&|row| formatter.value(row).try_to_string().unwrap_or_else(|error| error.to_string()))
        }
    }
}
