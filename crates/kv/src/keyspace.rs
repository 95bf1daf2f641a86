//! The keyspace of a tenant: all its keys, in all its spaces (namespaces of keys). The keys are divided by their hashes
//! into shards with one lock each. A *long command*, one that may take longer than a step of some ten microseconds,
//! holds the locks of its shards until it ends.

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

/// All keys of a tenant, in all spaces, with their settings.
///
/// A command locks the shards of all its keys in ascending order before it reads or changes any, so that commands are
/// atomic and cannot deadlock. Example: `MSET a 1 b 2` and `MSET b 3 a 4` lock the shards of `a` and `b` in the same
/// order. If each command locked the shard of its own first key first, each could wait for the other forever.
pub struct Keyspace {
    pub(crate) pool: Arc<Pool>,
    pub(crate) tenant: TenantName,
    hasher: KeyHasher,
    shards: Box<[Mutex<Shard>]>,
    holds: Holds,
    meter: Arc<Meter>,
    orders: Arc<IndexOrders>,
    /// The memory limit of [`Limits`], in bytes; 0 for none. `policy` is the index of the eviction policy in
    /// [`Policy::ALL`].
    maxmemory: AtomicU64,
    policy: AtomicU8,
    /// Latest time, in milliseconds since the epoch, that was passed in with any command.
    latest: AtomicU64,
    /// Latest time passed in with a client's command. The next field is the latest of these times that
    /// [`Keyspace::record_time`] has written to the log.
    asked: AtomicU64,
    recorded: AtomicU64,
    /// Latest time of an applied log record.
    applied: AtomicU64,
    /// Whether commands are refused because the keys are being rebuilt.
    refuses_commands: AtomicBool,
    journal: OnceLock<Box<dyn Journal>>,
    /// Compressors of the spaces, each with an unused allocation of the pool that accounts for its memory, which is not
    /// memory of the pool.
    pub(crate) charges: Mutex<Vec<(Arc<Packer>, Extent)>>,
    /// Cuts (point-in-time views) that were dropped while a long command held their shard, with shard number and space
    /// id; they are ended later.
    ended: Mutex<Vec<(usize, SpaceId, Arc<Cut>)>>,
}

/// Milliseconds for which an expired key is kept in a keyspace that only applies log records. Reason for 10 s: the
/// times of records can be out of order by as long as a command holds its shards, which is less.
const APPLIED_MARGIN_MS: u64 = 10_000;

