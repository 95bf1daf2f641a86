//! The catalog: which tables each tenant has, and the current version of each. A [`Load`] makes a new version and swaps
//! it in.
//!
//! Versions are swapped, never changed: a reader that got a table keeps its version, and its pages, for as long as it
//! holds the `Arc`. A catalog with a data directory (`durable/mod.rs`) records each change in a log, and readers see it
//! once that is durable (`state.rs`).
//!
//! Invariant: version numbers only grow over the life of a catalog, across all tables, so that a version identifies one
//! state of one table for ever. A version never changes, and a load that does not commit leaves no trace: neither in
//! the catalog nor in the pool's memory.

#![forbid(unsafe_code)]

mod alter;
mod append;
mod apply;
mod background;
mod begin;
mod changes;
mod claims;
mod commit;
mod durable;
mod helper_threads;
mod load;
mod load_waits;
mod merge;
mod names;
mod pieces;
mod pins;
mod quota;
mod row_changes;
mod schemas;
mod state;
mod statistics;
mod suggestions;
mod tap;
mod views;

pub use append::Append;
pub use background::{Background, Chore, after_a_moment};
pub use claims::Claim;
pub use commit::Commit;
pub use durable::{
    Access, AccessKind, AccessTrace, Backup, Cache, PlaceOnDisk, Recorded, Recovery, ValueRequests,
    adopt_backup, check_data, place_on_disk,
};
pub use helper_threads::HelperThreads;
pub use load::Load;
pub use pieces::{Piece, PieceDone};
pub use state::Loads;
pub use statistics::AwaitedStatistics;
pub use tap::{AwaitedProfile, StepOutcome};

use append::AppendQueue;
use changes::{Change, ChangeKind, NewTable};
use durable::Durable;
use farpool_columns::{Encoder, Table};
use farpool_disk::{LogOver, TableKey};
use farpool_memory::{Pool, Reservation, WorkMemory};
use farpool_model::cast::{u64_from, usize_saturating};
use farpool_model::{
    ColumnStates, Error, LoadId, Result, TableInfo, TableName, TableStatistics, TenantName, Version, limits,
};
use merge::Merges;
use parking_lot::RwLock;
use quota::DiskQuotas;
use state::{CatalogState, Expected};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use tap::{CollectedProfile, Tap};

/// The tables and views of all tenants. Cheap to read while loads run: the lock is held for a look-up or a
/// swap.
#[derive(Debug)]
pub struct Catalog {
    pool: Arc<Pool>,
    /// Budget from which tables reserve their memory outside the pool.
    work: Option<Arc<WorkMemory>>,
    state: RwLock<CatalogState>,
    /// The data directory; empty for a catalog in memory.
    durable: OnceLock<Arc<Durable>>,
    disk_quotas: RwLock<DiskQuotas>,
    /// Bytes of the log after which a checkpoint is made.
    log_bytes: u64,
    trace: Option<Arc<AccessTrace>>,
    log_over: LogOver,
    taps_closed: AtomicBool,
    /// Number of taps and merges made; the source of their numbers.
    chores_made: AtomicU64,
    background: Arc<dyn Background>,
    helpers: Arc<dyn HelperThreads>,
}

#[derive(Clone, Debug)]
struct Current {
    version: Version,
    /// The version since which rows have only been appended.
    since: Version,
    table: Arc<Table>,
    /// Key of the table in segments; `None` without an encrypted data directory.
    key: Option<Arc<TableKey>>,
    /// Whether the values stay in memory.
    is_pinned: bool,
    /// Number of row groups, the first ones, that are no longer merged, and the number of their rows.
    settled: usize,
    rows_settled: u64,
    /// Profiles the settled row groups.
    tap: Option<Arc<Tap>>,
    /// Profiles all rows, made on request where `tap` does not cover them.
    whole: Option<Arc<Tap>>,
    /// The queue of appends and the merges of the table; each version hands them to the next.
    append_queue: Arc<AppendQueue>,
    merges: Arc<Merges>,
}

/// A tap that has been given all rows of a version, or of its newly settled row groups.
#[derive(Clone, Debug)]
struct Tapped {
    tap: Arc<Tap>,
    /// The tap of the rows that come before.
    before: Option<Arc<Tap>>,
    encoder: Encoder,
}

impl Tapped {
    /// Marks the input of the tap as complete and returns it.
    fn complete(self) -> Arc<Tap> {
        self.tap.complete(self.before, self.encoder);
        self.tap
    }
}

impl Catalog {
    /// Creates a catalog without tables. Loads take their memory from `pool` and encode with the threads of
    /// `helpers`; `background` computes profiles and merges small row groups.
    pub fn new(pool: Arc<Pool>, helpers: Arc<dyn HelperThreads>, background: Arc<dyn Background>) -> Self {
        let (taps_closed, chores_made) = (AtomicBool::new(false), AtomicU64::new(0));
        let (state, durable) = (RwLock::default(), OnceLock::new());
        let (disk_quotas, log_bytes) = (RwLock::default(), u64_from(limits::LOG_BYTES_DEFAULT));
        Catalog {
            pool,
            work: None,
            state,
            durable,
            disk_quotas,
            log_bytes,
            trace: None,
            log_over: LogOver::default(),
            taps_closed,
            chores_made,
            background,
            helpers,
        }
    }

