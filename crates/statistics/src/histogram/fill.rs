//! Counts the values of Arrow arrays in the bins of a histogram: many values at once by [`super::blocks`], few
//! one by one. The minimum and maximum of an array are determined first, so that the counting loop needs no branches
//! for them.

use super::{Bins, Filled, Histogram, Number, blocks, exp2};
use crate::decimals;
use arrow_array::cast::AsArray;
use arrow_array::types::{ArrowPrimitiveType, Decimal128Type, Float32Type, Float64Type, UInt64Type};
use arrow_array::{Array, PrimitiveArray};
use arrow_schema::DataType;
use farpool_model::{Error, Result, with_narrow_integer};
use std::borrow::Cow;

/// Adds the values of an array. If `counts` is given, it has the number of occurrences of each value.
pub(super) fn fill(histogram: &mut Histogram, values: &dyn Array, counts: Option<&[u64]>) -> Result<()> {
    match &mut histogram.filled {
        Filled::Whole(bins) => return fill_whole(bins, values, counts),
        Filled::Real(bins) => {
            histogram.outside += match values.data_type() {
                DataType::Float32 => fill_real(bins, values.as_primitive::<Float32Type>(), counts),
                DataType::Float64 => fill_real(bins, values.as_primitive::<Float64Type>(), counts),
                other => return Err(other_kind(other)),
            }
        }
    }
    Ok(())
}

fn fill_whole(bins: &mut Bins<i128>, values: &dyn Array, counts: Option<&[u64]>) -> Result<()> {
    match values.data_type() {
        DataType::UInt64 => wide::<UInt64Type>(bins, values, counts),
        DataType::Decimal128(..) => wide::<Decimal128Type>(bins, values, counts),
        other => {
            with_narrow_integer!(other, T => narrow::<T>(bins, values, counts), return Err(other_kind(other)))
        }
    }
    Ok(())
}

fn other_kind(data_type: &DataType) -> Error {
    Error::invalid(format!("values of type {data_type} in a histogram of other numbers"))
}

/// Counts integers that fit signed 64 bits. The bin of a value is computed by one shift and one subtraction of 64-bit
/// integers.
fn narrow<T>(bins: &mut Bins<i128>, values: &dyn Array, counts: Option<&[u64]>)
where
    T: ArrowPrimitiveType,
    T::Native: Into<i64> + Ord,
{
    let values = values.as_primitive::<T>();
    if many(values, counts).is_some_and(|values| blocks::whole(bins, &values).is_some()) {
        return;
    }
    let Some((low, high)) = range(values) else { return };
    let (low, high): (i64, i64) = (low.into(), high.into());
    bins.cover(low.into(), high.into());
    // A shift by 63 leaves only the sign, so larger shifts are not needed.
    let shift = bins.k.clamp(0, 63);
    let Ok(first) = i64::try_from(bins.first) else {
        // The number of bins would exceed 64 bits only if integers of more than 64 bits were counted before.
        let (k, first, bins) = (bins.k, bins.first, &mut bins.counts);
        return each(values, counts, |v, count| {
            add(bins, (i128::from(v.into()).bin(k) - first) as usize, count)
        });
    };
    let bins = &mut bins.counts;
    each(values, counts, |value, count| add(bins, ((value.into() >> shift) - first) as usize, count));
}

fn wide<T>(bins: &mut Bins<i128>, values: &dyn Array, counts: Option<&[u64]>)
where
    T: ArrowPrimitiveType,
    T::Native: Into<i128> + Ord,
{
    let values = values.as_primitive::<T>();
    let narrow = many(values, counts).and_then(|values| narrowed(&values));
    if narrow.is_some_and(|values| blocks::whole(bins, &values).is_some()) {
        return;
    }
    let Some((low, high)) = range(values) else { return };
    bins.cover(low.into(), high.into());
    let (k, first, bins) = (bins.k, bins.first, &mut bins.counts);
    each(values, counts, |value, count| add(bins, (value.into().bin(k) - first) as usize, count));
}

