//! The pool at the other end of a socket.
//!
//! All requests share a connection. If it turns out to be broken, a new one is opened, and an idempotent request is
//! sent once more; a load is sent again only if the node has confirmed that nothing of it was loaded. A second
//! connection is opened only if the first has as many open requests as a node allows.

mod backup;
mod chunks;
mod connection;
mod connector;
mod conversation;
mod dial;
mod load;
mod mailbox;
mod memory;
mod query;
mod sender;
mod trust;

pub use backup::RemoteBackup;
pub use chunks::ChunkStream;
pub use connector::Connector;

use crate::{BatchStream, Execution, Handle, Pool, PoolUrl, ReceiptHandle, Takes};
use arrow_schema::SchemaRef;
use async_trait::async_trait;
use connection::{Channel, Connection};
use connector::Tcp;
use dial::Dialer;
use farpool_model::{
    Error, ErrorKind, Expr, Listing, LoadOptions, Output, Prepared, Program, QueryInfo, Relation, Result,
    ResultForm, SchemaFingerprint, SchemaName, Status, TableChange, TableInfo, TableName, TableStatistics,
    TenantName, View, limits, schema,
};
use farpool_wire::sealed::{Digest, Proof};
use farpool_wire::{ClientTls, FrameKind, Request, Response, substrait};
use load::{LoadIds, Task};
use memory::Results;
use parking_lot::Mutex;
use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Weak};
use std::time::Duration;
use tokio::time::sleep;

/// The settings of a client's connections.
#[derive(Clone, Debug, Default)]
pub struct ClientOptions {
    /// The access token (secret) that authenticates the client; `None` for nodes that require none.
    pub token: Option<String>,
    /// Maximum duration of each request, which the node enforces; no limit if `None`.
    pub timeout: Option<Duration>,
    /// The certificate authorities to trust for `farpools://` addresses (TLS); `None` for those that the system trusts.
    pub tls: Option<ClientTls>,
    /// If set, the node must encrypt its answers end to end, so that only this client can read them, and prove its
    /// identity in this way. The rows of loads are not encrypted by it.
    pub sealed: Option<Proof>,
}

/// A node reached over TCP, or through another [`Connector`].
pub struct RemotePool {
    results: ResultForm,
    memory: Arc<Results>,
    dialer: Dialer,
    connections: tokio::sync::Mutex<Vec<Arc<Connection>>>,
    /// The schemas of tables as last described; programs refer to columns by their positions in these schemas.
    schemas: Mutex<HashMap<TableName, SchemaRef>>,
    /// Descriptions of tables, each with the connection that it came on, so that the node need not send an unchanged
    /// one again. They are ignored on other connections, because a restarted node may have other tables with the same
    /// version numbers.
    described: Mutex<HashMap<TableName, (Weak<Connection>, TableInfo)>>,
    load_ids: LoadIds,
    /// The parts of programs that the node took when the latest connection was opened.
    takes: Mutex<Takes>,
}

impl RemotePool {
    /// Connects to the node at `url`.
    ///
    /// # Errors
    /// `Unavailable` if no node answers there, or its TLS certificate for the host is missing or not trusted; `Denied`
    /// if the node refuses the token; `Invalid` if the system trusts no certificate authority.
    pub async fn connect(url: &PoolUrl, options: ClientOptions) -> Result<Self> {
        let dialer = Dialer::new(url, options, Arc::new(Tcp(url.clone())));
        RemotePool::dial(dialer, Results::of_process()).await
    }

    /// Connects like [`RemotePool::connect`], but over sockets from `connector`. `url` names the node in messages, and
    /// determines whether these sockets use TLS and for which host name. The pool shares nothing with others, not even
    /// memory for results.
    ///
    /// # Errors
    /// Errors of [`RemotePool::connect`].
    pub async fn connect_through(
        connector: Arc<dyn Connector>,
        url: &PoolUrl,
        options: ClientOptions,
    ) -> Result<Self> {
        RemotePool::dial(Dialer::new(url, options, connector), Results::new()).await
    }

    async fn dial(dialer: Dialer, memory: Arc<Results>) -> Result<Self> {
        let first = dialer.dial().await?;
        let takes = Mutex::new(first.node().takes);
        Ok(RemotePool {
            results: ResultForm::default(),
            memory,
            dialer,
            connections: tokio::sync::Mutex::new(vec![Arc::new(first)]),
            schemas: Mutex::default(),
            described: Mutex::default(),
            load_ids: LoadIds::new(),
            takes,
        })
    }