    /// Makes a checkpoint whenever the log has grown by `log_bytes`. A start replays at most about that many bytes,
    /// plus those appended during the checkpoint.
    #[must_use]
    pub fn with_log_bytes(mut self, log_bytes: u64) -> Self {
        self.log_bytes = log_bytes;
        self
    }

    /// Records in `trace` the accesses to the pool as a cache of a data directory that is opened later.
    #[must_use]
    pub fn with_trace(mut self, trace: Option<Arc<AccessTrace>>) -> Self {
        self.trace = trace;
        self
    }

    /// Makes changes durable in a log over that of a data directory that is opened later.
    #[must_use]
    pub fn with_log(mut self, log_over: LogOver) -> Self {
        self.log_over = log_over;
        self
    }

    /// Makes tables reserve their memory outside the pool from `work`.
    #[must_use]
    pub fn within(mut self, work: Arc<WorkMemory>) -> Self {
        self.work = Some(work);
        self
    }

    /// Disables background profiling for loads that start after this call, as [`Load::without_tap`] does for
    /// one load; a profile is then computed on first request.
    pub fn close_taps(&self) {
        self.taps_closed.store(true, Ordering::Relaxed);
    }

    /// Returns the pool that holds the tables.
    pub fn pool(&self) -> &Arc<Pool> {
        &self.pool
    }

    /// Returns the highest version number given so far to any table.
    pub fn newest_version(&self) -> Version {
        Version(self.state.read().versions_made)
    }

    /// Tenants that have a table, by name.
    pub fn tenant_names(&self) -> Vec<TenantName> {
        self.state.read().visible.tables.keys().cloned().collect()
    }

    /// Returns descriptions of the tables of `tenant`, by name, without the spreads of their columns, and with the
    /// sizes of the parts in memory.
    pub fn tables(&self, tenant: &TenantName) -> Vec<TableInfo> {
        // Changes do not wait until all chunks are counted.
        let tables = self.state.read().visible.tables.get(tenant).cloned().unwrap_or_default();
        tables.iter().map(|(name, current)| current.brief(name)).collect()
    }

    /// Returns the current version of a table.
    ///
    /// # Errors
    /// `NotFound`, with the names of existing tables.
    pub fn get(&self, tenant: &TenantName, name: &TableName) -> Result<(Version, Arc<Table>)> {
        self.state.read().visible(tenant, name).map(|current| (current.version, current.table.clone()))
    }

    /// Returns the newest version of a table, which may not be durable yet. Changes are checked against it; readers do
    /// not see it.
    ///
    /// # Errors
    /// `NotFound`, with the names of existing tables.
    pub fn get_newest(&self, tenant: &TenantName, name: &TableName) -> Result<(Version, Arc<Table>)> {
        self.newest(tenant, name).map(|current| (current.version, current.table))
    }

    /// Describes the current version of a table, with the spreads of its columns as far as they are known.
    ///
    /// # Errors
    /// `NotFound`, with the names of existing tables.
    pub fn info(&self, tenant: &TenantName, name: &TableName) -> Result<TableInfo> {
        let current = self.state.read().visible(tenant, name)?.clone();
        current.want_profile();
        Ok(current.info(name))
    }

    /// Returns an empty reservation for a table's memory outside the pool; `None` without a budget.
    fn outside(&self, tenant: &TenantName) -> Option<Reservation> {
        self.work.as_ref().map(|work| work.account(tenant).empty())
    }

    /// Returns the newest state of a table, which a change begins with.
    fn newest(&self, tenant: &TenantName, name: &TableName) -> Result<Current> {
        self.state.read().newest(tenant, name).cloned()
    }

    /// Drops a table. Its pages are free once no query reads them any more.
    ///
    /// # Errors
    /// `NotFound`, with the names of existing tables.
    pub fn drop_table(self: &Arc<Self>, tenant: &TenantName, name: &TableName) -> Result<Commit<()>> {
        let change = Change::new(tenant, ChangeKind::Drop(name.clone()));
        self.make_named(change, |state| state.newest(tenant, name).map(|_| true))
    }

    /// Makes `new` the newest version of a table if its newest state is as `expected`. `load` is the id of the load that
    /// made it, and `tapped` profiles it.
    fn put(
        self: &Arc<Self>,
        tenant: &TenantName,
        name: &TableName,
        new: NewTable,
        tapped: Option<Tapped>,
        expected: Expected,
        load: Option<LoadId>,
    ) -> Result<Commit<TableInfo>> {
        let kind = ChangeKind::Put { name: name.clone(), table: new };
        let change = Change { loads: load.into_iter().collect(), ..Change::new(tenant, kind) };
        let planned = self.plan(change, None, tapped)?;
        let made = self.make(planned, |state| state.check(tenant, name, expected).map(|()| true))?;
        made.ok_or_else(unmade)?.announced()
    }

