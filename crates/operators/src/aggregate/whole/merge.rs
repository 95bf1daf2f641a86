//! Merges the arrays of groups of all worker threads in the *whole-table way* (one array of groups per worker,
//! indexed by a group number that is computed from the group keys), and emits the groups, one range of group numbers
//! at a time.

use super::fit::{Form, Whole};
use super::table::WholeTable;
use crate::aggregate::aggregation::{Aggregation, Kind};
use crate::aggregate::dense::Source;
use crate::aggregate::store::Store;
use crate::failure;
use crate::project::Emit;
use arrow_array::RecordBatch;
use farpool_model::cast::u32_checked;
use farpool_model::{Result, limits};
use std::ops::Range;

/// Number of group numbers (array indices) per merge task.
const NUMBERS_PER_TASK: usize = 64 << 10;

/// Number of group numbers that are examined before the number of groups found is compared with the batch size again.
const NUMBERS_AT_A_TIME: usize = 1024;

/// The arrays of all workers, prepared for merging.
pub(crate) struct WholeTables {
    tables: Vec<WholeTable>,
    domain: usize,
}

impl WholeTables {
    /// Takes the arrays of all workers.
    pub(crate) fn new(whole: &Whole, tables: Vec<WholeTable>) -> Self {
        WholeTables { tables, domain: whole.domain }
    }

    /// Returns the number of merge tasks.
    pub(crate) fn tasks(&self) -> usize {
        if self.tables.is_empty() { 0 } else { self.domain.div_ceil(NUMBERS_PER_TASK) }
    }

    /// Emits the groups of one range of group numbers.
    ///
    /// # Errors
    /// `Invalid` when a sum does not fit its type.
    pub(crate) fn run(
        &self,
        aggregation: &Aggregation,
        whole: &Whole,
        task: usize,
        emit: &mut Emit<'_>,
    ) -> Result<()> {
        let range = task * NUMBERS_PER_TASK..self.domain.min((task + 1) * NUMBERS_PER_TASK);
        let mut found = Vec::with_capacity(limits::BATCH_ROWS);
        for start in range.clone().step_by(NUMBERS_AT_A_TIME) {
            let end = range.end.min(start + NUMBERS_AT_A_TIME);
            self.find(start..end, &mut found);
            let full = found.len() + NUMBERS_AT_A_TIME > limits::BATCH_ROWS;
            if !found.is_empty() && (full || end == range.end) {
                if emit(self.batch(aggregation, whole, &found)?).is_break() {
                    return Ok(());
                }
                found.clear();
            }
        }
        Ok(())
    }

    /// Appends to `found` the group numbers in `range` whose groups exist. `range` must start on a multiple of 64.
    fn find(&self, range: Range<usize>, found: &mut Vec<u32>) {
        if self.tables[0].form == Form::Bits {
            for word in range.start / 64..range.end.div_ceil(64) {
                let mut bits = self.tables.iter().fold(0, |bits, t| bits | t.words[word]).cast_unsigned();
                while bits != 0 {
                    let number = word * 64 + bits.trailing_zeros() as usize;
                    // The bit after the last possible group belongs to the discard group, to which excluded rows are
                    // added.
                    if number < range.end {
                        found.push(u32_checked(number));
                    }
                    bits &= bits - 1;
                }
            }
            return;
        }
        let width = self.tables[0].width;
        let mut held = found.len();
        found.resize(held + range.len(), 0);
        for number in range {
            let first = number * width;
            let there = self.tables.iter().fold(0, |any, t| any | t.words[first]) != 0;
            found[held] = number as u32;
            held += usize::from(there);
        }
        found.truncate(held);
    }

    fn batch(&self, aggregation: &Aggregation, whole: &Whole, numbers: &[u32]) -> Result<RecordBatch> {
        let keys = whole.keys.iter().map(|key| key.array(numbers));
        let mut arrays = keys.collect::<Result<Vec<_>>>()?;
        if !aggregation.results.is_empty() {
            let stores = aggregation.accumulators.iter().zip(&whole.measures.sources);
            let stores: Vec<Store> =
                stores.map(|(a, source)| self.store(a.kind, *source, whole, numbers)).collect();
            let all: Vec<u32> = (0..u32_checked(numbers.len())).collect();
            arrays.extend(aggregation.finish(&stores, &all)?);
        }
        RecordBatch::try_new(aggregation.schema.clone(), arrays).map_err(failure::of_kernel)
    }

    /// Returns the accumulator of the groups `numbers`, merged from all workers, in the order of `numbers`.
    fn store(&self, kind: Kind, source: Source, whole: &Whole, numbers: &[u32]) -> Store {
        match source {
            // The count is only compared with 0, so that any positive number will do.
            Source::AllRows if whole.form != Form::Rows => Store::of_counts(vec![1; numbers.len()]),
            Source::AllRows => Store::of_counts(self.summed(0, false, numbers)),
            Source::Sum(sum) => {
                let tag = sum == 0 && whole.form == Form::Tagged;
                let sums = self.summed(whole.form.rows_words() + sum, tag, numbers);
                if kind == Kind::Count { Store::of_counts(sums) } else { Store::of_sums(sums) }
            }
            Source::Fold(index, _) => self.folds(index, numbers),
        }
    }

    fn summed(&self, word: usize, tag: bool, numbers: &[u32]) -> Vec<i64> {
        let mut sums = vec![0; numbers.len()];
        let shift = u32::from(tag);
        for table in &self.tables {
            let places = numbers.iter().map(|number| *number as usize * table.width + word);
            sums.iter_mut().zip(places).for_each(|(sum, place)| *sum += table.words[place] >> shift);
        }
        sums
    }

    fn folds(&self, index: usize, numbers: &[u32]) -> Store {
        let mut words = vec![0; numbers.len()];
        for table in &self.tables {
            table.merge_fold(index, numbers, &mut words);
        }
        let fold = &self.tables[0].folds[index];
        Store::of_folds(words.into_iter().map(|word| i128::from(fold.value(word))).collect(), fold.fold)
    }
}
