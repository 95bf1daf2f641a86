//! The names that statements use: each pool is a catalog of its own, and its tables are also found
//! without a qualifier, after the session's own tables and views.
//!
//! Invariant: one statement sees one version of a table, and it is the newest when it is planned ([`crate::pins`]).
//! What a remote pool said of a table is used again, which saves the way there and back, for the pool says which
//! version it prepared a program for; if that is another, and where no program went to a pool, the session forgets and
//! plans again, once.

use crate::error;
use crate::file::{FileOpener, FileTable};
use crate::joins::Sketches;
use crate::link::LinkMeter;
use crate::table::PoolTable;
use async_trait::async_trait;
use datafusion::catalog::{SchemaProvider, TableProvider};
use datafusion::error::Result;
use datafusion::logical_expr::TableType;
use farpool_model::{ErrorKind, TableName};
use farpool_transfer::Pool;
use parking_lot::RwLock;
use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::sync::Arc;

/// The tables of one pool.
#[derive(Debug)]
pub(crate) struct PoolSchema {
    pool: Arc<dyn Pool>,
    pushdown: bool,
    meter: Arc<LinkMeter>,
    sketches: Arc<Sketches>,
    /// The names at the time of the last [`PoolSchema::refresh`]: DataFusion lists names without waiting.
    names: RwLock<Vec<String>>,
    /// What the pool said of its tables, if it is remote.
    known: RwLock<HashMap<TableName, PoolTable>>,
}

impl PoolSchema {
    pub(crate) fn new(pool: Arc<dyn Pool>, pushdown: bool) -> Self {
        let (meter, sketches, names, known) = <(Arc<LinkMeter>, Arc<Sketches>, _, _)>::default();
        PoolSchema { pool, pushdown, meter, sketches, names, known }
    }

    /// The pool.
    pub(crate) fn pool(&self) -> &Arc<dyn Pool> {
        &self.pool
    }

    /// Measures the way to the pool, if there is one.
    pub(crate) async fn probe(&self) {
        if self.pool.is_remote() {
            self.meter.probe(&*self.pool).await;
        }
    }

    /// Asks the pool for the names of its tables.
    pub(crate) async fn refresh(&self) -> farpool_model::Result<Vec<String>> {
        let tables = self.pool.tables().await?;
        let names: Vec<String> = tables.into_iter().map(|t| t.name.into()).collect();
        self.names.write().clone_from(&names);
        Ok(names)
    }

    /// The table as the pool last described it, if there is one.
    pub(crate) async fn find(&self, name: &str) -> farpool_model::Result<Option<PoolTable>> {
        let Ok(name) = TableName::new(name) else { return Ok(None) };
        if let Some(table) = self.known.read().get(&name) {
            return Ok(Some(table.clone()));
        }
        match PoolTable::open(Arc::clone(&self.pool), &name).await {
            Ok(table) => {
                let table = table.with_pushdown(self.pushdown).with_meter(&self.meter);
                let table = table.with_sketches(&self.sketches);
                if self.pool.is_remote() {
                    self.known.write().insert(name, table.clone());
                }
                Ok(Some(table))
            }
            Err(error) if error.kind == ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Has the pool describe its tables anew; whether it had described any.
    fn forget(&self) -> bool {
        !std::mem::take(&mut *self.known.write()).is_empty()
    }
}

#[async_trait]
impl SchemaProvider for PoolSchema {
    fn table_names(&self) -> Vec<String> {
        self.names.read().clone()
    }

    async fn table(&self, name: &str) -> Result<Option<Arc<dyn TableProvider>>> {
        let found = self.find(name).await.map_err(error::wrap)?;
        Ok(found.map(|table| Arc::new(table) as Arc<dyn TableProvider>))
    }

    async fn table_type(&self, name: &str) -> Result<Option<TableType>> {
        Ok(self.table_exist(name).then_some(TableType::Base))
    }

    fn table_exist(&self, name: &str) -> bool {
        self.names.read().iter().any(|n| n == name)
    }
}

/// What names without a qualifier mean.
#[derive(Default)]
pub(crate) struct Home {
    pools: RwLock<Vec<Arc<PoolSchema>>>,
    local: RwLock<BTreeMap<String, Arc<dyn TableProvider>>>,
    opener: RwLock<Option<Arc<dyn FileOpener>>>,
}

impl fmt::Debug for Home {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Home").field("tables", &self.table_names()).finish_non_exhaustive()
    }
}

impl Home {
    pub(crate) fn add_pool(&self, pool: Arc<PoolSchema>) {
        self.pools.write().push(pool);
    }

    pub(crate) fn pools(&self) -> Vec<Arc<PoolSchema>> {
        self.pools.read().clone()
    }

    pub(crate) fn set_opener(&self, opener: Arc<dyn FileOpener>) {
        *self.opener.write() = Some(opener);
    }

    pub(crate) fn opener(&self) -> Option<Arc<dyn FileOpener>> {
        self.opener.read().clone()
    }

    /// The pool, of those reached without a qualifier, that holds the table.
    pub(crate) async fn pool_of(&self, name: &str) -> farpool_model::Result<Option<PoolTable>> {
        if self.local.read().contains_key(name) {
            return Ok(None);
        }
        for pool in self.pools() {
            if let Some(table) = pool.find(name).await? {
                return Ok(Some(table));
            }
        }
        Ok(None)
    }

    /// Forgets what the pools said of their tables; whether there was anything.
    pub(crate) fn forget(&self) -> bool {
        self.pools().iter().fold(false, |any, pool| pool.forget() | any)
    }

    /// The names that can be used without a qualifier, as the pools say now.
    pub(crate) async fn all_names(&self) -> farpool_model::Result<Vec<String>> {
        let mut names = self.table_names();
        for pool in self.pools() {
            names.extend(pool.refresh().await?);
        }
        Ok(names)
    }
}

#[async_trait]
impl SchemaProvider for Home {
    /// The session's own tables: those of the pools are listed with their catalogs.
    fn table_names(&self) -> Vec<String> {
        self.local.read().keys().cloned().collect()
    }

    async fn table(&self, name: &str) -> Result<Option<Arc<dyn TableProvider>>> {
        let local = self.local.read().get(name).cloned();
        if local.is_some() {
            return Ok(local);
        }
        if let Some(table) = self.pool_of(name).await.map_err(error::wrap)? {
            return Ok(Some(Arc::new(table)));
        }
        match self.opener() {
            Some(opener) if names_a_file(name) => {
                let file = FileTable::stand_in(&*opener, name).await.map_err(error::wrap)?;
                Ok(Some(Arc::new(file)))
            }
            _ => Ok(None),
        }
    }

    fn register_table(
        &self,
        name: String,
        table: Arc<dyn TableProvider>,
    ) -> Result<Option<Arc<dyn TableProvider>>> {
        Ok(self.local.write().insert(name, table))
    }

    fn deregister_table(&self, name: &str) -> Result<Option<Arc<dyn TableProvider>>> {
        Ok(self.local.write().remove(name))
    }

    fn table_exist(&self, name: &str) -> bool {
        self.local.read().contains_key(name)
    }
}

/// Names of tables have no directory, ending or wildcard.
fn names_a_file(name: &str) -> bool {
    name.contains(['/', '.', '*', '\\'])
}
