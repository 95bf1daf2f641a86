//! Aggregation of decoded arrays: the way that everything can go, and the plain twin of the fused way.

use super::aggregation::{Aggregation, Condition, StateOf};
use super::dense::Fused;
use super::mixed::Mixed;
use super::mixed::{Counted, Counts};
use super::radix::Radix;
use super::spill::{Leaving, Spill};
use super::store::{Input, Store};
use super::whole::WholeTable;
use crate::evaluate::{Compiled, Frame, truth};
use crate::group::Groups;
use crate::lanes::LaneBuffers;
use crate::pace::{Batches, Pace};
use crate::project::Emit;
use crate::select::FilterMemo;
use crate::selection::Selection;
use arrow_array::cast::AsArray;
use arrow_array::{ArrayRef, BooleanArray, UInt32Array};
use arrow_select::filter::filter;
use farpool_columns::RowGroup;
use farpool_model::Result;
use farpool_model::cast::u64_from;
use farpool_statistics::States;
use std::collections::BTreeSet;

/// What one worker has aggregated so far.
pub(crate) struct Partial {
    pub(super) groups: Groups,
    pub(super) stores: Vec<Store>,
    /// The groups of the rows of a batch.
    pub(super) ids: Vec<u32>,
    /// The groups of the whole-table way, which then holds all.
    pub(super) whole: Option<WholeTable>,
    /// What the radix way holds, once there were many groups.
    pub(super) radix: Option<Radix>,
    pub(super) spill: Spill,
}

/// What is kept of a row group from step to step.
#[derive(Debug, Default)]
pub(crate) struct Memo {
    conditions: Vec<FilterMemo>,
    /// For each accumulator what was counted in place of being decoded, and not taken in yet; `None` before the
    /// first step.
    pub(super) counts: Option<Vec<Option<Counts>>>,
    /// Groups for which there was no room.
    leaving: Option<Leaving>,
}

/// How many rows of a row group there were.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Passed {
    /// That passed the filter.
    pub(crate) rows: u64,
    /// That left as they were, without having been grouped.
    pub(crate) bypassed: u64,
    /// Whether the zone maps told all there was to know.
    pub(crate) unread: bool,
}

impl Aggregation {
    /// An empty partial aggregation.
    pub(crate) fn partial(&self) -> Partial {
        let mut partial = Partial {
            groups: self.groups(),
            stores: self.stores(),
            ids: Vec::new(),
            whole: None,
            radix: None,
            spill: Spill::default(),
        };
        partial.make_room();
        partial
    }

    /// Adds the rows of some batches of a row group, of which `memo` is. Groups that outgrow their room leave
    /// through `emit`.
    ///
    /// # Errors
    /// `Invalid` when an expression fails on one of them.
    pub(crate) fn run(
        &self,
        batches: &mut Batches<'_>,
        memo: &mut Memo,
        buffers: &mut LaneBuffers,
        partial: &mut Partial,
        emit: &mut Emit<'_>,
    ) -> Result<Passed> {
        let group = batches.group;
        if !self.let_go(&mut memo.leaving, partial, batches.pace, emit)? {
            return Ok(Passed::default());
        }
        if batches.filter.is_none()
            && let Some(passed) = self.run_zones(group, partial)
        {
            batches.skip_rest();
            return Ok(passed);
        }
        if self.is_complete(partial) {
            batches.skip_rest();
            return Ok(Passed { unread: true, ..Passed::default() });
        }
        let fused = match &self.whole {
            Some(whole) => Some(Fused::bind_whole(self, whole, group)?),
            None => Fused::bind(self, group)?,
        };
        let Some(fused) = fused else { return self.run_batches(batches, memo, buffers, partial, emit) };
        if !self.ask_dictionaries(group, memo, batches.pace)? {
            return Ok(Passed::default());
        }
        let fused = fused.with_conditions(self, &memo.conditions)?;
        let rows = if let Some(whole) = &self.whole {
            let table = partial.whole.get_or_insert_with(|| WholeTable::new(whole));
            fused.run_whole(batches, buffers, table)?
        } else {
            let rows = fused.run(batches, buffers, partial)?;
            partial.spill.rows += rows;
            memo.leaving = self.spill(partial);
            self.let_go(&mut memo.leaving, partial, batches.pace, emit)?;
            rows
        };
        Ok(Passed { rows, ..Passed::default() })
    }

