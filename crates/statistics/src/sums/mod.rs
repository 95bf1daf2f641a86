//! Exact sums and means of integers and decimals, of one group or of many, as states that merge: for engines whose
//! own wrap or cut digits off. The engine says which row belongs to which group, what is added up is kept here.
//!
//! - Input: arrays of a type that [`ExactSums::new`] takes, with NULLs, and a filter.
//! - Output: the sum or the mean of each group, NULL of no values; or the states of the groups, in the columns
//!   that [`ExactSums::state_types`] names.
//! - Order: that of the groups. The order of rows changes nothing.
//! - Memory: 16 bytes for each group, 32 for decimals of 256 bits; 8 more where values are counted, and 8 for
//!   all groups once the sum of one does not fit its word.
//! - Parallelism: none. Each thread has states of its own, which are merged.
//! - Errors: a sum or a mean that does not fit the type of the result. Only the end is checked.
//!
//! Invariant: a kept sum is the sum itself and nothing modulo a power of two, so that it does not matter how far
//! out of its type a sum was on the way.

mod mean;
mod seen;
mod words;

#[cfg(test)]
mod tests;

pub use mean::{mean_of_decimals, mean_of_wide_decimals};

use arrow_array::cast::AsArray;
use arrow_array::types::{
    Decimal32Type, Decimal64Type, Decimal128Type, Decimal256Type, Int64Type, UInt64Type,
};
use arrow_array::{Array, ArrayRef, BooleanArray};
use arrow_buffer::{NullBuffer, i256};
use arrow_schema::{DECIMAL128_MAX_PRECISION, DECIMAL256_MAX_PRECISION, DataType};
use farpool_model::{Error, Result};
use seen::Seen;
use std::sync::Arc;
use words::{Direction, Rows, Totals};

/// What is made of the sums.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Purpose {
    /// The sum itself.
    Sum,
    /// The sum by the number of values, of decimals only.
    Mean,
}

/// The sums of groups.
#[derive(Debug)]
pub struct ExactSums {
    totals: AnyTotals,
    seen: Seen,
    purpose: Purpose,
    /// Scale of the values; 0 of integers.
    scale: i8,
    /// Whether states have a column of carries: 64-bit values never need one.
    has_carries: bool,
}

#[derive(Debug)]
enum AnyTotals {
    Narrow(Totals<i128>),
    Wide(Totals<i256>),
}

impl ExactSums {
    /// Sums of no groups, of values of type `argument`; `None` of a type that is not added up here.
    pub fn new(argument: &DataType, purpose: Purpose) -> Option<ExactSums> {
        let scale = match argument {
            DataType::Int64 | DataType::UInt64 if purpose == Purpose::Sum => 0,
            DataType::Decimal32(_, scale)
            | DataType::Decimal64(_, scale)
            | DataType::Decimal128(_, scale)
            | DataType::Decimal256(_, scale) => *scale,
            _ => return None,
        };
        let totals = match argument {
            DataType::Decimal256(..) => AnyTotals::Wide(Totals::default()),
            _ => AnyTotals::Narrow(Totals::default()),
        };
        let seen = match purpose {
            Purpose::Sum => Seen::All(0),
            Purpose::Mean => Seen::Counts(Vec::new()),
        };
        let has_carries = matches!(argument, DataType::Decimal128(..) | DataType::Decimal256(..));
        Some(ExactSums { totals, seen, purpose, scale, has_carries })
    }

    /// The same of a single group, from which values can be taken out again.
    #[must_use]
    pub fn retractable(mut self) -> ExactSums {
        self.seen = Seen::Counts(Vec::new());
        self.resize(1);
        self
    }

    /// Name and type of each column of the states.
    pub fn state_types(&self) -> Vec<(&'static str, DataType)> {
        let carries = self.has_carries.then_some(("carries", DataType::Int64));
        let counts = (self.purpose == Purpose::Mean).then_some(("count", DataType::UInt64));
        [("sum", self.totals.data_type())].into_iter().chain(carries).chain(counts).collect()
    }

    /// Number of groups.
    pub fn groups(&self) -> usize {
        match &self.totals {
            AnyTotals::Narrow(totals) => totals.len(),
            AnyTotals::Wide(totals) => totals.len(),
        }
    }

    /// Makes room for `groups` groups. Each new one must have a row in the next update or merge.
    pub fn resize(&mut self, groups: usize) {
        match &mut self.totals {
            AnyTotals::Narrow(totals) => totals.resize(groups),
            AnyTotals::Wide(totals) => totals.resize(groups),
        }
    }

    /// Adds the values for which `filter` holds. Each row is one of the group at its place in `groups`; without
    /// `groups` all are of the first.
    ///
    /// # Panics
    /// When the values are of another type than was said, or a group was not made room for.
    pub fn update(&mut self, values: &dyn Array, groups: Option<&[usize]>, filter: Option<&BooleanArray>) {
        let valid = valid(values, filter);
        let rows = Rows { groups, valid: valid.as_ref() };
        self.totals.add(values, rows, Direction::In);
        self.seen.note(rows, values.len(), self.groups());
    }

