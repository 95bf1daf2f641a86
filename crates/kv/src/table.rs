//! A table: the keys of one space (namespace) in one shard, that is, an index and the slabs with the entries. Also the
//! table of fields of a large hash, with the fields as keys.
//!
//! Invariant: each key is in the index exactly once, with the address of its entry, and the address of each written
//! slot is in the index. So an entry is moved (because it grows, by compaction or recompression) in this order: it is
//! copied, the index is updated, the old slot is freed. If an error occurs before the update, the old entry stays
//! valid.

mod packed;
mod uses;

pub(crate) use packed::Edited;
pub(crate) use uses::Sample;

use crate::entry::{self, Entry, Kind, entry_bytes};
use crate::evict::Stamp;
use crate::fields::Tables;
use crate::index::{Index, IndexOrders, KeyHasher};
use crate::meter::Meter;
use crate::packing::{Packers, room_of_entry};
use crate::row_filter::Slots;
use crate::slab::{Cut, CutCursor, CutPart, EntryAddress, SlabCursor, Slabs};
use farpool_memory::{Pool, prefetch};
use farpool_model::limits::KV_VALUE_BYTES_MAX as VALUE_BYTES_MAX;
use farpool_model::{Result, TenantName};
use std::sync::Arc;

/// Maximum units of background work in the index after a command (see [`Index::step`]).
const MOVES: usize = 4;

/// Bytes of a value that are copied at a time, through a buffer on the stack.
const COPY_BYTES: usize = 16 << 10;

/// Maximum spare bytes that are allocated for a value that grows, as it is likely to grow again.
const GROWTH_BYTES: usize = 1 << 20;

/// Bytes of a cache line. `PREFETCHED_LINES` is the number of lines of an entry that are prefetched; the processor
/// itself prefetches the following ones.
const LINE_BYTES: usize = 64;
const PREFETCHED_LINES: usize = 2;

/// Maximum number of entries per step of removing expired keys.
const EXPIRY_STEP: usize = 64;

/// Maximum number of entries that a step of compaction moves.
const COMPACTION_STEP: usize = 64;

pub(crate) struct Table {
    pool: Arc<Pool>,
    tenant: TenantName,
    meter: Arc<Meter>,
    hasher: KeyHasher,
    orders: Arc<IndexOrders>,
    index: Index,
    slabs: Slabs,
    /// The tables of fields of large hashes.
    pub(crate) tables: Tables,
    packers: Packers,
    /// Scan cursor of the recompression of existing values; `None` unless it is in progress.
    repack_cursor: Option<u64>,
    /// Number of entries with an expiry.
    expiring: usize,
    /// Position where the next step of removing expired keys continues.
    expiry_cursor: SlabCursor,
    /// Reusable list of entry addresses for one step; empty between steps.
    seen: Vec<EntryAddress>,
    /// Stamp (12 bits that record the last use of an entry, for eviction) that new entries get.
    fresh: Stamp,
}

/// The sizes and properties of a value that is to be written.
pub(crate) struct Value {
    pub kind: Kind,
    /// Whether the value is compressed.
    pub is_packed: bool,
    pub bytes: usize,
    /// Number of bytes to allocate for the value, at least `bytes`; the excess lets the value grow in place.
    pub room: usize,
    /// Expiry in milliseconds since the epoch; `None` if the key does not expire.
    pub expiry: Option<u64>,
}

impl Value {
    /// Returns the description of an uncompressed value of `bytes` bytes without room for growth.
    pub fn plain(kind: Kind, bytes: usize, expiry: Option<u64>) -> Self {
        Value { kind, is_packed: false, bytes, room: bytes, expiry }
    }

    /// Returns the description of an uncompressed string of `bytes` bytes without room for growth.
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

    /// Creates an empty table of the same tenant, whose index permutes hashes in its own way.
    pub fn of_same_kind(&self) -> Self {
        Table::new(&self.pool, &self.tenant, &self.meter, &self.orders)
    }

    pub fn hash(&self, key: &[u8]) -> u64 {
        self.hasher.hash(key)
    }

    /// Returns the number of keys, including expired keys that were not removed yet.
    pub fn len(&self) -> usize {
        self.index.len()
    }

    /// Returns the number of keys with an expiry.
    pub fn expiring(&self) -> usize {
        self.expiring
    }

    fn find(&self, hash: u64, key: &[u8]) -> Option<EntryAddress> {
        self.index.find(hash, |place| Entry::of(self.slabs.bytes(place)).key() == key)
    }

