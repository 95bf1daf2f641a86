//! Top-k (`ORDER BY … LIMIT k`): of the rows that pass the filter, or of the groups, only the first k in sort order
//! are returned, so that rows which the host would discard are not sent (Korolija et al., *Farview*, CIDR 2022,
//! section 5; Woods et al., *Ibex*, PVLDB 2014, section 4).
//!
//! Input: batches of a row group, or the groups of a merge. Output: exactly the first k rows in the sort order of the
//! program, or all rows if there are fewer; among rows that tie, any may be returned. They are emitted in that order,
//! although callers must not rely on it. Memory: a worker holds k rows, at most [`limits::ROW_GROUP_ROWS`], and about
//! as many again that wait to be reduced to k. Parallelism: each worker has its own [`Candidates`]; all share a
//! [`Threshold`]. Errors: an expression that fails on a row. Columns that are not sort keys are evaluated only for rows
//! that may still be returned.
//!
//! Once some worker has k rows, the value of the last of them in the first sort key is a threshold for all workers: a
//! row behind it cannot be returned. The threshold is a filter condition like any other ([`crate::select`]), so zone
//! maps exclude row groups by it, and other rows are compared as encoded values. Then the sort keys of the remaining
//! rows are evaluated, and only rows that are among the first k so far get their other columns (late materialisation).
//! The row groups with the best minimum or maximum come first ([`TopRows::favourable`]).
//!
//! Example: k is 2, the order is ascending, and a worker has rows with the sort keys 3 and 5. A row group whose minimum
//! is 6 is skipped. A row with 5 in another row group is not, if there is a second sort key, because it ties with the
//! last row in the first one only.

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
    /// Sort keys, at least one, over the columns of the result.
    pub(crate) order: Vec<SortKey>,
    /// Number of rows wanted (k).
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

    /// Returns the positions of the first k rows, in sort order. `keys` has the values of each sort key.
    fn first(&self, keys: &[ArrayRef]) -> Result<UInt32Array> {
        lexsort_to_indices(&self.sort_columns(keys), Some(self.rows)).map_err(failure::of_kernel)
    }

    /// Returns the positions of the first k rows, of which only the last is in its place: it is the k-th in sort order.
    /// Sorting the others as well would take most of the time. There must be at least k rows, and k must be at least
    /// one.
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

    /// Returns the first k rows of `batches`, which have `schema`, in sort order.
    pub(super) fn cut(&self, schema: &SchemaRef, batches: &[RecordBatch]) -> Result<RecordBatch> {
        let all = concat_batches(schema, batches).map_err(failure::of_kernel)?;
        let keys: Vec<ArrayRef> = self.order.iter().map(|key| all.column(key.column).clone()).collect();
        picked(&all, &self.first(&keys)?)
    }
}

/// Copies the rows at `indices`, so that they do not keep the memory of other rows in use.
pub(super) fn picked(batch: &RecordBatch, indices: &UInt32Array) -> Result<RecordBatch> {
    let pick = |column: &ArrayRef| Ok(compact(take(column, indices, None).map_err(failure::of_kernel)?));
    let columns = batch.columns().iter().map(pick).collect::<Result<_>>()?;
    RecordBatch::try_new(batch.schema(), columns).map_err(failure::of_kernel)
}

/// Copies strings and binaries out of buffers that they may share with dropped rows; other arrays are returned as they
/// are.
pub(crate) fn compact(array: ArrayRef) -> ArrayRef {
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
