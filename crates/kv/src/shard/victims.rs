//! Eviction of keys within one shard (a part of a tenant's keys under one lock): samples entries, chooses the keys to
//! evict (victims) by the eviction policy, and removes them.

use super::{Shard, SpaceId};
use crate::evict::{EvictionFacts, Evictor, Policy, SAMPLES, Stamp};
use crate::slab::SlabCursor;
use std::collections::{BTreeMap, HashSet};

/// Maximum number of entries sampled for one victim. Reason for more than [`SAMPLES`]: with a volatile policy, entries
/// without an expiry do not count.
const TRIES: usize = 8 * SAMPLES;

/// Maximum number of entries visited for one victim to find some with an expiry, if these are rare.
const LOOKED_AT: usize = 4096;

/// Maximum number of candidates skipped for one victim because they are protected.
const ROUNDS: usize = 8;

/// Maximum number of entries that one step of a sweep visits.
const SWEEP_STEP: usize = 256;

/// Maximum number of steps of compaction after evictions, for all spaces together.
const COMPACTION_STEPS: usize = 16;

/// Maximum number of keys evicted in one step that lowers usage to the memory limit.
const LOWER_STEP: usize = 64;

/// The eviction state of a shard: the evictor, the position of its sweep over stamps, and counters.
pub(super) struct Victims {
    evictor: Evictor<(SpaceId, u64)>,
    /// Position of the current sweep over all stamps; `swept` is the number of entries that it has visited.
    sweep_at: (SpaceId, SlabCursor),
    swept: usize,
    fresh: Stamp,
    /// Number of entries of the shard at the last maintenance.
    entries: usize,
    /// Keys that were evicted during replay, by space and hash. Later effects on a part of such a key must not be
    /// applied: `APPEND a x` on an evicted `a` would create a value that the key never had.
    lost: HashSet<(SpaceId, u64)>,
    pub evicted: u64,
}

impl Default for Victims {
    fn default() -> Self {
        Victims {
            evictor: Evictor::new(Policy::NoEviction, 0),
            sweep_at: Default::default(),
            swept: 0,
            fresh: Stamp::default(),
            entries: 0,
            lost: HashSet::new(),
            evicted: 0,
        }
    }
}

impl Victims {
    /// Returns this state with the counter of evicted keys set to `evicted`.
    pub fn with_evicted(self, evicted: u64) -> Self {
        Victims { evicted, ..self }
    }

    /// Returns the stamp for new keys.
    pub fn fresh(&self) -> Stamp {
        self.fresh
    }
}

impl Shard {
    /// Sets the eviction policy.
    pub fn set_policy(&mut self, policy: Policy, now: u64) {
        self.victims.evictor = Evictor::new(policy, now);
        self.victims.sweep_at = Default::default();
        self.victims.swept = 0;
        self.refresh(now);
    }

    /// Returns the evictor, which chooses the victims of this shard.
    pub fn evictor(&self) -> &Evictor<(SpaceId, u64)> {
        &self.victims.evictor
    }

    fn refresh(&mut self, now: u64) {
        self.victims.entries = self.tables.values().map(|table| table.len()).sum();
        let fresh = self.victims.evictor.written(self.victims.entries, now);
        self.victims.fresh = fresh;
        self.tables.values_mut().for_each(|table| table.set_fresh(fresh));
    }

    /// Notes a use of a key for eviction, in the stamp of its entry.
    pub fn note_use(&mut self, space: SpaceId, hash: u64, key: &[u8], random: u64, now: u64) {
        let table = self.table_mut(space);
        let entries = table.len();
        let Victims { evictor, entries: all, .. } = &mut self.victims;
        let entries = entries.max(*all);
        let Some(table) = self.tables.get_mut(&space) else { return };
        table.note_use(hash, key, now, |stamp| match stamp {
            Some(stamp) => evictor.read(stamp, entries, ((random ^ hash) >> 32) as u32, now),
            None => evictor.written(entries, now),
        });
    }

