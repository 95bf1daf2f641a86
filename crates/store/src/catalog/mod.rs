//! Which tables each tenant has, and the current version of each.
//!
//! Versions are swapped, never changed: whoever got a table keeps its version, and its pages, for as long
//! as the `Arc` lives.
//!
//! Invariant: version numbers only grow over the life of a catalog, over all tables, so that a version
//! names one state of one table for ever.

mod helpers;
mod load;
mod names;
mod pieces;
mod profiler;
mod statistics;
mod tap;

pub use helpers::Helpers;
pub use load::Load;
pub use pieces::{Piece, PieceDone};
pub use profiler::Profiler;
pub use statistics::AwaitedStatistics;
pub use tap::{AwaitedProfile, Gathering, Stepped};

use arrow_schema::Schema;
use farpool_columns::{Encoder, Table};
use farpool_memory::{Pool, Reservation, WorkMemory};
use farpool_model::{
    ColumnStates, Error, ErrorKind, LoadMode, Result, TableInfo, TableName, TableStatistics, TenantName,
    Version, limits,
};
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
    taps_made: AtomicU64,
    profiler: Arc<dyn Profiler>,
    helpers: Arc<dyn Helpers>,
}

#[derive(Debug, Default)]
struct Tenants {
    tables: BTreeMap<TenantName, BTreeMap<TableName, Current>>,
    versions_made: u64,
}

#[derive(Clone, Debug)]
struct Current {
    version: Version,
    table: Arc<Table>,
    /// What finds out about the rows, or did.
    tap: Option<Arc<Tap>>,
}

/// A tap that has been given all rows of a version.
#[derive(Clone, Debug)]
struct Tapped {
    tap: Arc<Tap>,
    /// That of the version whose rows come before these.
    before: Option<Arc<Tap>>,
    encoder: Encoder,
}

/// What must hold of a table's current state for a load to take its place.
#[derive(Clone, Copy, Debug)]
enum Expected {
    Anything,
    Nothing,
    Version(Version),
}

impl Catalog {
    /// A catalog without tables, whose loads take their memory from `pool` and have `helpers` encode with them;
    /// `profiler` makes profiles behind them.
    pub fn new(pool: Arc<Pool>, helpers: Arc<dyn Helpers>, profiler: Arc<dyn Profiler>) -> Self {
        let (taps_closed, taps_made) = (AtomicBool::new(false), AtomicU64::new(0));
        let tenants = RwLock::default();
        Catalog { pool, work: None, tenants, taps_closed, taps_made, profiler, helpers }
    }

    /// The same, whose tables reserve from `work` what they take outside the pool.
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
    /// `Exists` to create a table that there is; `NotFound` to append to one that there is not; `Invalid`
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
        let base = {
            let tenants = self.tenants.read();
            match mode {
                LoadMode::Append => Some(tenants.current(tenant, name)?.table.clone()),
                LoadMode::Create => tenants.check(tenant, name, Expected::Nothing).map(|()| None)?,
                LoadMode::Replace => tenants.check(tenant, name, Expected::Anything).map(|()| None)?,
            }
        };
        Load::begin(self.clone(), tenant.clone(), name.clone(), schema, mode, rows_hint, base)
    }

    /// Makes `table` the current version if what is there is as `expected`; gives it back if not.
    fn put(
        &self,
        tenant: &TenantName,
        name: &TableName,
        table: Table,
        tapped: Option<Tapped>,
        expected: Expected,
    ) -> Result<TableInfo, Refused> {
        let mut tenants = self.tenants.write();
        if let Err(error) = tenants.check(tenant, name, expected) {
            return Err(Refused { error, table: Box::new(table) });
        }
        tenants.versions_made += 1;
        let version = Version(tenants.versions_made);
        let tap = tapped.map(|Tapped { tap, before, encoder }| {
            // Nobody sees a version whose tap does not know yet what comes before it.
            tap.complete(before, encoder);
            tap
        });
        let current = Current { version, table: Arc::new(table), tap };
        let info = current.info(name);
        let before = tenants.tables.entry(tenant.clone()).or_default().insert(name.clone(), current);
        drop(tenants);
        drop(before);
        Ok(info)
    }
}

