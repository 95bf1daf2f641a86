//! The catalog: which tables each tenant has, and the current version of each. A [`Load`] creates a new version and
//! swaps it in.
//!
//! Versions are swapped, never changed: a reader that got a table keeps its version, and the memory of that version, as
//! long as it holds the `Arc`. A catalog with a data directory (`durable/mod.rs`) records each change in a log, and
//! readers see the change when its record is durable (`state.rs`).
//!
//! Terms: a *tap* computes the profile (the statistics) of a table's rows in the background. A *settled* row group is
//! large enough that it is no longer merged with others.
//!
//! Invariant: version numbers only grow over the life of a catalog, across all tables, so that a version identifies one
//! state of one table for ever. A version never changes, and a load that does not commit leaves no trace, neither in
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

/// The tables and views of all tenants. Reading is cheap while loads run, because the lock is held only for a look-up
/// or a swap.
#[derive(Debug)]
pub struct Catalog {
    pool: Arc<Pool>,
    /// Working memory, from which tables reserve the memory that they take outside the pool; `None` for no limit.
    work: Option<Arc<WorkMemory>>,
    state: RwLock<CatalogState>,
    /// The data directory; empty for a catalog that is in memory only.
    durable: OnceLock<Arc<Durable>>,
    disk_quotas: RwLock<DiskQuotas>,
    /// Bytes of the log after which a checkpoint is made.
    log_bytes: u64,
    trace: Option<Arc<AccessTrace>>,
    log_over: LogOver,
    taps_closed: AtomicBool,
    /// Number of taps (profile computations) and merges created so far, from which new ones get their sequence
    /// numbers.
    chores_made: AtomicU64,
    background: Arc<dyn Background>,
    helpers: Arc<dyn HelperThreads>,
}

#[derive(Clone, Debug)]
struct Current {
    version: Version,
    /// Version after which rows have only been appended, not changed or removed.
    since: Version,
    table: Arc<Table>,
    /// Encryption key of the table's data in segments; `None` without an encrypted data directory.
    key: Option<Arc<TableKey>>,
    /// Whether the table is pinned: its values are never evicted from memory.
    is_pinned: bool,
    /// Number of leading row groups that are settled: they are no longer merged.
    settled: usize,
    rows_settled: u64,
    /// Tap that profiles the settled row groups.
    tap: Option<Arc<Tap>>,
    /// Tap that profiles all rows; `None` if it was not requested, or if `tap` covers all rows.
    whole: Option<Arc<Tap>>,
    /// Queue of appends and merges of the table. All versions of the table share it.
    append_queue: Arc<AppendQueue>,
    merges: Arc<Merges>,
}

/// A tap (profile computation) that has received all rows of a version, or all of its newly settled row groups.
#[derive(Clone, Debug)]
struct Tapped {
    tap: Arc<Tap>,
    /// Tap of the rows before, on whose profile this one builds.
    before: Option<Arc<Tap>>,
    encoder: Encoder,
}

impl Tapped {
    /// Tells the tap that it has all its rows, and returns it.
    fn complete(self) -> Arc<Tap> {
        self.tap.complete(self.before, self.encoder);
        self.tap
    }
}

impl Catalog {
    /// Creates a catalog without tables. Loads take their memory from `pool` and encode rows on the threads of
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

    /// Sets the bytes by which the log grows between two checkpoints. A start replays at most about that many bytes,
    /// plus those that were appended during the last checkpoint.
    #[must_use]
    pub fn with_log_bytes(mut self, log_bytes: u64) -> Self {
        self.log_bytes = log_bytes;
        self
    }

    /// Sets the trace that records which column chunks are used and read from disk. Has an effect when a data directory
    /// is opened later.
    #[must_use]
    pub fn with_trace(mut self, trace: Option<Arc<AccessTrace>>) -> Self {
        self.trace = trace;
        self
    }

    /// Sets the change log that is put over the log of a data directory, which is opened later.
    #[must_use]
    pub fn with_log(mut self, log_over: LogOver) -> Self {
        self.log_over = log_over;
        self
    }

    /// Sets the working memory from which tables reserve the memory that they take outside the pool.
    #[must_use]
    pub fn within(mut self, work: Arc<WorkMemory>) -> Self {
        self.work = Some(work);
        self
    }

    /// Disables background profiling for loads that start after this call, as [`Load::without_tap`] does for one load.
    /// Profiles are then computed when they are first requested.
    pub fn close_taps(&self) {
        self.taps_closed.store(true, Ordering::Relaxed);
    }

    /// Returns the pool that holds the tables.
    pub fn pool(&self) -> &Arc<Pool> {
        &self.pool
    }

    /// Returns the highest version of any table so far.
    pub fn newest_version(&self) -> Version {
        Version(self.state.read().versions_made)
    }

    /// Returns the tenants that have a table, sorted by name.
    pub fn tenant_names(&self) -> Vec<TenantName> {
        self.state.read().visible.tables.keys().cloned().collect()
    }

    /// Returns descriptions of the tables of `tenant`, sorted by name: without the value distributions of their
    /// columns, and with the bytes that are in memory.
    pub fn tables(&self, tenant: &TenantName) -> Vec<TableInfo> {
        // The map is copied, so that changes need not wait until all chunks are counted.
        let tables = self.state.read().visible.tables.get(tenant).cloned().unwrap_or_default();
        tables.iter().map(|(name, current)| current.brief(name)).collect()
    }

