//! States of sketches or moments, one for each group: the accumulators of aggregate functions whose result is such a
//! state.
//!
//! Invariant: the state of a group depends only on the group's rows, not on their batches or on other groups; a group
//! without rows has the state of no rows.

use crate::{Moments, Sketch};
use arrow_array::{Array, ArrayRef, BooleanArray, UInt32Array};
use arrow_schema::{ArrowError, DataType};
use arrow_select::filter::filter;
use arrow_select::take::take;
use farpool_model::{Error, Result, StateFunction};

/// Bytes counted for a frequent value that a sketch keeps, in addition to the value's string.
const BYTES_PER_FREQUENT: usize = 128;

/// Factor by which moments may grow from their size without rows. Reason: once there are NULLs, a pair of columns has
/// six numbers instead of one.
const MOMENTS_GROWTH: usize = 8;

/// Kind of an encoded state. The bytes of the state do not contain it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum StateForm {
    /// A sketch.
    Sketch,
    /// Moments.
    Moments,
}

impl StateForm {
    /// Returns the form of the states of `function`.
    pub fn of(function: StateFunction) -> StateForm {
        match function {
            StateFunction::Sketch(_) => StateForm::Sketch,
            StateFunction::Moments(_) => StateForm::Moments,
        }
    }

    /// Decodes a state of this kind.
    ///
    /// # Errors
    /// `Corrupt` when the bytes are corrupt or of another version.
    pub fn read(self, bytes: &[u8]) -> Result<State> {
        Ok(match self {
            StateForm::Sketch => State::Sketch(Box::new(Sketch::from_bytes(bytes)?)),
            StateForm::Moments => State::Moments(Box::new(Moments::from_bytes(bytes)?)),
        })
    }
}

/// A state of either kind.
#[derive(Clone, Debug)]
pub enum State {
    /// A sketch of one column.
    Sketch(Box<Sketch>),
    /// Moments of several columns together.
    Moments(Box<Moments>),
}

impl State {
    /// Creates the state of `function` over no rows of columns of these types.
    ///
    /// # Errors
    /// Errors of [`Sketch::new`] and [`Moments::new`]; `Internal` for a sketch of a number of columns other
    /// than one.
    pub fn new(function: StateFunction, types: &[DataType]) -> Result<State> {
        match (function, types) {
            (StateFunction::Sketch(parameters), [data_type]) => {
                Ok(State::Sketch(Box::new(Sketch::new(parameters, data_type)?)))
            }
            (StateFunction::Sketch(_), types) => {
                Err(Error::internal(format!("a sketch of {} columns", types.len())))
            }
            (StateFunction::Moments(nulls), types) => {
                Ok(State::Moments(Box::new(Moments::new(types, nulls)?)))
            }
        }
    }

    /// Adds rows, given column by column.
    ///
    /// # Errors
    /// Errors of [`Sketch::update`] and [`Moments::update`].
    pub fn update(&mut self, columns: &[ArrayRef]) -> Result<()> {
        match (self, columns) {
            // An empty batch is skipped, because it must not change a state.
            (_, [column, ..]) if column.is_empty() => Ok(()),
            (State::Sketch(sketch), [column]) => sketch.update(column),
            (State::Sketch(_), _) => Err(Error::internal("a sketch is of one column")),
            (State::Moments(moments), columns) => moments.update(columns),
        }
    }

    /// Frees scratch memory, which the next update allocates again.
    pub fn shrink(&mut self) {
        if let State::Moments(moments) = self {
            moments.shrink();
        }
    }

    /// Merges the rows of another state into this one.
    ///
    /// # Errors
    /// `Invalid` when the other state is of another kind; those of [`Sketch::merge`] and [`Moments::merge`].
    pub fn merge(&mut self, other: &State) -> Result<()> {
        match (self, other) {
            (State::Sketch(ours), State::Sketch(theirs)) => ours.merge(theirs),
            (State::Moments(ours), State::Moments(theirs)) => ours.merge(theirs),
            (State::Sketch(_), State::Moments(_)) | (State::Moments(_), State::Sketch(_)) => {
                Err(Error::invalid("a sketch and moments cannot be merged"))
            }
        }
    }

