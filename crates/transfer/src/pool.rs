//! The interface between query engines and pools. One implementation talks to a node over a socket, another runs the
//! node in the engine's own process.

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

/// The batches of a result, in order of arrival. An error ends the stream.
pub type BatchStream = Pin<Box<dyn Stream<Item = Result<RecordBatch>> + Send>>;

/// Parts of programs that not every pool knows. Nodes of earlier versions do not.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Takes {
    /// Lookups, which are joins.
    pub lookups: bool,
    /// Conditions on groups (HAVING).
    pub having: bool,
}

impl Takes {
    /// All of them.
    pub const ALL: Takes = Takes { lookups: true, having: true };

    /// Returns what `program` has, in the programs of its lookups too, and is not taken; `None` if all of it is.
    pub(crate) fn missing(self, program: &Program) -> Option<&'static str> {
        if !program.lookups.is_empty() && !self.lookups {
            return Some("lookups, which join tables in the pool");
        }
        if program.having.is_some() && !self.having {
            return Some("conditions on groups (HAVING)");
        }
        program.lookups.iter().find_map(|lookup| self.missing(&lookup.program))
    }
}

/// A pool: a store of tables that runs programs, the parts of queries that are pushed down to it. A pool may be in
/// front of another one (as a cache, for instance); it implements only the requests in which it takes part, and the
/// others go to the pool [`Pool::behind`] it.
#[async_trait]
pub trait Pool: Send + Sync + fmt::Debug {
    /// Returns the pool to which the requests go that this one does not implement.
    ///
    /// # Errors
    /// `Invalid` if there is no pool behind this one.
    fn behind(&self) -> Result<&dyn Pool> {
        Err(Error::invalid("this pool does not support such a request"))
    }

    /// Returns the address of the pool: `embedded`, or `farpool://host:port`.
    fn url(&self) -> String;

    /// Returns the place where a prepared program would be executed (such as the pool's address), as text for the user.
    fn place(&self, _handle: &Handle) -> String {
        self.url()
    }

    /// Returns whether a prepared program would run in this process.
    fn is_here(&self, _handle: &Handle) -> bool {
        !self.is_remote()
    }

    /// Returns whether results reach this process over a network.
    fn is_remote(&self) -> bool;

    /// Returns the parts of programs that an engine may let the pool carry out, of those that not every pool knows.
    fn takes(&self) -> Takes {
        Takes::default()
    }

    /// Lists the tables and views of the caller's tenant; with `tenant`, those of that tenant, which only callers with
    /// the right to see other tenants' tables may ask for.
    async fn list(&self, tenant: Option<&TenantName>) -> Result<Listing>;

    /// Lists the tables of the caller's tenant, sorted by name.
    async fn tables(&self) -> Result<Vec<TableInfo>> {
        Ok(self.list(None).await?.tables)
    }

    /// Returns the description of a table.
    ///
    /// # Errors
    /// `NotFound`, which names similar tables.
    async fn table(&self, name: &TableName) -> Result<TableInfo>;

    /// Returns the table or view that has this name.
    ///
    /// # Errors
    /// `NotFound`, which names similar tables and views.
    async fn relation(&self, name: &TableName) -> Result<Relation>;

    /// Returns the statistics of a table's columns. Without `columns`, waits until they cover all rows, which may take
    /// as long as reading the table. With `columns` (one or more positions, ascending), returns without waiting what is
    /// known now about at least these columns, without moments.
    async fn statistics(&self, name: &TableName, columns: Option<&[usize]>) -> Result<TableStatistics> {
        self.behind()?.statistics(name, columns).await
    }

    /// Asks how far the pool would execute each operator of `program`, over a table with the columns of `schema`, and
    /// makes the pool keep the program. Runs nothing. As long as the returned handle is held, other programs may name
    /// the table version that it holds.
    ///
    /// # Errors
    /// `Stale` if the program names a version that is neither held by a handle nor the newest one, or if the table has
    /// another schema by now.
    async fn prepare(&self, program: &Program, schema: &SchemaRef) -> Result<Handle>;

