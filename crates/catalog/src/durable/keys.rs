//! Encryption keys of tables and tenants in an encrypted directory.
//!
//! A load that creates or replaces a table creates a random key, which all versions of the table share. The
//! wrapped (encrypted) keys of the table and its tenant are in the record of the load and in each manifest that has
//! the table. When neither the record nor such a manifest exists any more, the key is lost, and the parts of the
//! table that segments and backups still have are unreadable.
//!
//! Tables from directories of earlier versions have no key: their parts are encrypted under the keys of their segments.
//!
//! Invariant: all tables of a tenant that exist at one time have keys that are wrapped under one key of the tenant.

use super::Durable;
use super::locations::Location;
use crate::Catalog;
use farpool_columns::Chunk;
use farpool_disk::{Directory, TableKey, TenantKey, WrappedKey, WrappedKeyId};
use farpool_model::{Error, Result, TenantName};
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::sync::{Arc, Weak};

/// Keys of the tenants that have tables or are loading one. The references are weak; those of the table keys keep them
/// alive.
#[derive(Debug, Default)]
pub(super) struct TenantKeys(Mutex<BTreeMap<TenantName, Weak<TenantKey>>>);

impl TenantKeys {
    /// Collects the tenants' keys from the keys of their tables.
    pub fn of<'a>(tables: impl Iterator<Item = (&'a TenantName, &'a Arc<TableKey>)>) -> TenantKeys {
        let keys = tables.map(|(tenant, key)| (tenant.clone(), Arc::downgrade(key.tenant())));
        TenantKeys(Mutex::new(keys.collect()))
    }
}

impl Durable {
    /// Creates a random encryption key for a new table of `tenant`; `None` if the directory is not encrypted.
    ///
    /// # Errors
    /// `OverLimit` if the process may not lock more memory.
    pub fn new_table_key(&self, tenant: &TenantName) -> Result<Option<Arc<TableKey>>> {
        let Some(keys) = self.directory.keys() else { return Ok(None) };
        let mut tenants = self.tenant_keys.0.lock();
        let of_tenant = match tenants.get(tenant).and_then(Weak::upgrade) {
            Some(key) => key,
            None => {
                tenants.retain(|_, key| key.strong_count() > 0);
                let key = keys.new_tenant()?;
                tenants.insert(tenant.clone(), Arc::downgrade(&key));
                key
            }
        };
        drop(tenants);
        of_tenant.new_table().map(Some)
    }
}

impl Catalog {
    /// Creates a key as [`Durable::new_table_key`] does; `None` for a catalog in memory.
    pub(crate) fn new_table_key(&self, tenant: &TenantName) -> Result<Option<Arc<TableKey>>> {
        self.durable.get().map_or(Ok(None), |durable| durable.new_table_key(tenant))
    }
}

/// Returns whether a column chunk may be part of a table with the encryption key `key`: it is in no segment, or in
/// one under the same key.
pub(crate) fn fits_key(chunk: &Chunk, key: Option<&Arc<TableKey>>) -> bool {
    Location::existing(chunk).is_none_or(|location| {
        !location.is_in_segment() || location.key().map(Arc::as_ptr) == key.map(Arc::as_ptr)
    })
}

/// Wrapped keys of tenants, by id.
pub(super) type WrappedTenants = BTreeMap<WrappedKeyId, WrappedKey>;

/// Unwraps the encryption keys of tables, and caches those of their tenants.
pub(super) struct Unwrapping<'a> {
    directory: &'a dyn Directory,
    wrapped: &'a WrappedTenants,
    tenants: BTreeMap<WrappedKeyId, Arc<TenantKey>>,
}

impl<'a> Unwrapping<'a> {
    pub fn new(directory: &'a dyn Directory, wrapped: &'a WrappedTenants) -> Unwrapping<'a> {
        Unwrapping { directory, wrapped, tenants: BTreeMap::new() }
    }

    /// Unwraps the key of a table.
    ///
    /// # Errors
    /// `Corrupt` if the tenant's key is missing, or either key was tampered with.
    pub fn table(&mut self, wrapped: &WrappedKey) -> Result<Arc<TableKey>> {
        let parent = wrapped.parent();
        let tenant = match self.tenants.get(&parent) {
            Some(tenant) => tenant.clone(),
            None => {
                let missing = || Error::corrupt(format!("the key {parent:?} of a tenant is missing"));
                let keys = self.directory.keys().ok_or_else(missing)?;
                let tenant = keys.tenant(self.wrapped.get(&parent).ok_or_else(missing)?.clone())?;
                self.tenants.insert(parent, tenant.clone());
                tenant
            }
        };
        tenant.table(wrapped.clone())
    }
}
