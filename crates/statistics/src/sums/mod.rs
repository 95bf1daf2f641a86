//! Exact sums and means of integers and decimals, of one group or many, as states that can be merged. For engines whose
//! own sums wrap or lose digits. The engine assigns rows to groups; the sums are kept here.
//!
//! - Input: arrays of a type that [`ExactSums::new`] supports, with NULLs, and a filter.
//! - Output: the sum or mean of each group, NULL for a group without values; or the states of the groups, in the columns
//!   that [`ExactSums::state_types`] lists. Groups stay in order; the order of rows does not matter.
//! - Memory per group: 8 bytes for integers, 16 for decimals, 32 for decimals of 256 bits; 8 more if values are counted;
//!   and 8 more in all groups once the sum of one of them exceeds its word.
//! - Parallelism: none. Each thread has states of its own, which are merged.
//! - Errors: a final sum or mean that does not fit the type of the result.
//!
//! Invariant: a sum is kept exactly, not modulo a power of two, so that intermediate sums may exceed the type of the
//! result by any amount.

mod mean;
mod seen;
mod words;

#[cfg(test)]
mod tests;

pub use mean::{mean_of_decimals, mean_of_wide_decimals};

use arrow_array::cast::AsArray;
use arrow_array::types::{
    ArrowPrimitiveType, Decimal32Type, Decimal64Type, Decimal128Type, Decimal256Type, Int64Type, UInt64Type,
};
use arrow_array::{Array, ArrayRef, BooleanArray, Int64Array, PrimitiveArray, UInt64Array};
use arrow_buffer::{NullBuffer, i256};
use arrow_schema::{DECIMAL128_MAX_PRECISION, DECIMAL256_MAX_PRECISION, DataType};
use farpool_model::{Error, Result};
use seen::Seen;
use std::borrow::Cow;
use std::sync::Arc;
use words::{Digits, Direction, Rows, Totals};

/// The result that is computed from the sums.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Purpose {
    /// The sum itself.
    Sum,
    /// The sum divided by the number of values; for decimals only.
    Mean,
}

/// The sums of groups.
#[derive(Debug)]
pub struct ExactSums {
    totals: AnyTotals,
    seen: Seen,
    purpose: Purpose,
    /// Scale of decimal values; 0 for integers.
    scale: i8,
    /// Whether states have a column of carries. Sums of 64-bit values in words of 128 bits never need one.
    has_carries: bool,
}

#[derive(Debug)]
enum AnyTotals {
    /// Sums of signed integers.
    Integers(Totals<i64>),
    /// Sums of decimals of up to 128 bits, and of unsigned integers.
    Narrow(Totals<i128>),
    /// Sums of decimals of 256 bits.
    Wide(Totals<i256>),
}

