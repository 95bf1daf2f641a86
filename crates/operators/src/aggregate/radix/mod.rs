//! The radix way: rows of many groups are put aside by the hash of their keys, and grouped later, a partition
//! at a time.
//!
//! A table of groups that outgrows the caches costs a cache miss or two for each row. From
//! [`Paths::groups_direct_max`](crate::plan::Paths) groups on, a worker therefore only writes the keys and the
//! arguments of each row behind those of the same partition ([`Records`]): keys that are packed as one word,
//! others as the row of words that tables of groups hold. When the room for them is used up, each partition's
//! records are grouped at once ([`Part`]), in a table that the caches hold; what is left at the end is grouped
//! when the workers' partitions are merged, which have nothing to do with one another. Source: Boncz,
//! Manegold, Kersten, "Database Architecture Optimized for the New Bottleneck: Memory Access", VLDB 1999
//! (radix partitioning).
//!
//! Contract. Input: rows of keys whose arguments are on lanes. Output: groups. Memory: that of the groups,
//! and [`Shape::bytes_max`] for each worker, or one batch where that is more. Errors: none but defects.

mod merge;
mod part;
mod records;
mod rows;
mod shape;

use super::compile::Aggregation;
use crate::group::Rows;
use crate::project::Emit;
use farpool_model::Result;
use merge::Batches;
pub(super) use merge::Partitions;
use part::Part;
use records::Records;
pub(super) use shape::Shape;

/// Bits of the hash that name a partition: a million groups make partitions that fit the L2 cache, and the
/// places where 256 partitions are written fit the L1 cache.
const PARTITION_BITS: u32 = 8;

/// Partitions.
pub(super) const PARTITIONS: usize = 1 << PARTITION_BITS;

/// The keys of some rows.
#[derive(Clone, Copy)]
pub(super) enum Keys<'a> {
    /// Packed.
    Codes(&'a [i64]),
    /// As rows of words.
    Rows(&'a Rows),
}

/// What one worker put aside, and the groups of what it has grouped of that.
pub(super) struct Radix {
    records: Records,
    /// One for each partition, or none at all.
    parts: Vec<Part>,
}

impl Radix {
    /// Nothing yet.
    pub(super) fn new(shape: &Shape) -> Self {
        Radix { records: Records::new(shape.words, shape.bytes_max, shape.hash_key), parts: Vec::new() }
    }

    /// Bytes held.
    pub(super) fn bytes(&self) -> usize {
        self.records.bytes() + self.parts.iter().map(Part::bytes).sum::<usize>()
    }

    /// Whether there is nothing.
    pub(super) fn is_empty(&self) -> bool {
        self.records.is_empty() && self.parts.is_empty()
    }

    /// Adds rows: the keys, and the other words of a record. Groups what was put aside if there is no room for
    /// them.
    ///
    /// # Errors
    /// None but defects.
    fn add(
        &mut self,
        aggregation: &Aggregation,
        shape: &Shape,
        keys: Keys<'_>,
        words: &[&[i64]],
    ) -> Result<()> {
        let needed = match keys {
            Keys::Codes(codes) => codes.len() * shape.words,
            Keys::Rows(rows) => rows.hashes().len() * shape.words + rows.words(),
        };
        if !self.records.has_room(needed) {
            self.group(aggregation, shape)?;
            self.records.make_room(needed);
        }
        match keys {
            Keys::Codes(codes) => self.records.push(codes, words),
            Keys::Rows(rows) => self.records.push_rows(rows, words),
        }
        Ok(())
    }

    /// Groups all that was put aside.
    ///
    /// # Errors
    /// None but defects.
    fn group(&mut self, aggregation: &Aggregation, shape: &Shape) -> Result<()> {
        if self.records.is_empty() {
            return Ok(());
        }
        // Hashes make partitions alike: one tells how many groups to expect in the next.
        let mut expected = 0;
        for partition in 0..PARTITIONS {
            if self.parts.len() == partition {
                self.parts.push(Part::new(aggregation, expected));
            }
            let part = &mut self.parts[partition];
            part.add_records(shape, &self.records, partition)?;
            expected = part.groups.len();
        }
        self.records.clear();
        Ok(())
    }

    /// Groups all that was put aside and lets the groups go; returns how many there were.
    ///
    /// # Errors
    /// `Invalid` when a sum does not fit its type.
    pub(super) fn give(
        &mut self,
        aggregation: &Aggregation,
        shape: &Shape,
        emit: &mut Emit<'_>,
    ) -> Result<usize> {
        self.group(aggregation, shape)?;
        let parts = std::mem::take(&mut self.parts);
        let mut batches = Batches::default();
        for part in &parts {
            if part.give(aggregation, &mut |batch| batches.add(batch, emit))?.is_break() {
                break;
            }
        }
        batches.finish(emit)?;
        Ok(parts.iter().map(|part| part.groups.len()).sum())
    }
}
