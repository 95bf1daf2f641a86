//! The catalog: which tables each tenant has, and the current version of each.
//!
//! Versions are swapped, never changed: a reader that got a table keeps its version, and its pages, for as
//! long as it holds the `Arc`.
//!
//! Invariant: version numbers only grow over the life of a catalog, across all tables, so that a version
//! identifies one state of one table for ever.

mod alter;
mod append;
mod background;
mod change;
mod claims;
mod helpers;
mod load;
mod merge;
mod names;
mod pieces;
mod statistics;
mod tap;
mod views;

pub use append::Append;
pub use background::{Background, Chore};
pub use claims::Claim;
pub use helpers::Helpers;
pub use load::Load;
pub use pieces::{Piece, PieceDone};
pub use statistics::AwaitedStatistics;
pub use tap::{AwaitedProfile, Stepped};

use append::Line;
use arrow_schema::Schema;
use farpool_columns::{Encoder, Table};
use farpool_memory::{Pool, Reservation, WorkMemory};
use farpool_model::cast::{u64_from, usize_saturating};
use farpool_model::{
    ColumnStates, Error, ErrorKind, LoadMode, Result, TableInfo, TableName, TableStatistics, TenantName,
    Version, limits,
};
use merge::Merges;
use parking_lot::RwLock;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use tap::{Gathered, Tap};

/// The tables and views of all tenants. Cheap to read while loads run: the lock is held for a look-up or a
/// swap.
#[derive(Debug)]
pub struct Catalog {
    pool: Arc<Pool>,
    /// Budget from which tables reserve what they take outside the pool.
    work: Option<Arc<WorkMemory>>,
    tenants: RwLock<Tenants>,
    taps_closed: AtomicBool,
    /// Number of taps and merges made; the source of their numbers.
    chores_made: AtomicU64,
    background: Arc<dyn Background>,
    helpers: Arc<dyn Helpers>,
}

#[derive(Debug, Default)]
struct Tenants {
    tables: BTreeMap<TenantName, BTreeMap<TableName, Current>>,
    views: BTreeMap<TenantName, BTreeMap<TableName, views::Kept>>,
    versions_made: u64,
    /// Names of tables that are about to be created, each with the number of its claim.
    claims: BTreeMap<TenantName, BTreeMap<TableName, u64>>,
    claims_made: u64,
}

#[derive(Clone, Debug)]
struct Current {
    version: Version,
    /// The version since which rows have only been appended.
    since: Version,
    table: Arc<Table>,
    /// Number of row groups, the first ones, that are no longer merged, and the number of their rows.
    settled: usize,
    rows_settled: u64,
    /// Profiles the settled row groups.
    tap: Option<Arc<Tap>>,
    /// Profiles all rows, made on request where `tap` does not cover them.
    whole: Option<Arc<Tap>>,
    /// The line of appends and the merges of the table; each version hands them to the next.
    line: Arc<Line>,
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

/// The condition on a table's current state under which a load may be published.
#[derive(Clone, Copy, Debug)]
enum Expected {
    Anything,
    /// Neither a table, nor a view, nor a claim of the name exists.
    Nothing,
    /// The name is still claimed under this number.
    Claim(u64),
    Version(Version),
}

impl Catalog {
    /// Creates a catalog without tables. Loads take their memory from `pool` and encode with the threads of
    /// `helpers`; `background` computes profiles and merges small row groups.
    pub fn new(pool: Arc<Pool>, helpers: Arc<dyn Helpers>, background: Arc<dyn Background>) -> Self {
        let (taps_closed, chores_made) = (AtomicBool::new(false), AtomicU64::new(0));
        let tenants = RwLock::default();
        Catalog { pool, work: None, tenants, taps_closed, chores_made, background, helpers }
    }

    /// Makes the tables reserve from `work` what they take outside the pool.
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

    /// The pool that holds the tables.
    pub fn pool(&self) -> &Arc<Pool> {
        &self.pool
    }

