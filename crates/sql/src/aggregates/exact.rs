//! Exact sums and means as DataFusion accumulators: one for many groups; and one for a single group, which can also
//! subtract the rows that leave a window's frame.

use crate::messages::sql_types;
use arrow_array::{ArrayRef, BooleanArray};
use arrow_schema::FieldRef;
use datafusion::common::ScalarValue;
use datafusion::error::Result;
use datafusion::logical_expr::function::AccumulatorArgs;
use datafusion::logical_expr::{Accumulator, EmitTo, GroupsAccumulator};
use farpool_statistics::ExactSums;
use std::sync::Arc;

/// The name (for error messages) and the type of a result.
#[derive(Debug)]
struct Outcome {
    name: String,
    field: FieldRef,
}

impl Outcome {
    fn of(arguments: &AccumulatorArgs<'_>) -> Outcome {
        Outcome { name: sql_types(arguments.name), field: Arc::clone(&arguments.return_field) }
    }

    fn read(&self, sums: &ExactSums, groups: usize) -> Result<ArrayRef> {
        sums.results(groups, &self.name, self.field.data_type()).map_err(crate::error::wrap)
    }
}

/// Accumulates the sums or means of many groups.
#[derive(Debug)]
pub(super) struct ExactGroups {
    sums: ExactSums,
    outcome: Outcome,
}

impl ExactGroups {
    pub(super) fn new(sums: ExactSums, arguments: &AccumulatorArgs<'_>) -> Self {
        ExactGroups { sums, outcome: Outcome::of(arguments) }
    }

    fn emitted(&self, emit_to: EmitTo) -> usize {
        match emit_to {
            EmitTo::All => self.sums.groups(),
            EmitTo::First(count) => count.min(self.sums.groups()),
        }
    }
}

impl GroupsAccumulator for ExactGroups {
    fn update_batch(
        &mut self,
        values: &[ArrayRef],
        group_indices: &[usize],
        filter: Option<&BooleanArray>,
        total_num_groups: usize,
    ) -> Result<()> {
        self.sums.resize(total_num_groups);
        self.sums.update(&values[0], Some(group_indices), filter);
        Ok(())
    }

    fn merge_batch(
        &mut self,
        values: &[ArrayRef],
        group_indices: &[usize],
        total_num_groups: usize,
    ) -> Result<()> {
        self.sums.resize(total_num_groups);
        self.sums.merge(values, Some(group_indices));
        Ok(())
    }

    fn evaluate(&mut self, emit_to: EmitTo) -> Result<ArrayRef> {
        let count = self.emitted(emit_to);
        let results = self.outcome.read(&self.sums, count)?;
        self.sums.drop_first(count);
        Ok(results)
    }

    fn state(&mut self, emit_to: EmitTo) -> Result<Vec<ArrayRef>> {
        Ok(self.sums.take_states(self.emitted(emit_to)))
    }

    fn convert_to_state(&self, values: &[ArrayRef], filter: Option<&BooleanArray>) -> Result<Vec<ArrayRef>> {
        Ok(self.sums.states_of_rows(&values[0], filter))
    }

    fn size(&self) -> usize {
        self.sums.bytes_held()
    }
}

/// Accumulates the sum or the mean of a single group.
#[derive(Debug)]
pub(super) struct ExactAccumulator {
    sums: ExactSums,
    outcome: Outcome,
}

impl ExactAccumulator {
    pub(super) fn new(sums: ExactSums, arguments: &AccumulatorArgs<'_>) -> Self {
        ExactAccumulator { sums: sums.retractable(), outcome: Outcome::of(arguments) }
    }

    /// Resets the accumulator to the state before any row.
    pub(super) fn clear(&mut self) {
        self.sums.drop_first(1);
        self.sums.resize(1);
    }
}

impl Accumulator for ExactAccumulator {
    fn update_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        self.sums.update(&values[0], None, None);
        Ok(())
    }

    fn retract_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        self.sums.retract(&values[0]);
        Ok(())
    }

    fn supports_retract_batch(&self) -> bool {
        true
    }

    fn merge_batch(&mut self, states: &[ArrayRef]) -> Result<()> {
        self.sums.merge(states, None);
        Ok(())
    }

    fn evaluate(&mut self) -> Result<ScalarValue> {
        ScalarValue::try_from_array(&self.outcome.read(&self.sums, 1)?, 0)
    }

    fn state(&mut self) -> Result<Vec<ScalarValue>> {
        let states = self.sums.take_states(1);
        self.sums.resize(1);
        states.iter().map(|state| ScalarValue::try_from_array(state, 0)).collect()
    }

    fn size(&self) -> usize {
        size_of_val(self) + self.outcome.name.capacity() + self.sums.bytes_held()
    }
}
