//! Cuts: point-in-time views (snapshots in memory) of all entries of a space, for scans by SQL while clients change the
//! keys.
//!
//! Example: a cut is taken while `a = 1`; then a client sets `a = 2`. The slot with the old entry is kept for the cut,
//! so the scan reads `a = 1`, and the slot is freed after the cut is dropped. If memory runs short before that, the cut
//! is ended and the scan fails with `Stale`, because it must not mix entries of different moments.

mod packed;

use crate::entry::{Entry, Kind};
use crate::holds::ShardGuard;
use crate::keyspace::Keyspace;
use crate::packing::{PLAIN_PER_BYTE, plain_bytes};
use crate::row_filter::{BATCH_ENTRIES, Batch, RowFilter, Slots};
use crate::shard::SpaceId;
use crate::slab::{Cut, CutCursor, CutPart};
use crate::table::Table;
use farpool_model::limits::RETRY_AFTER_MS;
use farpool_model::{Error, Result};
use packed::{PackedEntries, PlainValues};
use std::fmt;
use std::sync::Arc;

/// Estimated nanoseconds of reading after which a reader releases the shard for others. The last entry may take longer:
/// some microseconds for 16 KiB, and the time of copying its bytes if it is larger.
const STEP_NS: usize = 40_000;

/// Estimated nanoseconds to read the header of an entry. The next constant is the estimate of passing on an entry that
/// passed the filter, without copying its bytes.
const ENTRY_NS: usize = 6;
const COPY_NS: usize = 80;
const BYTES_COPIED_PER_NS: usize = 2;

/// Factor by which parts of tables with compressed values are smaller, because the same number of bytes holds more
/// plain bytes.
const PACKED_PARTS: usize = 4;

/// A cut (point-in-time view) of a space: its entries at one moment, in all shards; see [`Keyspace::cut`]. Dropping the
/// cut releases the entries that only it keeps.
pub struct KeyCut {
    keyspace: Arc<Keyspace>,
    space: SpaceId,
    now: u64,
    /// Number of each shard that has keys of the space, and the cut of the space's slabs there.
    shards: Vec<(usize, Arc<Cut>)>,
}

/// A part of a cut in one shard, which one call of [`KeyCut::read`] reads.
#[derive(Clone, Debug)]
pub struct KeyCutPart {
    /// Index into [`KeyCut::shards`].
    shard: usize,
    part: CutPart,
}

/// Counters of one call of [`KeyCut::read`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ReadCount {
    /// Number of unexpired entries, including those that the filter dropped.
    pub entries: usize,
    /// Number of bytes that the filter read.
    pub bytes_judged: usize,
}

/// An entry that is being read: its key, expiry and uncompressed value.
#[derive(Clone, Copy)]
pub struct ReadEntry<'a> {
    entry: Entry<'a>,
    value: &'a [u8],
}

impl<'a> ReadEntry<'a> {
    /// Initial value of array elements that are overwritten by entries before they are read.
    pub(crate) const NONE: ReadEntry<'static> = ReadEntry { entry: Entry::NONE, value: &[] };

    /// Creates the view of an entry whose uncompressed value is `value`.
    pub(crate) fn new(entry: Entry<'a>, value: &'a [u8]) -> Self {
        ReadEntry { entry, value }
    }

    /// Returns the bytes of the uncompressed value, of any kind.
    pub(crate) fn value(&self) -> &'a [u8] {
        self.value
    }

    /// Returns the key.
    pub fn key(&self) -> &'a [u8] {
        self.entry.key()
    }

    /// Returns the value if it is a string; otherwise `None`.
    pub fn string(&self) -> Option<&'a [u8]> {
        (self.entry.kind() == Kind::String).then_some(self.value)
    }

    /// Returns the encoded value if it is a row; otherwise `None`.
    pub fn row(&self) -> Option<&'a [u8]> {
        (self.entry.kind() == Kind::Row).then_some(self.value)
    }

    /// Returns the expiry in milliseconds since the epoch; `None` if the key does not expire.
    pub fn expiry(&self) -> Option<u64> {
        self.entry.expiry()
    }
}

