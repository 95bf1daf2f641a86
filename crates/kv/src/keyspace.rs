//! All keys of a tenant, in shards that threads take one by one.

use crate::index::KeyHasher;
use crate::shard::Shard;
use farpool_memory::Pool;
use farpool_model::TenantName;
use parking_lot::{Mutex, MutexGuard};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// The keys of a tenant.
///
/// A command takes the shards of all its keys, in their order, before it does anything: what it does, others see whole or
/// not at all.
pub struct Keyspace {
    hasher: KeyHasher,
    shards: Box<[Mutex<Shard>]>,
    /// The latest time that a command came with.
    latest: AtomicU64,
}

/// How many keys there are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct KeyCount {
    /// Keys.
    pub keys: usize,
    /// Keys that expire.
    pub expiring: usize,
    /// Bytes of the pool.
    pub bytes: usize,
}

impl Keyspace {
    /// Makes a keyspace without keys, whose hash function is known to nobody who does not know `secret`.
    ///
    /// # Panics
    /// If `shards` is zero, or more than 512.
    pub fn new(pool: &Arc<Pool>, tenant: &TenantName, secret: [u8; 16], shards: usize) -> Self {
        assert!((1..=512).contains(&shards), "keys are in {shards} shards");
        let hasher = KeyHasher::new(secret);
        let shard = |_| Mutex::new(Shard::new(Arc::clone(pool), tenant.clone(), hasher));
        Keyspace { shards: (0..shards).map(shard).collect(), hasher, latest: AtomicU64::new(0) }
    }

    /// Returns `now`, or the latest time that was seen before: a clock that is put back revives nothing.
    pub(crate) fn not_before(&self, now: u64) -> u64 {
        let latest = self.latest.load(Ordering::Relaxed);
        if now > latest {
            self.latest.fetch_max(now, Ordering::Relaxed);
        }
        now.max(latest)
    }

    pub(crate) fn hash(&self, key: &[u8]) -> u64 {
        self.hasher.hash(key)
    }

    /// The shard of a key, by the bits of the hash that indexes do not use.
    pub(crate) fn shard_of(&self, hash: u64) -> usize {
        let chosen = (hash >> 40 & 0x1ff) as usize;
        chosen * self.shards.len() / 512
    }

    pub(crate) fn shards(&self) -> usize {
        self.shards.len()
    }

    pub(crate) fn lock(&self, shard: usize) -> MutexGuard<'_, Shard> {
        self.shards[shard].lock()
    }

    /// Removes some keys that have expired, and tidies up; returns whether there is likely to be more to do. One shard at a
    /// time is taken, for a step of some microseconds.
    pub fn tidy(&self, now: u64) -> bool {
        let now = self.not_before(now);
        (0..self.shards()).filter(|shard| self.lock(*shard).tidy(now)).count() > 0
    }

    /// The spaces that have keys, by number.
    pub fn counts(&self) -> Vec<(crate::SpaceId, KeyCount)> {
        let mut counts = std::collections::BTreeMap::<_, KeyCount>::new();
        for shard in 0..self.shards() {
            for (space, table) in self.lock(shard).tables() {
                let count = counts.entry(space).or_default();
                count.keys += table.len();
                count.expiring += table.expiring();
                count.bytes += table.bytes();
            }
        }
        counts.into_iter().collect()
    }
}
