//! Files as tables of a query: for `FROM 'trips.parquet'` the columns that the query needs are loaded into a pool
//! (store of compressed tables) in this process, and the query runs there. Files are read as a stream instead, without
//! being loaded ([`crate::scan`]), if the first rows are enough, if rows are only counted, if a column is needed whose
//! type a pool does not support, and if the pool is too small.
//!
//! A load fails if a later value of a CSV or JSON file does not fit the column type that was guessed from the first
//! rows. No row of the result has been returned by then: the types are guessed again from all rows, and the statement
//! is planned again.
//!
//! Invariant: a loaded table is used for a file only while the file's length and modification time (for a file in a
//! store, its entity tag) are those that it had when it was loaded.

use crate::scan::{self, FileScan};
use crate::stdin::Stdin;
use crate::{EmbeddedPool, FileLoad};
use arrow::datatypes::{Field, Schema, SchemaRef};
use async_trait::async_trait;
use datafusion::catalog::TableProvider;
use farpool_datafusion::{FileAccess, FileOpener, PoolTable};
use farpool_memory::WorkMemory;
use farpool_model::schema::canonical_type;
use farpool_model::{
    Error, ErrorKind, FileSpec, LoadMode, ReadOptions, Result, TableInfo, TableName, limits,
};
use std::any::Any;
use std::collections::HashSet;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, PoisonError};
use std::time::SystemTime;
use tokio::sync::Mutex;

/// A callback for progress bars: called with a label when a load begins; the value that it returns is dropped when the
/// load has ended.
type Watch = dyn Fn(String, &FileLoad) -> Box<dyn Any + Send> + Send + Sync;