/// The hash, length and expiry of an entry's value, to detect whether the entry has changed since it was read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fingerprint {
    hash: u64,
    bytes: usize,
    expiry: Option<u64>,
}

impl Keyspace {
    /// Returns the fingerprint of an entry. Two different values of the same length and expiry collide with probability
    /// 2^-64.
    pub fn fingerprint(&self, entry: ReadEntry<'_>) -> Fingerprint {
        let value = entry.value();
        Fingerprint { hash: self.hash(value), bytes: value.len(), expiry: entry.expiry() }
    }
}

impl KeyCutPart {
    /// Returns the number of entries in the part, including expired ones.
    pub fn entries(&self) -> usize {
        self.part.entries
    }

    /// Returns the bytes of the entries' slots, including unused bytes. If values are compressed, returns an upper
    /// bound of the uncompressed bytes.
    pub fn bytes(&self) -> usize {
        self.part.bytes
    }
}

impl Keyspace {
    /// Takes a cut (point-in-time view) of a space as of `now`. Its entries are kept until the cut is dropped or memory
    /// runs short. Locks all shards at once, which blocks while long commands hold one, for as long as it takes to copy
    /// one bit per slot.
    pub fn cut(self: &Arc<Self>, space: SpaceId, now: u64) -> KeyCut {
        let now = self.not_before(now);
        let all: Vec<usize> = (0..self.shards()).collect();
        let (taken, _hold) = self.take_or_hold(&all);
        self.cut_taken(taken, (space, now))
    }

    /// Does the same as [`Keyspace::cut`] without blocking on long commands, for threads that must not wait: returns
    /// `None` if a long command holds a shard, or if the keys are being rebuilt.
    pub fn try_cut(self: &Arc<Self>, space: SpaceId, now: u64) -> Option<KeyCut> {
        if self.refuses_commands() {
            return None;
        }
        let all: Vec<usize> = (0..self.shards()).collect();
        let now = self.not_before(now);
        Some(self.cut_taken(self.take_all(&all)?, (space, now)))
    }

    fn cut_taken(self: &Arc<Self>, mut taken: Vec<ShardGuard<'_>>, (space, now): (SpaceId, u64)) -> KeyCut {
        let shards = taken.iter_mut().enumerate().filter(|(_, shard)| shard.table(space).is_some());
        let shards = shards.map(|(number, shard)| (number, shard.table_mut(space).cut())).collect();
        KeyCut { keyspace: Arc::clone(self), space, now, shards }
    }

