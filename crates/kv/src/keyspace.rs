//! All keys of a tenant, in shards that threads take one by one.

use crate::evict::Policy;
use crate::holds::Holds;
use crate::index::{IndexOrders, KeyHasher};
use crate::journal::Journal;
use crate::limits::Limits;
use crate::meter::Meter;
use crate::packing::Packer;
use crate::session::selected;
use crate::shard::{Shard, SpaceId};
use crate::slab::Cut;
use crate::spaces::Spaces;
use crate::table::Table;
use farpool_memory::{Extent, Pool};
use farpool_model::TenantName;
use parking_lot::{Mutex, MutexGuard};
use std::collections::BTreeMap;
use std::fmt;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

/// The keys of a tenant.
///
/// A command takes the shards of all its keys, in their order, before it does anything: what it does, others see whole or
/// not at all.
pub struct Keyspace {
    pub(crate) pool: Arc<Pool>,
    pub(crate) tenant: TenantName,
    hasher: KeyHasher,
    shards: Box<[Mutex<Shard>]>,
    holds: Holds,
    meter: Arc<Meter>,
    /// The settings ([`Limits`]): the limit, and the position of the policy among all.
    maxmemory: AtomicU64,
    policy: AtomicU8,
    /// The latest time that a command came with.
    latest: AtomicU64,
    /// The latest time that a command of a client came with, and the one of these that was recorded last by itself.
    asked: AtomicU64,
    recorded: AtomicU64,
    journal: OnceLock<Box<dyn Journal>>,
    /// What compresses the values of spaces, and memory of the pool that stands for what it takes.
    pub(crate) charges: Mutex<Vec<(Arc<Packer>, Extent)>>,
    /// Cuts that have ended while a long command had their shards.
    ended: Mutex<Vec<(usize, SpaceId, Arc<Cut>)>>,
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

impl KeyCount {
    pub(crate) fn of(table: &Table) -> KeyCount {
        KeyCount { keys: table.len(), expiring: table.expiring(), bytes: table.bytes() }
    }

    fn add(&mut self, other: KeyCount) {
        self.keys += other.keys;
        self.expiring += other.expiring;
        self.bytes += other.bytes;
    }
}

impl Keyspace {
    /// Makes a keyspace without keys, whose hash function is known to nobody who does not know `secret`.
    ///
    /// # Panics
    /// If `shards` is zero, or more than 512.
    pub fn new(pool: &Arc<Pool>, tenant: &TenantName, secret: [u8; 16], shards: usize) -> Self {
        assert!((1..=512).contains(&shards), "keys are in {shards} shards");
        let hasher = KeyHasher::new(secret);
        let meter: Arc<Meter> = Arc::default();
        let orders = Arc::new(IndexOrders::new(hasher, tenant.as_str()));
        let shard = |_| {
            let (meter, orders) = (Arc::clone(&meter), Arc::clone(&orders));
            Mutex::new(Shard::new(Arc::clone(pool), tenant.clone(), meter, orders))
        };
        Keyspace {
            shards: (0..shards).map(shard).collect(),
            holds: Holds::new(shards),
            meter: Arc::clone(&meter),
            maxmemory: AtomicU64::new(0),
            policy: AtomicU8::new(0),
            pool: Arc::clone(pool),
            tenant: tenant.clone(),
            charges: Mutex::default(),
            ended: Mutex::default(),
            hasher,
            latest: AtomicU64::new(0),
            asked: AtomicU64::new(0),
            recorded: AtomicU64::new(0),
            journal: OnceLock::new(),
        }
    }

    /// Has changes recorded from now on; only the first journal counts. What was recorded before is applied by now.
    pub fn set_journal(&self, journal: Box<dyn Journal>) {
        drop(self.journal.set(journal));
        self.all_applied();
    }

    /// What the keys may take, and which go.
    pub fn limits(&self) -> Limits {
        Limits { maxmemory: self.maxmemory.load(Ordering::Relaxed), policy: self.policy() }
    }

    #[inline]
    fn policy(&self) -> Policy {
        let at = self.policy.load(Ordering::Relaxed);
        Policy::ALL.get(usize::from(at)).copied().unwrap_or_default()
    }

    /// Whether keys may go when there is no room.
    #[inline]
    pub(crate) fn evicts(&self) -> bool {
        self.policy() != Policy::NoEviction
    }

    /// Whether it matters when keys are used.
    #[inline]
    pub(crate) fn notes_uses(&self) -> bool {
        self.policy().needs_stamps()
    }

    pub(crate) fn store_limits(&self, limits: Limits) {
        self.maxmemory.store(limits.maxmemory, Ordering::Relaxed);
        self.policy.store(limits.policy.number(), Ordering::Relaxed);
    }

    pub(crate) fn meter(&self) -> &Meter {
        &self.meter
    }