    /// Sets the form in which the node sends results.
    #[must_use]
    pub fn with_results(mut self, results: ResultForm) -> Self {
        self.results = results;
        self
    }

    /// Returns whether the node must encrypt its answers to this client.
    pub fn is_sealed(&self) -> bool {
        self.dialer.is_sealed()
    }

    /// Makes the ids of the pool's loads follow from `seed` alone, for reproducible simulations. Use a seed only once
    /// per node: two pools with the same seed create the same ids, and the node would confuse their loads.
    #[must_use]
    pub fn with_load_seed(self, seed: u64) -> Self {
        RemotePool { load_ids: LoadIds::seeded(seed), ..self }
    }

    /// Returns a connection that is not known to be broken and can open another stream; opens one if there is none.
    async fn connection(&self) -> Result<Arc<Connection>> {
        let mut connections = self.connections.lock().await;
        connections.retain(|connection| !connection.is_closed());
        if let Some(connection) = connections.iter().find(|connection| connection.has_room()) {
            return Ok(connection.clone());
        }
        let connection = Arc::new(self.dialer.dial().await?);
        *self.takes.lock() = connection.node().takes;
        connections.push(connection.clone());
        Ok(connection)
    }

    /// Sends a request that has one answer, and waits for the answer.
    async fn ask(&self, request: &Request, doing: &'static str) -> Result<Response> {
        ask(&self.connection().await?, request, doing).await
    }

    /// Sends a request whose answer only confirms that the request was executed, and waits for the answer.
    async fn command(&self, request: &Request, doing: &'static str) -> Result<()> {
        match self.ask(request, doing).await? {
            Response::Done(_) => Ok(()),
            other => Err(query::unexpected(other.kind())),
        }
    }

    /// Sends an idempotent request that has one answer, and waits for the answer. If the connection breaks, sends the
    /// request once more.
    async fn ask_again(&self, request: &Request, doing: &'static str) -> Result<Response> {
        match self.ask(request, doing).await {
            Err(error) if error.kind == ErrorKind::Unavailable => self.ask(request, doing).await,
            outcome => outcome,
        }
    }

    /// Drops the cached schema and description of a table.
    fn forget(&self, name: &TableName) {
        self.schemas.lock().remove(name);
        self.described.lock().remove(name);
    }

    /// Encodes `program` as a plan; first asks the node for the schema of the program's table if it is not cached.
    async fn plan(&self, program: &Program) -> Result<Vec<u8>> {
        let known = self.schemas.lock().get(&program.table).cloned();
        let schema = match known {
            Some(schema) => schema,
            None => self.table(&program.table).await?.schema,
        };
        substrait::encode_program(program, &schema)
    }

    /// Returns `outcome` unchanged. If it is an error, drops the cached schema of the program's table first, because
    /// the table may have other columns by now. (Those of lookups' tables come with the program.)
    fn doubt<T>(&self, program: &Program, outcome: Result<T>) -> Result<T> {
        outcome.inspect_err(|error| {
            if matches!(error.kind, ErrorKind::Invalid | ErrorKind::NotFound) {
                self.schemas.lock().remove(&program.table);
            }
        })
    }

    /// Starts the plan of `program` at the node and waits for the node's answers for each operator. Retries while the
    /// node is busy.
    async fn start(&self, program: &Program, request: &Request) -> Result<(Prepared, Channel)> {
        let mut comebacks = 0;
        loop {
            let connection = self.connection().await?;
            connection.check_takes(program)?;
            let mut channel = connection.open(request, RUNNING)?;
            match query::answers(&mut channel).await {
                Ok(prepared) => return Ok((prepared, channel)),
                Err(error) => come_back(error, &mut comebacks).await?,
            }
        }
    }

    fn execution(&self, prepared: Arc<Prepared>, channel: Channel, streams_wanted: usize) -> Execution {
        let receipt = ReceiptHandle::new();
        let schema = prepared.schema.clone();
        let streams = query::streams(channel, schema, receipt.clone(), &self.memory, streams_wanted);
        Execution { prepared, streams, receipt }
    }

    /// Prepares the plan of `program` at the node, which keeps the prepared program; returns its handle.
    async fn keep(&self, program: &Program, plan: &[u8], schema: &SchemaRef) -> Result<Handle> {
        let connection = self.connection().await?;
        connection.check_takes(program)?;
        let request = Request::Prepare { plan: plan.to_vec(), schema: Some(SchemaFingerprint::of(schema)) };
        let mut channel = connection.open(&request, "it looked at a query")?;
        let (prepared, bound) = query::bound_answers(&mut channel).await?;
        let kept = Kept { connection, stream: channel.id(), bound, schema: schema.clone() };
        Ok(Handle::new(prepared, kept))
    }

