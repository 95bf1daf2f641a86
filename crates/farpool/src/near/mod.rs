//! A pool (store of compressed tables) at a remote memory node, with a client-side cache of the columns that its
//! queries read repeatedly.
//!
//! A program (the part of a query over one table that a pool can run) that returns much of the data it reads uses the
//! connection about as much as the columns themselves would. If a program returns all rows of unchanged columns, these
//! are therefore fetched as the node's column chunks, which are cached; other columns are fetched when programs have
//! returned as many bytes as the columns take. Programs over such columns then run in this process, with the operators
//! that would run at the node, and no more data is transferred. This transfers at most about twice the bytes of the
//! best choice with knowledge of all queries (Karlin et al., *Competitive Snoopy Caching*, 1988: renting or buying).
//! Some queries are known in advance: for programs that are prepared but have not run, such as the joins of a batch,
//! the estimated results count as if they had been returned. Programs that return little always run at the node.
//!
//! For each statement the node is asked which version it reads, and whether it may. The cache contains chunks, which
//! never change and which versions share: if rows were added to a table, only the new ones are fetched. Tables that are
//! encrypted in memory, and keyspaces that are read as tables, are not cached. Small results of programs at the node
//! are cached as well ([`results`]).

mod chunks;
mod results;
mod tables;

use crate::morsels;
use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;
use async_trait::async_trait;
use chunks::Chunks;
pub use chunks::Transfer;
use farpool_memory::{WorkMemory, size_text};
use farpool_model::{
    Encoding, Error, Expr, Listing, NamedExpr, Opaque, Output, Program, Receipt, Relation, Result,
    TableChange, TableInfo, TableName, TenantName, limits,
};
use farpool_node::{Caller, Node, NodeConfig, Shape};
use farpool_pipeline::BoundProgram;
use farpool_planner::estimate::selectivity;
use farpool_transfer::{BatchStream, Execution, Handle, Pool, ReceiptHandle, RemotePool, Takes};
use futures::Stream;
use results::{At, Results};
use std::collections::HashMap;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, ready};
use tables::{Coming, NearTable, NearTables};

/// Minimum bytes of results for which the size of the columns is requested from the node. Reason: for fewer bytes,
/// caching could save less than the request costs.
const RENT_MIN: u64 = 64 << 10;

/// Divisor: columns are fetched even if they take 1/8 more bytes than programs have returned, because results have
/// bounds and padding that chunks lack.
const RENT_SLACK: u64 = 8;

/// Divisor: the columns of one program may take at most half of the memory for chunks, because they would otherwise
/// evict one another.
const MEMORY_PART: u64 = 2;

/// The policy that decides when columns are cached in this process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Nearness {
    /// Caches a column when programs have returned as many bytes of it as the column takes in memory.
    #[default]
    Auto,
    /// Caches columns from the first program on, whatever its result.
    Always,
}

/// A [`RemotePool`] with a client-side cache of columns; see the module documentation.
#[derive(Clone, Debug)]
pub struct NearPool {
    remote: Arc<RemotePool>,
    caller: Opaque<Caller>,
    chunks: Arc<Chunks>,
    tables: Arc<NearTables>,
    rents: Arc<Rents>,
    results: Arc<Results>,
    nearness: Nearness,
}

/// A program that runs in this process, with the program that was prepared at the node. The latter is held because the
/// node keeps the table version only as long as a prepared program has it.
struct NearProgram {
    bound: BoundProgram,
    remote: Arc<Handle>,
    table: Arc<NearTable>,
    columns: Vec<usize>,
    coming: Coming,
}

/// Bytes that programs at the node have returned, by table and by the columns that they read.
#[derive(Debug, Default)]
struct Rents(Mutex<HashMap<TableName, HashMap<usize, u64>>>);

impl Rents {
    fn of(&self, table: &TableName, columns: &[usize]) -> u64 {
        let rents = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let of_table = rents.get(table);
        of_table.map_or(0, |rents| columns.iter().filter_map(|column| rents.get(column)).sum())
    }

