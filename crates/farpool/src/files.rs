//! Files into pools: Parquet, CSV and Arrow IPC, read on a thread of their own while the pool encodes.

use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;
use farpool_model::{Error, LoadMode, Result, TableInfo, TableName, cast};
use farpool_store::source::{self, Source};
use farpool_transfer::{BatchStream, Pool};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Batches that the reader may be ahead of the pool.
const BATCHES_AHEAD: usize = 4;

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
    columns: Option<Vec<usize>>,
    rows_read: Arc<AtomicU64>,
}

impl FileLoad {
    /// Finds the files and reads what they say about themselves.
    ///
    /// # Errors
    /// When there is none, one cannot be read, or they do not agree in their columns.
    pub fn open(files: &[impl AsRef<Path>]) -> Result<Self> {
        let files = files.iter().map(|file| path_text(file.as_ref())).collect::<Result<Vec<_>>>()?;
        let source = source::open_all(&files)?;
        Ok(FileLoad { source, columns: None, rows_read: Arc::default() })
    }

    /// The columns of the files.
    pub fn schema(&self) -> &SchemaRef {
        self.source.schema()
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
        let batches = stream_blocking(move || self.batches());
        pool.load(table, mode, schema, rows_hint, batches).await
    }

    /// Reads the files, on the calling thread.
    pub fn batches(self) -> impl Iterator<Item = Result<RecordBatch>> + Send {
        let FileLoad { source, columns, rows_read } = self;
        let batches = source.batches(columns.as_deref());
        batches.inspect(move |batch| {
            let rows = batch.as_ref().map_or(0, RecordBatch::num_rows);
            rows_read.fetch_add(cast::u64_from(rows), Ordering::Relaxed);
        })
    }
}

impl std::fmt::Debug for FileLoad {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("FileLoad").field("source", &self.source).finish_non_exhaustive()
    }
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