impl ExactSums {
    /// Creates sums for no groups, of values of type `argument`; `None` for types that are not supported.
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
            DataType::Int64 => AnyTotals::Integers(Totals::default()),
            DataType::Decimal256(..) => AnyTotals::Wide(Totals::default()),
            _ => AnyTotals::Narrow(Totals::default()),
        };
        let seen = match purpose {
            Purpose::Sum => Seen::All(0),
            Purpose::Mean => Seen::Counts(Vec::new()),
        };
        let has_carries =
            matches!(argument, DataType::Int64 | DataType::Decimal128(..) | DataType::Decimal256(..));
        Some(ExactSums { totals, seen, purpose, scale, has_carries })
    }

    /// Makes these the sums of a single group (as for a window function), from which values can be removed again by
    /// [`ExactSums::retract`].
    #[must_use]
    pub fn retractable(mut self) -> ExactSums {
        self.seen = Seen::Counts(Vec::new());
        self.resize(1);
        self
    }

    /// Returns the names and types of the columns of states.
    pub fn state_types(&self) -> Vec<(&'static str, DataType)> {
        let carries = self.has_carries.then_some(("carries", DataType::Int64));
        let counts = (self.purpose == Purpose::Mean).then_some(("count", DataType::UInt64));
        [("sum", self.totals.data_type())].into_iter().chain(carries).chain(counts).collect()
    }

    /// Returns the number of groups.
    pub fn groups(&self) -> usize {
        match &self.totals {
            AnyTotals::Integers(totals) => totals.len(),
            AnyTotals::Narrow(totals) => totals.len(),
            AnyTotals::Wide(totals) => totals.len(),
        }
    }

    /// Grows to `groups` groups. The next update or merge must have a row for each new group.
    pub fn resize(&mut self, groups: usize) {
        match &mut self.totals {
            AnyTotals::Integers(totals) => totals.resize(groups),
            AnyTotals::Narrow(totals) => totals.resize(groups),
            AnyTotals::Wide(totals) => totals.resize(groups),
        }
    }

    /// Adds the values of rows for which `filter` is true. `groups` has the group of each row; with `None`, all rows
    /// belong to the first group.
    ///
    /// # Panics
    /// When the values have another type than the one given to [`ExactSums::new`], or a group does not exist.
    pub fn update(&mut self, values: &dyn Array, groups: Option<&[usize]>, filter: Option<&BooleanArray>) {
        let valid = valid(values, filter);
        let rows = Rows { groups, valid: valid.as_ref() };
        self.totals.add(values, rows, Direction::In);
        self.seen.note(rows, values.len(), self.groups());
    }

    /// Removes values that were added to the first group before.
    ///
    /// # Panics
    /// As [`ExactSums::update`], and when the sums are not [`ExactSums::retractable`].
    pub fn retract(&mut self, values: &dyn Array) {
        let valid = valid(values, None);
        self.totals.add(values, Rows { groups: None, valid: valid.as_ref() }, Direction::Out);
        let Seen::Counts(counts) = &mut self.seen else { unreachable!("values are counted to be taken out") };
        counts[0] -= count(values, valid.as_ref());
    }

    /// Merges states, in the columns that [`ExactSums::state_types`] lists.
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

    /// Removes the first `groups` groups and returns their states. The other groups move to the front, so that their
    /// numbers change.
    pub fn take_states(&mut self, groups: usize) -> Vec<ArrayRef> {
        let nulls = self.seen.nulls(groups);
        let counts = self.seen.take_counts(groups);
        let data_type = self.totals.data_type();
        let (sums, carries) = match &mut self.totals {
            AnyTotals::Integers(totals) => totals.take::<Int64Type>(groups, nulls, data_type),
            AnyTotals::Narrow(totals) => totals.take::<Decimal128Type>(groups, nulls, data_type),
            AnyTotals::Wide(totals) => totals.take::<Decimal256Type>(groups, nulls, data_type),
        };
        let carries: Option<ArrayRef> = self.has_carries.then(|| Arc::new(carries) as ArrayRef);
        let counts = counts.filter(|_| self.purpose == Purpose::Mean);
        [sums].into_iter().chain(carries).chain(counts.map(|counts| Arc::new(counts) as ArrayRef)).collect()
    }

    /// Returns the states of rows each of which is a group of its own.
    ///
    /// # Panics
    /// As [`ExactSums::update`].
    pub fn states_of_rows(&self, values: &dyn Array, filter: Option<&BooleanArray>) -> Vec<ArrayRef> {
        let rows = values.len();
        let valid = valid(values, filter);
        let counts = (self.purpose == Purpose::Mean).then(|| match &valid {
            Some(valid) => valid.iter().map(u64::from).collect(),
            None => UInt64Array::from(vec![1; rows]),
        });
        let carries = self.has_carries.then(|| Arc::new(Int64Array::from(vec![0; rows])) as ArrayRef);
        let sums = self.totals.words_of(values, valid);
        [sums].into_iter().chain(carries).chain(counts.map(|counts| Arc::new(counts) as ArrayRef)).collect()
    }

    /// Returns the sums or means of the first `groups` groups as an array of type `result`. Messages of errors contain
    /// `name`. For sums, `result` must be the type of the values or a wider one of its kind; for means, a decimal of
    /// the same width.
    ///
    /// # Errors
    /// `Invalid` when a sum or mean does not fit `result`.
    pub fn results(&self, groups: usize, name: &str, result: &DataType) -> Result<ArrayRef> {
        let what = match self.purpose {
            Purpose::Sum => "sum",
            Purpose::Mean => "mean",
        };
        self.fitting(groups, result).ok_or_else(|| Error::overflow(what, name, result))
    }

    fn fitting(&self, groups: usize, result: &DataType) -> Option<ArrayRef> {
        let nulls = self.seen.nulls(groups);
        match (&self.totals, result) {
            (AnyTotals::Integers(totals), DataType::Int64) => {
                column::<Int64Type, _>(totals.exact(groups)?, nulls, result)
            }
            (AnyTotals::Narrow(totals), DataType::UInt64) => {
                column::<UInt64Type, _>(totals.exact(groups)?, nulls, result)
            }
            (AnyTotals::Narrow(totals), DataType::Decimal32(digits, scale)) => {
                column::<Decimal32Type, _>(&self.decimals(totals, groups, *digits, *scale)?, nulls, result)
            }
            (AnyTotals::Narrow(totals), DataType::Decimal64(digits, scale)) => {
                column::<Decimal64Type, _>(&self.decimals(totals, groups, *digits, *scale)?, nulls, result)
            }
            (AnyTotals::Narrow(totals), DataType::Decimal128(digits, scale)) => {
                column::<Decimal128Type, _>(&self.decimals(totals, groups, *digits, *scale)?, nulls, result)
            }
            (AnyTotals::Wide(totals), DataType::Decimal256(digits, scale)) => {
                column::<Decimal256Type, _>(&self.decimals(totals, groups, *digits, *scale)?, nulls, result)
            }
            (AnyTotals::Integers(_) | AnyTotals::Narrow(_) | AnyTotals::Wide(_), _) => {
                unreachable!("sums of another kind than {result}")
            }
        }
    }

    /// Returns the sums or means of the first `groups` groups as decimals; `None` if one has too many digits.
    fn decimals<'a, W: Digits>(
        &self,
        totals: &'a Totals<W>,
        groups: usize,
        digits: u8,
        scale: i8,
    ) -> Option<Cow<'a, [W]>> {
        match (self.purpose, &self.seen) {
            (Purpose::Mean, Seen::Counts(counts)) => {
                let more = u32::try_from(i16::from(scale) - i16::from(self.scale)).ok()?;
                let factor = 10_i128.checked_pow(more)?;
                Some(Cow::Owned(totals.means(groups, counts, factor, digits)?))
            }
            (Purpose::Sum | Purpose::Mean, _) => Some(Cow::Borrowed(totals.decimals(groups, digits)?)),
        }
    }

    /// Removes the first `groups` groups. The other groups move to the front, so that their numbers change.
    pub fn drop_first(&mut self, groups: usize) {
        self.seen.drop_first(groups);
        match &mut self.totals {
            AnyTotals::Integers(totals) => totals.drop_first(groups),
            AnyTotals::Narrow(totals) => totals.drop_first(groups),
            AnyTotals::Wide(totals) => totals.drop_first(groups),
        }
    }

    /// Returns the bytes of memory that the sums take.
    pub fn bytes_held(&self) -> usize {
        let totals = match &self.totals {
            AnyTotals::Integers(totals) => totals.bytes_held(),
            AnyTotals::Narrow(totals) => totals.bytes_held(),
            AnyTotals::Wide(totals) => totals.bytes_held(),
        };
        totals + self.seen.bytes_held()
    }
}

