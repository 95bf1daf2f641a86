//! A shard: part of the keys of all spaces of a tenant. Whoever has it changes it alone.

use crate::index::KeyHasher;
use crate::table::Table;
use farpool_memory::Pool;
use farpool_model::TenantName;
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// The number of a space.
pub type SpaceId = u32;

pub(crate) struct Shard {
    pool: Arc<Pool>,
    tenant: TenantName,
    hasher: KeyHasher,
    tables: BTreeMap<SpaceId, Table>,
    watched: HashMap<(SpaceId, Box<[u8]>), Vec<Watch>>,
}

/// What a client that watches keys is told: whether one of them has changed.
#[derive(Clone, Debug, Default)]
pub(crate) struct Watch(Arc<AtomicBool>);

impl Watch {
    pub fn is_touched(&self) -> bool {
        self.0.load(Ordering::Acquire)
    }
}

impl Shard {
    pub fn new(pool: Arc<Pool>, tenant: TenantName, hasher: KeyHasher) -> Self {
        Shard { pool, tenant, hasher, tables: BTreeMap::new(), watched: HashMap::new() }
    }

    /// The keys of a space, if it has had any.
    pub fn table(&self, space: SpaceId) -> Option<&Table> {
        self.tables.get(&space)
    }

    /// The keys of a space.
    pub fn table_mut(&mut self, space: SpaceId) -> &mut Table {
        let new = || Table::new(&self.pool, &self.tenant, self.hasher);
        self.tables.entry(space).or_insert_with(new)
    }

    /// All spaces that have keys, with them.
    pub fn tables(&self) -> impl Iterator<Item = (SpaceId, &Table)> {
        self.tables.iter().map(|(space, table)| (*space, table)).filter(|(_, table)| table.len() > 0)
    }

    /// Removes all keys of a space.
    pub fn flush(&mut self, space: SpaceId) {
        let Some(table) = self.tables.remove(&space) else { return };
        for ((of, key), watches) in &self.watched {
            if *of == space && table.get(self.hasher.hash(key), key, 0).is_some() {
                watches.iter().for_each(|watch| watch.0.store(true, Ordering::Release));
            }
        }
    }

    /// Removes all keys of all spaces.
    pub fn flush_all(&mut self) {
        let spaces: Vec<SpaceId> = self.tables.keys().copied().collect();
        spaces.into_iter().for_each(|space| self.flush(space));
    }

    /// Has `watch` told when the key changes.
    pub fn watch(&mut self, space: SpaceId, key: &[u8], watch: &Watch) {
        self.watched.entry((space, key.into())).or_default().push(watch.clone());
    }

    /// Ends what [`Shard::watch`] began.
    pub fn unwatch(&mut self, space: SpaceId, key: &[u8], watch: &Watch) {
        let key = (space, Box::from(key));
        let Some(watches) = self.watched.get_mut(&key) else { return };
        watches.retain(|other| !Arc::ptr_eq(&other.0, &watch.0));
        if watches.is_empty() {
            self.watched.remove(&key);
        }
    }

    /// Tells those who watch the key that it has changed.
    pub fn touch(&self, space: SpaceId, key: &[u8]) {
        if self.watched.is_empty() {
            return;
        }
        if let Some(watches) = self.watched.get(&(space, Box::from(key))) {
            watches.iter().for_each(|watch| watch.0.store(true, Ordering::Release));
        }
    }

    /// Removes some of the keys that have expired, of all spaces, and moves some entries, in their indexes and so that memory
    /// can be given back. Returns whether there is likely to be more to do.
    pub fn tidy(&mut self, now: u64) -> bool {
        let mut more = false;
        let mut expired = Vec::new();
        for (space, table) in &mut self.tables {
            let (looked_at, removed) =
                table.expire(now, |key| expired.push((*space, Box::<[u8]>::from(key))));
            more |= removed * 4 > looked_at;
            // Where the pool has no room, the index stays as it is.
            more |= table.tidy().unwrap_or(false);
            more |= table.compact() | table.tables.tidy_one();
        }
        for (space, key) in expired {
            self.touch(space, &key);
        }
        self.tables.retain(|_, table| table.len() > 0);
        more
    }
}
