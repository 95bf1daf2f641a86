//! Top-k (`ORDER BY … LIMIT k`) of rows: a scan that keeps only rows which may be among the first k.

use super::threshold::{FirstKey, Threshold};
use super::{Candidates, Top, compact, give};
use crate::Verdict;
use crate::evaluate::{Compiled, literal_at};
use crate::failure;
use crate::lanes::LaneBuffers;
use crate::pace::{Batches, Unpaced};
use crate::project::Emit;
use crate::select::FilterMemo;
use crate::selection::{Selection, gathered};
use arrow_array::{ArrayRef, RecordBatch};
use arrow_schema::SchemaRef;
use farpool_columns::RowGroup;
use farpool_model::{Columns, Error, Expr, Literal, NamedExpr, Result, cast};
use std::collections::BTreeSet;
use std::ops::ControlFlow;
use std::sync::Arc;

/// A compiled top-k of rows.
#[derive(Debug)]
pub(crate) struct TopRows {
    top: Top,
    first: FirstKey,
    /// Expressions of the result's columns.
    outputs: Vec<Compiled>,
    /// Table columns, sorted: those that the sort keys read (`key_columns`), those that the other outputs read
    /// (`rest_columns`), and all of them (`columns`).
    key_columns: Vec<usize>,
    rest_columns: Vec<usize>,
    columns: Vec<usize>,
    schema: SchemaRef,
    table_schema: SchemaRef,
    /// Whether rows that sort behind the threshold (a bound on the first sort key) are dropped before their other
    /// sort keys are evaluated.
    prefilters: bool,
}

impl TopRows {
    /// Compiles `outputs` over `known`, the columns of a table with `table_schema`; `schema` is that of the result.
    ///
    /// # Errors
    /// `Invalid` when an expression is not well typed or has an opaque part.
    pub(crate) fn new(
        top: Top,
        outputs: &[NamedExpr],
        known: Columns<'_>,
        table_schema: &SchemaRef,
        schema: SchemaRef,
        prefilters: bool,
    ) -> Result<Self> {
        let key = *top.order.first().ok_or_else(|| Error::internal("an order without keys"))?;
        let is_key = |place: usize| top.order.iter().any(|key| key.column == place);
        let first = FirstKey { expr: outputs[key.column].expr.clone(), key, alone: top.order.len() == 1 };
        let outputs: Vec<Compiled> =
            outputs.iter().map(|o| Compiled::new(&o.expr, known)).collect::<Result<_>>()?;
        let columns_of = |wanted: &dyn Fn(usize) -> bool| -> Vec<usize> {
            let chosen = outputs.iter().enumerate().filter(|(place, _)| wanted(*place));
            let columns: BTreeSet<usize> = chosen.flat_map(|(_, o)| o.columns()).copied().collect();
            columns.into_iter().collect()
        };
        Ok(TopRows {
            key_columns: columns_of(&is_key),
            rest_columns: columns_of(&|place| !is_key(place)),
            columns: columns_of(&|_| true),
            table_schema: table_schema.clone(),
            top,
            first,
            outputs,
            schema,
            prefilters,
        })
    }

    /// Returns the table columns that are read.
    pub(crate) fn columns(&self) -> &[usize] {
        &self.columns
    }

    /// Returns the empty candidates of one worker.
    pub(crate) fn candidates(&self, threshold: Arc<Threshold>) -> Candidates {
        Candidates::new(&self.top, threshold)
    }

    /// Returns whether the threshold excludes every row of `group`, according to its zone maps.
    pub(crate) fn is_beaten(&self, group: &RowGroup, threshold: &Threshold) -> bool {
        threshold.wanted().is_some_and(|wanted| wanted.verdict(group) == Verdict::None)
    }

