//! A batch of a row filter (a SQL condition evaluated on entries of a space in place): the entries of up to 64 slots,
//! which are filtered together.

use crate::cut::ReadEntry;
use crate::entry::{self, Entry, Kind};
use farpool_memory::prefetch;
use memchr::memmem::Finder;

/// Maximum number of entries of a batch: the number of bits of a word, with which results are represented.
pub(crate) const BATCH_ENTRIES: usize = 64;

/// At most 64 consecutive slots of a slab page (a block of equal slots, each of which may have one entry).
#[derive(Clone, Copy)]
pub(crate) struct Slots<'a> {
    /// Bytes of all slots.
    pub bytes: &'a [u8],
    /// Bytes of the slots that are read next, for prefetching; empty if unknown.
    pub ahead: &'a [u8],
    /// Number of bytes per slot.
    pub slot_bytes: usize,
    /// Bitmap of the slots that have entries; the lowest bit is the first slot.
    pub taken: u64,
}

impl<'a> Slots<'a> {
    /// Returns a value that consists of one slot, the bytes of `entry`, which are not copied.
    pub fn of(entry: Entry<'a>) -> Self {
        let bytes = entry.bytes();
        Slots { bytes, ahead: &[], slot_bytes: bytes.len(), taken: 1 }
    }

    /// Returns the entry in a slot.
    #[inline]
    pub fn entry(self, at: usize) -> Entry<'a> {
        Entry::of(&self.bytes[at * self.slot_bytes..][..self.slot_bytes])
    }
}