/// The files that queries have named, and the pool that holds them. Pass this to [`crate::Session::set_file_opener`].
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> farpool::Result<()> {
/// use farpool::{QueryFiles, Session, SessionOptions};
///
/// # let folder = tempfile::tempdir().unwrap();
/// # let file = folder.path().join("trips.csv");
/// # std::fs::write(&file, "city,fare\nOslo,12\nRome,7\n").unwrap();
/// let session = Session::new(SessionOptions::default());
/// session.set_file_opener(std::sync::Arc::new(QueryFiles::new(256 << 20)));
/// let query = session.sql(format!("select sum(fare) from '{}'", file.display()).as_str()).await?;
/// assert_eq!(query.collect().await?[0].num_rows(), 1);
/// # Ok(())
/// # }
/// ```
pub struct QueryFiles {
    memory_bytes: usize,
    work: Arc<WorkMemory>,
    options: ReadOptions,
    watch: Option<Arc<Watch>>,
    state: Mutex<State>,
    /// Files whose column types are guessed from all rows, because a type guessed from the first rows did not fit.
    guessed_anew: std::sync::Mutex<HashSet<FileSpec>>,
    stdin: Stdin,
    /// Files in object stores that were opened for their columns and will be read soon. They are kept, so that their
    /// beginnings or ends need not be requested again.
    opened: std::sync::Mutex<Vec<(FileSpec, FileLoad)>>,
    has_used_options: AtomicBool,
}

/// Maximum number of files in object stores that stay open. Reason: the beginning or end of each is kept in memory.
const OPENED_KEPT: usize = 16;

#[derive(Default)]
struct State {
    pool: Option<Arc<EmbeddedPool>>,
    loaded: Vec<Loaded>,
}

/// Columns of a file, or of the files of a pattern, that were loaded into the pool.
struct Loaded {
    files: FileSpec,
    columns: Vec<usize>,
    stamps: Vec<Stamp>,
    info: TableInfo,
}

impl Loaded {
    /// Returns whether this load has all of `columns` of `files`, and the files have not changed since.
    fn has(&self, files: &FileSpec, columns: &[usize], stamps: &[Stamp]) -> bool {
        &self.files == files && self.stamps == stamps && columns.iter().all(|c| self.columns.contains(c))
    }
}

/// The identity of a file's content: path, length and modification time, or the stamp (such as an entity tag) from its
/// object store.
type Stamp = (PathBuf, u64, Option<SystemTime>, String);

impl QueryFiles {
    /// Creates an opener that loads files into a pool of at most `memory_bytes`, which is created when the first file
    /// is named.
    pub fn new(memory_bytes: usize) -> Self {
        QueryFiles {
            memory_bytes,
            work: WorkMemory::new(limits::WORK_BYTES_DEFAULT),
            options: ReadOptions::default(),
            watch: None,
            state: Mutex::default(),
            guessed_anew: std::sync::Mutex::default(),
            stdin: Stdin::default(),
            opened: std::sync::Mutex::default(),
            has_used_options: AtomicBool::new(false),
        }
    }

    /// Sets the working memory that the pool uses. A session that uses the same one shares its limit.
    #[must_use]
    pub fn with_work_memory(mut self, work: Arc<WorkMemory>) -> Self {
        self.work = work;
        self
    }

    /// Sets the options for files that statements name without options.
    #[must_use]
    pub fn with_options(mut self, options: ReadOptions) -> Self {
        self.options = options;
        self
    }

    /// Sets a callback for progress bars: called with a label when a load begins; the value that it returns is dropped
    /// when the load ends.
    #[must_use]
    pub fn on_load(
        mut self,
        watch: impl Fn(String, &FileLoad) -> Box<dyn Any + Send> + Send + Sync + 'static,
    ) -> Self {
        self.watch = Some(Arc::new(watch));
        self
    }

    /// Resolves standard input and applies the default options to files without options of their own.
    async fn with_defaults(&self, files: &FileSpec) -> Result<FileSpec> {
        let mut files = self.stdin.resolved(files.clone()).await?;
        if files.options == ReadOptions::default() {
            self.has_used_options.store(true, Ordering::Relaxed);
            files.options = self.options.clone();
        }
        if self.guessed_anew.lock().unwrap_or_else(PoisonError::into_inner).contains(&files) {
            files.options.sample_rows = Some(usize::MAX);
        }
        Ok(files)
    }

    /// Returns whether a statement has named a file without options, so that those of [`QueryFiles::with_options`] were
    /// used.
    pub fn has_used_options(&self) -> bool {
        self.has_used_options.load(Ordering::Relaxed)
    }

    fn watch(&self, label: String) -> Arc<scan::Watch> {
        let watch = self.watch.clone();
        Arc::new(move |load: &FileLoad| -> Box<dyn Any + Send> {
            match &watch {
                Some(watch) => watch(label.clone(), load),
                None => Box::new(()),
            }
        })
    }

    /// Keeps opened files of object stores until they are read.
    fn keep_opened(&self, files: FileSpec, load: FileLoad) {
        if load.stamps().all(|stamp| stamp.is_empty()) {
            return;
        }
        let mut opened = self.opened.lock().unwrap_or_else(PoisonError::into_inner);
        opened.retain(|(other, _)| *other != files);
        if opened.len() >= OPENED_KEPT {
            opened.remove(0);
        }
        opened.push((files, load));
    }

    /// Returns files that were kept open, or opens them.
    async fn opened(&self, files: &FileSpec) -> Result<FileLoad> {
        let kept = {
            let mut opened = self.opened.lock().unwrap_or_else(PoisonError::into_inner);
            let place = opened.iter().position(|(other, _)| other == files);
            place.map(|place| opened.remove(place).1)
        };
        match kept {
            Some(load) => Ok(load),
            None => open(files).await,
        }
    }

    async fn pool(&self, state: &mut State) -> Result<Arc<EmbeddedPool>> {
        match &state.pool {
            Some(pool) => Ok(pool.clone()),
            None => {
                let pool = EmbeddedPool::open_for_queries(self.memory_bytes, self.work.clone())?;
                Ok(state.pool.insert(pool).clone())
            }
        }
    }

    /// Returns the error of a failed load: one that makes the session plan the statement again if column types were
    /// guessed from too few rows, otherwise `error`.
    async fn failed(&self, files: &FileSpec, error: Error) -> Error {
        if error.kind != ErrorKind::Invalid || files.options.sample_rows == Some(usize::MAX) {
            return error;
        }
        let mut anew = files.clone();
        anew.options.sample_rows = Some(usize::MAX);
        let (Ok(before), Ok(now)) = (open(files).await, open(&anew).await) else { return error };
        if !before.is_guessed() || before.schema() == now.schema() {
            return error;
        }
        self.guessed_anew.lock().unwrap_or_else(PoisonError::into_inner).insert(files.clone());
        Error::stale(error.message)
    }
}

#[async_trait]
impl FileOpener for QueryFiles {
    async fn schema(&self, files: &FileSpec) -> Result<SchemaRef> {
        let files = self.with_defaults(files).await?;
        let load = match open(&files).await {
            Ok(load) => load,
            Err(error) => return Err(self.stdin.named(error).await),
        };
        let fields: Vec<_> = load.schema().fields().iter().map(|field| held_field(field)).collect();
        self.keep_opened(files, load);
        Ok(Arc::new(Schema::new(fields)))
    }

    async fn open(
        &self,
        files: &FileSpec,
        columns: &[usize],
        access: FileAccess,
    ) -> Result<Arc<dyn TableProvider>> {
        let files = self.with_defaults(files).await?;
        let load = self.opened(&files).await?;
        let stamps: Vec<Stamp> = load.files().zip(load.stamps()).map(stamp).collect();
        let mut state = self.state.lock().await;
        let pool = self.pool(&mut state).await?;
        let known = state.loaded.iter().find(|known| known.has(&files, columns, &stamps));
        if let Some(known) = known.filter(|_| !columns.is_empty()) {
            return Ok(Arc::new(PoolTable::new(pool, known.info.clone())));
        }
        let label = format!("reading {files}");
        let is_held = |i: &usize| canonical_type(load.schema().field(*i).data_type()).is_some();
        if access == FileAccess::Look || columns.is_empty() || !columns.iter().all(is_held) {
            return Ok(Arc::new(FileScan::new(files, load, columns.to_vec(), self.watch(label))));
        }
        let table = table_name(&files.to_string(), state.loaded.len())?;
        let load = load.select(columns.to_vec());
        let watch = self.watch(label.clone())(&load);
        let loaded = load.run(&*pool, &table, LoadMode::Replace).await;
        drop(watch);
        match loaded {
            Ok(info) => {
                let columns = columns.to_vec();
                state.loaded.push(Loaded { files, columns, stamps, info: info.clone() });
                Ok(Arc::new(PoolTable::new(pool, info)))
            }
            // Files that do not fit in the pool are read as a stream.
            Err(error) if error.kind == ErrorKind::OverLimit => {
                let load = open(&files).await?;
                Ok(Arc::new(FileScan::new(files, load, columns.to_vec(), self.watch(label))))
            }
            Err(error) => Err(self.stdin.named(self.failed(&files, error).await).await),
        }
    }
}

impl std::fmt::Debug for QueryFiles {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("QueryFiles").field("memory_bytes", &self.memory_bytes).finish_non_exhaustive()
    }
}

