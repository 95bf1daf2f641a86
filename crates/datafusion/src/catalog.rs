//! Name resolution: each pool is a catalog of its own, and its tables are also found without a qualifier,
//! after the session's own tables and views.
//!
//! Invariant: one statement sees one version of a table, the newest at the time of planning
//! ([`crate::pins`]). Descriptions of a remote pool's tables are cached, which saves a round trip: the pool
//! tells which version it prepared a program for. If that is another version than the cached one, or if no
//! program went to a pool, the session drops the cache and plans again, once.

use crate::copy::FileWriter;
use crate::dialect;
use crate::error;
use crate::file::{FileOpener, FileTable};
use crate::session::{HOME, SCHEMA};
use crate::statements::GivenTable;
use crate::table::PoolTable;
use crate::views::{self, Reader};
use arrow_array::RecordBatch;
use async_trait::async_trait;
use datafusion::catalog::{
    CatalogProvider, CatalogProviderList, MemTable, MemoryCatalogProvider, MemoryCatalogProviderList,
    SchemaProvider, TableProvider,
};
use datafusion::common::{TableReference, internal_err};
use datafusion::error::Result;
use datafusion::execution::session_state::SessionState;
use datafusion::logical_expr::TableType;
use farpool_model::{ErrorKind, Relation, TableName, View, limits};
use farpool_planner::joins::sizes::Sketches;
use farpool_transfer::{LinkMeter, Pool};
use parking_lot::RwLock;
use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::sync::{Arc, Weak};

/// What a name refers to in a pool.
pub(crate) enum Found {
    Table(PoolTable),
    View(View),
}

/// The tables and views of one pool.
#[derive(Debug)]
pub(crate) struct PoolSchema {
    pool: Arc<dyn Pool>,
    /// The session state that views are planned with. Weak, because the session holds this schema.
    session: Weak<RwLock<SessionState>>,
    pushdown: bool,
    meter: Arc<LinkMeter>,
    sketches: Arc<Sketches>,
    /// The names at the time of the last [`PoolSchema::refresh`]: DataFusion lists names synchronously.
    names: RwLock<BTreeMap<String, TableType>>,
    /// Cached descriptions of the tables, if the pool is remote.
    known: RwLock<HashMap<TableName, PoolTable>>,
}

impl PoolSchema {
    /// Makes the schema of the tables and views of `pool`, for `session`.
    pub(crate) fn new(pool: Arc<dyn Pool>, pushdown: bool, session: Weak<RwLock<SessionState>>) -> Self {
        let (meter, sketches, names, known) = <(Arc<LinkMeter>, Arc<Sketches>, _, _)>::default();
        PoolSchema { pool, session, pushdown, meter, sketches, names, known }
    }

    /// The pool of this schema.
    pub(crate) fn pool(&self) -> &Arc<dyn Pool> {
        &self.pool
    }

    /// Measures the link to the pool, if it is remote.
    pub(crate) async fn probe(&self) {
        if self.pool.is_remote() {
            self.meter.probe(&*self.pool).await;
        }
    }

    /// Fetches the names of the pool's tables and views.
    pub(crate) async fn refresh(&self) -> farpool_model::Result<Vec<String>> {
        let listing = self.pool.list(None).await?;
        let tables = listing.tables.into_iter().map(|table| (table.name.into(), TableType::Base));
        let views = listing.views.into_iter().map(|name| (name.into(), TableType::View));
        let names: BTreeMap<String, TableType> = tables.chain(views).collect();
        self.names.write().clone_from(&names);
        Ok(names.into_keys().collect())
    }