/// Number of keys of a space, and their memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct KeyCount {
    /// Number of keys.
    pub keys: usize,
    /// Number of keys that have an expiry.
    pub expiring: usize,
    /// Bytes of pool memory that the keys take.
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
    /// Creates an empty keyspace of `tenant` with memory of `pool`. The hash function of keys depends on `secret`, so
    /// that clients cannot choose keys with equal hashes.
    ///
    /// # Panics
    /// If `shards` is zero or more than 512 (nine bits of a key's hash select its shard).
    pub fn new(pool: &Arc<Pool>, tenant: &TenantName, secret: [u8; 16], shards: usize) -> Self {
        assert!((1..=512).contains(&shards), "keys are in {shards} shards");
        let hasher = KeyHasher::new(secret);
        let orders = Arc::new(IndexOrders::new(hasher, tenant.as_str()));
        Keyspace::with(pool, tenant, (Arc::default(), orders), shards)
    }

    /// Creates an empty keyspace whose shards may later replace those of this keyspace: it has the same number of
    /// shards and hash function, its memory counts as memory of this keyspace, and its time is not earlier.
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

    /// Makes the keyspace log all changes to `journal` from now on; later calls have no effect. Called when recovery is
    /// complete, and puts the recovered memory limit into effect.
    pub fn set_journal(&self, journal: Box<dyn Journal>) {
        drop(self.journal.set(journal));
        self.all_applied();
    }

    /// Makes the keyspace refuse commands and changes by SQL, or accept them again. Commands that hold their shards
    /// already continue.
    pub fn refuse_commands(&self, refuses: bool) {
        self.refuses_commands.store(refuses, Ordering::Release);
    }

    /// Returns whether commands are refused.
    #[inline]
    pub(crate) fn refuses_commands(&self) -> bool {
        self.refuses_commands.load(Ordering::Acquire)
    }

    /// Releases the pool memory that accounts for the compressors of all spaces.
    pub(crate) fn clear_charges(&self) {
        let gone = std::mem::take(&mut *self.charges.lock());
        gone.iter().for_each(|(_, extent)| self.meter.gave(extent.len()));
    }

    /// Moves limits and compressors from `twin`, which [`Keyspace::empty_twin`] created, to this keyspace, and takes
    /// over its time.
    pub(crate) fn take_settings_of(&self, twin: &Keyspace) {
        self.store_limits(twin.limits());
        self.meter.set_most(usize_saturating(self.limits().maxmemory));
        *self.charges.lock() = std::mem::take(&mut *twin.charges.lock());
        self.applied_at(twin.applied.load(Ordering::Relaxed));
        // The latest time is to be written to the log again, because its record may be among those that were rolled
        // back.
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

    /// Returns whether the policy evicts keys when memory is full.
    #[inline]
    pub(crate) fn evicts(&self) -> bool {
        self.policy() != Policy::NoEviction
    }

    /// Returns whether the policy depends on when or how often keys are used.
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

    /// Returns the time to use for a client's command that read the clock as `now` (see [`Keyspace::not_before`]), and
    /// notes it, so that [`Keyspace::record_time`] writes it to the log.
    pub(crate) fn asked_at(&self, now: u64) -> u64 {
        let now = self.not_before(now);
        if now > self.asked.load(Ordering::Relaxed) {
            self.asked.store(now, Ordering::Relaxed);
        }
        now
    }

    /// Returns the latest time of a client's command, to be written to the log; `None` if an earlier call has returned
    /// this time.
    pub(crate) fn unrecorded_time(&self) -> Option<u64> {
        let asked = self.asked.load(Ordering::Relaxed);
        (self.recorded.swap(asked, Ordering::Relaxed) < asked).then_some(asked)
    }

    /// Returns the latest time that was passed in with any command, in milliseconds since the epoch.
    pub fn latest(&self) -> u64 {
        self.latest.load(Ordering::Relaxed)
    }

    /// Returns the later of `now` and the latest time seen so far, so that time never goes backwards. Needed because
    /// threads may call this in another order than they read the clock. Example: a client is told that `k` has expired
    /// at time 100; a command that read the clock at 99 must not see `k` again.
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

    /// Returns the number of the shard of a key with this hash.
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

    /// Locks a shard; blocks while another thread or a long command holds it. Not for threads that serve several
    /// tenants, which must not wait for a long command.
    pub(crate) fn lock(&self, shard: usize) -> MutexGuard<'_, Shard> {
        self.shards[shard].lock()
    }

    pub(crate) fn holds(&self) -> &Holds {
        &self.holds
    }

    /// Does a step of background maintenance: removes expired keys, compacts memory, evicts keys while usage exceeds
    /// `maxmemory`. Returns whether more is likely to be left to do. Locks one shard at a time, for some microseconds,
    /// and skips shards that long commands hold.
    pub fn tidy(&self, now: u64) -> bool {
        let now = self.not_before(now);
        self.end_cuts();
        let tidy = |shard: &usize| {
            // A shard that a long command holds is skipped until the next step.
            let Some(has_more) = self.take(*shard).map(|mut taken| taken.tidy(now)) else { return false };
            self.lower(*shard, now) || has_more
        };
        let has_more = (0..self.shards()).filter(tidy).count() > 0;
        self.train_one(now) || has_more
    }

    /// Does a step of background maintenance in a keyspace that only applies log records, as on a replica: removes keys
    /// that have expired as of the time of the records, and compacts memory. Evicts nothing and depends on no clock.
    /// Returns whether more is likely to be left to do.
    ///
    /// Keys are removed 10 s after their expiry, because the times of consecutive log records are not always ascending.
    /// Example:
    ///
    /// 1. At time 99, `PERSIST k` begins on one thread; `k` expires at 100.
    /// 2. At time 101, a command on another thread changes another key, and its record is appended first.
    /// 3. If `k` were removed when the record of time 101 is applied, the later record of `PERSIST k` would find no
    ///    `k`.
    pub fn tidy_applied(&self) -> bool {
        let now = self.applied.load(Ordering::Relaxed).saturating_sub(APPLIED_MARGIN_MS);
        self.end_cuts();
        let tidy = |shard: &usize| self.take(*shard).is_some_and(|mut taken| taken.tidy(now));
        (0..self.shards()).filter(tidy).count() > 0
    }

    /// Notes `now`, the time in a log record that is being applied, for [`Keyspace::tidy_applied`].
    pub(crate) fn applied_at(&self, now: u64) {
        self.applied.fetch_max(now, Ordering::Relaxed);
        self.not_before(now);
    }

    /// Notes a cut to be ended by [`Keyspace::tidy`] when no long command holds its shard any more.
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

    /// Returns the sequence number of the last log record of a change to any key; `None` if there is none. Everything
    /// read before this call depends on records up to this one at most.
    pub fn last_record(&self) -> Option<u64> {
        let recorded = |shard| self.look(shard, Shard::recorded, |known| known.recorded);
        (0..self.shards()).map(recorded).max()?.checked_sub(1)
    }

    /// Returns the definitions of the named spaces.
    pub fn spaces(&self) -> Arc<Spaces> {
        self.look(0, |shard| Arc::clone(shard.spaces()), |known| Arc::clone(&known.spaces))
    }

    /// Returns the number of keys of a space and their memory. The shards are read one after the other, so the result
    /// is an estimate while clients change keys.
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

    /// Returns the number of keys by space id, of spaces that have keys.
    pub(crate) fn keys_by_space(&self) -> BTreeMap<SpaceId, usize> {
        let mut counts = BTreeMap::new();
        for shard in 0..self.shards() {
            for (space, count) in self.counts_of(shard) {
                *counts.entry(space).or_default() += count.keys;
            }
        }
        counts
    }

    /// Returns the counts of the spaces that clients select and that have keys; named spaces count as part of space 0.
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