/// Opens files on a blocking thread: reads footers, or the first rows of CSV and JSON.
async fn open(files: &FileSpec) -> Result<FileLoad> {
    let files = files.clone();
    tokio::task::spawn_blocking(move || FileLoad::open_with(&files.paths, &files.options))
        .await
        .map_err(|error| Error::internal(format!("reading a file stopped: {error}")))?
}

/// Returns the field with the type in which a pool stores it. An unsupported type is unchanged; files with such columns
/// are scanned without a pool.
pub(crate) fn held_field(field: &Field) -> Field {
    let data_type = canonical_type(field.data_type()).unwrap_or_else(|| field.data_type().clone());
    Field::new(field.name(), data_type, field.is_nullable())
}

/// Returns a table name that consists of the end of `path` and `number`, which distinguishes several loads of the same
/// files.
fn table_name(path: &str, number: usize) -> Result<TableName> {
    let suffix = if number == 0 { String::new() } else { format!("#{number}") };
    let mut start = (path.len() + suffix.len()).saturating_sub(limits::NAME_BYTES_MAX);
    while !path.is_char_boundary(start) {
        start += 1;
    }
    TableName::new(path[start..].replace(char::is_control, "?") + &suffix)
}

fn stamp((path, of_store): (PathBuf, String)) -> Stamp {
    let metadata = std::fs::metadata(&path).ok();
    let length = metadata.as_ref().map_or(0, std::fs::Metadata::len);
    (path, length, metadata.and_then(|m| m.modified().ok()), of_store)
}
