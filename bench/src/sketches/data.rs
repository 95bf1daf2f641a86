//! The data of the benchmark suite `sketches`: a column in memory, and in files for rivals.

use super::definition::{Column, Definition};
use crate::random::Random;
use anyhow::{Context, Result};
use arrow::array::{ArrayRef, RecordBatch, UInt32Array};
use arrow::ipc::writer::FileWriter;
use farpool::model::limits::ROW_GROUP_ROWS;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Name of the table on every side.
pub const TABLE: &str = "sketched";

/// Name of the table's column.
pub const COLUMN: &str = "v";

/// The column that is sketched.
pub struct Data {
    values: UInt32Array,
    /// Slices of the values, as long as row groups.
    pub batches: Vec<ArrayRef>,
    slow: usize,
    file: PathBuf,
    file_slow: PathBuf,
}

impl Data {
    pub fn make(column: &Column, definition: &Definition) -> Result<Data> {
        let mut random = Random(7);
        let value = |_| match column.skew {
            Some(skew) => random.zipf(skew),
            None => random.next() as u32,
        };
        let values = UInt32Array::from((0..definition.rows).map(value).collect::<Vec<u32>>());
        let starts = (0..values.len()).step_by(ROW_GROUP_ROWS);
        let slice = |first: usize| -> ArrayRef {
            Arc::new(values.slice(first, ROW_GROUP_ROWS.min(values.len() - first)))
        };
        let batches: Vec<ArrayRef> = starts.map(slice).collect();
        let slow = definition.rows_slow.min(values.len());
        let file = |name: &str| {
            std::env::temp_dir().join(format!("farpool-{TABLE}-{}-{name}.arrow", std::process::id()))
        };
        let data = Data { file: file("all"), file_slow: file("some"), values, batches, slow };
        write(&data.file, &data.batches)?;
        write(&data.file_slow, &[Arc::new(data.values.slice(0, slow))])?;
        Ok(data)
    }

    /// Returns the number of values.
    pub fn rows(&self) -> usize {
        self.values.len()
    }

    /// Returns the first values, for slow sides.
    pub fn slow(&self) -> &[u32] {
        &self.values.values()[..self.slow]
    }

    /// Returns the file for a rival, and its number of rows.
    pub fn file_for(&self, rival: &str) -> (&Path, usize) {
        if is_slow(rival) { (&self.file_slow, self.slow) } else { (&self.file, self.values.len()) }
    }

    /// Returns the batches as record batches, for a load.
    pub fn record_batches(&self) -> Result<Vec<RecordBatch>> {
        self.batches.iter().map(record_batch).collect()
    }
}

/// Returns whether a rival gets fewer rows: the Python package of DataSketches takes one value at a time.
fn is_slow(rival: &str) -> bool {
    rival == "DataSketches"
}

impl Drop for Data {
    fn drop(&mut self) {
        // Rivals no longer map the files; files that cannot be removed are left to the system.
        let _ = std::fs::remove_file(&self.file);
        let _ = std::fs::remove_file(&self.file_slow);
    }
}

fn record_batch(column: &ArrayRef) -> Result<RecordBatch> {
    Ok(RecordBatch::try_from_iter([(COLUMN, column.clone())])?)
}

fn write(file: &Path, columns: &[ArrayRef]) -> Result<()> {
    let first = record_batch(columns.first().context("a column needs rows")?)?;
    let mut writer = FileWriter::try_new(std::fs::File::create(file)?, &first.schema())?;
    for column in columns {
        writer.write(&record_batch(column)?)?;
    }
    Ok(writer.finish()?)
}