    /// Reserves the table's memory outside the pool. Versions share most of it, but each may outlive the others, so
    /// that each reserves all of it.
    fn holding(&self, tenant: &TenantName, table: Table) -> Result<Table> {
        let Some(mut outside) = self.outside(tenant) else { return Ok(table) };
        outside.try_grow(usize_saturating(table.bytes_outside_pool))?;
        Ok(table.holding(outside))
    }

    fn next_chore(&self) -> u64 {
        self.chores_made.fetch_add(1, Ordering::Relaxed)
    }
}

/// Returns the error of a change whose check neither lets it be made nor says why not.
fn unmade() -> Error {
    Error::internal("a change was neither made nor refused")
}

impl Current {
    /// Returns whether this is the same state of the same table.
    fn is_same(&self, other: &Current) -> bool {
        Arc::ptr_eq(&self.table, &other.table)
    }

    /// Has small row groups merged, and describes the version.
    fn announced(&self, name: &TableName) -> TableInfo {
        self.merges.announce(self);
        self.info(name)
    }

    /// Describes the version with all that is known so far.
    fn info(&self, name: &TableName) -> TableInfo {
        self.told(name, &self.found())
    }

    fn told(&self, name: &TableName, found: &ProfileProgress) -> TableInfo {
        let mut info = self.describe(name, found);
        let spreads = found.collected.iter().flat_map(|collected| &collected.spreads);
        for (column, spread) in info.columns.iter_mut().zip(spreads) {
            column.spread.clone_from(spread);
        }
        info
    }

    /// Describes the version for lists of many tables: without spreads.
    fn brief(&self, name: &TableName) -> TableInfo {
        let bytes_resident = Some(self.table.bytes_resident());
        TableInfo { bytes_resident, ..self.describe(name, &self.found()) }
    }

    fn statistics(&self, name: &TableName) -> TableStatistics {
        // One snapshot, so that description and states agree.
        let found = self.found();
        let table = self.told(name, &found);
        let unknown = || vec![ColumnStates::default(); table.columns.len()];
        TableStatistics {
            columns: found.collected.as_ref().map_or_else(unknown, |collected| collected.columns.clone()),
            moments: found.collected.and_then(|collected| collected.moments.clone()),
            table,
        }
    }

    /// Has the profile read soon, if a start has left it on disk. Not under the lock of the names.
    fn want_profile(&self) {
        if let Some(tap) = &self.tap {
            tap.want();
        }
    }

    /// Returns the tap that profiles all rows, if there is one.
    fn tap_of_all(&self) -> Option<&Arc<Tap>> {
        let is_whole = self.settled == self.table.row_groups.len();
        self.whole.as_ref().or_else(|| self.tap.as_ref().filter(|_| is_whole))
    }

    /// Returns the results of profiling so far: for all rows or, until these are complete, for sufficiently many of
    /// them.
    fn found(&self) -> ProfileProgress {
        let all = self.tap_of_all();
        // Must be read before the outcome below, which may be that of the same tap and could settle in
        // between.
        let settled = self.tap.as_ref().map(|tap| tap.settled());
        let outcome = all.and_then(|tap| tap.settled());
        if let Some(outcome) = outcome {
            return ProfileProgress { collected: outcome.ok(), rows_profiled: None };
        }
        let collected = match &settled {
            Some(Some(Ok(collected))) if is_most(self.rows_settled, self.table.rows) => {
                Some(collected.clone())
            }
            _ => None,
        };
        let rows_profiled = match (all, settled) {
            (Some(tap), _) => Some(tap.rows_seen()),
            (None, Some(None)) => self.tap.as_ref().map(|tap| tap.rows_seen()),
            (None, Some(Some(Ok(_)))) => Some(self.rows_settled),
            (None, Some(Some(Err(_))) | None) => None,
        };
        ProfileProgress { collected, rows_profiled }
    }

    /// Describes the version without spreads.
    fn describe(&self, name: &TableName, found: &ProfileProgress) -> TableInfo {
        let mut columns = self.table.statistics.clone();
        let estimates = found.collected.iter().flat_map(|collected| &collected.distinct);
        for (column, estimate) in columns.iter_mut().zip(estimates) {
            column.distinct_estimate = estimate.filter(|_| column.distinct_count.is_none());
        }
        TableInfo {
            name: name.clone(),
            version: self.version,
            schema: self.table.schema.clone(),
            rows: self.table.rows,
            bytes_plain: self.table.bytes_plain,
            bytes_encoded: self.table.bytes_encoded,
            columns,
            rows_profiled: found.rows_profiled,
            encryption: self.table.tier(),
            bytes_resident: None,
            is_pinned: self.is_pinned,
        }
    }
}

/// Results of profiling so far for the rows of a version.
struct ProfileProgress {
    collected: Option<Arc<CollectedProfile>>,
    /// As in [`TableInfo::rows_profiled`].
    rows_profiled: Option<u64>,
}

/// Returns whether a profile of `rows` rows may stand for all `of` rows: estimates are seldom better than that.
fn is_most(rows: u64, of: u64) -> bool {
    of - rows <= of / 8
}

#[cfg(test)]
mod tests;
