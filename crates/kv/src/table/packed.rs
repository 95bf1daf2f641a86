//! Compressed values of a table: values are compressed when they are written, if that saves memory, and recompressed in
//! the background after the compressor has changed.

use super::{Table, Value};
use crate::entry::{self, Entry, Kind, entry_bytes};
use crate::packing::{PackedValue, Packer, Unpackers, plain_bytes};
use crate::slab::slot_bytes;
use farpool_model::Result;
use farpool_model::limits::KV_PACKED_BYTES_MAX;
use std::borrow::Cow;
use std::sync::Arc;

/// Maximum number of index buckets whose values are recompressed per step. The next constant is the maximum cost per
/// step, as the number of bytes that could be copied in that time (see [`Packer::cost`]).
const REPACK_BUCKETS: usize = 32;
const REPACK_COST: usize = 64 << 10;

/// Maximum number of index buckets in which sample values are searched.
const SAMPLE_BUCKETS: usize = 256;

/// Cost of compressing a value relative to decompressing it.
const PACK_COST: usize = 4;

impl Table {
    /// Sets the compressor for new values; `None` for no compression. Existing values are recompressed by
    /// [`Table::repack_some`].
    pub fn set_packer(&mut self, packer: Option<&Arc<Packer>>) {
        if self.packers.set_current(packer) && packer.is_some() {
            self.repack_cursor = Some(0);
        }
    }

    /// Returns whether the table may have compressed values.
    pub fn has_packed(&self) -> bool {
        self.packers.has_some()
    }

    /// Returns the decompressors for the values of this table.
    pub fn unpackers(&self) -> &Unpackers {
        self.packers.unpackers()
    }