    /// The highest version number given so far to any table.
    pub fn newest_version(&self) -> Version {
        Version(self.tenants.read().versions_made)
    }

    /// Tenants that have a table, by name.
    pub fn tenant_names(&self) -> Vec<TenantName> {
        self.tenants.read().tables.keys().cloned().collect()
    }

    /// Descriptions of the tables of `tenant`, by name, without the spreads of their columns.
    pub fn tables(&self, tenant: &TenantName) -> Vec<TableInfo> {
        let tenants = self.tenants.read();
        let tables = tenants.tables.get(tenant).into_iter().flatten();
        tables.map(|(name, current)| current.brief(name)).collect()
    }

    /// Returns the current version of a table.
    ///
    /// # Errors
    /// `NotFound`, with the names of existing tables.
    pub fn get(&self, tenant: &TenantName, name: &TableName) -> Result<(Version, Arc<Table>)> {
        self.tenants.read().current(tenant, name).map(|current| (current.version, current.table.clone()))
    }

    /// Describes the current version of a table, with the spreads of its columns as far as they are known.
    ///
    /// # Errors
    /// `NotFound`, with the names of existing tables.
    pub fn info(&self, tenant: &TenantName, name: &TableName) -> Result<TableInfo> {
        self.tenants.read().current(tenant, name).map(|current| current.info(name))
    }

    /// An empty reservation for what a table takes outside the pool; `None` where there is no budget.
    fn outside(&self, tenant: &TenantName) -> Option<Reservation> {
        self.work.as_ref().map(|work| work.account(tenant).empty())
    }

    fn current(&self, tenant: &TenantName, name: &TableName) -> Result<Current> {
        self.tenants.read().current(tenant, name).cloned()
    }

    /// Drops a table. Its pages are free once no query reads them any more.
    ///
    /// # Errors
    /// `NotFound`, with the names of existing tables.
    pub fn drop_table(&self, tenant: &TenantName, name: &TableName) -> Result<()> {
        let mut tenants = self.tenants.write();
        let current = tenants.current(tenant, name)?.clone();
        let tables = tenants.tables.get_mut(tenant).expect("the tenant has the table");
        tables.remove(name);
        if tables.is_empty() {
            tenants.tables.remove(tenant);
        }
        drop(tenants);
        // Outside the lock, since freeing many pages takes a while.
        drop(current);
        Ok(())
    }

    /// Begins to load rows of `schema` into the table `name`. Nothing is visible before [`Load::commit`].
    /// `rows_hint`, the number of rows to come if known, lets a table that will not fit be refused early.
    ///
    /// # Errors
    /// `Exists` when the table to be created exists, another load is about to create it, or a view has the
    /// name; `NotFound` when the table to append to or the version to replace does not exist, and `Stale` if
    /// the table is at another version; `Invalid` when a column's type is not supported, or for an append to
    /// a table with other columns; `OverLimit` when the tenant has too many tables.
    pub fn begin_load(
        self: &Arc<Self>,
        tenant: &TenantName,
        name: &TableName,
        schema: &Schema,
        mode: LoadMode,
        rows_hint: Option<u64>,
    ) -> Result<Load> {
        let check = |expected| self.tenants.read().check(tenant, name, expected);
        let (mut base, mut claim) = (None, None);
        match mode {
            LoadMode::Append => base = Some(self.current(tenant, name)?.table),
            LoadMode::Create => claim = Some(Claim::new(self, tenant, name)?),
            LoadMode::Replace => check(Expected::Anything)?,
            LoadMode::ReplaceVersion(version) => check(Expected::Version(version))?,
        }
        let load = Load::begin(self.clone(), tenant.clone(), name.clone(), schema, mode, rows_hint, base)?;
        let is_replacement = matches!(mode, LoadMode::Replace | LoadMode::ReplaceVersion(_));
        let before = is_replacement.then(|| self.get(tenant, name).ok()).flatten();
        Ok(load.under(claim).replacing(before.map(|(_, table)| table.bytes_encoded)))
    }

