//! Converts decimals (128-bit integers) to 64-bit integers, on which all kernels are faster. Nearly all decimals
//! fit 64 bits.

use crate::arch::{Kernel, Level};

/// Writes the values to `narrow`, which must have the same length. Returns whether all of them fit 64 bits.
pub(crate) fn narrow(values: &[i128], narrow: &mut [i64]) -> bool {
    Level::best().run(Narrow { values, narrow })
}

struct Narrow<'a> {
    values: &'a [i128],
    narrow: &'a mut [i64],
}

impl Kernel for Narrow<'_> {
    type Output = bool;

    #[inline(always)]
    fn run(self) -> bool {
        let mut beyond = 0;
        for (value, to) in self.values.iter().zip(self.narrow) {
            let (low, high) = (*value as i64, (*value >> i64::BITS) as i64);
            *to = low;
            // A value fits if the bits above the lower 64 all equal the sign bit of the lower 64.
            beyond |= high ^ (low >> (i64::BITS - 1));
        }
        beyond == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_fits_is_the_same_and_what_does_not_is_noticed() {
        let fit = [0, -1, 1, i128::from(i64::MIN), i128::from(i64::MAX), 12345, -99999, 7];
        let beyond =
            [i128::from(i64::MAX) + 1, i128::from(i64::MIN) - 1, i128::MAX, i128::MIN, 1 << 64, -(1 << 64)];
        for level in Level::all() {
            let mut to = [0; 8];
            assert!(level.run(Narrow { values: &fit, narrow: &mut to }), "{level:?}");
            assert!(to.map(i128::from) == fit);
            for (place, value) in beyond.into_iter().enumerate() {
                let mut values = fit;
                values[place] = value;
                assert!(!level.run(Narrow { values: &values, narrow: &mut to }), "{level:?} takes {value}");
            }
        }
    }
}
