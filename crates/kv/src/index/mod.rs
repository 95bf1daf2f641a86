//! The index of a space: maps the hash of a key to the place of its entry, in the pool's memory.
//!
//! A bucketized cuckoo hash table that grows and shrinks by one bucket at a time, as linear hashing does. Each key has
//! two bucket numbers of arbitrary length: its hash, and its hash combined with one of 64 distances, the *route*, which
//! the tag in its slot determines. As many of their low bits as the table has buckets for select the buckets
//! (table.rs). So a table is equally full at any size, and splitting a bucket moves at most seven entries.
//!
//! An entry is *at home* in the first of its key's two buckets, *away* in the second, or in the stash, which takes
//! entries whose buckets are both full. If it is not at home, its route is recorded in the summary of its home bucket.
//! So a key at home is found with one cache line, an absent key is rejected with hardly more, and no lookup reads more
//! than two buckets and, if the summary says so, the stash. To empty the stash, entries are moved along short paths (at
//! most five moves, found breadth first as in libcuckoo), in the background or, when the stash is half full, by
//! inserts. No operation takes longer in a larger table.
//!
//! Each index permutes the hashes of keys by an order of its own ([`IndexOrder`]), and takes a new one once it has been
//! empty, so that keys which arrive in the order of a scan are as good as any. No key is refused because of its hash.
//!
//! A scan visits entries by their home bucket, so that moving an entry between its key's two buckets does not affect it
//! ([`scan`](Index::scan)).
//!
//! Invariants: the route of an entry that is not at home is in the summary of its home; a summary has a route only if
//! some entry came by it to a bucket that the home's keys can be in, or is in the stash. A missing route loses a key:
//!
//! 1. Key `k` is displaced from its home bucket to the other one by route 5.
//! 2. If the home's summary lacked route 5, a lookup of `k` would stop at the home bucket and report it absent, and
//!    `SET k` would add a second entry.
//!
//! After Caribou (section 4.1: lookups in constant time, displacement in the background), MemC3 (tags, partial-key
//! cuckoo hashing) and F14 (overflow counts that end unsuccessful lookups early).

mod bucket;
mod displace;
mod hasher;
mod resize;
mod scan;
mod stash;
mod table;
#[cfg(test)]
mod tests;

pub use hasher::{IndexOrder, IndexOrders, KeyHasher};

use crate::meter::Meter;
use crate::slab::EntryAddress;
use bucket::{BucketSlot, KeyHash, Route, SLOTS};
use farpool_memory::{Pool, prefetch};
use farpool_model::{Error, Result, TenantName};
use stash::{Stash, Stashed};
use std::sync::Arc;
use table::BucketTable;

/// Most buckets that an insert adds when one is not enough.
const CATCH_UP_BUCKETS: usize = 16;

/// Most entries of the stash examined per home bucket to find out whether a route is in use. If more are at home in one
/// bucket, its summary keeps all its routes.
const LOOKED_AT: usize = 64;

/// The index of a space. The hash passed for a key must depend on the key alone.
pub struct Index {
    table: BucketTable,
    stash: Stash,
    order: IndexOrder,
    /// Number of entries, including those in the stash.
    len: usize,
}

/// The location of an entry.
enum EntryLocation {
    Bucket { bucket: usize, slot: usize },
    Stash(Stashed),
}

impl Index {
    /// Creates an empty index, which takes no memory of the pool until there is a key.
    pub fn new(pool: Arc<Pool>, tenant: TenantName, order: IndexOrder) -> Index {
        Index { table: BucketTable::new(pool, tenant), stash: Stash::default(), order, len: 0 }
    }

    /// Counts memory with `meter` and respects its limit; there must be no entries yet.
    #[must_use]
    pub(crate) fn metered(self, meter: Arc<Meter>) -> Index {
        Index { table: self.table.metered(meter), ..self }
    }

    /// Returns the number of entries.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Returns whether there are no entries.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Returns the bytes of the pool that the index takes.
    pub fn usage(&self) -> usize {
        self.table.bytes()
    }

    /// Returns the entry of the key with this hash for which `is_it` is true. `is_it` is called for entries with the
    /// same hash, and for about one in 32,768 of the other entries in the buckets read.
    #[inline]
    pub fn find(&self, hash: u64, is_it: impl Fn(EntryAddress) -> bool) -> Option<EntryAddress> {
        if self.table.len() == 0 {
            return None;
        }
        let hash = self.ordered(hash);
        let like = hash.slot(EntryAddress::from_bits(0));
        let home = self.table.get(self.table.address(hash.home()));
        if let Some(slot) = home.find(like, &is_it) {
            return Some(home.slot(slot).place());
        }
        if !home.summary().has(hash.route()) {
            return None;
        }
        let other = self.table.get(self.table.address(hash.other()));
        if let Some(slot) = other.find(like.moved(), &is_it) {
            return Some(other.slot(slot).place());
        }
        self.stash.find(hash, &is_it)
    }