    /// Makes `table`, a new one, the current version if the current state is as `expected`. The first
    /// `settled` of its row groups are not merged.
    fn put(
        self: &Arc<Self>,
        tenant: &TenantName,
        name: &TableName,
        (table, settled): (Table, usize),
        tapped: Option<Tapped>,
        expected: Expected,
    ) -> Result<TableInfo> {
        let merges = Merges::new(self, self.next_chore(), tenant, name);
        let rows_settled = table.row_groups.iter().take(settled).map(|group| u64_from(group.rows)).sum();
        let table = Arc::new(table);
        let mut tenants = self.tenants.write();
        if let Err(error) = tenants.check(tenant, name, expected) {
            // Outside the lock, since freeing many pages takes a while.
            drop(tenants);
            return Err(error);
        }
        let version = tenants.next_version();
        // Before the version is visible, its tap must know which rows come before.
        let tap = tapped.map(Tapped::complete);
        let (since, line, whole) = (version, Arc::default(), None);
        let current = Current { version, since, table, settled, rows_settled, tap, whole, line, merges };
        let info = current.info(name);
        tenants.end_claim(tenant, name);
        let tables = tenants.tables.entry(tenant.clone()).or_default();
        let before = tables.insert(name.clone(), current.clone());
        drop(tenants);
        drop(before);
        current.merges.announce(&current);
        Ok(info)
    }

    /// Makes `table`, which is `current` with more rows at the end, the current version, unless `current` was
    /// swapped meanwhile.
    fn put_behind(
        &self,
        tenant: &TenantName,
        name: &TableName,
        current: &Current,
        table: Table,
    ) -> Option<TableInfo> {
        self.swap(tenant, name, current, table, false)
    }

    /// Puts `table`, which has the rows of `current` in other row groups, in its place under the same
    /// version, unless `current` was swapped meanwhile; returns whether it did.
    fn put_merged(&self, tenant: &TenantName, name: &TableName, current: &Current, table: Table) -> bool {
        self.swap(tenant, name, current, table, true).is_some()
    }

    fn swap(
        &self,
        tenant: &TenantName,
        name: &TableName,
        current: &Current,
        table: Table,
        is_same_version: bool,
    ) -> Option<TableInfo> {
        let table = Arc::new(table);
        let (settled, tapped) = self.settle(tenant, current, &table);
        let fresh = table.row_groups.from(current.settled).take(settled - current.settled);
        let rows_settled = current.rows_settled + fresh.map(|group| u64_from(group.rows)).sum::<u64>();
        let mut tenants = self.tenants.write();
        let newest = tenants.find(tenant, name)?;
        if !Arc::ptr_eq(&newest.table, &current.table) {
            return None;
        }
        // A tap may have been attached to this version since `current` was read.
        let (tap, whole) = (newest.tap.clone(), newest.whole.clone().filter(|_| is_same_version));
        let version = if is_same_version { current.version } else { tenants.next_version() };
        let tap = match tapped {
            Some(tapped) => Some(tapped.complete()),
            None => tap.filter(|_| settled == current.settled),
        };
        let (since, line, merges) = (current.since, current.line.clone(), current.merges.clone());
        let next = Current { version, since, table, settled, rows_settled, tap, whole, line, merges };
        let info = next.info(name);
        let before = tenants.tables.get_mut(tenant)?.insert(name.clone(), next.clone());
        drop(tenants);
        drop(before);
        next.merges.announce(&next);
        Some(info)
    }