    /// What the conditions ask dictionaries; false if the step is over before that is done.
    fn ask_dictionaries(&self, group: &RowGroup, memo: &mut Memo, pace: &mut dyn Pace) -> Result<bool> {
        memo.conditions.resize_with(self.conditions.len(), FilterMemo::default);
        for (condition, memo) in self.conditions.iter().zip(&mut memo.conditions) {
            if !condition.filter.ask_dictionaries(group, memo, pace)? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Makes room for the rows of a batch that are put aside; false if the step is over before that is done.
    fn make_room(&self, partial: &mut Partial, pace: &mut dyn Pace) -> Result<bool> {
        match (&mut partial.radix, &self.radix) {
            (Some(radix), Some(shape)) => radix.make_room(self, shape, pace),
            _ => Ok(true),
        }
    }

    fn run_batches(
        &self,
        batches: &mut Batches<'_>,
        memo: &mut Memo,
        buffers: &mut LaneBuffers,
        partial: &mut Partial,
        emit: &mut Emit<'_>,
    ) -> Result<Passed> {
        let group = batches.group;
        let bind = |memo: &mut Memo| {
            if self.paths.fused { Mixed::bind(self, group, memo).map(Some) } else { Ok(None) }
        };
        let mut mixed = bind(memo)?;
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
                None => self.add_general(group, &selection, partial)?,
            }
            partial.spill.rows += rows;
            memo.leaving = self.spill(partial);
            if memo.leaving.is_some() {
                // It knows the numbers of groups that leave.
                mixed = bind(memo)?;
            }
        }
        if let Some(mixed) = mixed {
            mixed.finish(batches, memo, partial)?;
        }
        Ok(passed)
    }

    /// Whether `group` goes the fused way.
    #[cfg(test)]
    pub(crate) fn fuses(&self, group: &RowGroup) -> bool {
        Fused::bind(self, group).is_ok_and(|fused| fused.is_some())
    }

    /// Whether keys are packed.
    #[cfg(test)]
    pub(crate) fn is_packed(&self) -> bool {
        self.packing.is_some()
    }

    /// Whether rows may be put aside by partition.
    #[cfg(test)]
    pub(crate) fn is_set_aside(&self) -> bool {
        self.radix.is_some()
    }

    /// Whether row groups go the whole-table way.
    #[cfg(test)]
    pub(crate) fn is_whole(&self) -> bool {
        self.whole.is_some()
    }

    /// Adds the selected rows of one batch.
    ///
    /// # Errors
    /// `Invalid` when an expression fails on one of them.
    fn add_general(&self, group: &RowGroup, selection: &Selection, partial: &mut Partial) -> Result<()> {
        let frame = selection.frame(group, &self.columns)?;
        if !self.keys.is_empty() {
            let keys: Vec<ArrayRef> =
                self.keys.iter().map(|k| k.compiled.array(&frame)).collect::<Result<_>>()?;
            partial.groups.intern_arrays(keys, &mut partial.ids)?;
            partial.make_room();
        }
        let ids = std::mem::take(&mut partial.ids);
        let groups = (!self.keys.is_empty()).then_some(ids.as_slice());
        let masks = self.condition_masks(&frame)?;
        self.add_arrays(&frame, groups, &masks, &mut partial.stores, |_| true)?;
        partial.ids = ids;
        Ok(())
    }

    /// For each condition, the rows of `frame` for which it is true.
    pub(super) fn condition_masks(&self, frame: &Frame) -> Result<Vec<BooleanArray>> {
        let mask = |c: &Condition| Ok(truth(&c.compiled.array(frame)?));
        self.conditions.iter().map(mask).collect()
    }

