//! Joins of two made-up tables by keys of every kind, in-process and over TCP, with and without push-down,
//! against DuckDB's answers; and that the keys of the smaller side keep rows of the larger one at the pool.
//!
//! The tables are those of `testdata/joins/record_answers.py`, made by the same formulas.

use crate::support::pools::{self, Pools, Way};
use arrow::array::*;
use arrow::datatypes::{DataType, TimeUnit};
use arrow::util::display::{ArrayFormatter, FormatOptions};
use farpool::Session;
use std::path::Path;
use std::sync::Arc;

const FACT_ROWS: u64 = 150_000;
const DIM_ROWS: u64 = 4_000;
const KEYS: u64 = 20_011;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_setting_gives_duckdbs_answers() {
    let pools = loaded().await;
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../testdata/joins/answers.tsv");
    let recorded = std::fs::read_to_string(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    let mut wrong = Vec::new();
    for (way, pushdown) in [
        (Way::Embedded, true),
        (Way::Embedded, false),
        (Way::Remote, true),
        (Way::Remote, false),
        (Way::Plain, true),
    ] {
        let session = pools.session(way, pushdown).await;
        for line in recorded.lines() {
            let (sql, expected) = line.split_once('\t').expect("a query and its answer");
            let actual = answer(&session, sql).await;
            if actual != expected {
                wrong.push(format!("{way:?}, push-down {pushdown}: {sql}\n  {expected}\n  {actual}"));
            }
        }
    }
    assert!(wrong.is_empty(), "{} answers differ:\n{}", wrong.len(), wrong.join("\n"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn keys_of_the_smaller_side_thin_out_the_larger_one_at_the_pool() {
    let pools = loaded().await;
    let session = pools.session(Way::Remote, true).await;
    for (on, added) in [
        ("f.k = d.k", "k IN ("),
        ("f.s = d.s", "s IN (a filter"),
        ("f.t = d.t", "t IN (a filter"),
        ("f.day = d.day", "day IN ("),
        ("f.n = d.n", "n IN (a filter"),
        ("f.ts = d.ts", "ts IN (a filter"),
        ("f.b = d.b", "b IN (a filter"),
        ("f.k = d.wide", "k IN ("),
        ("f.t = d.t AND f.r = d.r", "(t, r) IN (a filter"),
        ("f.s = d.s AND f.c = d.c AND f.day = d.day", "(s, c, day) IN (a filter"),
        ("f.s = d.s AND f.x = d.x", "s IN (a filter"),
    ] {
        let sql = format!("SELECT count(*) FROM fact f JOIN (SELECT * FROM dim WHERE v < 300) d ON {on}");
        let query = session.sql(sql.as_str()).await.expect("plans");
        query.collect().await.expect("runs");
        let outcome = query.outcome();
        let line = outcome.lines().find(|line| line.contains("other operators added")).expect(&outcome);
        assert!(line.contains(added), "{on}: {line}");
        // 5.8 % of the keys are left, and 0.5 % of the others may be taken for them; nobody's NULLs.
        let returned = query.receipt().rows_returned;
        assert!(returned < FACT_ROWS / 12, "{on}: {returned} rows leave\n{outcome}");
    }
}

/// The only row, as it is recorded.
async fn answer(session: &Session, sql: &str) -> String {
    let batches = match session.sql(sql).await {
        Ok(query) => query.collect().await,
        Err(error) => Err(error),
    };
    let batches = match batches {
        Ok(batches) => batches,
        Err(error) => return error.to_string(),
    };
    let rows: Vec<&RecordBatch> = batches.iter().filter(|batch| batch.num_rows() > 0).collect();
    let [row] = rows[..] else { return format!("{} batches", rows.len()) };
    let options = FormatOptions::default().with_null("\\N");
    let cell = |c: &ArrayRef| ArrayFormatter::try_new(c, &options).expect("numbers").value(0).to_string();
    row.columns().iter().map(cell).collect::<Vec<_>>().join("\t")
}

async fn loaded() -> Pools {
    let pools = Pools::start(1 << 30).await;
    for (name, batch) in [("fact", table(0, FACT_ROWS, true)), ("dim", table(1 << 30, DIM_ROWS, false))] {
        pools::load(&*pools.embedded, name, batch.schema(), vec![batch]).await;
    }
    pools
}

/// The rows of one of the tables.
fn table(seed: u64, rows: u64, fact: bool) -> RecordBatch {
    let key = |row: u64| (mix(seed + row) % KEYS) as i64;
    let r = |row: u64| (mix(seed + row + (1 << 40)) % 7) as i32;
    let valid = |row: u64, place: u64| !mix(seed + row + ((place + 2) << 40)).is_multiple_of(17);
    let keys = |place: u64| (0..rows).map(move |row| valid(row, place).then(|| key(row)));
    let integers = |place: u64, f: fn(i64) -> i64| Int64Array::from_iter(keys(place).map(|key| key.map(f)));
    let days = |place: u64| Int32Array::from_iter(keys(place).map(|key| key.map(|key| key as i32)));
    let texts = |place: u64, f: fn(i64) -> String| -> ArrayRef {
        Arc::new(StringArray::from_iter(keys(place).map(|key| key.map(f))))
    };
    let cents = keys(5).map(|key| key.map(|key| i128::from(key) * 1_000_003));
    let cents = Decimal128Array::from_iter(cents).with_precision_and_scale(15, 2).expect("they fit");
    let bytes = keys(8).map(|key| key.map(|key| (key as u32).to_le_bytes().repeat(3)));
    let cast = |array: &dyn Array, to: DataType| arrow::compute::cast(array, &to).expect("they fit");
    let mut columns: Vec<(&str, ArrayRef)> = vec![
        ("k", Arc::new(days(0))),
        ("s", Arc::new(integers(1, |key| key * 460_000_000_000_037 - (1 << 62)))),
        ("t", texts(2, |key| format!("key number {key}{}", "!".repeat(key as usize % 30)))),
        ("c", texts(3, |key| format!("colour {}", key % 97))),
        ("day", cast(&days(4), DataType::Date32)),
        ("n", Arc::new(cents)),
        (
            "ts",
            cast(&integers(6, |key| key * 86_400_007_001), DataType::Timestamp(TimeUnit::Microsecond, None)),
        ),
        ("x", Arc::new(Float64Array::from_iter(keys(7).map(|key| key.map(|key| key as f64 / 4.0))))),
        ("b", Arc::new(BinaryArray::from_iter(bytes))),
        ("r", Arc::new(Int32Array::from_iter((0..rows).map(|row| valid(row, 9).then(|| r(row)))))),
    ];
    if fact {
        columns.push(("id", Arc::new(Int64Array::from_iter_values(0..rows as i64))));
    } else {
        let v = (0..rows).map(|row| (mix(seed + row + (1 << 50)) % 1000) as i64);
        columns.push(("wide", Arc::new(integers(0, |key| key))));
        columns.push(("v", Arc::new(Int64Array::from_iter_values(v))));
    }
    RecordBatch::try_from_iter_with_nullable(columns.into_iter().map(|(name, c)| (name, c, true)))
        .expect("columns of one length")
}

/// SplitMix64.
fn mix(x: u64) -> u64 {
    let z = x.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}
