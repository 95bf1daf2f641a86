//! Resolution of names without a catalog: the statement's own tables, the session's tables, files, and the tables of
//! the pools (stores of tables), in order of registration.

use super::system::{SystemProvider, SystemSchema};
use super::{Found, PoolCatalog};
use crate::copy::FileWriter;
use crate::file::{FileOpener, FileTable};
use crate::session::{HOME, SCHEMA, Session};
use arrow_array::RecordBatch;
use async_trait::async_trait;
use datafusion::catalog::{
    CatalogProvider, CatalogProviderList, MemTable, MemoryCatalogProviderList, SchemaProvider, TableProvider,
};
use datafusion::datasource::{ViewTable, provider_as_source};
use datafusion::error::Result;
use datafusion::execution::session_state::SessionState;
use datafusion::logical_expr::LogicalPlanBuilder;
use datafusion::sql::parser::Statement;
use farpool_model::{Error, ErrorKind, SchemaName, TableName, limits};
use farpool_sql::names::names_a_file;
use farpool_sql::{GivenTable, dialect, error};
use parking_lot::RwLock;
use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

/// The schema `public` for one statement: the tables that the caller passed with the statement, then those of the
/// session and its pools.
#[derive(Debug)]
struct Given {
    /// The tables by their names; a flag tells whether the rows come behind those of a table of this name.
    tables: BTreeMap<String, (Arc<dyn TableProvider>, bool)>,
    home: Arc<Home>,
}

#[async_trait]
impl SchemaProvider for Given {
    fn table_names(&self) -> Vec<String> {
        self.tables.keys().cloned().chain(self.home.table_names()).collect()
    }

    async fn table(&self, name: &str) -> Result<Option<Arc<dyn TableProvider>>> {
        match self.tables.get(name) {
            Some((rows, false)) => Ok(Some(Arc::clone(rows))),
            Some((rows, true)) => match self.home.table(name).await? {
                Some(table) => behind(name, table, Arc::clone(rows)).map(Some),
                None => Ok(None),
            },
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

/// Returns `catalogs` for one statement, with `tables` (rows that the caller passed with the statement) added: the
/// statement can refer to them without a qualifier.
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
    let mut given = BTreeMap::new();
    for table in tables {
        let rows: Arc<dyn TableProvider> =
            Arc::new(MemTable::try_new(Arc::clone(&table.schema), dealt(&table.batches))?);
        given.insert(table.name.clone(), (rows, table.adds));
    }
    let given = Arc::new(Given { tables: given, home: Arc::clone(home) });
    list.register_catalog(HOME.to_string(), Arc::new(HomeCatalog { home: Arc::clone(home), public: given }));
    Ok(Arc::new(list))
}

/// Refuses a statement that names the catalog of a table which other rows come behind: it would not see them.
pub(crate) async fn check_given(
    session: &Session,
    state: &SessionState,
    statement: &Statement,
    tables: &[GivenTable],
) -> Result<()> {
    if !tables.iter().any(|table| table.adds) {
        return Ok(());
    }
    for reference in state.resolve_table_references(statement)? {
        if let Some((_, Found::View(view))) = session.find(&reference).await? {
            // A view is planned without them.
            let name = view.name().as_str().to_string();
            let message = format!("{name:?} is a view, and there are rows that are not committed");
            return Err(error::wrap(Error::invalid(message).advise("commit first, or name its tables")));
        }
        let is_given = tables.iter().any(|table| table.adds && table.name == reference.table());
        if is_given && reference.catalog().is_some_and(|catalog| catalog != HOME) {
            let message = format!("{reference} has rows that are not committed");
            let error = Error::invalid(message).advise("name the table without its catalog");
            return Err(error::wrap(error));
        }
    }
    Ok(())
}

/// Returns a table that has the rows of `table`, and then `rows`.
fn behind(
    name: &str,
    table: Arc<dyn TableProvider>,
    rows: Arc<dyn TableProvider>,
) -> Result<Arc<dyn TableProvider>> {
    let first = LogicalPlanBuilder::scan(name, provider_as_source(table), None)?;
    let behind = LogicalPlanBuilder::scan(name, provider_as_source(rows), None)?;
    let both = first.union(behind.build()?)?.build()?;
    Ok(Arc::new(ViewTable::new(both, None)))
}

/// The catalog that names without a catalog are resolved in.
#[derive(Debug)]
pub(crate) struct HomeCatalog {
    home: Arc<Home>,
    /// The schema `public` of this catalog: [`Home`], or [`Given`] for a statement with tables of its own.
    public: Arc<dyn SchemaProvider>,
}

impl HomeCatalog {
    pub(crate) fn new(home: &Arc<Home>) -> Self {
        HomeCatalog { home: Arc::clone(home), public: Arc::clone(home) as _ }
    }
}

impl CatalogProvider for HomeCatalog {
    /// Lists only `public`, which has all tables of the session; the pools' schemas are listed with the catalogs of the
    /// pools.
    fn schema_names(&self) -> Vec<String> {
        vec![SCHEMA.to_string()]
    }

    fn schema(&self, name: &str) -> Option<Arc<dyn SchemaProvider>> {
        if name == SCHEMA {
            return Some(Arc::clone(&self.public));
        }
        if let Some(system) = self.home.system(name) {
            return Some(system);
        }
        let (home, schema) = (Arc::clone(&self.home), SchemaName::new(name).ok()?);
        Some(Arc::new(HomeSchema { home, schema }))
    }
}

/// A schema other than `public`, named without a catalog: each table is looked up in the pools in order of
/// registration.
#[derive(Debug)]
struct HomeSchema {
    home: Arc<Home>,
    schema: SchemaName,
}

#[async_trait]
impl SchemaProvider for HomeSchema {
    fn table_names(&self) -> Vec<String> {
        Vec::new()
    }

    async fn table(&self, name: &str) -> Result<Option<Arc<dyn TableProvider>>> {
        if let Some(system) = self.home.implied(name) {
            return system.table(name).await;
        }
        let Ok(name) = TableName::in_schema(&self.schema, name) else { return Ok(None) };
        match self.home.find(&name).await.map_err(error::wrap)? {
            Some((pool, found)) => pool.provide(found).await.map(Some),
            None => Ok(None),
        }
    }

    fn table_exist(&self, _name: &str) -> bool {
        false
    }
}

/// Splits the rows into batches of the engine's usual size, so that several threads can work on them. Reason: callers
/// often pass a whole data frame as one batch.
fn dealt(batches: &[RecordBatch]) -> Vec<Vec<RecordBatch>> {
    let cut = |batch: &RecordBatch| {
        let rows = batch.num_rows();
        let starts = (0..rows).step_by(limits::BATCH_ROWS);
        let slices = starts.map(|start| batch.slice(start, limits::BATCH_ROWS.min(rows - start)));
        slices.collect::<Vec<_>>()
    };
    vec![batches.iter().flat_map(cut).collect()]
}

/// All that a name without a catalog may refer to: the session's own tables (`local`), its pools, and files.
#[derive(Default)]
pub(crate) struct Home {
    pools: RwLock<Vec<Arc<PoolCatalog>>>,
    local: RwLock<BTreeMap<String, Arc<dyn TableProvider>>>,
    system: RwLock<Vec<Arc<SystemProvider>>>,
    opener: RwLock<Option<Arc<dyn FileOpener>>>,
    writer: RwLock<Option<Arc<dyn FileWriter>>>,
}

impl fmt::Debug for Home {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Home").field("tables", &self.table_names()).finish_non_exhaustive()
    }
}

impl Home {
    pub(crate) fn add_pool(&self, pool: Arc<PoolCatalog>) {
        self.pools.write().push(pool);
    }

