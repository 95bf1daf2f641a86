//! A pool (store of compressed tables) in the engine's own process: the code of a memory node, called without a socket.
//!
//! Invariant: a query uses only the threads that poll its streams; each poll processes at most one morsel (a small
//! range of a table's rows).

use crate::morsels;
use arrow::datatypes::SchemaRef;
use async_trait::async_trait;
use farpool_columns::Table;
use farpool_memory::WorkMemory;
use farpool_model::{
    Error, Expr, Listing, LoadOptions, Opaque, Program, QueryInfo, Relation, Result, SchemaFingerprint,
    SchemaName, Status, TableChange, TableInfo, TableName, TableStatistics, TenantName, Version, View,
    limits,
};
use farpool_node::{
    Caller, Commit, CompressionPolicy, HeldVersions, LocalDirectory, MasterKey, Node, NodeConfig, Shape,
    Tier, compressing, unlock,
};
use farpool_pipeline::BoundProgram;
use farpool_transfer::{BatchStream, Execution, Handle, Pool, Takes};
use futures::{StreamExt, TryStreamExt};
use std::collections::HashMap;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use tokio::sync::oneshot;
use tokio::task::JoinSet;

/// A pool in this process.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> farpool::Result<()> {
/// use farpool::{EmbeddedPool, LoadMode, Pool, Session, SessionOptions};
///
/// # let folder = tempfile::tempdir().unwrap();
/// # let file = folder.path().join("trips.csv");
/// # std::fs::write(&file, "city,fare\nOslo,12\nRome,7\nOslo,9\n").unwrap();
/// let pool = EmbeddedPool::open(256 << 20)?;
/// farpool::load_files(&*pool, "trips", LoadMode::Create, &[&file]).await?;
///
/// let session = Session::new(SessionOptions::default());
/// session.register_pool("farpool", pool).await?;
/// let query = session.sql("select city, sum(fare) from trips group by city").await?;
/// assert_eq!(query.collect().await?.iter().map(|batch| batch.num_rows()).sum::<usize>(), 2);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct EmbeddedPool {
    node: Opaque<Arc<Node>>,
    caller: Opaque<Caller>,
    taps: bool,
    held: Arc<Held>,
}

/// Table versions that prepared programs hold, so that later programs of the same statement read the same version.
#[derive(Debug, Default)]
struct Held(Mutex<HashMap<(TableName, Version), Weak<Table>>>);

impl HeldVersions for Held {
    fn table(&self, name: &TableName, is_wanted: &dyn Fn(Version, &Table) -> bool) -> Option<Arc<Table>> {
        let tables = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let held = tables.iter().filter(|((of, _), _)| of == name);
        let mut held = held.filter_map(|((_, version), table)| Some((*version, table.upgrade()?)));
        held.find(|(version, table)| is_wanted(*version, table)).map(|(_, table)| table)
    }
}

impl Held {
    fn add(&self, name: &TableName, version: Version, table: &Arc<Table>) {
        let mut tables = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        tables.retain(|_, table| table.strong_count() > 0);
        tables.insert((name.clone(), version), Arc::downgrade(table));
    }
}

impl EmbeddedPool {
    /// Opens an empty pool of at most `memory_bytes`. Memory is taken from the operating system only when tables need
    /// it.
    ///
    /// # Errors
    /// Fails if the system does not provide the memory.
    pub fn open(memory_bytes: usize) -> Result<Arc<Self>> {
        Self::open_within(memory_bytes, WorkMemory::new(limits::WORK_BYTES_DEFAULT))
    }

    /// Opens a pool that reserves all of its memory except tables from the working memory `work`, which sessions of
    /// this process can share.
    ///
    /// # Errors
    /// The errors of [`EmbeddedPool::open`].
    pub fn open_within(memory_bytes: usize, work: Arc<WorkMemory>) -> Result<Arc<Self>> {
        let node = Node::start(NodeConfig { memory_bytes, work, ..NodeConfig::default() })?;
        Ok(Self::over(node, TenantName::default()))
    }

    /// Opens a pool whose tables and views are durable in the directory `path`, which is created if its parent exists.
    /// Existing tables are loaded first.
    ///
    /// # Errors
    /// The errors of [`EmbeddedPool::open`]; `Busy` if another process has the directory open; `Corrupt`, with the
    /// file's name, if it is corrupted; `OverLimit` if its tables do not fit.
    pub fn open_durable(memory_bytes: usize, work: Arc<WorkMemory>, path: &Path) -> Result<Arc<Self>> {
        Self::open_durable_with(memory_bytes, work, path, None, CompressionPolicy::Auto)
    }

