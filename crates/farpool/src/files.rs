//! Loads files into pools (stores of compressed tables): Parquet, CSV, JSON and Arrow IPC. The files are read on
//! separate threads while the pool encodes rows.

use crate::cloud::WebFiles;
use crate::nested;
use crate::ordered::{stream_tasks, threads};
use arrow::array::RecordBatch;
use arrow::datatypes::{Field, Schema, SchemaRef};
use farpool_files::{Batches, Source, Task, Tasks};
use farpool_model::schema::canonical_type;
use farpool_model::{Error, LoadOptions, ReadOptions, Result, TableInfo, TableName, brief, cast};
use farpool_transfer::{BatchStream, Pool};
use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Maximum number of batches that are read and not yet taken by the pool. Reason: a few batches hide the pauses of
/// reading, and more only take memory.
const BATCHES_AHEAD: usize = 4;

/// Maximum number of left-out columns that a note lists by name.
const COLUMNS_TOLD: usize = 10;

/// Loads `files` (paths, patterns such as `trips-*.parquet`, or URLs such as `s3://bucket/x/*.parquet`) as one table,
/// `TABLE` or `SCHEMA.TABLE`. All files must have the same columns.
///
/// # Errors
/// Fails if a file cannot be read, or if the pool refuses the load.
pub async fn load_files(
    pool: &dyn Pool,
    table: &str,
    options: impl Into<LoadOptions>,
    files: &[impl AsRef<Path>],
) -> Result<TableInfo> {
    FileLoad::open(files)?.run(pool, &TableName::parse(table)?, options).await
}

/// Files that are about to be loaded, with counters of the progress.
pub struct FileLoad {
    source: Source,
    schema: SchemaRef,
    columns: Option<Vec<usize>>,
    has_texts: bool,
    rows_read: Arc<AtomicU64>,
}

impl FileLoad {
    /// Resolves file patterns and reads the metadata of the files, or the first rows for formats without metadata.
    /// Blocks on the disk or network.
    ///
    /// # Errors
    /// Fails if there is no file, one cannot be read, or their columns differ.
    pub fn open(files: &[impl AsRef<Path>]) -> Result<Self> {
        Self::open_with(files, &ReadOptions::default())
    }

    /// Opens the files as [`FileLoad::open`] does, with `options`.
    ///
    /// # Errors
    /// The errors of [`FileLoad::open`].
    pub fn open_with(files: &[impl AsRef<Path>], options: &ReadOptions) -> Result<Self> {
        let files = files.iter().map(|file| path_text(file.as_ref())).collect::<Result<Vec<_>>>()?;
        let source = farpool_files::open_all(&files, options, Some(&WebFiles))?;
        let schema = source.schema().clone();
        Ok(FileLoad { source, schema, columns: None, has_texts: false, rows_read: Arc::default() })
    }

    /// Returns the columns of the files.
    pub fn schema(&self) -> &SchemaRef {
        &self.schema
    }

    /// Converts nested columns to text: the JSON of their values.
    #[must_use]
    pub fn nested_as_json(mut self) -> Self {
        self.schema = nested::texts_schema(&self.schema);
        self.has_texts = true;
        self
    }

