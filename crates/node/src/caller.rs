//! The API of the node: every request is made by a [`Caller`], and everything that a node does is a method of
//! it. Protocols only translate bytes to these calls; the pool in an engine's own process makes the same
//! calls.
//!
//! Invariant: no table, run or statistic of the node is reached except through a caller, whose right is
//! checked first ([`crate::rights`]) and who sees only the tables of its own tenant.

use crate::access::TenantLimits;
use crate::admission;
use crate::job::Job;
use crate::node::Node;
use crate::outcomes::LoadRegistration;
use crate::profiles::{ProfileMemory, StatisticsTask};
use crate::queries::Identity;
use crate::rights::{Right, Verb};
use crate::spaces::not_for_spaces;
use crate::turns::Turn;
use arrow_array::RecordBatch;
use arrow_schema::{Schema, SchemaRef};
use farpool_catalog::{AwaitedStatistics, Background, Commit, Load};
use farpool_columns::{Encoder, RowGroup, Table};
use farpool_memory::{Account, Reservation};
use farpool_model::{
    Clock, ColumnStatistics, Error, ErrorKind, Expr, Listing, LoadId, LoadOptions, LoadOutcome,
    LoadedVersion, Program, QueryInfo, Receipt, Relation, Result, SchemaName, Status, TableChange, TableInfo,
    TableName, TableStatistics, TenantName, Version, View, limits,
};
use farpool_pipeline::{BoundProgram, Cancel, Class, Region, Run, Sink, Task, TaskId};
use parking_lot::Mutex;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;
use tokio::runtime::Handle;

/// The origin of a request: a client of a tenant, with its right, its share of the node's time and memory,
/// the timeout of its requests, and a flag that cancels them. Clones are the same caller.
#[derive(Clone, Debug)]
pub struct Caller {
    node: Arc<Node>,
    tenant: TenantName,
    right: Right,
    region: Arc<Region>,
    account: Account,
    timeout: Option<Duration>,
    identity: Arc<Identity>,
    cancel: Cancel,
}

/// The forms in which the rows of a program may be returned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shape {
    /// Record batches only.
    Batches,
    /// Batches, and encoded row groups as they are stored in the pool.
    BatchesAndRowGroups,
}

impl Caller {
    pub(crate) fn new(node: Arc<Node>, tenant: TenantName, right: Right) -> Self {
        let region = node.shares().new_region(&tenant);
        let account = node.account(&tenant);
        Caller {
            node,
            tenant,
            right,
            region,
            account,
            timeout: None,
            identity: Arc::default(),
            cancel: Cancel::new(),
        }
    }

    /// Sets a timeout for each request of this caller. Whoever serves the caller enforces it, also for
    /// requests that have not been read yet.
    #[must_use]
    pub fn with_timeout(self, timeout: Option<Duration>) -> Self {
        Caller { timeout, ..self }
    }

    /// Sets the identity under which others see this caller's queries.
    #[must_use]
    pub(crate) fn known_as(self, identity: Identity) -> Self {
        Caller { identity: Arc::new(identity), ..self }
    }

    /// Returns the identity of the client, for display.
    pub(crate) fn identity(&self) -> &Arc<Identity> {
        &self.identity
    }

    /// Returns the timeout of its requests.
    pub fn timeout(&self) -> Option<Duration> {
        self.timeout
    }

    /// Returns this caller for one request, which `cancel` stops.
    #[must_use]
    pub fn until(&self, cancel: Cancel) -> Self {
        Caller { cancel, ..self.clone() }
    }

    /// Returns the tenant whose tables the caller sees.
    pub fn tenant(&self) -> &TenantName {
        &self.tenant
    }

    /// Returns the caller's right.
    pub fn right(&self) -> Right {
        self.right
    }

    /// Returns the tables, by name.
    ///
    /// # Errors
    /// `Denied`, as for every verb.
    pub fn tables(&self) -> Result<Vec<TableInfo>> {
        self.check(Verb::Describe)?;
        let mut tables = self.node.catalog().tables(&self.tenant);
        self.add_spaces(&self.tenant, &mut tables, &[]);
        Ok(tables)
    }