    fn add(&self, table: &TableName, columns: &[usize], bytes: u64) {
        let mut rents = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if rents.len() >= limits::NEAR_RENTS_MAX && !rents.contains_key(table) {
            rents.clear();
        }
        let of_table = rents.entry(table.clone()).or_default();
        let each = bytes / (columns.len().max(1) as u64);
        columns.iter().for_each(|column| *of_table.entry(*column).or_default() += each);
    }

    fn forget(&self, table: &TableName) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).remove(table);
    }
}

impl NearPool {
    /// Creates a cache of up to `bytes_max` bytes of columns of the pool `remote`. Other memory that programs need in
    /// this process is reserved from `work`.
    ///
    /// # Errors
    /// `Invalid` for less memory than a few row groups take; fails if the system does not provide threads or memory.
    pub fn open(
        remote: Arc<RemotePool>,
        bytes_max: usize,
        work: Arc<WorkMemory>,
        nearness: Nearness,
    ) -> Result<Arc<Self>> {
        if bytes_max < limits::NEAR_BYTES_MIN {
            let least = size_text(limits::NEAR_BYTES_MIN as u64);
            let message = format!("{} of memory for columns are too few", size_text(bytes_max as u64));
            return Err(Error::invalid(message).advise(format!("give them {least} or more (--cache)")));
        }
        // In addition to the columns, but also limited by the memory that queries need.
        let results_max = bytes_max.min(work.limit()) / limits::NEAR_RESULTS_PART;
        let node =
            Node::start(NodeConfig { memory_bytes: limits::PAGE_BYTES, work, ..NodeConfig::default() })?;
        let caller = node.owner(TenantName::default());
        Ok(Arc::new(NearPool {
            results: Results::new(caller.account().clone(), results_max),
            caller: Opaque::new(caller),
            chunks: Chunks::new(remote.clone(), bytes_max)?,
            remote,
            tables: Arc::default(),
            rents: Arc::default(),
            nearness,
        }))
    }

    /// Sets the parameters of requests for columns; implausible ones are ignored.
    pub fn set_transfer(&self, transfer: Transfer) {
        if transfer.is_sound() {
            self.chunks.set_transfer(transfer);
        }
    }

    /// Returns the encoded bytes of columns received so far.
    pub fn bytes_fetched(&self) -> u64 {
        self.chunks.bytes_fetched()
    }

    /// Returns the program for this process; `None` if it should run at the node.
    async fn near(&self, program: &Program, schema: &SchemaRef, remote: &Handle) -> Option<Handle> {
        let table = &remote.effective.table;
        let columns: Vec<usize> = remote.effective.columns().into_iter().collect();
        let is_all = returns_all(&remote.effective);
        // The tables of lookups are at the node only.
        let is_there = columns.is_empty() || !program.lookups.is_empty();
        if is_there || !self.pays(table, &columns, self.tables.get(table).as_deref(), is_all, 0) {
            return None;
        }
        let account = self.caller.account();
        // Without the version, the program runs at the node, which reports the error.
        let near = self.tables.version(&self.chunks, account, remote, schema, &columns).await.ok()?;
        if !self.pays(table, &columns, Some(&near), is_all, 0) {
            return None;
        }
        let bound = self.caller.prepare(program, remote.version, near.table.clone()).ok()?;
        let remote = Arc::new(remote.clone());
        near.keep(&remote);
        let coming = near.expect(&columns);
        let prepared = bound.prepared().clone();
        Some(Handle::new(prepared, NearProgram { bound, remote, table: near, columns, coming }))
    }

    /// Returns the cache key of results of a program: the node's process and the table version. Returns `None` if
    /// results are not cached.
    fn at(&self, handle: &Handle) -> Option<At> {
        let instance = self.chunks.remote().instance(handle).ok().filter(|instance| *instance != 0)?;
        // A keyspace that is read as a table has other contents at each moment, and the tables of lookups have versions
        // of their own, so that results are not cached.
        (!handle.version.is_moment() && handle.effective.lookups.is_empty())
            .then_some(At { instance, version: handle.version })
    }

    /// Runs a program at the node, unless its result is cached.
    async fn execute_there(
        &self,
        handle: &Handle,
        conditions: Option<&Expr>,
        streams_wanted: usize,
    ) -> Result<Execution> {
        let at = self.at(handle).filter(|_| conditions.is_none() && self.nearness == Nearness::Auto);
        if let Some(kept) = at.and_then(|at| self.results.get(at, handle)) {
            return Ok(kept);
        }
        let execution = self.remote.execute_prepared(handle, conditions, streams_wanted).await?;
        let execution = self.rented(execution);
        Ok(match at {
            Some(at) => self.results.keeping(at, execution),
            None => execution,
        })
    }