    /// Calls `f` with the entries of those of `keys` that exist, all as of the same moment. Returns false, without
    /// calling `f`, if their uncompressed values exceed `bytes_max` bytes in total.
    ///
    /// # Errors
    /// `Corrupt` if a compressed value is corrupt; `Busy` if a long command holds one of the shards, or the keys are
    /// being rebuilt.
    pub fn read_keys(
        &self,
        space: SpaceId,
        keys: &[Vec<u8>],
        (bytes_max, now): (usize, u64),
        mut f: impl FnMut(ReadEntry<'_>),
    ) -> Result<bool> {
        let now = self.not_before(now);
        let hashes: Vec<u64> = keys.iter().map(|key| self.hash(key)).collect();
        let mut wanted: Vec<usize> = hashes.iter().map(|hash| self.shard_of(*hash)).collect();
        wanted.sort_unstable();
        wanted.dedup();
        let taken = self.take_all(&wanted).filter(|_| !self.refuses_commands()).ok_or_else(held)?;
        let entries: Vec<(&Table, Entry<'_>)> = keys
            .iter()
            .zip(hashes)
            .filter_map(|(key, hash)| {
                let at = wanted.binary_search(&self.shard_of(hash)).ok()?;
                let table = taken[at].table(space)?;
                Some((table, table.get(hash, key, now)?))
            })
            .collect();
        if entries.iter().map(|(_, entry)| plain_bytes(*entry)).sum::<usize>() > bytes_max {
            return Ok(false);
        }
        let mut packed = PackedEntries::default();
        for (table, entry) in entries {
            if entry.is_packed() {
                packed.add(entry, table.unpackers());
            } else {
                f(ReadEntry::new(entry, entry.stored()));
            }
        }
        drop(taken);
        packed.read(f)?;
        Ok(true)
    }
}

impl KeyCut {
    /// Returns the time of the cut, in milliseconds since the epoch.
    pub fn now(&self) -> u64 {
        self.now
    }

    /// Returns the bytes that the cut takes outside the pool.
    pub fn bytes(&self) -> usize {
        self.shards.iter().map(|(_, cut)| cut.bytes()).sum()
    }

    /// Divides the cut into parts of about `entries` entries or `bytes` bytes, whichever is reached first. Consecutive
    /// parts belong to different shards as far as possible, so that threads which read one part each do not contend for
    /// a lock.
    ///
    /// # Errors
    /// Errors of [`KeyCut::read`].
    pub fn parts(&self, entries: usize, bytes: usize) -> Result<Vec<KeyCutPart>> {
        let mut shards = Vec::new();
        for (at, (shard, cut)) in self.shards.iter().enumerate() {
            let shard = self.keyspace.take(*shard).ok_or_else(held)?;
            let table = shard.table_of_cut(self.space, cut).ok_or_else(not_kept)?;
            let bytes = if table.has_packed() { bytes / PACKED_PARTS } else { bytes };
            let of_shard = table.parts_of(cut, entries, bytes).into_iter();
            // The uncompressed sizes are unknown; the size of the slots times the maximum compression ratio is an upper
            // bound.
            let per_byte = if table.has_packed() { PLAIN_PER_BYTE } else { 1 };
            shards.push(of_shard.map(move |mut part| {
                part.bytes *= per_byte;
                KeyCutPart { shard: at, part }
            }));
        }
        let mut parts = Vec::new();
        while !shards.is_empty() {
            shards.retain_mut(|of_shard| of_shard.next().map(|part| parts.push(part)).is_some());
        }
        Ok(parts)
    }

    /// Returns whether the current entry of a key is still the one in the cut. `table` is the space's table in the
    /// shard with number `shard`, which the caller has locked.
    pub(crate) fn has_unchanged(&self, shard: usize, table: &Table, (hash, key): (u64, &[u8])) -> bool {
        let cut = self.shards.iter().find(|(number, _)| *number == shard);
        cut.is_some_and(|(_, cut)| table.has_of_cut(hash, key, cut))
    }

    /// Calls `f` with batches of the entries of `part` that have not expired and pass `filter`. Releases and locks the
    /// shard again every some tens of microseconds, so that commands need not wait. Compressed values that are slow to
    /// decompress are copied under the lock and decompressed after its release.
    ///
    /// # Errors
    /// `Stale` if the cut was ended because memory ran short; `Corrupt` if a compressed value is corrupt; `Busy` if a
    /// long command holds the shard. After `Busy`, the part can be read again from its start when the shard is released
    /// ([`Keyspace::poll_released`]).
    pub fn read(
        &self,
        part: &KeyCutPart,
        filter: Option<&RowFilter>,
        mut f: impl FnMut(&[ReadEntry<'_>]),
    ) -> Result<ReadCount> {
        let (shard, cut) = &self.shards[part.shard];
        let mut reading = BatchConsumer { filter, count: ReadCount::default(), f: &mut f };
        let mut next: Option<CutCursor> = Some(part.part.begin());
        let (mut plain, mut slow) = (PlainValues::default(), PackedEntries::default());
        while let Some(cursor) = next {
            let shard = self.keyspace.take(*shard).ok_or_else(held)?;
            let table = shard.table_of_cut(self.space, cut).ok_or_else(not_kept)?;
            let (mut batch, mut spent_ns, mut done) = (Batch::new(), 0, Ok(()));
            next = table.read_cut(cut, &part.part, cursor, |slots| {
                if table.has_packed() {
                    let room = STEP_NS - spent_ns;
                    let filled = plain.fill(slots, (self.now, room), table.unpackers(), &mut slow);
                    done = filled.map(|ns| {
                        spent_ns += ns;
                        let mut batch = Batch::new();
                        let (slots, values) = plain.of(slots);
                        batch.fill_plain(slots, reading.kind(), &values);
                        spent_ns += reading.take(&batch);
                    });
                } else {
                    batch.fill(slots, reading.kind(), self.now);
                    spent_ns += reading.take(&batch);
                }
                spent_ns < STEP_NS && done.is_ok()
            });
            drop(shard);
            done?;
            slow.read(|entry| {
                let mut batch = Batch::new();
                batch.fill_plain(Slots::of(entry.entry), reading.kind(), &[entry.value]);
                reading.take(&batch);
            })?;
        }
        Ok(reading.count)
    }
}

/// Filters the batches of one read, passes entries on and counts them.
struct BatchConsumer<'f> {
    filter: Option<&'f RowFilter>,
    count: ReadCount,
    f: &'f mut dyn FnMut(&[ReadEntry<'_>]),
}

impl BatchConsumer<'_> {
    /// Returns the kind of values that the filter applies to.
    fn kind(&self) -> Kind {
        self.filter.map_or(Kind::String, RowFilter::kind)
    }

