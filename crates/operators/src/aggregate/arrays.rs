//! Updates accumulators (running values of the groups, such as sums) from decoded Arrow arrays. Every
//! implementation of aggregation uses this for columns that it cannot read in encoded form.

use super::aggregation::{Aggregation, Condition, StateOf};
use super::store::{Input, Store};
use crate::evaluate::{Compiled, Frame, truth};
use crate::failure;
use arrow_array::cast::AsArray;
use arrow_array::types::UInt32Type;
use arrow_array::{ArrayRef, BooleanArray, UInt32Array};
use arrow_select::filter::filter;
use farpool_model::Result;
use farpool_statistics::States;
use std::collections::BTreeSet;

impl Aggregation {
    /// Evaluates each FILTER condition over the rows of `frame`; returns one mask per condition, true where the
    /// condition is true.
    pub(super) fn condition_masks(&self, frame: &Frame) -> Result<Vec<BooleanArray>> {
        let mask = |c: &Condition| Ok(truth(&c.compiled.array(frame)?));
        self.conditions.iter().map(mask).collect()
    }

    /// Adds the rows of `frame` to those accumulators for whose index `takes` returns true. `groups` has the group id
    /// of each row.
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
                // The argument must not be evaluated on rows that its condition excludes.
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

fn filtered(groups: &[u32], mask: &BooleanArray) -> Result<Vec<u32>> {
    let groups = UInt32Array::from(groups.to_vec());
    let kept = filter(&groups, mask).map_err(failure::of_kernel)?;
    Ok(kept.as_primitive::<UInt32Type>().values().to_vec())
}
