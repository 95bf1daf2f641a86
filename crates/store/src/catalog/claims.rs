//! Names of tables that loads are about to create: a second one is refused when it begins, not when all of its rows
//! have been sent.
//!
//! A create claims its name from its beginning to its end, whatever ends it. Only other creates are refused for that. A
//! replacement takes the place of whatever is there, and of a table that is about to be there: it ends the claim, and
//! the create fails when its next rows come. For everybody else there is no such table yet, and errors say why.
//!
//! Invariant: a create publishes only under its claim, so that it never takes the place of another table.

use super::{Catalog, Expected, Tenants};
use farpool_model::{Error, ErrorKind, Result, TableName, TenantName};
use std::sync::Arc;

/// The name that a load is about to make a table of, until this is dropped.
#[derive(Debug)]
pub struct Claim {
    catalog: Arc<Catalog>,
    tenant: TenantName,
    name: TableName,
    number: u64,
}

impl Claim {
    /// Claims a name of which there is neither a table nor a claim.
    ///
    /// # Errors
    /// `Exists` when there is; `OverLimit` when the tenant has too many tables.
    pub(super) fn new(catalog: &Arc<Catalog>, tenant: &TenantName, name: &TableName) -> Result<Arc<Claim>> {
        let number = catalog.tenants.write().claim(tenant, name)?;
        Ok(Arc::new(Claim { catalog: catalog.clone(), tenant: tenant.clone(), name: name.clone(), number }))
    }

    /// Gives the name back, for the load is not to be published any more.
    pub fn give_up(&self) {
        self.catalog.tenants.write().unclaim(&self.tenant, &self.name, self.number);
    }

    /// What must hold for the load to be published.
    pub(super) fn expected(&self) -> Expected {
        Expected::Claim(self.number)
    }

    /// Whether the name is still claimed.
    ///
    /// # Errors
    /// `Exists` when a replacement has taken it.
    pub(super) fn check(&self) -> Result<()> {
        self.catalog.tenants.read().check_claim(&self.tenant, &self.name, self.number)
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        self.give_up();
    }
}

impl Tenants {
    fn claim(&mut self, tenant: &TenantName, name: &TableName) -> Result<u64> {
        self.check(tenant, name, Expected::Nothing)?;
        self.claims_made += 1;
        let claims = self.claims.entry(tenant.clone()).or_default();
        claims.insert(name.clone(), self.claims_made);
        Ok(self.claims_made)
    }

    fn unclaim(&mut self, tenant: &TenantName, name: &TableName, number: u64) {
        if self.claimed(tenant, name) == Some(number) {
            self.end_claim(tenant, name);
        }
    }

    /// There is a table of this name now, whoever has made it.
    pub(super) fn end_claim(&mut self, tenant: &TenantName, name: &TableName) {
        let Some(claims) = self.claims.get_mut(tenant) else { return };
        claims.remove(name);
        if claims.is_empty() {
            self.claims.remove(tenant);
        }
    }

    /// The claim to a name, if there is one.
    pub(super) fn claimed(&self, tenant: &TenantName, name: &TableName) -> Option<u64> {
        self.claims.get(tenant)?.get(name).copied()
    }

    pub(super) fn check_claim(&self, tenant: &TenantName, name: &TableName, number: u64) -> Result<()> {
        if self.claimed(tenant, name) == Some(number) {
            return Ok(());
        }
        let message = format!("table {:?} was made by another load while this one was sent", name.as_str());
        Err(Error::new(ErrorKind::Exists, message).advise(EXISTS_ADVICE))
    }
}

/// The error of a second create.
pub(super) fn under_way(name: &TableName) -> Error {
    let message = format!("a load that creates table {:?} is under way already", name.as_str());
    Error::new(ErrorKind::Exists, message)
        .advise("wait until it has ended, choose another name, or take its place (--replace)")
}

/// What to do when a table is there.
pub(super) const EXISTS_ADVICE: &str =
    "choose another name, or replace it (--replace) or append to it (--append)";
