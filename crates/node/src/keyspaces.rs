//! The keys of each tenant.

use crate::caller::Caller;
use crate::rights::Verb;
use farpool_kv::Keyspace;
use farpool_memory::Pool;
use farpool_model::{Result, TenantName};
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Shards for each thread that may want one at the same time, so that they rarely meet.
const SHARDS_PER_PROCESSOR: usize = 4;

/// Most shards of a tenant: each has memory of its own for each space.
const SHARDS: usize = 64;

/// The keys of all tenants; those of one are made when it first asks.
pub(crate) struct Keyspaces {
    pool: Arc<Pool>,
    shards: usize,
    /// The secret of all hash functions of keys.
    secret: [u8; 16],
    of_tenants: Mutex<BTreeMap<TenantName, Arc<Keyspace>>>,
}

impl Keyspaces {
    /// Makes them for so many processors; nobody may be able to guess the seed.
    pub fn new(pool: &Arc<Pool>, processors: usize, hash_seed: u64) -> Self {
        let mut secret = [0; 16];
        secret[..8].copy_from_slice(&hash_seed.to_le_bytes());
        let shards = (processors * SHARDS_PER_PROCESSOR).clamp(1, SHARDS);
        Keyspaces { pool: Arc::clone(pool), shards, secret, of_tenants: Mutex::default() }
    }

    /// The keys of a tenant.
    pub fn of(&self, tenant: &TenantName) -> Arc<Keyspace> {
        let mut of_tenants = self.of_tenants.lock();
        if let Some(keyspace) = of_tenants.get(tenant) {
            return Arc::clone(keyspace);
        }
        let keyspace = Arc::new(Keyspace::new(&self.pool, tenant, self.secret, self.shards));
        of_tenants.insert(tenant.clone(), Arc::clone(&keyspace));
        keyspace
    }

    /// Those that there are.
    pub fn all(&self) -> Vec<Arc<Keyspace>> {
        self.of_tenants.lock().values().cloned().collect()
    }
}

impl Caller {
    /// The keys of the caller's tenant, which it may change where [`Caller::may_write_keys`] says so.
    ///
    /// # Errors
    /// `Denied`, as for every verb.
    pub(crate) fn keys(&self) -> Result<Arc<Keyspace>> {
        self.check(Verb::ReadKeys)?;
        Ok(self.node().keyspaces().of(self.tenant()))
    }

    /// Whether the caller may change keys.
    pub(crate) fn may_write_keys(&self) -> bool {
        self.check(Verb::WriteKeys).is_ok()
    }
}