    /// Prefetches the home bucket of a key with this hash.
    #[inline]
    pub fn prefetch(&self, hash: u64) {
        if self.table.len() > 0 {
            prefetch(&self.table.get(self.table.address(self.ordered(hash).home())).0[0]);
        }
    }

    /// Returns the entry that is most likely that of the key with this hash, without comparing keys.
    #[inline]
    pub fn likely(&self, hash: u64) -> Option<EntryAddress> {
        self.find(hash, |_| true)
    }

    /// Adds an entry for a key that is not in the index. `hash_of` returns the hash of an entry's key; it is called for
    /// a bounded number of entries, mostly one or none.
    ///
    /// # Errors
    /// Errors of the pool when the table has no free slot within reach and cannot grow. All entries stay as they were.
    pub fn insert(
        &mut self,
        hash: u64,
        place: EntryAddress,
        hash_of: impl Fn(EntryAddress) -> u64,
    ) -> Result<()> {
        let hash = self.ordered(hash);
        let grown = if self.is_crowded(self.len + 1) { self.grow(&hash_of) } else { Ok(()) };
        if self.table.len() == 0 {
            return grown.and_then(|()| Err(Error::internal("an index grew to no buckets")));
        }
        if !self.put_directly(hash, place) {
            // Twice, so that the stash shrinks even if the new entry goes into it.
            for _ in 0..2 {
                if self.stash.is_filling() {
                    self.empty_stash(&hash_of);
                }
            }
            if !self.stash.is_full() {
                self.put_in_stash(hash, place)?;
            } else if !self.put_by_displacement(hash, place, &hash_of) {
                grown?;
                if self.put_with_growth(hash, place, &hash_of)? {
                    self.len += 1;
                    return Ok(());
                }
                self.put_in_stash(hash, place)?;
            }
        }
        self.len += 1;
        Ok(())
    }

    /// Replaces the place `old` of a key with this hash by `new`.
    ///
    /// # Panics
    /// If there is no such entry.
    pub fn replace(&mut self, hash: u64, old: EntryAddress, new: EntryAddress) {
        let hash = self.ordered(hash);
        match self.spot_of(hash, old).expect("an entry that is replaced is there") {
            EntryLocation::Stash(_) => self.stash.replace(hash, old, new),
            EntryLocation::Bucket { bucket, slot } => {
                let at_home = hash.slot(new);
                let is_away = self.table.get(bucket).slot(slot).is_away();
                self.table.write_slot(bucket, slot, if is_away { at_home.moved() } else { at_home });
            }
        }
    }

    /// Removes the entry of a key with this hash; returns whether it was present.
    pub fn remove(&mut self, hash: u64, place: EntryAddress) -> bool {
        let hash = self.ordered(hash);
        match self.spot_of(hash, place) {
            None => return false,
            Some(EntryLocation::Stash(entry)) => self.take_from_stash(entry),
            Some(EntryLocation::Bucket { bucket, slot }) => self.vacate(bucket, slot),
        }
        self.len -= 1;
        self.stash.retry();
        if self.len == 0 {
            self.table.clear();
            self.order = self.order.next();
        } else if self.is_sparse() {
            self.shrink();
        }
        true
    }

    /// Does background work of at most `budget` units: empties the stash by displacement, and grows or shrinks the
    /// table. A unit reads a dozen cache lines, 250 at most. Returns whether there is more to do.
    ///
    /// # Errors
    /// Errors of the pool when the table must grow. All entries stay as they were.
    pub fn step(&mut self, hash_of: impl Fn(EntryAddress) -> u64, budget: usize) -> Result<bool> {
        for _ in 0..budget {
            if self.stash.has_untried() {
                self.empty_stash(&hash_of);
            } else if self.is_crowded(self.len) {
                self.grow(&hash_of)?;
            } else if !self.is_sparse() || !self.shrink() {
                return Ok(false);
            }
        }
        Ok(self.stash.has_untried() || self.is_crowded(self.len) || self.is_sparse())
    }

    /// Returns the hash of a key in the order of this index.
    #[inline]
    fn ordered(&self, hash: u64) -> KeyHash {
        KeyHash(self.order.of(hash))
    }

    fn spot_of(&self, hash: KeyHash, place: EntryAddress) -> Option<EntryLocation> {
        if self.table.len() == 0 {
            return None;
        }
        let is_it = |candidate| candidate == place;
        let in_bucket = |bucket, like: BucketSlot| {
            self.table.get(bucket).find(like, is_it).map(|slot| EntryLocation::Bucket { bucket, slot })
        };
        let at_home = hash.slot(place);
        in_bucket(self.table.address(hash.home()), at_home)
            .or_else(|| in_bucket(self.table.address(hash.other()), at_home.moved()))
            .or_else(|| {
                self.stash.find(hash, is_it).map(|place| EntryLocation::Stash(Stashed::new(hash, place)))
            })
    }

