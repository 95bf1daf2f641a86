//! Files into pools: Parquet, CSV, JSON and Arrow IPC, read on threads of their own while the pool encodes.

use crate::nested;
use crate::ordered::{stream_tasks, threads};
use arrow::array::RecordBatch;
use arrow::datatypes::{Field, Schema, SchemaRef};
use farpool_model::schema::canonical_type;
use farpool_model::{Error, LoadMode, ReadOptions, Result, TableInfo, TableName, brief, cast};
use farpool_store::source::{self, Batches, Source, Task, Tasks};
use farpool_transfer::{BatchStream, Pool};
use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Batches that the reader may be ahead of the pool.
const BATCHES_AHEAD: usize = 4;

/// Columns that are told by name when they are left out.
const COLUMNS_TOLD: usize = 10;

/// Loads `files` (paths, or patterns such as `trips-*.parquet`) as one table. They agree in their columns.
///
/// # Errors
/// What is wrong with the files, or what the pool says.
pub async fn load_files(
    pool: &dyn Pool,
    table: &str,
    mode: LoadMode,
    files: &[impl AsRef<Path>],
) -> Result<TableInfo> {
    FileLoad::open(files)?.run(pool, &TableName::new(table)?, mode).await
}

/// Files that are about to be loaded, and how far that has come.
pub struct FileLoad {
    source: Source,
    schema: SchemaRef,
    columns: Option<Vec<usize>>,
    has_texts: bool,
    rows_read: Arc<AtomicU64>,
}

impl FileLoad {
    /// Finds the files and reads what they say about themselves.
    ///
    /// # Errors
    /// When there is none, one cannot be read, or they do not agree in their columns.
    pub fn open(files: &[impl AsRef<Path>]) -> Result<Self> {
        Self::open_with(files, &ReadOptions::default())
    }

    /// The same, with `options`.
    ///
    /// # Errors
    /// Those of [`FileLoad::open`].
    pub fn open_with(files: &[impl AsRef<Path>], options: &ReadOptions) -> Result<Self> {
        let files = files.iter().map(|file| path_text(file.as_ref())).collect::<Result<Vec<_>>>()?;
        let source = source::open_all(&files, options)?;
        let schema = source.schema().clone();
        Ok(FileLoad { source, schema, columns: None, has_texts: false, rows_read: Arc::default() })
    }

    /// The columns of the files.
    pub fn schema(&self) -> &SchemaRef {
        &self.schema
    }

    /// With text for nested columns: what JSON writes for their values.
    #[must_use]
    pub fn nested_as_json(mut self) -> Self {
        self.schema = nested::texts_schema(&self.schema);
        self.has_texts = true;
        self
    }

    /// The files, patterns resolved.
    pub fn files(&self) -> impl Iterator<Item = PathBuf> + '_ {
        self.source.files().iter().cloned()
    }

    /// Only these columns, by their positions in [`FileLoad::schema`], in ascending order.
    #[must_use]
    pub fn select(mut self, columns: Vec<usize>) -> Self {
        self.columns = Some(columns);
        self
    }

    /// No more rows than these.
    #[must_use]
    pub fn limit(mut self, rows: usize) -> Self {
        self.source = self.source.with_limit(rows);
        self
    }

    /// Whether types of columns were guessed from a part of the rows.
    pub fn is_guessed(&self) -> bool {
        self.source.is_guessed()
    }

    /// Rows of all files, where they say how many they have.
    pub fn rows_hint(&self) -> Option<u64> {
        self.source.rows_hint()
    }

    /// Bytes of all files.
    pub fn bytes(&self) -> u64 {
        self.source.bytes()
    }

    /// Bytes read so far.
    pub fn bytes_read(&self) -> Arc<AtomicU64> {
        self.source.progress()
    }

    /// Rows read so far.
    pub fn rows_read(&self) -> Arc<AtomicU64> {
        self.rows_read.clone()
    }

    /// Reads the files into `table`.
    ///
    /// # Errors
    /// What is wrong with the files, or what the pool says.
    pub async fn run(self, pool: &dyn Pool, table: &TableName, mode: LoadMode) -> Result<TableInfo> {
        let schema = match &self.columns {
            Some(columns) => {
                Arc::new(self.schema().project(columns).map_err(|e| Error::internal(e.to_string()))?)
            }
            None => self.schema().clone(),
        };
        let rows_hint = self.rows_hint();
        let batches = self.stream();
        pool.load(table, mode, schema, rows_hint, batches).await
    }

    /// Reads the files on as many threads as there are processors, the batches in the order of their rows. Must be
    /// called within a tokio runtime.
    pub fn stream(self) -> BatchStream {
        stream_tasks(move || self.tasks(), threads())
    }

    /// Reads the files in parts; see [`source::Task`].
    pub(crate) fn tasks(self) -> Tasks {
        let FileLoad { source, columns, has_texts, rows_read, .. } = self;
        let tasks = counted_tasks(source.tasks(columns.as_deref()), rows_read);
        if has_texts { nested::texts_tasks(tasks) } else { tasks }
    }
}

