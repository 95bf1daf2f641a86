//! A table that grows by single rows, and a table of another tenant with the same rows that was loaded at once.
//!
//! Invariant: nothing is reported about a table before all its rows have been compared with those of the other.

use super::definition::Growing;
use super::served::{Served, answer};
use crate::{answers, tables};
use anyhow::{Context, Result, bail};
use arrow::array::{Array, AsArray, RecordBatch};
use arrow::datatypes::{DataType, Float64Type, Int64Type};
use farpool::Session;
use serde::Serialize;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use tokio::task::JoinHandle;

/// The tenant whose table grows.
pub const GROWING: usize = 0;

/// The tenant whose table was loaded at once.
pub const LOADED: usize = 1;

/// Interval at which memory is sampled while rows are inserted.
const LOOK: Duration = Duration::from_millis(10);

/// Memory of both tables in the pool, in bytes of whole pages.
#[derive(Clone, Debug, Serialize)]
pub struct Memory {
    /// Maximal bytes that the growing table used, including older versions that were being read.
    pub most_bytes: u64,
    /// Bytes that the growing table used after the last merge.
    pub settled_bytes: u64,
    /// Bytes that the table loaded at once uses.
    pub loaded_bytes: u64,
    pub at_most_bytes: u64,
    /// Seconds from the last row until the last merge had ended.
    pub settled_s: f64,
}

impl Memory {
    /// Returns whether both the largest and the final size of the growing table are within the bound, relative to the
    /// table that was loaded at once.
    pub fn is_within(&self) -> bool {
        self.most_bytes.max(self.settled_bytes) <= self.at_most_bytes
    }
}

/// The table that grows, which is empty at first, and the table that is loaded at once.
pub struct Pair<'a> {
    pub served: &'a Served,
    growing: &'a Growing,
    pub rows: RecordBatch,
}

impl<'a> Pair<'a> {
    /// Creates both tables.
    pub async fn make(served: &'a Served, growing: &'a Growing, rows: u64) -> Result<Self> {
        let batches: Vec<_> = tables::batches(&growing.table.columns(), rows).collect::<Result<_>>()?;
        let schema = batches.first().context("a table needs rows")?.schema();
        let rows = arrow::compute::concat_batches(&schema, &batches)?;
        served.clear(GROWING, &growing.table.name, schema).await?;
        served.load(LOADED, &growing.table.name, &growing.table, rows.num_rows() as u64).await?;
        Ok(Pair { served, growing, rows })
    }

    /// Waits for merges, compares the rows of both tables, and returns the memory that they use. Sessions of clients
    /// must be closed before: their prepared programs hold versions.
    pub async fn compare(&self, most_bytes: u64) -> Result<Memory> {
        let Pair { served, growing, .. } = self;
        let name = &growing.table.name;
        let settled_s = served.settle(GROWING, name).await?;
        let settled_bytes = served.memory_bytes(GROWING);
        let loaded_bytes = served.memory_bytes(LOADED);
        let all = format!("SELECT * FROM {name}");
        let expected = answer(&*served.client(LOADED, false).await?, &all).await?;
        let actual = answer(&*served.client(GROWING, false).await?, &all).await?;
        if let Some(difference) = answers::difference(&expected, &actual) {
            bail!("the table that grew is another than the one that was loaded at once: {difference}");
        }
        let at_most_bytes = growing.bytes_at_most(loaded_bytes);
        Ok(Memory { most_bytes, settled_bytes, loaded_bytes, at_most_bytes, settled_s })
    }

    /// Returns an INSERT statement for each row.
    pub fn statements(&self) -> Result<Vec<String>> {
        let statement = |row: usize| {
            let values: Result<Vec<_>> = self.rows.columns().iter().map(|c| literal(c, row)).collect();
            Ok(format!("INSERT INTO {} VALUES ({})", self.growing.table.name, values?.join(", ")))
        };
        (0..self.rows.num_rows()).map(statement).collect()
    }
}

/// Formats a value as an SQL literal.
fn literal(column: &dyn Array, row: usize) -> Result<String> {
    Ok(match column.data_type() {
        DataType::Int64 => column.as_primitive::<Int64Type>().value(row).to_string(),
        // Enough digits to read the same number, and always a point or an exponent.
        DataType::Float64 => format!("{:?}", column.as_primitive::<Float64Type>().value(row)),
        DataType::Utf8 => format!("'{}'", column.as_string::<i32>().value(row).replace('\'', "''")),
        other => bail!("no literals of type {other} are made"),
    })
}

/// Inserts a row, and fails unless the answer says that one row was added.
pub async fn insert(client: &Session, statement: &str) -> Result<()> {
    let inserted = answer(client, statement).await?;
    match inserted.rows.as_slice() {
        [row] if row.as_slice() == [answers::Cell::Exact { unscaled: 1, scale: 0 }] => Ok(()),
        other => bail!("{statement:?} gave {other:?}, where one row was to be inserted"),
    }
}

/// Samples the memory of a tenant's tables until it is stopped.
pub struct Watch {
    most_bytes: Arc<AtomicU64>,
    task: JoinHandle<()>,
}

impl Watch {
    /// Starts sampling.
    pub fn start(served: &Arc<Served>, tenant: usize) -> Self {
        let (served, most_bytes) = (served.clone(), Arc::<AtomicU64>::default());
        let most = most_bytes.clone();
        let task = tokio::spawn(async move {
            loop {
                most.fetch_max(served.memory_bytes(tenant), Ordering::Relaxed);
                tokio::time::sleep(LOOK).await;
            }
        });
        Watch { most_bytes, task }
    }

    /// Stops, and returns the largest sample in bytes.
    pub fn stop(self) -> u64 {
        self.task.abort();
        self.most_bytes.load(Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::literal;
    use arrow::array::{ArrayRef, Float64Array, Int64Array, StringArray};
    use std::sync::Arc;

    #[test]
    fn literals_are_read_as_the_same_values() {
        let columns: [ArrayRef; 3] = [
            Arc::new(Int64Array::from(vec![-7])),
            Arc::new(Float64Array::from(vec![1.0])),
            Arc::new(StringArray::from(vec!["it's"])),
        ];
        let literals = columns.map(|column| literal(&column, 0).expect("it has a literal"));
        assert_eq!(literals, ["-7", "1.0", "'it''s'"]);
    }
}
