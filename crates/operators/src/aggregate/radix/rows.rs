//! Partitions the rows of a batch by the hash of their group keys: writes the group keys and arguments of each
//! row as a record. Arguments are *lanes*: columns or expressions evaluated as 64-bit integers.

use super::shape::Shape;
use super::worker::{Keys, Radix};
use crate::aggregate::aggregation::Aggregation;
use crate::aggregate::valid::valid_bits;
use crate::bits;
use crate::lanes::{BoundLanes, LaneBuffers, RowSet};
use farpool_columns::RowGroup;
use farpool_model::Result;

impl Radix {
    /// Adds rows of `group` as records, from their group keys and evaluated lanes.
    ///
    /// # Errors
    /// Fails only on a bug in this crate.
    pub(crate) fn add_rows(
        &mut self,
        aggregation: &Aggregation,
        shape: &Shape,
        group: &RowGroup,
        (lanes, buffers): (&BoundLanes<'_>, &LaneBuffers),
        rows: RowSet<'_>,
        keys: Keys<'_>,
    ) -> Result<()> {
        let valid = valid_words(aggregation, shape, group, rows);
        // A lane that can be evaluated for the whole table is unbound for a row group only if its column is all NULL
        // there.
        let is_bound = |lane: &usize| lanes.interval(*lane).is_some();
        let nothing = vec![0; if shape.lanes.iter().all(is_bound) { 0 } else { rows.len() }];
        let values = |lane: &usize| match is_bound(lane) {
            true => &buffers.values(*lane)[..rows.len()],
            false => nothing.as_slice(),
        };
        let mut words: Vec<&[i64]> = shape.lanes.iter().map(values).collect();
        if !shape.masked.is_empty() {
            words.push(&valid);
        }
        self.add(aggregation, shape, keys, &words)
    }
}

/// Returns for each row a word with one bit for each argument that can be NULL, set if it is not NULL.
fn valid_words(aggregation: &Aggregation, shape: &Shape, group: &RowGroup, rows: RowSet<'_>) -> Vec<i64> {
    let mut words = vec![0; if shape.masked.is_empty() { 0 } else { rows.len() }];
    for (bit, argument) in shape.masked.iter().enumerate() {
        match valid_bits(group, aggregation.arguments[*argument].compiled.columns(), rows) {
            None => words.iter_mut().for_each(|word| *word |= 1 << bit),
            Some(valid) => bits::for_each(&valid, |row| words[row] |= 1 << bit),
        }
    }
    words
}
