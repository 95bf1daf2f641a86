//! Accumulators of the statistics aggregates, for the case that DataFusion runs them: a state (sketch or moments) for
//! each group. Between DataFusion's own stages (partial and final aggregation), states are passed in the encoding that
//! is also used on the wire.

use super::statistic::Statistic;
use super::values;
use arrow_array::cast::AsArray;
use arrow_array::{Array, ArrayRef, BinaryViewArray, BooleanArray, new_empty_array};
use arrow_schema::DataType;
use datafusion::common::ScalarValue;
use datafusion::error::Result;
use datafusion::logical_expr::{Accumulator, EmitTo, GroupsAccumulator};
use farpool_model::cast::u32_checked;
use farpool_planner::reading::Reading;
use farpool_statistics::{State, StateForm, States};
use std::sync::Arc;

/// The states of all groups.
#[derive(Debug)]
pub(super) struct Groups {
    states: Kept,
    /// Number of leading arguments that are columns; the others are constants, such as the share of a quantile.
    columns: usize,
    form: StateForm,
    reading: Reading,
}

#[derive(Debug)]
enum Kept {
    /// States that are built from column values.
    Made(States),
    /// States that are merged from states in the input; `None` for a group without any.
    Merged(Vec<Option<State>>),
}

impl Groups {
    /// Creates accumulators that build the states of `statistic`, for arguments of these types.
    ///
    /// # Errors
    /// Fails if there is no such state for these types.
    pub(super) fn of(statistic: &Statistic, types: &[DataType]) -> farpool_model::Result<Groups> {
        let Statistic { function, columns, reading } = statistic;
        let states = Kept::Made(States::new(*function, &types[..*columns])?);
        Ok(Groups { states, columns: *columns, form: StateForm::of(*function), reading: reading.clone() })
    }

    /// Creates accumulators that merge states of this form.
    pub(super) fn merging(form: StateForm) -> Groups {
        Groups { states: Kept::Merged(Vec::new()), columns: 1, form, reading: Reading::State }
    }

    fn resize(&mut self, groups: usize) {
        match &mut self.states {
            Kept::Made(states) => states.resize(groups),
            Kept::Merged(states) => states.resize_with(groups, || None),
        }
    }

    fn update(
        &mut self,
        values: &[ArrayRef],
        groups: Option<&[u32]>,
        filter: Option<&BooleanArray>,
    ) -> farpool_model::Result<()> {
        match &mut self.states {
            Kept::Made(states) => states.update(&values[..self.columns], groups, filter),
            Kept::Merged(_) => self.merge(&values[0], groups, filter),
        }
    }

    fn merge(
        &mut self,
        encoded: &ArrayRef,
        groups: Option<&[u32]>,
        filter: Option<&BooleanArray>,
    ) -> farpool_model::Result<()> {
        let encoded = encoded.as_binary_view();
        for row in (0..encoded.len()).filter(|row| encoded.is_valid(*row)) {
            if filter.is_some_and(|filter| filter.is_null(row) || !filter.value(row)) {
                continue;
            }
            let state = self.form.read(encoded.value(row))?;
            let group = groups.map_or(0, |groups| groups[row] as usize);
            match &mut self.states {
                Kept::Made(states) => states.merge_state(group, &state)?,
                Kept::Merged(states) => match &mut states[group] {
                    Some(ours) => ours.merge(&state)?,
                    none => *none = Some(state),
                },
            }
        }
        Ok(())
    }

    /// Applies `read` to the states of the first `count` groups. `read` may remove them. The result is NULL for a group
    /// without a state.
    fn read(
        &mut self,
        count: usize,
        taken: bool,
        data_type: &DataType,
        read: impl Fn(&State) -> farpool_model::Result<ScalarValue>,
    ) -> Result<ArrayRef> {
        let values: farpool_model::Result<Vec<Option<ScalarValue>>> = match &mut self.states {
            Kept::Made(states) if taken => states
                .take_first(count)
                .and_then(|taken| taken.iter().map(|state| read(state).map(Some)).collect()),
            Kept::Made(states) => (0..count).map(|group| states.read(group, &read).map(Some)).collect(),
            Kept::Merged(states) => {
                let values = states[..count].iter().map(|s| s.as_ref().map(&read).transpose()).collect();
                if taken {
                    states.drain(..count);
                }
                values
            }
        };
        let null = ScalarValue::try_from(data_type)?;
        let values =
            values.map_err(farpool_sql::error::wrap)?.into_iter().map(|v| v.unwrap_or_else(|| null.clone()));
        if count == 0 { Ok(new_empty_array(data_type)) } else { ScalarValue::iter_to_array(values) }
    }

    fn len(&self) -> usize {
        match &self.states {
            Kept::Made(states) => states.len(),
            Kept::Merged(states) => states.len(),
        }
    }

    fn bytes(&self) -> usize {
        match &self.states {
            Kept::Made(states) => states.bytes_held(),
            Kept::Merged(states) => {
                let held = states.iter().flatten().map(State::bytes_held).sum::<usize>();
                held + states.capacity() * size_of::<Option<State>>()
            }
        }
    }

