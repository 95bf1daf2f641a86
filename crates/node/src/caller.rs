//! The API of the node: every request is a method of a [`Caller`]. The protocols translate bytes to these calls; a
//! database engine with the node inside its own process makes the same calls.
//!
//! Invariant: tables, running programs and statistics are accessible only through a caller. Each method checks the
//! caller's right first ([`crate::rights`]) and accesses only what belongs to the caller's tenant, unless the right
//! reaches all tenants.

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
use crate::version_choice::{HeldVersions, NothingHeld, Sources};
use arrow_array::RecordBatch;
use arrow_schema::{Schema, SchemaRef};
use farpool_catalog::{AwaitedStatistics, Background, Commit, Load};
use farpool_columns::{Encoder, RowGroup, Table};
use farpool_memory::{Account, Reservation};
use farpool_model::{
    Clock, ColumnStatistics, Error, ErrorKind, Expr, Listing, LoadId, LoadOptions, LoadOutcome,
    LoadedVersion, Lookup, Program, QueryInfo, Receipt, Relation, Result, SchemaName, Status, TableChange,
    TableInfo, TableName, TableStatistics, TenantName, Version, View, limits,
};
use farpool_pipeline::{BoundProgram, Cancel, Class, Region, Run, Sink, Task, TaskId};
use parking_lot::Mutex;
use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;
use tokio::runtime::Handle;

/// On whose behalf a request is executed: a client of a tenant, with its right, its share of the workers' time, its
/// account of memory, the timeout of its requests, and a flag that cancels them. Clones share all of these.
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