    pub(crate) fn journal(&self) -> Option<&dyn Journal> {
        self.journal.get().map(|journal| &**journal)
    }

    /// The time of a command of a client, which must not be forgotten.
    pub(crate) fn asked_at(&self, now: u64) -> u64 {
        let now = self.not_before(now);
        if now > self.asked.load(Ordering::Relaxed) {
            self.asked.store(now, Ordering::Relaxed);
        }
        now
    }

    /// The latest of these times, once.
    pub(crate) fn unrecorded_time(&self) -> Option<u64> {
        let asked = self.asked.load(Ordering::Relaxed);
        (self.recorded.swap(asked, Ordering::Relaxed) < asked).then_some(asked)
    }

    /// The latest time that was seen.
    pub fn latest(&self) -> u64 {
        self.latest.load(Ordering::Relaxed)
    }

    /// Returns `now`, or the latest time that was seen before, so that time does not go back for anybody: two threads may have
    /// read their clock in another order than they have come here.
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

    pub(crate) fn try_lock(&self, shard: usize) -> Option<MutexGuard<'_, Shard>> {
        self.shards[shard].try_lock()
    }

    pub(crate) fn try_lock_for(&self, shard: usize, within: Duration) -> Option<MutexGuard<'_, Shard>> {
        self.shards[shard].try_lock_for(within)
    }

    /// Takes a shard, and waits for long commands that have it: not for threads that serve several tenants.
    pub(crate) fn lock(&self, shard: usize) -> MutexGuard<'_, Shard> {
        self.shards[shard].lock()
    }

    pub(crate) fn holds(&self) -> &Holds {
        &self.holds
    }

    /// Removes some keys that have expired, and tidies up; returns whether there is likely to be more to do. One shard at a
    /// time is taken, for a step of some microseconds.
    pub fn tidy(&self, now: u64) -> bool {
        let now = self.not_before(now);
        self.end_cuts();
        let tidy = |shard: &usize| {
            // What a long command has is tidied up later.
            let Some(has_more) = self.take(*shard).map(|mut taken| taken.tidy(now)) else { return false };
            self.lower(*shard, now) || has_more
        };
        let has_more = (0..self.shards()).filter(tidy).count() > 0;
        self.train_one(now) || has_more
    }

    /// Notes that a cut of a shard is to end once the shard is no longer held.
    pub(crate) fn end_later(&self, shard: usize, space: SpaceId, cut: &Arc<Cut>) {
        self.ended.lock().push((shard, space, Arc::clone(cut)));
    }

    fn end_cuts(&self) {
        let ended = std::mem::take(&mut *self.ended.lock());
        for (shard, space, cut) in ended {
            match self.take(shard) {
                Some(mut taken) => taken.end_cut(space, &cut),
                None => self.end_later(shard, space, &cut),
            }
        }
    }

    /// The spaces with names.
    pub fn spaces(&self) -> Arc<Spaces> {
        self.look(0, |shard| Arc::clone(shard.spaces()), |known| Arc::clone(&known.spaces))
    }

    /// The keys of a space, one shard after the other: an estimate while clients change them.
    pub fn count(&self, space: SpaceId) -> KeyCount {
        let mut count = KeyCount::default();
        for shard in 0..self.shards() {
            count.add(self.look(
                shard,
                |shard| shard.table(space).map(KeyCount::of).unwrap_or_default(),
                |known| {
                    known
                        .counts
                        .iter()
                        .find(|(id, _)| *id == space)
                        .map(|(_, count)| *count)
                        .unwrap_or_default()
                },
            ));
        }
        count
    }

    /// The number of keys of each space.
    pub(crate) fn keys_by_space(&self) -> BTreeMap<SpaceId, usize> {
        let mut counts = BTreeMap::new();
        for shard in 0..self.shards() {
            for (space, count) in self.counts_of(shard) {
                *counts.entry(space).or_default() += count.keys;
            }
        }
        counts
    }

    /// The selected spaces that have keys, by number; those with names are part of the first.
    pub fn counts(&self) -> Vec<(SpaceId, KeyCount)> {
        let mut counts = BTreeMap::<_, KeyCount>::new();
        for shard in 0..self.shards() {
            for (space, count) in self.counts_of(shard) {
                counts.entry(selected(space)).or_default().add(count);
            }
        }
        counts.into_iter().collect()
    }

    fn counts_of(&self, shard: usize) -> Vec<(SpaceId, KeyCount)> {
        let of_tables =
            |shard: &Shard| shard.tables().map(|(space, table)| (space, KeyCount::of(table))).collect();
        self.look(shard, of_tables, |known| known.counts.clone())
    }
}

impl fmt::Debug for Keyspace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Keyspace").field("shards", &self.shards.len()).finish_non_exhaustive()
    }
}