    /// Returns whether columns should be cached, as far as is known. `is_all` says that the program returns all rows of
    /// them; `bytes_coming` are the estimated bytes of results of programs that have not run yet.
    fn pays(
        &self,
        table: &TableName,
        columns: &[usize],
        known: Option<&NearTable>,
        is_all: bool,
        bytes_coming: u64,
    ) -> bool {
        if self.nearness == Nearness::Always {
            return true;
        }
        let rent = self.rents.of(table, columns) + bytes_coming;
        match known.and_then(|known| known.bytes(columns)) {
            Some((all, absent)) => {
                let fits = all <= self.chunks.pool().usage().bytes_limit / MEMORY_PART;
                fits && (is_all || absent <= rent + rent / RENT_SLACK)
            }
            None => is_all || rent >= RENT_MIN,
        }
    }

    /// Returns whether columns should be cached for a program of which `conditions` keep a part of the rows, assuming
    /// that they keep the same part for each program that has not run yet.
    async fn pays_with(&self, near: &NearProgram, conditions: &Expr) -> bool {
        let (name, bytes) = (&near.bound.prepared().effective.table, near.table.bytes_coming(&near.columns));
        let pays = |bytes| self.pays(name, &near.columns, Some(&near.table), false, bytes);
        if pays(0) {
            return true;
        }
        if !pays(bytes) {
            return false;
        }
        let info = near.table.info.get_or_try_init(|| self.remote.table(name)).await;
        // Without statistics, the bytes returned so far decide.
        let part = info.map_or(0.0, |info| selectivity(conditions, info));
        pays((bytes as f64 * part) as u64)
    }

    /// Returns the same execution with other execution statistics: `settle` converts them when they are available.
    fn settled(
        execution: Execution,
        settle: impl Fn(Receipt) -> Receipt + Send + Sync + 'static,
    ) -> Execution {
        let (inner, outer) = (execution.receipt, ReceiptHandle::new());
        let settling = Arc::new(Settling { inner, outer: outer.clone(), settle: Box::new(settle) });
        let stream = |rows| Box::pin(Settled { rows, settling: settling.clone() }) as BatchStream;
        let streams = execution.streams.into_iter().map(stream).collect();
        Execution { prepared: execution.prepared, streams, receipt: outer }
    }

    /// Counts the bytes that an execution at the node returns, for the columns that the program reads (see [`Rents`]).
    fn rented(&self, execution: Execution) -> Execution {
        let effective = &execution.prepared.effective;
        let (table, columns) = (effective.table.clone(), effective.columns().into_iter().collect::<Vec<_>>());
        let rents = self.rents.clone();
        NearPool::settled(execution, move |receipt| {
            rents.add(&table, &columns, receipt.bytes_on_wire);
            receipt
        })
    }
}

/// Returns whether a program returns all rows of unchanged columns, so that its result has the same size wherever it
/// runs.
fn returns_all(program: &Program) -> bool {
    let is_column = |column: &NamedExpr| matches!(column.expr, Expr::Column(_));
    program.filter.is_none()
        && program.order.is_empty()
        && program.limit.is_none()
        && matches!(&program.output, Output::Rows(columns) if columns.iter().all(is_column))
}

/// Converts the execution statistics of a program in this process: values were read from the connection and not from a
/// disk.
fn of_network(receipt: Receipt, is_sealed: bool) -> Receipt {
    let bytes_on_wire = receipt.bytes_from_disk;
    let encoding = if bytes_on_wire > 0 { Encoding::Packed } else { Encoding::None };
    Receipt {
        bytes_on_wire,
        bytes_from_disk: 0,
        encoding,
        encrypted: is_sealed && bytes_on_wire > 0,
        ..receipt
    }
}

struct Settling {
    inner: ReceiptHandle,
    outer: ReceiptHandle,
    settle: Box<dyn Fn(Receipt) -> Receipt + Send + Sync>,
}

