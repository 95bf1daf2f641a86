//! The hash index of a space (a namespace of keys): maps the hash of a key to the address of its entry. Its buckets are
//! memory of the pool.
//!
//! A bucketized cuckoo hash table that grows and shrinks by one bucket at a time, as linear hashing does. Each key has
//! two bucket numbers of 64 bits: its hash, and its hash XOR one of 64 constants (distances). The key's *route* says
//! which constant; it is part of the key's *tag*, the 15 bits of the hash that are stored with the entry (a
//! fingerprint). The low bits of a bucket number select a bucket, as many bits as the number of buckets requires
//! (table.rs). So a table is equally full at any size, and splitting a bucket moves at most seven entries.
//!
//! An entry is *at home* in the first of its key's two buckets, *away* in the second, or in the *stash*, which takes
//! entries whose two buckets are full. The route of an entry that is not at home is recorded in the *summary* of its
//! home bucket, a bitmap of routes. So finding a key at home reads one cache line, rejecting an absent key reads hardly
//! more on average, and no lookup reads more than two buckets and, if the summary has the key's route, the stash. The
//! stash is emptied by moving other entries along short paths (at most five moves, found breadth first as in
//! libcuckoo), in the background or, when the stash is half full, during inserts. No operation takes longer in a larger
//! table.
//!
//! Each index applies a bijection of its own ([`IndexOrder`]) to the hashes of keys, and takes another one whenever it
//! becomes empty. Reason: keys that arrive in the order in which another index was scanned would otherwise fill a few
//! buckets first. No key is refused because of its hash.
//!
//! A scan ([`scan`](Index::scan)) visits entries by their home bucket, so moving an entry between its key's two buckets
//! does not affect the scan.
//!
//! Invariants: the route of an entry that is not at home is in the summary of its home bucket. A summary has a route
//! only if some entry with this route is away in a bucket that the route connects to the home bucket, or is in the
//! stash. A missing route would lose a key:
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

/// Maximum number of buckets that one insert adds to a table that is too full, which bounds the time that an insert
/// takes.
const CATCH_UP_BUCKETS: usize = 16;

/// Maximum number of stashed entries per home bucket that are examined to find out whether a route is still in use. If
/// more stashed entries have the same home bucket, the bucket's summary keeps all its routes.
const LOOKED_AT: usize = 64;

/// The hash index of a space, from key hashes to entry addresses. The index stores no keys: callers pass the hash of a
/// key, which must depend on the key alone, and compare keys themselves.
pub struct Index {
    table: BucketTable,
    stash: Stash,
    order: IndexOrder,
    /// Number of entries, including those in the stash.
    len: usize,
}

/// Place of an entry in the index: in a slot of a bucket, or in the stash.
enum EntryLocation {
    Bucket { bucket: usize, slot: usize },
    Stash(Stashed),
}

impl Index {
    /// Creates an empty index, which allocates no memory of `pool` until the first insert. `order` permutes the hashes.
    pub fn new(pool: Arc<Pool>, tenant: TenantName, order: IndexOrder) -> Index {
        Index { table: BucketTable::new(pool, tenant), stash: Stash::default(), order, len: 0 }
    }

    /// Makes the index count its memory with `meter` and respect the limit of `meter`. Must be called before the first
    /// insert, as memory allocated earlier would not be counted.
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

    /// Returns the bytes of the pool that the index has allocated.
    pub fn usage(&self) -> usize {
        self.table.bytes()
    }

    /// Returns the address of the first entry with this hash for which `is_it` returns true; `None` if there is none.
    /// `is_it` compares keys: it is called for each entry with the same hash until it returns true, and, because
    /// buckets store 15 bits of a hash, for about one in 32,768 of the other entries in the buckets read.
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

    /// Prefetches the home bucket of a key with this hash into the processor's cache.
    #[inline]
    pub fn prefetch(&self, hash: u64) {
        if self.table.len() > 0 {
            prefetch(&self.table.get(self.table.address(self.ordered(hash).home())).0[0]);
        }
    }

    /// Returns the address of the entry that most likely belongs to the key with this hash, without comparing keys; for
    /// prefetching. `None` if the key is absent for certain.
    #[inline]
    pub fn likely(&self, hash: u64) -> Option<EntryAddress> {
        self.find(hash, |_| true)
    }

