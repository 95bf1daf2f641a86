//! A shard: a part of a tenant's keys, selected by hash and protected by one lock. It has one table of keys for each
//! space (namespace of keys), and the watches (`WATCH`) of its keys.

mod victims;

use crate::index::{IndexOrders, KeyHasher};
use crate::meter::Meter;
use crate::slab::Cut;
use crate::spaces::{Space, Spaces};
use crate::table::Table;
use farpool_memory::Pool;
use farpool_model::TenantName;
use std::cell::Cell;
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use victims::Victims;

/// The id of a space (a namespace of keys): below 16 for the spaces that clients select with `SELECT`, from 16 on for
/// named spaces.
pub type SpaceId = u32;

pub(crate) struct Shard {
    pool: Arc<Pool>,
    tenant: TenantName,
    meter: Arc<Meter>,
    hasher: KeyHasher,
    orders: Arc<IndexOrders>,
    tables: BTreeMap<SpaceId, Table>,
    /// Tables that were flushed (emptied) while a cut (point-in-time view) still keeps their entries.
    flushed: Vec<Table>,
    /// Definitions of the named spaces, which are equal in all shards.
    spaces: Arc<Spaces>,
    watched: HashMap<(SpaceId, Box<[u8]>), Vec<Watch>>,
    victims: Victims,
    /// Number of expired keys that were removed.
    expired: u64,
    /// Number of reads that found a value, and number of reads that found none.
    reads: Cell<(u64, u64)>,
    /// Sequence number of the last log record of a change to this shard, plus one; 0 if there is none.
    recorded: u64,
}

/// The flag of a client that watches keys (`WATCH`), shared with the shards: set ("touched") when one of the keys
/// changes.
#[derive(Clone, Debug, Default)]
pub(crate) struct Watch(Arc<AtomicBool>);

impl Watch {
    pub fn touch(&self) {
        self.0.store(true, Ordering::Release);
    }

    pub fn is_touched(&self) -> bool {
        self.0.load(Ordering::Acquire)
    }
}

impl Shard {
    pub fn new(pool: Arc<Pool>, tenant: TenantName, meter: Arc<Meter>, orders: Arc<IndexOrders>) -> Self {
        Shard {
            pool,
            tenant,
            meter,
            hasher: orders.hasher(),
            orders,
            tables: BTreeMap::new(),
            flushed: Vec::new(),
            spaces: Arc::default(),
            watched: HashMap::new(),
            victims: Victims::default(),
            expired: 0,
            reads: Cell::default(),
            recorded: 0,
        }
    }

    /// Returns the table with the keys of a space; `None` if the space has none in this shard.
    pub fn table(&self, space: SpaceId) -> Option<&Table> {
        self.tables.get(&space)
    }

    /// Returns the table for the keys of a space, creating it if needed.
    pub fn table_mut(&mut self, space: SpaceId) -> &mut Table {
        let victims = &mut self.victims;
        self.tables.entry(space).or_insert_with(|| {
            let mut table = Table::new(&self.pool, &self.tenant, &self.meter, &self.orders);
            table.set_fresh(victims.fresh());
            table.set_packer(self.spaces.packer(space));
            table
        })
    }

    /// Notes `appended`, the outcome of appending the log record of a change to this shard. Must be called before the
    /// shard is released, because later readers of the shard learn from [`Shard::recorded`] which record their reply
    /// depends on. If appending failed, replies depend on a record that never becomes durable (the maximum number).
    pub fn note_record(&mut self, appended: &farpool_model::Result<Option<u64>>) {
        match appended {
            Ok(Some(number)) => {
                // The record was appended while this shard was held, as all records of its changes are.
                assert!(
                    *number >= self.recorded || self.recorded == u64::MAX,
                    "records of a shard are appended in order: {number} after {}",
                    self.recorded
                );
                self.recorded = self.recorded.max(number + 1);
            }
            Ok(None) => {}
            Err(_) => self.recorded = u64::MAX,
        }
    }

    /// Returns the sequence number of the last log record of a change to this shard, plus one; 0 if there is none.
    pub fn recorded(&self) -> u64 {
        self.recorded
    }

    /// Counts a read and whether it found a value.
    #[inline]
    pub fn count_read(&self, is_there: bool) {
        let (hits, misses) = self.reads.get();
        self.reads.set((hits + u64::from(is_there), misses + u64::from(!is_there)));
    }

    /// Returns the numbers of evicted keys, expired keys, reads that found a value, and reads that did not.
    pub fn counted(&self) -> (u64, u64, u64, u64) {
        let (hits, misses) = self.reads.get();
        (self.victims.evicted, self.expired, hits, misses)
    }

    /// Iterates over the ids of the spaces that have keys in this shard, and their tables.
    pub fn tables(&self) -> impl Iterator<Item = (SpaceId, &Table)> {
        self.tables.iter().map(|(space, table)| (*space, table)).filter(|(_, table)| table.len() > 0)
    }

    /// Returns the definitions of named spaces.
    pub fn spaces(&self) -> &Arc<Spaces> {
        &self.spaces
    }

    /// Sets the definitions of named spaces. The caller must hold the locks of all shards until each has the new
    /// definitions, because a command could otherwise read a key in one space and write it to another.
    pub fn set_spaces(&mut self, spaces: &Arc<Spaces>) {
        self.spaces = Arc::clone(spaces);
        self.tables.iter_mut().for_each(|(space, table)| table.set_packer(spaces.packer(*space)));
    }