    /// Puts `table`, whose rows or columns differ from those of `current`, in its place, under the second of
    /// the names; returns `None` unless `current` is still there under the first. The first `settled` of its
    /// row groups are not merged.
    fn put_instead(
        self: &Arc<Self>,
        tenant: &TenantName,
        (name, new_name): (&TableName, &TableName),
        current: &Current,
        (table, settled): (Table, usize),
    ) -> Result<Option<TableInfo>> {
        let fresh = || table.row_groups.iter().take(settled);
        let rows_settled = fresh().map(|group| u64_from(group.rows)).sum();
        let tapped = (!self.taps_closed.load(Ordering::Relaxed)).then(|| {
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
        let mut tenants = self.tenants.write();
        let is_current = |newest: &Current| Arc::ptr_eq(&newest.table, &current.table);
        if !tenants.find(tenant, name).is_some_and(is_current) {
            return Ok(None);
        }
        let is_taken = tenants.find(tenant, new_name).is_some()
            || tenants.view(tenant, new_name).is_some()
            || tenants.claimed(tenant, new_name).is_some();
        if new_name != name && is_taken {
            return tenants.check(tenant, new_name, Expected::Nothing).map(|()| None);
        }
        let version = tenants.next_version();
        let tap = tapped.map(Tapped::complete);
        let (since, line, whole) = (version, current.line.clone(), None);
        let next = Current { version, since, table, settled, rows_settled, tap, whole, line, merges };
        let info = next.info(new_name);
        let tables = tenants.tables.entry(tenant.clone()).or_default();
        let before = tables.remove(name);
        tables.insert(new_name.clone(), next.clone());
        drop(tenants);
        drop(before);
        next.merges.announce(&next);
        Ok(Some(info))
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

    /// Reserves what the table takes outside the pool. Versions share most of that, but each may outlive the
    /// others, so each reserves all of it.
    fn holding(&self, tenant: &TenantName, table: Table) -> Result<Table> {
        let Some(mut outside) = self.outside(tenant) else { return Ok(table) };
        outside.try_grow(usize_saturating(table.bytes_outside_pool))?;
        Ok(table.holding(outside))
    }

    fn next_chore(&self) -> u64 {
        self.chores_made.fetch_add(1, Ordering::Relaxed)
    }
}

impl Tenants {
    fn find(&self, tenant: &TenantName, name: &TableName) -> Option<&Current> {
        self.tables.get(tenant)?.get(name)
    }

    fn find_mut(&mut self, tenant: &TenantName, name: &TableName) -> Option<&mut Current> {
        self.tables.get_mut(tenant)?.get_mut(name)
    }

    fn next_version(&mut self) -> Version {
        self.versions_made += 1;
        Version(self.versions_made)
    }

    fn current(&self, tenant: &TenantName, name: &TableName) -> Result<&Current> {
        self.find(tenant, name).ok_or_else(|| {
            if self.view(tenant, name).is_some() {
                return views::is_a_view(name);
            }
            let error = Error::not_found(format!("there is no table {:?}", name.as_str()));
            if self.claimed(tenant, name).is_some() {
                return error.advise("a load that creates it is under way: try again when that has ended");
            }
            let tables = self.tables.get(tenant).into_iter().flat_map(BTreeMap::keys);
            error.advise(names::advice(name, tables.chain(self.views_of(tenant).map(|(name, _)| name))))
        })
    }

    fn check(&self, tenant: &TenantName, name: &TableName, expected: Expected) -> Result<()> {
        match (expected, self.find(tenant, name)) {
            (Expected::Nothing, Some(_)) => {
                Err(Error::new(ErrorKind::Exists, format!("there is a table {:?} already", name.as_str()))
                    .advise(claims::EXISTS_ADVICE))
            }
            (Expected::Nothing, None) if self.claimed(tenant, name).is_some() => Err(claims::under_way(name)),
            (Expected::Claim(number), _) => self.check_claim(tenant, name, number),
            (Expected::Version(version), Some(current)) if current.version != version => {
                let (name, now) = (name.as_str(), current.version);
                let message = format!("table {name:?} is at version {now}, not {version}");
                Err(Error::new(ErrorKind::Stale, message).advise("try again"))
            }
            (Expected::Version(_), None) => self.current(tenant, name).map(|_| ()),
            (Expected::Anything | Expected::Version(_), Some(_)) => Ok(()),
            (Expected::Anything | Expected::Nothing, None) => {
                self.check_no_view(tenant, name)?;
                self.check_count(tenant)
            }
        }
    }

    fn check_count(&self, tenant: &TenantName) -> Result<()> {
        let count = self.tables.get(tenant).map_or(0, BTreeMap::len)
            + self.claims.get(tenant).map_or(0, BTreeMap::len);
        if count < limits::TABLES_PER_TENANT_MAX {
            return Ok(());
        }
        Err(Error::over_limit(format!("a tenant may have {} tables", limits::TABLES_PER_TENANT_MAX))
            .advise("drop tables that are not needed"))
    }
}

impl Current {
    /// Describes the version with all that is known so far.
    fn info(&self, name: &TableName) -> TableInfo {
        self.told(name, &self.found())
    }

    fn told(&self, name: &TableName, found: &Found) -> TableInfo {
        let mut info = self.describe(name, found);
        let spreads = found.gathered.iter().flat_map(|gathered| &gathered.spreads);
        for (column, spread) in info.columns.iter_mut().zip(spreads) {
            column.spread.clone_from(spread);
        }
        info
    }

    /// Describes the version without spreads, for lists of many tables.
    fn brief(&self, name: &TableName) -> TableInfo {
        self.describe(name, &self.found())
    }

    fn statistics(&self, name: &TableName) -> TableStatistics {
        // One snapshot, so that description and states agree.
        let found = self.found();
        let table = self.told(name, &found);
        let unknown = || vec![ColumnStates::default(); table.columns.len()];
        TableStatistics {
            columns: found.gathered.as_ref().map_or_else(unknown, |gathered| gathered.columns.clone()),
            moments: found.gathered.and_then(|gathered| gathered.moments.clone()),
            table,
        }
    }

    /// The tap that profiles all rows, if there is one.
    fn tap_of_all(&self) -> Option<&Arc<Tap>> {
        let is_whole = self.settled == self.table.row_groups.len();
        self.whole.as_ref().or_else(|| self.tap.as_ref().filter(|_| is_whole))
    }

    /// Returns what profiling has found so far: about all rows or, until that is complete, about enough of
    /// them.
    fn found(&self) -> Found {
        let all = self.tap_of_all();
        // Must be read before the outcome below, which may be that of the same tap and could settle in
        // between.
        let settled = self.tap.as_ref().map(|tap| tap.settled());
        let outcome = all.and_then(|tap| tap.settled());
        if let Some(outcome) = outcome {
            return Found { gathered: outcome.ok(), rows_profiled: None };
        }
        let gathered = match &settled {
            Some(Some(Ok(gathered))) if is_most(self.rows_settled, self.table.rows) => Some(gathered.clone()),
            _ => None,
        };
        let rows_profiled = match (all, settled) {
            (Some(tap), _) => Some(tap.rows_seen()),
            (None, Some(None)) => self.tap.as_ref().map(|tap| tap.rows_seen()),
            (None, Some(Some(Ok(_)))) => Some(self.rows_settled),
            (None, Some(Some(Err(_))) | None) => None,
        };
        Found { gathered, rows_profiled }
    }

    /// Describes the version without spreads.
    fn describe(&self, name: &TableName, found: &Found) -> TableInfo {
        let mut columns = self.table.statistics.clone();
        let estimates = found.gathered.iter().flat_map(|gathered| &gathered.distinct);
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
        }
    }
}

/// What profiling has found so far about the rows of a version.
struct Found {
    gathered: Option<Arc<Gathered>>,
    /// As in [`TableInfo::rows_profiled`].
    rows_profiled: Option<u64>,
}

/// Whether a profile of `rows` rows may stand for all `of` rows: estimates are seldom better than that.
fn is_most(rows: u64, of: u64) -> bool {
    of - rows <= of / 8
}

#[cfg(test)]
mod tests;