    /// Adds an entry after growing by some buckets: for a table that is too full because the pool had no memory for a
    /// while.
    fn put_with_growth(
        &mut self,
        hash: KeyHash,
        place: EntryAddress,
        hash_of: &impl Fn(EntryAddress) -> u64,
    ) -> Result<bool> {
        for _ in 0..CATCH_UP_BUCKETS {
            if !self.is_crowded(self.len + 1) {
                break;
            }
            self.grow(hash_of)?;
            if self.put_directly(hash, place) || self.put_by_displacement(hash, place, hash_of) {
                return Ok(true);
            }
            if self.empty_stash(hash_of) {
                self.put_in_stash(hash, place)?;
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Puts an entry into a free slot of one of its buckets, at home if possible.
    fn put_directly(&mut self, hash: KeyHash, place: EntryAddress) -> bool {
        let buckets = [self.table.address(hash.home()), self.table.address(hash.other())];
        for bucket in buckets {
            if let Some(slot) = self.table.read(bucket).free_slot() {
                self.put(bucket, slot, hash, place);
                return true;
            }
        }
        false
    }

    /// Puts an entry into a free slot of one of its buckets.
    fn put(&mut self, bucket: usize, slot: usize, hash: KeyHash, place: EntryAddress) {
        let home = self.table.address(hash.home());
        let at_home = hash.slot(place);
        let content = if bucket == home { at_home } else { at_home.moved() };
        self.table.write_slot(bucket, slot, content);
        if bucket != home {
            self.remember(home, hash.route());
        }
    }

    /// Puts an entry into the stash.
    ///
    /// # Errors
    /// Errors of the pool when a large stash needs more memory; nothing is changed then.
    fn put_in_stash(&mut self, hash: KeyHash, place: EntryAddress) -> Result<()> {
        self.table.stand_for(Stash::bytes_of(self.stash.len() + 1))?;
        self.stash.push(Stashed::new(hash, place));
        self.remember(self.table.address(hash.home()), hash.route());
        Ok(())
    }

    fn take_from_stash(&mut self, entry: Stashed) {
        self.stash.remove(entry);
        self.table.stand_down(Stash::bytes_of(self.stash.len()));
        let home = self.table.address(entry.hash().home());
        let known = self.table.known(home);
        if self.stash.of_home(home, known).take(LOOKED_AT + 1).count() == LOOKED_AT {
            // Few enough are left to tell which routes are in use.
            self.table.get(home).summary().routes().for_each(|route| self.forget(home, route));
        } else {
            self.forget(home, entry.hash().route());
        }
    }

    /// Empties a slot and updates the summaries that had its route.
    fn vacate(&mut self, bucket: usize, slot: usize) {
        let was = self.table.get(bucket).slot(slot);
        self.table.write_slot(bucket, slot, BucketSlot::EMPTY);
        if was.is_away() {
            self.forget_facing(bucket, was.route());
        }
    }

    /// Adds a route to the summary of a bucket.
    fn remember(&mut self, home: usize, route: Route) {
        let summary = self.table.get(home).summary();
        self.table.write_summary(home, summary.with(route, true));
    }

    /// Removes a route from the summaries of the home buckets whose keys come by it to `bucket`, unless it is still in
    /// use.
    fn forget_facing(&mut self, bucket: usize, route: Route) {
        let (first, second) = self.table.candidate_buckets(bucket, route);
        self.forget(first, route);
        if let Some(second) = second {
            self.forget(second, route);
        }
    }

    /// Removes a route from the summary of a bucket unless it is still in use.
    fn forget(&mut self, home: usize, route: Route) {
        let summary = self.table.get(home).summary();
        if summary.has(route) && !self.is_used(home, route) {
            self.table.write_summary(home, summary.with(route, false));
        }
    }

    /// Returns whether an entry came by a route from a home bucket: in one of the buckets that the route leads to, or
    /// in the stash.
    fn is_used(&self, home: usize, route: Route) -> bool {
        let leads_to = |bucket| self.table.read(bucket).has_away_by(route);
        let (first, second) = self.table.candidate_buckets(home, route);
        leads_to(first) || second.is_some_and(leads_to) || self.may_be_stashed(home, route)
    }

    /// Returns whether the stash has an entry with this home and route, or too many entries of this home to examine.
    fn may_be_stashed(&self, home: usize, route: Route) -> bool {
        if self.stash.len() == 0 {
            return false;
        }
        let of_home = self.stash.of_home(home, self.table.known(home)).take(LOOKED_AT + 1);
        of_home.enumerate().any(|(at, entry)| at == LOOKED_AT || entry.hash().route() == route)
    }

    fn slots(&self) -> usize {
        self.table.len() * SLOTS
    }
}

impl std::fmt::Debug for Index {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (buckets, stashed) = (self.table.len(), self.stash.len());
        write!(f, "Index({} entries in {buckets} buckets, {stashed} of them in the stash)", self.len)
    }
}
