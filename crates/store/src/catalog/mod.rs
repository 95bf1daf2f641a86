//! Which tables each tenant has, and the current version of each.
//!
//! Versions are swapped, never changed: whoever got a table keeps its version, and its pages, for as long
//! as the `Arc` lives.
//!
//! Invariant: version numbers only grow over the life of a catalog, over all tables, so that a version
//! names one state of one table for ever.

mod load;
mod names;
mod tap;

pub use load::Load;

use arrow_schema::Schema;
use farpool_columns::Table;
use farpool_memory::Pool;
use farpool_model::{
    ColumnStates, Error, ErrorKind, LoadMode, Result, TableInfo, TableName, TableStatistics, TenantName,
    Version, limits,
};
use parking_lot::RwLock;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use tap::Gathered;

/// See the file's comment. Cheap to read while loads run: the lock is held for a look-up or a swap.
#[derive(Debug)]
pub struct Catalog {
    pool: Arc<Pool>,
    tenants: RwLock<Tenants>,
    taps_closed: AtomicBool,
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
    /// What a tap found out while the rows came in.
    gathered: Option<Arc<Gathered>>,
}

/// What must hold of a table's current state for a load to take its place.
#[derive(Clone, Copy, Debug)]
enum Expected {
    Anything,
    Nothing,
    Version(Version),
}

impl Catalog {
    /// A catalog without tables, whose loads take their memory from `pool`.
    pub fn new(pool: Arc<Pool>) -> Self {
        Catalog { pool, tenants: RwLock::default(), taps_closed: AtomicBool::new(false) }
    }

    /// Has loads that begin from now on find out nothing about their rows, as [`Load::without_tap`] does for one:
    /// for a node whose clients want no profiles.
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

    /// What was gathered about the current version of a table while it was loaded: of all its columns, or, without
    /// the moments, of some.
    ///
    /// # Errors
    /// `NotFound`, naming tables that there are; `Invalid` for a column that the table does not have.
    pub fn statistics(
        &self,
        tenant: &TenantName,
        name: &TableName,
        columns: Option<&[usize]>,
    ) -> Result<TableStatistics> {
        let current = self.current(tenant, name)?;
        let table = current.info(name);
        let of_table = table.columns.len();
        if let Some(other) = columns.and_then(|columns| columns.iter().find(|column| **column >= of_table)) {
            let message = format!("table {:?} has {of_table} columns, and none at {other}", name.as_str());
            return Err(Error::invalid(message).advise("read the table's description again"));
        }
        let all = match current.gathered.as_deref() {
            Some(Gathered { columns, moments, .. }) => {
                TableStatistics { columns: columns.clone(), moments: moments.clone(), table }
            }
            None => TableStatistics {
                columns: vec![ColumnStates::default(); table.columns.len()],
                moments: None,
                table,
            },
        };
        Ok(match columns {
            Some(columns) => all.of(columns),
            None => all,
        })
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
        gathered: Option<Gathered>,
        expected: Expected,
    ) -> Result<TableInfo, Refused> {
        let mut tenants = self.tenants.write();
        if let Err(error) = tenants.check(tenant, name, expected) {
            return Err(Refused { error, table: Box::new(table) });
        }
        tenants.versions_made += 1;
        let version = Version(tenants.versions_made);
        let current = Current { version, table: Arc::new(table), gathered: gathered.map(Arc::new) };
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
    fn info(&self, name: &TableName) -> TableInfo {
        let mut info = self.brief(name);
        let spreads = self.gathered.iter().flat_map(|gathered| &gathered.spreads);
        for (column, spread) in info.columns.iter_mut().zip(spreads) {
            column.spread.clone_from(spread);
        }
        info
    }

    /// What a list of many tables has room for.
    fn brief(&self, name: &TableName) -> TableInfo {
        let mut columns = self.table.statistics.clone();
        let estimates = self.gathered.iter().flat_map(|gathered| &gathered.distinct);
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
        }
    }
}

#[cfg(test)]
mod tests;