    /// Takes values of the first group out again that were added before.
    ///
    /// # Panics
    /// As [`ExactSums::update`], and unless it is [`ExactSums::retractable`].
    pub fn retract(&mut self, values: &dyn Array) {
        let valid = valid(values, None);
        self.totals.add(values, Rows { groups: None, valid: valid.as_ref() }, Direction::Out);
        let Seen::Counts(counts) = &mut self.seen else { unreachable!("values are counted to be taken out") };
        counts[0] -= count(values, valid.as_ref());
    }

    /// Adds states, in the columns that [`ExactSums::state_types`] names.
    ///
    /// # Panics
    /// As [`ExactSums::update`].
    pub fn merge(&mut self, states: &[ArrayRef], groups: Option<&[usize]>) {
        let sums = &states[0];
        let valid = valid(sums, None);
        let rows = Rows { groups, valid: valid.as_ref() };
        self.totals.add(sums, rows, Direction::In);
        if self.has_carries {
            self.totals.carry(states[1].as_primitive::<Int64Type>().values(), rows);
        }
        let total = self.groups();
        match (self.purpose, states.last()) {
            (Purpose::Mean, Some(counts)) => {
                self.seen.add_counts(counts.as_primitive::<UInt64Type>().values(), groups, total);
            }
            (Purpose::Sum | Purpose::Mean, _) => self.seen.note(rows, sums.len(), total),
        }
    }

    /// The states of the first `groups` groups, which are then no longer here; the others move to the front.
    pub fn take_states(&mut self, groups: usize) -> Vec<ArrayRef> {
        let nulls = self.seen.nulls(groups);
        let counts = self.seen.take_counts(groups);
        let data_type = self.totals.data_type();
        let (sums, carries) = match &mut self.totals {
            AnyTotals::Narrow(totals) => totals.take::<Decimal128Type>(groups, nulls, data_type),
            AnyTotals::Wide(totals) => totals.take::<Decimal256Type>(groups, nulls, data_type),
        };
        let carries: Option<ArrayRef> = self.has_carries.then(|| Arc::new(carries) as ArrayRef);
        let counts = counts.filter(|_| self.purpose == Purpose::Mean);
        [sums].into_iter().chain(carries).chain(counts.map(|counts| Arc::new(counts) as ArrayRef)).collect()
    }

    /// The states of rows that are a group each.
    ///
    /// # Panics
    /// As [`ExactSums::update`].
    pub fn states_of_rows(&self, values: &dyn Array, filter: Option<&BooleanArray>) -> Vec<ArrayRef> {
        let seen = self.seen.emptied();
        let mut rows = ExactSums { totals: self.totals.emptied(), seen, ..*self };
        let groups: Vec<usize> = (0..values.len()).collect();
        rows.resize(groups.len());
        rows.update(values, Some(&groups), filter);
        rows.take_states(groups.len())
    }

    /// Sums or means of the first `groups` groups, as a column `name` of type `result`. Of a sum, that is the
    /// type of the values or a wider one of its kind; of a mean a decimal of the same width.
    ///
    /// # Errors
    /// `Invalid` when one does not fit.
    pub fn results(&self, groups: usize, name: &str, result: &DataType) -> Result<ArrayRef> {
        let what = match self.purpose {
            Purpose::Sum => "sum",
            Purpose::Mean => "mean",
        };
        self.fitting(groups, result).ok_or_else(|| Error::overflow(what, name, result))
    }

    fn fitting(&self, groups: usize, result: &DataType) -> Option<ArrayRef> {
        let nulls = self.seen.nulls(groups);
        let column: ArrayRef = match (&self.totals, result) {
            (AnyTotals::Narrow(totals), DataType::Int64) => {
                Arc::new(totals.column::<Int64Type>(groups, nulls, |g| totals.exact(g))?)
            }
            (AnyTotals::Narrow(totals), DataType::UInt64) => {
                Arc::new(totals.column::<UInt64Type>(groups, nulls, |g| totals.exact(g))?)
            }
            (AnyTotals::Narrow(totals), DataType::Decimal32(precision, scale)) => {
                let value = |g| self.decimal(totals, g, *precision, *scale);
                Arc::new(totals.column::<Decimal32Type>(groups, nulls, value)?.with_data_type(result.clone()))
            }
            (AnyTotals::Narrow(totals), DataType::Decimal64(precision, scale)) => {
                let value = |g| self.decimal(totals, g, *precision, *scale);
                Arc::new(totals.column::<Decimal64Type>(groups, nulls, value)?.with_data_type(result.clone()))
            }
            (AnyTotals::Narrow(totals), DataType::Decimal128(precision, scale)) => {
                let value = |g| self.decimal(totals, g, *precision, *scale);
                Arc::new(
                    totals.column::<Decimal128Type>(groups, nulls, value)?.with_data_type(result.clone()),
                )
            }
            (AnyTotals::Wide(totals), DataType::Decimal256(precision, scale)) => {
                let value = |g| self.decimal(totals, g, *precision, *scale);
                Arc::new(
                    totals.column::<Decimal256Type>(groups, nulls, value)?.with_data_type(result.clone()),
                )
            }
            (AnyTotals::Narrow(_) | AnyTotals::Wide(_), _) => {
                unreachable!("sums of another kind than {result}")
            }
        };
        Some(column)
    }