    /// Encodes the state.
    pub fn to_bytes(&self) -> Vec<u8> {
        match self {
            State::Sketch(sketch) => sketch.to_bytes(),
            State::Moments(moments) => moments.to_bytes(),
        }
    }

    /// Returns the bytes of memory that the state takes.
    pub fn bytes_held(&self) -> usize {
        match self {
            State::Sketch(sketch) => sketch.bytes_held(),
            State::Moments(moments) => moments.bytes_held(),
        }
    }
}

/// States of groups, which are numbered from 0.
#[derive(Debug)]
pub struct States {
    function: StateFunction,
    types: Vec<DataType>,
    /// State of each group; `None` for a group without rows.
    groups: Vec<Option<State>>,
    /// Sum of the bytes of memory of all states.
    bytes: usize,
}

impl States {
    /// Creates states without groups.
    ///
    /// # Errors
    /// As [`State::new`].
    pub fn new(function: StateFunction, types: &[DataType]) -> Result<States> {
        State::new(function, types)?;
        Ok(States { function, types: types.to_vec(), groups: Vec::new(), bytes: 0 })
    }

    /// Creates states of the same function and types, without groups.
    pub fn emptied(&self) -> States {
        States { function: self.function, types: self.types.clone(), groups: Vec::new(), bytes: 0 }
    }

    /// Grows to `groups` groups. New groups have no rows.
    pub fn resize(&mut self, groups: usize) {
        self.groups.resize_with(groups, || None);
    }

    /// Returns the number of groups.
    pub fn len(&self) -> usize {
        self.groups.len()
    }

    /// Returns whether there are no groups.
    pub fn is_empty(&self) -> bool {
        self.groups.is_empty()
    }

    /// Returns the bytes of memory that the states of all groups take.
    pub fn bytes_held(&self) -> usize {
        self.bytes + self.groups.capacity() * size_of::<Option<State>>()
    }

    /// Returns two numbers of bytes, neither of which includes strings and binaries: the memory of a group that has a
    /// value, and an upper bound of the memory that a group can take.
    ///
    /// # Errors
    /// As [`State::new`].
    pub fn bytes_per_group(function: StateFunction, types: &[DataType]) -> Result<(usize, usize)> {
        let state = State::new(function, types)?;
        let empty = state.bytes_held() + size_of::<Option<State>>();
        Ok(match function {
            StateFunction::Sketch(parameters) => {
                let least = empty + Sketch::bytes_of_counters(&parameters);
                let registers = parameters.distinct.map_or(0, |precision| 4_usize << precision);
                let sample = types.first().map_or(0, |of| Sketch::bytes_of_quantiles(&parameters, of));
                (least, least + registers + parameters.top as usize * BYTES_PER_FREQUENT + sample)
            }
            StateFunction::Moments(_) => (empty, empty * MOMENTS_GROWTH),
        })
    }

    /// Adds the rows that `mask` passes to the states of their groups; with `groups` `None`, all to group 0.
    ///
    /// # Errors
    /// As [`State::update`].
    pub fn update(
        &mut self,
        columns: &[ArrayRef],
        groups: Option<&[u32]>,
        mask: Option<&BooleanArray>,
    ) -> Result<()> {
        let Some(groups) = groups else {
            return match mask {
                None => self.change(0, |state| state.update(columns)),
                Some(mask) => {
                    let passed = columns.iter().map(|column| filter(column, mask));
                    let passed = passed.collect::<std::result::Result<Vec<_>, _>>().map_err(of_kernel)?;
                    self.change(0, |state| state.update(&passed))
                }
            };
        };
        let rows = by_group(groups, mask);
        let indices = UInt32Array::from_iter_values(rows.iter().map(|(_, row)| *row));
        let columns = columns.iter().map(|column| take(column, &indices, None));
        let columns = columns.collect::<std::result::Result<Vec<ArrayRef>, _>>().map_err(of_kernel)?;
        let mut first = 0;
        for run in rows.chunk_by(|one, two| one.0 == two.0) {
            let part: Vec<ArrayRef> = columns.iter().map(|column| column.slice(first, run.len())).collect();
            self.change(run[0].0 as usize, |state| {
                state.update(&part)?;
                state.shrink();
                Ok(())
            })?;
            first += run.len();
        }
        Ok(())
    }