    fn learn(&self, table: &TableInfo) {
        self.schemas.lock().insert(table.name.clone(), table.schema.clone());
    }

    /// Returns the description of a table or, if `or_view`, of a view. The node does not send an unchanged table again.
    async fn describe(&self, name: &TableName, or_view: bool) -> Result<Relation> {
        let described = match self.describe_over(self.connection().await?, name, or_view).await {
            Err(error) if error.kind == ErrorKind::Unavailable => {
                self.describe_over(self.connection().await?, name, or_view).await
            }
            outcome => outcome,
        }?;
        if let Relation::Table(table) = &described {
            self.learn(table);
        }
        Ok(described)
    }

    async fn describe_over(
        &self,
        connection: Arc<Connection>,
        name: &TableName,
        or_view: bool,
    ) -> Result<Relation> {
        let here = |(over, table): &(Weak<Connection>, TableInfo)| {
            (over.as_ptr() == Arc::as_ptr(&connection)).then(|| table.clone())
        };
        let known = self.described.lock().get(name).and_then(here);
        // The description of a table version may still change as long as the node collects its statistics.
        let has_profile = |table: &&TableInfo| {
            let mut columns = table.columns.iter();
            table.rows_profiled.is_none()
                && columns.any(|c| c.spread.is_some() || c.distinct_estimate.is_some())
        };
        let settled = known.as_ref().filter(has_profile);
        let version = settled.map(|table| table.version);
        let request = Request::Table { name: name.clone(), known: version, or_view };
        match (ask(&connection, &request, "it described a table").await?, known) {
            (Response::Table(table), _) => {
                let described = (Arc::downgrade(&connection), table.clone());
                self.described.lock().insert(name.clone(), described);
                Ok(Relation::Table(table))
            }
            (Response::Unchanged, Some(table)) => Ok(Relation::Table(table)),
            (Response::View(view), _) if or_view && view.name() == name => {
                self.forget(name);
                Ok(Relation::View(view))
            }
            (other, _) => Err(query::unexpected(other.kind())),
        }
    }
}

/// A prepared program that a node keeps. Dropping it tells the node to release the program.
struct Kept {
    connection: Arc<Connection>,
    /// Id of the stream on which the program was prepared. The node uses it as the program's handle.
    stream: u32,
    /// The digest that encrypted answers of the program's executions must be bound to; `None` if answers are not
    /// encrypted.
    bound: Option<Digest>,
    schema: SchemaRef,
}

impl Kept {
    /// Opens a stream with a request that names the program.
    fn open(&self, request: &Request, doing: &'static str) -> Result<Channel> {
        self.connection.open_bound(request, doing, self.bound)
    }

    /// Encodes conditions that are added to the program, which are on columns of its table: as a plan with a filter and
    /// no columns.
    fn conditions(&self, handle: &Handle, conditions: &Expr) -> Result<Vec<u8>> {
        let program = Program {
            lookups: Vec::new(),
            filter: Some(conditions.clone()),
            output: Output::Rows(Vec::new()),
            having: None,
            order: Vec::new(),
            limit: None,
            ..handle.effective.clone()
        };
        substrait::encode_program(&program, &self.schema)
    }
}

impl Drop for Kept {
    fn drop(&mut self) {
        self.connection.forget(self.stream);
    }
}

/// Completes the error message "the pool went away while …" for the execution of a program.
const RUNNING: &str = "a query was running";

/// Runs a prepared program that the node keeps, and waits until the node has accepted it. Retries while the node is
/// busy.
async fn start_kept(kept: &Kept, request: &Request) -> Result<Channel> {
    let mut comebacks = 0;
    loop {
        let mut channel = kept.open(request, RUNNING)?;
        let message = channel.receive().await?;
        match Response::decode(&message, None)? {
            Response::Unchanged => return Ok(channel),
            Response::Error(error) => come_back(error, &mut comebacks).await?,
            other => return Err(query::unexpected(other.kind())),
        }
    }
}