/// The entries of some slots that have not expired, and their values.
pub(crate) struct Batch<'a> {
    slots: Slots<'a>,
    /// The slot of each entry, ascending.
    places: [u8; BATCH_ENTRIES],
    /// The value of each entry, if it is of the kind that the conditions read; otherwise empty.
    values: [&'a [u8]; BATCH_ENTRIES],
    /// Bitmap of the entries whose value is of the kind that the conditions read.
    has_value: u64,
    count: usize,
    /// Total bytes of `values`.
    bytes: usize,
    /// The values of all entries, of any kind, if they are not in the slots because they were decompressed.
    plain: Option<Box<[&'a [u8]; BATCH_ENTRIES]>>,
}

impl<'a> Batch<'a> {
    /// Creates an empty batch.
    pub fn new() -> Self {
        let nothing: &'a [u8] = &[];
        Batch {
            slots: Slots { bytes: nothing, ahead: nothing, slot_bytes: 1, taken: 0 },
            places: [0; BATCH_ENTRIES],
            values: [nothing; BATCH_ENTRIES],
            has_value: 0,
            count: 0,
            bytes: 0,
            plain: None,
        }
    }

    /// Replaces the contents by the entries in `slots` that have not expired at `now`. `kind` is the kind of values
    /// that the conditions read.
    pub fn fill(&mut self, slots: Slots<'a>, kind: Kind, now: u64) {
        let (mut left, mut valid, mut has_value, mut count, mut bytes) = (slots.taken, 0, 0, 0, 0);
        while left != 0 {
            let at = left.trailing_zeros() as usize;
            left &= left - 1;
            let start = at * slots.slot_bytes;
            if let Some(byte) = slots.ahead.get(start) {
                prefetch(byte);
            }
            let slot = &slots.bytes[start..][..slots.slot_bytes];
            let value = match entry::value_of_kind(slot, kind) {
                Some(value) => {
                    has_value |= 1 << count;
                    value
                }
                None => {
                    let entry = Entry::of(slot);
                    if !entry.is_valid(now) {
                        continue;
                    }
                    let is_wanted = entry.kind() == kind;
                    has_value |= u64::from(is_wanted) << count;
                    if is_wanted { entry.stored() } else { &[] }
                }
            };
            bytes += value.len();
            (self.places[count], self.values[count]) = (at as u8, value);
            valid |= 1 << at;
            count += 1;
        }
        (self.slots, self.has_value, self.count, self.bytes) =
            (Slots { taken: valid, ..slots }, has_value, count, bytes);
    }

    /// Replaces the contents by the entries in `slots`, none of which may have expired. `values` has their values by
    /// slot.
    pub fn fill_plain(&mut self, slots: Slots<'a>, kind: Kind, values: &[&'a [u8]]) {
        let plain = self.plain.insert(Box::new([&[]; BATCH_ENTRIES]));
        (self.slots, self.has_value, self.count, self.bytes) = (slots, 0, 0, 0);
        let mut left = slots.taken;
        while left != 0 {
            let at = left.trailing_zeros() as usize;
            left &= left - 1;
            let is_wanted = slots.entry(at).kind() == kind;
            self.has_value |= u64::from(is_wanted) << self.count;
            self.values[self.count] = if is_wanted { values[at] } else { &[] };
            self.bytes += self.values[self.count].len();
            (self.places[self.count], plain[self.count]) = (at as u8, values[at]);
            self.count += 1;
        }
    }

    /// Returns the number of entries.
    pub fn count(&self) -> usize {
        self.count
    }

    /// Returns the total bytes of the values that conditions read.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Returns a bitmap of all entries.
    pub fn all(&self) -> u64 {
        if self.count == 0 { 0 } else { u64::MAX >> (BATCH_ENTRIES - self.count) }
    }

    /// Returns a bitmap of the entries whose value is of the kind that conditions read.
    pub fn has_value(&self) -> u64 {
        self.has_value
    }

    /// Returns the entry with this index in the batch.
    #[inline]
    pub fn entry(&self, row: usize) -> Entry<'a> {
        self.slots.entry(usize::from(self.places[row]))
    }

    /// Returns the values that conditions read.
    pub fn values(&self) -> &[&'a [u8]] {
        &self.values[..self.count]
    }

    /// Writes the entries of a bitmap to the front of `entries`; returns this part.
    pub fn entries<'b>(
        &self,
        rows: u64,
        entries: &'b mut [ReadEntry<'a>; BATCH_ENTRIES],
    ) -> &'b [ReadEntry<'a>] {
        let (mut left, mut count) = (rows, 0);
        while left != 0 {
            let row = left.trailing_zeros() as usize;
            let entry = self.entry(row);
            let value = self.plain.as_ref().map_or_else(|| entry.stored(), |plain| plain[row]);
            entries[count] = ReadEntry::new(entry, value);
            left &= left - 1;
            count += 1;
        }
        &entries[..count]
    }

    /// Searches the bytes of all slots at once, which takes less time than searching value by value. Returns a bitmap
    /// of the entries among `asked` whose values contain a match; `None`, without searching, if too few of the bytes
    /// belong to values of these entries.
    pub fn find(&self, finder: &Finder<'_>, asked: u64) -> Option<u64> {
        let Slots { bytes, slot_bytes, taken, .. } = self.slots;
        let count = asked.count_ones() as usize;
        if self.plain.is_some() || count < 2 || count * 4 < (bytes.len() / slot_bytes) * 3 {
            return None;
        }
        let (mut found, mut from) = (0, 0);
        while let Some(hit) = bytes.get(from..).and_then(|rest| finder.find(rest)) {
            let hit = from + hit;
            let slot = hit / slot_bytes;
            let (bit, next) = (1 << slot, (slot + 1) * slot_bytes);
            // The index of an entry is the number of entries in lower slots.
            let row = (taken & (bit - 1)).count_ones();
            if taken & bit == 0 || asked >> row & 1 == 0 {
                from = next;
                continue;
            }
            let value = self.entry(row as usize).stored_range();
            let (start, end) = (slot * slot_bytes + value.start, slot * slot_bytes + value.end);
            if hit >= start && hit + finder.needle().len() <= end {
                found |= 1 << row;
                from = next;
            } else {
                // The match is not in the value: in the header, the key, or the unused end of the slot.
                from = if hit < start { start.max(hit + 1) } else { next };
            }
        }
        Some(found)
    }
}