    /// Advances the clock of stamps and does a step of the sweep over all stamps; returns whether the sweep is late.
    pub(super) fn pass(&mut self, now: u64) -> bool {
        if !self.victims.evictor.policy().needs_stamps() {
            return false;
        }
        self.victims.evictor.pass(now);
        self.refresh(now);
        let Victims { evictor, sweep_at, swept, entries, .. } = &mut self.victims;
        let due = evictor.sweep_due(*entries);
        let end = due.min(*swept + SWEEP_STEP);
        while *swept < end {
            let Some((space, table)) = self.tables.range_mut(sweep_at.0..).next() else {
                (*sweep_at, *swept) = Default::default();
                evictor.sweep_done();
                return false;
            };
            if *space != sweep_at.0 {
                *sweep_at = (*space, SlabCursor::default());
            }
            let (visited, next) = table.restamp(sweep_at.1, end - *swept, |stamp| evictor.swept(stamp));
            *swept += visited.max(1);
            *sweep_at = match next {
                Some(next) => (*space, next),
                None => (space.saturating_add(1), SlabCursor::default()),
            };
        }
        *swept < due
    }

    /// Evicts one key chosen by the policy and returns its space and the key; `None` if there is none to evict. Keys
    /// whose hash is in `kept`, which is sorted, are not evicted; these are the keys that the current command or
    /// transaction names.
    ///
    /// Example: `MULTI`, `SET a …`, `SET b …`, `EXEC`, where `b` finds no memory. Evicting `a` would make room, and
    /// `EXEC` would report success for a key that is gone.
    pub fn evict(&mut self, kept: &[u64], mut random: u64) -> Option<(SpaceId, Box<[u8]>)> {
        if self.victims.evictor.policy() == Policy::NoEviction {
            return None;
        }
        for _ in 0..ROUNDS {
            let offered = self.offer_some(kept, &mut random);
            let tables = &self.tables;
            let victim = self.victims.evictor.take(|(space, hash)| -> Option<EvictionFacts> {
                let is_kept = kept.binary_search(&hash).is_ok();
                tables.get(&space).filter(|_| !is_kept)?.facts_of(hash)
            });
            if let Some((space, hash)) = victim {
                let key = self.tables.get_mut(&space)?.evict(hash)?;
                self.victims.evicted += 1;
                return Some((space, key));
            }
            if offered == 0 {
                return None;
            }
        }
        None
    }

    /// Offers random entries to the evictor as candidates; returns how many of them may be evicted.
    fn offer_some(&mut self, kept: &[u64], random: &mut u64) -> usize {
        let evictor = &mut self.victims.evictor;
        let total: usize = self.tables.values().map(|table| table.len()).sum();
        let mut offered = 0;
        let mut offer = |space: SpaceId, hash: u64, facts: EvictionFacts| {
            let may_go = kept.binary_search(&hash).is_err() && evictor.offer((space, hash), facts);
            offered += usize::from(may_go);
            offered < SAMPLES
        };
        for _ in 0..TRIES {
            *random = mixed(*random);
            let Some(at) = random.checked_rem(total as u64) else { return 0 };
            let Some((space, sample)) = sample(&self.tables, at as usize, mixed(!*random)) else { continue };
            if !offer(space, sample.hash, sample.facts) {
                return SAMPLES;
            }
        }
        let is_volatile = self.victims.evictor.policy().is_volatile();
        if offered > 0 || !is_volatile {
            return offered;
        }
        let evictor = &mut self.victims.evictor;
        for (space, table) in self.tables.iter_mut().filter(|(_, table)| table.expiring() > 0) {
            table.sample_expiring(LOOKED_AT, |sample| {
                let is_kept = kept.binary_search(&sample.hash).is_ok();
                offered += usize::from(!is_kept && evictor.offer((*space, sample.hash), sample.facts));
                offered < SAMPLES
            });
        }
        offered
    }