    /// Returns the files, with patterns resolved.
    pub fn files(&self) -> impl Iterator<Item = PathBuf> + '_ {
        self.source.files().iter().cloned()
    }

    /// Returns for each file in an object store a text that differs after the file was changed; empty for files of this
    /// machine.
    pub(crate) fn stamps(&self) -> impl Iterator<Item = String> + '_ {
        self.source.stamps()
    }

    /// Restricts the load to the columns at these indexes of [`FileLoad::schema`], which must be in ascending order.
    #[must_use]
    pub fn select(mut self, columns: Vec<usize>) -> Self {
        self.columns = Some(columns);
        self
    }

    /// Restricts the load to the first `rows` rows.
    #[must_use]
    pub fn limit(mut self, rows: usize) -> Self {
        self.source = self.source.with_limit(rows);
        self
    }

    /// Returns whether column types were guessed from only some of the rows.
    pub fn is_guessed(&self) -> bool {
        self.source.is_guessed()
    }

    /// Returns the total number of rows; `None` if a file's metadata do not state it.
    pub fn rows_hint(&self) -> Option<u64> {
        self.source.rows_hint()
    }

    /// Returns the total bytes of the files.
    pub fn bytes(&self) -> u64 {
        self.source.bytes()
    }

    /// Returns the counter of the bytes read so far.
    pub fn bytes_read(&self) -> Arc<AtomicU64> {
        self.source.progress()
    }

    /// Returns the counter of the rows read so far.
    pub fn rows_read(&self) -> Arc<AtomicU64> {
        self.rows_read.clone()
    }

    /// Loads the files into `table`.
    ///
    /// # Errors
    /// Fails if a file cannot be read, or if the pool refuses the load.
    pub async fn run(
        self,
        pool: &dyn Pool,
        table: &TableName,
        options: impl Into<LoadOptions>,
    ) -> Result<TableInfo> {
        let schema = match &self.columns {
            Some(columns) => {
                Arc::new(self.schema().project(columns).map_err(|e| Error::internal(e.to_string()))?)
            }
            None => self.schema().clone(),
        };
        let rows_hint = self.rows_hint();
        let batches = self.stream();
        pool.load(table, options.into(), schema, rows_hint, batches).await
    }

    /// Reads the files on as many threads as there are processors. The batches are returned in the order of the rows.
    /// Must be called within a tokio runtime, because it starts tasks.
    pub fn stream(self) -> BatchStream {
        stream_tasks(move || self.tasks(), threads())
    }

    /// Splits the reading of the files into tasks; see [`farpool_files::Task`].
    pub(crate) fn tasks(self) -> Tasks {
        let FileLoad { source, columns, has_texts, rows_read, .. } = self;
        let tasks = counted_tasks(source.tasks(columns.as_deref()), rows_read);
        if has_texts { nested::texts_tasks(tasks) } else { tasks }
    }
}

/// Wraps `tasks` so that rows are added to `rows_read` as they are read.
pub(crate) fn counted_tasks(tasks: Tasks, rows_read: Arc<AtomicU64>) -> Tasks {
    Box::new(tasks.map(move |task| -> Task {
        let rows_read = rows_read.clone();
        Box::new(move || Box::new(counted(task(), rows_read)))
    }))
}

/// Wraps `batches` so that their rows are added to `rows_read` as they are read.
fn counted(batches: Batches, rows_read: Arc<AtomicU64>) -> impl Iterator<Item = Result<RecordBatch>> + Send {
    batches.inspect(move |batch| {
        let rows = batch.as_ref().map_or(0, RecordBatch::num_rows);
        rows_read.fetch_add(cast::u64_from(rows), Ordering::Relaxed);
    })
}

/// A stream of CSV, JSON or Arrow data that is about to be loaded.
pub struct StreamLoad {
    stream: farpool_files::Stream,
    columns: Option<Vec<usize>>,
    rows_read: Arc<AtomicU64>,
}

impl StreamLoad {
    /// Reads the beginning of a stream. `name` identifies it in errors. Blocks.
    ///
    /// # Errors
    /// Fails if the stream is empty, corrupted or of an unknown format.
    pub fn open(name: &str, from: impl Read + Send + 'static, options: &ReadOptions) -> Result<Self> {
        let stream = farpool_files::open_stream(name, from, options)?;
        Ok(StreamLoad { stream, columns: None, rows_read: Arc::default() })
    }

    /// Creates a load of Arrow batches that have this schema already. `name` identifies them in errors. Columns of type
    /// Null become strings.
    ///
    /// # Errors
    /// Fails if there is no column, or too many.
    pub fn of_batches(
        name: &str,
        schema: &SchemaRef,
        batches: impl Iterator<Item = Result<RecordBatch>> + Send + 'static,
    ) -> Result<Self> {
        let stream = farpool_files::of_rows(name, schema, Box::new(batches))?;
        Ok(StreamLoad { stream, columns: None, rows_read: Arc::default() })
    }

    /// Reads all rows on the calling thread. Blocks until then.
    ///
    /// # Errors
    /// Fails if the rows cannot be read.
    pub fn collect(self) -> Result<Vec<RecordBatch>> {
        self.stream.batches().collect()
    }

    /// Returns the columns of the stream.
    pub fn schema(&self) -> &SchemaRef {
        &self.stream.schema
    }

    /// Converts nested columns to text: the JSON of their values.
    #[must_use]
    pub fn nested_as_json(mut self) -> Self {
        self.stream.schema = nested::texts_schema(&self.stream.schema);
        self.stream.tasks = nested::texts_tasks(self.stream.tasks);
        self
    }

    /// Restricts the load to the columns at these indexes of [`StreamLoad::schema`].
    #[must_use]
    pub fn select(mut self, columns: Vec<usize>) -> Self {
        self.columns = Some(columns);
        self
    }

