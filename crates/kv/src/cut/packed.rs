//! Compressed entries: those that are read quickly are while their shard is taken, others are copied, and read when others
//! have it.

use super::{BYTES_COPIED_PER_NS, ReadEntry};
use crate::entry::Entry;
use crate::judge::{BATCH_ENTRIES, Slots};
use crate::packing::Unpackers;
use farpool_model::Result;
use std::ops::Range;

/// Copies of compressed entries.
#[derive(Default)]
pub(super) struct PackedEntries {
    /// The entries, one behind the other, and where each ends.
    bytes: Vec<u8>,
    ends: Vec<(usize, usize)>,
    /// What reads them, one after the other.
    unpackers: Vec<Unpackers>,
    plain: Vec<u8>,
}

impl PackedEntries {
    /// Copies an entry of a table with these unpackers.
    pub fn add(&mut self, entry: Entry<'_>, unpackers: &Unpackers) {
        if self.unpackers.last().is_none_or(|last| !last.is(unpackers)) {
            self.unpackers.push(unpackers.clone());
        }
        self.bytes.extend_from_slice(entry.bytes());
        self.ends.push((self.bytes.len(), self.unpackers.len() - 1));
    }

    /// Calls `f` with the entries, in their order, and forgets them.
    ///
    /// # Errors
    /// `Corrupt` where one is damaged.
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

/// The plain values of the entries of some slots.
pub(super) struct PlainValues {
    /// Those that were compressed, one behind the other.
    bytes: Vec<u8>,
    /// Where they are, by slot; the others are in their slots.
    places: [Option<Range<usize>>; BATCH_ENTRIES],
    taken: u64,
}

impl Default for PlainValues {
    fn default() -> Self {
        PlainValues { bytes: Vec::new(), places: [const { None }; BATCH_ENTRIES], taken: 0 }
    }
}

impl PlainValues {
    /// Takes the values of entries that are valid at `now`, in place of what was there, and returns about how long it took, in
    /// nanoseconds. Entries that take long to read, or come when there are no more than `room_ns` left, go to `slow`.
    ///
    /// # Errors
    /// `Corrupt` where one is damaged.
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

    /// The slots whose values were taken, and these, by slot.
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