    /// Opens a durable pool as [`EmbeddedPool::open_durable`] does, in a directory that is encrypted under a master
    /// key. An empty directory is encrypted with the given tier. New data is compressed according to `packing`.
    ///
    /// # Errors
    /// The errors of [`EmbeddedPool::open_durable`]; `Denied` if the key is wrong, or there is none and the directory
    /// is encrypted; `Invalid` if there is one and the directory is not encrypted, or the tier does not authenticate.
    pub fn open_durable_with(
        memory_bytes: usize,
        work: Arc<WorkMemory>,
        path: &Path,
        key: Option<(&MasterKey, Tier)>,
        compression: CompressionPolicy,
    ) -> Result<Arc<Self>> {
        let (master, tier) = key.unzip();
        let data = Some(compressing(unlock(LocalDirectory::open(path)?, master, tier)?, compression));
        let node = Node::start(NodeConfig { memory_bytes, work, data, ..NodeConfig::default() })?;
        Ok(Self::over(node, TenantName::default()))
    }

    /// Opens a pool for files that are loaded for one query. It computes no profiles of them.
    pub(crate) fn open_for_queries(memory_bytes: usize, work: Arc<WorkMemory>) -> Result<Arc<Self>> {
        Ok(Self::open_within(memory_bytes, work)?.without_taps())
    }

    /// Returns a handle to the same pool whose loads are not profiled in the background. A profile is then computed
    /// when it is first requested, and until then the query planner has no estimates for the tables.
    #[must_use]
    pub fn without_taps(&self) -> Arc<Self> {
        Arc::new(EmbeddedPool { taps: false, ..self.clone() })
    }

    /// Returns the pool of `tenant` at `node`, with the right of an admin. For programs that contain a node and also
    /// query it.
    pub fn over(node: Arc<Node>, tenant: TenantName) -> Arc<Self> {
        let caller = node.owner(tenant);
        Self::acting_for(node, caller)
    }

    /// Returns the pool that a client with `token` sees at `node`: the tables of its tenant, with the right that the
    /// token grants, as over a connection. The token is checked only now: unlike a connection, the pool does not end
    /// when the token expires or is removed.
    ///
    /// # Errors
    /// `Denied` if the node requires a token and this one is not valid.
    pub fn for_token(node: Arc<Node>, token: Option<&str>) -> Result<Arc<Self>> {
        let caller = node.caller(token)?;
        Ok(Self::acting_for(node, caller))
    }

    fn acting_for(node: Arc<Node>, caller: Caller) -> Arc<Self> {
        let (node, caller) = (Opaque::new(node), Opaque::new(caller));
        Arc::new(EmbeddedPool { node, caller, taps: true, held: Arc::default() })
    }

    /// Returns the table version that `program` reads. The program was created for the columns of `schema`; without
    /// `schema`, for those of the version that it names.
    fn source(&self, program: &Program, schema: Option<&SchemaRef>) -> Result<(Version, Arc<Table>)> {
        let name = &program.table;
        let named = || {
            let wanted = program.version?;
            self.held.table(name, &|version, _| version == wanted).map(|table| table.schema.clone())
        };
        let schema = schema.cloned().or_else(named);
        let expected = schema.map(|schema| SchemaFingerprint::of(&schema));
        self.caller.choose_version(name, expected, &*self.held)?.version(program.version, &*self.held)
    }

    /// Returns the underlying node.
    pub fn node(&self) -> &Arc<Node> {
        &self.node
    }
}

/// Waits until a change is durable.
async fn durable<T: Send + 'static>(made: Commit<T>) -> Result<T> {
    let (tell, told) = oneshot::channel();
    made.then(move |durable| drop(tell.send(durable)));
    told.await.unwrap_or_else(|_| Err(Error::internal("the pool was closed before a change was durable")))
}

#[async_trait]
impl Pool for EmbeddedPool {
    fn url(&self) -> String {
        "embedded".to_string()
    }

    fn is_remote(&self) -> bool {
        false
    }

    fn takes(&self) -> Takes {
        Takes::ALL
    }

    async fn list(&self, tenant: Option<&TenantName>) -> Result<Listing> {
        self.caller.list(tenant)
    }

    async fn table(&self, name: &TableName) -> Result<TableInfo> {
        let table = self.caller.table(name, None)?;
        table.ok_or_else(|| Error::internal(format!("table {:?} was not described", name.as_str())))
    }

    async fn relation(&self, name: &TableName) -> Result<Relation> {
        let relation = self.caller.relation(name, None)?;
        relation.ok_or_else(|| Error::internal(format!("{:?} was not described", name.as_str())))
    }

