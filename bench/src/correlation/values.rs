//! Columns of random values that correlate, each pair to a different degree, in memory and as a file for
//! rivals.

use super::definition::{Case, Values};
use crate::places;
use crate::random::mixed;
use anyhow::Result;
use arrow::array::*;
use arrow::ipc::writer::FileWriter;
use std::fs::File;
use std::path::PathBuf;
use std::sync::Arc;

/// Generates the columns of a case.
pub fn columns(case: &Case) -> Vec<ArrayRef> {
    (0..case.columns).map(|column| one(case, column as u64)).collect()
}

/// Writes the columns to a file in the cache, for the rivals to load.
pub fn file(case: &Case, columns: &[ArrayRef]) -> Result<PathBuf> {
    let folder = places::cache()?.join("data/correlation");
    std::fs::create_dir_all(&folder)?;
    let path = folder.join(format!("{}.arrow", case.table()));
    let named = case.names().into_iter().zip(columns);
    let batch = RecordBatch::try_from_iter(named.map(|(name, column)| (name, column.clone())))?;
    let mut writer = FileWriter::try_new(File::create(&path)?, &batch.schema())?;
    writer.write(&batch)?;
    writer.finish()?;
    Ok(path)
}

/// Creates one column: half of each value is the column's own, the other half is shared by every third column.
fn one(case: &Case, column: u64) -> ArrayRef {
    let common = column % 3;
    let random = |row: u64| {
        let (own, shared) = (mixed(row << 16 | column), mixed(row << 16 | 0xff00 | common));
        (own >> 1).wrapping_add(shared >> 1)
    };
    let values = (0..case.rows as u64).map(random);
    match case.values {
        Values::Uint8 => Arc::new(UInt8Array::from_iter_values(values.map(|v| (v >> 56) as u8))),
        Values::Int16 => Arc::new(Int16Array::from_iter_values(values.map(|v| (v >> 48) as i16))),
        Values::Int32 => Arc::new(Int32Array::from_iter_values(values.map(|v| (v >> 32) as i32))),
        Values::Int64 => Arc::new(Int64Array::from_iter_values(values.map(u64::cast_signed))),
        Values::Float32 => Arc::new(Float32Array::from_iter_values(values.map(|v| (v >> 40) as f32 / 1e3))),
        Values::Float64 => Arc::new(Float64Array::from_iter_values(values.map(|v| (v >> 20) as f64 / 1e3))),
    }
}
