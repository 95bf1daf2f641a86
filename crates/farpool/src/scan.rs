//! Files as tables that are read as a stream, without a pool (store of tables): for statements that need only the first
//! rows or the number of rows, for columns of types that pools do not support, and for files that are larger than the
//! pool.
//!
//! Invariant: a column has the same type as in a pool, or Arrow's type if pools do not support it.

use crate::FileLoad;
use crate::ordered::{stream_tasks, threads};
use arrow::array::{RecordBatch, RecordBatchOptions};
use arrow::datatypes::{Schema, SchemaRef};
use async_trait::async_trait;
use datafusion::catalog::{Session, TableProvider};
use datafusion::error::{DataFusionError, Result};
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::logical_expr::{Expr, TableType};
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::physical_plan::streaming::{PartitionStream, StreamingTableExec};
use farpool_columns::to_canonical;
use farpool_files::{Task, Tasks, of_batches};
use farpool_model::schema::canonical_type;
use farpool_model::{Error, FileSpec, cast, limits};
use futures::TryStreamExt;
use std::any::Any;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

/// A callback for progress bars: called when reading begins; the value that it returns is dropped when reading has
/// ended.
pub(crate) type Watch = dyn Fn(&FileLoad) -> Box<dyn Any + Send> + Send + Sync;

/// A table of some columns of files.
pub(crate) struct FileScan {
    opened: Arc<Opened>,
    /// Indexes of the columns in the files.
    columns: Vec<usize>,
    schema: SchemaRef,
}

/// Files that were opened for their schema. The first reader takes `load`, so that they need not be opened again.
struct Opened {
    files: FileSpec,
    load: Mutex<Option<FileLoad>>,
    watch: Arc<Watch>,
}

impl FileScan {
    /// Creates a table of the columns at the indexes `columns` of `load`. `files` says how to open the files again.
    pub(crate) fn new(files: FileSpec, load: FileLoad, columns: Vec<usize>, watch: Arc<Watch>) -> Self {
        let fields = load.schema().fields();
        let fields: Vec<_> = columns.iter().map(|&i| crate::query_files::held_field(&fields[i])).collect();
        let opened = Arc::new(Opened { files, load: Mutex::new(Some(load)), watch });
        FileScan { opened, columns, schema: Arc::new(Schema::new(fields)) }
    }
}

impl fmt::Debug for FileScan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FileScan").field("files", &self.opened.files.paths).finish_non_exhaustive()
    }
}

#[async_trait]
impl TableProvider for FileScan {
    fn schema(&self) -> SchemaRef {
        self.schema.clone()
    }

    fn table_type(&self) -> TableType {
        TableType::Base
    }

    async fn scan(
        &self,
        _state: &dyn Session,
        projection: Option<&Vec<usize>>,
        _filters: &[Expr],
        limit: Option<usize>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let every: Vec<usize> = (0..self.columns.len()).collect();
        let chosen = projection.unwrap_or(&every);
        let schema = Arc::new(self.schema.project(chosen)?);
        let columns = chosen.iter().map(|&i| self.columns[i]).collect();
        let rows: Arc<dyn PartitionStream> =
            Arc::new(Rows { opened: self.opened.clone(), columns, limit, schema: schema.clone() });
        Ok(Arc::new(StreamingTableExec::try_new(schema, vec![rows], None, [], false, limit)?))
    }
}

/// One scan of the files, as the only partition of a DataFusion execution plan. The files are read when the partition
/// is executed.
struct Rows {
    opened: Arc<Opened>,
    columns: Vec<usize>,
    limit: Option<usize>,
    schema: SchemaRef,
}

impl fmt::Debug for Rows {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "FileScan: files={}, columns={:?}, limit={:?}", self.opened.files, self.columns, self.limit)
    }
}

impl PartitionStream for Rows {
    fn schema(&self) -> &SchemaRef {
        &self.schema
    }

    fn execute(&self, _context: Arc<TaskContext>) -> SendableRecordBatchStream {
        let (opened, columns, limit) = (self.opened.clone(), self.columns.clone(), self.limit);
        let schema = self.schema.clone();
        let batches = stream_tasks(move || tasks(&opened, columns, limit, &schema), threads());
        let batches = batches.map_err(|error| DataFusionError::External(Box::new(error)));
        Box::pin(RecordBatchStreamAdapter::new(self.schema.clone(), batches))
    }
}

/// Opens the files, on the calling thread, and returns the tasks that read them.
fn tasks(opened: &Opened, columns: Vec<usize>, limit: Option<usize>, schema: &SchemaRef) -> Tasks {
    let kept = opened.load.lock().unwrap_or_else(PoisonError::into_inner).take();
    let load = kept.map_or_else(|| FileLoad::open_with(&opened.files.paths, &opened.files.options), Ok);
    let load = match load {
        Ok(load) => load,
        Err(error) => return of_batches(Box::new(std::iter::once(Err(error)))),
    };
    // Formats that state their number of rows need not be read to count them.
    if let (true, Some(rows)) = (columns.is_empty(), load.rows_hint()) {
        let rows = limit.map_or(rows, |limit| rows.min(cast::u64_from(limit)));
        return of_batches(Box::new(counted(rows, schema.clone())));
    }
    let watch = (opened.watch)(&load);
    let load = match limit {
        Some(limit) => load.limit(limit),
        None => load,
    };
    let schema = schema.clone();
    Box::new(load.select(columns).tasks().map(move |task| -> Task {
        let _watch = &watch;
        let schema = schema.clone();
        Box::new(move || Box::new(task().map(move |batch| held(&batch?, &schema))))
    }))
}

/// Returns batches without columns that have `rows` rows in total, for statements that only count rows.
fn counted(rows: u64, schema: SchemaRef) -> impl Iterator<Item = farpool_model::Result<RecordBatch>> {
    let most = cast::u64_from(limits::ROW_GROUP_ROWS);
    let mut left = rows;
    std::iter::from_fn(move || {
        let now = left.min(most);
        left -= now;
        (now > 0).then(|| of(&schema, Vec::new(), cast::usize_saturating(now)))
    })
}

/// Converts the columns of `batch` to the types in which a pool stores them; unsupported types stay unchanged.
fn held(batch: &RecordBatch, schema: &SchemaRef) -> farpool_model::Result<RecordBatch> {
    let columns = batch.columns().iter().zip(schema.fields()).map(|(column, field)| {
        match canonical_type(column.data_type()) {
            Some(_) => to_canonical(column, field.data_type()).map_err(|error| error.at(field.name())),
            None => Ok(column.clone()),
        }
    });
    of(schema, columns.collect::<farpool_model::Result<_>>()?, batch.num_rows())
}

fn of(
    schema: &SchemaRef,
    columns: Vec<arrow::array::ArrayRef>,
    rows: usize,
) -> farpool_model::Result<RecordBatch> {
    let options = RecordBatchOptions::new().with_row_count(Some(rows));
    RecordBatch::try_new_with_options(schema.clone(), columns, &options)
        .map_err(|error| Error::internal(error.to_string()))
}
