//! The interface between engines and pools: one implementation talks to a node over a socket, another runs
//! the same node in the engine's own process.

use crate::{Handle, ReceiptHandle};
use arrow_array::RecordBatch;
use arrow_schema::SchemaRef;
use async_trait::async_trait;
use farpool_model::{
    Error, Expr, Listing, LoadOptions, Prepared, Program, QueryInfo, Relation, Result, SchemaName, Status,
    TableChange, TableInfo, TableName, TableStatistics, TenantName, View,
};
use futures::Stream;
use std::fmt;
use std::pin::Pin;
use std::sync::Arc;

/// Batches in order of arrival. An error ends the stream.
pub type BatchStream = Pin<Box<dyn Stream<Item = Result<RecordBatch>> + Send>>;

/// A pool of tables that runs programs. A pool in front of another one implements the requests in which it takes part;
/// the others go to the pool [`Pool::behind`] it.
#[async_trait]
pub trait Pool: Send + Sync + fmt::Debug {
    /// Returns the pool that answers the requests which this one does not implement.
    ///
    /// # Errors
    /// `Invalid` if there is none.
    fn behind(&self) -> Result<&dyn Pool> {
        Err(Error::invalid("this pool does not support such a request"))
    }

    /// Returns the address of the pool: `embedded`, or `farpool://host:port`.
    fn url(&self) -> String;

    /// Says where a prepared program would run, for display.
    fn place(&self, _handle: &Handle) -> String {
        self.url()
    }

    /// Returns whether a prepared program would run in this process.
    fn is_here(&self, _handle: &Handle) -> bool {
        !self.is_remote()
    }

    /// Returns whether results cross a network.
    fn is_remote(&self) -> bool;

    /// Lists the tables and views that the caller's tenant can see; or those of the given tenant, for callers
    /// that may see other tenants' tables.
    async fn list(&self, tenant: Option<&TenantName>) -> Result<Listing>;

    /// Lists the tables that the caller's tenant can see, by name.
    async fn tables(&self) -> Result<Vec<TableInfo>> {
        Ok(self.list(None).await?.tables)
    }

    /// Describes one table; `NotFound` names similar ones.
    async fn table(&self, name: &TableName) -> Result<TableInfo>;

    /// Returns the table or view that has this name; `NotFound` names similar ones.
    async fn relation(&self, name: &TableName) -> Result<Relation>;

    /// Returns the profile of a table once it covers all rows, which may take as long as reading them all.
    /// With `columns`, returns without waiting the statistics known by now of at least the columns at these
    /// positions (one or more, in ascending order), and no moments.
    async fn statistics(&self, name: &TableName, columns: Option<&[usize]>) -> Result<TableStatistics> {
        self.behind()?.statistics(name, columns).await
    }

    /// Returns how far the pool would carry out each operator of `program`, over a table with the columns of
    /// `schema`; runs nothing. While the handle is held, other programs may name the table version that it
    /// holds. `Stale` when the program names a version other than these and the newest one, or the table has
    /// another schema by now.
    async fn prepare(&self, program: &Program, schema: &SchemaRef) -> Result<Handle>;

    /// Runs a prepared program on the version of its table that it was prepared for; otherwise as
    /// [`Pool::execute`]. `conditions` over columns of the table, which the pool must be able to carry out,
    /// are added to the program's filter: they may only remove rows that the caller would drop anyway, or the
    /// answers would not hold.
    async fn execute_prepared(
        &self,
        handle: &Handle,
        conditions: Option<&Expr>,
        streams_wanted: usize,
    ) -> Result<Execution>;

    /// Runs `program`. Returns one to `streams_wanted` streams, which together are the result and may be read
    /// by different tasks. Batches have [`Prepared::schema`].
    async fn execute(&self, program: &Program, streams_wanted: usize) -> Result<Execution> {
        self.behind()?.execute(program, streams_wanted).await
    }

    /// Creates, extends or replaces a table from `batches`, which have `schema`. The new version becomes
    /// visible to others only when it is complete; a failure leaves no trace.
    async fn load(
        &self,
        name: &TableName,
        options: LoadOptions,
        schema: SchemaRef,
        rows_hint: Option<u64>,
        batches: BatchStream,
    ) -> Result<TableInfo> {
        self.behind()?.load(name, options, schema, rows_hint, batches).await
    }

    /// Updates the rows that pass a prepared program with the values that it computes for columns, named as
    /// in the table, or deletes these rows if it computes none; all of it, or nothing. The pool must carry
    /// the program out exactly, and it must return rows, without an order or a limit; `rows` is how many
    /// pass. Rows appended since the version that the program was prepared for stay as they are; `Stale` when
    /// the table has changed otherwise since.
    async fn change_rows(&self, handle: &Handle, rows: u64) -> Result<TableInfo>;

    /// Changes the columns or the name of a table; its rows stay as they are. All changes are made, or none.
    /// Programs that are reading the table finish undisturbed.
    async fn alter_table(&self, name: &TableName, changes: &[TableChange]) -> Result<TableInfo>;

    /// Drops a table. Programs that are reading the table finish undisturbed.
    async fn drop_table(&self, name: &TableName) -> Result<()>;

    /// Drops a table of any tenant, for callers that may change other tenants' tables.
    async fn drop_table_of(&self, tenant: &TenantName, name: &TableName) -> Result<()> {
        self.behind()?.drop_table_of(tenant, name).await
    }

    /// Stores a view for all clients of the tenant; with `replace` it atomically replaces a view of the same
    /// name. `Exists` when the name is taken otherwise.
    async fn create_view(&self, view: &View, replace: bool) -> Result<()> {
        self.behind()?.create_view(view, replace).await
    }

    /// Drops a view; with `tenant` that of any tenant, for callers that may change other tenants' views.
    async fn drop_view(&self, name: &TableName, tenant: Option<&TenantName>) -> Result<()> {
        self.behind()?.drop_view(name, tenant).await
    }

    /// Creates a schema.
    async fn create_schema(&self, schema: &SchemaName) -> Result<()> {
        self.behind()?.create_schema(schema).await
    }

    /// Drops a schema; with `cascade`, also the tables and views in it, otherwise it must be empty.
    async fn drop_schema(&self, schema: &SchemaName, cascade: bool) -> Result<()> {
        self.behind()?.drop_schema(schema, cascade).await
    }

    /// Lists the programs of clients in progress at a node, in the order of their requests; those of other
    /// tenants only for callers that may see them. Programs of the caller's own process are not included.
    async fn queries(&self) -> Result<Vec<QueryInfo>> {
        self.behind()?.queries().await
    }

    /// Cancels one of the programs in progress, on whichever connection it was requested; `NotFound` when it
    /// has ended.
    async fn cancel_query(&self, id: u64) -> Result<()> {
        self.behind()?.cancel_query(id).await
    }

    /// Returns the status of the pool.
    async fn status(&self) -> Result<Status> {
        self.behind()?.status().await
    }
}

/// A program in progress. Dropping its streams cancels it at the node.
pub struct Execution {
    /// The answers for each operator, and the schema of the batches.
    pub prepared: Arc<Prepared>,
    /// The streams that together are the result.
    pub streams: Vec<BatchStream>,
    /// The receipt, available once the last stream has ended.
    pub receipt: ReceiptHandle,
}

impl fmt::Debug for Execution {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Execution")
            .field("prepared", &self.prepared)
            .field("streams", &self.streams.len())
            .field("receipt", &self.receipt)
            .finish()
    }
}
