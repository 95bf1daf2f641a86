//! Finishes a grouping that a pool returns in parts: several rows (partial aggregates) may belong to one group.
//! Describes how the parts of each group are merged, and how the merged values become the result (Woods et al.,
//! *Ibex*, PVLDB 2014, section 6.2.1).
//!
//! The engine groups the parts by their group keys with aggregates of its own, which [`Finish::calls`] lists, and then
//! applies to the merged values the [`Step`] of each result.
//!
//! Invariant: the finished rows are the same as those of a pool that answers `exact`.

use arrow_array::cast::AsArray;
use arrow_array::types::{Decimal128Type, Float64Type, Int64Type};
use arrow_array::{Array, ArrayRef, Decimal128Array, Float64Array, Int64Array};
use arrow_cast::CastOptions;
use arrow_cast::display::FormatOptions;
use arrow_schema::{DataType, Field, Schema};
use farpool_model::partial::Merge;
use farpool_model::{
    Accumulation, Answer, Error, Fold, OperatorAnswer, Output, PartialForm, Prepared, Program, Result,
};
use farpool_statistics::{StateForm, mean_of_decimals};
use std::sync::Arc;

/// Steps by which the partial aggregates that a program returns become the result of the whole program.
#[derive(Clone, Debug)]
pub struct Finish {
    keys: usize,
    form: PartialForm,
    limit: Option<u64>,
}

/// An aggregate that the engine computes over the partial aggregates of each group.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Call {
    /// Position of the program's aggregate that this one contributes to.
    pub aggregate: usize,
    /// Position of the column of partial aggregates that it merges, counted after the group keys.
    pub part: usize,
    /// Whether that column has counts.
    pub is_count: bool,
    /// The aggregate function.
    pub merge: PartMerge,
    /// A step that is applied to the column before it is aggregated; `None` if there is none.
    pub before: Option<Step>,
}

/// An aggregate function over partial aggregates. All ignore NULLs, and return NULL if there are no other values.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum PartMerge {
    /// The sum, in the type of the partial aggregates.
    Sum,
    /// A fold, such as the minimum.
    Fold(Fold),
    /// The state (sketch or moments) that the states are merged into.
    State(StateForm),
}

/// A computation on whole columns, before or after partial aggregates are merged.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Step {
    /// Converts a sum of counts to the count, which is never NULL.
    Count,
    /// Converts an exact sum to the type of the result; an error if the sum does not fit.
    Sum,
    /// Divides a sum by a count.
    Mean,
    /// Maps a float to an integer such that integers compare as the floats do. NaN is the greatest.
    Order,
    /// Maps such an integer back to its float.
    Float,
}

impl Finish {
    /// Returns how the result of `prepared` becomes that of `program`; `None` if more is needed than merging groups and
    /// applying a limit.
    pub fn of(program: &Program, prepared: &Prepared, table_schema: &Schema) -> Option<Self> {
        let Output::Aggregate { keys, aggregates } = &program.output else { return None };
        let form = PartialForm::of(aggregates, table_schema).ok()?;
        let output = Output::Aggregate { keys: keys.clone(), aggregates: form.aggregates.clone() };
        // The pool decides which table versions are read, so that versions are not compared. Lookups are carried out whole
        // or not at all.
        let Program { version, lookups, .. } = prepared.effective.clone();
        let expected =
            Program { output, version, lookups, order: Vec::new(), limit: None, ..program.clone() };
        let is_other = |a: &OperatorAnswer| {
            a.answer != Answer::Exact && !a.operator.is_grouping() && !a.operator.cuts_rows()
        };
        let is_as_expected =
            prepared.is_partial() && prepared.effective == expected && !prepared.answers.iter().any(is_other);
        // If the program has a sort order, the engine's sort above the program also applies the limit.
        let limit = program.limit.filter(|_| program.order.is_empty());
        is_as_expected.then_some(Finish { keys: keys.len(), form, limit })
    }

    /// Returns the number of group keys, which are the first columns of the partial aggregates and of the result.
    pub fn keys(&self) -> usize {
        self.keys
    }

    /// Returns the type of each column of partial aggregates (those after the group keys), and whether it is nullable.
    pub fn parts(&self) -> impl Iterator<Item = (DataType, bool)> {
        let is_count = |part: &farpool_model::Aggregate| part.function.accumulation() == Accumulation::Count;
        self.form.aggregates.iter().map(move |part| (part.data_type.clone(), !is_count(part)))
    }

    /// Returns how each aggregate of the program is merged.
    pub fn merges(&self) -> &[Merge] {
        &self.form.merges
    }

    /// Returns the aggregates that the engine computes over the partial aggregates, in the order of the program's
    /// aggregates: two for a mean (sum and count), one for any other.
    pub fn calls(&self) -> Vec<Call> {
        let call = |aggregate, part: usize, merge| {
            let of = &self.form.aggregates[part];
            let picks = matches!(of.function.accumulation(), Accumulation::Fold(Fold::Pick(_)));
            // Engines compare floats differently if there are NaNs, so that their minimum may depend on the order of
            // rows. Integers have no such problem.
            let before = (picks && of.data_type.is_floating()).then_some(Step::Order);
            let is_count = of.function.accumulation() == Accumulation::Count;
            Call { aggregate, part, is_count, merge, before }
        };
        let calls = |(i, merge): (usize, &Merge)| match *merge {
            Merge::Count(part) | Merge::Sum(part) => vec![call(i, part, PartMerge::Sum)],
            Merge::Fold(fold, part) => vec![call(i, part, PartMerge::Fold(fold))],
            Merge::State(state, part) => vec![call(i, part, PartMerge::State(StateForm::of(state)))],
            Merge::Mean { sum, count } => vec![call(i, sum, PartMerge::Sum), call(i, count, PartMerge::Sum)],
        };
        self.form.merges.iter().enumerate().flat_map(calls).collect()
    }