    async fn statistics(&self, name: &TableName, columns: Option<&[usize]>) -> Result<TableStatistics> {
        if let Some(columns) = columns {
            return self.caller.known_statistics(name, columns);
        }
        let (caller, name) = (Caller::clone(&self.caller), name.clone());
        let found = tokio::task::spawn_blocking(move || caller.statistics(&name)).await;
        found.map_err(|error| Error::internal(format!("finding out what a table holds failed: {error}")))?
    }

    async fn prepare(&self, program: &Program, schema: &SchemaRef) -> Result<Handle> {
        let (version, table) = self.source(program, Some(schema))?;
        self.held.add(&program.table, version, &table);
        let program = self.caller.prepare_with(program, version, table, &*self.held)?;
        // The versions that lookups read can be named by other programs, too. None is wanted, so that all are visited.
        program.find(&|side| {
            self.held.add(&side.prepared().effective.table, side.prepared().version, side.table());
            false
        });
        Ok(Handle::new(program.prepared().clone(), program))
    }

    async fn execute_prepared(
        &self,
        handle: &Handle,
        conditions: Option<&Expr>,
        streams_wanted: usize,
    ) -> Result<Execution> {
        let kept = handle.kept::<BoundProgram>();
        let program = kept.ok_or_else(|| Error::internal("a handle of another pool"))?;
        let run = self.caller.start(program, conditions, Shape::Batches)?;
        self.caller.admit(&run).await?;
        Ok(morsels::execute(Caller::clone(&self.caller), run, streams_wanted))
    }

    async fn execute(&self, program: &Program, streams_wanted: usize) -> Result<Execution> {
        let (version, table) = self.source(program, None)?;
        let program = self.caller.prepare_with(program, version, table, &*self.held)?;
        let run = self.caller.start(&program, None, Shape::Batches)?;
        self.caller.admit(&run).await?;
        Ok(morsels::execute(Caller::clone(&self.caller), run, streams_wanted))
    }

    async fn load(
        &self,
        name: &TableName,
        options: LoadOptions,
        schema: SchemaRef,
        rows_hint: Option<u64>,
        mut batches: BatchStream,
    ) -> Result<TableInfo> {
        let mut load = self.caller.begin_load(name, &schema, options, rows_hint)?;
        if !self.taps {
            load.without_tap();
        }
        while let Some(batch) = batches.next().await {
            load.push(&batch?)?;
        }
        if load.is_detached() {
            load.finish()?;
            return durable(self.caller.insert_now(load)?).await;
        }
        load.commit()
    }

    async fn change_rows(&self, handle: &Handle, rows: u64) -> Result<TableInfo> {
        let kept = handle.kept::<BoundProgram>();
        let program = kept.ok_or_else(|| Error::internal("a handle of another pool"))?;
        let run = self.caller.start_change(program)?;
        self.caller.admit(&run).await?;
        let threads = run.need()?.threads;
        let execution = morsels::execute(Caller::clone(&self.caller), run.clone(), threads);
        // Dropping the set drops the streams, which cancels the execution of the program.
        let mut steps = JoinSet::new();
        for mut stream in execution.streams {
            steps.spawn(async move { stream.try_next().await });
        }
        while let Some(ended) = steps.join_next().await {
            ended.map_err(|error| Error::internal(format!("changing rows failed: {error}")))??;
        }
        durable(self.caller.publish_change(program, &run, rows, None)?).await
    }

    async fn alter_table(&self, name: &TableName, changes: &[TableChange]) -> Result<TableInfo> {
        durable(self.caller.alter_table(name, changes)?).await
    }

    async fn drop_table(&self, name: &TableName) -> Result<()> {
        durable(self.caller.drop_table(name)?).await
    }

    async fn drop_table_of(&self, tenant: &TenantName, name: &TableName) -> Result<()> {
        durable(self.caller.drop_table_of(tenant, name)?).await
    }

    async fn create_view(&self, view: &View, replace: bool) -> Result<()> {
        durable(self.caller.create_view(view.clone(), replace)?).await
    }

    async fn drop_view(&self, name: &TableName, tenant: Option<&TenantName>) -> Result<()> {
        durable(self.caller.drop_view(name, tenant)?).await
    }

    async fn create_schema(&self, schema: &SchemaName) -> Result<()> {
        durable(self.caller.create_schema(schema)?).await
    }

    async fn drop_schema(&self, schema: &SchemaName, cascade: bool) -> Result<()> {
        durable(self.caller.drop_schema(schema, cascade)?).await
    }

    async fn queries(&self) -> Result<Vec<QueryInfo>> {
        self.caller.queries()
    }

    async fn cancel_query(&self, id: u64) -> Result<()> {
        self.caller.cancel_query(id)
    }

    async fn status(&self) -> Result<Status> {
        self.caller.status()
    }
}
