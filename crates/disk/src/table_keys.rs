//! The keys of tenants and tables in an encrypted directory.
//!
//! The directory's key wraps that of each tenant, which wraps those of its tables. What wraps them is in the records of
//! whoever has the tables; a key whose wrap is in no file any more is lost, and with it what was encrypted under it.
//!
//! Invariant: a key lies in one slot of locked memory, which is wiped when the last owner drops it.

use crate::keys::{Keys, Purpose};
use farpool_cipher::{KeyKind, Salt, Secret, WrappedKey, WrappedKeyId};
use farpool_model::Result;
use std::sync::Arc;

/// The key of a tenant.
#[derive(Debug)]
pub struct TenantKey {
    wrapped: WrappedKey,
    key: Secret,
}

/// The key of a table, which all its versions have.
#[derive(Debug)]
pub struct TableKey {
    tenant: Arc<TenantKey>,
    wrapped: WrappedKey,
    key: Secret,
}

impl Keys {
    /// Draws the key of a tenant.
    ///
    /// # Errors
    /// `OverLimit` where the process may not lock more memory.
    pub fn new_tenant(&self) -> Result<Arc<TenantKey>> {
        let (wrapped, key) = WrappedKey::draw(KeyKind::Tenant, self.tier(), self.parent())?;
        Ok(Arc::new(TenantKey { wrapped, key }))
    }

    /// Unwraps the key of a tenant.
    ///
    /// # Errors
    /// As [`WrappedKey::open`].
    pub fn tenant(&self, wrapped: WrappedKey) -> Result<Arc<TenantKey>> {
        let key = wrapped.open(KeyKind::Tenant, self.parent())?;
        Ok(Arc::new(TenantKey { wrapped, key }))
    }
}

impl TenantKey {
    /// Draws the key of a table.
    ///
    /// # Errors
    /// As [`Keys::new_tenant`].
    pub fn new_table(self: &Arc<Self>) -> Result<Arc<TableKey>> {
        let under = (self.wrapped.id(), &self.key);
        let (wrapped, key) = WrappedKey::draw(KeyKind::Table, self.wrapped.tier(), under)?;
        Ok(Arc::new(TableKey { tenant: self.clone(), wrapped, key }))
    }

    /// Unwraps the key of a table.
    ///
    /// # Errors
    /// As [`WrappedKey::open`].
    pub fn table(self: &Arc<Self>, wrapped: WrappedKey) -> Result<Arc<TableKey>> {
        let key = wrapped.open(KeyKind::Table, (self.wrapped.id(), &self.key))?;
        Ok(Arc::new(TableKey { tenant: self.clone(), wrapped, key }))
    }

    /// What is stored of the key.
    pub fn wrapped(&self) -> &WrappedKey {
        &self.wrapped
    }
}

impl TableKey {
    /// The key that wraps this one.
    pub fn tenant(&self) -> &Arc<TenantKey> {
        &self.tenant
    }

    /// What is stored of the key.
    pub fn wrapped(&self) -> &WrappedKey {
        &self.wrapped
    }

    pub(crate) fn id(&self) -> WrappedKeyId {
        self.wrapped.id()
    }

    /// The key of the table's parts in the segment with this salt.
    pub(crate) fn of_segment(&self, salt: &Salt) -> Result<Secret> {
        self.key.derive(salt, Purpose::TableSegment.text(), self.wrapped.tier().key_bytes())
    }
}