struct Settled {
    rows: BatchStream,
    settling: Arc<Settling>,
}

impl Stream for Settled {
    type Item = Result<RecordBatch>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let next = ready!(self.rows.as_mut().poll_next(context));
        let settling = &self.settling;
        if next.is_none()
            && settling.outer.get().is_none()
            && let Some(receipt) = settling.inner.get()
        {
            settling.outer.set((settling.settle)(receipt));
        }
        Poll::Ready(next)
    }
}

#[async_trait]
impl Pool for NearPool {
    fn behind(&self) -> Result<&dyn Pool> {
        Ok(&*self.remote)
    }

    fn url(&self) -> String {
        self.remote.url()
    }

    fn place(&self, handle: &Handle) -> String {
        let bytes = |near: &NearProgram| near.table.bytes(&near.columns);
        match handle.kept::<NearProgram>().and_then(bytes) {
            Some((all, absent)) => format!(
                "this process (columns of {}, {} of them to be fetched from {})",
                size_text(all),
                size_text(absent),
                self.url()
            ),
            None => self.url(),
        }
    }

    fn is_here(&self, handle: &Handle) -> bool {
        handle.kept::<NearProgram>().is_some()
    }

    fn is_remote(&self) -> bool {
        true
    }

    /// Returns what the node takes but lookups, because joins at the node would not use the columns that are here.
    fn takes(&self) -> Takes {
        Takes { lookups: false, ..self.remote.takes() }
    }

    async fn list(&self, tenant: Option<&TenantName>) -> Result<Listing> {
        let listing = self.remote.list(tenant).await?;
        if tenant.is_none() {
            listing.tables.iter().for_each(|info| self.results.described(info));
        }
        Ok(listing)
    }

    async fn table(&self, name: &TableName) -> Result<TableInfo> {
        let info = self.remote.table(name).await?;
        self.results.described(&info);
        Ok(info)
    }

    async fn relation(&self, name: &TableName) -> Result<Relation> {
        let relation = self.remote.relation(name).await?;
        if let Relation::Table(info) = &relation {
            self.results.described(info);
        }
        Ok(relation)
    }

    async fn prepare(&self, program: &Program, schema: &SchemaRef) -> Result<Handle> {
        let remote = self.remote.prepare(program, schema).await?;
        let near = self.near(program, schema, &remote).await;
        Ok(near.unwrap_or(remote))
    }

    async fn execute_prepared(
        &self,
        handle: &Handle,
        conditions: Option<&Expr>,
        streams_wanted: usize,
    ) -> Result<Execution> {
        let Some(near) = handle.kept::<NearProgram>() else {
            return self.execute_there(handle, conditions, streams_wanted).await;
        };
        // With conditions, the program no longer returns all rows.
        let stays = match conditions {
            Some(conditions) => returns_all(&handle.effective) && !self.pays_with(near, conditions).await,
            None => false,
        };
        if stays {
            near.coming.over();
            return self.execute_there(&near.remote, conditions, streams_wanted).await;
        }
        let run = self.caller.start(&near.bound, conditions, Shape::Batches)?;
        self.caller.admit(&run).await?;
        let execution = morsels::execute(Caller::clone(&self.caller), run, streams_wanted);
        // The node keeps the version until the last stream has ended.
        let (kept, is_sealed) = (handle.clone(), self.remote.is_sealed());
        Ok(NearPool::settled(execution, move |receipt| {
            // Programs that start meanwhile wait for the same columns.
            kept.kept::<NearProgram>().into_iter().for_each(|near| near.coming.over());
            of_network(receipt, is_sealed)
        }))
    }

    async fn change_rows(&self, handle: &Handle, rows: u64) -> Result<TableInfo> {
        let remote = handle.kept::<NearProgram>().map_or(handle, |near| &near.remote);
        self.remote.change_rows(remote, rows).await
    }

    async fn alter_table(&self, name: &TableName, changes: &[TableChange]) -> Result<TableInfo> {
        // After the change of the table's columns, their positions differ, so that the counted bytes are of no use.
        self.rents.forget(name);
        self.remote.alter_table(name, changes).await
    }

    async fn drop_table(&self, name: &TableName) -> Result<()> {
        self.rents.forget(name);
        self.remote.drop_table(name).await
    }
}