    /// Returns the tables and views of the caller's tenant, or of `tenant`.
    ///
    /// # Errors
    /// `Denied` for another tenant if the caller's right does not reach it.
    pub fn list(&self, tenant: Option<&TenantName>) -> Result<Listing> {
        let tenant = tenant.unwrap_or(&self.tenant);
        self.check_reach(tenant, Verb::Describe, Verb::DescribeOfAll)?;
        let mut listing = self.node.catalog().list(tenant);
        self.add_spaces(tenant, &mut listing.tables, &listing.views);
        // Keys have a log of their own: after a power loss, a dropped space may be there again, without its schema.
        let mut schemas: BTreeSet<SchemaName> = listing.schemas.into_iter().collect();
        let names = listing.tables.iter().map(|table| &table.name);
        schemas.extend(names.filter(|name| !name.is_public()).map(TableName::schema));
        listing.schemas = schemas.into_iter().collect();
        Ok(listing)
    }

    /// Adds spaces of keys to the tables of a tenant; a table or view hides a space of the same name.
    fn add_spaces(&self, tenant: &TenantName, tables: &mut Vec<TableInfo>, views: &[TableName]) {
        let is_taken =
            |name: &TableName| tables.iter().any(|table| table.name == *name) || views.contains(name);
        let spaces = self.spaces_of(tenant, is_taken);
        if !spaces.is_empty() {
            tables.extend(spaces);
            tables.sort_by(|a, b| a.name.cmp(&b.name));
        }
    }

    /// Describes a table's newest version; `None` if that is `known`.
    ///
    /// # Errors
    /// `NotFound`, with the names of similar tables.
    pub fn table(&self, name: &TableName, known: Option<Version>) -> Result<Option<TableInfo>> {
        self.check(Verb::Describe)?;
        match self.node.catalog().get(&self.tenant, name) {
            Ok((version, _)) if known == Some(version) => Ok(None),
            Ok(_) => self.node.catalog().info(&self.tenant, name).map(Some),
            Err(error) => self.space_info(name).map(Some).ok_or(error),
        }
    }

    /// Describes the relation with this name: a view, or a table's newest version; `None` if that is `known`.
    ///
    /// # Errors
    /// `NotFound`, with the names of similar tables and views.
    pub fn relation(&self, name: &TableName, known: Option<Version>) -> Result<Option<Relation>> {
        self.check(Verb::Describe)?;
        let is_known = |(version, _): (Version, Arc<Table>)| known == Some(version);
        match self.node.catalog().get(&self.tenant, name).is_ok_and(is_known) {
            true => Ok(None),
            false => {
                self.node.catalog().relation(&self.tenant, name).map(Some).or_else(|error| {
                    self.space_info(name).map(|info| Some(Relation::Table(info))).ok_or(error)
                })
            }
        }
    }

    /// Returns what is known so far about these columns of a table.
    ///
    /// # Errors
    /// `NotFound`; `Invalid` for a column that the table does not have.
    pub fn known_statistics(&self, name: &TableName, columns: &[usize]) -> Result<TableStatistics> {
        self.check(Verb::Statistics)?;
        self.node
            .catalog()
            .known_statistics(&self.tenant, name, columns)
            .map_err(|error| self.of_space(name, error))
    }

    /// Returns the statistics of a table. Where they are not known yet, computes them on the calling thread
    /// and some that it starts: for an engine's own process.
    ///
    /// # Errors
    /// `NotFound`; `OverLimit` when the pool has no room for the profile.
    pub fn statistics(&self, name: &TableName) -> Result<TableStatistics> {
        self.check(Verb::Statistics)?;
        self.node.catalog().statistics(&self.tenant, name).map_err(|error| self.of_space(name, error))
    }

    /// Returns the outstanding profile of a table, to be computed step by step or by [`Caller::submit_statistics`].
    ///
    /// # Errors
    /// `NotFound`.
    pub(crate) fn await_statistics(&self, name: &TableName) -> Result<AwaitedStatistics> {
        self.check(Verb::Statistics)?;
        let awaited = self.node.catalog().await_statistics(&self.tenant, name, self.waker());
        awaited.map_err(|error| self.of_space(name, error))
    }

