//! Which tables each tenant has, and the current version of each.
//!
//! Versions are swapped, never changed: whoever got a table keeps its version, and its pages, for as long
//! as the `Arc` lives.
//!
//! Invariant: version numbers only grow over the life of a catalog, over all tables, so that a version
//! names one state of one table for ever.

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

/// See the file's comment. Cheap to read while loads run: the lock is held for a look-up or a swap.
#[derive(Debug)]
pub struct Catalog {
    pool: Arc<Pool>,
    /// For what tables take outside the pool.
    work: Option<Arc<WorkMemory>>,
    tenants: RwLock<Tenants>,
    taps_closed: AtomicBool,
    /// Taps and tables whose row groups are merged.
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
    /// The version since which rows have only come behind those that there were.
    since: Version,
    table: Arc<Table>,
    /// Row groups, the first ones, that are not merged any more, and their rows.
    settled: usize,
    rows_settled: u64,
    /// What finds out about the rows of these, or did.
    tap: Option<Arc<Tap>>,
    /// What finds out about all rows, or did, where somebody has asked and the other does not.
    whole: Option<Arc<Tap>>,
    /// Appends that wait for the next version, and merges: those of the table, from version to version.
    line: Arc<Line>,
    merges: Arc<Merges>,
}

/// A tap that has been given all rows of a version.
#[derive(Clone, Debug)]
struct Tapped {
    tap: Arc<Tap>,
    /// That of the version whose rows come before these.
    before: Option<Arc<Tap>>,
    encoder: Encoder,
}

impl Tapped {
    /// The tap, which knows from now on that these are all rows.
    fn complete(self) -> Arc<Tap> {
        self.tap.complete(self.before, self.encoder);
        self.tap
    }
}

/// What must hold of a table's current state for a load to take its place.
#[derive(Clone, Copy, Debug)]
enum Expected {
    Anything,
    /// Nor a view of the name, nor that anybody is about to create a table of it.
    Nothing,
    /// Nothing, of the name that is claimed under this number.
    Claim(u64),
    Version(Version),
}

impl Catalog {
    /// A catalog without tables, whose loads take their memory from `pool` and have `helpers` encode with them;
    /// `background` makes profiles and merges small row groups behind them.
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

    /// Has nothing found out about the rows of loads that begin from now on before somebody asks, as
    /// [`Load::without_tap`] does for one.
    pub fn close_taps(&self) {
        self.taps_closed.store(true, Ordering::Relaxed);
    }

    /// The memory.
    pub fn pool(&self) -> &Arc<Pool> {
        &self.pool
    }

    /// The newest version of any table there has been.
    pub fn newest_version(&self) -> Version {
        Version(self.tenants.read().versions_made)
    }

    /// Tenants that have a table, by name.
    pub fn tenant_names(&self) -> Vec<TenantName> {
        self.tenants.read().tables.keys().cloned().collect()
    }

    /// The tables of `tenant`, by name, without how their columns are spread.
    pub fn tables(&self, tenant: &TenantName) -> Vec<TableInfo> {
        let tenants = self.tenants.read();
        let tables = tenants.tables.get(tenant).into_iter().flatten();
        tables.map(|(name, current)| current.brief(name)).collect()
    }

    /// The current version of a table.
    ///
    /// # Errors
    /// `NotFound`, naming tables that there are.
    pub fn get(&self, tenant: &TenantName, name: &TableName) -> Result<(Version, Arc<Table>)> {
        self.tenants.read().current(tenant, name).map(|current| (current.version, current.table.clone()))
    }

    /// What is known about the current version of a table.
    ///
    /// # Errors
    /// `NotFound`, naming tables that there are.
    pub fn info(&self, tenant: &TenantName, name: &TableName) -> Result<TableInfo> {
        self.tenants.read().current(tenant, name).map(|current| current.info(name))
    }

    /// No memory yet for what a table takes outside the pool.
    fn outside(&self, tenant: &TenantName) -> Option<Reservation> {
        self.work.as_ref().map(|work| work.account(tenant).empty())
    }

    fn current(&self, tenant: &TenantName, name: &TableName) -> Result<Current> {
        self.tenants.read().current(tenant, name).cloned()
    }

