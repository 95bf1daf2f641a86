//! A pool at a node of which this process keeps the columns that its queries read again.
//!
//! A program that returns much of what it reads costs the connection about as much as the columns themselves. One that
//! returns columns as they are, all rows of them, therefore has them fetched as the chunks that the node has, which are
//! kept; so do others once they have returned as many bytes as their columns take. Programs over such columns then run in
//! this process, by the operators that would run at the node, and nothing moves any more. That is about twice what the best
//! choice would have moved, at most, had all queries been known (Karlin et al., *Competitive Snoopy Caching*, 1988: renting
//! or buying). Some are known: of programs that are prepared and have not run, such as the joins of a batch, what they will
//! return is estimated and counts as if it had been returned. Programs that return little stay at the node for good.
//!
//! Which version a statement reads, and whether it may, is asked of the node each time. What is kept are chunks, which never
//! change, and versions share: of a table to which rows were added, only the new ones are fetched. Nothing is kept of tables
//! that are encrypted in memory, and of keys. Small results of programs at the node are kept, too ([`results`]).

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
    Encoding, Error, Expr, Listing, LoadOptions, NamedExpr, Output, Program, QueryInfo, Receipt, Relation,
    Result, SchemaName, Status, TableChange, TableInfo, TableName, TableStatistics, TenantName, View, limits,
};
use farpool_node::{Caller, Node, NodeConfig, Shape};
use farpool_pipeline::BoundProgram;
use farpool_planner::estimate::selectivity;
use farpool_transfer::{BatchStream, Execution, Handle, Pool, ReceiptHandle, RemotePool};
use futures::Stream;
use results::{At, Results};
use std::collections::HashMap;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, ready};
use tables::{Coming, NearTable, NearTables};

/// Bytes of results below which it is not asked what the columns would take.
const RENT_MIN: u64 = 64 << 10;

/// What columns may cost more than programs have returned of them: as results, chunks have no bounds, and no padding.
const RENT_SLACK: u64 = 8;

/// The part of the memory for chunks that the columns of one program may take, or they would push one another out.
const MEMORY_PART: u64 = 2;

/// When columns are kept in this process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Nearness {
    /// Once programs return as much of them as they take.
    #[default]
    Auto,
    /// From the first program on, whatever it returns.
    Always,
}

/// A [`RemotePool`] of which columns are kept in this process; see the comment of this file.
#[derive(Clone, Debug)]
pub struct NearPool {
    remote: Arc<RemotePool>,
    caller: Caller,
    chunks: Arc<Chunks>,
    tables: Arc<NearTables>,
    rents: Arc<Rents>,
    results: Arc<Results>,
    nearness: Nearness,
}

/// A program that runs here, and the one that the node keeps, without which it would not keep the table version.
struct NearProgram {
    bound: BoundProgram,
    remote: Arc<Handle>,
    table: Arc<NearTable>,
    columns: Vec<usize>,
    coming: Coming,
}

/// Bytes that programs at the node have returned, by the columns that they read.
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
    /// Keeps up to `bytes_max` of columns of the pool `remote`. What else programs need here is reserved from `work`.
    ///
    /// # Errors
    /// `Invalid` for less memory than a few row groups take; when the system does not provide threads or memory.
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
        // In addition to the columns; of the memory that queries need, not more either.
        let results_max = bytes_max.min(work.limit()) / limits::NEAR_RESULTS_PART;
        let node =
            Node::start(NodeConfig { memory_bytes: limits::PAGE_BYTES, work, ..NodeConfig::default() })?;
        let caller = node.owner(TenantName::default());
        Ok(Arc::new(NearPool {
            results: Results::new(caller.account().clone(), results_max),
            caller,
            chunks: Chunks::new(remote.clone(), bytes_max)?,
            remote,
            tables: Arc::default(),
            rents: Arc::default(),
            nearness,
        }))
    }

    /// Sets how columns are asked for from now on; what is not sound is ignored.
    pub fn set_transfer(&self, transfer: Transfer) {
        if transfer.is_sound() {
            self.chunks.set_transfer(transfer);
        }
    }

    /// Encoded bytes of columns that have come so far.
    pub fn bytes_fetched(&self) -> u64 {
        self.chunks.bytes_fetched()
    }

    /// The program here, if that is where it should run.
    async fn near(&self, program: &Program, schema: &SchemaRef, remote: &Handle) -> Option<Handle> {
        let table = &remote.effective.table;
        let columns: Vec<usize> = remote.effective.columns().into_iter().collect();
        let is_all = returns_all(&remote.effective);
        if columns.is_empty() || !self.pays(table, &columns, self.tables.get(table).as_deref(), is_all, 0) {
            return None;
        }
        let account = self.caller.account();
        // Without it, the program runs at the node, which tells what is wrong.
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

    /// Where results of a program are kept; `None` if they are not.
    fn at(&self, handle: &Handle) -> Option<At> {
        let instance = self.chunks.remote().instance(handle).ok().filter(|instance| *instance != 0)?;
        // Keys are read at another moment each time.
        (!handle.version.is_moment()).then_some(At { instance, version: handle.version })
    }

    /// Runs a program at the node, unless its result is kept.
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

    /// Whether columns should be here, as far as is known, for a program that returns all of them or not, where so many bytes
    /// are to come.
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

    /// Whether columns should be here for a program of which `conditions` leave a part of the rows, if they leave as much of
    /// each program that is to come.
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
        // Without statistics, what has been returned decides.
        let part = info.map_or(0.0, |info| selectivity(conditions, info));
        pays((bytes as f64 * part) as u64)
    }

    /// The same execution, whose receipt `settle` looks at when it is there.
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

    /// Counts what an execution at the node returns.
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