    /// Returns the counter of the rows read so far.
    pub fn rows_read(&self) -> Arc<AtomicU64> {
        self.rows_read.clone()
    }

    /// Loads the stream into `table`.
    ///
    /// # Errors
    /// Fails if the stream cannot be read, or if the pool refuses the load.
    pub async fn run(
        self,
        pool: &dyn Pool,
        table: &TableName,
        options: impl Into<LoadOptions>,
    ) -> Result<TableInfo> {
        let StreamLoad { stream, columns, rows_read } = self;
        let columns = columns.unwrap_or_else(|| (0..stream.schema.fields().len()).collect());
        let internal = |error: arrow::error::ArrowError| Error::internal(error.to_string());
        let schema = Arc::new(stream.schema.project(&columns).map_err(internal)?);
        let tasks = counted_tasks(stream.tasks, rows_read);
        let project = move |task: Task| -> Task {
            let columns = columns.clone();
            Box::new(move || Box::new(task().map(move |batch| batch?.project(&columns).map_err(internal))))
        };
        let batches = stream_tasks(move || Box::new(tasks.map(project)), threads());
        pool.load(table, options.into(), schema, None, batches).await
    }
}

impl std::fmt::Debug for StreamLoad {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("StreamLoad").field("stream", &self.stream).finish_non_exhaustive()
    }
}

impl std::fmt::Debug for FileLoad {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("FileLoad").field("source", &self.source).finish_non_exhaustive()
    }
}

/// Returns the indexes of the columns whose types a pool can store (`None` if it can store all), and a note for the
/// user that names the columns left out (`None` if there are none).
///
/// # Errors
/// `Invalid` if it can store none.
pub fn held_columns(schema: &Schema) -> Result<(Option<Vec<usize>>, Option<String>)> {
    let is_held = |i: &usize| canonical_type(schema.field(*i).data_type()).is_some();
    let (held, others): (Vec<usize>, Vec<usize>) = (0..schema.fields().len()).partition(is_held);
    if others.is_empty() {
        return Ok((None, None));
    }
    let named: Vec<String> = others.iter().take(COLUMNS_TOLD).map(|&i| told(schema.field(i))).collect();
    let more = others.len() - named.len();
    let more = if more > 0 { format!(" and {more} more") } else { String::new() };
    let named = format!("{}{more}", named.join(", "));
    if held.is_empty() {
        let message = format!("a pool holds none of the columns: {named}");
        return Err(
            Error::invalid(message).advise("query the file where it is: farpool sql -c \"from 'FILE'\"")
        );
    }
    Ok((Some(held), Some(format!("left out, because a pool does not hold their types: {named}"))))
}

fn told(field: &Field) -> String {
    let kind = match field.data_type() {
        data_type if data_type.is_nested() => "nested".to_string(),
        other => other.to_string(),
    };
    format!("{:?} ({kind})", brief(field.name()))
}

fn path_text(path: &Path) -> Result<&str> {
    path.to_str().ok_or_else(|| {
        Error::invalid(format!("the path {} is not UTF-8", path.display())).advise("rename the file")
    })
}

/// Returns the items of a blocking iterator as a stream. The iterator runs on a separate thread, up to a few items
/// ahead of the reader. Must be called within a tokio runtime, because it starts a blocking task. Dropping the stream
/// ends the thread at its next item.
pub fn stream_blocking<I>(make: impl FnOnce() -> I + Send + 'static) -> BatchStream
where
    I: Iterator<Item = Result<RecordBatch>>,
{
    let (sender, mut receiver) = tokio::sync::mpsc::channel(BATCHES_AHEAD);
    let reader = tokio::task::spawn_blocking(move || {
        for batch in make() {
            if sender.blocking_send(batch).is_err() {
                return;
            }
        }
    });
    let mut reader = Some(reader);
    Box::pin(futures::stream::poll_fn(move |context| {
        use futures::FutureExt;
        use std::task::Poll;
        let item = std::task::ready!(receiver.poll_recv(context));
        if item.is_some() {
            return Poll::Ready(item);
        }
        // The channel is closed: either all was read, or the reader panicked, which must not look like an end.
        match reader.as_mut().map(|reader| reader.poll_unpin(context)) {
            Some(Poll::Pending) => Poll::Pending,
            Some(Poll::Ready(Err(error))) => {
                reader = None;
                Poll::Ready(Some(Err(Error::internal(format!("reading stopped: {error}")))))
            }
            Some(Poll::Ready(Ok(()))) | None => {
                reader = None;
                Poll::Ready(None)
            }
        }
    }))
}