    /// Forgets a table. Its pages are free once no query reads them any more.
    ///
    /// # Errors
    /// `NotFound`, naming tables that there are.
    pub fn drop_table(&self, tenant: &TenantName, name: &TableName) -> Result<()> {
        let mut tenants = self.tenants.write();
        let current = tenants.current(tenant, name)?.clone();
        let tables = tenants.tables.get_mut(tenant).expect("the tenant has the table");
        tables.remove(name);
        if tables.is_empty() {
            tenants.tables.remove(tenant);
        }
        drop(tenants);
        // Freeing many pages takes a while: not under the lock.
        drop(current);
        Ok(())
    }

    /// Begins to load rows of `schema` into the table `name`. Nothing can be seen of it before
    /// [`Load::commit`]. `rows_hint`, the number of rows to come if known, lets a table that will not fit
    /// be refused early.
    ///
    /// # Errors
    /// `Exists` to create a table that there is, or that another load is about to create, and where there is a view of
    /// the name; `NotFound` to append to one
    /// that there is not, or to replace a version of it, and `Stale` if it has another; `Invalid`
    /// when a column's type is not held, or for an append to a table with other columns; `OverLimit` when
    /// the tenant has too many tables.
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

    /// Makes `table`, a new one with all its row groups, the first `settled` of which are not merged, the current version
    /// if what is there is as `expected`.
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
            // Freeing many pages takes a while: not under the lock.
            drop(tenants);
            return Err(error);
        }
        let version = tenants.next_version();
        // Nobody sees a version whose tap does not know yet what comes before it.
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

    /// Makes `table`, which has more rows behind those of `current`, the current version, if `current` still is.
    fn put_behind(
        &self,
        tenant: &TenantName,
        name: &TableName,
        current: &Current,
        table: Table,
    ) -> Option<TableInfo> {
        self.swap(tenant, name, current, table, false)
    }

    /// Makes `table`, which has the same rows as `current` in other row groups, take its place, if it is still there.
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
        // A tap may have been made of this version meanwhile.
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

    /// Makes `table`, whose rows or columns are others than those of `current`, take its place under the second of the
    /// names, if it still stands under the first; the first `settled` of its row groups are not merged.
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
        // Merges know the table by its name.
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

    /// How many row groups of `table`, which comes behind `current`, are settled, and what finds out about those that
    /// were not.
    fn settle(&self, tenant: &TenantName, current: &Current, table: &Table) -> (usize, Option<Tapped>) {
        let settled = merge::settled(table, current.settled);
        // Of rows behind others that nothing is known of, too little is known.
        let Some(before) = current.tap.clone().filter(|_| settled > current.settled) else {
            return (settled, None);
        };
        let tap = self.tap(tenant, &table.schema);
        let fresh = table.row_groups.from(current.settled).take(settled - current.settled);
        fresh.for_each(|group| tap.add(group.clone()));
        let encoder = Encoder::new(self.pool.clone(), tenant.clone(), table.schema.clone());
        (settled, Some(Tapped { tap, before: Some(before), encoder }))
    }

    /// The table with what it takes outside the pool reserved. Versions share most of that, but each may be the last
    /// one.
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
    /// What is known by now.
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

    /// What a list of many tables has room for.
    fn brief(&self, name: &TableName) -> TableInfo {
        self.describe(name, &self.found())
    }

    fn statistics(&self, name: &TableName) -> TableStatistics {
        // What both are told of is the same.
        let found = self.found();
        let table = self.told(name, &found);
        let unknown = || vec![ColumnStates::default(); table.columns.len()];
        TableStatistics {
            columns: found.gathered.as_ref().map_or_else(unknown, |gathered| gathered.columns.clone()),
            moments: found.gathered.and_then(|gathered| gathered.moments.clone()),
            table,
        }
    }

    /// What finds out about all rows, if anything does.
    fn tap_of_all(&self) -> Option<&Arc<Tap>> {
        let is_whole = self.settled == self.table.row_groups.len();
        self.whole.as_ref().or_else(|| self.tap.as_ref().filter(|_| is_whole))
    }

    /// What was found out by now: about all rows or, while that is not there, about enough of them.
    fn found(&self) -> Found {
        let all = self.tap_of_all();
        // Before that of all is looked at, which may be the same: it may settle between two looks.
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

    /// Without the spreads.
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

/// What was found out about the rows of a version by now.
struct Found {
    gathered: Option<Arc<Gathered>>,
    /// As in [`TableInfo::rows_profiled`].
    rows_profiled: Option<u64>,
}

/// Whether what holds for so many of the rows may stand for all of them: estimates are seldom better than that.
fn is_most(rows: u64, of: u64) -> bool {
    of - rows <= of / 8
}

#[cfg(test)]
mod tests;
