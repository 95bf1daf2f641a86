//! Sketches (such as HyperLogLog) of a column with few distinct values in a row group: counts the occurrences of
//! each dictionary code or integer, so that each distinct value is hashed only once.
//!
//! Invariant: the resulting sketch is the same as if all values had been decoded and added.

use crate::aggregate::aggregation::{Aggregation, StateOf};
use crate::aggregate::store::Store;
use crate::evaluate::array_of_ints;
use crate::lanes::RowSet;
use arrow_array::{ArrayRef, BooleanArray};
use farpool_columns::{Chunk, Integers, RowGroup};
use farpool_model::{Result, StateFunction, schema};

/// Maximum ratio of distinct values to rows of the row group for which counting is faster than adding each value.
const VALUES_PER_ROW_MAX: (usize, usize) = (1, 4);

/// A column of a row group whose values are counted.
pub(crate) struct Counted<'a> {
    chunk: &'a Chunk,
    codes: Integers<'a>,
    /// Dictionary entries; `None` if the codes are the values.
    values: Option<&'a ArrayRef>,
    counts: Counts,
    unpacked: Vec<i64>,
}

/// Number of occurrences of each value so far.
#[derive(Debug, Default)]
struct Counts {
    /// Counts by code; index 0 is the least code.
    of_codes: Vec<u64>,
    nulls: u64,
}

/// For each accumulator, the value counts that are not in its sketch yet; kept between the steps over one row group.
/// `None` before the first step.
#[derive(Debug, Default)]
pub(crate) struct CountsMemo(Option<Vec<Option<Counts>>>);

impl CountsMemo {
    /// Moves the counts of earlier steps into `fresh`, the newly bound columns of the same row group, and returns
    /// these.
    pub(super) fn resume<'a>(&mut self, fresh: Vec<Option<Counted<'a>>>) -> Vec<Option<Counted<'a>>> {
        let Some(counts) = self.0.take() else { return fresh };
        let resume = |(counted, counts): (Option<Counted<'a>>, Option<Counts>)| {
            let (counted, counts) = counted.zip(counts)?;
            Some(Counted { counts, ..counted })
        };
        fresh.into_iter().zip(counts).map(resume).collect()
    }

    /// Keeps the counts that are not added to their sketches yet for a later step.
    pub(super) fn keep(&mut self, left: Vec<Option<Counted<'_>>>) {
        self.0 = Some(left.into_iter().map(|counted| counted.map(|counted| counted.counts)).collect());
    }

    /// Returns whether all counts have been added to their sketches.
    pub(crate) fn is_done(&self) -> bool {
        self.0.iter().flatten().all(Option::is_none)
    }
}

impl<'a> Counted<'a> {
    /// Prepares counting for `state` over `group`; `None` if it is not a sketch of a column or counting does not pay.
    pub(super) fn bind(aggregation: &Aggregation, state: &StateOf, group: &'a RowGroup) -> Option<Self> {
        let (StateFunction::Sketch(_), [argument]) = (state.function, state.arguments.as_slice()) else {
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
        let pays = domain <= group.rows * most / per_rows || values.is_some();
        let counts = Counts { of_codes: vec![0; pays.then_some(domain)?], nulls: 0 };
        Some(Counted { chunk, codes, values, counts, unpacked: Vec::new() })
    }

    /// Counts the values of the rows that pass `mask`.
    pub(super) fn add(&mut self, rows: RowSet<'_>, mask: Option<&BooleanArray>) {
        match rows {
            RowSet::Range(start, end) => self.codes.unpack(start..end, &mut self.unpacked),
            RowSet::Rows(rows) => self.codes.gather(rows, &mut self.unpacked),
        }
        let least = self.codes.min();
        let valid =
            (self.chunk.null_count() > 0).then(|| self.chunk.validity(0..self.chunk.rows())).flatten();
        let Counts { of_codes, nulls } = &mut self.counts;
        let mut count = |code: i64| of_codes[(code - least) as usize] += 1;
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
                    Some(valid) if !valid.value(row) => *nulls += 1,
                    _ => count(*code),
                }
            }
        }
    }

    /// Adds the counts to the state of the only group.
    ///
    /// # Errors
    /// `OverLimit` for more rows than a sketch can count.
    pub(super) fn finish(self, store: &mut Store) -> Result<()> {
        let (first, last) = (self.codes.min(), self.codes.max());
        let Counts { of_codes, nulls } = self.counts;
        let (values, counts) = match self.values {
            // Codes of a dictionary begin at 0, but the least code of the chunk may be greater.
            Some(values) => {
                let mut counts = vec![0; values.len()];
                let first = usize::try_from(first).unwrap_or(0);
                counts[first..first + of_codes.len()].copy_from_slice(&of_codes);
                (values.clone(), counts)
            }
            None => {
                let values = (first..=last).map(i128::from);
                (array_of_ints(self.chunk.data_type(), values, None)?, of_codes)
            }
        };
        store.states()?.update_counted(0, &values, &counts, nulls)
    }
}
