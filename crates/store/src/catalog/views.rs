//! Views: names that stand for the text of a query, which the store does not parse.
//!
//! Invariant: a name of a tenant belongs to at most one of a table, a view, and a load that is about to
//! create a table.

use super::{Catalog, Tenants, claims};
use farpool_memory::Reservation;
use farpool_model::{Error, ErrorKind, Listing, Relation, Result, TableName, TenantName, View, limits};
use std::collections::BTreeMap;

/// A stored view.
#[derive(Debug)]
pub(super) struct Kept {
    view: View,
    /// Memory for the view's name and text.
    _held: Option<Reservation>,
}

impl Catalog {
    /// The tables and views of `tenant`.
    pub fn list(&self, tenant: &TenantName) -> Listing {
        let tenants = self.tenants.read();
        let tables = tenants.tables.get(tenant).into_iter().flatten();
        Listing {
            tables: tables.map(|(name, current)| current.brief(name)).collect(),
            views: tenants.views_of(tenant).map(|(name, _)| name.clone()).collect(),
        }
    }

    /// Returns what `name` stands for: the current version of a table, or a view.
    ///
    /// # Errors
    /// `NotFound`, with the names of existing tables and views.
    pub fn relation(&self, tenant: &TenantName, name: &TableName) -> Result<Relation> {
        let tenants = self.tenants.read();
        match tenants.view(tenant, name) {
            Some(view) => Ok(Relation::View(view.clone())),
            None => tenants.current(tenant, name).map(|current| Relation::Table(current.info(name))),
        }
    }

    /// Stores a view; with `replace`, in the place of one with the same name.
    ///
    /// # Errors
    /// `Exists` when a view of the name exists and `replace` is false, or a table of the name exists or a
    /// load is about to create one; `OverLimit` when the tenant has too many views, or no memory for this
    /// one.
    pub fn create_view(&self, tenant: &TenantName, view: View, replace: bool) -> Result<()> {
        let mut held = self.outside(tenant);
        if let Some(held) = &mut held {
            held.try_grow(limits::VIEW_OVERHEAD_BYTES + view.name().as_str().len() + view.text().len())?;
        }
        let mut tenants = self.tenants.write();
        tenants.check_view(tenant, view.name(), replace)?;
        let views = tenants.views.entry(tenant.clone()).or_default();
        let before = views.insert(view.name().clone(), Kept { view, _held: held });
        drop(tenants);
        drop(before);
        Ok(())
    }

    /// Drops a view.
    ///
    /// # Errors
    /// `NotFound`, also when `name` is a table.
    pub fn drop_view(&self, tenant: &TenantName, name: &TableName) -> Result<()> {
        let mut tenants = self.tenants.write();
        if tenants.view(tenant, name).is_none() {
            // For an unknown name the error is that for a table, worded for a view.
            tenants.current(tenant, name).map_err(|error| no_view(name, error))?;
            let error = Error::not_found(format!("{:?} is a table, not a view", name.as_str()));
            return Err(error.advise("use DROP TABLE, or farpool drop"));
        }
        let views = tenants.views.get_mut(tenant).expect("the tenant has the view");
        let dropped = views.remove(name);
        if views.is_empty() {
            tenants.views.remove(tenant);
        }
        drop(tenants);
        drop(dropped);
        Ok(())
    }
}

impl Tenants {
    pub(super) fn view(&self, tenant: &TenantName, name: &TableName) -> Option<&View> {
        self.views.get(tenant)?.get(name).map(|kept| &kept.view)
    }

    pub(super) fn views_of(&self, tenant: &TenantName) -> impl Iterator<Item = (&TableName, &Kept)> {
        self.views.get(tenant).into_iter().flatten()
    }

    /// Checks that no view has the name.
    ///
    /// # Errors
    /// `Exists`.
    pub(super) fn check_no_view(&self, tenant: &TenantName, name: &TableName) -> Result<()> {
        if self.view(tenant, name).is_none() {
            return Ok(());
        }
        Err(exists("view", name).advise("choose another name, or drop the view first (DROP VIEW)"))
    }

    /// Checks that a view of the name may be created or, with `replace`, replaced.
    fn check_view(&self, tenant: &TenantName, name: &TableName, replace: bool) -> Result<()> {
        if self.find(tenant, name).is_some() {
            return Err(exists("table", name)
                .advise("choose another name for the view, or drop the table first (DROP TABLE)"));
        }
        if self.claimed(tenant, name).is_some() {
            return Err(claims::under_way(name).advise("wait until it has ended, or choose another name"));
        }
        if self.view(tenant, name).is_some() {
            return match replace {
                true => Ok(()),
                false => Err(exists("view", name)
                    .advise("choose another name, or replace it (CREATE OR REPLACE VIEW)")),
            };
        }
        match self.views.get(tenant).map_or(0, BTreeMap::len) < limits::VIEWS_PER_TENANT_MAX {
            true => Ok(()),
            false => {
                Err(Error::over_limit(format!("a tenant may have {} views", limits::VIEWS_PER_TENANT_MAX))
                    .advise("drop views that are not needed"))
            }
        }
    }
}

/// The error for a request for a table whose name is that of a view.
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
