//! The keyspace of a tenant, divided into shards with one lock each.

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
use farpool_model::cast::usize_saturating;
use parking_lot::{Mutex, MutexGuard};
use std::collections::BTreeMap;
use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

/// The keyspace of a tenant: all its keys.
///
/// A command locks the shards of all its keys in ascending order before it does anything, so that its effects are
/// atomic and commands cannot deadlock. Example: `MSET a 1 b 2` and `MSET b 3 a 4` both lock the shard of `a` before
/// that of `b` (or both the other way round); if each locked its first key first, each could wait for the other
/// forever.
pub struct Keyspace {
    pub(crate) pool: Arc<Pool>,
    pub(crate) tenant: TenantName,
    hasher: KeyHasher,
    shards: Box<[Mutex<Shard>]>,
    holds: Holds,
    meter: Arc<Meter>,
    orders: Arc<IndexOrders>,
    /// Settings ([`Limits`]): the memory limit, and the index of the policy in [`Policy::ALL`].
    maxmemory: AtomicU64,
    policy: AtomicU8,
    /// Latest time that any command came with.
    latest: AtomicU64,
    /// Latest time that a client's command came with, and the latest of these times that [`Keyspace::record_time`] has
    /// recorded.
    asked: AtomicU64,
    recorded: AtomicU64,
    /// Latest time that an applied record carried.
    applied: AtomicU64,
    /// Whether commands are refused because the keys are being rebuilt.
    refuses_commands: AtomicBool,
    journal: OnceLock<Box<dyn Journal>>,
    /// Compressors of the spaces, each with an extent of the pool that stands for the memory it takes.
    pub(crate) charges: Mutex<Vec<(Arc<Packer>, Extent)>>,
    /// Cuts that were dropped while a long command held their shards.
    ended: Mutex<Vec<(usize, SpaceId, Arc<Cut>)>>,
}

/// Milliseconds for which expired keys stay where keys change by records alone: longer than the times of records can be
/// out of order, which is by the longest time for which a command holds its shards.
const APPLIED_MARGIN_MS: u64 = 10_000;

