//! Computes the results of aggregate functions from accumulators (running values of the groups, such as a sum and
//! a count).

use super::aggregation::{AggregateResult, Aggregation};
use super::store::{Store, Sums};
use crate::evaluate::array_of_ints;
use arrow_array::{
    ArrayRef, BinaryViewArray, BooleanArray, Float32Array, Float64Array, Int64Array, StringViewArray,
};
use arrow_buffer::NullBuffer;
use arrow_schema::DataType;
use farpool_model::literal::integer_range;
use farpool_model::{Accumulation, Error, Result};
use farpool_statistics::{mean_of_decimals, mean_of_wide_decimals};
use std::ops::RangeInclusive;
use std::sync::Arc;

impl Aggregation {
    /// Returns the results of the groups `groups`, one array per aggregate function.
    ///
    /// # Errors
    /// `Invalid` when a sum or a mean does not fit its type.
    pub(super) fn finish(&self, stores: &[Store], groups: &[u32]) -> Result<Vec<ArrayRef>> {
        let of = |result: &AggregateResult| {
            finish_one(result, &stores[result.value], &stores[result.count], groups)
        };
        self.results.iter().map(of).collect()
    }
}

fn finish_one(result: &AggregateResult, values: &Store, counts: &Store, groups: &[u32]) -> Result<ArrayRef> {
    let groups = || groups.iter().map(|g| *g as usize);
    let nulls = || match counts {
        Store::Count(counts) => {
            let seen = groups().map(|g| counts[g] > 0).collect::<NullBuffer>();
            Some(seen).filter(|seen| seen.null_count() > 0)
        }
        _ => None,
    };
    match (result.accumulation, values) {
        (Accumulation::Count, _) => Ok(Arc::new(groups().map(|g| counts.count(g)).collect::<Int64Array>())),
        (Accumulation::Sum, Store::Sum(values)) => sums(result, values, groups(), nulls()),
        (Accumulation::Sum, Store::FloatSum(sums)) => Ok(floats(groups().map(|g| sums[g]), nulls())),
        (Accumulation::Mean, Store::Sum(sums)) => means(result, sums, counts, groups()),
        (Accumulation::Mean, Store::FloatSum(sums)) => {
            Ok(floats(groups().map(|g| sums[g] / counts.count(g) as f64), nulls()))
        }
        (Accumulation::Fold(_), folded) => folds(result, folded, groups(), nulls()),
        (Accumulation::State(_), Store::States(states)) => {
            let states = groups().map(|g| states.to_bytes(g)).collect::<Result<Vec<_>>>()?;
            Ok(Arc::new(BinaryViewArray::from_iter_values(states)))
        }
        (Accumulation::Sum | Accumulation::Mean | Accumulation::State(_), _) => Err(unfit(result)),
    }
}

fn unfit(result: &AggregateResult) -> Error {
    Error::internal(format!("the store of {:?} holds something else than it needs", result.name))
}

fn floats(values: impl Iterator<Item = f64>, nulls: Option<NullBuffer>) -> ArrayRef {
    Arc::new(Float64Array::new(values.collect::<Vec<f64>>().into(), nulls))
}

fn sums(
    result: &AggregateResult,
    sums: &Sums,
    groups: impl Iterator<Item = usize>,
    nulls: Option<NullBuffer>,
) -> Result<ArrayRef> {
    if let (Sums::Narrow(sums), DataType::Int64) = (sums, &result.data_type) {
        return Ok(Arc::new(Int64Array::new(groups.map(|g| sums[g]).collect::<Vec<_>>().into(), nulls)));
    }
    let range = range_of(&result.data_type);
    let sum = |g| sums.exact(g).filter(|s| range.contains(s)).ok_or_else(|| overflow("sum", result));
    let exact = groups.map(sum).collect::<Result<Vec<_>>>()?;
    array_of_ints(&result.data_type, exact.into_iter(), nulls)
}

