//! Loads of tables, and their progress.

use crate::runtime;
use arrow::array::{RecordBatch, RecordBatchReader};
use arrow::datatypes::{Field, Schema};
use arrow::error::ArrowError;
use arrow::ffi_stream::ArrowArrayStreamReader;
use farpool::model::schema::canonical_type;
use farpool::model::sql_name;
use farpool::{Error, FileLoad, LoadOptions, Pool, ReadOptions, StreamLoad, TableInfo, TableName};
use pyo3::prelude::*;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

/// The target table and the options of a load.
pub struct Load {
    pub name: TableName,
    pub columns: Option<Vec<String>>,
    pub nested_as_json: bool,
    pub options: LoadOptions,
}

/// Result of a load: the description of the table as JSON, the number of rows that were read, and a note for the user.
pub type Loaded = (String, u64, Option<String>);

/// The progress of a load; empty before it has started.
#[derive(Clone, Default)]
pub struct Progress(Arc<OnceLock<Counters>>);

struct Counters {
    /// Total bytes of the files; 0 if there are none.
    bytes: u64,
    bytes_read: Arc<AtomicU64>,
    rows_read: Arc<AtomicU64>,
}

impl Progress {
    fn begin(&self, bytes: u64, bytes_read: Arc<AtomicU64>, rows_read: Arc<AtomicU64>) {
        // A load starts only once.
        let _ = self.0.set(Counters { bytes, bytes_read, rows_read });
    }

    /// Calls the Python function `tell` with the bytes read, the total bytes and the rows read.
    pub fn tell(&self, tell: &Bound<'_, PyAny>) -> PyResult<()> {
        let Some(Counters { bytes, bytes_read, rows_read }) = self.0.get() else { return Ok(()) };
        let now = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        tell.call1((now(bytes_read), *bytes, now(rows_read))).map(drop)
    }

    fn rows_read(&self) -> u64 {
        self.0.get().map_or(0, |counters| counters.rows_read.load(Ordering::Relaxed))
    }
}

impl Load {
    /// Loads files.
    pub async fn files(
        self,
        pool: &dyn Pool,
        files: Vec<String>,
        options: ReadOptions,
        progress: &Progress,
    ) -> farpool::Result<Loaded> {
        let load = runtime::blocking(move || FileLoad::open_with(&files, &options)).await?;
        let load = if self.nested_as_json { load.nested_as_json() } else { load };
        let (columns, note) = self.chosen(load.schema())?;
        let load = match columns {
            Some(columns) => load.select(columns),
            None => load,
        };
        progress.begin(load.bytes(), load.bytes_read(), load.rows_read());
        let info = load.run(pool, &self.name, self.options).await?;
        Ok(loaded(&info, progress, note))
    }

    /// Loads the rows of a stream.
    pub async fn rows(
        self,
        pool: &dyn Pool,
        rows: ArrowArrayStreamReader,
        progress: &Progress,
    ) -> farpool::Result<Loaded> {
        let load = StreamLoad::of_batches(FRAME, &rows.schema(), rows.map(read))?;
        let load = if self.nested_as_json { load.nested_as_json() } else { load };
        let (columns, note) = self.chosen(load.schema()).map_err(|error| error.advise(FRAME_ADVICE))?;
        let schema = load.schema().clone();
        let taken = columns.clone().unwrap_or_else(|| (0..schema.fields().len()).collect());
        taken.into_iter().try_for_each(|i| held(schema.field(i)))?;
        let load = match columns {
            Some(columns) => load.select(columns),
            None => load,
        };
        progress.begin(0, Arc::default(), load.rows_read());
        let info = load.run(pool, &self.name, self.options).await?;
        Ok(loaded(&info, progress, note))
    }

    /// Returns the indexes of the columns to load (`None` for all columns), and a note about the others.
    fn chosen(&self, schema: &Schema) -> farpool::Result<(Option<Vec<usize>>, Option<String>)> {
        let Some(names) = &self.columns else { return farpool::held_columns(schema) };
        let mut columns = farpool::column_positions(schema, Some(names))?;
        columns.sort_unstable();
        Ok((Some(columns), None))
    }
}

/// Name of a data frame in error messages.
const FRAME: &str = "the data frame";

const FRAME_ADVICE: &str = "a statement can read the column, with the frame's variable in FROM; to load it, convert it in the \
                            frame, for example to text or to a number (nested=\"json\" makes text of lists and structs), or leave it out (columns=[…])";

/// Fails for a column of a data frame whose type a pool does not support, before any rows are sent.
fn held(field: &Field) -> farpool::Result<()> {
    match canonical_type(field.data_type()) {
        Some(_) => Ok(()),
        None => {
            let (name, kind) = (field.name(), sql_name(field.data_type()));
            Err(Error::invalid(format!(
                "column {name:?} of the data frame has type {kind}, which a pool does not hold"
            ))
            .advise(FRAME_ADVICE))
        }
    }
}

fn read(batch: Result<RecordBatch, ArrowError>) -> farpool::Result<RecordBatch> {
    batch.map_err(|error| Error::invalid(format!("the rows could not be read: {error}")))
}

fn loaded(info: &TableInfo, progress: &Progress, note: Option<String>) -> Loaded {
    (farpool::table_json(info).to_string(), progress.rows_read(), note)
}
