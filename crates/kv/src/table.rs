//! The keys of one space in one shard.
//!
//! Invariant: each key is in the index once, at the place of its entry; each place that is written is in the index.

mod packed;
mod uses;

pub(crate) use packed::Edited;
pub(crate) use uses::Sample;

use crate::entry::{self, Entry, Kind, entry_bytes};
use crate::evict::Stamp;
use crate::fields::Tables;
use crate::index::{Index, IndexOrders, KeyHasher};
use crate::judge::Slots;
use crate::meter::Meter;
use crate::packing::{Packers, room_of_entry};
use crate::slab::{Cut, CutCursor, CutPart, Place, SlabCursor, Slabs};
use farpool_memory::{Pool, prefetch};
use farpool_model::limits::KV_VALUE_BYTES_MAX as VALUE_BYTES_MAX;
use farpool_model::{Result, TenantName};
use std::sync::Arc;

/// Entries that move at most after a command, to make room in the index.
const MOVES: usize = 4;

/// Bytes that are copied at a time.
const COPY_BYTES: usize = 16 << 10;

/// Most room that a value which grows gets for growing again.
const GROWTH_BYTES: usize = 1 << 20;

/// Bytes of a cache line, and how many of an entry are brought to the cache ahead of use: the processor notices by itself
/// that it reads on.
const LINE_BYTES: usize = 64;
const PREFETCHED_LINES: usize = 2;

/// Entries that are looked at in one step of removing what has expired.
const EXPIRY_STEP: usize = 64;

/// Entries that are moved in one step of compaction.
const COMPACTION_STEP: usize = 64;

pub(crate) struct Table {
    pool: Arc<Pool>,
    tenant: TenantName,
    meter: Arc<Meter>,
    hasher: KeyHasher,
    orders: Arc<IndexOrders>,
    index: Index,
    slabs: Slabs,
    /// Fields of those hashes that are large.
    pub(crate) tables: Tables,
    packers: Packers,
    /// Where the next step of packing what is there goes on, if it is to be.
    repack_cursor: Option<u64>,
    /// Entries that have an expiry.
    expiring: usize,
    /// Where the next step of removing what has expired goes on.
    expiry_cursor: SlabCursor,
    /// Places of such a step; empty between steps.
    seen: Vec<Place>,
    /// The stamp of keys that come to be.
    fresh: Stamp,
}

/// A new value for a key.
pub(crate) struct Value {
    pub kind: Kind,
    /// Whether its bytes are compressed.
    pub is_packed: bool,
    pub bytes: usize,
    /// Room for so many bytes is taken.
    pub room: usize,
    /// In milliseconds since the epoch.
    pub expiry: Option<u64>,
}

impl Value {
    /// A value of some kind that is as it is told.
    pub fn plain(kind: Kind, bytes: usize, expiry: Option<u64>) -> Self {
        Value { kind, is_packed: false, bytes, room: bytes, expiry }
    }

    /// A string.
    pub fn new(bytes: usize, expiry: Option<u64>) -> Self {
        Value::plain(Kind::String, bytes, expiry)
    }
}

impl Table {
    pub fn new(pool: &Arc<Pool>, tenant: &TenantName, meter: &Arc<Meter>, orders: &Arc<IndexOrders>) -> Self {
        let index = Index::new(Arc::clone(pool), tenant.clone(), orders.next());
        Table {
            pool: Arc::clone(pool),
            tenant: tenant.clone(),
            meter: Arc::clone(meter),
            hasher: orders.hasher(),
            orders: Arc::clone(orders),
            index: index.metered(Arc::clone(meter)),
            slabs: Slabs::new(Arc::clone(pool), tenant.clone()).metered(Arc::clone(meter)),
            tables: Tables::default(),
            packers: Packers::default(),
            repack_cursor: None,
            expiring: 0,
            expiry_cursor: SlabCursor::default(),
            seen: Vec::new(),
            fresh: Stamp::default(),
        }
    }

    /// Makes a table without keys for the same tenant, with an order of its own.
    pub fn of_same_kind(&self) -> Self {
        Table::new(&self.pool, &self.tenant, &self.meter, &self.orders)
    }