/// Counts of the keys of a space.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct KeyCount {
    /// Number of keys.
    pub keys: usize,
    /// Number of keys that have an expiry.
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
    /// Creates an empty keyspace. The hash function depends on `secret`, so that clients cannot choose keys that
    /// collide.
    ///
    /// # Panics
    /// If `shards` is zero, or more than 512.
    pub fn new(pool: &Arc<Pool>, tenant: &TenantName, secret: [u8; 16], shards: usize) -> Self {
        assert!((1..=512).contains(&shards), "keys are in {shards} shards");
        let hasher = KeyHasher::new(secret);
        let orders = Arc::new(IndexOrders::new(hasher, tenant.as_str()));
        Keyspace::with(pool, tenant, (Arc::default(), orders), shards)
    }

    /// Creates an empty keyspace whose shards may change places with those of this one. Its memory counts as memory of
    /// this one, and its time begins where this one's is.
    pub(crate) fn empty_twin(&self) -> Keyspace {
        let shared = (Arc::clone(&self.meter), Arc::clone(&self.orders));
        let twin = Keyspace::with(&self.pool, &self.tenant, shared, self.shards());
        twin.not_before(self.latest());
        twin
    }

    fn with(
        pool: &Arc<Pool>,
        tenant: &TenantName,
        (meter, orders): (Arc<Meter>, Arc<IndexOrders>),
        shards: usize,
    ) -> Self {
        let shard = |_| {
            let (meter, orders) = (Arc::clone(&meter), Arc::clone(&orders));
            Mutex::new(Shard::new(Arc::clone(pool), tenant.clone(), meter, orders))
        };
        Keyspace {
            shards: (0..shards).map(shard).collect(),
            holds: Holds::new(shards),
            meter: Arc::clone(&meter),
            hasher: orders.hasher(),
            orders: Arc::clone(&orders),
            maxmemory: AtomicU64::new(0),
            policy: AtomicU8::new(0),
            pool: Arc::clone(pool),
            tenant: tenant.clone(),
            charges: Mutex::default(),
            ended: Mutex::default(),
            latest: AtomicU64::new(0),
            asked: AtomicU64::new(0),
            recorded: AtomicU64::new(0),
            applied: AtomicU64::new(0),
            refuses_commands: AtomicBool::new(false),
            journal: OnceLock::new(),
        }
    }

    /// Records all changes from now on; only the first journal counts. Called when recovery is done, so recorded limits
    /// take effect from here on.
    pub fn set_journal(&self, journal: Box<dyn Journal>) {
        drop(self.journal.set(journal));
        self.all_applied();
    }

    /// Makes the keyspace refuse commands and changes by SQL, or accept them again. Commands that run already go on.
    pub fn refuse_commands(&self, refuses: bool) {
        self.refuses_commands.store(refuses, Ordering::Release);
    }

    /// Returns whether commands are refused.
    #[inline]
    pub(crate) fn refuses_commands(&self) -> bool {
        self.refuses_commands.load(Ordering::Acquire)
    }

    /// Frees the memory that is charged for the compressors of all spaces.
    pub(crate) fn clear_charges(&self) {
        let gone = std::mem::take(&mut *self.charges.lock());
        gone.iter().for_each(|(_, extent)| self.meter.gave(extent.len()));
    }

    /// Takes over the limits, compressors and times of a keyspace that was created by [`Keyspace::empty_twin`].
    pub(crate) fn take_settings_of(&self, twin: &Keyspace) {
        self.store_limits(twin.limits());
        self.meter.set_most(usize_saturating(self.limits().maxmemory));
        *self.charges.lock() = std::mem::take(&mut *twin.charges.lock());
        self.applied_at(twin.applied.load(Ordering::Relaxed));
        // The record of the latest time may be among those that were cut off.
        self.recorded.store(0, Ordering::Relaxed);
    }

    /// Returns the memory limit and the eviction policy.
    pub fn limits(&self) -> Limits {
        Limits { maxmemory: self.maxmemory.load(Ordering::Relaxed), policy: self.policy() }
    }

    #[inline]
    fn policy(&self) -> Policy {
        let at = self.policy.load(Ordering::Relaxed);
        Policy::ALL.get(usize::from(at)).copied().unwrap_or_default()
    }

    /// Returns whether keys are evicted when memory is full.
    #[inline]
    pub(crate) fn evicts(&self) -> bool {
        self.policy() != Policy::NoEviction
    }

    /// Returns whether the policy depends on when keys are used.
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

    /// Returns [`Keyspace::not_before`] of a time that a client's command came with, and remembers it to be recorded.
    pub(crate) fn asked_at(&self, now: u64) -> u64 {
        let now = self.not_before(now);
        if now > self.asked.load(Ordering::Relaxed) {
            self.asked.store(now, Ordering::Relaxed);
        }
        now
    }

    /// Returns the latest time of a client's command, unless it was returned before.
    pub(crate) fn unrecorded_time(&self) -> Option<u64> {
        let asked = self.asked.load(Ordering::Relaxed);
        (self.recorded.swap(asked, Ordering::Relaxed) < asked).then_some(asked)
    }

    /// Returns the latest time that any command came with.
    pub fn latest(&self) -> u64 {
        self.latest.load(Ordering::Relaxed)
    }

    /// Returns `now`, or the latest time seen if that is later, so that time never goes backwards: two threads may
    /// arrive here in another order than they read the clock. Example: a client is told that `k` has expired at time
    /// 100; a command that read the clock at 99 must not see `k` again.
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

    /// Returns the shard of a key, from hash bits that the indexes do not use.
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

    /// Locks a shard, waiting for a long command that holds it. Not for threads that serve several tenants.
    pub(crate) fn lock(&self, shard: usize) -> MutexGuard<'_, Shard> {
        self.shards[shard].lock()
    }

    pub(crate) fn holds(&self) -> &Holds {
        &self.holds
    }

    /// Does a step of background maintenance: removes expired keys, compacts memory, lowers usage to its limit. Returns
    /// whether more is likely to be left. One shard at a time is locked, for some microseconds.
    pub fn tidy(&self, now: u64) -> bool {
        let now = self.not_before(now);
        self.end_cuts();
        let tidy = |shard: &usize| {
            // A shard that a long command holds is left for later.
            let Some(has_more) = self.take(*shard).map(|mut taken| taken.tidy(now)) else { return false };
            self.lower(*shard, now) || has_more
        };
        let has_more = (0..self.shards()).filter(tidy).count() > 0;
        self.train_one(now) || has_more
    }

    /// Does a step of the maintenance of a keyspace that changes by records alone: removes keys that have expired by the
    /// time that the records carried, and compacts memory. Evicts nothing and reads no clock. Returns whether more is
    /// likely to be left.
    ///
    /// Keys stay for [`APPLIED_MARGIN_MS`] beyond their expiry, because records are in the order of changes and not
    /// quite in that of their times:
    ///
    /// 1. At time 99, a command begins `PERSIST k` on a thread; `k` expires at 100.
    /// 2. At time 101, a command on another thread changes another key, and its record is appended first.
    /// 3. If `k` were removed once the record of time 101 is applied, the one of `PERSIST k` would find no `k`.
    pub fn tidy_applied(&self) -> bool {
        let now = self.applied.load(Ordering::Relaxed).saturating_sub(APPLIED_MARGIN_MS);
        self.end_cuts();
        let tidy = |shard: &usize| self.take(*shard).is_some_and(|mut taken| taken.tidy(now));
        (0..self.shards()).filter(tidy).count() > 0
    }

    /// Notes the time of a record that is being applied.
    pub(crate) fn applied_at(&self, now: u64) {
        self.applied.fetch_max(now, Ordering::Relaxed);
        self.not_before(now);
    }

    /// Ends a cut of a shard once the shard is no longer held by a long command.
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

    /// Returns the number of the last record that changed any key, `None` without one: everything that was read before
    /// this call depends on records up to this one at most.
    pub fn last_record(&self) -> Option<u64> {
        let recorded = |shard| self.look(shard, Shard::recorded, |known| known.recorded);
        (0..self.shards()).map(recorded).max()?.checked_sub(1)
    }

    /// Returns the named spaces.
    pub fn spaces(&self) -> Arc<Spaces> {
        self.look(0, |shard| Arc::clone(shard.spaces()), |known| Arc::clone(&known.spaces))
    }

    /// Returns the counts of a space, read shard by shard: an estimate while clients change keys.
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

    /// Returns the number of keys of each space.
    pub(crate) fn keys_by_space(&self) -> BTreeMap<SpaceId, usize> {
        let mut counts = BTreeMap::new();
        for shard in 0..self.shards() {
            for (space, count) in self.counts_of(shard) {
                *counts.entry(space).or_default() += count.keys;
            }
        }
        counts
    }

    /// Returns the counts of the numbered spaces that have keys; named spaces count as part of space 0.
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