fn folds(
    result: &AggregateResult,
    folded: &Store,
    groups: impl Iterator<Item = usize>,
    nulls: Option<NullBuffer>,
) -> Result<ArrayRef> {
    Ok(match (folded, &result.data_type) {
        (Store::IntFold { values, .. }, DataType::Boolean) => {
            let values: Vec<bool> = groups.map(|g| values[g] == 1).collect();
            Arc::new(BooleanArray::new(values.into(), nulls))
        }
        (Store::IntFold { values, .. }, data_type) => {
            array_of_ints(data_type, groups.map(|g| values[g]), nulls)?
        }
        (Store::FloatPick { values, .. }, DataType::Float32) => {
            let values: Vec<f32> = groups.map(|g| values[g] as f32).collect();
            Arc::new(Float32Array::new(values.into(), nulls))
        }
        (Store::FloatPick { values, .. }, _) => floats(groups.map(|g| values[g]), nulls),
        (Store::BytesPick { values, .. }, DataType::Utf8View) => {
            let texts: std::result::Result<Vec<Option<&str>>, _> =
                groups.map(|g| values[g].as_deref().map(std::str::from_utf8).transpose()).collect();
            let texts = texts.map_err(|_| Error::internal("a string that is not UTF-8"))?;
            Arc::new(StringViewArray::from(texts))
        }
        (Store::BytesPick { values, .. }, _) => {
            Arc::new(groups.map(|g| values[g].as_deref()).collect::<BinaryViewArray>())
        }
        (Store::Present | Store::Count(_) | Store::Sum(_) | Store::FloatSum(_) | Store::States(_), _) => {
            return Err(unfit(result));
        }
    })
}

fn means(
    result: &AggregateResult,
    sums: &Sums,
    counts: &Store,
    groups: impl Iterator<Item = usize>,
) -> Result<ArrayRef> {
    if let (DataType::Decimal128(_, from), DataType::Decimal128(_, to)) =
        (&result.argument_type, &result.data_type)
    {
        let digits = u32::from((i16::from(*to) - i16::from(*from)).unsigned_abs());
        let (factor, range) = (10_i128.checked_pow(digits), range_of(&result.data_type));
        let average = |g: usize| match counts.count(g) {
            0 => Ok(None),
            count => factor
                .and_then(|factor| average_of(sums, g, count, factor))
                .filter(|mean| range.contains(mean))
                .map(Some)
                .ok_or_else(|| overflow("mean", result)),
        };
        let values: Vec<Option<i128>> = groups.map(average).collect::<Result<_>>()?;
        let nulls = values.iter().map(Option::is_some).collect::<NullBuffer>();
        let values = values.into_iter().map(Option::unwrap_or_default);
        return array_of_ints(&result.data_type, values, Some(nulls).filter(|n| n.null_count() > 0));
    }
    let mean = |g: usize| {
        let count = counts.count(g);
        (count > 0).then(|| sums.exact(g).map_or(f64::NAN, |sum| sum as f64 / count as f64))
    };
    Ok(Arc::new(groups.map(mean).collect::<Float64Array>()))
}

/// Returns the mean of a group's decimals, multiplied by `factor` (the scale of the result) and rounded; `None` if it
/// does not fit.
fn average_of(sums: &Sums, group: usize, count: i64, factor: i128) -> Option<i128> {
    match sums.exact(group) {
        Some(sum) => mean_of_decimals(sum, count, factor),
        None => mean_of_wide_decimals(sums.wide(group), count, factor)?.to_i128(),
    }
}

fn range_of(data_type: &DataType) -> RangeInclusive<i128> {
    match data_type {
        DataType::Decimal128(precision, _) => {
            let bound = 10_i128.pow(u32::from(*precision)) - 1;
            -bound..=bound
        }
        other => integer_range(other).map_or(0..=0, |(min, max)| min..=max),
    }
}

fn overflow(what: &str, result: &AggregateResult) -> Error {
    Error::overflow(what, &result.name, &result.data_type)
}