    /// Returns the indices of `groups` in the best order to process them: row groups with the best minimum or maximum
    /// of the first sort key come first. Returns `None` if that sort key is not a column.
    pub(crate) fn favourable<'a>(&self, groups: impl Iterator<Item = &'a RowGroup>) -> Option<Vec<usize>> {
        let Expr::Column(column) = self.first.expr else { return None };
        let key = self.first.key;
        let best: Vec<Option<Literal>> = groups
            .map(|group| {
                let zone = group.chunks[column].zone();
                if zone.null_count > 0 && (key.nulls_first || zone.null_count == group.rows) {
                    return Literal::null(self.schema.field(key.column).data_type().clone()).ok();
                }
                if key.descending { zone.max.clone() } else { zone.min.clone() }
            })
            .collect();
        let mut places: Vec<usize> = (0..best.len()).collect();
        // A row group whose minimum or maximum is unknown comes first, because it may have the best rows.
        places.sort_by(|a, b| match (&best[*a], &best[*b]) {
            (Some(a), Some(b)) => self.first.order(a, b),
            (a, b) => a.is_some().cmp(&b.is_some()),
        });
        Some(places)
    }

    /// Scans batches of a row group until the step ends. Returns the number of rows that passed the filter, and the
    /// columns that were read.
    ///
    /// # Errors
    /// `Invalid` when the filter or an expression fails on a row.
    pub(crate) fn run(
        &self,
        batches: &mut Batches<'_>,
        buffers: &mut LaneBuffers,
        candidates: &mut Candidates,
    ) -> Result<(u64, &[usize])> {
        if self.top.rows == 0 {
            batches.skip_rest();
        }
        let group = batches.group;
        let (mut passed, mut keys_read) = (0, false);
        let mut is_over = false;
        while !is_over {
            let wanted = if self.prefilters { candidates.threshold.wanted() } else { None };
            let mut memo = FilterMemo::default();
            if let Some(wanted) = &wanted {
                wanted.ask_dictionaries(group, &mut memo, &mut Unpaced)?;
            }
            let wanted = wanted.as_ref().map(|wanted| wanted.bind(group, &memo)).transpose()?;
            is_over = true;
            while let Some(selection) = batches.next(buffers)? {
                passed += cast::u64_from(selection.count);
                keys_read |= selection.count > 0;
                let selection = match &wanted {
                    Some(wanted) if selection.count > 0 => wanted.select(&selection, buffers)?,
                    _ => selection,
                };
                if selection.count == 0 {
                    continue;
                }
                self.push(group, &selection, candidates)?;
                // The threshold may have moved, so the rest of the row group is filtered by the new one.
                if candidates.is_full(&self.top) && self.cut(candidates)?.is_break() {
                    is_over = false;
                    break;
                }
            }
        }
        let kept = self.end_part(batches, candidates)?;
        let columns = match (kept, keys_read) {
            (true, _) => &self.columns[..],
            (false, true) => &self.key_columns,
            (false, false) => &[],
        };
        Ok((passed, columns))
    }

    fn push(&self, group: &RowGroup, selection: &Selection, candidates: &mut Candidates) -> Result<()> {
        let frame = selection.frame(group, &self.key_columns)?;
        for (pieces, key) in candidates.keys.iter_mut().zip(&self.top.order) {
            pieces.push(self.outputs[key.column].array(&frame)?);
        }
        selection.extend_indices(&mut candidates.rows);
        Ok(())
    }

    /// Reduces the candidates to the first k and offers the k-th as the threshold. Returns `Break` if there were at
    /// least k.
    fn cut(&self, candidates: &mut Candidates) -> Result<ControlFlow<()>> {
        let Some((keys, last)) = candidates.cut(&self.top, &self.schema)? else {
            return Ok(ControlFlow::Continue(()));
        };
        let value = literal_at(&keys, last)?;
        candidates.threshold.offer(&self.first, value, &self.table_schema)?;
        Ok(ControlFlow::Break(()))
    }

    /// Reads the other columns of the current step's candidates; returns whether there are any candidates. The
    /// candidates are reduced to k first only at the end of the row group, because doing that at the end of each step
    /// would cost more than reading columns of rows that are dropped later.
    fn end_part(&self, batches: &Batches<'_>, candidates: &mut Candidates) -> Result<bool> {
        let group = batches.group;
        if batches.is_at_end() {
            let _ = self.cut(candidates)?;
        }
        if candidates.rows.is_empty() {
            candidates.keys.iter_mut().for_each(Vec::clear);
            return Ok(false);
        }
        let (keys, rows) = candidates.take_fresh()?;
        let rest = gathered(group, &self.rest_columns, &rows)?;
        let column = |(place, output): (usize, &Compiled)| -> Result<ArrayRef> {
            let array = match self.top.order.iter().position(|key| key.column == place) {
                Some(key) => keys[key].clone(),
                None => output.array(&rest)?,
            };
            Ok(compact(array))
        };
        let columns = self.outputs.iter().enumerate().map(column).collect::<Result<_>>()?;
        let batch = RecordBatch::try_new(self.schema.clone(), columns).map_err(failure::of_kernel)?;
        candidates.held.push(batch);
        Ok(true)
    }

    /// Merges the candidates of all workers and emits the first k.
    ///
    /// # Errors
    /// Fails only on a bug in this crate.
    pub(crate) fn finish(&self, held: &[RecordBatch], emit: &mut Emit<'_>) -> Result<()> {
        give(&self.top.cut(&self.schema, held)?, emit);
        Ok(())
    }
}
