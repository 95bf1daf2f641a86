//! Projection: returns the requested columns of the rows that pass the filter (Korolija et al., *Farview*, CIDR 2022,
//! section 5.2).
//!
//! Input: selections of batches of a row group. Output: record batches of the result schema, of about
//! [`limits::BATCH_ROWS`] rows even if few rows of each row group pass; without columns, batches that only have a
//! number of rows. Within a row group, rows stay in the order of the table. Memory: one batch of rows that wait for
//! more. Parallelism: all workers share a [`Projection`], and each has a [`Pending`] of its own. Errors: an expression
//! that fails on a selected row.
//!
//! Only columns that an expression names are read (smart addressing). Where few rows are selected, their row numbers
//! are collected over the batches of a step, and each column is then decoded once for all of them.

use crate::evaluate::{Compiled, Frame};
use crate::failure;
use crate::selection::{Selection, gathered};
use arrow_array::{RecordBatch, RecordBatchOptions};
use arrow_schema::SchemaRef;
use arrow_select::coalesce::BatchCoalescer;
use farpool_columns::RowGroup;
use farpool_model::{Columns, NamedExpr, Result, cast, limits};
use std::collections::BTreeSet;
use std::ops::ControlFlow;

/// Receives batches of the result. Returns `Break` when no more rows are wanted.
pub(crate) type Emit<'a> = dyn FnMut(RecordBatch) -> ControlFlow<()> + 'a;

/// Compiled output columns of a program without aggregation.
#[derive(Debug)]
pub(crate) struct Projection {
    outputs: Vec<Compiled>,
    columns: Vec<usize>,
    schema: SchemaRef,
    /// Maximum number of rows of the whole result; `u64::MAX` if there is no limit.
    limit: u64,
}

/// Result rows of one worker that are not emitted yet, because they do not fill a batch.
pub(crate) struct Pending {
    batches: Option<BatchCoalescer>,
    /// Number of rows that are not emitted yet, in a result without columns.
    rows: usize,
    indices: Vec<u32>,
}

impl Projection {
    /// Compiles `outputs` over `columns`; `schema` is that of the result.
    ///
    /// # Errors
    /// `Invalid` when an expression is not well typed or has an opaque part.
    pub(crate) fn new(
        outputs: &[NamedExpr],
        columns: Columns<'_>,
        schema: SchemaRef,
        limit: Option<u64>,
    ) -> Result<Self> {
        let outputs: Vec<Compiled> =
            outputs.iter().map(|o| Compiled::new(&o.expr, columns)).collect::<Result<_>>()?;
        let columns: BTreeSet<usize> = outputs.iter().flat_map(|o| o.columns()).copied().collect();
        let columns = columns.into_iter().collect();
        Ok(Projection { outputs, columns, schema, limit: limit.unwrap_or(u64::MAX) })
    }

    /// Returns the columns that are read, sorted.
    pub(crate) fn columns(&self) -> &[usize] {
        &self.columns
    }

    /// Returns the table column of each output; `None` if there are no outputs, or one of them is computed.
    pub(crate) fn plain_columns(&self) -> Option<Vec<usize>> {
        let columns: Option<Vec<usize>> = self.outputs.iter().map(Compiled::as_column).collect();
        columns.filter(|columns| !columns.is_empty())
    }

    /// Returns table columns as [`Projection::plain_columns`] does, but `None` for a result with a limit, because not
    /// all rows of a row group may be returned then.
    pub(crate) fn columns_at_once(&self) -> Option<Vec<usize>> {
        if self.limit == u64::MAX { self.plain_columns() } else { None }
    }

    /// Returns an empty buffer for one worker.
    pub(crate) fn pending(&self) -> Pending {
        let coalescer = || {
            BatchCoalescer::new(self.schema.clone(), limits::BATCH_ROWS)
                .with_biggest_coalesce_batch_size(Some(limits::BATCH_ROWS / 2))
        };
        let batches = (!self.outputs.is_empty()).then(coalescer);
        Pending { batches, rows: 0, indices: Vec::new() }
    }

    /// Takes the selected rows of all batches of `group` that `next` returns. Returns their number, and `Break` if no
    /// more rows are wanted.
    ///
    /// # Errors
    /// `Invalid` when an expression fails on a selected row, and the errors of `next`.
    pub(crate) fn push_all(
        &self,
        group: &RowGroup,
        mut next: impl FnMut() -> Result<Option<Selection>>,
        pending: &mut Pending,
        emit: &mut Emit<'_>,
    ) -> Result<(u64, ControlFlow<()>)> {
        let mut passed = 0;
        while let Some(selection) = next()? {
            passed += cast::u64_from(selection.count);
            if selection.count > 0 && self.push(group, &selection, pending, emit)?.is_break() {
                return Ok((passed, ControlFlow::Break(())));
            }
        }
        Ok((passed, self.gather(group, pending, emit)?))
    }

