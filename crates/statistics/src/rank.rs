//! Rank correlations: Spearman's rho with average ranks, and Kendall's tau-b by Knight's algorithm (1966).
//!
//! - Input: two arrays of numbers of equal length; rows in which one of them is NULL are left out.
//! - Values are only compared, always exactly, also 64-bit integers and decimals.
//! - -0 equals 0. A NaN in a row that counts makes the result NaN, as in scipy.
//! - The result is also NaN with fewer than two rows, or if a column is constant. Time O(n log n), memory O(n).

use crate::profile::is_numeric;
use arrow_array::Array;
use arrow_array::cast::AsArray;
use arrow_array::types::*;
use arrow_schema::DataType;
use farpool_model::{Error, Result, with_integer};

/// Computes Spearman's rank correlation of two columns.
///
/// # Errors
/// `Invalid` when the columns are not numbers or differ in length.
pub fn spearman(x: &dyn Array, y: &dyn Array) -> Result<f64> {
    let Some((x, y)) = keys(x, y)? else { return Ok(f64::NAN) };
    let (x, y) = (twice_ranks(&x), twice_ranks(&y));
    let mean = x.len() as i128 + 1;
    let around = |a: &[u64], b: &[u64]| -> i128 {
        a.iter().zip(b).map(|(a, b)| (i128::from(*a) - mean) * (i128::from(*b) - mean)).sum()
    };
    let (xy, xx, yy) = (around(&x, &y), around(&x, &x), around(&y, &y));
    if xx == 0 || yy == 0 {
        return Ok(f64::NAN);
    }
    Ok((xy as f64 / (xx as f64 * yy as f64).sqrt()).clamp(-1.0, 1.0))
}

/// Computes Kendall's rank correlation of two columns, tau-b. It is 1 if the two columns order all pairs of rows alike,
/// including ties.
///
/// # Errors
/// `Invalid` when the columns are not numbers or differ in length.
pub fn kendall(x: &dyn Array, y: &dyn Array) -> Result<f64> {
    let Some((x, y)) = keys(x, y)? else { return Ok(f64::NAN) };
    let (x, y) = (twice_ranks(&x), twice_ranks(&y));
    let mut rows: Vec<(u64, u64)> = x.into_iter().zip(y).collect();
    rows.sort_unstable();
    let tied_in_both = tied_pairs(&rows);
    let tied_in_x = tied_pairs(&rows.iter().map(|row| row.0).collect::<Vec<_>>());
    let mut y: Vec<u64> = rows.into_iter().map(|row| row.1).collect();
    let swaps = sort_counting_swaps(&mut y);
    let tied_in_y = tied_pairs(&y);
    let all = pairs(y.len() as u64);
    if tied_in_x == all || tied_in_y == all {
        return Ok(f64::NAN);
    }
    let agreement = (all - tied_in_x - tied_in_y + tied_in_both) as i128 - 2 * swaps as i128;
    let untied = ((all - tied_in_x) as f64).sqrt() * ((all - tied_in_y) as f64).sqrt();
    Ok((agreement as f64 / untied).clamp(-1.0, 1.0))
}

/// Converts both columns to integers that compare as the values do, for the rows in which neither is NULL. Returns
/// `None` if a value is NaN or there are fewer than two rows.
fn keys(x: &dyn Array, y: &dyn Array) -> Result<Option<(Vec<i128>, Vec<i128>)>> {
    if x.len() != y.len() {
        let (x, y) = (x.len(), y.len());
        return Err(Error::invalid(format!("a rank correlation is of columns of one length: {x} and {y}")));
    }
    let (all_x, all_y) = (ordered(x)?, ordered(y)?);
    let kept = |row: &usize| x.is_valid(*row) && y.is_valid(*row);
    let rows: Vec<usize> = (0..x.len()).filter(kept).collect();
    let pick = |all: &[i128]| rows.iter().map(|row| all[*row]).collect::<Vec<_>>();
    let (x, y) = (pick(&all_x), pick(&all_y));
    let known = x.len() > 1 && !x.contains(&NAN) && !y.contains(&NAN);
    Ok(known.then_some((x, y)))
}

