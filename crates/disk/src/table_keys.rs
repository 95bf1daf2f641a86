//! The encryption keys of tenants and tables in an encrypted directory.
//!
//! The directory's key wraps (encrypts) the key of each tenant, which wraps the keys of its tables. The wrapped keys
//! are stored by the catalog, in its records and manifests. When no file has the wrapped form of a key any more, the
//! key is lost, and everything encrypted under it is unreadable: this is how dropping a table erases its data
//! (cryptographic erasure).
//!
//! Invariant: each key is in one slot of locked memory, which is wiped when the last owner of the key drops it.

use crate::keys::{Keys, Purpose};
use farpool_cipher::{KeyKind, Salt, Secret, WrappedKey, WrappedKeyId};
use farpool_model::Result;
use std::sync::Arc;

/// The encryption key of a tenant, which wraps (encrypts) the keys of the tenant's tables.
#[derive(Debug)]
pub struct TenantKey {
    wrapped: WrappedKey,
    key: Secret,
}

/// The encryption key of a table. All versions of the table share it.
#[derive(Debug)]
pub struct TableKey {
    tenant: Arc<TenantKey>,
    wrapped: WrappedKey,
    key: Secret,
}

impl Keys {
    /// Generates a random key for a tenant.
    ///
    /// # Errors
    /// `OverLimit` if the process may not lock more memory.
    pub fn new_tenant(&self) -> Result<Arc<TenantKey>> {
        let (wrapped, key) = WrappedKey::draw(KeyKind::Tenant, self.tier(), self.parent())?;
        Ok(Arc::new(TenantKey { wrapped, key }))
    }

    /// Decrypts (unwraps) the stored key of a tenant.
    ///
    /// # Errors
    /// Errors of [`WrappedKey::open`].
    pub fn tenant(&self, wrapped: WrappedKey) -> Result<Arc<TenantKey>> {
        let key = wrapped.open(KeyKind::Tenant, self.parent())?;
        Ok(Arc::new(TenantKey { wrapped, key }))
    }
}

impl TenantKey {
    /// Generates a random key for a table of this tenant.
    ///
    /// # Errors
    /// Errors of [`Keys::new_tenant`].
    pub fn new_table(self: &Arc<Self>) -> Result<Arc<TableKey>> {
        let under = (self.wrapped.id(), &self.key);
        let (wrapped, key) = WrappedKey::draw(KeyKind::Table, self.wrapped.tier(), under)?;
        Ok(Arc::new(TableKey { tenant: self.clone(), wrapped, key }))
    }

    /// Decrypts (unwraps) the stored key of a table of this tenant.
    ///
    /// # Errors
    /// Errors of [`WrappedKey::open`].
    pub fn table(self: &Arc<Self>, wrapped: WrappedKey) -> Result<Arc<TableKey>> {
        let key = wrapped.open(KeyKind::Table, (self.wrapped.id(), &self.key))?;
        Ok(Arc::new(TableKey { tenant: self.clone(), wrapped, key }))
    }

    /// Returns the key in wrapped (encrypted) form, which may be stored.
    pub fn wrapped(&self) -> &WrappedKey {
        &self.wrapped
    }
}

impl TableKey {
    /// Returns the key of the tenant, which wraps the key of the table.
    pub fn tenant(&self) -> &Arc<TenantKey> {
        &self.tenant
    }

    /// Returns the key in wrapped (encrypted) form, which may be stored.
    pub fn wrapped(&self) -> &WrappedKey {
        &self.wrapped
    }

    pub(crate) fn id(&self) -> WrappedKeyId {
        self.wrapped.id()
    }

    /// Derives the key of the table's parts in one segment from the segment's salt.
    pub(crate) fn of_segment(&self, salt: &Salt) -> Result<Secret> {
        self.key.derive(salt, Purpose::TableSegment.text(), self.wrapped.tier().key_bytes())
    }
}
