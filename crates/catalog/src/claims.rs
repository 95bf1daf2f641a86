//! Claims: reservations of the names of tables that loads are creating. A second load that creates the same table is
//! refused when it begins, and not only after it has sent all its rows.
//!
//! A creating load claims the name from its beginning to its end, whatever its outcome. A claim affects other creating
//! loads only. A replacement may replace any table, including one that is being created: it ends the claim, and the
//! creating load fails when its next rows arrive. For every other request the table does not exist yet, and errors say
//! why.
//!
//! Invariant: a creating load publishes only while its claim holds, so that it never replaces another table. Example:
//! load A claims `t`; a replacement publishes `t`, which ends the claim; a commit of A fails with `Exists` instead of
//! replacing `t`.

use super::Catalog;
use super::state::{CatalogState, Expected};
use farpool_model::{Error, ErrorKind, Result, TableName, TenantName};
use std::sync::Arc;

/// The claim to the name of a table that a load creates. Dropping the claim gives up the name.
#[derive(Debug)]
pub struct Claim {
    catalog: Arc<Catalog>,
    tenant: TenantName,
    name: TableName,
    number: u64,
}

impl Claim {
    /// Claims a name that no table, view or other claim has.
    ///
    /// # Errors
    /// `Exists` if the name is taken; `OverLimit` if the tenant has too many tables.
    pub(super) fn new(catalog: &Arc<Catalog>, tenant: &TenantName, name: &TableName) -> Result<Arc<Claim>> {
        let number = catalog.state.write().claim(tenant, name)?;
        Ok(Arc::new(Claim { catalog: catalog.clone(), tenant: tenant.clone(), name: name.clone(), number }))
    }

    /// Gives up the claim, because the load will not be published.
    pub fn give_up(&self) {
        self.catalog.state.write().unclaim(&self.tenant, &self.name, self.number);
    }

    /// Returns the condition under which the load may be published: the claim has not ended.
    pub(super) fn expected(&self) -> Expected {
        Expected::Claim(self.number)
    }

    /// Checks that the claim has not ended.
    ///
    /// # Errors
    /// `Exists` if a replacement has ended it.
    pub(super) fn check(&self) -> Result<()> {
        self.catalog.state.read().check_claim(&self.tenant, &self.name, self.number)
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        self.give_up();
    }
}

impl CatalogState {
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

    /// Ends the claim to `name`, because it was given up or a table of the name was published.
    pub(super) fn end_claim(&mut self, tenant: &TenantName, name: &TableName) {
        let Some(claims) = self.claims.get_mut(tenant) else { return };
        claims.remove(name);
        if claims.is_empty() {
            self.claims.remove(tenant);
        }
    }

    /// Returns the id of the claim to a name; `None` if no load has claimed it.
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

/// Returns the error for a load that would create a table whose name another load has claimed.
pub(super) fn under_way(name: &TableName) -> Error {
    let message = format!("a load that creates table {:?} is under way already", name.as_str());
    Error::new(ErrorKind::Exists, message)
        .advise("wait until it has ended, choose another name, or take its place (--replace)")
}

/// Advice in the error for a table that exists already.
pub(super) const EXISTS_ADVICE: &str =
    "choose another name, or replace it (--replace) or append to it (--append)";