/// A table that did not get into the catalog; its pages are freed outside the lock.
#[derive(Debug)]
struct Refused {
    error: Error,
    #[expect(dead_code, reason = "held so that it is dropped by the caller")]
    table: Box<Table>,
}

impl Tenants {
    fn find(&self, tenant: &TenantName, name: &TableName) -> Option<&Current> {
        self.tables.get(tenant)?.get(name)
    }

    fn find_mut(&mut self, tenant: &TenantName, name: &TableName) -> Option<&mut Current> {
        self.tables.get_mut(tenant)?.get_mut(name)
    }

    fn current(&self, tenant: &TenantName, name: &TableName) -> Result<&Current> {
        self.find(tenant, name).ok_or_else(|| {
            let error = Error::not_found(format!("there is no table {:?}", name.as_str()));
            error.advise(names::advice(name, self.tables.get(tenant).into_iter().flat_map(BTreeMap::keys)))
        })
    }

    fn check(&self, tenant: &TenantName, name: &TableName, expected: Expected) -> Result<()> {
        match (expected, self.find(tenant, name)) {
            (Expected::Nothing, Some(_)) => {
                Err(Error::new(ErrorKind::Exists, format!("there is a table {:?} already", name.as_str()))
                    .advise("choose another name, or replace it (--replace) or append to it (--append)"))
            }
            (Expected::Version(version), Some(current)) if current.version != version => Err(Error::new(
                ErrorKind::Unavailable,
                format!("table {:?} changed meanwhile", name.as_str()),
            )
            .advise("try again")),
            (Expected::Version(_), None) => self.current(tenant, name).map(|_| ()),
            (Expected::Anything | Expected::Nothing, None) => self.check_count(tenant),
            (_, Some(_)) => Ok(()),
        }
    }

    fn check_count(&self, tenant: &TenantName) -> Result<()> {
        let count = self.tables.get(tenant).map_or(0, BTreeMap::len);
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
        let (mut info, gathered) = self.describe(name);
        let spreads = gathered.iter().flat_map(|gathered| &gathered.spreads);
        for (column, spread) in info.columns.iter_mut().zip(spreads) {
            column.spread.clone_from(spread);
        }
        info
    }

    /// What a list of many tables has room for.
    fn brief(&self, name: &TableName) -> TableInfo {
        self.describe(name).0
    }

    fn statistics(&self, name: &TableName) -> TableStatistics {
        // In this order: where the description says that all is there, the states are.
        let table = self.info(name);
        let gathered = self.tap.as_ref().and_then(|tap| tap.settled()?.ok());
        let unknown = || vec![ColumnStates::default(); table.columns.len()];
        TableStatistics {
            columns: gathered.as_ref().map_or_else(unknown, |gathered| gathered.columns.clone()),
            moments: gathered.and_then(|gathered| gathered.moments.clone()),
            table,
        }
    }

    /// Without the spreads; with what these are found in.
    fn describe(&self, name: &TableName) -> (TableInfo, Option<Arc<Gathered>>) {
        let (gathered, rows_profiled) = match self.tap.as_ref().map(|tap| (tap.settled(), tap.rows_seen())) {
            Some((Some(outcome), _)) => (outcome.ok(), None),
            Some((None, rows)) => (None, Some(rows)),
            None => (None, None),
        };
        let mut columns = self.table.statistics.clone();
        let estimates = gathered.iter().flat_map(|gathered| &gathered.distinct);
        for (column, estimate) in columns.iter_mut().zip(estimates) {
            column.distinct_estimate = estimate.filter(|_| column.distinct_count.is_none());
        }
        let info = TableInfo {
            name: name.clone(),
            version: self.version,
            schema: self.table.schema.clone(),
            rows: self.table.rows,
            bytes_plain: self.table.bytes_plain,
            bytes_encoded: self.table.bytes_encoded,
            columns,
            rows_profiled,
        };
        (info, gathered)
    }
}

#[cfg(test)]
mod tests;