/// Decides after the error of a request whether to send it again. If the node was busy and there were few retries,
/// waits for as long as the node asked, and returns `Ok`.
///
/// # Errors
/// Returns `error` if it is of another kind, or if there were too many retries.
async fn come_back(error: Error, comebacks: &mut u32) -> Result<()> {
    if error.kind != ErrorKind::Busy || *comebacks >= limits::RETRIES_MAX {
        return Err(error);
    }
    *comebacks += 1;
    let (least, most) = (*limits::RETRY_AFTER_MS.start(), *limits::RETRY_AFTER_MS.end());
    let wait_ms = error.retry_after_ms.unwrap_or(least).clamp(least, most);
    sleep(Duration::from_millis(wait_ms)).await;
    Ok(())
}

/// Sends a request that has one answer on this connection, and waits for the answer.
async fn ask(connection: &Arc<Connection>, request: &Request, doing: &'static str) -> Result<Response> {
    let mut channel = connection.open(request, doing)?;
    let message = channel.receive().await?;
    match Response::decode(&message, None)? {
        Response::Error(error) => Err(error),
        response => Ok(response),
    }
}

#[async_trait]
impl Pool for RemotePool {
    fn url(&self) -> String {
        self.dialer.url().to_string()
    }

    fn is_remote(&self) -> bool {
        true
    }

    fn takes(&self) -> Takes {
        *self.takes.lock()
    }

    async fn list(&self, tenant: Option<&TenantName>) -> Result<Listing> {
        let request = Request::Tables { tenant: tenant.cloned(), with_schemas: true };
        match self.ask_again(&request, "it listed its tables").await? {
            Response::Tables(listing) => {
                if tenant.is_none() {
                    listing.tables.iter().for_each(|table| self.learn(table));
                }
                Ok(listing)
            }
            other => Err(query::unexpected(other.kind())),
        }
    }

    async fn table(&self, name: &TableName) -> Result<TableInfo> {
        match self.describe(name, false).await? {
            Relation::Table(table) => Ok(table),
            Relation::View(_) => Err(query::unexpected(FrameKind::ViewInfo)),
        }
    }

    async fn relation(&self, name: &TableName) -> Result<Relation> {
        self.describe(name, true).await
    }

    async fn statistics(&self, name: &TableName, columns: Option<&[usize]>) -> Result<TableStatistics> {
        // Column positions beyond 32 bits are replaced by a position that no table has, which the node refuses.
        let number = |column: &usize| u32::try_from(*column).unwrap_or(u32::MAX);
        let columns = columns.map(|columns| columns.iter().map(number).collect());
        let request = Request::Statistics { table: name.clone(), columns };
        match self.ask_again(&request, "it told the statistics of a table").await? {
            Response::Statistics(statistics) => {
                self.learn(&statistics.table);
                Ok(*statistics)
            }
            other => Err(query::unexpected(other.kind())),
        }
    }

    async fn prepare(&self, program: &Program, schema: &SchemaRef) -> Result<Handle> {
        let plan = substrait::encode_program(program, schema)?;
        match self.keep(program, &plan, schema).await {
            Err(error) if error.kind == ErrorKind::Unavailable => self.keep(program, &plan, schema).await,
            outcome => outcome,
        }
    }

    async fn execute_prepared(
        &self,
        handle: &Handle,
        conditions: Option<&Expr>,
        streams_wanted: usize,
    ) -> Result<Execution> {
        let kept = handle.kept::<Kept>().ok_or_else(|| Error::internal("a handle of another pool"))?;
        let plan = conditions.map(|conditions| kept.conditions(handle, conditions)).transpose()?;
        let results = self.results;
        let request = Request::ExecutePrepared { handle: kept.stream, conditions: plan, results };
        match start_kept(kept, &request).await {
            Ok(channel) => Ok(self.execution(handle.prepared().clone(), channel, streams_wanted)),
            // The connection or the prepared program was lost before the first row. The whole plan is sent instead,
            // which works if the table version still exists.
            Err(error) if matches!(error.kind, ErrorKind::Unavailable | ErrorKind::Stale) => {
                let program = handle.narrowed(conditions);
                let plan = substrait::encode_program(&program, &kept.schema)?;
                let schema = Some(SchemaFingerprint::of(&kept.schema));
                let request = Request::Execute { plan, schema, results };
                let (prepared, channel) = self.start(&program, &request).await?;
                let does = |program: &Program| {
                    (program.output.clone(), program.having.clone(), program.order.clone(), program.limit)
                };
                // A node that was started again may have less memory, and leave more to the engine than is planned.
                if does(&prepared.effective) != does(&program) {
                    let table = program.table.as_str();
                    return Err(Error::stale(format!(
                        "the node does less of the program over {table:?} now"
                    )));
                }
                Ok(self.execution(Arc::new(prepared), channel, streams_wanted))
            }
            Err(error) => Err(error),
        }
    }

