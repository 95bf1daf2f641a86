//! The partitioned rows of one worker, and the groups of those that it has grouped.

use super::part::Part;
use super::records::Records;
use super::shape::{PARTITIONS, Shape};
use crate::aggregate::aggregation::Aggregation;
use crate::aggregate::give::Batches;
use crate::group::Rows;
use crate::pace::{Pace, Unpaced};
use crate::project::Emit;
use farpool_model::{Result, limits};

/// The keys of some rows.
#[derive(Clone, Copy)]
pub(crate) enum Keys<'a> {
    /// Packed.
    Codes(&'a [i64]),
    /// As rows of words.
    Rows(&'a Rows),
}

/// The partitioned rows of one worker, and the groups of those that it has grouped.
pub(crate) struct Radix {
    pub(super) records: Records,
    /// One for each partition, but for the last ones before these have been grouped for the first time.
    pub(super) parts: Vec<Part>,
    /// How many partitions were grouped, if steps have begun to group the rows and are not done.
    grouped: Option<usize>,
    /// Words of the largest batch of records so far.
    batch_words: usize,
    /// Groups that are gone.
    given: usize,
}

impl Radix {
    /// Nothing yet.
    pub(crate) fn new(shape: &Shape) -> Self {
        Radix {
            records: Records::new(shape.words, shape.bytes_max, shape.hash_key),
            parts: Vec::new(),
            grouped: None,
            batch_words: limits::BATCH_ROWS * shape.words,
            given: 0,
        }
    }

    /// Bytes held.
    pub(crate) fn bytes(&self) -> usize {
        self.records.bytes() + self.parts.iter().map(Part::bytes).sum::<usize>()
    }

    /// Whether there is nothing.
    pub(crate) fn is_empty(&self) -> bool {
        self.records.is_empty() && self.parts.is_empty()
    }

    /// Adds rows: the keys, and the other words of a record. Groups those that are there if there is no room for
    /// more.
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

    /// Groups the partitioned rows if another batch may find no room. False if the step is over before that is
    /// done.
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

    /// Groups the partitioned rows; false if the step is over before that is done.
    ///
    /// # Errors
    /// Fails only on a bug in this crate.
    fn group(&mut self, aggregation: &Aggregation, shape: &Shape, pace: &mut dyn Pace) -> Result<bool> {
        if self.records.is_empty() {
            return Ok(true);
        }
        for partition in self.grouped.take().unwrap_or(0)..PARTITIONS {
            if self.parts.len() == partition {
                // Hashes make partitions alike: one tells how many groups to expect in the next.
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

    /// Groups all partitioned rows and lets the groups go; false if the step is over before that is done.
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
            // Whether more is wanted shows at the end of the row group.
            let _ = part.give(aggregation, &mut |batch| batches.add(batch, emit))?;
            if !self.parts.is_empty() && pace.ends() {
                batches.finish(emit)?;
                return Ok(false);
            }
        }
        batches.finish(emit)?;
        Ok(true)
    }

    /// Groups that are gone.
    pub(crate) fn given(&self) -> usize {
        self.given
    }
}