impl AnyTotals {
    /// Returns the type of the column of words in states. Words may have more digits than the type allows.
    fn data_type(&self) -> DataType {
        match self {
            AnyTotals::Integers(_) => DataType::Int64,
            AnyTotals::Narrow(_) => DataType::Decimal128(DECIMAL128_MAX_PRECISION, 0),
            AnyTotals::Wide(_) => DataType::Decimal256(DECIMAL256_MAX_PRECISION, 0),
        }
    }

    fn add(&mut self, values: &dyn Array, rows: Rows<'_>, direction: Direction) {
        match (self, values.data_type()) {
            (AnyTotals::Integers(totals), DataType::Int64) => {
                totals.add(native::<Int64Type>(values), rows, direction);
            }
            (AnyTotals::Integers(_), other) => unreachable!("values of another type: {other}"),
            (AnyTotals::Narrow(totals), DataType::UInt64) => {
                totals.add(native::<UInt64Type>(values), rows, direction);
            }
            (AnyTotals::Narrow(totals), DataType::Decimal32(..)) => {
                totals.add(native::<Decimal32Type>(values), rows, direction);
            }
            (AnyTotals::Narrow(totals), DataType::Decimal64(..)) => {
                totals.add(native::<Decimal64Type>(values), rows, direction);
            }
            (AnyTotals::Narrow(totals), _) => totals.add(native::<Decimal128Type>(values), rows, direction),
            (AnyTotals::Wide(totals), _) => totals.add(native::<Decimal256Type>(values), rows, direction),
        }
    }