    /// Returns whether a value of `bytes` bytes would fit into memory if all other keys were evicted.
    pub fn could_have(&self, bytes: usize) -> bool {
        if self.meter.most().is_some_and(|most| bytes >= most) {
            return false;
        }
        // A small value fits into any pool, because a pool has at least one page.
        if bytes < farpool_model::limits::PAGE_BYTES / 2 {
            return true;
        }
        let usize_of = farpool_model::cast::usize_saturating;
        let limits = [
            self.pool.quota(&self.tenant).map_or(usize::MAX, usize_of),
            usize_of(self.pool.usage().bytes_limit),
        ];
        limits.iter().all(|limit| bytes < *limit)
    }

    /// Frees memory that cuts (point-in-time views) keep, in one space; returns whether there was a cut. See
    /// [`Slabs::give_up_cut`](crate::slab::Slabs::give_up_cut).
    pub fn give_up_cut(&mut self) -> bool {
        let gave_up = self.tables.values_mut().any(|table| table.give_up_cut());
        gave_up || self.flushed.pop().is_some()
    }

    /// Returns memory of evicted keys to the pool, so that values of other size classes can use it.
    pub fn give_back(&mut self) {
        let mut steps = COMPACTION_STEPS;
        for table in self.tables.values_mut() {
            while steps > 0 && table.compact() {
                steps -= 1;
            }
            table.trim();
        }
    }

    /// Evicts up to [`LOWER_STEP`] keys, because usage exceeds the memory limit; returns them.
    pub fn lower(&mut self, random: u64) -> Vec<(SpaceId, Box<[u8]>)> {
        let mut victims = Vec::new();
        for number in 0..LOWER_STEP as u64 {
            match self.evict(&[], random.wrapping_add(number)) {
                Some(victim) => victims.push(victim),
                None => break,
            }
        }
        while self.give_up_cut() {}
        self.give_back();
        victims
    }

    /// Evicts a key during replay of the log, to make room for a change of the key with this hash; returns false if
    /// there is no key to evict.
    pub fn lose_some(&mut self, hash: u64) -> bool {
        let random = mixed(self.victims.evicted ^ hash);
        let victim = self.evict(&[hash], random);
        if self.victims.evicted.is_multiple_of(64) {
            self.give_back();
        }
        let Some((space, key)) = victim else { return false };
        self.victims.lost.insert((space, self.hasher.hash(&key)));
        true
    }

    /// Returns whether an effect on a part of a key must be skipped because the key was evicted during replay.
    pub fn is_lost(&self, space: SpaceId, hash: u64) -> bool {
        !self.victims.lost.is_empty() && self.victims.lost.contains(&(space, hash))
    }

    /// Notes that replay of the log has set a key as a whole, so that later effects on a part of the key are applied
    /// again.
    pub fn found(&mut self, space: SpaceId, hash: u64) {
        if !self.victims.lost.is_empty() {
            self.victims.lost.remove(&(space, hash));
        }
    }

    /// Notes that replay of the log is complete, so that no effects need to be skipped any more.
    pub fn all_found(&mut self) {
        self.victims.lost = HashSet::new();
    }
}

/// Returns a random entry. `at`, an index counted over the entries of all tables, selects the table; `random` selects
/// the entry in this table.
fn sample(
    tables: &BTreeMap<SpaceId, crate::table::Table>,
    mut at: usize,
    random: u64,
) -> Option<(SpaceId, crate::table::Sample)> {
    for (space, table) in tables {
        if at < table.len() {
            return table.sample(random).map(|sample| (*space, sample));
        }
        at -= table.len();
    }
    None
}

/// Returns the next number of a pseudo-random sequence (splitmix64; Steele, Lea and Flood 2014).
fn mixed(state: u64) -> u64 {
    let mut mixed = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    mixed = (mixed ^ mixed >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ mixed >> 31
}
