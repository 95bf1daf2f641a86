//! State that a node keeps for the keyspaces of the key store (a keyspace has all keys of a tenant): pauses of commands
//! (`CLIENT PAUSE`), locks of schemas, version numbers for reads of spaces (namespaces of keys) by SQL; and the checks
//! of callers' rights on keys.

use crate::caller::Caller;
use crate::pause::Pause;
use crate::rights::Verb;
use crate::spaces::VersionGenerator;
use farpool_kv::Keyspace;
use farpool_model::limits::RETRY_AFTER_MS;
use farpool_model::{Error, Result, TenantName};
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::sync::Arc;
use tokio::sync::OwnedMutexGuard;

/// The pauses, schema locks and version numbers for the keys of all tenants.
pub(crate) struct KeyControls {
    pauses: Mutex<BTreeMap<TenantName, Arc<Pause>>>,
    /// One lock per tenant, held while a space is created in a schema or a schema is dropped, so that no space is
    /// created in a schema that is being dropped.
    schemas: Mutex<BTreeMap<TenantName, Arc<tokio::sync::Mutex<()>>>>,
    moments: VersionGenerator,
}

impl KeyControls {
    /// Creates controls whose version numbers are greater than all those given before the time `unix_ms`, also by
    /// earlier processes.
    pub fn new(unix_ms: u64) -> Self {
        let moments = VersionGenerator::from(unix_ms);
        KeyControls { pauses: Mutex::default(), schemas: Mutex::default(), moments }
    }

    /// Returns the state of `CLIENT PAUSE` for a tenant.
    pub fn pause(&self, tenant: &TenantName) -> Arc<Pause> {
        Arc::clone(self.pauses.lock().entry(tenant.clone()).or_default())
    }

    /// Takes the lock of a tenant's schemas: until the guard is dropped, no other caller drops a schema or creates a
    /// space in one. Does not block, because creating a space may take seconds.
    ///
    /// # Errors
    /// `Busy` if another caller has the lock.
    pub fn hold_schemas(&self, tenant: &TenantName) -> Result<OwnedMutexGuard<()>> {
        let schemas = Arc::clone(self.schemas.lock().entry(tenant.clone()).or_default());
        let busy = || Error::busy("a space is being created, or a schema dropped", *RETRY_AFTER_MS.start());
        schemas.try_lock_owned().map_err(|_| busy())
    }

    /// Returns the generator of version numbers for reads of spaces; each read of a space gets a version of its own.
    pub fn moments(&self) -> &VersionGenerator {
        &self.moments
    }
}

impl Caller {
    /// Returns the keyspace of the caller's tenant, for reading. Before changing keys, check
    /// [`Caller::may_write_keys`].
    ///
    /// # Errors
    /// `Denied` if the caller has no right to read keys.
    pub(crate) fn keys(&self) -> Result<Arc<Keyspace>> {
        self.check(Verb::ReadKeys)?;
        Ok(self.node().keyspaces().of(self.tenant()))
    }

    /// Returns whether the caller may change keys.
    pub(crate) fn may_write_keys(&self) -> bool {
        self.check(Verb::WriteKeys).is_ok()
    }
}