    /// Returns the state column of words for rows each of which is a group of its own.
    fn words_of(&self, values: &dyn Array, valid: Option<NullBuffer>) -> ArrayRef {
        let data_type = self.data_type();
        match (self, values.data_type()) {
            (AnyTotals::Integers(_), _) => {
                words::<Int64Type, _>(native::<Int64Type>(values), valid, data_type)
            }
            (AnyTotals::Narrow(_), DataType::UInt64) => {
                words::<Decimal128Type, _>(native::<UInt64Type>(values), valid, data_type)
            }
            (AnyTotals::Narrow(_), DataType::Decimal32(..)) => {
                words::<Decimal128Type, _>(native::<Decimal32Type>(values), valid, data_type)
            }
            (AnyTotals::Narrow(_), DataType::Decimal64(..)) => {
                words::<Decimal128Type, _>(native::<Decimal64Type>(values), valid, data_type)
            }
            (AnyTotals::Narrow(_), _) => {
                words::<Decimal128Type, _>(native::<Decimal128Type>(values), valid, data_type)
            }
            (AnyTotals::Wide(_), _) => {
                words::<Decimal256Type, _>(native::<Decimal256Type>(values), valid, data_type)
            }
        }
    }

    fn carry(&mut self, carries: &[i64], rows: Rows<'_>) {
        match self {
            AnyTotals::Integers(totals) => totals.add_carries(carries, rows),
            AnyTotals::Narrow(totals) => totals.add_carries(carries, rows),
            AnyTotals::Wide(totals) => totals.add_carries(carries, rows),
        }
    }
}

/// Returns the values of an array, which is of type `T`.
fn native<T: ArrowPrimitiveType>(values: &dyn Array) -> &[T::Native] {
    values.as_primitive::<T>().values()
}

fn words<T: ArrowPrimitiveType, N: Copy + Into<T::Native>>(
    values: &[N],
    valid: Option<NullBuffer>,
    data_type: DataType,
) -> ArrayRef {
    let words: Vec<T::Native> = values.iter().map(|value| (*value).into()).collect();
    Arc::new(PrimitiveArray::<T>::new(words.into(), valid).with_data_type(data_type))
}

/// Converts words to a column of `data_type`; `None` if one does not fit.
fn column<T: ArrowPrimitiveType, W: Copy>(
    words: &[W],
    nulls: Option<NullBuffer>,
    data_type: &DataType,
) -> Option<ArrayRef>
where
    T::Native: TryFrom<W>,
{
    let values = words.iter().map(|word| T::Native::try_from(*word).ok()).collect::<Option<Vec<_>>>()?;
    Some(Arc::new(PrimitiveArray::<T>::new(values.into(), nulls).with_data_type(data_type.clone())))
}

/// Returns a bitmap of the rows that count; `None` if all rows do.
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