/// The forms in which a program may return its rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shape {
    /// The program returns its rows as Arrow record batches only.
    Batches,
    /// The program returns its rows as Arrow record batches or, where that is possible without decoding, as row groups
    /// encoded as in the pool.
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

    /// Sets the timeout of each request of this caller; `None` for none. The protocol that serves the caller enforces
    /// the timeout; this type only stores it.
    #[must_use]
    pub fn with_timeout(self, timeout: Option<Duration>) -> Self {
        Caller { timeout, ..self }
    }

    /// Sets the identity of the client, which lists of running programs show.
    #[must_use]
    pub(crate) fn known_as(self, identity: Identity) -> Self {
        Caller { identity: Arc::new(identity), ..self }
    }

    /// Returns the identity of the client.
    pub(crate) fn identity(&self) -> &Arc<Identity> {
        &self.identity
    }

    /// Returns the timeout of the caller's requests; `None` for none.
    pub fn timeout(&self) -> Option<Duration> {
        self.timeout
    }

    /// Returns a copy of this caller for one request, which is stopped when `cancel` is set.
    #[must_use]
    pub fn until(&self, cancel: Cancel) -> Self {
        Caller { cancel, ..self.clone() }
    }

    /// Returns the tenant that the caller acts for.
    pub fn tenant(&self) -> &TenantName {
        &self.tenant
    }

    /// Returns the right (permission level) that the caller's token grants.
    pub fn right(&self) -> Right {
        self.right
    }

    /// Returns descriptions of the tenant's tables, including spaces of keys, sorted by name.
    ///
    /// # Errors
    /// `Denied` if the caller's right (such as read, write or admin) does not include it. Every method that checks the
    /// caller's right has this error.
    pub fn tables(&self) -> Result<Vec<TableInfo>> {
        self.check(Verb::Describe)?;
        let mut tables = self.node.catalog().tables(&self.tenant);
        self.add_spaces(&self.tenant, &mut tables, &[]);
        Ok(tables)
    }

    /// Returns the tables, views and schemas of `tenant`; of the caller's tenant if `tenant` is `None`.
    ///
    /// # Errors
    /// `Denied` for another tenant if the caller's right does not reach it.
    pub fn list(&self, tenant: Option<&TenantName>) -> Result<Listing> {
        let tenant = tenant.unwrap_or(&self.tenant);
        self.check_reach(tenant, Verb::Describe, Verb::DescribeOfAll)?;
        let mut listing = self.node.catalog().list(tenant);
        self.add_spaces(tenant, &mut listing.tables, &listing.views);
        // Schemas of spaces are added, because keys have a log of their own: after a power loss, a dropped space may
        // exist again although its schema does not.
        let mut schemas: BTreeSet<SchemaName> = listing.schemas.into_iter().collect();
        let names = listing.tables.iter().map(|table| &table.name);
        schemas.extend(names.filter(|name| !name.is_public()).map(TableName::schema));
        listing.schemas = schemas.into_iter().collect();
        Ok(listing)
    }

    /// Adds the spaces of keys (namespaces of keys, which SQL reads as tables) to the tables of a tenant, except spaces
    /// whose name a table or view has.
    fn add_spaces(&self, tenant: &TenantName, tables: &mut Vec<TableInfo>, views: &[TableName]) {
        let is_taken =
            |name: &TableName| tables.iter().any(|table| table.name == *name) || views.contains(name);
        let spaces = self.spaces_of(tenant, is_taken);
        if !spaces.is_empty() {
            tables.extend(spaces);
            tables.sort_by(|a, b| a.name.cmp(&b.name));
        }
    }

    /// Returns the description of a table's newest version; `None` if the newest version is `known`.
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

    /// Returns the relation with this name: a view, or the description of a table's newest version; `None` if the
    /// newest version is `known`.
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

    /// Returns the statistics of these columns of a table as far as they have been computed.
    ///
    /// # Errors
    /// `NotFound` if there is no such table; `Invalid` for a column that the table does not have.
    pub fn known_statistics(&self, name: &TableName, columns: &[usize]) -> Result<TableStatistics> {
        self.check(Verb::Statistics)?;
        self.node
            .catalog()
            .known_statistics(&self.tenant, name, columns)
            .map_err(|error| self.of_space(name, error))
    }

    /// Returns the statistics of a table. Statistics that are not known yet are computed on the calling thread and some
    /// threads that it starts, so this is for a node inside an engine's process.
    ///
    /// # Errors
    /// `NotFound` if there is no such table; `OverLimit` when the pool has no room for the profile.
    pub fn statistics(&self, name: &TableName) -> Result<TableStatistics> {
        self.check(Verb::Statistics)?;
        self.node.catalog().statistics(&self.tenant, name).map_err(|error| self.of_space(name, error))
    }

    /// Returns the statistics of a table as a computation that has not begun: the caller continues it step by step, or
    /// passes it to the workers by [`Caller::submit_statistics`].
    ///
    /// # Errors
    /// `NotFound` if there is no such table.
    pub(crate) fn await_statistics(&self, name: &TableName) -> Result<AwaitedStatistics> {
        self.check(Verb::Statistics)?;
        let awaited = self.node.catalog().await_statistics(&self.tenant, name, self.waker());
        awaited.map_err(|error| self.of_space(name, error))
    }

    /// Returns the error for an operation on tables that was tried on a space of keys; returns `error` if there is no
    /// space with this name.
    fn of_space(&self, name: &TableName, error: Error) -> Error {
        let is_space = error.kind == ErrorKind::NotFound && self.is_space(name);
        let advice =
            "spaces have no profile, and are created and dropped by FP.SPACE over the Redis protocol";
        if is_space { not_for_spaces(name, advice) } else { error }
    }

    /// Returns the error for DROP TABLE or DROP VIEW of a space of keys; returns `error` if there is no space with this
    /// name.
    fn of_dropped_space(&self, tenant: &TenantName, name: &TableName, error: Error) -> Error {
        if error.kind != ErrorKind::NotFound || *tenant != self.tenant || !self.is_space(name) {
            return error;
        }
        let message = format!("{:?} is a space of keys, neither a table nor a view", name.as_str());
        Error::invalid(message).advise("spaces are dropped by FP.SPACE DROP over the Redis protocol")
    }

    /// Makes the workers compute statistics within the caller's share of time. `then` is called with the result:
    /// `Cancelled` if the caller was cancelled before the end; `OverLimit` if a wait for memory, which runs on
    /// `runtime`, timed out.
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

    /// Creates the object that waits for memory on behalf of a profile (column statistics) that the caller has
    /// requested. Its waits are tasks of `runtime`.
    pub(crate) fn profile_memory(&self, runtime: Option<Handle>) -> ProfileMemory {
        ProfileMemory::new(self.account.clone(), runtime, self.waker())
    }

    /// Returns the newest version of a table and its data, for a program to read.
    ///
    /// # Errors
    /// `NotFound` if there is no such table.
    pub fn source(&self, name: &TableName) -> Result<(Version, Arc<Table>)> {
        self.check(Verb::Prepare)?;
        self.node.catalog().get(&self.tenant, name).or_else(|error| self.space_source(name).ok_or(error))
    }

    /// Binds a program to a version of its table, and decides for each of its operators whether and how the node
    /// executes it (push-down). The programs of its lookups are bound to the newest versions of their tables; one
    /// that names another version is refused.
    ///
    /// # Errors
    /// Errors for mistakes in the program or in that of a lookup, whose tables must be the caller's; `Cancelled` if the
    /// caller was cancelled.
    pub fn prepare(&self, program: &Program, version: Version, table: Arc<Table>) -> Result<BoundProgram> {
        self.prepare_with(program, version, table, &NothingHeld)
    }

    /// Does the same as [`Caller::prepare`] for a program whose lookups may also name the versions of their tables that
    /// are in `held`. All lookups over a table that name no version read the same one: that of the program, if it scans
    /// the table.
    ///
    /// # Errors
    /// Errors of [`Caller::prepare`]; `Stale` if the table of a lookup has other columns than the lookup says, or a
    /// version is neither held nor the newest.
    pub fn prepare_with(
        &self,
        program: &Program,
        version: Version,
        table: Arc<Table>,
        held: &impl HeldVersions,
    ) -> Result<BoundProgram> {
        self.check(Verb::Prepare)?;
        program.check_lookups()?;
        let mut sources = Sources { caller: self, held, newest: HashMap::new() };
        sources.newest.insert(program.table.clone(), (version, table.clone()));
        let (table, sides) = self.inputs(program, table, &mut sources)?;
        BoundProgram::prepare_joined(program, table, version, self.node.budget(), sides)
    }

    fn prepare_lookup(
        &self,
        lookup: &Lookup,
        sources: &mut Sources<'_, impl HeldVersions>,
    ) -> Result<Arc<BoundProgram>> {
        let (version, table) = match &lookup.given {
            Some(rows) => {
                let (pool, tenant) = (self.node.catalog().pool().clone(), self.tenant.clone());
                let table = farpool_columns::table_of(rows, &lookup.table_schema, pool, tenant)?;
                (Version(0), Arc::new(table))
            }
            None => sources.of(lookup)?,
        };
        let (table, sides) = self.inputs(&lookup.program, table, sources)?;
        BoundProgram::prepare_side(&lookup.program, table, version, self.node.budget(), sides).map(Arc::new)
    }

    /// Returns what a program reads: its table, for a space of keys with the rows as of now, and the programs of its
    /// lookups.
    ///
    /// # Errors
    /// Errors of [`Caller::prepare_with`].
    fn inputs(
        &self,
        program: &Program,
        table: Arc<Table>,
        sources: &mut Sources<'_, impl HeldVersions>,
    ) -> Result<(Arc<Table>, Vec<Arc<BoundProgram>>)> {
        if !program.lookups.is_empty() && table.live_rows().is_some() {
            let message =
                format!("{:?} is a space of keys: its rows have no lookups", program.table.as_str());
            return Err(Error::invalid(message).advise("join the rows in the engine"));
        }
        let sides = program.lookups.iter().map(|lookup| self.prepare_lookup(lookup, sources));
        let sides = sides.collect::<Result<_>>()?;
        Ok((self.chosen(program, table)?, sides))
    }

    /// Creates a run (an execution) of a program, with `conditions` as an additional filter. Nothing is executed until
    /// the run is stepped or passed to [`Caller::submit`].
    ///
    /// # Errors
    /// `Invalid` for conditions that the node cannot evaluate; `Cancelled` if the caller was cancelled.
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

    /// Makes `run` share scans with other runs over the same table (a row group is decoded once for all of them),
    /// unless that is turned off; returns `run`.
    pub(crate) fn in_company(&self, run: Arc<Run>, program: &BoundProgram) -> Arc<Run> {
        if self.node.shares_scans() {
            run.join(self.node.shares().shared_scans(&self.tenant).sharing(program, &self.account));
        }
        run
    }

    /// Reserves the memory that `run` needs, waiting until other work releases enough. Must be called before the run's
    /// first step, because a run takes memory only up to its reservation.
    ///
    /// # Errors
    /// `OverLimit`, with sizes in the message, after a wait of [`farpool_model::limits::WORK_WAIT_MS_MAX`], or at once
    /// if so much can never be reserved.
    pub async fn admit(&self, run: &Run) -> Result<()> {
        admission::admit(run, self.account.empty()).await
    }

    /// Returns the account from which memory is reserved for the plans of the tenant's programs that wait for a turn
    /// (the number of concurrent programs is limited).
    pub(crate) fn places(&self) -> Account {
        self.node.places(&self.tenant)
    }

    /// Returns the limits of the caller's tenant.
    pub(crate) fn limits(&self) -> TenantLimits {
        self.node.shares().limits(&self.tenant)
    }

    /// Takes one of the turns of the caller's tenant (permissions to run a program; their number is limited) or, if all
    /// are taken, a place in the queue; `wake` is then called when the turn comes. Does not block.
    ///
    /// # Errors
    /// `Busy` when too many programs of the tenant wait already.
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

    /// Makes the workers execute `run` within the caller's share of time. `sink` receives its batches and, at the end,
    /// its execution statistics ([`Receipt`]).
    pub fn submit(&self, run: Arc<Run>, sink: Arc<dyn Sink>) {
        self.submit_in_turn(run, sink, None);
    }

    /// Does the same as [`Caller::submit`] for a program that has a turn, which is released when the program ends.
    pub(crate) fn submit_in_turn(&self, run: Arc<Run>, sink: Arc<dyn Sink>, turn: Option<Turn>) {
        let accounted = self.accounted(&run, sink, turn);
        self.node.scheduler().submit_run(&self.region, run, Arc::new(accounted));
    }

    /// Adds the resources of a program to the tenant's usage totals, for a caller that has executed the program's steps
    /// itself. `finished` says whether the program ran to its end.
    pub fn record(&self, receipt: &Receipt, finished: bool) {
        self.node.totals().add(&self.tenant, receipt, finished);
    }

    /// Begins a load of rows of `schema` into a table.
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

    /// Registers the id of a load that begins, or returns the record of an earlier load with this id. `end` must end
    /// the load if its rows have not all arrived. `held` is the reservation of [`limits::LOAD_OUTCOME_BYTES`] for the
    /// record; with `None`, they are reserved now.
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

    /// Calls `then` with the outcome of a load of the caller's tenant and the newest version whose load's outcome was
    /// dropped; at once if the load has ended, otherwise at its end. Ends a load whose rows have not all arrived.
    ///
    /// # Errors
    /// `Busy` when too many requests wait for the same outcome; `OverLimit` when there is no memory to remember the
    /// outcome.
    pub(crate) fn load_outcome(
        &self,
        id: LoadId,
        then: impl FnOnce(LoadOutcome, Version) + Send + 'static,
    ) -> Result<()> {
        self.check(Verb::LoadOutcome)?;
        let outcomes = self.node.shares().outcomes(&self.tenant);
        outcomes.ask(id, &self.account, self.clock().now_ns(), then)
    }

    /// Returns the description of the table version that a load with rows of `schema` has made. If the table has
    /// changed since, the description has no statistics of columns.
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

    /// Applies `changes` (such as adding a column) to a table, all or none.
    ///
    /// # Errors
    /// Errors of [`farpool_catalog::Catalog::alter_table`].
    pub fn alter_table(&self, name: &TableName, changes: &[TableChange]) -> Result<Commit<TableInfo>> {
        self.check(Verb::Alter)?;
        let altered = self.node.catalog().alter_table(&self.tenant, name, changes);
        altered.map_err(|error| self.of_space(name, error))
    }

    /// Creates a run that changes the rows that pass the filter of `program`, or removes them if the program computes
    /// no columns. It is executed like a run of [`Caller::start`]; changes become visible by
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

    /// Publishes the result of a run of [`Caller::start_change`] as the new version of its table, if the run has
    /// changed exactly `rows` rows. `id` is the id of the change, if it has one. Rows that were appended since the
    /// version that the program read stay as they are.
    ///
    /// # Errors
    /// `Stale` when rows other than appended ones have changed since; `NotFound` when the table was dropped;
    /// `OverLimit` when memory is short; `Internal` for another number of rows.
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

    /// Drops a table. Programs that are reading it run to their end.
    ///
    /// # Errors
    /// `NotFound` if there is no such table.
    pub fn drop_table(&self, name: &TableName) -> Result<Commit<()>> {
        self.check(Verb::Drop)?;
        let dropped = self.node.catalog().drop_table(&self.tenant, name);
        dropped.map_err(|error| self.of_dropped_space(&self.tenant, name, error))
    }

    /// Does the same as [`Caller::drop_table`] for a table of `tenant`.
    ///
    /// # Errors
    /// `NotFound` if `tenant` has no such table; `Denied` if the caller's right does not reach other tenants.
    pub fn drop_table_of(&self, tenant: &TenantName, name: &TableName) -> Result<Commit<()>> {
        self.check_reach(tenant, Verb::Drop, Verb::DropOfAll)?;
        self.node.catalog().drop_table(tenant, name)
    }

    /// Stores a view; `replace` allows replacing a view with the same name.
    ///
    /// # Errors
    /// Errors of [`farpool_catalog::Catalog::create_view`].
    pub fn create_view(&self, view: View, replace: bool) -> Result<Commit<()>> {
        self.check(Verb::CreateView)?;
        self.node.catalog().create_view(&self.tenant, view, replace)
    }

    /// Drops a view of `tenant`; of the caller's tenant if `tenant` is `None`.
    ///
    /// # Errors
    /// `NotFound` if there is no such view; `Denied` for another tenant if the caller's right does not reach it.
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

    /// Drops a schema; with `cascade`, also the tables and views in it. Spaces of keys are never dropped by this.
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

    /// Returns the state of the node. Other tenants are included only if the caller's right reaches them.
    ///
    /// # Errors
    /// `Denied` if the caller's right does not include this request.
    pub fn status(&self) -> Result<Status> {
        self.check(Verb::Status)?;
        Ok(match Verb::StatusOfAll.check(self.right) {
            Ok(()) => self.node.status(),
            Err(_) => self.node.status_for(&self.tenant),
        })
    }

    /// Returns descriptions of the running programs of clients. Other tenants' programs are included only if the
    /// caller's right reaches them.
    ///
    /// # Errors
    /// `Denied` if the caller's right does not include this request.
    pub fn queries(&self) -> Result<Vec<QueryInfo>> {
        self.check(Verb::Queries)?;
        let tenant = Verb::QueriesOfAll.check(self.right).is_err().then_some(&self.tenant);
        Ok(self.node.queries().list(tenant, self.node.clock().now_ns()))
    }

    /// Stops a running program. The error that its client receives names this caller.
    ///
    /// # Errors
    /// `NotFound` when there is no running program with this id that the caller may stop.
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

    /// Makes a worker call `work` within the caller's share of time, then `then` with the result: `Cancelled` if the
    /// caller was cancelled before `work` was called; `Internal` if `work` panicked.
    pub fn spawn<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Caller) -> Result<T> + Send + 'static,
        then: impl FnOnce(Result<T>) + Send + 'static,
    ) {
        let caller = self.clone();
        let job = Job::new(self.cancel.clone(), move || work(&caller), then);
        self.node.scheduler().submit(&self.region, Class::Foreground, Arc::new(job));
    }

    /// Calls `job`, which may block on the disk, on a thread for disk work, so that no worker blocks. Returns at once.
    pub(crate) fn write(&self, job: impl FnOnce() + Send + 'static) {
        self.node.shares().write(Box::new(job));
    }

    /// Submits `task` to the scheduler, within the caller's share of time; returns its id.
    pub(crate) fn submit_task(&self, task: Arc<dyn Task>) -> TaskId {
        self.node.scheduler().submit(&self.region, Class::Foreground, task)
    }

    /// Tells the scheduler that a waiting task of the caller has work again, for example because rows have arrived.
    pub(crate) fn wake_task(&self, task: TaskId) {
        self.node.scheduler().wake(task);
    }

    /// Tells the scheduler that waiting tasks of the caller may have work again, for example because a client has read
    /// rows and its sink accepts more.
    pub fn wake(&self) {
        self.node.scheduler().wake_region(&self.region);
    }

    /// Returns a function that does the same as [`Caller::wake`], without a reference that keeps the node alive.
    pub(crate) fn waker(&self) -> Box<dyn Fn() + Send + Sync> {
        let (scheduler, region) = (self.node.scheduler().clone(), self.region.clone());
        Box::new(move || scheduler.wake_region(&region))
    }

    /// Charges `ns` nanoseconds, which another thread has worked for the caller, to the caller's share of the workers'
    /// time.
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

/// A sink that adds the cost of its program to the tenant's usage totals, and releases its slot among the programs that
/// may run at the same time when the program ends.
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
        // Released before the client learns of the end, so that the client's next program does not wait for this turn.
        drop(self.turn.lock().take());
        self.sink.finish(result);
    }
}

#[cfg(test)]
pub(crate) mod tests;