    /// Returns the error of a table operation on a space of keys, or `error` if the name is not that of a space.
    fn of_space(&self, name: &TableName, error: Error) -> Error {
        let is_space = error.kind == ErrorKind::NotFound && self.is_space(name);
        let advice =
            "spaces have no profile, and are created and dropped by FP.SPACE over the Redis protocol";
        if is_space { not_for_spaces(name, advice) } else { error }
    }

    /// Returns the error of DROP TABLE or DROP VIEW on a space of keys, or `error` if the name is not that of a space.
    fn of_dropped_space(&self, tenant: &TenantName, name: &TableName, error: Error) -> Error {
        if error.kind != ErrorKind::NotFound || *tenant != self.tenant || !self.is_space(name) {
            return error;
        }
        let message = format!("{:?} is a space of keys, neither a table nor a view", name.as_str());
        Error::invalid(message).advise("spaces are dropped by FP.SPACE DROP over the Redis protocol")
    }

    /// Makes the workers compute outstanding statistics within the caller's share. `then` gets the result;
    /// `Cancelled` if the caller's flag was set before; or `OverLimit` if the wait for memory on `runtime`
    /// timed out.
    pub(crate) fn submit_statistics(
        &self,
        statistics: AwaitedStatistics,
        runtime: Option<Handle>,
        then: impl FnOnce(Result<TableStatistics>) + Send + 'static,
    ) {
        let turn = self.node.shares().turns(&self.tenant).line_up(self.waker());
        let task =
            StatisticsTask::new(statistics, turn, self.profile_memory(runtime), self.cancel.clone(), then);
        self.node.scheduler().submit(&self.region, Class::Foreground, Arc::new(task));
    }

    /// Creates the memory for a profile that the caller waits for; waits run on `runtime`.
    pub(crate) fn profile_memory(&self, runtime: Option<Handle>) -> ProfileMemory {
        ProfileMemory::new(self.account.clone(), runtime, self.waker())
    }

    /// Returns the version and the data of a table, for a program to read.
    ///
    /// # Errors
    /// `NotFound`.
    pub fn source(&self, name: &TableName) -> Result<(Version, Arc<Table>)> {
        self.check(Verb::Prepare)?;
        self.node.catalog().get(&self.tenant, name).or_else(|error| self.space_source(name).ok_or(error))
    }

    /// Binds a program to this version of its table, and determines the answer to each of its operators.
    ///
    /// # Errors
    /// Mistakes in the program; `Cancelled`.
    pub fn prepare(&self, program: &Program, version: Version, table: Arc<Table>) -> Result<BoundProgram> {
        self.check(Verb::Prepare)?;
        BoundProgram::prepare(program, self.chosen(program, table)?, version, self.node.budget())
    }

    /// Creates a run of a program, with `conditions` as an additional filter. Nothing is executed until the
    /// run is stepped or passed to [`Caller::submit`].
    ///
    /// # Errors
    /// `Invalid` for conditions that the node cannot evaluate; `Cancelled`.
    pub fn start(&self, program: &BoundProgram, conditions: Option<&Expr>, shape: Shape) -> Result<Arc<Run>> {
        self.check(Verb::Execute)?;
        let narrowed = conditions.map(|conditions| program.narrowed(conditions)).transpose()?;
        let program = narrowed.as_ref().unwrap_or(program);
        let run = match shape {
            Shape::Batches => Run::start(program),
            Shape::BatchesAndRowGroups => Run::start_shipping(program),
        };
        Ok(self.in_company(run?, program))
    }

    /// Lets `run` share what it reads with other runs over the same table.
    pub(crate) fn in_company(&self, run: Arc<Run>, program: &BoundProgram) -> Arc<Run> {
        if self.node.shares_scans() {
            run.join(self.node.shares().shared_scans(&self.tenant).sharing(program, &self.account));
        }
        run
    }

