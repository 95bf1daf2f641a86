//! The front of the node: whoever asks for something is a [`Caller`], and everything that a node does is a method of
//! it. Protocols translate bytes to these calls, and nothing else; the pool in an engine's own process makes them too.
//!
//! Invariant: no table, run or number of the node is reached but through a caller, whose right is checked first
//! ([`crate::rights`]) and who sees the tables of its tenant only.

use crate::job::Job;
use crate::kept::Kept;
use crate::node::Node;
use crate::rights::{Right, Verb};
use arrow_array::RecordBatch;
use arrow_schema::Schema;
use farpool_columns::{RowGroup, Table};
use farpool_model::{
    Error, Expr, LoadMode, Prepared, Program, Receipt, Result, Status, TableInfo, TableName, TableStatistics,
    TenantName, Version,
};
use farpool_pipeline::{Cancel, Class, Region, Run, Sink, Task, TaskId};
use farpool_store::Load;
use std::sync::Arc;
use tokio::sync::Semaphore;

/// Who asks: a tenant's client, with its right, its share of the node, and a flag that says when it no longer wants
/// what it asked for. Clones are the same caller.
#[derive(Clone, Debug)]
pub struct Caller {
    node: Arc<Node>,
    tenant: TenantName,
    right: Right,
    region: Arc<Region>,
    cancel: Cancel,
}

/// In which form the rows of a program may leave.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shape {
    /// As batches.
    Batches,
    /// Row groups as they lie in the pool too.
    BatchesAndRowGroups,
}

impl Caller {
    pub(crate) fn new(node: Arc<Node>, tenant: TenantName, right: Right) -> Self {
        let region = node.new_region(&tenant);
        Caller { node, tenant, right, region, cancel: Cancel::new() }
    }

    /// The same caller for one request, which `cancel` ends.
    #[must_use]
    pub fn until(&self, cancel: Cancel) -> Self {
        Caller { cancel, ..self.clone() }
    }

    /// Whose tables it sees.
    pub fn tenant(&self) -> &TenantName {
        &self.tenant
    }

    /// What it may do.
    pub fn right(&self) -> Right {
        self.right
    }

    /// The tables, by name.
    ///
    /// # Errors
    /// `Denied`, as for every verb.
    pub fn tables(&self) -> Result<Vec<TableInfo>> {
        self.check(Verb::Describe)?;
        Ok(self.node.catalog().tables(&self.tenant))
    }

    /// A table's newest version, unless the caller knows it.
    ///
    /// # Errors
    /// `NotFound`, naming similar tables.
    pub fn table(&self, name: &TableName, known: Option<Version>) -> Result<Option<TableInfo>> {
        self.check(Verb::Describe)?;
        match self.node.catalog().get(&self.tenant, name)? {
            (version, _) if known == Some(version) => Ok(None),
            _ => self.node.catalog().info(&self.tenant, name).map(Some),
        }
    }

    /// What is known by now of the rows in these columns of a table.
    ///
    /// # Errors
    /// `NotFound`; `Invalid` for a column that the table does not have.
    pub fn known_statistics(&self, name: &TableName, columns: &[usize]) -> Result<TableStatistics> {
        self.check(Verb::Statistics)?;
        self.node.catalog().known_statistics(&self.tenant, name, columns)
    }

    /// What the rows of a table hold. It may have to be found out first, on the calling thread.
    ///
    /// # Errors
    /// `NotFound`; `OverLimit` when the pool has no room for it.
    pub fn statistics(&self, name: &TableName) -> Result<TableStatistics> {
        self.check(Verb::Statistics)?;
        self.node.catalog().statistics(&self.tenant, name)
    }

    /// The turns of the tenant's requests that have [`Caller::statistics`] find something out.
    pub(crate) fn profile_turns(&self) -> Arc<Semaphore> {
        self.node.profile_turns(&self.tenant)
    }

    /// The schema and the version of a table that a program may read.
    ///
    /// # Errors
    /// `NotFound`.
    pub fn source(&self, name: &TableName) -> Result<(Version, Arc<Table>)> {
        self.check(Verb::Prepare)?;
        self.node.catalog().get(&self.tenant, name)
    }

    /// How far each operator of `program` would be carried out on this version of its table.
    ///
    /// # Errors
    /// What is wrong with the program; `Cancelled`.
    pub fn prepare(&self, program: &Program, version: Version, table: &Table) -> Result<Prepared> {
        self.check(Verb::Prepare)?;
        farpool_pipeline::prepare_within(program, table, version, self.node.budget())
    }

    /// Binds a program to the table that it was prepared for. Nothing runs until somebody steps the run or gives it
    /// to [`Caller::submit`].
    ///
    /// # Errors
    /// What is wrong with the program; `Cancelled`.
    pub fn start(&self, prepared: Prepared, table: Arc<Table>, shape: Shape) -> Result<Arc<Run>> {
        self.check(Verb::Execute)?;
        let budget = self.node.budget();
        match shape {
            Shape::Batches => Run::start_within(prepared, table, budget),
            Shape::BatchesAndRowGroups => Run::start_shipping(prepared, table, budget),
        }
    }