    /// Adds each of `values` to a group as many times as its count in `counts`, and then `nulls` NULLs.
    ///
    /// # Errors
    /// As [`Sketch::update_counted`].
    pub fn update_counted(
        &mut self,
        group: usize,
        values: &ArrayRef,
        counts: &[u64],
        nulls: u64,
    ) -> Result<()> {
        self.change(group, |state| match state {
            State::Sketch(sketch) => {
                sketch.update_counted(values, counts)?;
                sketch.count_nulls(nulls)
            }
            State::Moments(_) => Err(Error::internal("moments do not count values")),
        })
    }

    /// Merges the groups `from` of `other` into the groups `to` of these states, pair by pair.
    ///
    /// # Errors
    /// As [`State::merge`].
    pub fn merge(&mut self, other: &States, from: &[u32], to: &[u32]) -> Result<()> {
        for (from, to) in from.iter().zip(to) {
            if let Some(theirs) = &other.groups[*from as usize] {
                self.merge_state(*to as usize, theirs)?;
            }
        }
        Ok(())
    }

    /// Merges a state into a group.
    ///
    /// # Errors
    /// As [`State::merge`].
    pub fn merge_state(&mut self, group: usize, theirs: &State) -> Result<()> {
        match &self.groups[group] {
            Some(_) => self.change(group, |ours| ours.merge(theirs)),
            None => {
                self.bytes += theirs.bytes_held();
                self.groups[group] = Some(theirs.clone());
                Ok(())
            }
        }
    }

    /// Encodes the state of a group.
    ///
    /// # Errors
    /// Fails only on a bug in this crate.
    pub fn to_bytes(&self, group: usize) -> Result<Vec<u8>> {
        self.read(group, |state| Ok(state.to_bytes()))
    }

    /// Creates the state of a single row. It does not become part of a group.
    ///
    /// # Errors
    /// As [`State::update`].
    pub fn of_row(&self, columns: &[ArrayRef], row: usize) -> Result<State> {
        let mut state = State::new(self.function, &self.types)?;
        let row: Vec<ArrayRef> = columns.iter().map(|column| column.slice(row, 1)).collect();
        state.update(&row)?;
        Ok(state)
    }

    /// Calls `read` with the state of a group and returns its result.
    ///
    /// # Errors
    /// Errors of `read`.
    pub fn read<T>(&self, group: usize, read: impl FnOnce(&State) -> Result<T>) -> Result<T> {
        match &self.groups[group] {
            Some(state) => read(state),
            None => read(&State::new(self.function, &self.types)?),
        }
    }

    /// Removes the states of the first `count` groups and returns them. The other groups move to the front, so that
    /// their numbers change.
    ///
    /// # Errors
    /// Fails only on a bug in this crate.
    pub fn take_first(&mut self, count: usize) -> Result<Vec<State>> {
        let taken: Vec<Option<State>> = self.groups.drain(..count).collect();
        self.bytes -= taken.iter().flatten().map(State::bytes_held).sum::<usize>();
        let state = |state: Option<State>| state.map_or_else(|| State::new(self.function, &self.types), Ok);
        taken.into_iter().map(state).collect()
    }

    fn change(&mut self, group: usize, change: impl FnOnce(&mut State) -> Result<()>) -> Result<()> {
        let slot = &mut self.groups[group];
        let before = slot.as_ref().map_or(0, State::bytes_held);
        let state = match slot {
            Some(state) => state,
            None => slot.insert(State::new(self.function, &self.types)?),
        };
        let changed = change(state);
        self.bytes = self.bytes + state.bytes_held() - before;
        changed
    }
}

/// Returns the rows that `mask` passes with their groups, sorted by group and then by row.
fn by_group(groups: &[u32], mask: Option<&BooleanArray>) -> Vec<(u32, u32)> {
    let rows = (0..).zip(groups).map(|(row, group)| (*group, row));
    let mut rows: Vec<(u32, u32)> = match mask {
        None => rows.collect(),
        Some(mask) => {
            rows.filter(|(_, row)| mask.value(*row as usize) && mask.is_valid(*row as usize)).collect()
        }
    };
    rows.sort_unstable();
    rows
}

