//! Controls that a node adds to the keyspaces of the key store: pauses of commands, locks of schemas, versions of reads,
//! and the rights of callers.

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

/// The pauses, schema locks and version numbers that commands and statements over keys obey.
pub(crate) struct KeyControls {
    pauses: Mutex<BTreeMap<TenantName, Arc<Pause>>>,
    /// Locks by tenant: held while a space is created in a schema, or a schema is dropped.
    schemas: Mutex<BTreeMap<TenantName, Arc<tokio::sync::Mutex<()>>>>,
    moments: VersionGenerator,
}

impl KeyControls {
    /// Creates controls whose version numbers exceed all those given before `unix_ms`.
    pub fn new(unix_ms: u64) -> Self {
        let moments = VersionGenerator::from(unix_ms);
        KeyControls { pauses: Mutex::default(), schemas: Mutex::default(), moments }
    }

    /// Returns the pause of a tenant.
    pub fn pause(&self, tenant: &TenantName) -> Arc<Pause> {
        Arc::clone(self.pauses.lock().entry(tenant.clone()).or_default())
    }

    /// Prevents schemas of a tenant from being dropped, and spaces from being created in them, until the guard is
    /// dropped. Fails instead of waiting, since creating a space may take seconds.
    ///
    /// # Errors
    /// `Busy` while another guard exists.
    pub fn hold_schemas(&self, tenant: &TenantName) -> Result<OwnedMutexGuard<()>> {
        let schemas = Arc::clone(self.schemas.lock().entry(tenant.clone()).or_default());
        let busy = || Error::busy("a space is being created, or a schema dropped", *RETRY_AFTER_MS.start());
        schemas.try_lock_owned().map_err(|_| busy())
    }

    /// Returns the generator of version numbers for reads of spaces.
    pub fn moments(&self) -> &VersionGenerator {
        &self.moments
    }
}

impl Caller {
    /// Returns the keyspace of the caller's tenant, for reading; [`Caller::may_write_keys`] tells whether it may be
    /// changed.
    ///
    /// # Errors
    /// `Denied`, as for every verb.
    pub(crate) fn keys(&self) -> Result<Arc<Keyspace>> {
        self.check(Verb::ReadKeys)?;
        Ok(self.node().keyspaces().of(self.tenant()))
    }

    /// Returns whether the caller may change keys.
    pub(crate) fn may_write_keys(&self) -> bool {
        self.check(Verb::WriteKeys).is_ok()
    }
}