    /// The same for a program that was prepared before, with `conditions` beside its filter, which thin out what comes.
    ///
    /// # Errors
    /// `Invalid` for conditions that cannot be carried out here; `Cancelled`.
    pub fn start_kept(&self, kept: &Kept, conditions: Option<&Expr>, shape: Shape) -> Result<Arc<Run>> {
        let Kept { prepared, table } = kept;
        if conditions.is_none() {
            return self.start(prepared.clone(), table.clone(), shape);
        }
        let narrowed = self.prepare(&prepared.narrowed(conditions), prepared.version, table)?;
        if narrowed.schema != prepared.schema {
            return Err(Error::invalid(
                "conditions that are not exact cannot be added to a prepared program",
            ));
        }
        self.start(narrowed, table.clone(), shape)
    }

    /// Has the workers run `run` within the caller's share; `sink` gets its batches and in the end its receipt.
    pub fn submit(&self, run: Arc<Run>, sink: Arc<dyn Sink>) {
        let accounted = self.accounted(&run, sink);
        self.node.scheduler().submit_run(&self.region, run, Arc::new(accounted));
    }

    /// Adds a program that the caller stepped itself to the totals; `finished` says whether it ran to its end.
    pub fn record(&self, receipt: &Receipt, finished: bool) {
        self.node.totals().add(&self.tenant, receipt, finished);
    }

    /// Begins to load rows of `schema` into a table.
    ///
    /// # Errors
    /// As [`farpool_store::Catalog::begin_load`].
    pub fn begin_load(
        &self,
        name: &TableName,
        schema: &Schema,
        mode: LoadMode,
        rows_hint: Option<u64>,
    ) -> Result<Load> {
        self.check(Verb::Load)?;
        self.node.catalog().begin_load(&self.tenant, name, schema, mode, rows_hint)
    }

    /// Drops a table; programs that read it finish undisturbed.
    ///
    /// # Errors
    /// `NotFound`.
    pub fn drop_table(&self, name: &TableName) -> Result<()> {
        self.check(Verb::Drop)?;
        self.node.catalog().drop_table(&self.tenant, name)
    }

    /// The state of the node, of other tenants only for whom may see them.
    ///
    /// # Errors
    /// `Denied`.
    pub fn status(&self) -> Result<Status> {
        self.check(Verb::Status)?;
        Ok(match Verb::StatusOfAll.check(self.right) {
            Ok(()) => self.node.status(),
            Err(_) => self.node.status_for(&self.tenant),
        })
    }

    /// Has a worker do `work` within the caller's share; `then` gets what comes of it, or `Cancelled` if it was not
    /// begun when the caller's flag was set, or `Internal` where a defect stopped it.
    pub fn spawn<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Caller) -> Result<T> + Send + 'static,
        then: impl FnOnce(Result<T>) + Send + 'static,
    ) {
        let caller = self.clone();
        let job = Job::new(self.cancel.clone(), move || work(&caller), then);
        self.node.scheduler().submit(&self.region, Class::Foreground, Arc::new(job));
    }

    /// Has the workers do the steps of `task` within the caller's share.
    pub(crate) fn submit_task(&self, task: Arc<dyn Task>) -> TaskId {
        self.node.scheduler().submit(&self.region, Class::Foreground, task)
    }

    /// A task of the caller has something to do again: its rows have come.
    pub(crate) fn wake_task(&self, task: TaskId) {
        self.node.scheduler().wake(task);
    }

    /// Rows come in: work in the background rests.
    pub(crate) fn rows_came(&self) {
        self.node.scheduler().rows_came();
    }

    /// The caller's share has something to do again: a sink has room.
    pub fn wake(&self) {
        self.node.scheduler().wake_region(&self.region);
    }

    #[cfg(test)]
    pub(crate) fn node(&self) -> &Arc<Node> {
        &self.node
    }

    fn check(&self, verb: Verb) -> Result<()> {
        verb.check(self.right)?;
        self.cancel.check()
    }

    fn accounted(&self, run: &Arc<Run>, sink: Arc<dyn Sink>) -> Accounted {
        let node = self.node.clone();
        node.run_begins();
        let started_ns = node.clock().now_ns();
        Accounted { sink, run: run.clone(), tenant: self.tenant.clone(), node, started_ns }
    }
}

/// A sink that adds to the tenant's totals what its program cost.
struct Accounted {
    sink: Arc<dyn Sink>,
    run: Arc<Run>,
    tenant: TenantName,
    node: Arc<Node>,
    started_ns: u64,
}

impl Sink for Accounted {
    fn ready(&self) -> bool {
        self.sink.ready()
    }

    fn batch(&self, batch: RecordBatch) {
        self.sink.batch(batch);
    }

    fn encoded(&self, group: RowGroup) {
        self.sink.encoded(group);
    }

    fn finish(&self, result: Result<Receipt>) {
        let totals = self.node.totals();
        let result = result.map(|mut receipt| {
            receipt.elapsed_ns = self.node.clock().now_ns().saturating_sub(self.started_ns);
            receipt
        });
        match &result {
            Ok(receipt) => totals.add(&self.tenant, receipt, true),
            Err(_) => totals.add(&self.tenant, &self.run.receipt(), false),
        }
        self.node.run_ends();
        self.sink.finish(result);
    }
}

#[cfg(test)]
mod tests;