    /// Adds the entry at `place` of a key that is not in the index yet. `hash_of` returns the hash of the key of an
    /// entry that is already in the index; it is called for a bounded number of entries, mostly for one or none.
    ///
    /// # Errors
    /// Errors of the pool when displacement finds no free slot and the table cannot grow. The new entry is not added
    /// then; the other entries stay in the index.
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
            // Tried twice, so that the stash shrinks even if the new entry goes into the stash.
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

    /// Replaces the address `old` of an entry by `new`, after the entry was moved. `hash` is the hash of its key.
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

    /// Removes the entry at `place`, whose key has this hash; returns whether the entry was in the index.
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

    /// Does at most `budget` units of background work, each of which moves an entry out of the stash, adds a bucket or
    /// removes one. A unit reads a dozen cache lines on average and 250 at most. Returns whether there is more to do.
    ///
    /// # Errors
    /// Errors of the pool when the table must grow. All entries stay in the index.
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

    /// Applies this index's bijection to the hash of a key.
    #[inline]
    fn ordered(&self, hash: u64) -> KeyHash {
        KeyHash(self.order.of(hash))
    }

    /// Returns where the index stores the entry at `place`, whose key has this hash; `None` if the entry is absent.
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

    /// Adds up to [`CATCH_UP_BUCKETS`] buckets until the entry fits; returns whether it was added. For a table that is
    /// too full because the pool had no memory when it should have grown.
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

    /// Puts an entry into a free slot of one of its key's two buckets, at home if possible; returns whether there was a
    /// free slot.
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

    /// Puts an entry into this free slot of `bucket`, one of the two buckets of its key.
    fn put(&mut self, bucket: usize, slot: usize, hash: KeyHash, place: EntryAddress) {
        let home = self.table.address(hash.home());
        let at_home = hash.slot(place);
        let content = if bucket == home { at_home } else { at_home.moved() };
        self.table.write_slot(bucket, slot, content);
        if bucket != home {
            self.remember(home, hash.route());
        }
    }

    /// Puts an entry, for which both buckets of its key are full, into the stash.
    ///
    /// # Errors
    /// Errors of the pool when a large stash needs more memory; nothing is changed then.
    fn put_in_stash(&mut self, hash: KeyHash, place: EntryAddress) -> Result<()> {
        self.table.stand_for(Stash::bytes_of(self.stash.len() + 1))?;
        self.stash.push(Stashed::new(hash, place));
        self.remember(self.table.address(hash.home()), hash.route());
        Ok(())
    }

    /// Removes an entry from the stash, and its route from the summary of its home bucket if no other entry uses it.
    fn take_from_stash(&mut self, entry: Stashed) {
        self.stash.remove(entry);
        self.table.stand_down(Stash::bytes_of(self.stash.len()));
        let home = self.table.address(entry.hash().home());
        let known = self.table.known(home);
        if self.stash.of_home(home, known).take(LOOKED_AT + 1).count() == LOOKED_AT {
            // Few enough stashed entries of this home bucket are left to examine all, so its summary is corrected as a
            // whole.
            self.table.get(home).summary().routes().for_each(|route| self.forget(home, route));
        } else {
            self.forget(home, entry.hash().route());
        }
    }

    /// Empties a slot of a bucket. If its entry was away from its home bucket, removes the entry's route from the summary
    /// of the home bucket, unless another entry uses the route there. The slot does not say which bucket is the home, so
    /// both buckets that it may be are examined.
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

    /// Removes `route` from the summaries of the buckets that this route connects to `bucket`, unless another entry
    /// still uses the route there.
    fn forget_facing(&mut self, bucket: usize, route: Route) {
        let (first, second) = self.table.candidate_buckets(bucket, route);
        self.forget(first, route);
        if let Some(second) = second {
            self.forget(second, route);
        }
    }

    /// Removes `route` from the summary of the bucket `home` unless an entry still uses it.
    fn forget(&mut self, home: usize, route: Route) {
        let summary = self.table.get(home).summary();
        if summary.has(route) && !self.is_used(home, route) {
            self.table.write_summary(home, summary.with(route, false));
        }
    }

    /// Returns whether an entry may use `route` from the bucket `home`: an entry with this route is away in a bucket
    /// that the route leads to, or the stash may have one.
    fn is_used(&self, home: usize, route: Route) -> bool {
        let leads_to = |bucket| self.table.read(bucket).has_away_by(route);
        let (first, second) = self.table.candidate_buckets(home, route);
        leads_to(first) || second.is_some_and(leads_to) || self.may_be_stashed(home, route)
    }

    /// Returns whether the stash has an entry with this home bucket and route, or too many entries of this home bucket
    /// to examine.
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