    pub(crate) fn pools(&self) -> Vec<Arc<PoolCatalog>> {
        self.pools.read().clone()
    }

    pub(crate) fn set_system(&self, system: Arc<dyn SystemSchema>) {
        self.system.write().push(Arc::new(SystemProvider(system)));
    }

    /// Returns the schema of computed tables of this name.
    pub(crate) fn system(&self, schema: &str) -> Option<Arc<SystemProvider>> {
        self.system.read().iter().find(|system| system.0.name() == schema).cloned()
    }

    /// Returns the schema of computed tables that has a table of this name, which is named without a schema.
    fn implied(&self, table: &str) -> Option<Arc<SystemProvider>> {
        let mut all = self.system.read().clone().into_iter();
        all.find(|system| system.0.is_implied() && system.0.has(table))
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

    /// Finds the table or view `name` in the first pool that has it. Returns it with that pool; `None` if no pool has
    /// it.
    ///
    /// # Errors
    /// `NotFound` if no pool has the schema of the name.
    pub(crate) async fn find(
        &self,
        name: &TableName,
    ) -> farpool_model::Result<Option<(Arc<PoolCatalog>, Found)>> {
        if self.is_of_session(name) {
            return Ok(None);
        }
        let (mut missing, mut has_schema) = (None, name.is_public());
        for pool in self.pools() {
            match pool.find(name).await {
                Ok(Some(found)) => return Ok(Some((pool, found))),
                Ok(None) => has_schema = true,
                Err(error) if error.kind == ErrorKind::NotFound => missing = Some(error),
                Err(error) => return Err(error),
            }
        }
        match missing {
            Some(error) if !has_schema => Err(error),
            _ => Ok(None),
        }
    }

    /// Returns whether `name` refers to a table or view of the session.
    pub(crate) fn is_of_session(&self, name: &TableName) -> bool {
        name.is_public() && self.local.read().contains_key(name.table())
    }

    /// Returns whether `name` in the schema `public` refers to something that other clients do not have: a table or
    /// view of this session, or a file of this machine.
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
        if let Some(system) = self.implied(name) {
            return system.table(name).await;
        }
        if let Ok(name) = TableName::new(name)
            && let Some((pool, found)) = self.find(&name).await.map_err(error::wrap)?
        {
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