    /// Calls `f` with the entries of a batch that pass the filter; returns the estimated time that this took, in
    /// nanoseconds.
    fn take(&mut self, batch: &Batch<'_>) -> usize {
        let (entries, mut kept) = (batch.count(), batch.all());
        let mut spent_ns = entries * ENTRY_NS;
        if let Some(filter) = self.filter {
            self.count.bytes_judged += filter.bytes_read(entries, batch.bytes());
            spent_ns += filter.cost_ns(entries, batch.bytes());
            kept = filter.judge(batch);
        }
        self.count.entries += entries;
        let mut place = [ReadEntry::NONE; BATCH_ENTRIES];
        let kept = batch.entries(kept, &mut place);
        let bytes_kept: usize = kept.iter().map(|entry| entry.value.len()).sum();
        if !kept.is_empty() {
            (self.f)(kept);
        }
        spent_ns + kept.len() * COPY_NS + bytes_kept / BYTES_COPIED_PER_NS
    }
}

#[cfg(test)]
impl KeyCut {
    /// Calls `f` with batches of up to 64 slots of a part of the cut, unfiltered and including expired entries.
    pub(crate) fn read_slots(&self, part: &KeyCutPart, mut f: impl FnMut(crate::row_filter::Slots<'_>)) {
        let (shard, cut) = &self.shards[part.shard];
        let shard = self.keyspace.lock(*shard);
        let table = shard.table_of_cut(self.space, cut).unwrap();
        table.read_cut(cut, &part.part, part.part.begin(), |slots| {
            f(slots);
            true
        });
    }
}

fn not_kept() -> Error {
    let message = "the keys of this statement were changed, and memory is too short to keep what they were";
    Error::stale(message).advise("run it again; give the pool more memory")
}

/// Returns the error of a read whose shard a long command holds.
fn held() -> Error {
    Error::busy("a long command has the keys", *RETRY_AFTER_MS.start())
}

impl Drop for KeyCut {
    fn drop(&mut self) {
        for (shard, cut) in &self.shards {
            match self.keyspace.take(*shard) {
                Some(mut taken) => taken.end_cut(self.space, cut),
                None => self.keyspace.end_later(*shard, self.space, cut),
            }
        }
    }
}

impl fmt::Debug for KeyCut {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KeyCut").field("space", &self.space).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