fn of_kernel(error: ArrowError) -> Error {
    Error::internal(format!("an Arrow kernel failed: {error}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use arrow_array::{Int16Array, Int64Array, StringViewArray};
    use farpool_model::{NullHandling, SketchParameters};
    use std::sync::Arc;

    fn functions() -> Vec<(StateFunction, Vec<ArrayRef>)> {
        let numbers: ArrayRef =
            Arc::new(Int64Array::from_iter((0..60).map(|i| (i % 7 != 0).then_some(i * i % 11))));
        let others: ArrayRef = Arc::new(Int16Array::from_iter_values((0..60).map(|i| i % 5)));
        let texts = (0..60).map(|i| (i % 4 != 0).then(|| format!("value {}", i % 9)));
        let texts: ArrayRef = Arc::new(StringViewArray::from_iter(texts));
        let parameters: SketchParameters =
            "distinct=6 frequency=3x6 second_moment=3x6 top=4".parse().unwrap();
        vec![
            (StateFunction::Sketch(parameters), vec![texts]),
            (StateFunction::Sketch(SketchParameters::NONE), vec![numbers.clone()]),
            (StateFunction::Moments(NullHandling::Pairwise), vec![numbers.clone(), others.clone()]),
            (StateFunction::Moments(NullHandling::Listwise), vec![numbers, others]),
        ]
    }

    fn types(columns: &[ArrayRef]) -> Vec<DataType> {
        columns.iter().map(|column| column.data_type().clone()).collect()
    }

    #[test]
    fn a_group_has_the_state_of_its_rows() {
        let groups: Vec<u32> = (0..60).map(|row| row * 7 % 5).collect();
        let mask = BooleanArray::from_iter((0..60).map(|row| (row % 10 != 3).then_some(row % 3 != 0)));
        for (function, columns) in functions() {
            let mut states = States::new(function, &types(&columns)).unwrap();
            states.resize(6);
            for part in [0..20, 20..60] {
                let columns: Vec<ArrayRef> =
                    columns.iter().map(|c| c.slice(part.start, part.len())).collect();
                let mask = mask.slice(part.start, part.len());
                states.update(&columns, Some(&groups[part]), Some(&mask)).unwrap();
            }
            for group in 0..6 {
                let rows = (0..60_u32).filter(|row| groups[*row as usize] == group);
                let rows = rows.filter(|row| mask.is_valid(*row as usize) && mask.value(*row as usize));
                let rows = UInt32Array::from_iter_values(rows);
                let columns: Vec<ArrayRef> = columns.iter().map(|c| take(c, &rows, None).unwrap()).collect();
                let mut alone = State::new(function, &types(&columns)).unwrap();
                alone.update(&columns).unwrap();
                assert_eq!(
                    states.to_bytes(group as usize).unwrap(),
                    alone.to_bytes(),
                    "{function:?} {group}"
                );
            }
            assert!(states.bytes_held() > 5 * State::new(function, &types(&columns)).unwrap().bytes_held());
        }
    }

    #[test]
    fn merging_groups_gives_the_state_of_all_their_rows() {
        for (function, columns) in functions() {
            let half = |from: usize| -> Vec<ArrayRef> { columns.iter().map(|c| c.slice(from, 30)).collect() };
            let mut one = States::new(function, &types(&columns)).unwrap();
            let mut two = one.emptied();
            one.resize(1);
            two.resize(3);
            one.update(&half(0), None, None).unwrap();
            two.update(&half(30), Some(&[2; 30]), None).unwrap();
            one.resize(2);
            one.merge(&two, &[2, 1], &[0, 1]).unwrap();
            let mut whole = State::new(function, &types(&columns)).unwrap();
            whole.update(&columns).unwrap();
            let none = State::new(function, &types(&columns)).unwrap().to_bytes();
            assert_eq!(one.to_bytes(1).unwrap(), none);
            let taken = one.take_first(1).unwrap();
            assert_eq!(taken[0].to_bytes(), whole.to_bytes());
            assert_eq!(StateForm::of(function).read(&whole.to_bytes()).unwrap().to_bytes(), whole.to_bytes());
            assert_eq!((one.len(), one.bytes), (1, 0));
        }
    }
}
