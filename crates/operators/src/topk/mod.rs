//! Top-k: of the rows that passed, or of the groups, only the first k in an order are returned (Farview, section 5;
//! Ibex, section 4: rows that the host would discard need not be sent).
//!
//! Contract. Input: batches of a row group, or the groups of a merge. Output: exactly the first k rows in the order of
//! the program, or all if there are fewer; among rows that tie any may be returned. Order: that of the program, though
//! callers must not rely on it. Memory: a worker holds k rows and about as many again that wait to be cut, with
//! [`limits::ROW_GROUP_ROWS`] rows at most for k. Parallelism: each worker has its own [`Candidates`]; they share a
//! [`Threshold`]. Errors: an expression that fails on a row; those of columns that are no keys are evaluated only on
//! rows that may still be returned.
//!
//! Once some worker has k rows, the last of them is a threshold for all: a row that follows it in the first key cannot
//! be returned. The threshold is a condition on that key like any other ([`crate::select`]), so that zone maps rule out
//! row groups by it and the rest is compared on encoded values. The keys of the remaining rows are evaluated, and only
//! rows that are among the first k so far get their other columns (late materialisation). The row groups with the best
//! bounds come first ([`TopRows::favourable`]).
//!
//! Example: k is 2, and a worker has the rows 3 and 5 in ascending order. A row group with the bounds 6 and 9 is
//! skipped; a row 5 of another one is not, since it ties with the last row only in the first key.

mod candidates;
mod collect;
mod rows;
mod threshold;

pub(crate) use candidates::Candidates;
pub(crate) use collect::Collector;
pub(crate) use rows::TopRows;
pub(crate) use threshold::Threshold;

use crate::failure;
use crate::project::Emit;
use arrow_array::cast::AsArray;
use arrow_array::{Array, ArrayRef, RecordBatch, UInt32Array};
use arrow_ord::sort::{LexicographicalComparator, SortColumn, SortOptions, lexsort_to_indices};
use arrow_schema::{DataType, SchemaRef};
use arrow_select::concat::concat_batches;
use arrow_select::take::take;
use farpool_model::{Error, Program, Result, SortKey, cast, limits};
use std::sync::Arc;

/// The first `rows` rows of a result in an order.
#[derive(Clone, Debug)]
pub(crate) struct Top {
    /// At least one key, over the columns of the result.
    pub(crate) order: Vec<SortKey>,
    /// The number of rows wanted (k).
    pub(crate) rows: usize,
}

impl Top {
    /// Returns the top-k of `program`; `None` if it has no order.
    ///
    /// # Errors
    /// `OverLimit` when the program wants more rows than a top-k may keep.
    pub(crate) fn of(program: &Program) -> Result<Option<Top>> {
        if program.top_is_too_large() {
            return Err(Error::over_limit(format!(
                "a program with an order may give {} rows",
                limits::TOP_ROWS_MAX
            )));
        }
        let rows = program.limit.map_or(0, cast::usize_saturating);
        Ok((!program.order.is_empty()).then(|| Top { order: program.order.clone(), rows }))
    }

    /// Returns the positions of the first k rows, in order. `keys` has an array for each key of the order.
    fn first(&self, keys: &[ArrayRef]) -> Result<UInt32Array> {
        lexsort_to_indices(&self.sort_columns(keys), Some(self.rows)).map_err(failure::of_kernel)
    }

    /// Returns the positions of the first k rows, unsorted except that the last of them in the order comes
    /// last. There must be at least k rows, and k must be at least one. Sorting them as well would take most
    /// of the time.
    pub(super) fn first_unsorted(&self, keys: &[ArrayRef]) -> Result<Vec<u32>> {
        let comparator =
            LexicographicalComparator::try_new(&self.sort_columns(keys)).map_err(failure::of_kernel)?;
        let mut places: Vec<u32> = (0..cast::u32_checked(keys[0].len())).collect();
        places.select_nth_unstable_by(self.rows - 1, |a, b| comparator.compare(*a as usize, *b as usize));
        places.truncate(self.rows);
        Ok(places)
    }

    fn sort_columns(&self, keys: &[ArrayRef]) -> Vec<SortColumn> {
        let column = |(key, values): (&SortKey, &ArrayRef)| SortColumn {
            values: values.clone(),
            options: Some(SortOptions { descending: key.descending, nulls_first: key.nulls_first }),
        };
        self.order.iter().zip(keys).map(column).collect()
    }

    /// Returns the first rows of `batches`, which have `schema`, in order.
    pub(super) fn cut(&self, schema: &SchemaRef, batches: &[RecordBatch]) -> Result<RecordBatch> {
        let all = concat_batches(schema, batches).map_err(failure::of_kernel)?;
        let keys: Vec<ArrayRef> = self.order.iter().map(|key| all.column(key.column).clone()).collect();
        picked(&all, &self.first(&keys)?)
    }
}

/// Returns the rows at `indices`, copied so that they hold no more memory than they need.
pub(super) fn picked(batch: &RecordBatch, indices: &UInt32Array) -> Result<RecordBatch> {
    let pick = |column: &ArrayRef| Ok(compact(take(column, indices, None).map_err(failure::of_kernel)?));
    let columns = batch.columns().iter().map(pick).collect::<Result<_>>()?;
    RecordBatch::try_new(batch.schema(), columns).map_err(failure::of_kernel)
}

/// Returns an array of the same values whose strings or binaries do not keep the buffers of dropped rows
/// alive.
pub(super) fn compact(array: ArrayRef) -> ArrayRef {
    match array.data_type() {
        DataType::Utf8View => Arc::new(array.as_string_view().gc()),
        DataType::BinaryView => Arc::new(array.as_binary_view().gc()),
        _ => array,
    }
}

/// Emits `whole` in batches.
pub(super) fn give(whole: &RecordBatch, emit: &mut Emit<'_>) {
    for start in (0..whole.num_rows()).step_by(limits::BATCH_ROWS) {
        let rows = limits::BATCH_ROWS.min(whole.num_rows() - start);
        if emit(whole.slice(start, rows)).is_break() {
            return;
        }
    }
}
