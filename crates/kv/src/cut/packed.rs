//! Compressed values while a cut (point-in-time view) is read. Values that are quick to decompress are decompressed
//! while the shard is locked; others are copied, and decompressed after the shard is released.

use super::{BYTES_COPIED_PER_NS, ReadEntry};
use crate::entry::Entry;
use crate::packing::Unpackers;
use crate::row_filter::{BATCH_ENTRIES, Slots};
use farpool_model::Result;
use std::ops::Range;

/// Copies of compressed entries, to be decompressed later.
#[derive(Default)]
pub(super) struct PackedEntries {
    /// The bytes of the entries, one after the other; `ends` has, for each entry, the end of its bytes and the index of
    /// its decompressors.
    bytes: Vec<u8>,
    ends: Vec<(usize, usize)>,
    /// Decompressors of the entries; consecutive entries of the same table share them.
    unpackers: Vec<Unpackers>,
    plain: Vec<u8>,
}

impl PackedEntries {
    /// Adds a copy of an entry of a table with these decompressors.
    pub fn add(&mut self, entry: Entry<'_>, unpackers: &Unpackers) {
        if self.unpackers.last().is_none_or(|last| !last.is(unpackers)) {
            self.unpackers.push(unpackers.clone());
        }
        self.bytes.extend_from_slice(entry.bytes());
        self.ends.push((self.bytes.len(), self.unpackers.len() - 1));
    }

    /// Calls `f` with the decompressed entries in the order in which they were added, then clears the list.
    ///
    /// # Errors
    /// `Corrupt` if a compressed value is corrupt.
    pub fn read(&mut self, mut f: impl FnMut(ReadEntry<'_>)) -> Result<()> {
        let mut start = 0;
        for (end, unpackers) in &self.ends {
            let entry = Entry::of(&self.bytes[start..*end]);
            let plain = self.unpackers[*unpackers].plain_in(entry, &mut self.plain)?;
            f(ReadEntry::new(entry, plain));
            start = *end;
        }
        self.bytes.clear();
        self.ends.clear();
        self.unpackers.clear();
        Ok(())
    }
}

/// The uncompressed values of the entries in a batch of slots.
pub(super) struct PlainValues {
    /// The decompressed values, one after the other.
    bytes: Vec<u8>,
    /// By slot, the range in `bytes` of the decompressed value; `None` for values that are read from their slots.
    places: [Option<Range<usize>>; BATCH_ENTRIES],
    taken: u64,
}

impl Default for PlainValues {
    fn default() -> Self {
        PlainValues { bytes: Vec::new(), places: [const { None }; BATCH_ENTRIES], taken: 0 }
    }
}

impl PlainValues {
    /// Replaces the contents by the values of the entries in `slots` that have not expired at `now`; returns the
    /// estimated time in nanoseconds that this took. Entries that are slow to decompress, or come after `room_ns`
    /// nanoseconds are spent, are copied to `slow`.
    ///
    /// # Errors
    /// `Corrupt` if a compressed value is corrupt.
    pub fn fill(
        &mut self,
        slots: Slots<'_>,
        (now, room_ns): (u64, usize),
        unpackers: &Unpackers,
        slow: &mut PackedEntries,
    ) -> Result<usize> {
        self.bytes.clear();
        self.taken = 0;
        let (mut left, mut spent_ns) = (slots.taken, 0);
        while left != 0 {
            let at = left.trailing_zeros() as usize;
            left &= left - 1;
            let entry = slots.entry(at);
            if !entry.is_valid(now) {
                continue;
            }
            self.places[at] = None;
            if entry.is_packed() {
                if !unpackers.is_quick(entry) || spent_ns > room_ns {
                    slow.add(entry, unpackers);
                    spent_ns += entry.stored().len() / BYTES_COPIED_PER_NS;
                    continue;
                }
                let start = self.bytes.len();
                unpackers.append_plain(entry, &mut self.bytes)?;
                spent_ns += unpackers.cost(entry) / BYTES_COPIED_PER_NS;
                self.places[at] = Some(start..self.bytes.len());
            }
            self.taken |= 1 << at;
        }
        Ok(spent_ns)
    }

    /// Returns the slots whose values are available here, and these values by slot.
    pub fn of<'a>(&'a self, slots: Slots<'a>) -> (Slots<'a>, [&'a [u8]; BATCH_ENTRIES]) {
        let mut values: [&[u8]; BATCH_ENTRIES] = [&[]; BATCH_ENTRIES];
        let mut left = self.taken;
        while left != 0 {
            let at = left.trailing_zeros() as usize;
            left &= left - 1;
            values[at] = match &self.places[at] {
                Some(place) => &self.bytes[place.clone()],
                None => slots.entry(at).stored(),
            };
        }
        (Slots { taken: self.taken, ..slots }, values)
    }
}
