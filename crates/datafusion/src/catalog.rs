//! Name resolution: each pool (store of tables) is a catalog (the first part of `catalog.schema.table`) with the pool's
//! schemas. Its tables are also found without the name of the catalog, after the session's own tables and views.
//!
//! If a name has a schema and a pool does not have that schema, the pool's error is returned: the schema is never left
//! out to find a table elsewhere. DataFusion asks for schemas synchronously, without a way to ask the pool, so that a
//! schema is returned for every name; whether it exists is checked when a table in it is looked up.
//!
//! Invariant: one statement sees one version of a table, the newest at the time of planning ([`crate::pins`]).
//! Descriptions of a remote pool's tables are cached, which saves a round trip. When a pool prepares a program (the
//! part of a query that the pool runs), it reports the table version that the program will read. If that is not the
//! cached version, or if the statement has no program that would tell, the session drops the cache and plans once more.

mod home;
mod system;

pub(crate) use home::{Home, HomeCatalog, check_given, with_tables};
pub use system::{SystemFunction, SystemSchema};

use crate::session::SCHEMA;
use crate::table::PoolTable;
use crate::views::{self, Reader};
use async_trait::async_trait;
use datafusion::catalog::{
    CatalogProvider, CatalogProviderList, MemoryCatalogProviderList, SchemaProvider, TableProvider,
};
use datafusion::common::{TableReference, internal_err};
use datafusion::error::Result;
use datafusion::execution::session_state::SessionState;
use datafusion::logical_expr::TableType;
use farpool_model::{ErrorKind, Opaque, Relation, SchemaName, TableName, View};
use farpool_planner::joins::sizes::Sketches;
use farpool_sql::error;
use farpool_transfer::{LinkMeter, Pool};
use futures::FutureExt;
use futures::future::BoxFuture;
use parking_lot::RwLock;
use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Weak};

/// A table or a view, to which a name in a pool refers.
pub(crate) enum Found {
    Table(PoolTable),
    View(View),
}

/// The tables, views and schemas of one pool.
#[derive(Debug)]
pub(crate) struct PoolCatalog {
    /// A weak reference to this catalog, which its schemas need to get a strong one.
    this: Weak<PoolCatalog>,
    pool: Arc<dyn Pool>,
    /// The session state that views are planned with. Weak, because the session holds this catalog.
    session: Opaque<Weak<RwLock<SessionState>>>,
    pushdown: bool,
    meter: Arc<LinkMeter>,
    sketches: Arc<Sketches>,
    /// The names at the time of the last [`PoolCatalog::refresh`]; kept because DataFusion lists names synchronously.
    names: RwLock<ListedNames>,
    /// Cached descriptions of the tables; empty for a pool in this process, which is asked each time.
    known: RwLock<HashMap<TableName, PoolTable>>,
}

/// Names of a pool, by schema. `public` is always among the schemas.
type ListedNames = BTreeMap<SchemaName, BTreeMap<String, TableType>>;

impl PoolCatalog {
    /// Creates the catalog of `pool` for the session whose state is `session`.
    pub(crate) fn new(
        pool: Arc<dyn Pool>,
        pushdown: bool,
        session: Weak<RwLock<SessionState>>,
    ) -> Arc<PoolCatalog> {
        let (meter, sketches, names, known) = <(Arc<LinkMeter>, Arc<Sketches>, _, _)>::default();
        let session = Opaque::new(session);
        Arc::new_cyclic(|this| {
            let this = Weak::clone(this);
            PoolCatalog { this, pool, session, pushdown, meter, sketches, names, known }
        })
    }

    /// Returns the pool of this catalog.
    pub(crate) fn pool(&self) -> &Arc<dyn Pool> {
        &self.pool
    }

    /// Measures the link to the pool, if it is remote.
    pub(crate) async fn probe(&self) {
        if self.pool.is_remote() {
            self.meter.probe(&*self.pool).await;
        }
    }

    /// Fetches the names of the pool's schemas, tables and views for later listings. Returns the names of tables and
    /// views as statements may write them: `table` in the schema `public`, else `schema.table`.
    pub(crate) async fn refresh(&self) -> farpool_model::Result<Vec<String>> {
        let listing = self.pool.list(None).await?;
        let schemas = [public()].into_iter().chain(listing.schemas);
        let mut names: ListedNames = schemas.map(|schema| (schema, BTreeMap::new())).collect();
        let tables = listing.tables.into_iter().map(|table| (table.name, TableType::Base));
        let views = listing.views.into_iter().map(|name| (name, TableType::View));
        let mut written = Vec::new();
        for (name, kind) in tables.chain(views) {
            names.entry(name.schema()).or_default().insert(name.table().to_string(), kind);
            written.push(name.to_string());
        }
        *self.names.write() = names;
        Ok(written)
    }

    /// Fetches the names of the pool, and returns whether it has the schema.
    pub(crate) async fn has_schema(&self, schema: &SchemaName) -> farpool_model::Result<bool> {
        self.refresh().await?;
        Ok(self.names.read().contains_key(schema))
    }

