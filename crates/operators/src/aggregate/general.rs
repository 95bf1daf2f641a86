//! Aggregation of decoded arrays: the way that everything can go, and the plain twin of the fused way.

use super::compile::{Accumulator, Aggregation, Condition};
use super::fused::Fused;
use super::mixed::Mixed;
use super::store::{Input, Store};
use crate::evaluate::{Frame, truth};
use crate::group::Groups;
use crate::lanes::LaneBuffers;
use crate::plan::batches;
use crate::select::BoundFilter;
use crate::selection::Selection;
use arrow_array::cast::AsArray;
use arrow_array::{ArrayRef, BooleanArray, UInt32Array};
use arrow_select::filter::filter;
use farpool_columns::RowGroup;
use farpool_model::Result;
use farpool_model::cast::u64_from;

/// What one worker has aggregated so far.
pub(crate) struct Partial {
    pub(super) groups: Groups,
    pub(super) stores: Vec<Store>,
    /// The groups of the rows of a batch.
    pub(super) ids: Vec<u32>,
}

impl Aggregation {
    /// An empty partial aggregation.
    pub(crate) fn partial(&self) -> Partial {
        let store = |a: Accumulator| Store::new(a.kind, self.argument_type(&a));
        let mut partial = Partial {
            groups: Groups::new(&self.key_types),
            stores: self.accumulators.iter().copied().map(store).collect(),
            ids: Vec::new(),
        };
        partial.make_room();
        partial
    }

    /// Adds the rows of `group` that pass `filter`; returns how many there were.
    ///
    /// # Errors
    /// `Invalid` when an expression fails on one of them.
    pub(crate) fn run(
        &self,
        group: &RowGroup,
        filter: Option<&BoundFilter<'_>>,
        buffers: &mut LaneBuffers,
        partial: &mut Partial,
    ) -> Result<u64> {
        if let Some(fused) = Fused::bind(self, group)? {
            return fused.run(filter, buffers, partial);
        }
        let mut mixed = if self.paths.fused { Some(Mixed::bind(self, group)?) } else { None };
        let mut passed = 0;
        for selection in batches(group, filter) {
            let selection = selection(buffers)?;
            passed += u64_from(selection.count);
            match &mut mixed {
                _ if selection.count == 0 => {}
                Some(mixed) => mixed.add(&selection, buffers, partial)?,
                None => self.add_general(group, &selection, partial)?,
            }
        }
        Ok(passed)
    }

    /// Whether `group` goes the fused way.
    #[cfg(test)]
    pub(crate) fn fuses(&self, group: &RowGroup) -> bool {
        Fused::bind(self, group).is_ok_and(|fused| fused.is_some())
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
        self.add_arrays(&frame, groups, &masks, partial, |_| true)?;
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
        partial: &mut Partial,
        takes: impl Fn(usize) -> bool,
    ) -> Result<()> {
        let mut arguments: Vec<Option<ArrayRef>> = vec![None; self.arguments.len()];
        let stores = self.accumulators.iter().zip(&mut partial.stores).enumerate();
        for (_, (accumulator, store)) in stores.filter(|(index, _)| takes(*index)) {
            let mask = accumulator.condition.map(|c| &masks[c]);
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
}

impl Partial {
    /// Bytes held.
    pub(crate) fn bytes(&self) -> usize {
        self.groups.bytes() + self.stores.iter().map(Store::bytes).sum::<usize>() + self.ids.capacity() * 4
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