    /// Runs a prepared program on the table version that it was prepared for; otherwise like [`Pool::execute`].
    /// `conditions` on columns of the table are added to the program's filter. The pool must be able to evaluate them
    /// exactly, and they may remove only rows that the caller would drop anyway, because the pool's answers about the
    /// program were given without them.
    async fn execute_prepared(
        &self,
        handle: &Handle,
        conditions: Option<&Expr>,
        streams_wanted: usize,
    ) -> Result<Execution>;

    /// Runs `program`. Returns between one and `streams_wanted` streams, which together are the result and may be read
    /// by different tasks. Batches have the schema [`Prepared::schema`].
    async fn execute(&self, program: &Program, streams_wanted: usize) -> Result<Execution> {
        self.behind()?.execute(program, streams_wanted).await
    }

    /// Creates, extends or replaces a table with the rows of `batches`, which have the schema `schema`. Other clients
    /// see the new version only when it is complete. If the load fails, the table stays as it was.
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

    /// Changes the rows that a prepared program selects: updates them with the values that the program computes for
    /// columns (named as in the table), or deletes them if it computes none. Either all rows are changed, or none. The
    /// program must return rows, without a sort order or a limit, and the pool must be able to execute it exactly;
    /// `rows` is the number of rows that it selects. Rows appended since the version that the program was prepared for
    /// stay as they are.
    ///
    /// # Errors
    /// `Stale` if the table has been changed since then in another way than by appending.
    async fn change_rows(&self, handle: &Handle, rows: u64) -> Result<TableInfo>;

    /// Changes the columns or the name of a table; its rows stay as they are. Either all changes are made, or none.
    /// Programs that are reading the table finish on the version that they have begun with.
    async fn alter_table(&self, name: &TableName, changes: &[TableChange]) -> Result<TableInfo>;

    /// Drops a table. Programs that are reading the table finish on the version that they have begun with.
    async fn drop_table(&self, name: &TableName) -> Result<()>;

    /// Drops a table of any tenant, for callers with the right to change other tenants' tables.
    async fn drop_table_of(&self, tenant: &TenantName, name: &TableName) -> Result<()> {
        self.behind()?.drop_table_of(tenant, name).await
    }

    /// Stores a view for all clients of the tenant. With `replace`, it atomically replaces a view of the same name.
    ///
    /// # Errors
    /// `Exists` if a table has the name, or a view that must not be replaced.
    async fn create_view(&self, view: &View, replace: bool) -> Result<()> {
        self.behind()?.create_view(view, replace).await
    }

    /// Drops a view of the caller's tenant; with `tenant`, of that tenant, for callers with the right to change other
    /// tenants' views.
    async fn drop_view(&self, name: &TableName, tenant: Option<&TenantName>) -> Result<()> {
        self.behind()?.drop_view(name, tenant).await
    }

    /// Creates a schema.
    async fn create_schema(&self, schema: &SchemaName) -> Result<()> {
        self.behind()?.create_schema(schema).await
    }

    /// Drops a schema. With `cascade`, also drops the tables and views in it; otherwise the schema must be empty.
    async fn drop_schema(&self, schema: &SchemaName, cascade: bool) -> Result<()> {
        self.behind()?.drop_schema(schema, cascade).await
    }

    /// Lists the clients' programs that are running at a node, in the order of their requests. Those of other tenants
    /// are listed only for callers with the right to see them. Programs of the caller's own process are not listed.
    async fn queries(&self) -> Result<Vec<QueryInfo>> {
        self.behind()?.queries().await
    }

    /// Cancels a running program, whichever connection it was requested on.
    ///
    /// # Errors
    /// `NotFound` if the program has ended.
    async fn cancel_query(&self, id: u64) -> Result<()> {
        self.behind()?.cancel_query(id).await
    }

    /// Returns the status of the pool, such as its memory use and its number of workers.
    async fn status(&self) -> Result<Status> {
        self.behind()?.status().await
    }
}

/// A running program and its result. Dropping the streams cancels the program at the node.
pub struct Execution {
    /// The pool's answer for each operator, and the schema of the batches.
    pub prepared: Arc<Prepared>,
    /// The streams of batches that together are the result.
    pub streams: Vec<BatchStream>,
    /// The execution statistics ([`Receipt`](farpool_model::Receipt)); available when the last stream has ended.
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