    /// Reserves the memory that `run` needs, waiting for other work to end if need be. Must be called before
    /// the run's first step.
    ///
    /// # Errors
    /// `OverLimit`, with sizes, after [`farpool_model::limits::WORK_WAIT_MS_MAX`], or at once when so much
    /// can never be reserved.
    pub async fn admit(&self, run: &Run) -> Result<()> {
        admission::admit(run, self.account.empty()).await
    }

    /// Returns the account for the plans of the caller's waiting programs.
    pub(crate) fn places(&self) -> Account {
        self.node.places(&self.tenant)
    }

    /// Returns the limits of the caller's tenant.
    pub(crate) fn limits(&self) -> TenantLimits {
        self.node.shares().limits(&self.tenant)
    }

    /// Takes a turn for a program of the caller's tenant, or a place in the line for one; `wake` is called
    /// when the turn comes.
    ///
    /// # Errors
    /// `Busy` when too many wait already.
    pub(crate) fn line_up(&self, wake: Box<dyn Fn() + Send + Sync>) -> Result<Turn> {
        let programs = self.node.shares().programs(&self.tenant);
        let turn = programs.turns.line_up_within(self.limits().programs_waiting_max, wake);
        turn.ok_or_else(|| programs.busy(&self.tenant, "too many programs wait"))
    }

    /// Returns the error of a program whose wait for a turn timed out.
    pub(crate) fn turn_did_not_come(&self) -> Error {
        let seconds = limits::PROGRAM_WAIT_MS_MAX / 1000;
        self.node
            .shares()
            .programs(&self.tenant)
            .busy(&self.tenant, &format!("no turn came within {seconds} s"))
    }

    /// Returns the account from which memory for the caller's work is reserved.
    pub fn account(&self) -> &Account {
        &self.account
    }

    /// Makes the workers execute `run` within the caller's share; `sink` gets its batches and in the end its
    /// receipt.
    pub fn submit(&self, run: Arc<Run>, sink: Arc<dyn Sink>) {
        self.submit_in_turn(run, sink, None);
    }

    /// Submits a program that holds a turn; the turn is released when the program ends.
    pub(crate) fn submit_in_turn(&self, run: Arc<Run>, sink: Arc<dyn Sink>, turn: Option<Turn>) {
        let accounted = self.accounted(&run, sink, turn);
        self.node.scheduler().submit_run(&self.region, run, Arc::new(accounted));
    }

    /// Adds to the totals a program that the caller stepped itself; `finished` says whether it ran to its
    /// end.
    pub fn record(&self, receipt: &Receipt, finished: bool) {
        self.node.totals().add(&self.tenant, receipt, finished);
    }

    /// Begins to load rows of `schema` into a table.
    ///
    /// # Errors
    /// Errors of [`farpool_catalog::Catalog::begin_load`].
    pub fn begin_load(
        &self,
        name: &TableName,
        schema: &Schema,
        options: LoadOptions,
        rows_hint: Option<u64>,
    ) -> Result<Load> {
        self.check(Verb::Load)?;
        if self.node.catalog().get(&self.tenant, name).is_err()
            && let Some(load) = self.begin_insert(name, schema, options.mode)?
        {
            return Ok(load);
        }
        self.node.catalog().begin_load(&self.tenant, name, schema, options, rows_hint)
    }

    /// Registers the id of a load that begins, unless the id is known already. `end` is called to end the
    /// load while its rows have not all arrived. `held` are the [`limits::LOAD_OUTCOME_BYTES`] of its record, if they are
    /// reserved already.
    ///
    /// # Errors
    /// `OverLimit` when there is no memory to remember the outcome.
    pub(crate) fn record_load(
        &self,
        id: LoadId,
        held: Option<Reservation>,
        end: Box<dyn Fn() + Send + Sync>,
    ) -> Result<LoadRegistration> {
        self.check(Verb::Load)?;
        let (clock, outcomes) = (self.clock().clone(), self.node.shares().outcomes(&self.tenant));
        outcomes.begin(id, (&self.account, held), move || clock.now_ns(), end)
    }

