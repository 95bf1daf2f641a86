//! State of one worker in the *radix way* of aggregation: its rows, partitioned by the hash of their group keys,
//! and the groups that were made of earlier rows.
//!
//! A *step* is the work of a thread at a time, about a millisecond.

use super::part::Part;
use super::records::Records;
use super::shape::{PARTITIONS, Shape};
use crate::aggregate::aggregation::Aggregation;
use crate::aggregate::give::Batches;
use crate::group::Rows;
use crate::pace::{Pace, Unpaced};
use crate::project::Emit;
use farpool_model::{Result, limits};

/// Group keys of some rows, in the form in which they are partitioned.
#[derive(Clone, Copy)]
pub(crate) enum Keys<'a> {
    /// Packed group keys.
    Codes(&'a [i64]),
    /// Group keys as sequences of words.
    Rows(&'a Rows),
}

/// Partitioned rows of one worker, and the groups that were made of earlier ones.
pub(crate) struct Radix {
    pub(super) records: Records,
    /// Groups by partition. Partitions after the last entry have not been grouped yet.
    pub(super) parts: Vec<Part>,
    /// Number of partitions that are already grouped in the current grouping of all records, which may take several
    /// steps.
    grouped: Option<usize>,
    /// Maximum number of words that the records of one batch have taken so far.
    batch_words: usize,
    /// Number of groups that were emitted.
    given: usize,
}

impl Radix {
    /// Creates an empty state.
    pub(crate) fn new(shape: &Shape) -> Self {
        Radix {
            records: Records::new(shape.words, shape.bytes_max, shape.hash_key),
            parts: Vec::new(),
            grouped: None,
            batch_words: limits::BATCH_ROWS * shape.words,
            given: 0,
        }
    }

    /// Returns the bytes of memory that records and groups take.
    pub(crate) fn bytes(&self) -> usize {
        self.records.bytes() + self.parts.iter().map(Part::bytes).sum::<usize>()
    }

    /// Returns whether there are neither records nor groups.
    pub(crate) fn is_empty(&self) -> bool {
        self.records.is_empty() && self.parts.is_empty()
    }

    /// Adds rows, given their group keys and the other words of their records. If they do not fit, the records are
    /// grouped first.
    ///
    /// # Errors
    /// Fails only on a bug in this crate.
    pub(super) fn add(
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
        self.batch_words = self.batch_words.max(needed);
        if !self.records.has_room(needed) {
            self.group(aggregation, shape, &mut Unpaced)?;
            self.records.make_room(needed);
        }
        match keys {
            Keys::Codes(codes) => self.records.push(codes, words),
            Keys::Rows(rows) => self.records.push_rows(rows, words),
        }
        Ok(())
    }

    /// Groups the records if another batch may not fit. Returns false if the step ends before the grouping is
    /// finished.
    ///
    /// # Errors
    /// Fails only on a bug in this crate.
    pub(crate) fn make_room(
        &mut self,
        aggregation: &Aggregation,
        shape: &Shape,
        pace: &mut dyn Pace,
    ) -> Result<bool> {
        let has_room = self.grouped.is_none() && self.records.has_room(self.batch_words);
        Ok(has_room || self.group(aggregation, shape, pace)?)
    }

    /// Groups the records of all partitions. Returns false if the step ends before the grouping is finished.
    ///
    /// # Errors
    /// Fails only on a bug in this crate.
    pub(crate) fn group(
        &mut self,
        aggregation: &Aggregation,
        shape: &Shape,
        pace: &mut dyn Pace,
    ) -> Result<bool> {
        if self.records.is_empty() {
            return Ok(true);
        }
        for partition in self.grouped.take().unwrap_or(0)..PARTITIONS {
            if self.parts.len() == partition {
                // Partitions have about the same number of groups, because hashes are uniformly distributed.
                let expected = self.parts.last().map_or(0, |part| part.groups.len());
                self.parts.push(Part::new(aggregation, expected));
            }
            self.parts[partition].add_records(shape, &self.records, partition)?;
            self.records.forget(partition);
            if partition + 1 < PARTITIONS && pace.ends() {
                self.grouped = Some(partition + 1);
                return Ok(false);
            }
        }
        self.records.clear();
        Ok(true)
    }

    /// Groups all records and emits the groups. Returns false if the step ends before all groups are emitted.
    ///
    /// # Errors
    /// `Invalid` when a sum does not fit its type.
    pub(crate) fn give(
        &mut self,
        aggregation: &Aggregation,
        shape: &Shape,
        pace: &mut dyn Pace,
        emit: &mut Emit<'_>,
    ) -> Result<bool> {
        if !self.group(aggregation, shape, pace)? {
            return Ok(false);
        }
        let mut batches = Batches::default();
        while let Some(part) = self.parts.pop() {
            self.given += part.groups.len();
            // If `emit` returns `Break`, that is noticed at the end of the row group.
            let _ = part.give(aggregation, &mut |batch| batches.add(batch, emit))?;
            if !self.parts.is_empty() && pace.ends() {
                batches.finish(emit)?;
                return Ok(false);
            }
        }
        batches.finish(emit)?;
        Ok(true)
    }

    /// Returns the number of groups that were emitted.
    pub(crate) fn given(&self) -> usize {
        self.given
    }
}
