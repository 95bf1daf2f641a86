//! Schemas: the namespaces of a tenant's tables and views. `public` is always there and is not stored.
//!
//! Invariant: a table, a view or a claim whose name is in a schema other than `public` exists only while that schema
//! does. Code that creates one checks this under the lock of the names ([`CatalogState::check_schema`]), and a schema
//! is dropped only when it is empty, or with all its contents.

use super::changes::{Change, ChangeKind};
use super::names::Names;
use super::state::CatalogState;
use super::{Catalog, Commit, suggestions};
use farpool_model::{Error, ErrorKind, Result, SchemaName, TableName, TenantName, limits};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Schema names that SQL clients expect to belong to the query engine.
const RESERVED: [&str; 2] = ["information_schema", "pg_catalog"];

/// Maximum number of names in the error about a schema that is not empty.
const NAMES_SHOWN: usize = 5;

impl Catalog {
    /// Creates a schema. The returned [`Commit`] is durable later.
    ///
    /// # Errors
    /// `Exists` if there is one of this name; `Invalid` if the name is reserved; `OverLimit` if the tenant has too
    /// many.
    pub fn create_schema(self: &Arc<Self>, tenant: &TenantName, schema: &SchemaName) -> Result<Commit<()>> {
        if RESERVED.contains(&schema.as_str()) {
            let message = format!("the schema name {:?} is reserved", schema.as_str());
            return Err(Error::invalid(message).advise("choose another name"));
        }
        let change = Change::new(tenant, ChangeKind::PutSchema(schema.clone()));
        self.make_named(change, |state| state.check_new_schema(tenant, schema).map(|()| true))
    }

    /// Drops a schema that is empty or, with `cascade`, with all tables and views in it.
    ///
    /// # Errors
    /// `NotFound`; `Invalid` for `public`, and for a schema that is not empty without `cascade`; `Exists` while
    /// a load is about to create a table in it.
    pub fn drop_schema(
        self: &Arc<Self>,
        tenant: &TenantName,
        schema: &SchemaName,
        cascade: bool,
    ) -> Result<Commit<()>> {
        let change = Change::new(tenant, ChangeKind::DropSchema(schema.clone()));
        self.make_named(change, |state| state.check_drop(tenant, schema, cascade).map(|()| true))
    }
}

impl Catalog {
    /// Checks that the schema in which `name` names a table exists.
    ///
    /// # Errors
    /// `NotFound`, with the names of existing schemas that are close.
    pub fn check_schema(&self, tenant: &TenantName, name: &TableName) -> Result<()> {
        self.state.read().check_schema(tenant, name)
    }
}

impl CatalogState {
    /// Checks that the schema in which `name` names a table exists.
    ///
    /// # Errors
    /// `NotFound`, with the names of existing schemas that are close.
    pub(super) fn check_schema(&self, tenant: &TenantName, name: &TableName) -> Result<()> {
        match name.is_public() {
            true => Ok(()),
            false => self.newest.check_schema(tenant, &name.schema()),
        }
    }

    fn check_new_schema(&self, tenant: &TenantName, schema: &SchemaName) -> Result<()> {
        if self.newest.has_schema(tenant, schema) {
            let message = format!("there is a schema {:?} already", schema.as_str());
            return Err(Error::new(ErrorKind::Exists, message).advise("choose another name"));
        }
        let count = self.newest.schemas.get(tenant).map_or(0, |schemas| schemas.len());
        match count < limits::SCHEMAS_PER_TENANT_MAX {
            true => Ok(()),
            false => {
                let most = limits::SCHEMAS_PER_TENANT_MAX;
                Err(Error::over_limit(format!("a tenant may have {most} schemas besides public"))
                    .advise("drop schemas that are not needed"))
            }
        }
    }

    fn check_drop(&self, tenant: &TenantName, schema: &SchemaName, cascade: bool) -> Result<()> {
        if schema.is_public() {
            return Err(Error::invalid("the schema \"public\" cannot be dropped")
                .advise("drop the tables and views in it one by one"));
        }
        self.newest.check_schema(tenant, schema)?;
        let mut claims = self.claims.get(tenant).into_iter().flat_map(BTreeMap::keys);
        if let Some(claimed) = claims.find(|name| name.schema() == *schema) {
            return Err(super::claims::under_way(claimed).advise("wait until it has ended"));
        }
        let inside: Vec<&TableName> = self.newest.in_schema(tenant, schema).collect();
        if cascade || inside.is_empty() {
            return Ok(());
        }
        let shown: Vec<String> =
            inside.iter().take(NAMES_SHOWN).map(|name| format!("{:?}", name.as_str())).collect();
        let more = if inside.len() > NAMES_SHOWN { ", …" } else { "" };
        let message = format!(
            "schema {:?} is not empty: tables and views in it: {} ({}{more})",
            schema.as_str(),
            inside.len(),
            shown.join(", ")
        );
        Err(Error::invalid(message).advise("drop them first, or use DROP SCHEMA … CASCADE"))
    }
}

impl<T> Names<T> {
    /// Returns whether a schema exists.
    pub(super) fn has_schema(&self, tenant: &TenantName, schema: &SchemaName) -> bool {
        schema.is_public() || self.schemas.get(tenant).is_some_and(|schemas| schemas.contains(schema))
    }

    /// Checks that a schema exists.
    ///
    /// # Errors
    /// `NotFound`.
    pub(super) fn check_schema(&self, tenant: &TenantName, schema: &SchemaName) -> Result<()> {
        if self.has_schema(tenant, schema) {
            return Ok(());
        }
        let known = self.schemas.get(tenant).into_iter().flatten().map(SchemaName::as_str);
        Err(Error::not_found(format!("there is no schema {:?}", schema.as_str()))
            .advise(suggestions::schema_advice(schema.as_str(), known)))
    }

    /// Returns the names of the tables and views in a schema.
    fn in_schema<'a>(
        &'a self,
        tenant: &TenantName,
        schema: &'a SchemaName,
    ) -> impl Iterator<Item = &'a TableName> {
        let tables = self.tables.get(tenant).into_iter().flat_map(BTreeMap::keys);
        let views = self.views.get(tenant).into_iter().flat_map(BTreeMap::keys);
        tables.chain(views).filter(move |name| name.schema() == *schema)
    }
}