    /// Calls `then` with the outcome of a load of the caller's tenant, once it has ended, and the newest
    /// version whose load is forgotten. A load whose rows have not all arrived is ended by this.
    ///
    /// # Errors
    /// `Busy` when too many wait for the same; `OverLimit` when there is no memory to remember the outcome.
    pub(crate) fn load_outcome(
        &self,
        id: LoadId,
        then: impl FnOnce(LoadOutcome, Version) + Send + 'static,
    ) -> Result<()> {
        self.check(Verb::LoadOutcome)?;
        let outcomes = self.node.shares().outcomes(&self.tenant);
        outcomes.ask(id, &self.account, self.clock().now_ns(), then)
    }

    /// Describes the table as a load with rows of `schema` made it. If it has changed since, nothing is said
    /// about its columns.
    pub(crate) fn loaded(&self, name: &TableName, schema: &SchemaRef, made: LoadedVersion) -> TableInfo {
        let newest = self.node.catalog().info(&self.tenant, name).ok();
        newest.filter(|info| info.version == made.version).unwrap_or_else(|| TableInfo {
            name: name.clone(),
            version: made.version,
            schema: schema.clone(),
            rows: made.rows,
            bytes_plain: made.bytes_plain,
            bytes_encoded: made.bytes_encoded,
            columns: vec![ColumnStatistics::default(); schema.fields().len()],
            rows_profiled: None,
            encryption: None,
            bytes_resident: None,
            is_pinned: false,
        })
    }

    /// Applies all of these changes to a table, or none.
    ///
    /// # Errors
    /// Errors of [`farpool_catalog::Catalog::alter_table`].
    pub fn alter_table(&self, name: &TableName, changes: &[TableChange]) -> Result<Commit<TableInfo>> {
        self.check(Verb::Alter)?;
        let altered = self.node.catalog().alter_table(&self.tenant, name, changes);
        altered.map_err(|error| self.of_space(name, error))
    }

    /// Creates a run that changes the rows that pass `program`, or removes them if the program computes no
    /// columns. It is executed like one of [`Caller::start`]; nothing is visible before
    /// [`Caller::publish_change`].
    ///
    /// # Errors
    /// Errors of [`Run::start_changing`].
    pub fn start_change(&self, program: &BoundProgram) -> Result<Arc<Run>> {
        self.check(Verb::Change)?;
        if let Some(run) = self.start_key_change(program)? {
            return Ok(run);
        }
        let pool = self.node.catalog().pool().clone();
        let run = Run::start_changing(program, |schema| {
            Encoder::new(pool, self.tenant.clone(), schema).encrypting(program.table().cipher())
        });
        Ok(self.in_company(run?, program))
    }

    /// Publishes the result of a run of [`Caller::start_change`] as the table's new version, if it has
    /// changed `rows` rows; `id` is the change's id, if it has one. Rows that were appended since the program's version
    /// stay as they are.
    ///
    /// # Errors
    /// `Stale` when other rows have changed since, `NotFound` when the table is gone; `OverLimit` when memory
    /// is short; `Internal` for another number of rows.
    pub fn publish_change(
        &self,
        program: &BoundProgram,
        run: &Run,
        rows: u64,
        id: Option<LoadId>,
    ) -> Result<Commit<TableInfo>> {
        self.check(Verb::Change)?;
        if let Some(made) = self.publish_key_change(program, &run.take_collected(), rows)? {
            return Ok(made);
        }
        let changed = run.take_changed();
        if changed.rows != rows {
            let message =
                format!("a change would be one of {} rows, not {rows}; nothing was changed", changed.rows);
            return Err(Error::internal(message));
        }
        let base = (program.prepared().version, &**program.table());
        let name = &program.prepared().effective.table;
        self.node.catalog().replace_row_groups(&self.tenant, name, base, &changed.groups, id)
    }

    /// Drops a table; programs that read it run to their end.
    ///
    /// # Errors
    /// `NotFound`.
    pub fn drop_table(&self, name: &TableName) -> Result<Commit<()>> {
        self.check(Verb::Drop)?;
        let dropped = self.node.catalog().drop_table(&self.tenant, name);
        dropped.map_err(|error| self.of_dropped_space(&self.tenant, name, error))
    }