/// The tasks, whose rows are added to `rows_read` as they come.
pub(crate) fn counted_tasks(tasks: Tasks, rows_read: Arc<AtomicU64>) -> Tasks {
    Box::new(tasks.map(move |task| -> Task {
        let rows_read = rows_read.clone();
        Box::new(move || Box::new(counted(task(), rows_read)))
    }))
}

/// The batches, whose rows are added to `rows_read` as they come.
fn counted(batches: Batches, rows_read: Arc<AtomicU64>) -> impl Iterator<Item = Result<RecordBatch>> + Send {
    batches.inspect(move |batch| {
        let rows = batch.as_ref().map_or(0, RecordBatch::num_rows);
        rows_read.fetch_add(cast::u64_from(rows), Ordering::Relaxed);
    })
}

/// A stream of CSV, JSON or Arrow IPC that is about to be loaded.
pub struct StreamLoad {
    stream: source::Stream,
    columns: Option<Vec<usize>>,
    rows_read: Arc<AtomicU64>,
}

impl StreamLoad {
    /// Reads the beginning of a stream; `name` is how errors call it.
    ///
    /// # Errors
    /// When it is empty, damaged or of no known format.
    pub fn open(name: &str, from: impl Read + Send + 'static, options: &ReadOptions) -> Result<Self> {
        let stream = source::open_stream(name, from, options)?;
        Ok(StreamLoad { stream, columns: None, rows_read: Arc::default() })
    }

    /// The columns of the stream.
    pub fn schema(&self) -> &SchemaRef {
        &self.stream.schema
    }

    /// With text for nested columns: what JSON writes for their values.
    #[must_use]
    pub fn nested_as_json(mut self) -> Self {
        self.stream.schema = nested::texts_schema(&self.stream.schema);
        self.stream.tasks = nested::texts_tasks(self.stream.tasks);
        self
    }

    /// Only these columns, by their positions in [`StreamLoad::schema`].
    #[must_use]
    pub fn select(mut self, columns: Vec<usize>) -> Self {
        self.columns = Some(columns);
        self
    }

    /// Rows read so far.
    pub fn rows_read(&self) -> Arc<AtomicU64> {
        self.rows_read.clone()
    }

    /// Reads the stream into `table`.
    ///
    /// # Errors
    /// What is wrong with the stream, or what the pool says.
    pub async fn run(self, pool: &dyn Pool, table: &TableName, mode: LoadMode) -> Result<TableInfo> {
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
        pool.load(table, mode, schema, None, batches).await
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

/// The positions of the columns that a pool holds, if those are not all, and what to tell of the others.
///
/// # Errors
/// `Invalid` when it holds none.
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

/// The items of an iterator that blocks, made on a thread of their own, a few ahead of the reader. Must be
/// called within a tokio runtime. Dropping the stream ends the thread at its next item.
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
