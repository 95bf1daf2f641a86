//! Aggregates one row group, or a step of it (some of its batches), by the implementation chosen for it (its
//! *way*). Between batches, groups that exceed the memory limit are emitted.
//!
//! A *batch* is the rows of a row group that are processed at a time, some thousand.

use super::choose::Choice;
use super::dense::DenseRows;
use super::fitted::FittedAggregation;
use super::mixed::{CountsMemo, Mixed};
use super::partial::Partial;
use super::spill::Leaving;
use super::whole::WholeTable;
use super::{fused, general, zones};
use crate::lanes::LaneBuffers;
use crate::pace::{Batches, Pace};
use crate::project::Emit;
use crate::select::FilterMemo;
use farpool_columns::RowGroup;
use farpool_model::Result;
use farpool_model::cast::u64_from;

/// State of an aggregation on one row group, kept between steps.
#[derive(Debug, Default)]
pub(crate) struct Memo {
    conditions: Vec<FilterMemo>,
    counts: CountsMemo,
    /// Groups that exceeded the memory limit, of which some are not emitted yet.
    leaving: Option<Leaving>,
}

/// Row counts of an aggregation step.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Passed {
    /// Number of rows that passed the filter.
    pub(crate) rows: u64,
    /// Number of rows that were emitted without having been grouped.
    pub(crate) bypassed: u64,
    /// Whether zone maps decided everything, so that no row was read.
    pub(crate) unread: bool,
}

impl FittedAggregation {
    /// Adds the rows of the batches of this step; `memo` must be that of the same row group. Groups that exceed the
    /// memory limit are passed to `emit`.
    ///
    /// # Errors
    /// `Invalid` when an expression fails on one of them; `OverLimit` if groups that are never emitted early exceed
    /// their memory limit.
    pub(crate) fn run(
        &self,
        batches: &mut Batches<'_>,
        memo: &mut Memo,
        buffers: &mut LaneBuffers,
        partial: &mut Partial,
        emit: &mut Emit<'_>,
    ) -> Result<Passed> {
        if !self.let_go(&mut memo.leaving, partial, batches.pace, emit)? {
            return Ok(Passed::default());
        }
        let group = batches.group;
        match self.choose(group, batches.pass_all(), partial.whole.as_ref())? {
            Choice::Zones(known) => {
                zones::add(known, &mut partial.stores);
                batches.skip_rest();
                Ok(Passed { rows: u64_from(group.rows), unread: true, ..Passed::default() })
            }
            Choice::Complete => {
                batches.skip_rest();
                Ok(Passed { unread: true, ..Passed::default() })
            }
            Choice::Whole(rows) | Choice::Fused(rows) => {
                self.run_dense(rows, batches, memo, buffers, partial, emit)
            }
            Choice::Mixed(_) | Choice::General => self.run_batches(batches, memo, buffers, partial, emit),
        }
    }

    /// Aggregates into an array of groups, by the whole-table way or the fused way.
    fn run_dense(
        &self,
        rows: DenseRows<'_>,
        batches: &mut Batches<'_>,
        memo: &mut Memo,
        buffers: &mut LaneBuffers,
        partial: &mut Partial,
        emit: &mut Emit<'_>,
    ) -> Result<Passed> {
        if !self.ask_dictionaries(batches.group, memo, batches.pace)? {
            return Ok(Passed::default());
        }
        let rows = rows.with_conditions(&self.aggregation, &memo.conditions)?;
        let passed = match &self.whole {
            Ok(whole) => {
                let table = partial.whole.get_or_insert_with(|| WholeTable::new(whole));
                table.add(&rows, batches, buffers)?
            }
            Err(_) => {
                let passed = fused::run(&self.aggregation, &rows, batches, buffers, partial)?;
                partial.spill.rows += passed;
                memo.leaving = self.spill(partial);
                self.let_go(&mut memo.leaving, partial, batches.pace, emit)?;
                self.keep_limit(partial, batches.pace)?;
                passed
            }
        };
        Ok(Passed { rows: passed, ..Passed::default() })
    }

    /// Evaluates the FILTER conditions on the dictionaries of `group`. Returns false if the step ends before that is
    /// finished.
    fn ask_dictionaries(&self, group: &RowGroup, memo: &mut Memo, pace: &mut dyn Pace) -> Result<bool> {
        let conditions = &self.aggregation.conditions;
        memo.conditions.resize_with(conditions.len(), FilterMemo::default);
        for (condition, memo) in conditions.iter().zip(&mut memo.conditions) {
            if !condition.filter.ask_dictionaries(group, memo, pace)? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Aggregates into a hash table of groups, by the mixed way or the general way. After any batch, groups may be
    /// emitted early, and rows may be emitted without grouping, if the memory limit is exceeded; or the aggregation
    /// fails.
    fn run_batches(
        &self,
        batches: &mut Batches<'_>,
        memo: &mut Memo,
        buffers: &mut LaneBuffers,
        partial: &mut Partial,
        emit: &mut Emit<'_>,
    ) -> Result<Passed> {
        let group = batches.group;
        let mut mixed = self.mixed(group, &mut memo.counts)?;
        let mut passed = Passed::default();
        while self.let_go(&mut memo.leaving, partial, batches.pace, emit)?
            && self.make_room(partial, batches.pace)?
            && let Some(selection) = batches.next(buffers)?
        {
            if selection.count == 0 {
                continue;
            }
            let rows = u64_from(selection.count);
            passed.rows += rows;
            if partial.spill.bypass > 0 {
                partial.spill.bypass = partial.spill.bypass.saturating_sub(rows);
                passed.bypassed += rows;
                self.bypass(group, &selection, emit)?;
                continue;
            }
            match &mut mixed {
                Some(mixed) => mixed.add(&selection, buffers, partial)?,
                None => general::add(&self.aggregation, group, &selection, partial)?,
            }
            partial.spill.rows += rows;
            memo.leaving = self.spill(partial);
            if memo.leaving.is_some() {
                // The bound aggregation has ids of groups that were emitted and removed, so it is bound again.
                mixed = self.mixed(group, &mut memo.counts)?;
            }
        }
        if let Some(mixed) = mixed {
            mixed.finish(batches, &mut memo.counts, partial)?;
        }
        Ok(passed)
    }

    /// Binds the mixed way; `None` if only the general way is allowed.
    fn mixed<'a>(&'a self, group: &'a RowGroup, counts: &mut CountsMemo) -> Result<Option<Mixed<'a>>> {
        if !self.aggregation.paths.fused {
            return Ok(None);
        }
        Mixed::bind(&self.aggregation, self.radix.as_ref(), group, counts).map(Some)
    }

    /// Makes room for the records of a batch, if rows are partitioned by the hash of their group keys. Returns false
    /// if the step ends before that is finished.
    ///
    /// # Errors
    /// `OverLimit` if groups that are never emitted early exceed their memory limit.
    fn make_room(&self, partial: &mut Partial, pace: &mut dyn Pace) -> Result<bool> {
        if !self.keep_limit(partial, pace)? {
            return Ok(false);
        }
        match (&mut partial.radix, &self.radix) {
            (Some(radix), Some(shape)) => radix.make_room(&self.aggregation, shape, pace),
            _ => Ok(true),
        }
    }
}

impl Memo {
    /// Returns whether all value counts are in their sketches, and all groups that exceeded the memory limit were
    /// emitted.
    pub(crate) fn is_done(&self) -> bool {
        self.leaving.is_none() && self.counts.is_done()
    }
}