/// Counts the finite values. Returns the number of the other values.
fn fill_real<T>(bins: &mut Bins<f64>, values: &PrimitiveArray<T>, counts: Option<&[u64]>) -> u64
where
    T: ArrowPrimitiveType,
    T::Native: Into<f64>,
{
    if let Some(values) = many(values, counts) {
        return blocks::real(bins, &values);
    }
    let (mut low, mut high, mut outside) = (f64::INFINITY, f64::NEG_INFINITY, 0);
    each(values, counts, |value, count| {
        let value: f64 = value.into();
        let finite = value.is_finite();
        outside += if finite { 0 } else { count };
        low = if finite && value < low { value } else { low };
        high = if finite && value > high { value } else { high };
    });
    if low > high {
        return outside;
    }
    // Adding 0.0 turns -0.0 into 0.0.
    bins.cover(low + 0.0, high + 0.0);
    let (scale, first) = (exp2(-bins.k), bins.first as f64);
    let bins = &mut bins.counts;
    each(values, counts, |value, count| {
        let value: f64 = value.into();
        if value.is_finite() {
            let scaled = value * scale;
            let bin = if scaled == 0.0 && value < 0.0 { -1.0 } else { scaled.floor() };
            add(bins, (bin - first) as usize, count);
        }
    });
    outside
}

/// Returns the values if none of them is NULL, there are many, and each counts once; otherwise `None`.
fn many<'a, T: ArrowPrimitiveType>(
    values: &'a PrimitiveArray<T>,
    counts: Option<&[u64]>,
) -> Option<Cow<'a, [T::Native]>> {
    if counts.is_some() || values.len() - values.null_count() < blocks::VALUES_MIN {
        return None;
    }
    Some(match values.nulls().filter(|nulls| nulls.null_count() > 0) {
        None => Cow::Borrowed(values.values()),
        Some(nulls) => Cow::Owned(nulls.valid_indices().map(|row| values.values()[row]).collect()),
    })
}

/// Converts the numbers to signed 64-bit integers; `None` if one of them does not fit.
fn narrowed<T: Copy + Into<i128>>(values: &[T]) -> Option<Vec<i64>> {
    const BLOCK: usize = 1024;
    let mut narrow = vec![0; values.len()];
    let mut wide = [0; BLOCK];
    for (values, narrow) in values.chunks(BLOCK).zip(narrow.chunks_mut(BLOCK)) {
        let wide = &mut wide[..values.len()];
        wide.iter_mut().zip(values).for_each(|(wide, value)| *wide = (*value).into());
        if !decimals::narrow(wide, narrow) {
            return None;
        }
    }
    Some(narrow)
}

fn add(bins: &mut [u64], bin: usize, count: u64) {
    bins[bin] = bins[bin].saturating_add(count);
}

fn range<T>(values: &PrimitiveArray<T>) -> Option<(T::Native, T::Native)>
where
    T: ArrowPrimitiveType,
    T::Native: Ord,
{
    let mut range: Option<(T::Native, T::Native)> = None;
    if values.null_count() == 0 {
        let slice = values.values();
        let first = *slice.first()?;
        return Some(slice.iter().fold((first, first), |(low, high), v| (low.min(*v), high.max(*v))));
    }
    each(values, None, |value, _| {
        range = Some(range.map_or((value, value), |(low, high)| (low.min(value), high.max(value))));
    });
    range
}

/// Calls `f` with each value that is not NULL, and the number of its occurrences.
fn each<T: ArrowPrimitiveType>(
    values: &PrimitiveArray<T>,
    counts: Option<&[u64]>,
    mut f: impl FnMut(T::Native, u64),
) {
    let nulls = values.nulls().filter(|nulls| nulls.null_count() > 0);
    match (nulls, counts) {
        (None, None) => values.values().iter().for_each(|value| f(*value, 1)),
        (None, Some(counts)) => {
            values.values().iter().zip(counts).for_each(|(value, count)| f(*value, *count))
        }
        (Some(nulls), None) => nulls.valid_indices().for_each(|row| f(values.values()[row], 1)),
        (Some(nulls), Some(counts)) => {
            nulls.valid_indices().for_each(|row| f(values.values()[row], counts[row]));
        }
    }
}