    /// Finds a table (from the cache if possible) or a view (always fetched). Returns `None` if the pool has the schema
    /// of the name, but nothing of that name in it; another pool may have it.
    ///
    /// # Errors
    /// `NotFound` if the pool does not have the schema; errors of a pool that cannot be asked.
    pub(crate) async fn find(&self, name: &TableName) -> farpool_model::Result<Option<Found>> {
        if let Some(table) = self.known.read().get(name) {
            return Ok(Some(Found::Table(table.clone())));
        }
        match self.pool.relation(name).await {
            Ok(Relation::Table(info)) => {
                let table = PoolTable::new(Arc::clone(&self.pool), info);
                let table = table.with_pushdown(self.pushdown).with_meter(&self.meter);
                let table = table.with_sketches(&self.sketches);
                if self.pool.is_remote() {
                    self.known.write().insert(name.clone(), table.clone());
                }
                Ok(Some(Found::Table(table)))
            }
            // Views are not cached, because nothing tells the session that a view has changed.
            Ok(Relation::View(view)) => Ok(Some(Found::View(view))),
            // A missing table may be in another pool, but a missing schema is an error.
            Err(error) if error.kind == ErrorKind::NotFound => match name.is_public() {
                false if !self.has_schema(&name.schema()).await? => Err(error),
                _ => Ok(None),
            },
            Err(error) => Err(error),
        }
    }

    /// Converts a table or view to the table provider that DataFusion plans with.
    fn provide(&self, found: Found) -> BoxFuture<'_, Result<Arc<dyn TableProvider>>> {
        async move {
            match found {
                Found::Table(table) => Ok(Arc::new(table) as Arc<dyn TableProvider>),
                Found::View(view) => match self.session.upgrade() {
                    Some(state) => {
                        let reader = Reader::new(state.read().clone(), self);
                        Ok(reader.expand(&view, &[]).await? as Arc<dyn TableProvider>)
                    }
                    None => internal_err!("the session of view {view:?} is gone"),
                },
            }
        }
        .boxed()
    }

    /// Drops the cached descriptions of tables; returns whether there were any.
    fn forget(&self) -> bool {
        !std::mem::take(&mut *self.known.write()).is_empty()
    }
}

impl CatalogProvider for PoolCatalog {
    fn schema_names(&self) -> Vec<String> {
        self.names.read().keys().map(SchemaName::to_string).collect()
    }

    /// Returns a schema for any name, also if the pool has no such schema (the module documentation says why).
    fn schema(&self, name: &str) -> Option<Arc<dyn SchemaProvider>> {
        let (catalog, schema) = (self.this.upgrade()?, SchemaName::new(name).ok()?);
        Some(Arc::new(PoolSchema { catalog, schema }))
    }
}

/// A schema of a pool, by name; the pool may not have it.
#[derive(Debug)]
struct PoolSchema {
    catalog: Arc<PoolCatalog>,
    schema: SchemaName,
}

impl PoolSchema {
    async fn find(&self, name: &str) -> Result<Option<Found>> {
        let Ok(name) = TableName::in_schema(&self.schema, name) else { return Ok(None) };
        self.catalog.find(&name).await.map_err(error::wrap)
    }

    fn listed(&self, name: &str) -> Option<TableType> {
        self.catalog.names.read().get(&self.schema)?.get(name).copied()
    }
}

#[async_trait]
impl SchemaProvider for PoolSchema {
    fn table_names(&self) -> Vec<String> {
        let names = self.catalog.names.read();
        names.get(&self.schema).into_iter().flat_map(BTreeMap::keys).cloned().collect()
    }

    async fn table(&self, name: &str) -> Result<Option<Arc<dyn TableProvider>>> {
        match self.find(name).await? {
            Some(found) => self.catalog.provide(found).await.map(Some),
            None => Ok(None),
        }
    }

    async fn table_type(&self, name: &str) -> Result<Option<TableType>> {
        Ok(self.listed(name))
    }

    fn table_exist(&self, name: &str) -> bool {
        self.listed(name).is_some()
    }
}

/// Returns the schema `public`, which names without a schema refer to.
pub(crate) fn public() -> SchemaName {
    SchemaName::new(SCHEMA).expect("a valid name")
}

/// Returns the schema of `name`; `default` if it has none.
///
/// # Errors
/// `Invalid` if it is not a valid name of a schema.
pub(crate) fn schema_of(name: &TableReference, default: &str) -> farpool_model::Result<SchemaName> {
    SchemaName::new(name.schema().unwrap_or(default))
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

/// A schema for listings (SHOW TABLES, information_schema): lists the tables and views of a pool and their columns. A
/// view that cannot be planned is listed without columns, instead of failing the whole list.
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
        match pool.find(name).await? {
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

/// A catalog whose pool schemas are [`Listed`].
#[derive(Debug)]
struct ListedCatalog(Arc<dyn CatalogProvider>);

impl CatalogProvider for ListedCatalog {
    fn schema_names(&self) -> Vec<String> {
        self.0.schema_names()
    }

    fn schema(&self, name: &str) -> Option<Arc<dyn SchemaProvider>> {
        let schema = self.0.schema(name)?;
        Some(if schema.is::<PoolSchema>() { Arc::new(Listed(schema)) } else { schema })
    }
}

/// Wraps `catalogs` for listings of their contents (information_schema), so that a view that cannot be planned fails no
/// listing.
pub(crate) fn listed(catalogs: &dyn CatalogProviderList) -> Arc<dyn CatalogProviderList> {
    let list = MemoryCatalogProviderList::new();
    for name in catalogs.catalog_names() {
        if let Some(catalog) = catalogs.catalog(&name) {
            list.register_catalog(name, Arc::new(ListedCatalog(catalog)));
        }
    }
    Arc::new(list)
}