    fn emitted(&self, emit_to: EmitTo) -> usize {
        match emit_to {
            EmitTo::All => self.len(),
            EmitTo::First(count) => count.min(self.len()),
        }
    }
}

fn numbers(groups: &[usize]) -> Vec<u32> {
    groups.iter().map(|group| u32_checked(*group)).collect()
}

impl GroupsAccumulator for Groups {
    fn update_batch(
        &mut self,
        values: &[ArrayRef],
        group_indices: &[usize],
        filter: Option<&BooleanArray>,
        total_num_groups: usize,
    ) -> Result<()> {
        self.resize(total_num_groups);
        self.update(values, Some(&numbers(group_indices)), filter).map_err(farpool_sql::error::wrap)
    }

    fn merge_batch(
        &mut self,
        values: &[ArrayRef],
        group_indices: &[usize],
        total_num_groups: usize,
    ) -> Result<()> {
        self.resize(total_num_groups);
        self.merge(&values[0], Some(&numbers(group_indices)), None).map_err(farpool_sql::error::wrap)
    }

    fn evaluate(&mut self, emit_to: EmitTo) -> Result<ArrayRef> {
        let (count, reading) = (self.emitted(emit_to), self.reading.clone());
        self.read(count, true, &reading.data_type(), |state| values::read(&reading, state))
    }

    fn state(&mut self, emit_to: EmitTo) -> Result<Vec<ArrayRef>> {
        let count = self.emitted(emit_to);
        let encoded = |state: &State| values::read(&Reading::State, state);
        Ok(vec![self.read(count, true, &DataType::BinaryView, encoded)?])
    }

    fn convert_to_state(&self, values: &[ArrayRef], filter: Option<&BooleanArray>) -> Result<Vec<ArrayRef>> {
        let counts = |row: usize| filter.is_none_or(|filter| filter.is_valid(row) && filter.value(row));
        let states: BinaryViewArray = match &self.states {
            Kept::Merged(_) => {
                let states = values[0].as_binary_view();
                (0..states.len())
                    .map(|row| (states.is_valid(row) && counts(row)).then(|| states.value(row)))
                    .collect()
            }
            // States are returned row by row, because those of all rows together could exceed the memory.
            Kept::Made(states) => {
                let state =
                    |row: usize| states.of_row(&values[..self.columns], row).map(|state| state.to_bytes());
                let state = |row: usize| counts(row).then(|| state(row)).transpose();
                let states = (0..values[0].len()).map(state).collect::<farpool_model::Result<Vec<_>>>();
                states.map_err(farpool_sql::error::wrap)?.into_iter().collect()
            }
        };
        Ok(vec![Arc::new(states)])
    }

    fn size(&self) -> usize {
        size_of::<Groups>() + self.bytes()
    }
}

/// An accumulator of a single group.
#[derive(Debug)]
pub(super) struct Alone(Groups);

impl Alone {
    pub(super) fn new(mut groups: Groups) -> Self {
        groups.resize(1);
        Alone(groups)
    }
}

impl Accumulator for Alone {
    fn update_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        self.0.update(values, None, None).map_err(farpool_sql::error::wrap)
    }

    fn merge_batch(&mut self, states: &[ArrayRef]) -> Result<()> {
        self.0.merge(&states[0], None, None).map_err(farpool_sql::error::wrap)
    }

    fn evaluate(&mut self) -> Result<ScalarValue> {
        let reading = self.0.reading.clone();
        let answer = self.0.read(1, false, &reading.data_type(), |state| values::read(&reading, state))?;
        ScalarValue::try_from_array(&answer, 0)
    }

    fn state(&mut self) -> Result<Vec<ScalarValue>> {
        let encoded =
            self.0.read(1, false, &DataType::BinaryView, |state| values::read(&Reading::State, state))?;
        Ok(vec![ScalarValue::try_from_array(&encoded, 0)?])
    }

    fn size(&self) -> usize {
        size_of::<Alone>() + self.0.bytes()
    }
}

/// An accumulator of DataFusion for floats, which casts its input to floats, so that it accepts any numbers.
#[derive(Debug)]
pub(super) struct AsFloats(pub(super) Box<dyn Accumulator>);

impl AsFloats {
    fn floats(values: &[ArrayRef]) -> Result<Vec<ArrayRef>> {
        let float = |values: &ArrayRef| Ok(arrow_cast::cast(values, &DataType::Float64)?);
        values.iter().map(float).collect()
    }
}

impl Accumulator for AsFloats {
    fn update_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        self.0.update_batch(&Self::floats(values)?)
    }

    fn retract_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        self.0.retract_batch(&Self::floats(values)?)
    }

    fn supports_retract_batch(&self) -> bool {
        self.0.supports_retract_batch()
    }

    fn merge_batch(&mut self, states: &[ArrayRef]) -> Result<()> {
        self.0.merge_batch(states)
    }

    fn evaluate(&mut self) -> Result<ScalarValue> {
        self.0.evaluate()
    }

    fn state(&mut self) -> Result<Vec<ScalarValue>> {
        self.0.state()
    }

    fn size(&self) -> usize {
        self.0.size()
    }
}
