//! Sums of floats without groups.
//!
//! Value i is added to partial sum i modulo [`SUMS`], and the partial sums are added up at the end. With a single sum,
//! each addition would wait four cycles for the one before. The order of additions is the same on every CPU.

use farpool_columns::{Kernel, Level, Simd};

/// Number of partial sums: four vector registers of eight values each.
const SUMS: usize = 32;

/// Sums the values whose bit is set in `valid`, or all of them if it is `None`.
pub(super) fn sum<T: Copy + Into<f64>>(values: &[T], valid: Option<&[u64]>) -> f64 {
    Level::best().run(Sum { values, valid })
}

struct Sum<'a, T> {
    values: &'a [T],
    valid: Option<&'a [u64]>,
}

impl<T: Copy + Into<f64>> Kernel for Sum<'_, T> {
    type Output = f64;

    #[inline(always)]
    fn run<S: Simd>(self, _: S) -> f64 {
        let mut sums = [0.0; SUMS];
        let (whole, rest) = self.values.as_chunks::<SUMS>();
        match self.valid {
            None => {
                for values in whole {
                    sums.iter_mut().zip(values).for_each(|(sum, value)| *sum += (*value).into());
                }
                sums.iter_mut().zip(rest).for_each(|(sum, value)| *sum += (*value).into());
            }
            Some(valid) => {
                // A value whose bit is clear may be NaN, so that it is replaced by 0 instead of being multiplied by
                // 0.
                let bits = |index: usize| valid[index / 2] >> (index % 2 * SUMS);
                for (index, values) in whole.iter().enumerate() {
                    let bits = bits(index);
                    for (place, (sum, value)) in sums.iter_mut().zip(values).enumerate() {
                        *sum += if bits >> place & 1 == 1 { (*value).into() } else { 0.0 };
                    }
                }
                for (place, (sum, value)) in sums.iter_mut().zip(rest).enumerate() {
                    *sum += if bits(whole.len()) >> place & 1 == 1 { (*value).into() } else { 0.0 };
                }
            }
        }
        let mut width = SUMS;
        while width > 1 {
            width /= 2;
            let (left, right) = sums.split_at_mut(width);
            left.iter_mut().zip(right).for_each(|(left, right)| *left += *right);
        }
        sums[0]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sums_are_those_of_a_loop_on_every_level() {
        for rows in [0, 1, 31, 32, 33, 63, 64, 65, 1000] {
            // The values are whole numbers, whose sums are exact in any order, and NaN where the bit is clear.
            let bits = crate::bits::collect(rows, |row| row % 7 != 3 && row % 64 != 63);
            let value = |row: usize| if crate::bits::get(&bits, row) { row as f64 - 100.0 } else { f64::NAN };
            let values: Vec<f64> = (0..rows).map(value).collect();
            let expected: f64 = values.iter().filter(|value| !value.is_nan()).sum();
            let singles: Vec<f32> = (0..rows).map(|row| row as f32 / 4.0).collect();
            let of_singles = (0..rows).map(|row| row as f64 / 4.0).sum::<f64>();
            for level in Level::all() {
                assert_eq!(
                    level.run(Sum { values: &values, valid: Some(&bits) }),
                    expected,
                    "{level:?}, {rows}"
                );
                assert_eq!(level.run(Sum { values: &singles, valid: None }), of_singles, "{level:?}, {rows}");
            }
        }
    }
}
