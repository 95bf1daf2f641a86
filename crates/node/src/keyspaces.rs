//! The keyspaces of all tenants.

use crate::caller::Caller;
use crate::key_log::KeyLog;
use crate::key_time::KeyTime;
use crate::pause::Pause;
use crate::rights::Verb;
use crate::spaces::VersionGenerator;
use farpool_kv::Keyspace;
use farpool_memory::Pool;
use farpool_model::limits::RETRY_AFTER_MS;
use farpool_model::{Clock, Error, Result, TenantName};
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock};
use tokio::sync::OwnedMutexGuard;

/// Shards per thread that may lock one at the same time; enough that they rarely contend.
const SHARDS_PER_PROCESSOR: usize = 4;

/// Most shards of a tenant: each has memory of its own for each space.
const SHARDS: usize = 64;

/// The keyspaces of all tenants, created on first use.
pub(crate) struct Keyspaces {
    pool: Arc<Pool>,
    shards: usize,
    /// Secret of all hash functions of keys.
    secret: [u8; 16],
    of_tenants: Mutex<BTreeMap<TenantName, Arc<Keyspace>>>,
    pauses: Mutex<BTreeMap<TenantName, Arc<Pause>>>,
    /// Locks by tenant: held while a space is created in a schema, or a schema is dropped.
    schemas: Mutex<BTreeMap<TenantName, Arc<tokio::sync::Mutex<()>>>>,
    moments: VersionGenerator,
    time: KeyTime,
    /// The log that records changes, if there is one.
    log: OnceLock<Arc<KeyLog>>,
}

impl Keyspaces {
    /// Creates an empty set for a node with this many processors. `hash_seed` must be unpredictable.
    pub fn new(pool: &Arc<Pool>, processors: usize, hash_seed: u64, clock: &Arc<dyn Clock>) -> Self {
        let mut secret = [0; 16];
        secret[..8].copy_from_slice(&hash_seed.to_le_bytes());
        let shards = (processors * SHARDS_PER_PROCESSOR).clamp(1, SHARDS);
        let time = KeyTime::starting(Arc::clone(clock));
        let (of_tenants, log, moments) =
            (Mutex::default(), OnceLock::new(), VersionGenerator::from(time.now_ms()));
        let (pool, pauses, schemas) = (Arc::clone(pool), Mutex::default(), Mutex::default());
        Keyspaces { pool, shards, secret, of_tenants, pauses, schemas, moments, time, log }
    }

    /// Records changes of keys in `log` from now on.
    pub fn record_in(&self, log: &Arc<KeyLog>) {
        let of_tenants = self.of_tenants.lock();
        drop(self.log.set(log.clone()));
        of_tenants.iter().for_each(|(tenant, keys)| keys.set_journal(log.journal(tenant)));
    }

    /// Returns the log that records changes, if there is one.
    pub fn log(&self) -> Option<&Arc<KeyLog>> {
        self.log.get()
    }

    /// Returns the keyspace of a tenant, creating it if needed.
    pub fn of(&self, tenant: &TenantName) -> Arc<Keyspace> {
        let mut of_tenants = self.of_tenants.lock();
        if let Some(keyspace) = of_tenants.get(tenant) {
            return Arc::clone(keyspace);
        }
        let keyspace = Arc::new(Keyspace::new(&self.pool, tenant, self.secret, self.shards));
        if let Some(log) = self.log.get() {
            keyspace.set_journal(log.journal(tenant));
        }
        of_tenants.insert(tenant.clone(), Arc::clone(&keyspace));
        keyspace
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

    /// Returns the keyspace of a tenant if it was created.
    pub fn existing(&self, tenant: &TenantName) -> Option<Arc<Keyspace>> {
        self.of_tenants.lock().get(tenant).cloned()
    }

    /// Returns the clock of keys.
    pub fn time(&self) -> &KeyTime {
        &self.time
    }

    /// Returns the generator of version numbers for reads of spaces.
    pub fn moments(&self) -> &VersionGenerator {
        &self.moments
    }

    /// Returns all keyspaces with their tenants.
    pub fn by_tenant(&self) -> Vec<(TenantName, Arc<Keyspace>)> {
        self.of_tenants.lock().iter().map(|(tenant, keys)| (tenant.clone(), keys.clone())).collect()
    }

    /// Returns all keyspaces.
    pub fn all(&self) -> Vec<Arc<Keyspace>> {
        self.of_tenants.lock().values().cloned().collect()
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