    /// Takes the selected rows of one batch of `group`. If they are few, only their row numbers are kept for now.
    fn push(
        &self,
        group: &RowGroup,
        selection: &Selection,
        pending: &mut Pending,
        emit: &mut Emit<'_>,
    ) -> Result<ControlFlow<()>> {
        if self.outputs.is_empty() {
            pending.rows += selection.count;
            return self.give_full(pending, emit);
        }
        if selection.is_sparse() && !self.columns.is_empty() {
            selection.extend_indices(&mut pending.indices);
            let waiting = pending.indices.len();
            if waiting < limits::BATCH_ROWS && (waiting as u64) < self.limit {
                return Ok(ControlFlow::Continue(()));
            }
            return self.gather(group, pending, emit);
        }
        if self.gather(group, pending, emit)?.is_break() {
            return Ok(ControlFlow::Break(()));
        }
        self.take(&selection.frame(group, &self.columns)?, pending)?;
        self.give_full(pending, emit)
    }

    /// Decodes those rows of `group` of which only the row numbers were kept.
    fn gather(
        &self,
        group: &RowGroup,
        pending: &mut Pending,
        emit: &mut Emit<'_>,
    ) -> Result<ControlFlow<()>> {
        if pending.indices.is_empty() {
            return Ok(ControlFlow::Continue(()));
        }
        let indices = std::mem::take(&mut pending.indices);
        self.take(&gathered(group, &self.columns, &indices)?, pending)?;
        pending.indices = indices;
        pending.indices.clear();
        self.give_full(pending, emit)
    }

    /// Emits the rows that are not emitted yet.
    ///
    /// # Errors
    /// Fails only on a bug in this crate.
    pub(crate) fn finish(&self, pending: &mut Pending, emit: &mut Emit<'_>) -> Result<ControlFlow<()>> {
        if let Some(batches) = &mut pending.batches {
            batches.finish_buffered_batch().map_err(failure::of_kernel)?;
        } else if pending.rows > 0 {
            return Ok(emit(self.counted(std::mem::take(&mut pending.rows))?));
        }
        self.give_full(pending, emit)
    }

    fn take(&self, frame: &Frame, pending: &mut Pending) -> Result<()> {
        let arrays = self.outputs.iter().map(|output| output.array(frame)).collect::<Result<_>>()?;
        let batch = RecordBatch::try_new(self.schema.clone(), arrays).map_err(failure::of_kernel)?;
        let Some(batches) = &mut pending.batches else { return Ok(()) };
        batches.push_batch(batch).map_err(failure::of_kernel)?;
        if batches.get_buffered_rows() as u64 >= self.limit {
            batches.finish_buffered_batch().map_err(failure::of_kernel)?;
        }
        Ok(())
    }

    fn give_full(&self, pending: &mut Pending, emit: &mut Emit<'_>) -> Result<ControlFlow<()>> {
        if let Some(batches) = &mut pending.batches {
            while let Some(batch) = batches.next_completed_batch() {
                if emit(batch).is_break() {
                    return Ok(ControlFlow::Break(()));
                }
            }
        } else if pending.rows >= limits::ROW_GROUP_ROWS || pending.rows as u64 >= self.limit {
            return Ok(emit(self.counted(std::mem::take(&mut pending.rows))?));
        }
        Ok(ControlFlow::Continue(()))
    }

    fn counted(&self, rows: usize) -> Result<RecordBatch> {
        let options = RecordBatchOptions::new().with_row_count(Some(rows));
        RecordBatch::try_new_with_options(self.schema.clone(), Vec::new(), &options)
            .map_err(failure::of_kernel)
    }
}

impl Pending {
    /// Returns whether no rows are pending.
    pub(crate) fn is_empty(&self) -> bool {
        self.rows == 0 && self.batches.as_ref().is_none_or(BatchCoalescer::is_empty)
    }

    /// Returns the bytes of memory that the rows take.
    pub(crate) fn bytes(&self) -> usize {
        self.batches.as_ref().map_or(0, BatchCoalescer::size) + self.indices.capacity() * 4
    }
}