    /// Returns the maximum number of rows of the result. `None` if there is no limit, or the program has a sort order:
    /// then the sort above it applies the limit.
    pub fn limit(&self) -> Option<u64> {
        self.limit
    }
}

impl Step {
    /// Returns the step from merged values of type `merged` to a result of type `result`; `None` if they are the result
    /// already.
    pub fn after(merge: Merge, merged: &DataType, result: &DataType) -> Option<Step> {
        match merge {
            Merge::Count(_) => Some(Step::Count),
            Merge::Mean { .. } => Some(Step::Mean),
            Merge::Sum(_) if merged != result => Some(Step::Sum),
            Merge::Fold(..) if merged != result => Some(Step::Float),
            Merge::Sum(_) | Merge::Fold(..) | Merge::State(..) => None,
        }
    }

    /// Returns the number of columns that the step takes as arguments: two for a mean, one for any other.
    pub fn arguments(self) -> usize {
        if self == Step::Mean { 2 } else { 1 }
    }

    /// Applies the step to `arguments`, and returns the values of the column `result`.
    ///
    /// # Errors
    /// `Invalid` if a value does not fit the type of `result`.
    pub fn apply(self, arguments: &[ArrayRef], result: &Field) -> Result<ArrayRef> {
        match (self, arguments) {
            (Step::Count, [counts]) => Ok(Arc::clone(counts)),
            (Step::Sum, [sums]) => cast(sums, result),
            (Step::Order, [floats]) => {
                let floats = cast(floats, &Field::new(result.name(), DataType::Float64, true))?;
                Ok(Arc::new(floats.as_primitive::<Float64Type>().unary::<_, Int64Type>(order_of)))
            }
            (Step::Float, [orders]) => {
                let floats = orders.as_primitive::<Int64Type>().unary::<_, Float64Type>(float_of);
                cast(&floats, result)
            }
            (Step::Mean, [sums, counts]) => means(sums, counts.as_primitive(), result),
            _ => Err(Error::internal("a merged aggregate without its parts")),
        }
    }
}

fn means(sums: &ArrayRef, counts: &Int64Array, result: &Field) -> Result<ArrayRef> {
    let counted = |row: usize| counts.is_valid(row) && counts.value(row) > 0 && sums.is_valid(row);
    let rows = 0..counts.len();
    if let DataType::Float64 = sums.data_type() {
        let sums = sums.as_primitive::<Float64Type>();
        let mean = |row| counted(row).then(|| sums.value(row) / counts.value(row) as f64);
        return Ok(Arc::new(rows.map(mean).collect::<Float64Array>()));
    }
    let sums = sums.as_primitive::<Decimal128Type>();
    let DataType::Decimal128(precision, scale) = result.data_type() else {
        let mean = |row| counted(row).then(|| sums.value(row) as f64 / counts.value(row) as f64);
        return Ok(Arc::new(rows.map(mean).collect::<Float64Array>()));
    };
    let digits = u32::from((i16::from(*scale) - i16::from(sums.scale())).unsigned_abs());
    let bound = 10_i128.pow(u32::from(*precision));
    let mean = |row: usize| {
        let factor = 10_i128.checked_pow(digits)?;
        let mean = mean_of_decimals(sums.value(row), counts.value(row), factor)?;
        Some(mean).filter(|mean| -bound < *mean && *mean < bound)
    };
    let overflow = || Error::overflow("mean", result.name(), result.data_type());
    let mean = |row| counted(row).then(|| mean(row).ok_or_else(overflow)).transpose();
    let means = rows.map(mean).collect::<Result<Decimal128Array>>()?;
    let typed = means.with_precision_and_scale(*precision, *scale);
    typed.map(|means| Arc::new(means) as ArrayRef).map_err(|_| overflow())
}

fn cast(values: &dyn Array, result: &Field) -> Result<ArrayRef> {
    arrow_cast::cast_with_options(values, result.data_type(), &EXACT)
        .map_err(|_| Error::overflow("sum", result.name(), result.data_type()))
}

const EXACT: CastOptions<'static> = CastOptions { safe: false, format_options: FormatOptions::new() };

/// Maps a float to an integer such that integers compare as the floats do in IEEE total order, except that every NaN is
/// greatest, whatever its sign.
fn order_of(float: f64) -> i64 {
    let bits = float.to_bits().cast_signed();
    if float.is_nan() { i64::MAX } else { bits ^ ((bits >> 63).cast_unsigned() >> 1).cast_signed() }
}

/// Returns the float that [`Step::Order`] mapped to `order`.
pub fn float_of(order: i64) -> f64 {
    if order == i64::MAX {
        return f64::NAN;
    }
    f64::from_bits((order ^ ((order >> 63).cast_unsigned() >> 1).cast_signed()).cast_unsigned())
}

#[cfg(test)]
mod tests;