    /// Drops a table of `tenant`, otherwise as [`Caller::drop_table`].
    ///
    /// # Errors
    /// `NotFound`; `Denied` if the caller's right does not reach other tenants.
    pub fn drop_table_of(&self, tenant: &TenantName, name: &TableName) -> Result<Commit<()>> {
        self.check_reach(tenant, Verb::Drop, Verb::DropOfAll)?;
        self.node.catalog().drop_table(tenant, name)
    }

    /// Stores a view; `replace` allows replacing one with the same name.
    ///
    /// # Errors
    /// Errors of [`farpool_catalog::Catalog::create_view`].
    pub fn create_view(&self, view: View, replace: bool) -> Result<Commit<()>> {
        self.check(Verb::CreateView)?;
        self.node.catalog().create_view(&self.tenant, view, replace)
    }

    /// Drops a view of the caller's tenant, or of `tenant`.
    ///
    /// # Errors
    /// `NotFound`; `Denied` for another tenant if the caller's right does not reach it.
    pub fn drop_view(&self, name: &TableName, tenant: Option<&TenantName>) -> Result<Commit<()>> {
        let tenant = tenant.unwrap_or(&self.tenant);
        self.check_reach(tenant, Verb::DropView, Verb::DropOfAll)?;
        let dropped = self.node.catalog().drop_view(tenant, name);
        dropped.map_err(|error| self.of_dropped_space(tenant, name, error))
    }

    /// Creates a schema.
    ///
    /// # Errors
    /// Errors of [`farpool_catalog::Catalog::create_schema`].
    pub fn create_schema(&self, schema: &SchemaName) -> Result<Commit<()>> {
        self.check(Verb::ChangeSchemas)?;
        self.node.catalog().create_schema(&self.tenant, schema)
    }

    /// Drops a schema; with `cascade`, also the tables and views in it. Spaces of keys are not dropped with it.
    ///
    /// # Errors
    /// Errors of [`farpool_catalog::Catalog::drop_schema`]; `Invalid` when there are spaces in it; `Busy` while one is
    /// created.
    pub fn drop_schema(&self, schema: &SchemaName, cascade: bool) -> Result<Commit<()>> {
        self.check(Verb::ChangeSchemas)?;
        let _held = self.node.key_controls().hold_schemas(&self.tenant)?;
        self.check_no_spaces_in(schema)?;
        self.node.catalog().drop_schema(&self.tenant, schema, cascade)
    }

    /// Returns the state of the node; includes other tenants only if the caller's right reaches them.
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

    /// Lists the programs of clients that are in progress; includes other tenants only if the caller's right
    /// reaches them.
    ///
    /// # Errors
    /// `Denied`.
    pub fn queries(&self) -> Result<Vec<QueryInfo>> {
        self.check(Verb::Queries)?;
        let tenant = Verb::QueriesOfAll.check(self.right).is_err().then_some(&self.tenant);
        Ok(self.node.queries().list(tenant, self.node.clock().now_ns()))
    }

    /// Stops a program in progress; the error that its client gets names the caller.
    ///
    /// # Errors
    /// `NotFound` when there is none with this number that the caller may stop.
    pub fn cancel_query(&self, id: u64) -> Result<()> {
        self.check(Verb::CancelQuery)?;
        let found =
            self.node.queries().get(id).filter(|query| {
                query.tenant == self.tenant || Verb::CancelQueryOfAll.check(self.right).is_ok()
            });
        let by = match &self.identity.token {
            Some(token) => format!("token {token:?} of tenant {}", self.tenant),
            None => format!("tenant {}", self.tenant),
        };
        let error = Error::new(ErrorKind::Cancelled, format!("query {id} was cancelled by {by}"));
        match found.is_some_and(|query| query.stop(error)) {
            true => {
                self.node.queries().remove(id);
                Ok(())
            }
            false => Err(Error::not_found(format!("there is no query {id} under way"))
                .advise("`farpool queries` lists those that are")),
        }
    }

