//! Files as tables of a query: `FROM 'trips.parquet'` loads the columns that the query needs into a pool
//! in this process, and the query runs there.
//!
//! Invariant: a table of the pool stands for a file only while the file's length and time of change are
//! those that it had when it was loaded.

use crate::{EmbeddedPool, FileLoad};
use arrow::datatypes::{Field, Schema, SchemaRef};
use async_trait::async_trait;
use datafusion::catalog::TableProvider;
use farpool_datafusion::{FileOpener, PoolTable};
use farpool_memory::WorkMemory;
use farpool_model::schema::canonical_type;
use farpool_model::{Error, ErrorKind, LoadMode, Result, TableInfo, TableName, limits};
use std::any::Any;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::SystemTime;
use tokio::sync::Mutex;

/// Told of each load as it begins, with a label; what it returns lives until the load has ended.
type Watch = dyn Fn(String, &FileLoad) -> Box<dyn Any + Send> + Send + Sync;

/// The files that queries have named, and the pool that holds them. For [`crate::Session::set_file_opener`].
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
    watch: Option<Box<Watch>>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    pool: Option<Arc<EmbeddedPool>>,
    loaded: Vec<Loaded>,
}

/// Some columns of a file, or of the files of a pattern, that are in the pool.
struct Loaded {
    path: String,
    columns: Vec<usize>,
    stamps: Vec<Stamp>,
    info: TableInfo,
}

impl Loaded {
    /// Whether these are the columns, and perhaps others, of the files as they are now.
    fn has(&self, path: &str, columns: &[usize], stamps: &[Stamp]) -> bool {
        self.path == path && self.stamps == stamps && columns.iter().all(|c| self.columns.contains(c))
    }
}

/// What changes when a file does.
type Stamp = (PathBuf, u64, Option<SystemTime>);

impl QueryFiles {
    /// Files go to a pool of at most `memory_bytes`, made when the first is named.
    pub fn new(memory_bytes: usize) -> Self {
        QueryFiles {
            memory_bytes,
            work: WorkMemory::new(limits::WORK_BYTES_DEFAULT),
            watch: None,
            state: Mutex::default(),
        }
    }

    /// Has the pool work within `work`: that of the session, so that both keep to it together.
    #[must_use]
    pub fn with_work_memory(mut self, work: Arc<WorkMemory>) -> Self {
        self.work = work;
        self
    }

    /// Has `watch` told of each load, for progress bars.
    #[must_use]
    pub fn on_load(
        mut self,
        watch: impl Fn(String, &FileLoad) -> Box<dyn Any + Send> + Send + Sync + 'static,
    ) -> Self {
        self.watch = Some(Box::new(watch));
        self
    }

    async fn load(
        &self,
        pool: &EmbeddedPool,
        table: &TableName,
        path: &str,
        load: FileLoad,
    ) -> Result<TableInfo> {
        let _watch = self.watch.as_ref().map(|watch| watch(format!("reading {path}"), &load));
        load.run(pool, table, LoadMode::Replace).await.map_err(|error| match error.kind {
            ErrorKind::OverLimit => error.at(path).advise(
                "give the pool more memory (--memory SIZE), or load the file into a node that has more",
            ),
            _ => error,
        })
    }
}

#[async_trait]
impl FileOpener for QueryFiles {
    async fn schema(&self, path: &str) -> Result<SchemaRef> {
        let load = open(path).await?;
        let fields = load.schema().fields().iter().map(|field| canonical_field(field));
        Ok(Arc::new(Schema::new(fields.collect::<Vec<_>>())))
    }

    async fn open(&self, path: &str, columns: &[usize]) -> Result<Arc<dyn TableProvider>> {
        let load = open(path).await?;
        let columns = if columns.is_empty() { cheapest_column(&load) } else { columns.to_vec() };
        let stamps: Vec<Stamp> = load.files().map(stamp).collect();
        let mut state = self.state.lock().await;
        let pool = match &state.pool {
            Some(pool) => pool.clone(),
            None => {
                let pool = EmbeddedPool::open_for_queries(self.memory_bytes, self.work.clone())?;
                state.pool.insert(pool).clone()
            }
        };
        let info = match state.loaded.iter().find(|known| known.has(path, &columns, &stamps)) {
            Some(known) => known.info.clone(),
            None => {
                let table = table_name(path, state.loaded.len())?;
                let info = self.load(&pool, &table, path, load.select(columns.clone())).await?;
                let loaded = Loaded { path: path.to_string(), columns, stamps, info: info.clone() };
                state.loaded.push(loaded);
                info
            }
        };
        Ok(Arc::new(PoolTable::new(pool, info)))
    }
}

impl std::fmt::Debug for QueryFiles {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("QueryFiles").field("memory_bytes", &self.memory_bytes).finish_non_exhaustive()
    }
}

/// Opening reads footers, and of CSV the first rows.
async fn open(path: &str) -> Result<FileLoad> {
    let path = path.to_string();
    tokio::task::spawn_blocking(move || FileLoad::open(&[path]))
        .await
        .map_err(|error| Error::internal(format!("reading a file stopped: {error}")))?
}

/// The field as the pool holds it. A type that the pool does not hold stays: a query that does not need
/// the column need not know.
fn canonical_field(field: &Field) -> Field {
    let data_type = canonical_type(field.data_type()).unwrap_or_else(|| field.data_type().clone());
    Field::new(field.name(), data_type, field.is_nullable())
}

/// A query that needs no column still needs the rows.
fn cheapest_column(load: &FileLoad) -> Vec<usize> {
    let fields = load.schema().fields();
    let width = |i: &usize| match canonical_type(fields[*i].data_type()) {
        Some(held) => held.primitive_width().unwrap_or(usize::MAX - 1),
        None => usize::MAX,
    };
    (0..fields.len()).min_by_key(width).into_iter().collect()
}

/// The path, as far as it can be the name of a table, and a number that sets selections apart.
fn table_name(path: &str, number: usize) -> Result<TableName> {
    let suffix = if number == 0 { String::new() } else { format!("#{number}") };
    let mut start = (path.len() + suffix.len()).saturating_sub(limits::NAME_BYTES_MAX);
    while !path.is_char_boundary(start) {
        start += 1;
    }
    TableName::new(path[start..].replace(char::is_control, "?") + &suffix)
}

fn stamp(path: PathBuf) -> Stamp {
    let metadata = std::fs::metadata(&path).ok();
    let length = metadata.as_ref().map_or(0, std::fs::Metadata::len);
    (path, length, metadata.and_then(|m| m.modified().ok()))
}