/// Stands for NaN. No decimal has so many digits.
const NAN: i128 = i128::MIN;

/// Converts the values to integers that compare as they do.
fn ordered(values: &dyn Array) -> Result<Vec<i128>> {
    Ok(match values.data_type() {
        DataType::Float32 => values
            .as_primitive::<Float32Type>()
            .values()
            .iter()
            .map(|v| ordered_float(f64::from(*v)))
            .collect(),
        DataType::Float64 => {
            values.as_primitive::<Float64Type>().values().iter().map(|v| ordered_float(*v)).collect()
        }
        other if !is_numeric(other) => return Err(not_numeric(other)),
        other => with_integer!(
            other,
            T => values.as_primitive::<T>().values().iter().map(|value| i128::from(*value)).collect(),
            return Err(not_numeric(other))
        ),
    })
}

fn not_numeric(data_type: &DataType) -> Error {
    Error::invalid(format!("there is no rank correlation of a column of type {data_type}"))
        .advise("choose columns of integers, decimals or floats, or cast this one")
}

/// Converts a float to an integer that compares as the float does, by its IEEE 754 bits; -0 counts as 0.
fn ordered_float(value: f64) -> i128 {
    if value.is_nan() {
        return NAN;
    }
    let bits = (value + 0.0).to_bits().cast_signed();
    i128::from(if bits < 0 { bits ^ i64::MAX } else { bits })
}

/// Returns twice the average rank of each value, which is an integer even for ties. Ranks begin at 1.
fn twice_ranks(values: &[i128]) -> Vec<u64> {
    let mut order: Vec<(i128, usize)> = values.iter().copied().zip(0..).collect();
    order.sort_unstable();
    let mut ranks = vec![0; values.len()];
    let mut first = 0;
    for run in order.chunk_by(|a, b| a.0 == b.0) {
        let rank = (2 * first + run.len() + 1) as u64;
        run.iter().for_each(|(_, row)| ranks[*row] = rank);
        first += run.len();
    }
    ranks
}

/// Returns the number of pairs of `count` rows.
fn pairs(count: u64) -> u64 {
    u64::try_from(u128::from(count) * u128::from(count.saturating_sub(1)) / 2).unwrap_or(u64::MAX)
}

/// Returns the number of pairs of equal values in a sorted slice.
fn tied_pairs<T: PartialEq>(sorted: &[T]) -> u64 {
    sorted.chunk_by(|a, b| a == b).map(|run| pairs(run.len() as u64)).sum()
}

/// Merge-sorts the values, and returns the number of pairs that were in the wrong order.
fn sort_counting_swaps(values: &mut [u64]) -> u64 {
    let mut scratch = values.to_vec();
    let mut swaps = 0;
    let mut width = 1;
    while width < values.len() {
        for (from, to) in values.chunks(2 * width).zip(scratch.chunks_mut(2 * width)) {
            let (left, right) = from.split_at(width.min(from.len()));
            swaps += merge_counting_swaps(left, right, to);
        }
        values.copy_from_slice(&scratch);
        width *= 2;
    }
    swaps
}

fn merge_counting_swaps(left: &[u64], right: &[u64], to: &mut [u64]) -> u64 {
    let (mut i, mut j, mut swaps) = (0, 0, 0);
    for slot in to {
        let from_left = j == right.len() || (i < left.len() && left[i] <= right[j]);
        *slot = if from_left { left[i] } else { right[j] };
        if from_left {
            i += 1;
        } else {
            j += 1;
            swaps += (left.len() - i) as u64;
        }
    }
    swaps
}

#[cfg(test)]
mod tests {
    use super::*;
    use arrow_array::{Decimal128Array, Float64Array, Int32Array, StringArray, UInt64Array};
    use proptest::prelude::*;