    /// Finds a table, from the cache if possible, or a view, which is always fetched.
    pub(crate) async fn find(&self, name: &str) -> farpool_model::Result<Option<Found>> {
        let Ok(name) = TableName::new(name) else { return Ok(None) };
        if let Some(table) = self.known.read().get(&name) {
            return Ok(Some(Found::Table(table.clone())));
        }
        match self.pool.relation(&name).await {
            Ok(Relation::Table(info)) => {
                let table = PoolTable::new(Arc::clone(&self.pool), info);
                let table = table.with_pushdown(self.pushdown).with_meter(&self.meter);
                let table = table.with_sketches(&self.sketches);
                if self.pool.is_remote() {
                    self.known.write().insert(name, table.clone());
                }
                Ok(Some(Found::Table(table)))
            }
            // Views are not cached, because no pool would report that one has changed.
            Ok(Relation::View(view)) => Ok(Some(Found::View(view))),
            Err(error) if error.kind == ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Converts a table or view to the table provider that DataFusion plans with.
    async fn provide(&self, found: Found) -> Result<Arc<dyn TableProvider>> {
        match found {
            Found::Table(table) => Ok(Arc::new(table)),
            Found::View(view) => match self.session.upgrade() {
                Some(state) => {
                    let reader = Reader::new(state.read().clone(), self);
                    Ok(reader.expand(&view, &[]).await?)
                }
                None => internal_err!("the session of view {view:?} is gone"),
            },
        }
    }

    /// Drops the cached descriptions; returns whether there were any.
    fn forget(&self) -> bool {
        !std::mem::take(&mut *self.known.write()).is_empty()
    }
}

#[async_trait]
impl SchemaProvider for PoolSchema {
    fn table_names(&self) -> Vec<String> {
        self.names.read().keys().cloned().collect()
    }

    async fn table(&self, name: &str) -> Result<Option<Arc<dyn TableProvider>>> {
        match self.find(name).await.map_err(error::wrap)? {
            Some(found) => self.provide(found).await.map(Some),
            None => Ok(None),
        }
    }

    async fn table_type(&self, name: &str) -> Result<Option<TableType>> {
        Ok(self.names.read().get(name).copied())
    }

    fn table_exist(&self, name: &str) -> bool {
        self.names.read().contains_key(name)
    }
}

/// Returns the table of a pool that `name` refers to; `None` if it refers to something else, or to nothing.
///
/// # Errors
/// Those of a pool that cannot be asked.
pub(crate) async fn pool_table(state: &SessionState, name: &TableReference) -> Result<Option<PoolTable>> {
    let Ok(schema) = state.schema_for_ref(name.clone()) else { return Ok(None) };
    let provider = schema.table(name.table()).await?;
    Ok(provider.and_then(|provider| provider.downcast_ref::<PoolTable>().cloned()))
}

/// Lists the tables and views of a pool and their columns; a view that cannot be planned does not fail the
/// whole list.
#[derive(Debug)]
struct Listed(Arc<dyn SchemaProvider>);

#[async_trait]
impl SchemaProvider for Listed {
    fn table_names(&self) -> Vec<String> {
        self.0.table_names()
    }

    async fn table(&self, name: &str) -> Result<Option<Arc<dyn TableProvider>>> {
        let table = self.0.table(name).await;
        let (Err(_), Some(pool)) = (&table, self.0.downcast_ref::<PoolSchema>()) else { return table };
        match pool.find(name).await.map_err(error::wrap)? {
            Some(Found::View(view)) => Ok(Some(Arc::new(views::without_columns(&view)?))),
            _ => table,
        }
    }

    async fn table_type(&self, name: &str) -> Result<Option<TableType>> {
        self.0.table_type(name).await
    }

    fn table_exist(&self, name: &str) -> bool {
        self.0.table_exist(name)
    }
}

/// Wraps `catalogs` for listings of their contents.
pub(crate) fn listed(catalogs: &dyn CatalogProviderList) -> Result<Arc<dyn CatalogProviderList>> {
    let list = MemoryCatalogProviderList::new();
    for name in catalogs.catalog_names() {
        let Some(catalog) = catalogs.catalog(&name) else { continue };
        let copy = MemoryCatalogProvider::new();
        for schema_name in catalog.schema_names() {
            let Some(schema) = catalog.schema(&schema_name) else { continue };
            match schema.is::<PoolSchema>() {
                true => copy.register_schema(&schema_name, Arc::new(Listed(schema)))?,
                false => copy.register_schema(&schema_name, schema)?,
            };
        }
        list.register_catalog(name, Arc::new(copy));
    }
    Ok(Arc::new(list))
}

/// The names of one statement: tables that it was given, then those of the session and its pools.
#[derive(Debug)]
struct Given {
    tables: BTreeMap<String, Arc<dyn TableProvider>>,
    home: Arc<Home>,
}

#[async_trait]
impl SchemaProvider for Given {
    fn table_names(&self) -> Vec<String> {
        self.tables.keys().cloned().chain(self.home.table_names()).collect()
    }

    async fn table(&self, name: &str) -> Result<Option<Arc<dyn TableProvider>>> {
        match self.tables.get(name) {
            Some(table) => Ok(Some(Arc::clone(table))),
            None => self.home.table(name).await,
        }
    }

    fn register_table(
        &self,
        name: String,
        table: Arc<dyn TableProvider>,
    ) -> Result<Option<Arc<dyn TableProvider>>> {
        self.home.register_table(name, table)
    }

    fn deregister_table(&self, name: &str) -> Result<Option<Arc<dyn TableProvider>>> {
        self.home.deregister_table(name)
    }

    fn table_exist(&self, name: &str) -> bool {
        self.tables.contains_key(name) || self.home.table_exist(name)
    }
}

/// Returns `catalogs` for one statement, which can name `tables` without a qualifier.
pub(crate) fn with_tables(
    catalogs: &dyn CatalogProviderList,
    home: &Arc<Home>,
    tables: &[GivenTable],
) -> Result<Arc<dyn CatalogProviderList>> {
    let list = MemoryCatalogProviderList::new();
    for name in catalogs.catalog_names() {
        if let Some(catalog) = catalogs.catalog(&name) {
            list.register_catalog(name, catalog);
        }
    }
    let provider = |table: &GivenTable| -> Result<(String, Arc<dyn TableProvider>)> {
        let rows = MemTable::try_new(Arc::clone(&table.schema), dealt(&table.batches))?;
        Ok((table.name.clone(), Arc::new(rows)))
    };
    let tables = tables.iter().map(provider).collect::<Result<_>>()?;
    let catalog = MemoryCatalogProvider::new();
    catalog.register_schema(SCHEMA, Arc::new(Given { tables, home: Arc::clone(home) }))?;
    list.register_catalog(HOME.to_string(), Arc::new(catalog));
    Ok(Arc::new(list))
}

/// Cuts batches into those that an engine works on at once, so that it can deal them out: a data frame often is one batch.
fn dealt(batches: &[RecordBatch]) -> Vec<Vec<RecordBatch>> {
    let cut = |batch: &RecordBatch| {
        let rows = batch.num_rows();
        let starts = (0..rows).step_by(limits::BATCH_ROWS);
        let slices = starts.map(|start| batch.slice(start, limits::BATCH_ROWS.min(rows - start)));
        slices.collect::<Vec<_>>()
    };
    vec![batches.iter().flat_map(cut).collect()]
}

/// The catalog for names without a qualifier.
#[derive(Default)]
pub(crate) struct Home {
    pools: RwLock<Vec<Arc<PoolSchema>>>,
    local: RwLock<BTreeMap<String, Arc<dyn TableProvider>>>,
    opener: RwLock<Option<Arc<dyn FileOpener>>>,
    writer: RwLock<Option<Arc<dyn FileWriter>>>,
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

    pub(crate) fn set_writer(&self, writer: Arc<dyn FileWriter>) {
        *self.writer.write() = Some(writer);
    }

    pub(crate) fn writer(&self) -> Option<Arc<dyn FileWriter>> {
        self.writer.read().clone()
    }

    pub(crate) fn opener(&self) -> Option<Arc<dyn FileOpener>> {
        self.opener.read().clone()
    }

    /// Finds the table or view of a pool that `name` refers to without a qualifier, and its pool.
    pub(crate) async fn find(&self, name: &str) -> farpool_model::Result<Option<(Arc<PoolSchema>, Found)>> {
        if self.local.read().contains_key(name) {
            return Ok(None);
        }
        for pool in self.pools() {
            if let Some(found) = pool.find(name).await? {
                return Ok(Some((pool, found)));
            }
        }
        Ok(None)
    }

    /// Whether the name refers to something that only this session or this machine has.
    pub(crate) fn is_own(&self, name: &str) -> bool {
        self.table_exist(name) || (self.opener.read().is_some() && names_a_file(name))
    }

    /// Drops all cached descriptions of tables; returns whether there were any.
    pub(crate) fn forget(&self) -> bool {
        self.pools().iter().fold(false, |any, pool| pool.forget() | any)
    }

    /// Fetches all names that can be used without a qualifier.
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
    /// Lists the session's own tables; those of the pools are listed with their catalogs.
    fn table_names(&self) -> Vec<String> {
        self.local.read().keys().cloned().collect()
    }

    async fn table(&self, name: &str) -> Result<Option<Arc<dyn TableProvider>>> {
        let local = self.local.read().get(name).cloned();
        if local.is_some() {
            return Ok(local);
        }
        if let Some((pool, found)) = self.find(name).await.map_err(error::wrap)? {
            return pool.provide(found).await.map(Some);
        }
        match self.opener() {
            Some(opener) if names_a_file(name) => {
                let files = dialect::files(name)?;
                let file = FileTable::stand_in(&*opener, name, files).await.map_err(error::wrap)?;
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

/// Whether `name` is a path, a pattern or a call of a reader; table names have no directory, extension or
/// wildcard.
pub(crate) fn names_a_file(name: &str) -> bool {
    name.contains(['/', '.', '*', '\\']) || dialect::is_call(name)
}
