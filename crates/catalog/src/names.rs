//! The tables, views and schemas of all tenants by name, and the effect of a change on them.
//!
//! The code for effects is generic. It is used for the names that readers see, for the names that changes are
//! checked against (`state.rs`), and for the names during a replay of the log, whose tables have no values
//! (`durable/replay.rs`). So a change means the same for all of them.

use super::{Current, views};
use farpool_model::{LoadId, LoadedVersion, SchemaName, TableName, TenantName};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// The tables, views and schemas of all tenants by name. `T` is the state of a table.
#[derive(Clone, Debug)]
pub(super) struct Names<T = Current> {
    pub tables: BTreeMap<TenantName, BTreeMap<TableName, T>>,
    pub views: BTreeMap<TenantName, BTreeMap<TableName, Arc<views::StoredView>>>,
    /// Schemas without `public`, which every tenant has.
    pub schemas: BTreeMap<TenantName, BTreeSet<SchemaName>>,
}

/// Effect of a change on the names.
#[derive(Clone, Debug)]
pub(super) enum Effect<T = Current> {
    /// Creates a table, or sets its state.
    Put {
        tenant: TenantName,
        name: TableName,
        /// Former name of the table, if the change renames it.
        renamed_from: Option<TableName>,
        table: T,
        /// The loads whose rows the version has, with their outcomes.
        loads: Vec<(LoadId, LoadedVersion)>,
    },
    Drop(TenantName, TableName),
    PutView(TenantName, Arc<views::StoredView>),
    DropView(TenantName, TableName),
    PutSchema(TenantName, SchemaName),
    /// A schema is dropped, with all tables and views in it.
    DropSchema(TenantName, SchemaName),
}

/// Values that a change replaced. They must be dropped outside the lock, because freeing much memory takes time.
pub(super) type Replaced = Vec<Box<dyn Send>>;

impl<T> Default for Names<T> {
    fn default() -> Self {
        let (tables, views, schemas) = Default::default();
        Names { tables, views, schemas }
    }
}

impl<T> Names<T> {
    pub fn find(&self, tenant: &TenantName, name: &TableName) -> Option<&T> {
        self.tables.get(tenant)?.get(name)
    }

    pub fn find_mut(&mut self, tenant: &TenantName, name: &TableName) -> Option<&mut T> {
        self.tables.get_mut(tenant)?.get_mut(name)
    }
}

impl<T> Names<T> {
    /// Returns the reason why an effect does not fit these names; `None` if it does. A name must not be that of both a
    /// table and a view, its schema must exist, and what is dropped must exist.
    pub fn conflict(&self, effect: &Effect<T>) -> Option<&'static str> {
        match effect {
            Effect::Put { tenant, name, renamed_from, .. } => {
                self.conflict_of_put(tenant, name, renamed_from.is_some())
            }
            Effect::PutView(tenant, view) => {
                let is_taken = self.find(tenant, view.name()).is_some();
                let taken = is_taken.then_some("a table has the name of the view");
                self.lacks_schema(tenant, view.name()).or(taken)
            }
            Effect::Drop(tenant, name) => {
                self.find(tenant, name).is_none().then_some("the table that it drops is not there")
            }
            Effect::DropView(tenant, name) => {
                self.view(tenant, name).is_none().then_some("the view that it drops is not there")
            }
            Effect::PutSchema(..) | Effect::DropSchema(..) => None,
        }
    }

    /// Returns the reason why a table of this name may not get a new state; `None` if it may.
    pub fn conflict_of_put(
        &self,
        tenant: &TenantName,
        name: &TableName,
        is_renamed: bool,
    ) -> Option<&'static str> {
        let has_view = self.view(tenant, name).is_some().then_some("a view has the name of the table");
        let is_taken = is_renamed && self.find(tenant, name).is_some();
        let taken = is_taken.then_some("another table has the new name");
        self.lacks_schema(tenant, name).or(has_view).or(taken)
    }

    fn lacks_schema(&self, tenant: &TenantName, name: &TableName) -> Option<&'static str> {
        let is_there = name.is_public() || self.has_schema(tenant, &name.schema());
        (!is_there).then_some("its schema does not exist")
    }
}

impl<T: Send + 'static> Names<T> {
    /// Applies the effect of a change, and adds what it replaces to `replaced`.
    pub fn apply(&mut self, effect: Effect<T>, replaced: &mut Replaced) {
        match effect {
            Effect::Put { tenant, name, renamed_from, table, .. } => {
                let tables = self.tables.entry(tenant).or_default();
                let before = renamed_from.and_then(|before| tables.remove(&before));
                let instead = tables.insert(name, table);
                replaced.push(Box::new((before, instead)));
            }
            Effect::Drop(tenant, name) => replaced.push(Box::new(remove(&mut self.tables, &tenant, &name))),
            Effect::PutView(tenant, view) => {
                let views = self.views.entry(tenant).or_default();
                replaced.push(Box::new(views.insert(view.name().clone(), view)));
            }
            Effect::DropView(tenant, name) => {
                replaced.push(Box::new(remove(&mut self.views, &tenant, &name)))
            }
            Effect::PutSchema(tenant, schema) => {
                self.schemas.entry(tenant).or_default().insert(schema);
            }
            Effect::DropSchema(tenant, schema) => self.drop_schema(&tenant, &schema, replaced),
        }
    }

    /// Removes a schema with all tables and views in it.
    fn drop_schema(&mut self, tenant: &TenantName, schema: &SchemaName, replaced: &mut Replaced) {
        remove_if(&mut self.tables, tenant, |name| name.schema() == *schema, replaced);
        remove_if(&mut self.views, tenant, |name| name.schema() == *schema, replaced);
        if let Some(schemas) = self.schemas.get_mut(tenant) {
            schemas.remove(schema);
            if schemas.is_empty() {
                self.schemas.remove(tenant);
            }
        }
    }
}

/// Removes the names for which `removed` is true, and the tenant if no name is left.
fn remove_if<T: Send + 'static>(
    of_all: &mut BTreeMap<TenantName, BTreeMap<TableName, T>>,
    tenant: &TenantName,
    removed: impl Fn(&TableName) -> bool,
    replaced: &mut Replaced,
) {
    let Some(of_tenant) = of_all.get_mut(tenant) else { return };
    replaced.push(Box::new(of_tenant.extract_if(.., |name, _| removed(name)).collect::<Vec<_>>()));
    if of_tenant.is_empty() {
        of_all.remove(tenant);
    }
}

/// Removes a name, and the tenant if no name is left.
fn remove<T>(
    of_all: &mut BTreeMap<TenantName, BTreeMap<TableName, T>>,
    tenant: &TenantName,
    name: &TableName,
) -> Option<T> {
    let of_tenant = of_all.get_mut(tenant)?;
    let removed = of_tenant.remove(name);
    if of_tenant.is_empty() {
        of_all.remove(tenant);
    }
    removed
}
