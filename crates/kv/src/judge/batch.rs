//! Entries that are judged together: those of up to 64 slots.

use crate::cut::ReadEntry;
use crate::entry::{self, Entry, Kind};
use farpool_memory::prefetch;
use memchr::memmem::Finder;

/// Entries of a batch at most: bits of a word.
pub(crate) const BATCH_ENTRIES: usize = 64;

/// Consecutive slots of a page, as many as a word has bits.
#[derive(Clone, Copy)]
pub(crate) struct Slots<'a> {
    /// The bytes of all these slots.
    pub bytes: &'a [u8],
    /// Those of the slots that are read next, as far as they are known: they come to the cache in the meantime.
    pub ahead: &'a [u8],
    /// Bytes of a slot.
    pub slot_bytes: usize,
    /// The slots that have entries, the first as the lowest bit.
    pub taken: u64,
}

impl<'a> Slots<'a> {
    /// The slot of an entry that lies alone.
    pub fn of(entry: Entry<'a>) -> Self {
        let bytes = entry.bytes();
        Slots { bytes, ahead: &[], slot_bytes: bytes.len(), taken: 1 }
    }

    /// The entry in a slot.
    #[inline]
    pub fn entry(self, at: usize) -> Entry<'a> {
        Entry::of(&self.bytes[at * self.slot_bytes..][..self.slot_bytes])
    }
}

/// The entries of some slots that have not expired, and their values.
pub(crate) struct Batch<'a> {
    slots: Slots<'a>,
    /// The slot of each entry; they ascend.
    places: [u8; BATCH_ENTRIES],
    /// The values that conditions are about; empty where there is none.
    values: [&'a [u8]; BATCH_ENTRIES],
    /// For each entry, whether it has such a value.
    has_value: u64,
    count: usize,
    /// Bytes of all values.
    bytes: usize,
    /// The values of all kinds, where they are not in the slots.
    plain: Option<Box<[&'a [u8]; BATCH_ENTRIES]>>,
}

impl<'a> Batch<'a> {
    /// A batch without entries.
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

    /// Takes the entries of slots that are valid at `now`, in place of what was there. Conditions are about values of one
    /// kind.
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

    /// Takes the entries of slots, which are valid, in place of what was there. Their values, by slot, are elsewhere.
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

    /// Number of entries.
    pub fn count(&self) -> usize {
        self.count
    }

    /// Bytes of all values that conditions are about.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// All entries, a bit each.
    pub fn all(&self) -> u64 {
        if self.count == 0 { 0 } else { u64::MAX >> (BATCH_ENTRIES - self.count) }
    }

    /// The entries that have a value of the wanted kind.
    pub fn has_value(&self) -> u64 {
        self.has_value
    }

    /// An entry.
    #[inline]
    pub fn entry(&self, row: usize) -> Entry<'a> {
        self.slots.entry(usize::from(self.places[row]))
    }

    /// The values that conditions are about.
    pub fn values(&self) -> &[&'a [u8]] {
        &self.values[..self.count]
    }

    /// Puts some of the entries into `entries`, and returns these.
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

    /// Searches all slots at once, which costs less than searching one value after the other: those of `asked` in whose values
    /// something is found. `None` where few of the bytes are such values, or none.
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
            // The entries of a batch are in the order of their slots.
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
                // In the header, the key, or what is unused of the slot.
                from = if hit < start { start.max(hit + 1) } else { next };
            }
        }
        Some(found)
    }
}