    /// Adds the rows of `frame`, whose groups are `groups`, to the accumulators that `takes` names.
    pub(super) fn add_arrays(
        &self,
        frame: &Frame,
        groups: Option<&[u32]>,
        masks: &[BooleanArray],
        stores: &mut [Store],
        takes: impl Fn(usize) -> bool,
    ) -> Result<()> {
        let mut arguments: Vec<Option<ArrayRef>> = vec![None; self.arguments.len()];
        let stores = self.accumulators.iter().zip(stores).enumerate();
        for (_, (accumulator, store)) in stores.filter(|(index, _)| takes(*index)) {
            let mask = accumulator.condition.map(|c| &masks[c]);
            if let Some(state) = self.state_of(accumulator) {
                self.add_state(state, frame, groups, mask, store.states()?)?;
                continue;
            }
            let Some(index) = accumulator.argument else {
                store.count_rows(frame.rows(), groups, mask);
                continue;
            };
            let argument = &self.arguments[index].compiled;
            if let (Some(mask), true) = (mask, argument.is_fallible()) {
                // It must not run on the rows that its condition leaves out.
                let array = argument.array(&frame.filter(mask, argument.columns())?)?;
                let groups = groups.map(|groups| filtered(groups, mask)).transpose()?;
                store.update(&Input { array: &array, groups: groups.as_deref(), mask: None })?;
                continue;
            }
            let array = match &arguments[index] {
                Some(array) => array,
                None => arguments[index].insert(argument.array(frame)?),
            };
            store.update(&Input { array, groups, mask })?;
        }
        Ok(())
    }

    fn add_state(
        &self,
        state: &StateOf,
        frame: &Frame,
        groups: Option<&[u32]>,
        mask: Option<&BooleanArray>,
        states: &mut States,
    ) -> Result<()> {
        let arguments = || state.arguments.iter().map(|a| &self.arguments[*a].compiled);
        let arrays = |frame: &Frame| arguments().map(|a| a.array(frame)).collect::<Result<Vec<ArrayRef>>>();
        match mask {
            Some(mask) if arguments().any(Compiled::is_fallible) => {
                let columns: BTreeSet<usize> =
                    arguments().flat_map(|a| a.columns().iter().copied()).collect();
                let columns: Vec<usize> = columns.into_iter().collect();
                let arrays = arrays(&frame.filter(mask, &columns)?)?;
                let groups = groups.map(|groups| filtered(groups, mask)).transpose()?;
                states.update(&arrays, groups.as_deref(), None)
            }
            mask => states.update(&arrays(frame)?, groups, mask),
        }
    }
}

impl Memo {
    /// Whether everything that was counted has been taken in, and all groups are gone that had no room.
    pub(crate) fn is_done(&self) -> bool {
        self.leaving.is_none() && self.counts.iter().flatten().all(Option::is_none)
    }

    /// What is to be counted, going on from what earlier steps have counted.
    pub(super) fn resume<'a>(&mut self, fresh: Vec<Option<Counted<'a>>>) -> Vec<Option<Counted<'a>>> {
        let Some(counts) = self.counts.take() else { return fresh };
        let resume = |(counted, counts): (Option<Counted<'a>>, Option<Counts>)| {
            let (mut counted, counts) = counted.zip(counts)?;
            counted.resume(counts);
            Some(counted)
        };
        fresh.into_iter().zip(counts).map(resume).collect()
    }
}

impl Partial {
    /// Bytes held.
    pub(crate) fn bytes(&self) -> usize {
        let whole = self.whole.as_ref().map_or(0, WholeTable::bytes);
        self.group_bytes() + whole + self.ids.capacity() * 4
    }

    /// Bytes that groups take that can be let go.
    pub(super) fn group_bytes(&self) -> usize {
        let radix = self.radix.as_ref().map_or(0, Radix::bytes);
        self.groups.bytes() + self.stores.iter().map(Store::bytes).sum::<usize>() + radix
    }

    /// Whether there is no group.
    pub(super) fn is_empty(&self) -> bool {
        self.groups.len() == 0 && self.radix.as_ref().is_none_or(Radix::is_empty)
    }

    /// Lets the groups take `bytes` from now on; more leave early.
    pub(crate) fn set_room(&mut self, bytes: usize) {
        self.spill.room = bytes;
    }

    /// Gives each group its place in every accumulator.
    pub(super) fn make_room(&mut self) {
        let groups = self.groups.len();
        self.stores.iter_mut().for_each(|store| store.resize(groups));
    }
}

fn filtered(groups: &[u32], mask: &BooleanArray) -> Result<Vec<u32>> {
    let groups = UInt32Array::from(groups.to_vec());
    let kept = filter(&groups, mask).map_err(crate::failure::of_kernel)?;
    Ok(kept.as_primitive::<arrow_array::types::UInt32Type>().values().to_vec())
}