    /// The sum or the mean of a group as a decimal; `None` if it has too many digits.
    fn decimal<W: words::Word>(
        &self,
        totals: &Totals<W>,
        group: usize,
        precision: u8,
        scale: i8,
    ) -> Option<W> {
        let value = match (self.purpose, &self.seen) {
            (Purpose::Mean, Seen::Counts(counts)) => {
                let digits = u32::try_from(i16::from(scale) - i16::from(self.scale)).ok()?;
                totals.mean(group, i64::try_from(counts[group]).ok()?, 10_i128.checked_pow(digits)?)
            }
            (Purpose::Sum | Purpose::Mean, _) => totals.exact(group),
        };
        value.filter(|value| value.has_digits(precision))
    }

    /// Forgets the first `groups` groups; the others move to the front.
    pub fn drop_first(&mut self, groups: usize) {
        self.seen.drop_first(groups);
        match &mut self.totals {
            AnyTotals::Narrow(totals) => totals.drop_first(groups),
            AnyTotals::Wide(totals) => totals.drop_first(groups),
        }
    }

    /// Bytes held.
    pub fn bytes_held(&self) -> usize {
        let totals = match &self.totals {
            AnyTotals::Narrow(totals) => totals.bytes_held(),
            AnyTotals::Wide(totals) => totals.bytes_held(),
        };
        totals + self.seen.bytes_held()
    }
}

impl AnyTotals {
    /// Type of the words, whose digits may be more than it says.
    fn data_type(&self) -> DataType {
        match self {
            AnyTotals::Narrow(_) => DataType::Decimal128(DECIMAL128_MAX_PRECISION, 0),
            AnyTotals::Wide(_) => DataType::Decimal256(DECIMAL256_MAX_PRECISION, 0),
        }
    }

    fn emptied(&self) -> AnyTotals {
        match self {
            AnyTotals::Narrow(_) => AnyTotals::Narrow(Totals::default()),
            AnyTotals::Wide(_) => AnyTotals::Wide(Totals::default()),
        }
    }

    fn add(&mut self, values: &dyn Array, rows: Rows<'_>, direction: Direction) {
        match (self, values.data_type()) {
            (AnyTotals::Narrow(totals), DataType::Int64) => {
                totals.add(values.as_primitive::<Int64Type>().values(), rows, direction);
            }
            (AnyTotals::Narrow(totals), DataType::UInt64) => {
                totals.add(values.as_primitive::<UInt64Type>().values(), rows, direction);
            }
            (AnyTotals::Narrow(totals), DataType::Decimal32(..)) => {
                totals.add(values.as_primitive::<Decimal32Type>().values(), rows, direction);
            }
            (AnyTotals::Narrow(totals), DataType::Decimal64(..)) => {
                totals.add(values.as_primitive::<Decimal64Type>().values(), rows, direction);
            }
            (AnyTotals::Narrow(totals), DataType::Decimal128(..)) => {
                totals.add(values.as_primitive::<Decimal128Type>().values(), rows, direction);
            }
            (AnyTotals::Wide(totals), DataType::Decimal256(..)) => {
                totals.add(values.as_primitive::<Decimal256Type>().values(), rows, direction);
            }
            (AnyTotals::Narrow(_) | AnyTotals::Wide(_), other) => {
                unreachable!("values of another type: {other}")
            }
        }
    }

    fn carry(&mut self, carries: &[i64], rows: Rows<'_>) {
        match self {
            AnyTotals::Narrow(totals) => totals.add_carries(carries, rows),
            AnyTotals::Wide(totals) => totals.add_carries(carries, rows),
        }
    }
}

/// The rows that count; `None` for all.
fn valid(values: &dyn Array, filter: Option<&BooleanArray>) -> Option<NullBuffer> {
    let passes = |filter: &BooleanArray| match filter.nulls() {
        Some(nulls) => NullBuffer::new(filter.values() & nulls.inner()),
        None => NullBuffer::new(filter.values().clone()),
    };
    let filter = filter.map(passes);
    NullBuffer::union(values.nulls(), filter.as_ref()).filter(|valid| valid.null_count() > 0)
}

fn count(values: &dyn Array, valid: Option<&NullBuffer>) -> u64 {
    farpool_model::cast::u64_from(values.len() - valid.map_or(0, NullBuffer::null_count))
}
