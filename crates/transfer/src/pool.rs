//! The trait between engines and pools: one implementation speaks to a node over a socket, another runs
//! the same node in the engine's own process.

use crate::{Handle, ReceiptHandle};
use arrow_array::RecordBatch;
use arrow_schema::SchemaRef;
use async_trait::async_trait;
use farpool_model::{
    Expr, Listing, LoadMode, Prepared, Program, QueryInfo, Relation, Result, Status, TableChange, TableInfo,
    TableName, TableStatistics, TenantName, View,
};
use futures::Stream;
use std::fmt;
use std::pin::Pin;
use std::sync::Arc;

/// Batches as they arrive. After an error nothing follows.
pub type BatchStream = Pin<Box<dyn Stream<Item = Result<RecordBatch>> + Send>>;

/// A pool of tables that runs programs.
#[async_trait]
pub trait Pool: Send + Sync + fmt::Debug {
    /// Where the pool is: `embedded`, or `farpool://host:port`.
    fn url(&self) -> String;

    /// Whether results cross a network.
    fn is_remote(&self) -> bool;

    /// The tables and views that the caller's tenant can see; or those of any tenant, for callers that may see what
    /// others have.
    async fn list(&self, tenant: Option<&TenantName>) -> Result<Listing>;

    /// The tables that the caller's tenant can see, by name.
    async fn tables(&self) -> Result<Vec<TableInfo>> {
        Ok(self.list(None).await?.tables)
    }

    /// One table; `NotFound` names similar ones.
    async fn table(&self, name: &TableName) -> Result<TableInfo>;

    /// What a name stands for, a table or a view; `NotFound` names similar ones.
    async fn relation(&self, name: &TableName) -> Result<Relation>;

    /// What the rows of a table hold, once that is found out, which may take as long as reading them all. Or, without
    /// waiting, what is known by now of at least the columns at these positions, of which there is one or more, in
    /// ascending order; without the moments.
    async fn statistics(&self, name: &TableName, columns: Option<&[usize]>) -> Result<TableStatistics>;

    /// How far the pool would carry out each operator of `program`, whose columns are those of `schema`; runs nothing.
    /// The version of the table that a handle holds may be named by other programs as long as it is held. `Stale` when
    /// the program names another version than these and the newest one, or the table has another schema by now.
    async fn prepare(&self, program: &Program, schema: &SchemaRef) -> Result<Handle>;

    /// Runs a prepared program on the version of its table that it was prepared for; otherwise as [`Pool::execute`].
    /// `conditions` over columns of the table, which the pool can carry out, are added to the program's filter: they
    /// may only keep away rows that the caller would drop anyway, or the answers would not hold.
    async fn execute_prepared(
        &self,
        handle: &Handle,
        conditions: Option<&Expr>,
        streams_wanted: usize,
    ) -> Result<Execution>;

    /// Runs `program`. Gives one to `streams_wanted` streams, which together are the result and may be
    /// read by different tasks. Batches have [`Prepared::schema`].
    async fn execute(&self, program: &Program, streams_wanted: usize) -> Result<Execution>;

    /// Makes, extends or replaces a table from `batches`, which have `schema`. The new version is seen
    /// by others only when all of it is there; a failure leaves no trace.
    async fn load(
        &self,
        name: &TableName,
        mode: LoadMode,
        schema: SchemaRef,
        rows_hint: Option<u64>,
        batches: BatchStream,
    ) -> Result<TableInfo>;

    /// Gives the rows that pass a prepared program the values that it computes of columns, which it names as the table
    /// does, or removes them if it computes none; all of it, or nothing. The program is one that the pool carries out
    /// exactly, of rows, without an order or a limit; `rows` is how many pass. Rows that have come behind those of the
    /// version that the program was prepared for stay as they are; `Stale` when the table has changed otherwise since.
    async fn change_rows(&self, handle: &Handle, rows: u64) -> Result<TableInfo>;

    /// Gives a table other columns or another name; its rows stay as they are. All changes are made, or none. Programs
    /// that are reading it finish undisturbed.
    async fn alter_table(&self, name: &TableName, changes: &[TableChange]) -> Result<TableInfo>;

    /// Drops a table. Programs that are reading it finish undisturbed.
    async fn drop_table(&self, name: &TableName) -> Result<()>;

    /// Drops a table of any tenant, for callers that may change what others have.
    async fn drop_table_of(&self, tenant: &TenantName, name: &TableName) -> Result<()>;

    /// Keeps a view, for all clients of the tenant; with `replace` in place of one of its name, at once. `Exists` when
    /// the name stands for something else.
    async fn create_view(&self, view: &View, replace: bool) -> Result<()>;

    /// Drops a view; or one of any tenant, for callers that may change what others have.
    async fn drop_view(&self, name: &TableName, tenant: Option<&TenantName>) -> Result<()>;

    /// The programs of clients that are under way at a node, in the order in which they were asked for; of other tenants
    /// only for callers that may see what these do. Those of the caller's own process are not among them.
    async fn queries(&self) -> Result<Vec<QueryInfo>>;

    /// Ends one of these, whosever connection it came on; `NotFound` when it has ended.
    async fn cancel_query(&self, id: u64) -> Result<()>;

    /// The state of the pool.
    async fn status(&self) -> Result<Status>;
}

/// A program that runs. Dropping its streams cancels it at the node.
pub struct Execution {
    /// How far each operator is carried out, and the schema of the batches.
    pub prepared: Arc<Prepared>,
    /// The result.
    pub streams: Vec<BatchStream>,
    /// What it cost, once the last stream has ended.
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
