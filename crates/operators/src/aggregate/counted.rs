//! Sketches of a column of which a row group has few values: codes are counted, and each value is hashed once.
//!
//! Invariant: the state is the same as if the values had been decoded.

use super::compile::{Aggregation, StateOf};
use super::store::Store;
use crate::evaluate::array_of_ints;
use crate::lanes::RowSet;
use arrow_array::{ArrayRef, BooleanArray};
use farpool_columns::{Chunk, Integers, RowGroup};
use farpool_model::{AggregateFunction, Result, schema};

/// Values per row of the row group up to which counting them pays.
const VALUES_PER_ROW_MAX: (usize, usize) = (1, 4);

/// What was counted of one row group.
pub(super) struct Counted<'a> {
    chunk: &'a Chunk,
    codes: Integers<'a>,
    /// The values of a dictionary; `None` if the codes are the values.
    values: Option<&'a ArrayRef>,
    /// From the least code to the greatest.
    counts: Vec<u64>,
    nulls: u64,
    unpacked: Vec<i64>,
}

impl<'a> Counted<'a> {
    /// The counts for `state` over `group`; `None` when it does not pay or is no sketch of a column.
    pub(super) fn bind(aggregation: &Aggregation, state: &StateOf, group: &'a RowGroup) -> Option<Self> {
        let (AggregateFunction::Sketch(_), [argument]) = (state.function, state.arguments.as_slice()) else {
            return None;
        };
        let chunk: &'a Chunk = &group.chunks[aggregation.arguments[*argument].compiled.as_column()?];
        let (codes, values) = match chunk.dictionary() {
            Some(dictionary) => (dictionary.codes(), Some(dictionary.values())),
            None if schema::is_integer_like(chunk.data_type()) => (chunk.integers()?, None),
            None => return None,
        };
        let domain = usize::try_from(codes.max().checked_sub(codes.min())?).ok()?.checked_add(1)?;
        let (most, per_rows) = VALUES_PER_ROW_MAX;
        let counts = vec![0; (domain <= group.rows * most / per_rows || values.is_some()).then_some(domain)?];
        Some(Counted { chunk, codes, values, counts, nulls: 0, unpacked: Vec::new() })
    }

    /// Counts the rows that `mask` lets pass.
    pub(super) fn add(&mut self, rows: RowSet<'_>, mask: Option<&BooleanArray>) {
        match rows {
            RowSet::Range(start, end) => self.codes.unpack(start..end, &mut self.unpacked),
            RowSet::Rows(rows) => self.codes.gather(rows, &mut self.unpacked),
        }
        let least = self.codes.min();
        let valid =
            (self.chunk.null_count() > 0).then(|| self.chunk.validity(0..self.chunk.rows())).flatten();
        let counts = &mut self.counts;
        let mut count = |code: i64| counts[(code - least) as usize] += 1;
        if valid.is_none() && mask.is_none() {
            return self.unpacked[..rows.len()].iter().for_each(|code| count(*code));
        }
        for (i, code) in self.unpacked[..rows.len()].iter().enumerate() {
            let row = match rows {
                RowSet::Range(start, _) => start + i,
                RowSet::Rows(rows) => rows[i] as usize,
            };
            if mask.is_none_or(|mask| mask.value(i)) {
                match &valid {
                    Some(valid) if !valid.value(row) => self.nulls += 1,
                    _ => count(*code),
                }
            }
        }
    }

    /// Takes what was counted into the state of all rows.
    ///
    /// # Errors
    /// `OverLimit` for more rows than a sketch counts.
    pub(super) fn finish(self, store: &mut Store) -> Result<()> {
        let (first, last) = (self.codes.min(), self.codes.max());
        let (values, counts) = match self.values {
            // The dictionary's codes begin at 0, those of the chunk perhaps later.
            Some(values) => {
                let mut counts = vec![0; values.len()];
                let first = usize::try_from(first).unwrap_or(0);
                counts[first..first + self.counts.len()].copy_from_slice(&self.counts);
                (values.clone(), counts)
            }
            None => {
                let values = (first..=last).map(i128::from);
                (array_of_ints(self.chunk.data_type(), values, None)?, self.counts)
            }
        };
        store.states()?.update_counted(0, &values, &counts, self.nulls)
    }
}