    /// Prefetches the home bucket in the index of the key with this hash.
    pub fn prefetch_index(&self, hash: u64) {
        self.index.prefetch(hash);
    }

    /// Prefetches the beginning of the entry of the key with this hash. Reads the index, so call
    /// [`Table::prefetch_index`] some time before.
    pub fn prefetch_entry(&self, hash: u64) {
        let Some(place) = self.index.likely(hash) else { return };
        self.slabs.bytes(place).chunks(LINE_BYTES).take(PREFETCHED_LINES).for_each(|line| prefetch(&line[0]));
    }

    /// Returns the entry of `key`; `None` if the key is absent or has expired at `now`.
    pub fn get(&self, hash: u64, key: &[u8], now: u64) -> Option<Entry<'_>> {
        let place = self.find(hash, key)?;
        Some(Entry::of(self.slabs.bytes(place))).filter(|entry| is_valid(*entry, now))
    }

    /// Replaces the value of `key`, or adds the key. Returns the `value.bytes` bytes of the new value, with unspecified
    /// contents, which the caller must fill.
    ///
    /// # Errors
    /// `OverLimit` when memory is too small; the key is then unchanged.
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
                // Keeps a slot that is larger than needed rather than fail.
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

    /// Returns whether an entry of `needed` bytes may overwrite the entry at `place`: it fits into the slot without
    /// wasting much of it, and no cut keeps the old entry.
    fn may_stay(&self, place: EntryAddress, needed: usize) -> bool {
        fits(needed, self.slabs.bytes(place).len()) && !self.slabs.is_kept(place)
    }

    fn is_large_enough(&self, place: EntryAddress, needed: usize) -> bool {
        needed <= self.slabs.bytes(place).len() && !self.slabs.is_kept(place)
    }

    /// Makes sure that a later [`Table::put`] of this value cannot fail for lack of memory. Adds an absent key now,
    /// with the value `bytes`, and returns true; for an existing key, only makes its slot large enough, and returns
    /// false.
    ///
    /// # Errors
    /// Errors of [`Table::put`].
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
        // Copied piecewise, because a further copy of the largest values might not fit into memory.
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

    /// Allocates a slot of at least `needed` bytes for a new key with this hash and adds it to the index. The index
    /// reads the keys of other entries only.
    fn add(&mut self, hash: u64, needed: usize) -> Result<EntryAddress> {
        let place = self.slabs.allocate(needed)?;
        let (slabs, hasher) = (&self.slabs, &self.hasher);
        let hash_of = |place: EntryAddress| hasher.hash(Entry::of(slabs.bytes(place)).key());
        if let Err(error) = self.index.insert(hash, place, hash_of) {
            self.slabs.free(place);
            return Err(error);
        }
        Ok(place)
    }

    /// Updates the state outside the slot of an entry before the slot is freed or overwritten: decrements the count of
    /// entries with an expiry, drops the table of fields of a large hash, and decrements the reference count of the
    /// value's compressor.
    fn forget(&mut self, place: EntryAddress) {
        let entry = Entry::of(self.slabs.bytes(place));
        self.expiring -= usize::from(entry.expiry().is_some());
        if entry.kind() == Kind::Table {
            self.tables.remove(entry.stored());
        }
        if entry.is_packed() {
            self.packers.forget(entry);
        }
    }

    /// Resizes the value of `key` to `bytes` bytes, padding with zeros, and returns it for writing. Adds the key if it
    /// is absent at `now`; otherwise the expiry stays.
    ///
    /// # Errors
    /// Errors of [`Table::put`].
    pub fn resize(&mut self, hash: u64, key: &[u8], bytes: usize, now: u64) -> Result<&mut [u8]> {
        let Some(entry) = self.get(hash, key, now) else {
            let value = self.put(hash, key, &Value::new(bytes, None))?;
            value.fill(0);
            return Ok(value);
        };
        if entry.is_packed() {
            // The new value is larger than values that are compressed, so it is stored plain.
            let (kind, expiry, plain) = (entry.kind(), entry.expiry(), self.plain(entry)?.into_owned());
            self.put(hash, key, &Value::plain(kind, plain.len(), expiry))?.copy_from_slice(&plain);
            return self.resize(hash, key, bytes, now);
        }
        let (kind, expiry, before) = (entry.kind(), entry.expiry(), entry.stored().len());
        // A value that grows is likely to grow again, so it gets spare bytes.
        let room = if bytes > before { bytes + (bytes / 2).min(GROWTH_BYTES) } else { bytes };
        let value = Value { room: room.min(VALUE_BYTES_MAX), ..Value::plain(kind, bytes, expiry) };
        let kept = before.min(bytes);
        let rewritten = self.rewrite(hash, key, &value, kept)?;
        rewritten[kept..].fill(0);
        Ok(rewritten)
    }

    /// Replaces the value of an existing key by one that begins with the first `kept` bytes of the old value; returns
    /// the new value for writing.
    ///
    /// # Errors
    /// Errors of [`Table::put`].
    fn rewrite(&mut self, hash: u64, key: &[u8], value: &Value, kept: usize) -> Result<&mut [u8]> {
        let Some(old) = self.find(hash, key) else { return self.put(hash, key, value) };
        let is_expiring = value.expiry.is_some();
        let old_entry = Entry::of(self.slabs.bytes(old));
        let (was_expiring, stamp) = (old_entry.expiry().is_some(), old_entry.stamp());
        let least = if value.is_packed { value.room } else { value.bytes };
        let needed = entry_bytes(key.len(), least, is_expiring);
        // The entry is not changed in place if the expiry is added or removed, because that shifts the value within the
        // slot.
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

    /// Copies the first `bytes` bytes of a value between slots, piecewise, because a further copy of the largest values
    /// might not fit into memory.
    fn copy_value(&mut self, from: EntryAddress, to: EntryAddress, bytes: usize) {
        let mut buffer = [0; COPY_BYTES];
        for start in (0..bytes).step_by(COPY_BYTES) {
            let range = start..bytes.min(start + COPY_BYTES);
            let copied = &mut buffer[..range.len()];
            copied.copy_from_slice(&Entry::of(self.slabs.bytes(from)).stored()[range.clone()]);
            entry::value_mut(self.slabs.bytes_mut(to))[range].copy_from_slice(copied);
        }
    }

    /// Sets the expiry of a key, or removes it with `None`; does nothing if the key is absent.
    ///
    /// # Errors
    /// Errors of [`Table::put`].
    pub fn set_expiry(&mut self, hash: u64, key: &[u8], expiry: Option<u64>) -> Result<()> {
        let Some(place) = self.find(hash, key) else { return Ok(()) };
        let entry = Entry::of(self.slabs.bytes(place));
        let (kind, is_packed, bytes) = (entry.kind(), entry.is_packed(), entry.stored().len());
        let value = Value { kind, is_packed, bytes, room: room_of_entry(entry), expiry };
        self.rewrite(hash, key, &value, bytes).map(drop)
    }

    /// Removes a key; returns whether it was present (also if it had expired).
    pub fn remove(&mut self, hash: u64, key: &[u8]) -> bool {
        let Some(place) = self.find(hash, key) else { return false };
        self.remove_at(hash, place);
        true
    }

    fn remove_at(&mut self, hash: u64, place: EntryAddress) {
        self.forget(place);
        self.index.remove(hash, place);
        self.slabs.free(place);
    }

    /// Grows the index for `keys` keys in advance, as far as memory allows.
    pub fn expect_keys(&mut self, keys: usize) {
        let (slabs, hasher) = (&self.slabs, &self.hasher);
        self.index.expect(keys, |place| hasher.hash(Entry::of(slabs.bytes(place)).key()));
    }

    /// Does a few units of the index's background work (see [`Index::step`]); returns whether there is more to do.
    ///
    /// # Errors
    /// `OverLimit` when the index has to grow and memory is too small. All keys can still be found.
    pub fn tidy(&mut self) -> Result<bool> {
        let (slabs, hasher) = (&self.slabs, &self.hasher);
        self.index.step(|place| hasher.hash(Entry::of(slabs.bytes(place)).key()), MOVES)
    }

    /// Does a step of compaction: moves some entries so that sparsely used slab pages become empty. Returns whether
    /// there may be more to do.
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

    /// Does a step of removing expired keys: visits some entries, removes those that have expired at `now`, and calls
    /// `removed` with each removed key. Returns the number of visited and of removed entries.
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

    /// Calls `f` with the entries of one index bucket that exist at `now`, and returns the cursor of the next bucket; 0
    /// at the end. A scan begins with cursor 0. A key that is present from the first call to the last is returned at
    /// least once.
    pub fn scan(&self, cursor: u64, now: u64, f: impl FnMut(Entry<'_>)) -> u64 {
        let mut entries = Vec::new();
        let next = self.scan_entries(cursor, now, &mut entries);
        entries.into_iter().for_each(f);
        next
    }

    /// Does the same as [`Table::scan`], but appends the entries to `out` instead of calling a function.
    pub fn scan_entries<'a>(&'a self, cursor: u64, now: u64, out: &mut Vec<Entry<'a>>) -> u64 {
        let mut places = Vec::new();
        let hash_of = |place: EntryAddress| self.hasher.hash(Entry::of(self.slabs.bytes(place)).key());
        let next = self.index.scan(cursor, hash_of, &mut places);
        let entries = places.into_iter().map(|place| Entry::of(self.slabs.bytes(place)));
        out.extend(entries.filter(|entry| is_valid(*entry, now)));
        next
    }

    /// Returns an entry that exists at `now`, chosen by a random number; `None` if the table is empty, or if a limited
    /// number of tries finds only expired entries.
    pub fn any(&self, random: u64, now: u64) -> Option<Entry<'_>> {
        let tries =
            (0..EXPIRY_STEP as u64).map(|number| random.wrapping_add(number.wrapping_mul(random | 1)));
        let places = tries.map_while(|random| self.index.any(random));
        places.map(|place| Entry::of(self.slabs.bytes(place))).find(|entry| is_valid(*entry, now))
    }

    /// Takes a cut (point-in-time view) of the current entries, which are kept until [`Table::end_cut`].
    pub fn cut(&mut self) -> Arc<Cut> {
        self.slabs.cut()
    }

    /// Ends a cut, if it has not ended.
    pub fn end_cut(&mut self, cut: &Arc<Cut>) {
        self.slabs.end_cut(cut);
    }

    /// Returns whether the current entry of a key belongs to `cut`, and so has not changed since the cut was taken;
    /// false if the cut has ended.
    pub fn has_of_cut(&self, hash: u64, key: &[u8], cut: &Arc<Cut>) -> bool {
        self.find(hash, key).is_some_and(|place| self.slabs.keeps(cut) && cut.has(place))
    }

    /// Returns whether a cut belongs to this table and has not ended.
    pub fn keeps(&self, cut: &Arc<Cut>) -> bool {
        self.slabs.keeps(cut)
    }

    /// Returns whether there is a cut that has not ended.
    pub fn has_kept_cuts(&self) -> bool {
        self.slabs.has_kept_cuts()
    }

    /// Returns whether there is a cut, or an ended cut whose slots are not all freed.
    pub fn has_cuts(&self) -> bool {
        self.slabs.has_cuts()
    }

    /// Frees some slots that ended cuts have kept; returns whether there are more.
    pub fn reclaim_some(&mut self) -> bool {
        self.slabs.reclaim_some()
    }

    /// Divides a cut into parts of about `entries` entries or `bytes` bytes, whichever is reached first; see
    /// [`Slabs::parts_of`].
    pub fn parts_of(&self, cut: &Cut, entries: usize, bytes: usize) -> Vec<CutPart> {
        self.slabs.parts_of(cut, entries, bytes)
    }

    /// Reads a part of a cut; see [`Slabs::read_cut`].
    pub fn read_cut<'a>(
        &'a self,
        cut: &Cut,
        part: &CutPart,
        cursor: CutCursor,
        f: impl FnMut(Slots<'a>) -> bool,
    ) -> Option<CutCursor> {
        self.slabs.read_cut(cut, part, cursor, f)
    }

    /// Returns the bytes of pool memory that a key takes: its slot and its share of the index; `None` if the key is
    /// absent.
    pub fn bytes_of(&self, hash: u64, key: &[u8]) -> Option<usize> {
        let place = self.find(hash, key)?;
        Some(self.slabs.bytes(place).len() + self.index.usage() / self.len().max(1))
    }

    /// Returns the bytes of pool memory that the table takes, including the tables of fields of large hashes.
    pub fn bytes(&self) -> usize {
        self.slabs.usage().pages_bytes + self.index.usage() + self.tables.bytes()
    }
}

/// Returns whether an entry of `needed` bytes may be in a slot of this size: it fits and uses more than half of the
/// slot, or the slot has the smallest size.
fn fits(needed: usize, slot_bytes: usize) -> bool {
    needed <= slot_bytes && (slot_bytes <= 64 || needed > slot_bytes / 2)
}

fn is_valid(entry: Entry<'_>, now: u64) -> bool {
    entry.is_valid(now)
}
