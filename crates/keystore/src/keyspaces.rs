//! The keyspaces of all tenants. A keyspace has all keys of one tenant, in shards with one lock each.

use crate::log::KeyLog;
use crate::time::KeyTime;
use farpool_kv::Keyspace;
use farpool_memory::Pool;
use farpool_model::{Clock, TenantName};
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

/// Number of shards per processor. Reason for 4: threads that run at the same time then rarely contend for the lock of
/// a shard.
const SHARDS_PER_PROCESSOR: usize = 4;

/// Maximum number of shards per tenant. Reason for a limit: each shard allocates memory of its own for each space.
const SHARDS: usize = 64;

/// The keyspaces of all tenants; each is created on first use.
pub struct Keyspaces {
    pool: Arc<Pool>,
    shards: usize,
    /// Secret seed of the hash function of keys.
    secret: [u8; 16],
    of_tenants: Mutex<BTreeMap<TenantName, Arc<Keyspace>>>,
    /// Whether the keys are being rebuilt from the log, during which new keyspaces must refuse commands, too. Changed
    /// only under the lock of `of_tenants`.
    is_rebuilding: AtomicBool,
    time: KeyTime,
    /// The log that makes changes durable; unset if keys are in memory only.
    log: OnceLock<Arc<KeyLog>>,
}

impl Keyspaces {
    /// Creates an empty set for a node with `processors` processors. `hash_seed` must be unpredictable, because clients
    /// could otherwise choose keys with equal hashes.
    pub fn new(pool: &Arc<Pool>, processors: usize, hash_seed: u64, clock: &Arc<dyn Clock>) -> Self {
        let mut secret = [0; 16];
        secret[..8].copy_from_slice(&hash_seed.to_le_bytes());
        let shards = (processors * SHARDS_PER_PROCESSOR).clamp(1, SHARDS);
        let time = KeyTime::starting(Arc::clone(clock));
        let (pool, of_tenants, log) = (Arc::clone(pool), Mutex::default(), OnceLock::new());
        Keyspaces { pool, shards, secret, of_tenants, is_rebuilding: AtomicBool::new(false), time, log }
    }

    /// Creates a set with the keyspaces `of_tenants`, the settings of this set, and no log.
    pub(crate) fn like(&self, of_tenants: BTreeMap<TenantName, Arc<Keyspace>>) -> Self {
        Keyspaces {
            pool: Arc::clone(&self.pool),
            of_tenants: Mutex::new(of_tenants),
            is_rebuilding: AtomicBool::new(false),
            time: self.time.another(),
            log: OnceLock::new(),
            ..*self
        }
    }

    /// Makes keyspaces that are created from now on refuse commands; returns the existing ones, for which the caller
    /// must do the same.
    pub(crate) fn begin_rebuild(&self) -> Vec<(TenantName, Arc<Keyspace>)> {
        let of_tenants = self.of_tenants.lock();
        self.is_rebuilding.store(true, Ordering::Relaxed);
        of_tenants.iter().map(|(tenant, keys)| (tenant.clone(), keys.clone())).collect()
    }

    /// Makes all keyspaces accept commands again.
    pub(crate) fn end_rebuild(&self) {
        let of_tenants = self.of_tenants.lock();
        self.is_rebuilding.store(false, Ordering::Relaxed);
        of_tenants.values().for_each(|keys| keys.refuse_commands(false));
    }

    /// Makes all keyspaces, existing and new, append their changes to `log` from now on.
    pub(crate) fn record_in(&self, log: &Arc<KeyLog>) {
        let of_tenants = self.of_tenants.lock();
        drop(self.log.set(log.clone()));
        of_tenants.iter().for_each(|(tenant, keys)| keys.set_journal(log.journal(tenant)));
    }

    /// Returns the log that makes changes durable; `None` if keys are in memory only.
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
        keyspace.refuse_commands(self.is_rebuilding.load(Ordering::Relaxed));
        of_tenants.insert(tenant.clone(), Arc::clone(&keyspace));
        keyspace
    }

    /// Returns the keyspace of a tenant; `None` if it was not created yet.
    pub fn existing(&self, tenant: &TenantName) -> Option<Arc<Keyspace>> {
        self.of_tenants.lock().get(tenant).cloned()
    }

    /// Returns the clock that expiry and log records use.
    pub fn time(&self) -> &KeyTime {
        &self.time
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

impl fmt::Debug for Keyspaces {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Keyspaces").field("shards", &self.shards).finish_non_exhaustive()
    }
}
