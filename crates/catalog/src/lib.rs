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
mod background;
mod begin;
mod change;
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
mod schemas;
mod state;
mod statistics;
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
use durable::{Change, Durable, Prepared};
use farpool_columns::{Encoder, Table};
use farpool_disk::TableKey;
use farpool_memory::{Pool, Reservation, WorkMemory};
use farpool_model::cast::{u64_from, usize_saturating};
use farpool_model::{
    ColumnStates, Error, LoadId, LoadedVersion, Result, TableInfo, TableName, TableStatistics, TenantName,
    Version, limits,
};
use merge::Merges;
use parking_lot::RwLock;
use quota::DiskQuotas;
use state::{CatalogState, Effect, Expected};
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
        let record = self.prepare(|| Change::Drop(tenant.clone(), name.clone()))?;
        let is_there = |state: &CatalogState| state.newest(tenant, name).map(|_| true);
        let made =
            self.make(record, false, is_there, |_, _| (Effect::Drop(tenant.clone(), name.clone()), ()))?;
        made.ok_or_else(unmade)
    }

    /// Makes a change with the record `record`. `check` decides whether it may still be made; `effect` computes its
    /// effect on the names and the return value from the version that the change makes, if any, or else the newest.
    /// Both are called under the lock of the names. Returns `None` if the change may no longer be made.
    fn make<T>(
        self: &Arc<Self>,
        mut record: Option<Prepared>,
        makes_version: bool,
        check: impl Fn(&CatalogState) -> Result<bool>,
        effect: impl FnOnce(&mut CatalogState, Version) -> (Effect, T),
    ) -> Result<Option<Commit<T>>> {
        loop {
            let mut state = self.state.write();
            if !check(&state)? {
                return Ok(None);
            }
            let version = Version(state.versions_made + u64::from(makes_version));
            if let Some(number) = self.append(&mut record, version)? {
                state.versions_made = version.0;
                let (effect, value) = effect(&mut state, version);
                let replaced = state.make(effect, number);
                drop(state);
                // Outside the lock, since freeing many pages takes a while.
                drop(replaced);
                return Ok(Some(Commit::new(value, self, number)));
            }
            drop(state);
            self.mend(&mut record)?;
        }
    }

    /// Prepares the record of a change; `None` in memory.
    fn prepare(&self, change: impl FnOnce() -> Change) -> Result<Option<Prepared>> {
        self.durable.get().map(|durable| durable.prepare(change())).transpose()
    }

    /// Appends a record under the lock of the names, with the version that its change makes, and returns its number, if
    /// there is a log. `None` where the caller must give the lock back, [`Catalog::mend`] the record, and begin again.
    fn append(&self, record: &mut Option<Prepared>, version: Version) -> Result<Option<Option<u64>>> {
        match (self.durable.get(), record) {
            (Some(durable), Some(record)) => Ok(durable.append(record, version)?.map(Some)),
            _ => Ok(Some(None)),
        }
    }

    /// Makes room for a record that could not be appended, and prepares it again where it is outdated.
    fn mend(&self, record: &mut Option<Prepared>) -> Result<()> {
        match (self.durable.get(), record) {
            (Some(durable), Some(record)) => durable.mend(record),
            _ => Ok(()),
        }
    }

    /// Makes `table`, a new one, the newest version if the newest state is as `expected`. The first `settled` of its
    /// row groups are not merged. `load` is the id of the load that made it.
    fn put(
        self: &Arc<Self>,
        tenant: &TenantName,
        name: &TableName,
        (table, settled, is_pinned, key): (Table, usize, bool, Option<Arc<TableKey>>),
        tapped: Option<Tapped>,
        expected: Expected,
        load: Option<LoadId>,
    ) -> Result<Commit<TableInfo>> {
        let merges = Merges::new(self, self.next_chore(), tenant, name);
        let rows_settled = table.row_groups.iter().take(settled).map(|group| u64_from(group.rows)).sum();
        let table = Arc::new(table);
        let record = self.prepare(|| Change::Put {
            tenant: tenant.clone(),
            name: name.clone(),
            table: table.clone(),
            key: key.clone(),
            is_pinned,
            loads: load.into_iter().collect(),
        })?;
        let check = |state: &CatalogState| {
            state.check(tenant, name, expected)?;
            self.check_disk(state, tenant, name, table.bytes_encoded)?;
            self.pin(state, (tenant, name), is_pinned, (&table, 0)).map(|()| true)
        };
        let made = self.make(record, true, check, |state, version| {
            // Before the version is visible, its tap must know which rows come before.
            let tap = tapped.map(Tapped::complete);
            let (since, append_queue, whole) = (version, Arc::default(), None);
            let table = table.clone();
            let current = Current {
                version,
                since,
                table,
                key,
                is_pinned,
                settled,
                rows_settled,
                tap,
                whole,
                append_queue,
                merges,
            };
            state.end_claim(tenant, name);
            (put(tenant, name, None, &current, load.as_slice()), current)
        })?;
        Ok(made.ok_or_else(unmade)?.map(|current| current.announced(name)))
    }

    /// Makes `table`, which is `current` with more rows at the end, the newest version, unless `current` was swapped
    /// meanwhile. `loads` are the ids of those that brought the rows.
    fn put_behind(
        self: &Arc<Self>,
        tenant: &TenantName,
        name: &TableName,
        current: &Current,
        table: Table,
        loads: &[LoadId],
    ) -> Result<Option<Commit<TableInfo>>> {
        let table = Arc::new(table);
        let record = self.prepare(|| Change::Rows {
            tenant: tenant.clone(),
            name: name.clone(),
            before: current.table.clone(),
            after: table.clone(),
            key: current.key.clone(),
            same: current.table.row_groups.len(),
            loads: loads.to_vec(),
        })?;
        let successor = self.successor(tenant, current, table.clone());
        let same = current.table.row_groups.len();
        let is_current = |state: &CatalogState| {
            if !state.is_newest(tenant, name, current) {
                return Ok(false);
            }
            self.check_disk(state, tenant, name, table.bytes_encoded)?;
            self.pin(state, (tenant, name), current.is_pinned, (&table, same)).map(|()| true)
        };
        let made = self.make(record, true, is_current, |state, version| {
            let newest = state.newest.find(tenant, name).unwrap_or(current);
            let next = Current { whole: None, ..successor.of(newest, version) };
            (put(tenant, name, None, &next, loads), next)
        })?;
        Ok(made.map(|made| made.map(|next| next.announced(name))))
    }

    /// Puts `table`, which has the rows of `current` in other row groups, in its place under the same version, unless
    /// `current` was swapped meanwhile; returns whether it did. This is not recorded: it changes no rows.
    fn put_merged(&self, tenant: &TenantName, name: &TableName, current: &Current, table: Table) -> bool {
        if current.is_pinned {
            table.pin_from(current.settled);
        }
        let successor = self.successor(tenant, current, Arc::new(table));
        let mut state = self.state.write();
        let Some(newest) = state.newest.find(tenant, name).filter(|newest| newest.is_same(current)) else {
            return false;
        };
        let next = successor.of(newest, current.version);
        let replaced = state.merged(tenant, name, &next, &current.table);
        drop(state);
        drop(replaced);
        next.announced(name);
        true
    }

    /// Returns the state of `table`, which has the rows of `current` and possibly more, as the successor of `current`.
    fn successor(&self, tenant: &TenantName, current: &Current, table: Arc<Table>) -> Successor {
        let (settled, tapped) = self.settle(tenant, current, &table);
        let fresh = table.row_groups.from(current.settled).take(settled - current.settled);
        let rows_settled = current.rows_settled + fresh.map(|group| u64_from(group.rows)).sum::<u64>();
        Successor { table, settled, rows_settled, tapped }
    }

    /// Puts `table`, whose rows or columns differ from those of `current`, in its place, under the second of the names;
    /// returns `None` unless `current` is still there under the first. The first `settled` of its row groups are not
    /// merged. `columns` are those of the old table that the new one has, if they are not the same; `load` is the id of
    /// the change.
    fn put_instead(
        self: &Arc<Self>,
        tenant: &TenantName,
        (name, new_name): (&TableName, &TableName),
        current: &Current,
        (table, settled): (Table, usize),
        columns: Option<&[Option<usize>]>,
        load: Option<LoadId>,
    ) -> Result<Option<Commit<TableInfo>>> {
        let fresh = || table.row_groups.iter().take(settled);
        let rows_settled = fresh().map(|group| u64_from(group.rows)).sum();
        let is_tapped = table.tier().is_none() && !self.taps_closed.load(Ordering::Relaxed);
        let tapped = is_tapped.then(|| {
            let tap = self.tap(tenant, &table.schema);
            fresh().for_each(|group| tap.add(group.clone()));
            let encoder = Encoder::new(self.pool.clone(), tenant.clone(), table.schema.clone());
            Tapped { tap, before: None, encoder }
        });
        // Merges identify their table by its name.
        let merges = match new_name == name {
            true => current.merges.clone(),
            false => Merges::new(self, self.next_chore(), tenant, new_name),
        };
        let table = Arc::new(table);
        let record = self.prepare(|| match columns {
            None => Change::Rows {
                tenant: tenant.clone(),
                name: name.clone(),
                before: current.table.clone(),
                after: table.clone(),
                key: current.key.clone(),
                same: 0,
                loads: load.into_iter().collect(),
            },
            Some(columns) => Change::Columns {
                tenant: tenant.clone(),
                name: name.clone(),
                new_name: new_name.clone(),
                schema: table.schema.clone(),
                columns: columns.to_vec(),
            },
        })?;
        let check = |state: &CatalogState| {
            if !state.is_newest(tenant, name, current) {
                return Ok(false);
            }
            self.check_disk(state, tenant, name, table.bytes_encoded)?;
            self.pin(state, (tenant, name), current.is_pinned, (&table, 0))?;
            let is_taken = state.newest.find(tenant, new_name).is_some()
                || state.newest.view(tenant, new_name).is_some()
                || state.claimed(tenant, new_name).is_some();
            if new_name != name {
                state.check_schema(tenant, new_name)?;
            }
            match new_name != name && is_taken {
                true => state.check(tenant, new_name, Expected::Nothing).map(|()| false),
                false => Ok(true),
            }
        };
        let made = self.make(record, true, check, |_, version| {
            let tap = tapped.map(Tapped::complete);
            let (since, whole, table) = (version, None, table.clone());
            let kept = current.clone();
            let next = Current { version, since, table, settled, rows_settled, tap, whole, merges, ..kept };
            let renamed_from = (new_name != name).then(|| name.clone());
            (put(tenant, new_name, renamed_from, &next, load.as_slice()), next)
        })?;
        Ok(made.map(|made| made.map(|next| next.announced(new_name))))
    }

    /// Returns how many row groups of `table`, the successor of `current`, are settled, and a tap that has
    /// been given the newly settled ones.
    fn settle(&self, tenant: &TenantName, current: &Current, table: &Table) -> (usize, Option<Tapped>) {
        let settled = merge::settled(table, current.settled);
        // Where the earlier rows have no profile, one of the later rows alone would say too little.
        let Some(before) = current.tap.clone().filter(|_| settled > current.settled) else {
            return (settled, None);
        };
        let tap = self.tap(tenant, &table.schema);
        let fresh = table.row_groups.from(current.settled).take(settled - current.settled);
        fresh.for_each(|group| tap.add(group.clone()));
        let encoder = Encoder::new(self.pool.clone(), tenant.clone(), table.schema.clone());
        (settled, Some(Tapped { tap, before: Some(before), encoder }))
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

/// Returns the effect of a new version of a table, which `loads` have made.
fn put(
    tenant: &TenantName,
    name: &TableName,
    renamed_from: Option<TableName>,
    current: &Current,
    loads: &[LoadId],
) -> Effect {
    let (tenant, name) = (tenant.clone(), name.clone());
    Effect::Put { tenant, name, renamed_from, current: current.clone(), loads: current.loaded(loads) }
}

/// Returns the error of a change whose check neither lets it be made nor says why not.
fn unmade() -> Error {
    Error::internal("a change was neither made nor refused")
}

/// A table that is about to take the place of one with the same rows in front.
struct Successor {
    table: Arc<Table>,
    settled: usize,
    rows_settled: u64,
    /// Profiles the row groups that are newly settled.
    tapped: Option<Tapped>,
}

impl Successor {
    /// Returns the state of the table as the successor of `newest`, to which a tap may have been attached meanwhile.
    fn of(self, newest: &Current, version: Version) -> Current {
        let Successor { table, settled, rows_settled, tapped } = self;
        let tap = match tapped {
            Some(tapped) => Some(tapped.complete()),
            None => newest.tap.clone().filter(|_| settled == newest.settled),
        };
        Current { version, table, settled, rows_settled, tap, ..newest.clone() }
    }
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

    /// Returns the entries by which `loads`, which made this version, are remembered.
    fn loaded(&self, loads: &[LoadId]) -> Vec<(LoadId, LoadedVersion)> {
        let Table { rows, bytes_plain, bytes_encoded, .. } = *self.table;
        let made = LoadedVersion { version: self.version, rows, bytes_plain, bytes_encoded };
        loads.iter().map(|load| (*load, made)).collect()
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