    /// Returns the uncompressed value of an entry of this table.
    ///
    /// # Errors
    /// `Corrupt` when the compressed bytes are corrupt.
    pub fn plain<'a>(&self, entry: Entry<'a>) -> Result<Cow<'a, [u8]>> {
        self.packers.unpackers().plain(entry)
    }

    fn pack(&mut self, key: &[u8], plain: &[u8], expires: bool) -> Option<PackedValue> {
        self.packers.current()?;
        let keeps = self.slabs.has_cuts();
        self.packers.pack(key.len(), plain, expires, keeps)
    }

    /// Sets the value of `key` to the uncompressed value given, which is stored compressed if that saves memory.
    ///
    /// # Errors
    /// Errors of [`Table::put`].
    pub fn put_plain(
        &mut self,
        hash: u64,
        key: &[u8],
        (kind, plain): (Kind, &[u8]),
        expiry: Option<u64>,
    ) -> Result<()> {
        let Some(packed) = self.pack(key, plain, expiry.is_some()) else {
            self.put(hash, key, &Value::plain(kind, plain.len(), expiry))?.copy_from_slice(plain);
            return Ok(());
        };
        let value = value_of(kind, &packed, expiry);
        let done = self.put(hash, key, &value).map(|place| place.copy_from_slice(&packed.bytes));
        self.packers.packed(packed, done.is_ok());
        done
    }

    /// Makes sure that a later [`Table::put_plain`] of this value cannot fail for lack of memory; see
    /// [`Table::prepare`].
    ///
    /// # Errors
    /// Errors of [`Table::put`].
    pub fn prepare_plain(&mut self, hash: u64, key: &[u8], (kind, plain): (Kind, &[u8])) -> Result<bool> {
        let Some(packed) = self.pack(key, plain, false) else {
            return self.prepare(hash, key, &Value::plain(kind, plain.len(), None), plain);
        };
        let done = self.prepare(hash, key, &value_of(kind, &packed, None), &packed.bytes);
        let is_put = matches!(done, Ok(true));
        self.packers.packed(packed, is_put);
        done
    }

    /// Returns a decompressed copy of the string at `key`, resized to `bytes` bytes, to be changed and then passed to
    /// [`Table::put_plain`] with its expiry. Returns `None` if [`Table::resize`] is to be used because nothing is
    /// compressed.
    ///
    /// # Errors
    /// Errors of [`Table::plain`].
    pub fn edited(&self, hash: u64, key: &[u8], bytes: usize, now: u64) -> Result<Option<Edited>> {
        if self.packers.current().is_none() || bytes > KV_PACKED_BYTES_MAX {
            return Ok(None);
        }
        let (mut plain, mut expiry) = (Vec::new(), None);
        if let Some(entry) = self.get(hash, key, now) {
            if plain_bytes(entry) > KV_PACKED_BYTES_MAX {
                return Ok(None);
            }
            (plain, expiry) = (self.plain(entry)?.into_owned(), entry.expiry());
        }
        plain.resize(bytes, 0);
        Ok(Some(Edited { plain, expiry }))
    }

    /// Does a step of recompressing values that were not written with the current compressor; returns whether there may
    /// be more.
    pub fn repack_some(&mut self) -> bool {
        // Nothing is recompressed while there is a cut (point-in-time view), because a recompressed entry would count
        // as changed since the cut was taken.
        let Some(mut cursor) = self.repack_cursor.filter(|_| !self.has_kept_cuts()) else { return false };
        let (mut buckets, mut cost) = (0, 0);
        while buckets < REPACK_BUCKETS && cost < REPACK_COST {
            let mut entries = Vec::new();
            cursor = self.scan_entries(cursor, 0, &mut entries);
            let is_due = |entry: &&Entry<'_>| {
                let is_old = !entry.is_packed() || self.packers.is_old(**entry);
                is_old && entry.kind() != Kind::Table && plain_bytes(**entry) <= KV_PACKED_BYTES_MAX
            };
            let due: Vec<Box<[u8]>> = entries.iter().filter(is_due).map(|entry| entry.key().into()).collect();
            for key in due {
                cost += self.repack(&key);
            }
            buckets += 1;
            if cursor == 0 {
                self.repack_cursor = None;
                return false;
            }
        }
        self.repack_cursor = Some(cursor);
        true
    }

    /// Recompresses the value of `key` if that saves memory; returns the cost. If an error occurs, the value stays as
    /// it is.
    fn repack(&mut self, key: &[u8]) -> usize {
        let hash = self.hash(key);
        let Some(old) = self.find(hash, key) else { return 0 };
        let entry = Entry::of(self.slabs.bytes(old));
        let (kind, expiry, stamp) = (entry.kind(), entry.expiry(), entry.stamp());
        let Ok(plain) = self.plain(entry).map(Cow::into_owned) else { return 0 };
        let cost = PACK_COST * self.packers.current().map_or(0, |packer| packer.cost(plain.len()));
        let Some(packed) = self.pack(key, &plain, expiry.is_some()) else { return cost };
        let needed = entry_bytes(key.len(), packed.room, expiry.is_some());
        let is_smaller = slot_bytes(needed) < self.slabs.bytes(old).len();
        let place = if is_smaller { self.slabs.allocate(needed).ok() } else { None };
        if let Some(place) = place {
            let slot = self.slabs.bytes_mut(place);
            entry::write(slot, (kind, true), key, packed.bytes.len(), expiry, stamp)
                .copy_from_slice(&packed.bytes);
            self.packers.forget(Entry::of(self.slabs.bytes(old)));
            self.index.replace(hash, old, place);
            self.slabs.free(old);
        }
        self.packers.packed(packed, place.is_some());
        cost
    }

    /// Appends the first bytes, at most `piece`, of each of some values to `sample`, until it has `most` bytes or
    /// [`SAMPLE_BUCKETS`] buckets were visited.
    ///
    /// # Errors
    /// Errors of [`Table::plain`].
    pub fn sample_values(&self, most: usize, piece: usize, sample: &mut Vec<u8>) -> Result<()> {
        let (mut cursor, mut failed) = (0, Ok(()));
        for _ in 0..SAMPLE_BUCKETS {
            if sample.len() >= most || failed.is_err() {
                break;
            }
            cursor = self.scan(cursor, 0, |entry| {
                if entry.kind() == Kind::Table || sample.len() >= most {
                    return;
                }
                match self.plain(entry) {
                    Ok(plain) => {
                        let bytes = plain.len().min(piece).min(most - sample.len());
                        sample.extend_from_slice(&plain[..bytes]);
                    }
                    Err(error) => failed = Err(error),
                }
            });
            if cursor == 0 {
                break;
            }
        }
        failed
    }
}

/// An uncompressed copy of a string that is being changed.
pub(crate) struct Edited {
    pub plain: Vec<u8>,
    /// Expiry of the key in milliseconds since the epoch.
    pub expiry: Option<u64>,
}

fn value_of(kind: Kind, packed: &PackedValue, expiry: Option<u64>) -> Value {
    Value { kind, is_packed: true, bytes: packed.bytes.len(), room: packed.room, expiry }
}

#[cfg(test)]
impl Table {
    /// Returns the number of compressed values.
    pub fn packed(&self) -> usize {
        let (mut cursor, mut count) = (0, 0);
        loop {
            cursor = self.scan(cursor, 0, |entry| count += usize::from(entry.is_packed()));
            if cursor == 0 {
                return count;
            }
        }
    }
}