    /// Returns the id of the space that a key belongs to, for a client that has selected the space `selected`, and the
    /// definition of this space if it is a named one.
    #[inline]
    pub fn owner(&self, selected: SpaceId, key: &[u8]) -> (SpaceId, Option<&Arc<Space>>) {
        if selected != 0 || self.spaces.is_empty() {
            return (selected, None);
        }
        let owner = self.spaces.owner(key);
        (owner.map_or(selected, |space| space.id), owner)
    }

    /// Returns the ids of the space `selected` and of the named spaces that are part of it (all of them for space 0).
    pub fn parts(&self, selected: SpaceId) -> impl Iterator<Item = SpaceId> {
        let named = self.spaces.iter().filter(move |_| selected == 0).map(|space| space.id);
        std::iter::once(selected).chain(named)
    }

    /// Removes all keys of the space `selected` and of the named spaces that are part of it. Touches only the watches
    /// of keys that existed at `now`, because an expired key is absent before and after: an `EXEC` that watched it as
    /// absent must succeed.
    pub fn flush(&mut self, selected: SpaceId, now: u64) {
        for space in self.parts(selected).collect::<Vec<_>>() {
            let Some(table) = self.tables.remove(&space) else { continue };
            for ((of, key), watches) in &self.watched {
                let is_of = *of == selected && self.owner(selected, key).0 == space;
                if is_of && table.get(self.hasher.hash(key), key, now).is_some() {
                    watches.iter().for_each(Watch::touch);
                }
            }
            if table.has_kept_cuts() {
                self.flushed.push(table);
            }
        }
    }

    /// Returns the table that a cut belongs to; `None` if the cut has ended.
    pub fn table_of_cut(&self, space: SpaceId, cut: &Arc<Cut>) -> Option<&Table> {
        self.tables.get(&space).into_iter().chain(&self.flushed).find(|table| table.keeps(cut))
    }

    /// Ends a cut of this space, if it has not ended.
    pub fn end_cut(&mut self, space: SpaceId, cut: &Arc<Cut>) {
        let mut tables = self.tables.get_mut(&space).into_iter().chain(&mut self.flushed);
        if let Some(table) = tables.find(|table| table.keeps(cut)) {
            table.end_cut(cut);
        }
        // A flushed table is dropped when its last cut ends.
        self.flushed.retain(|table| table.has_kept_cuts());
    }

    /// Removes all keys of all spaces; see [`Shard::flush`].
    pub fn flush_all(&mut self, now: u64) {
        (0..crate::session::SPACES).for_each(|space| self.flush(space, now));
    }

    /// Removes the keys of all spaces, including entries that cuts keep, and the definitions of named spaces. Touches
    /// all watches.
    pub fn clear(&mut self) {
        self.watched.values().flatten().for_each(Watch::touch);
        self.tables.clear();
        self.flushed.clear();
        self.spaces = Arc::default();
    }

    /// Moves the keys, the definitions of spaces and the eviction state out of `other` into this shard. `other` is the
    /// shard with the same number of a keyspace created by
    /// [`Keyspace::empty_twin`](crate::keyspace::Keyspace::empty_twin). Watches and counters of this shard stay.
    pub fn take_over(&mut self, other: &mut Shard) {
        self.tables = std::mem::take(&mut other.tables);
        self.spaces = std::mem::take(&mut other.spaces);
        self.victims = std::mem::take(&mut other.victims).with_evicted(self.victims.evicted);
        self.recorded = 0;
    }

    /// Registers `watch` for a key: each later change of the key sets its flag (touches it).
    pub fn watch(&mut self, space: SpaceId, key: &[u8], watch: &Watch) {
        self.watched.entry((space, key.into())).or_default().push(watch.clone());
    }

    /// Removes the registration that [`Shard::watch`] made with the same arguments.
    pub fn unwatch(&mut self, space: SpaceId, key: &[u8], watch: &Watch) {
        let key = (space, Box::from(key));
        let Some(watches) = self.watched.get_mut(&key) else { return };
        watches.retain(|other| !Arc::ptr_eq(&other.0, &watch.0));
        if watches.is_empty() {
            self.watched.remove(&key);
        }
    }

    /// Touches all watches of the key. Every change of a key must call this before the shard is released, because
    /// `EXEC` checks watches when it has locked the shard.
    pub fn touch(&self, space: SpaceId, key: &[u8]) {
        if self.watched.is_empty() {
            return;
        }
        if let Some(watches) = self.watched.get(&(space, Box::from(key))) {
            watches.iter().for_each(Watch::touch);
        }
    }

    /// Does a step of background maintenance in all spaces: removes expired keys, moves entries in the indexes,
    /// compacts slab pages, recompresses values. Returns whether more is likely to be left to do.
    pub fn tidy(&mut self, now: u64) -> bool {
        let mut more = self.pass(now);
        let mut expired = Vec::new();
        for (space, table) in &mut self.tables {
            let (looked_at, removed) =
                table.expire(now, |key| expired.push((*space, Box::<[u8]>::from(key))));
            more |= removed * 4 > looked_at;
            // An error means that there is no memory to grow an index; the index then keeps its size.
            more |= table.tidy().unwrap_or(false);
            more |= table.reclaim_some() | table.compact() | table.tables.tidy_one() | table.repack_some();
        }
        self.expired += expired.len() as u64;
        for (space, key) in expired {
            self.touch(crate::session::selected(space), &key);
        }
        self.tables.retain(|_, table| table.len() > 0 || table.has_cuts());
        more
    }
}