    #[test]
    fn ranks_of_scipy() {
        let x = Int32Array::from(vec![Some(12), Some(2), Some(1), Some(12), Some(2), None]);
        let y = Float64Array::from(vec![1.0, 4.0, 7.0, 1.0, 0.0, 9.0]);
        // The expected value is that of scipy.stats.kendalltau for the first five rows.
        assert!((kendall(&x, &y).unwrap() - -0.471_404_520_791_031_7).abs() < 1e-15);
    }

    #[test]
    fn edges() {
        let ramp = Float64Array::from(vec![1.0, 2.0, 3.0]);
        let both = |x: &dyn Array, y: &dyn Array| (spearman(x, y).unwrap(), kendall(x, y).unwrap());
        let nothing = |(rho, tau): (f64, f64)| rho.is_nan() && tau.is_nan();
        assert!(nothing(both(&ramp, &Float64Array::from(vec![0.0, -0.0, 0.0]))));
        assert!(nothing(both(&ramp, &Float64Array::from(vec![1.0, f64::NAN, 0.0]))));
        assert!(nothing(both(&ramp.slice(0, 1), &ramp.slice(1, 1))));
        // Adjacent integers that would be equal as floats keep their order, and so do infinities.
        let large = UInt64Array::from(vec![u64::MAX - 2, u64::MAX - 1, u64::MAX]);
        let infinite = Float64Array::from(vec![f64::NEG_INFINITY, 0.0, f64::INFINITY]);
        assert_eq!(both(&large, &infinite), (1.0, 1.0));
        let decimals = Decimal128Array::from(vec![Some(-3), None, Some(-30)]);
        assert_eq!(both(&large, &decimals), (-1.0, -1.0));
        assert!(spearman(&ramp, &ramp.slice(0, 2)).is_err());
        assert!(kendall(&ramp, &StringArray::from(vec!["a", "b", "c"])).is_err());
    }

    /// Computes Kendall's tau-b naively, by comparing every pair of rows.
    fn kendall_twin(x: &[i32], y: &[i32]) -> f64 {
        let (mut agreement, mut untied) = (0, [0.0, 0.0]);
        for j in 0..x.len() {
            for i in 0..j {
                let (a, b) = ((x[i] - x[j]).signum(), (y[i] - y[j]).signum());
                agreement += a * b;
                untied[0] += f64::from(a.abs());
                untied[1] += f64::from(b.abs());
            }
        }
        f64::from(agreement) / (untied[0] * untied[1]).sqrt()
    }

    /// Computes Spearman's rank correlation naively: Pearson's coefficient of average ranks, each found by counting.
    fn spearman_twin(x: &[i32], y: &[i32]) -> f64 {
        let ranks = |values: &[i32]| -> Vec<f64> {
            let count = |test: &dyn Fn(&i32) -> bool| values.iter().filter(|v| test(v)).count() as f64;
            values.iter().map(|v| count(&|w| w < v) + (count(&|w| w == v) + 1.0) / 2.0).collect()
        };
        let (x, y, mean) = (ranks(x), ranks(y), (x.len() as f64 + 1.0) / 2.0);
        let around =
            |a: &[f64], b: &[f64]| a.iter().zip(b).map(|(a, b)| (a - mean) * (b - mean)).sum::<f64>();
        around(&x, &y) / (around(&x, &x) * around(&y, &y)).sqrt()
    }

    proptest! {
        #[test]
        fn agree_with_the_plain_twins(rows in proptest::collection::vec((0i32..9, -40i32..40), 0..120)) {
            let (x, y): (Vec<i32>, Vec<i32>) = rows.into_iter().unzip();
            let arrays = (Int32Array::from(x.clone()), Int32Array::from(y.clone()));
            let same = |ours: f64, twin: f64| (ours - twin).abs() < 1e-12 || (ours.is_nan() && twin.is_nan());
            prop_assert!(same(kendall(&arrays.0, &arrays.1).unwrap(), kendall_twin(&x, &y)));
            prop_assert!(same(spearman(&arrays.0, &arrays.1).unwrap(), spearman_twin(&x, &y)));
        }
    }
}
