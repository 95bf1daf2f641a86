//! The tables of the suite: `probe` with a key and a value, and `build` with a key column for each share of matches and
//! some values.
//!
//! A table `build` of D different keys has the keys from 0 to D - 1 in its column `k100`, and keys of `probe` are drawn
//! from these. In `k50`, `k10` and `k1` that percentage of the keys, spread evenly, stays as it is, and D is added to the
//! others: as many rows, of which less have a match, without a range of keys that would do in place of the join.
//!
//! Invariant: a row depends on nothing but its number and the shape, so that tables are the same on every machine and
//! however they are cut into batches. Memory is needed for one batch.

use super::definition::{KeyForm, MATCHES, PAYLOAD_MAX, Shape, key_column};
use crate::random::{below, hash, mixed};
use crate::tables::parquet::{self, Rows, in_batches};
use anyhow::{Result, bail};
use arrow::array::{ArrayRef, Int32Array, Int64Array, RecordBatch, StringViewArray};
use arrow::error::ArrowError;
use std::ops::Range;
use std::path::PathBuf;
use std::sync::Arc;

/// The names of the tables, the larger one last.
pub const TABLES: [&str; 2] = ["build", "probe"];

/// Version of the generator, which is part of the name of the cached files: to be raised when other rows are generated.
const VERSION: u32 = 1;

/// Values are below this number: their sums do not overflow 64 bits.
const VALUES: u64 = 1_000_000;

/// Seeds of columns.
const PROBE_KEYS: u64 = 0x7000;
const PROBE_VALUES: u64 = 0x7001;
const PAYLOAD: u64 = 0x7010;

/// Returns the folder with both tables as Parquet files, and creates it if it does not exist.
pub fn folder(shape: Shape, probe_rows: u64) -> Result<PathBuf> {
    let Shape { keys, build, duplicates } = shape;
    let name = format!("joins-{VERSION}-{keys}-{build}x{duplicates}-{probe_rows}");
    parquet::folder_named(&name, &TABLES, |table| rows(table, shape, probe_rows))
}

/// Generates a table.
pub fn rows(table: &str, shape: Shape, probe_rows: u64) -> Result<Rows> {
    match table {
        "build" => in_batches(shape.build, move |rows| build(shape, rows)),
        "probe" => in_batches(probe_rows, move |rows| probe(shape, rows)),
        _ => bail!("the suite has no table {table:?}"),
    }
}

/// Generates some rows of the probe table.
pub fn probe(shape: Shape, rows: Range<u64>) -> Result<RecordBatch, ArrowError> {
    let keys = rows.clone().map(|row| below(random(PROBE_KEYS, row), shape.distinct()));
    RecordBatch::try_from_iter([("k", shape.keys.column(keys)), ("v", values(PROBE_VALUES, rows))])
}

/// Generates some rows of the build table.
pub fn build(shape: Shape, rows: Range<u64>) -> Result<RecordBatch, ArrowError> {
    let keys = MATCHES.map(|matches| {
        let keys = rows.clone().map(|row| build_key(row, shape.distinct(), matches));
        (key_column(matches), shape.keys.column(keys))
    });
    let payload = (1..=PAYLOAD_MAX).map(|i| (format!("p{i}"), values(PAYLOAD + i as u64, rows.clone())));
    RecordBatch::try_from_iter(keys.into_iter().chain(payload))
}

/// Returns the number of a row's key, of which there are `distinct`.
fn build_key(row: u64, distinct: u64, matches: u64) -> u64 {
    let key = row % distinct;
    let kept_before = |key: u64| key * matches / 100;
    let is_kept = kept_before(key + 1) > kept_before(key);
    if is_kept { key } else { distinct + key }
}

fn values(seed: u64, rows: Range<u64>) -> ArrayRef {
    Arc::new(Int64Array::from_iter_values(rows.map(|row| below(random(seed, row), VALUES).cast_signed())))
}

fn random(seed: u64, row: u64) -> u64 {
    hash(hash(seed) ^ row)
}

impl KeyForm {
    /// Returns the column of the keys with these numbers; different numbers have different keys.
    fn column(self, numbers: impl Iterator<Item = u64>) -> ArrayRef {
        match self {
            KeyForm::Dense => Arc::new(Int32Array::from_iter_values(numbers.map(|number| number as i32))),
            KeyForm::Sparse => {
                Arc::new(Int64Array::from_iter_values(numbers.map(|number| mixed(number + 1).cast_signed())))
            }
            KeyForm::Text => {
                Arc::new(StringViewArray::from_iter_values(numbers.map(|number| format!("key-{number:08}"))))
            }
        }
    }
}