    async fn execute(&self, program: &Program, streams_wanted: usize) -> Result<Execution> {
        let plan = self.plan(program).await?;
        let request = Request::Execute { plan, schema: None, results: self.results };
        let started = match self.start(program, &request).await {
            // No part of the result has come yet: it is safe to send the request once more.
            Err(error) if error.kind == ErrorKind::Unavailable => self.start(program, &request).await,
            outcome => outcome,
        };
        let (prepared, channel) = self.doubt(program, started)?;
        Ok(self.execution(Arc::new(prepared), channel, streams_wanted))
    }

    async fn load(
        &self,
        name: &TableName,
        options: LoadOptions,
        schema: SchemaRef,
        rows_hint: Option<u64>,
        batches: BatchStream,
    ) -> Result<TableInfo> {
        let schema = schema::canonical_schema(&schema)?;
        let task = Task { table: name, options, schema, rows_hint };
        let table = self.load_once(task, batches).await?;
        if self.dialer.is_sealed() {
            // The answer to a load was not encrypted, so that the schema in it cannot be trusted: programs must not be
            // built from it.
            self.forget(name);
            return match self.describe(name, false).await {
                Ok(Relation::Table(described)) => Ok(described),
                Ok(Relation::View(_)) | Err(_) => Ok(table),
            };
        }
        self.learn(&table);
        Ok(table)
    }

    async fn change_rows(&self, handle: &Handle, rows: u64) -> Result<TableInfo> {
        let kept = handle.kept::<Kept>().ok_or_else(|| Error::internal("a handle of another pool"))?;
        let table = self.change_once(handle, kept, rows).await?;
        self.learn(&table);
        Ok(table)
    }

    async fn alter_table(&self, name: &TableName, changes: &[TableChange]) -> Result<TableInfo> {
        let request = Request::AlterTable { table: name.clone(), changes: changes.to_vec() };
        match self.ask(&request, "it altered a table").await? {
            Response::Table(table) => {
                self.forget(name);
                self.learn(&table);
                Ok(table)
            }
            other => Err(query::unexpected(other.kind())),
        }
    }

    async fn drop_table(&self, name: &TableName) -> Result<()> {
        self.command(&Request::Drop { table: name.clone(), tenant: None }, "it dropped a table").await?;
        self.forget(name);
        Ok(())
    }

    async fn drop_table_of(&self, tenant: &TenantName, name: &TableName) -> Result<()> {
        let request = Request::Drop { table: name.clone(), tenant: Some(tenant.clone()) };
        self.command(&request, "it dropped a table").await
    }

    async fn create_view(&self, view: &View, replace: bool) -> Result<()> {
        let request = Request::CreateView { view: view.clone(), replace };
        match self.ask(&request, "it was about to keep a view").await? {
            Response::View(_) => Ok(()),
            other => Err(query::unexpected(other.kind())),
        }
    }

    async fn drop_view(&self, name: &TableName, tenant: Option<&TenantName>) -> Result<()> {
        self.command(&Request::DropView { view: name.clone(), tenant: tenant.cloned() }, "it dropped a view")
            .await
    }

    async fn create_schema(&self, schema: &SchemaName) -> Result<()> {
        self.command(&Request::CreateSchema { schema: schema.clone() }, "it created a schema").await
    }

    async fn drop_schema(&self, schema: &SchemaName, cascade: bool) -> Result<()> {
        self.command(&Request::DropSchema { schema: schema.clone(), cascade }, "it dropped a schema").await
    }

    async fn queries(&self) -> Result<Vec<QueryInfo>> {
        match self.ask_again(&Request::Queries, "it told what is under way").await? {
            Response::Queries(queries) => Ok(queries),
            other => Err(query::unexpected(other.kind())),
        }
    }

    async fn cancel_query(&self, id: u64) -> Result<()> {
        self.command(&Request::CancelQuery { id }, "it ended a query").await
    }

    async fn status(&self) -> Result<Status> {
        match self.ask_again(&Request::Status, "it told its state").await? {
            Response::Status(status) => Ok(status),
            other => Err(query::unexpected(other.kind())),
        }
    }
}

impl fmt::Debug for RemotePool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RemotePool").field("url", &self.url()).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
