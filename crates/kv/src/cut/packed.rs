//! Compressed entries that are copied while their shard is taken, and read when others have it.

use super::ReadEntry;
use crate::entry::Entry;
use crate::packing::Unpackers;
use farpool_model::Result;

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
