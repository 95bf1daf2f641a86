//! The tables of the suite `ibex`, which are made in the heap and in the pool from the same rows.

use crate::ibex::stage::Stage;
use crate::random::{below, mixed};
use crate::tables::parquet;
use crate::tpch::data;
use anyhow::Result;
use arrow::array::{ArrayRef, Int64Array, RecordBatch, RecordBatchReader};
use arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use arrow::error::ArrowError;
use std::ops::Range;
use std::sync::Arc;

/// Columns of values, `v1`, `v2`, …
pub const VALUES: usize = 7;

/// Groups of equal size.
const GROUPS: u64 = 16;

/// Values are below this one.
const VALUE_MAX: u64 = 1_000_000;

/// Bytes of the values of a row in `sized`.
const ROW_BYTES: u64 = (VALUES as u64 + 1) * 8;

const BATCH_ROWS: u64 = 64 << 10;

/// Primary keys of TPC-H's tables, and the index without which some of its queries take hours.
const INDEXES: [&str; 8] = [
    "nation (n_nationkey)",
    "supplier (s_suppkey)",
    "customer (c_custkey)",
    "part (p_partkey)",
    "partsupp (ps_partkey, ps_suppkey)",
    "orders (o_orderkey)",
    "lineitem (l_orderkey, l_linenumber)",
    "lineitem (l_partkey, l_suppkey)",
];

/// Returns the number of rows of `sized` whose values take this many MiB.
pub fn rows_of(mib: u64) -> u64 {
    (mib << 20) / ROW_BYTES
}

/// Makes the table `sized`: a group and values in each row.
pub async fn make_sized(stage: &mut Stage, rows: u64) -> Result<()> {
    let names = (1..=VALUES).map(|number| format!("v{number}"));
    let names: Vec<String> = ["g".to_string()].into_iter().chain(names).collect();
    make(stage, "sized", names, rows, |column, row| match column {
        // Groups of equal size, in no order.
        0 => random(row / GROUPS, row % GROUPS) % GROUPS,
        column => below(random(column as u64, row), VALUE_MAX),
    })
    .await
}

/// Makes the table `bypass`, in which `percent` of the rows have a key of their own.
pub async fn make_bypass(stage: &mut Stage, rows: u64, percent: u64) -> Result<()> {
    let names = ["k", "v"].map(str::to_string).to_vec();
    make(stage, "bypass", names, rows, move |column, row| match column {
        0 if below(random(1, row), 100) < percent => GROUPS + row,
        0 => below(random(2, row), GROUPS),
        _ => below(random(3, row), VALUE_MAX),
    })
    .await
}

/// Makes tables of TPC-H, with indexes in the heap if all of them are made.
pub async fn make_tpch(stage: &mut Stage, scale: f64, tables: &[&str]) -> Result<()> {
    let folder = data::folder(scale)?;
    for table in tables {
        let schema = parquet::reader(&folder, table)?.schema();
        let read = || parquet::reader(&folder, table);
        stage.make(table, schema, read).await?;
    }
    if tables.len() == data::TABLES.len() {
        for columns in INDEXES {
            stage.in_heap(&format!("CREATE INDEX ON {columns}"))?;
        }
    }
    Ok(())
}

async fn make(
    stage: &mut Stage,
    table: &str,
    columns: Vec<String>,
    rows: u64,
    value: impl Fn(usize, u64) -> u64 + Clone + Send + 'static,
) -> Result<()> {
    let fields = columns.iter().map(|name| Field::new(name, DataType::Int64, false));
    let schema = Arc::new(Schema::new(fields.collect::<Vec<_>>()));
    let batches = || Ok(batches(schema.clone(), rows, value.clone()));
    stage.make(table, schema.clone(), batches).await
}

fn batches(
    schema: SchemaRef,
    rows: u64,
    value: impl Fn(usize, u64) -> u64,
) -> impl Iterator<Item = Result<RecordBatch, ArrowError>> {
    let batch = move |rows: Range<u64>| {
        let column = |column: usize| -> ArrayRef {
            let values = rows.clone().map(|row| value(column, row).cast_signed());
            Arc::new(Int64Array::from_iter_values(values))
        };
        RecordBatch::try_new(schema.clone(), (0..schema.fields().len()).map(column).collect())
    };
    (0..rows).step_by(BATCH_ROWS as usize).map(move |start| batch(start..rows.min(start + BATCH_ROWS)))
}

fn random(of: u64, row: u64) -> u64 {
    mixed(mixed(of.wrapping_add(1)) ^ row)
}