    pub fn hash(&self, key: &[u8]) -> u64 {
        self.hasher.hash(key)
    }

    /// Number of keys, those that have expired and were not removed yet among them.
    pub fn len(&self) -> usize {
        self.index.len()
    }

    /// Number of keys with an expiry.
    pub fn expiring(&self) -> usize {
        self.expiring
    }

    fn find(&self, hash: u64, key: &[u8]) -> Option<Place> {
        self.index.find(hash, |place| Entry::of(self.slabs.bytes(place)).key() == key)
    }

    /// Has what the index knows of a key come to the cache.
    pub fn prefetch_index(&self, hash: u64) {
        self.index.prefetch(hash);
    }

    /// Has the beginning of a key's entry come to the cache; what the index knows of it should be there.
    pub fn prefetch_entry(&self, hash: u64) {
        let Some(place) = self.index.likely(hash) else { return };
        self.slabs.bytes(place).chunks(LINE_BYTES).take(PREFETCHED_LINES).for_each(|line| prefetch(&line[0]));
    }

    /// Returns the entry of `key` that is valid at `now`.
    pub fn get(&self, hash: u64, key: &[u8], now: u64) -> Option<Entry<'_>> {
        let place = self.find(hash, key)?;
        Some(Entry::of(self.slabs.bytes(place))).filter(|entry| is_valid(*entry, now))
    }

    /// Gives `key` a value of so many bytes, which are unspecified where the value was shorter before, and returns them.
    ///
    /// # Errors
    /// `OverLimit` when the pool has no room; the key then has what it had.
    pub fn put(&mut self, hash: u64, key: &[u8], value: &Value) -> Result<&mut [u8]> {
        let needed = entry_bytes(key.len(), value.room, value.expiry.is_some());
        let old = self.find(hash, key);
        let stamp = old.map_or(self.fresh, |place| Entry::of(self.slabs.bytes(place)).stamp());
        let place = match old {
            Some(place) if self.may_stay(place, needed) => {
                self.forget(place);
                place
            }
            Some(place) => match self.slabs.allocate(needed) {
                Ok(new) => {
                    self.forget(place);
                    self.index.replace(hash, place, new);
                    self.slabs.free(place);
                    new
                }
                // A slot that is too large is better than none.
                Err(_) if self.is_large_enough(place, needed) => {
                    self.forget(place);
                    place
                }
                Err(error) => return Err(error),
            },
            None => self.add(hash, needed)?,
        };
        self.expiring += usize::from(value.expiry.is_some());
        let kind = (value.kind, value.is_packed);
        Ok(entry::write(self.slabs.bytes_mut(place), kind, key, value.bytes, value.expiry, stamp))
    }

    /// Whether an entry that needs so many bytes may be written over the one at `place`.
    fn may_stay(&self, place: Place, needed: usize) -> bool {
        fits(needed, self.slabs.bytes(place).len()) && !self.slabs.is_kept(place)
    }

    fn is_large_enough(&self, place: Place, needed: usize) -> bool {
        needed <= self.slabs.bytes(place).len() && !self.slabs.is_kept(place)
    }

    /// Sees to it that [`Table::put`] of this value will not fail: it is put if the key is not there, and its slot is made large
    /// enough if it is, which changes nothing else. Returns whether it was put.
    ///
    /// # Errors
    /// As [`Table::put`].
    pub fn prepare(&mut self, hash: u64, key: &[u8], value: &Value, bytes: &[u8]) -> Result<bool> {
        let Some(old) = self.find(hash, key) else {
            self.put(hash, key, value)?.copy_from_slice(bytes);
            return Ok(true);
        };
        let needed = entry_bytes(key.len(), value.room, value.expiry.is_some());
        if self.is_large_enough(old, needed) {
            return Ok(false);
        }
        let old_bytes = self.slabs.bytes(old).len();
        let new = self.slabs.allocate(needed.max(old_bytes))?;
        // Copied a few bytes at a time: the largest ones would not fit beside those that are there.
        let mut buffer = [0; COPY_BYTES];
        for start in (0..old_bytes).step_by(COPY_BYTES) {
            let range = start..old_bytes.min(start + COPY_BYTES);
            let copied = &mut buffer[..range.len()];
            copied.copy_from_slice(&self.slabs.bytes(old)[range.clone()]);
            self.slabs.bytes_mut(new)[range].copy_from_slice(copied);
        }
        self.index.replace(hash, old, new);
        self.slabs.free(old);
        Ok(false)
    }

    /// Takes a slot for a key that is not there.
    fn add(&mut self, hash: u64, needed: usize) -> Result<Place> {
        let place = self.slabs.allocate(needed)?;
        let (slabs, hasher) = (&self.slabs, &self.hasher);
        let hash_of = |place: Place| hasher.hash(Entry::of(slabs.bytes(place)).key());
        if let Err(error) = self.index.insert(hash, place, hash_of) {
            self.slabs.free(place);
            return Err(error);
        }
        Ok(place)
    }

    /// Gives up what an entry has beside its slot.
    fn forget(&mut self, place: Place) {
        let entry = Entry::of(self.slabs.bytes(place));
        self.expiring -= usize::from(entry.expiry().is_some());
        if entry.kind() == Kind::Table {
            self.tables.remove(entry.stored());
        }
        if entry.is_packed() {
            self.packers.forget(entry);
        }
    }

    /// Makes the value of `key` so many bytes long, and returns it: zeros follow what is there; it keeps its expiry.
    ///
    /// # Errors
    /// As [`Table::put`].
    pub fn resize(&mut self, hash: u64, key: &[u8], bytes: usize, now: u64) -> Result<&mut [u8]> {
        let Some(entry) = self.get(hash, key, now) else {
            let value = self.put(hash, key, &Value::new(bytes, None))?;
            value.fill(0);
            return Ok(value);
        };
        if entry.is_packed() {
            // A value that grows beyond what is compressed.
            let (kind, expiry, plain) = (entry.kind(), entry.expiry(), self.plain(entry)?.into_owned());
            self.put(hash, key, &Value::plain(kind, plain.len(), expiry))?.copy_from_slice(&plain);
            return self.resize(hash, key, bytes, now);
        }
        let (kind, expiry, before) = (entry.kind(), entry.expiry(), entry.stored().len());
        // A value that grows is likely to grow again.
        let room = if bytes > before { bytes + (bytes / 2).min(GROWTH_BYTES) } else { bytes };
        let value = Value { room: room.min(VALUE_BYTES_MAX), ..Value::plain(kind, bytes, expiry) };
        let kept = before.min(bytes);
        let rewritten = self.rewrite(hash, key, &value, kept)?;
        rewritten[kept..].fill(0);
        Ok(rewritten)
    }

    /// Gives the key, which is there, a value that begins with `kept` bytes of the one that it has.
    ///
    /// # Errors
    /// As [`Table::put`].
    fn rewrite(&mut self, hash: u64, key: &[u8], value: &Value, kept: usize) -> Result<&mut [u8]> {
        let Some(old) = self.find(hash, key) else { return self.put(hash, key, value) };
        let is_expiring = value.expiry.is_some();
        let old_entry = Entry::of(self.slabs.bytes(old));
        let (was_expiring, stamp) = (old_entry.expiry().is_some(), old_entry.stamp());
        let least = if value.is_packed { value.room } else { value.bytes };
        let needed = entry_bytes(key.len(), least, is_expiring);
        // Where the expiry comes or goes, the value lies elsewhere in the slot.
        let stays = was_expiring == is_expiring && self.may_stay(old, needed);
        let place =
            if stays { old } else { self.slabs.allocate(entry_bytes(key.len(), value.room, is_expiring))? };
        self.expiring = self.expiring + usize::from(is_expiring) - usize::from(was_expiring);
        let kind = (value.kind, value.is_packed);
        entry::write(self.slabs.bytes_mut(place), kind, key, value.bytes, value.expiry, stamp);
        if !stays {
            self.copy_value(old, place, kept);
            self.index.replace(hash, old, place);
            self.slabs.free(old);
        }
        Ok(entry::value_mut(self.slabs.bytes_mut(place)))
    }

    /// Copies the first bytes of a value, a few at a time: the largest ones would not fit beside those that are there.
    fn copy_value(&mut self, from: Place, to: Place, bytes: usize) {
        let mut buffer = [0; COPY_BYTES];
        for start in (0..bytes).step_by(COPY_BYTES) {
            let range = start..bytes.min(start + COPY_BYTES);
            let copied = &mut buffer[..range.len()];
            copied.copy_from_slice(&Entry::of(self.slabs.bytes(from)).stored()[range.clone()]);
            entry::value_mut(self.slabs.bytes_mut(to))[range].copy_from_slice(copied);
        }
    }

    /// Sets when the key expires, or that it does not; it must be there.
    ///
    /// # Errors
    /// As [`Table::put`].
    pub fn set_expiry(&mut self, hash: u64, key: &[u8], expiry: Option<u64>) -> Result<()> {
        let Some(place) = self.find(hash, key) else { return Ok(()) };
        let entry = Entry::of(self.slabs.bytes(place));
        let (kind, is_packed, bytes) = (entry.kind(), entry.is_packed(), entry.stored().len());
        let value = Value { kind, is_packed, bytes, room: room_of_entry(entry), expiry };
        self.rewrite(hash, key, &value, bytes).map(drop)
    }

    /// Removes the key; returns whether it was there.
    pub fn remove(&mut self, hash: u64, key: &[u8]) -> bool {
        let Some(place) = self.find(hash, key) else { return false };
        self.remove_at(hash, place);
        true
    }

    fn remove_at(&mut self, hash: u64, place: Place) {
        self.forget(place);
        self.index.remove(hash, place);
        self.slabs.free(place);
    }

    /// Makes the index large enough for so many keys, as far as the pool has room.
    pub fn expect_keys(&mut self, keys: usize) {
        let (slabs, hasher) = (&self.slabs, &self.hasher);
        self.index.expect(keys, |place| hasher.hash(Entry::of(slabs.bytes(place)).key()));
    }

    /// Moves a few entries in the index, if some have to be moved.
    ///
    /// # Errors
    /// `OverLimit` when the index would have to grow and the pool has no room; keys can still be found.
    pub fn tidy(&mut self) -> Result<bool> {
        let (slabs, hasher) = (&self.slabs, &self.hasher);
        self.index.step(|place| hasher.hash(Entry::of(slabs.bytes(place)).key()), MOVES)
    }

    /// Moves a few entries so that slab pages with little in them empty; returns whether there may be more to do.
    pub fn compact(&mut self) -> bool {
        for _ in 0..COMPACTION_STEP {
            let Some(from) = self.slabs.to_move() else { return false };
            let entry = self.slabs.bytes(from).to_vec();
            let Ok(to) = self.slabs.allocate(entry.len()) else {
                self.slabs.stop_moving();
                return false;
            };
            self.slabs.bytes_mut(to)[..entry.len()].copy_from_slice(&entry);
            self.index.replace(self.hasher.hash(Entry::of(&entry).key()), from, to);
            self.slabs.free(from);
        }
        true
    }

    /// Looks at some entries and removes those that have expired; returns how many it looked at, and how many it removed.
    pub fn expire(&mut self, now: u64, mut removed: impl FnMut(&[u8])) -> (usize, usize) {
        if self.expiring == 0 {
            return (0, 0);
        }
        let mut seen = std::mem::take(&mut self.seen);
        let next = self.slabs.written_from(self.expiry_cursor, EXPIRY_STEP, &mut seen);
        self.expiry_cursor = next.unwrap_or_default();
        let (looked_at, before) = (seen.len(), self.len());
        for place in seen.drain(..) {
            let entry = Entry::of(self.slabs.bytes(place));
            if is_valid(entry, now) {
                continue;
            }
            removed(entry.key());
            let hash = self.hasher.hash(entry.key());
            self.remove_at(hash, place);
        }
        self.seen = seen;
        (looked_at, before - self.len())
    }

    /// Calls `f` with entries from `cursor` on, and returns the cursor that goes on; 0 when there are no more. Keys that
    /// are there from the first call to the last are seen at least once.
    pub fn scan(&self, cursor: u64, now: u64, f: impl FnMut(Entry<'_>)) -> u64 {
        let mut entries = Vec::new();
        let next = self.scan_entries(cursor, now, &mut entries);
        entries.into_iter().for_each(f);
        next
    }

    /// As [`Table::scan`], with the entries themselves.
    pub fn scan_entries<'a>(&'a self, cursor: u64, now: u64, out: &mut Vec<Entry<'a>>) -> u64 {
        let mut places = Vec::new();
        let hash_of = |place: Place| self.hasher.hash(Entry::of(self.slabs.bytes(place)).key());
        let next = self.index.scan(cursor, hash_of, &mut places);
        let entries = places.into_iter().map(|place| Entry::of(self.slabs.bytes(place)));
        out.extend(entries.filter(|entry| is_valid(*entry, now)));
        next
    }

    /// Returns an entry that a random number chooses of those that are valid at `now`; none if it meets only others.
    pub fn any(&self, random: u64, now: u64) -> Option<Entry<'_>> {
        let tries =
            (0..EXPIRY_STEP as u64).map(|number| random.wrapping_add(number.wrapping_mul(random | 1)));
        let places = tries.map_while(|random| self.index.any(random));
        places.map(|place| Entry::of(self.slabs.bytes(place))).find(|entry| is_valid(*entry, now))
    }

    /// Keeps the entries that are there now until [`Table::end_cut`].
    pub fn cut(&mut self) -> Arc<Cut> {
        self.slabs.cut()
    }

    /// Ends a cut, if it has not ended.
    pub fn end_cut(&mut self, cut: &Arc<Cut>) {
        self.slabs.end_cut(cut);
    }

    /// Whether the entry of a key is one of a cut that is kept: then it has not changed since.
    pub fn has_of_cut(&self, hash: u64, key: &[u8], cut: &Arc<Cut>) -> bool {
        self.find(hash, key).is_some_and(|place| self.slabs.keeps(cut) && cut.has(place))
    }

    /// Whether a cut is of this table, and has not ended.
    pub fn keeps(&self, cut: &Arc<Cut>) -> bool {
        self.slabs.keeps(cut)
    }

    /// Whether there is a cut that has not ended.
    pub fn has_kept_cuts(&self) -> bool {
        self.slabs.has_kept_cuts()
    }

    /// Whether there is something of a cut.
    pub fn has_cuts(&self) -> bool {
        self.slabs.has_cuts()
    }

    /// Frees some of what cuts have kept that have ended; returns whether there is more.
    pub fn reclaim_some(&mut self) -> bool {
        self.slabs.reclaim_some()
    }

    /// Divides a cut into parts of about so many entries and bytes.
    pub fn parts_of(&self, cut: &Cut, entries: usize, bytes: usize) -> Vec<CutPart> {
        self.slabs.parts_of(cut, entries, bytes)
    }

    /// As [`Slabs::read_cut`].
    pub fn read_cut<'a>(
        &'a self,
        cut: &Cut,
        part: &CutPart,
        cursor: CutCursor,
        f: impl FnMut(Slots<'a>) -> bool,
    ) -> Option<CutCursor> {
        self.slabs.read_cut(cut, part, cursor, f)
    }

    /// Bytes of the pool that the entry of a key takes, with its part of the index.
    pub fn bytes_of(&self, hash: u64, key: &[u8]) -> Option<usize> {
        let place = self.find(hash, key)?;
        Some(self.slabs.bytes(place).len() + self.index.usage() / self.len().max(1))
    }

    /// Bytes of the pool that the table takes.
    pub fn bytes(&self) -> usize {
        self.slabs.usage().pages_bytes + self.index.usage() + self.tables.bytes()
    }
}

/// Whether an entry that needs so many bytes may lie in a slot of this size: it fits, and leaves no more than half.
fn fits(needed: usize, slot_bytes: usize) -> bool {
    needed <= slot_bytes && (slot_bytes <= 64 || needed > slot_bytes / 2)
}

fn is_valid(entry: Entry<'_>, now: u64) -> bool {
    entry.is_valid(now)
}