    /// Returns the current version of a table, as readers see it.
    ///
    /// # Errors
    /// `NotFound`, with the names of existing tables.
    pub fn get(&self, tenant: &TenantName, name: &TableName) -> Result<(Version, Arc<Table>)> {
        self.state.read().visible(tenant, name).map(|current| (current.version, current.table.clone()))
    }

    /// Returns the newest version of a table, whose record may not be durable yet. Changes are checked against it;
    /// readers do not see it.
    ///
    /// # Errors
    /// `NotFound`, with the names of existing tables.
    pub fn get_newest(&self, tenant: &TenantName, name: &TableName) -> Result<(Version, Arc<Table>)> {
        self.newest(tenant, name).map(|current| (current.version, current.table))
    }

    /// Describes the current version of a table, with the known value distributions of its columns.
    ///
    /// # Errors
    /// `NotFound`, with the names of existing tables.
    pub fn info(&self, tenant: &TenantName, name: &TableName) -> Result<TableInfo> {
        let current = self.state.read().visible(tenant, name)?.clone();
        current.want_profile();
        Ok(current.info(name))
    }

    /// Returns an empty reservation of working memory for a table of `tenant`; `None` if the catalog has no working
    /// memory.
    fn outside(&self, tenant: &TenantName) -> Option<Reservation> {
        self.work.as_ref().map(|work| work.account(tenant).empty())
    }

    /// Returns the newest state of a table, which the next change starts from.
    fn newest(&self, tenant: &TenantName, name: &TableName) -> Result<Current> {
        self.state.read().newest(tenant, name).cloned()
    }

    /// Drops a table. Its memory is freed when no query reads it any more. Does not block; the returned [`Commit`] is
    /// durable later.
    ///
    /// # Errors
    /// `NotFound`, with the names of existing tables.
    pub fn drop_table(self: &Arc<Self>, tenant: &TenantName, name: &TableName) -> Result<Commit<()>> {
        let change = Change::new(tenant, ChangeKind::Drop(name.clone()));
        self.make_named(change, |state| state.newest(tenant, name).map(|_| true))
    }

    /// Makes `new` the newest version of a table if the newest state is as `expected`. `load` is the id of the load
    /// that created it, and `tapped` the tap that profiles it.
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

    /// Reserves the table's working memory. Each version reserves all of it, although versions share most of it,
    /// because each version may be the last one alive.
    fn holding(&self, tenant: &TenantName, table: Table) -> Result<Table> {
        let Some(mut outside) = self.outside(tenant) else { return Ok(table) };
        outside.try_grow(usize_saturating(table.bytes_outside_pool))?;
        Ok(table.holding(outside))
    }

    fn next_chore(&self) -> u64 {
        self.chores_made.fetch_add(1, Ordering::Relaxed)
    }
}

/// Returns the error (a defect) of a change whose check neither accepts it nor gives a reason.
fn unmade() -> Error {
    Error::internal("a change was neither made nor refused")
}

impl Current {
    /// Returns whether both are the same state of the same table.
    fn is_same(&self, other: &Current) -> bool {
        Arc::ptr_eq(&self.table, &other.table)
    }

    /// Submits a merge if there are small row groups to merge, and describes the version.
    fn announced(&self, name: &TableName) -> TableInfo {
        self.merges.announce(self);
        self.info(name)
    }

    /// Returns a description of the version with all that is known of its rows so far.
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

    /// Returns a description of the version for lists of tables, without value distributions.
    fn brief(&self, name: &TableName) -> TableInfo {
        let bytes_resident = Some(self.table.bytes_resident());
        TableInfo { bytes_resident, ..self.describe(name, &self.found()) }
    }

    fn statistics(&self, name: &TableName) -> TableStatistics {
        // The progress is read once, so that the description and the states agree.
        let found = self.found();
        let table = self.told(name, &found);
        let unknown = || vec![ColumnStates::default(); table.columns.len()];
        TableStatistics {
            columns: found.collected.as_ref().map_or_else(unknown, |collected| collected.columns.clone()),
            moments: found.collected.and_then(|collected| collected.moments.clone()),
            table,
        }
    }

    /// Requests that the profile be read soon if recovery has left it on disk. Must not be called under the lock of the
    /// names, because it queues a job.
    fn want_profile(&self) {
        if let Some(tap) = &self.tap {
            tap.want();
        }
    }

    /// Returns the tap that profiles all rows; `None` if there is none.
    fn tap_of_all(&self) -> Option<&Arc<Tap>> {
        let is_whole = self.settled == self.table.row_groups.len();
        self.whole.as_ref().or_else(|| self.tap.as_ref().filter(|_| is_whole))
    }

    /// Returns the results of profiling so far: for all rows if they are complete, otherwise for a large enough part of
    /// the rows.
    fn found(&self) -> ProfileProgress {
        let all = self.tap_of_all();
        // This must be read before the outcome below, which may be that of the same tap and could become available in
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

    /// Returns a description of the version without the value distributions of its columns.
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

/// Results of profiling a version's rows so far.
struct ProfileProgress {
    collected: Option<Arc<CollectedProfile>>,
    /// As in [`TableInfo::rows_profiled`].
    rows_profiled: Option<u64>,
}

/// Returns whether a profile of `rows` rows may stand for all `of` rows, because estimates are seldom more exact than
/// the difference.
fn is_most(rows: u64, of: u64) -> bool {
    of - rows <= of / 8
}

#[cfg(test)]
mod tests;
