//! Views: names for stored query texts. The catalog does not parse the text.

use super::changes::{Change, ChangeKind};
use super::names::Names;
use super::state::CatalogState;
use super::{Catalog, Commit, claims};
use farpool_memory::Reservation;
use farpool_model::{Error, ErrorKind, Listing, Relation, Result, TableName, TenantName, View, limits};
use std::collections::BTreeMap;
use std::sync::Arc;

/// A stored view.
#[derive(Debug)]
pub(super) struct StoredView {
    view: View,
    /// Reservation of working memory for the view's name and text.
    _held: Option<Reservation>,
}

impl Catalog {
    /// Returns the tables, views and schemas of `tenant`.
    pub fn list(&self, tenant: &TenantName) -> Listing {
        let names = &self.state.read().visible;
        let tables = names.tables.get(tenant).into_iter().flatten();
        Listing {
            schemas: names.schemas.get(tenant).into_iter().flatten().cloned().collect(),
            tables: tables.map(|(name, current)| current.brief(name)).collect(),
            views: names.views_of(tenant).map(|(name, _)| name.clone()).collect(),
        }
    }

    /// Returns the relation of this name: the current version of a table, or a view.
    ///
    /// # Errors
    /// `NotFound`, with the names of existing tables and views.
    pub fn relation(&self, tenant: &TenantName, name: &TableName) -> Result<Relation> {
        let state = self.state.read();
        match state.visible.view(tenant, name) {
            Some(view) => Ok(Relation::View(view.clone())),
            None => state.visible(tenant, name).map(|current| Relation::Table(current.info(name))),
        }
    }

    /// Stores a view; with `replace`, replaces a view of the same name.
    ///
    /// # Errors
    /// `Exists` if a view of the name exists and `replace` is false, if a table of the name exists, or if a load is
    /// about to create one; `OverLimit` if the tenant has too many views, or if there is no memory for this one.
    pub fn create_view(
        self: &Arc<Self>,
        tenant: &TenantName,
        view: View,
        replace: bool,
    ) -> Result<Commit<()>> {
        let name = view.name().clone();
        let change = Change::new(tenant, ChangeKind::PutView(view));
        self.make_named(change, |state| state.check_view(tenant, &name, replace).map(|()| true))
    }

    /// Drops a view.
    ///
    /// # Errors
    /// `NotFound`, also when `name` is a table.
    pub fn drop_view(self: &Arc<Self>, tenant: &TenantName, name: &TableName) -> Result<Commit<()>> {
        let is_there = |state: &CatalogState| {
            if state.newest.view(tenant, name).is_some() {
                return Ok(true);
            }
            // For an unknown name, the error is the one for a table, worded for a view.
            state.newest(tenant, name).map_err(|error| no_view(name, error))?;
            let error = Error::not_found(format!("{:?} is a table, not a view", name.as_str()));
            Err(error.advise("use DROP TABLE, or farpool drop"))
        };
        self.make_named(Change::new(tenant, ChangeKind::DropView(name.clone())), is_there)
    }
}

impl StoredView {
    /// Reserves the memory that a view takes, if memory is accounted for.
    ///
    /// # Errors
    /// `OverLimit` if there is no memory for it.
    pub fn new(view: View, mut held: Option<Reservation>) -> Result<StoredView> {
        if let Some(held) = &mut held {
            held.try_grow(limits::VIEW_OVERHEAD_BYTES + view.name().as_str().len() + view.text().len())?;
        }
        Ok(StoredView { view, _held: held })
    }

    /// Stores a view that was found in a data directory.
    pub fn recovered(view: View) -> StoredView {
        StoredView { view, _held: None }
    }

    pub fn name(&self) -> &TableName {
        self.view.name()
    }

    pub fn view(&self) -> &View {
        &self.view
    }
}

impl<T> Names<T> {
    pub(super) fn view(&self, tenant: &TenantName, name: &TableName) -> Option<&View> {
        self.views.get(tenant)?.get(name).map(|kept| &kept.view)
    }

    pub(super) fn views_of(
        &self,
        tenant: &TenantName,
    ) -> impl Iterator<Item = (&TableName, &Arc<StoredView>)> {
        self.views.get(tenant).into_iter().flatten()
    }
}

impl CatalogState {
    /// Checks that no view has the name.
    ///
    /// # Errors
    /// `Exists`.
    pub(super) fn check_no_view(&self, tenant: &TenantName, name: &TableName) -> Result<()> {
        if self.newest.view(tenant, name).is_none() {
            return Ok(());
        }
        Err(exists("view", name).advise("choose another name, or drop the view first (DROP VIEW)"))
    }

    /// Checks that a view of the name may be created or, with `replace`, replaced.
    fn check_view(&self, tenant: &TenantName, name: &TableName, replace: bool) -> Result<()> {
        if self.newest.find(tenant, name).is_some() {
            return Err(exists("table", name)
                .advise("choose another name for the view, or drop the table first (DROP TABLE)"));
        }
        if self.claimed(tenant, name).is_some() {
            return Err(claims::under_way(name).advise("wait until it has ended, or choose another name"));
        }
        if self.newest.view(tenant, name).is_some() {
            return match replace {
                true => Ok(()),
                false => Err(exists("view", name)
                    .advise("choose another name, or replace it (CREATE OR REPLACE VIEW)")),
            };
        }
        self.check_schema(tenant, name)?;
        match self.newest.views.get(tenant).map_or(0, BTreeMap::len) < limits::VIEWS_PER_TENANT_MAX {
            true => Ok(()),
            false => {
                Err(Error::over_limit(format!("a tenant may have {} views", limits::VIEWS_PER_TENANT_MAX))
                    .advise("drop views that are not needed"))
            }
        }
    }
}

/// Returns the error for a request for a table whose name is that of a view.
pub(super) fn is_a_view(name: &TableName) -> Error {
    Error::not_found(format!("{:?} is a view, not a table", name.as_str()))
        .advise("SELECT reads it; to change rows, change those of the tables that it reads; to drop it, use DROP VIEW, or farpool drop --view")
}

fn exists(what: &str, name: &TableName) -> Error {
    Error::new(ErrorKind::Exists, format!("there is a {what} {:?} already", name.as_str()))
}

fn no_view(name: &TableName, error: Error) -> Error {
    Error { message: format!("there is no view {:?}", name.as_str()), ..error }
}