/// Whether a program returns columns as they are, all rows of them: wherever it runs, the answers are the same.
fn returns_all(program: &Program) -> bool {
    let is_column = |column: &NamedExpr| matches!(column.expr, Expr::Column(_));
    program.filter.is_none()
        && program.order.is_empty()
        && program.limit.is_none()
        && matches!(&program.output, Output::Rows(columns) if columns.iter().all(is_column))
}

/// The receipt of an execution here: what it read came over the connection, not from a disk.
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

    async fn statistics(&self, name: &TableName, columns: Option<&[usize]>) -> Result<TableStatistics> {
        self.remote.statistics(name, columns).await
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
        // With conditions, it no longer returns all rows.
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
        let execution = morsels::execute(self.caller.clone(), run, streams_wanted);
        // The node keeps the version until the last stream has ended.
        let (kept, is_sealed) = (handle.clone(), self.remote.is_sealed());
        Ok(NearPool::settled(execution, move |receipt| {
            // Others that start meanwhile wait for the same columns.
            kept.kept::<NearProgram>().into_iter().for_each(|near| near.coming.over());
            of_network(receipt, is_sealed)
        }))
    }

    async fn execute(&self, program: &Program, streams_wanted: usize) -> Result<Execution> {
        self.remote.execute(program, streams_wanted).await
    }

    async fn load(
        &self,
        name: &TableName,
        options: LoadOptions,
        schema: SchemaRef,
        rows_hint: Option<u64>,
        batches: BatchStream,
    ) -> Result<TableInfo> {
        self.remote.load(name, options, schema, rows_hint, batches).await
    }

    async fn change_rows(&self, handle: &Handle, rows: u64) -> Result<TableInfo> {
        let remote = handle.kept::<NearProgram>().map_or(handle, |near| &near.remote);
        self.remote.change_rows(remote, rows).await
    }

    async fn alter_table(&self, name: &TableName, changes: &[TableChange]) -> Result<TableInfo> {
        // Its columns have other positions now.
        self.rents.forget(name);
        self.remote.alter_table(name, changes).await
    }

    async fn drop_table(&self, name: &TableName) -> Result<()> {
        self.rents.forget(name);
        self.remote.drop_table(name).await
    }

    async fn drop_table_of(&self, tenant: &TenantName, name: &TableName) -> Result<()> {
        self.remote.drop_table_of(tenant, name).await
    }

    async fn create_view(&self, view: &View, replace: bool) -> Result<()> {
        self.remote.create_view(view, replace).await
    }

    async fn drop_view(&self, name: &TableName, tenant: Option<&TenantName>) -> Result<()> {
        self.remote.drop_view(name, tenant).await
    }

    async fn create_schema(&self, schema: &SchemaName) -> Result<()> {
        self.remote.create_schema(schema).await
    }

    async fn drop_schema(&self, schema: &SchemaName, cascade: bool) -> Result<()> {
        self.remote.drop_schema(schema, cascade).await
    }

    async fn queries(&self) -> Result<Vec<QueryInfo>> {
        self.remote.queries().await
    }

    async fn cancel_query(&self, id: u64) -> Result<()> {
        self.remote.cancel_query(id).await
    }

    async fn status(&self) -> Result<Status> {
        self.remote.status().await
    }
}