    /// Runs `work` on a worker within the caller's share. `then` gets its result; `Cancelled` if the caller's
    /// flag was set before it began; or `Internal` if it panicked.
    pub fn spawn<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Caller) -> Result<T> + Send + 'static,
        then: impl FnOnce(Result<T>) + Send + 'static,
    ) {
        let caller = self.clone();
        let job = Job::new(self.cancel.clone(), move || work(&caller), then);
        self.node.scheduler().submit(&self.region, Class::Foreground, Arc::new(job));
    }

    /// Runs `job`, which may wait for the disk, on a thread for the disk, so that no worker waits.
    pub(crate) fn write(&self, job: impl FnOnce() + Send + 'static) {
        self.node.shares().write(Box::new(job));
    }

    /// Submits `task` to the scheduler, within the caller's share.
    pub(crate) fn submit_task(&self, task: Arc<dyn Task>) -> TaskId {
        self.node.scheduler().submit(&self.region, Class::Foreground, task)
    }

    /// Tells the scheduler that a waiting task of the caller has work again, such as rows that have arrived.
    pub(crate) fn wake_task(&self, task: TaskId) {
        self.node.scheduler().wake(task);
    }

    /// Tells the scheduler that the caller's waiting tasks may have work again, such as a sink with room.
    pub fn wake(&self) {
        self.node.scheduler().wake_region(&self.region);
    }

    /// Returns a function that wakes this caller's tasks, and that does not keep the node alive.
    pub(crate) fn waker(&self) -> Box<dyn Fn() + Send + Sync> {
        let (scheduler, region) = (self.node.scheduler().clone(), self.region.clone());
        Box::new(move || scheduler.wake_region(&region))
    }

    /// Charges time spent for the caller on a thread of its own to its share of the workers' time, in nanoseconds.
    pub fn charge(&self, ns: u64) {
        self.node.scheduler().charge(&self.region, ns);
    }

    /// Returns the clock of the node.
    pub(crate) fn clock(&self) -> &Arc<dyn Clock> {
        self.node.clock()
    }

    pub(crate) fn node(&self) -> &Arc<Node> {
        &self.node
    }

    fn check_reach(&self, tenant: &TenantName, of_own: Verb, of_all: Verb) -> Result<()> {
        self.check(if *tenant == self.tenant { of_own } else { of_all })
    }

    pub(crate) fn check(&self, verb: Verb) -> Result<()> {
        verb.check(self.right)?;
        self.cancel.check()
    }

    fn accounted(&self, run: &Arc<Run>, sink: Arc<dyn Sink>, turn: Option<Turn>) -> Accounted {
        let node = self.node.clone();
        node.run_begins();
        let started_ns = node.clock().now_ns();
        let (tenant, turn) = (self.tenant.clone(), Mutex::new(turn));
        Accounted { sink, run: run.clone(), tenant, node, started_ns, turn }
    }
}

/// A sink that adds the cost of its program to the tenant's totals.
struct Accounted {
    sink: Arc<dyn Sink>,
    run: Arc<Run>,
    tenant: TenantName,
    node: Arc<Node>,
    started_ns: u64,
    turn: Mutex<Option<Turn>>,
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

    fn fetched(&self, place: usize, group: RowGroup) {
        self.sink.fetched(place, group);
    }

    fn finish(&self, result: Result<Receipt>) {
        let totals = self.node.totals();
        let elapsed_ns = self.node.clock().now_ns().saturating_sub(self.started_ns);
        let result = result.map(|receipt| Receipt { elapsed_ns, ..receipt });
        match &result {
            Ok(receipt) => totals.add(&self.tenant, receipt, true),
            Err(_) => totals.add(&self.tenant, &self.run.receipt(), false),
        }
        self.node.run_ends();
        self.node.shares().programs(&self.tenant).took(elapsed_ns);
        // Released before the client learns of the end: its next program must not wait in the queue behind this one.
        drop(self.turn.lock().take());
        self.sink.finish(result);
    }
}

#[cfg(test)]
pub(crate) mod tests;
