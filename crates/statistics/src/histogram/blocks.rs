//! Counts many values of a column in the bins of its histogram at once. The bins of a block of values are
//! computed with vector instructions. Then the values are counted in several tables in turn, so that consecutive
//! values of one bin do not wait for each other's count.
//!
//! Invariant: the counts are the same as those that [`super::fill`] computes value by value.

use super::{BINS_MAX, Bins, exp2};
use crate::arch::{Kernel, Level};
use crate::floats::{float_of_order, float_order};

/// Number of values per block. Reason: they stay in the L1 cache.
const BLOCK: usize = 1024;

/// Minimum number of values for which clearing the tables and summing them up pays.
pub(super) const VALUES_MIN: usize = BLOCK;

/// Maximum number of values that are counted before the tables are summed up. Reason: counts have 32 bits.
const VALUES_MAX: usize = 1 << 30;

/// Number of tables in which values are counted in turn. `PLACES` is the number of counts in each: one per bin, and
/// one for values in no bin.
const TABLES: usize = 4;
const PLACES: usize = 2 * BINS_MAX;

/// Index of the count of values that are in no bin (NaN and infinities).
const NOWHERE: u16 = BINS_MAX as u16;

/// Counts integers. Returns `None`, with nothing counted, if the numbers of bins exceed 64 bits.
pub(super) fn whole<T: Copy + Ord + Into<i64>>(bins: &mut Bins<i128>, values: &[T]) -> Option<()> {
    let Some((low, high)) = Level::best().run(WholeRange(values)) else { return Some(()) };
    bins.cover(low.into().into(), high.into().into());
    let first = i64::try_from(bins.first).ok()?;
    // A shift by 63 leaves only the sign, so larger shifts are not needed.
    let shift = bins.k.clamp(0, 63);
    count(values, &mut bins.counts, |values, to| Level::best().run(WholePlaces { values, shift, first, to }));
    Some(())
}

/// Counts the finite values. Returns the number of the other values.
pub(super) fn real<T: Copy + Into<f64>>(bins: &mut Bins<f64>, values: &[T]) -> u64 {
    let (low, high) = Level::best().run(RealRange(values));
    if low > high {
        return values.len() as u64;
    }
    // Adding 0.0 turns -0.0 into 0.0.
    bins.cover(low + 0.0, high + 0.0);
    let (scale, first) = (exp2(-bins.k), bins.first as f64);
    count(values, &mut bins.counts, |values, to| Level::best().run(RealPlaces { values, scale, first, to }))
}

/// Adds the values to `counts`; `places` computes the index of each value's count. Returns how many values are in no
/// bin.
fn count<T>(values: &[T], counts: &mut [u64], places: impl Fn(&[T], &mut [u16])) -> u64 {
    let (mut tables, mut nowhere) = ([[0_u32; PLACES]; TABLES], 0);
    let mut room = [0; BLOCK];
    for some in values.chunks(VALUES_MAX) {
        tables.iter_mut().for_each(|table| table.fill(0));
        for block in some.chunks(BLOCK) {
            let to = &mut room[..block.len()];
            places(block, to);
            let (fours, rest) = to.as_chunks::<TABLES>();
            for four in fours {
                for (table, place) in tables.iter_mut().zip(four) {
                    table[usize::from(*place) % PLACES] += 1;
                }
            }
            rest.iter().for_each(|place| tables[0][usize::from(*place) % PLACES] += 1);
        }
        let sum = |place: usize| tables.iter().map(|table| u64::from(table[place])).sum::<u64>();
        for (place, count) in counts.iter_mut().enumerate() {
            *count = count.saturating_add(sum(place));
        }
        nowhere += sum(NOWHERE.into());
    }
    nowhere
}

/// Kernel that returns the minimum and maximum of integers; `None` if there are none.
struct WholeRange<'a, T>(&'a [T]);

impl<T: Copy + Ord> Kernel for WholeRange<'_, T> {
    type Output = Option<(T, T)>;

    #[inline(always)]
    fn run(self) -> Option<(T, T)> {
        let first = *self.0.first()?;
        Some(self.0.iter().fold((first, first), |(low, high), value| (low.min(*value), high.max(*value))))
    }
}

/// Kernel that computes for each integer the index of its bin, where bin `first` has the index 0.
struct WholePlaces<'a, T> {
    values: &'a [T],
    shift: i32,
    first: i64,
    to: &'a mut [u16],
}

impl<T: Copy + Into<i64>> Kernel for WholePlaces<'_, T> {
    type Output = ();

    #[inline(always)]
    fn run(self) {
        for (value, to) in self.values.iter().zip(self.to) {
            *to = ((*value).into() >> self.shift).wrapping_sub(self.first) as u16;
        }
    }
}

/// Kernel that returns the minimum and maximum of the finite values. If there are none, the minimum exceeds the
/// maximum.
struct RealRange<'a, T>(&'a [T]);

impl<T: Copy + Into<f64>> Kernel for RealRange<'_, T> {
    type Output = (f64, f64);

    /// Compares integers in place of floats, because the compiler does not reorder comparisons of floats.
    #[inline(always)]
    fn run(self) -> (f64, f64) {
        let (mut low, mut high) = (i64::MAX, i64::MIN);
        for value in self.0 {
            let value: f64 = (*value).into();
            let (finite, order) = (value.is_finite(), float_order(value.to_bits()));
            low = low.min(if finite { order } else { i64::MAX });
            high = high.max(if finite { order } else { i64::MIN });
        }
        match low <= high {
            true => (float_of_order(low), float_of_order(high)),
            false => (f64::INFINITY, f64::NEG_INFINITY),
        }
    }
}

/// 2^52. When a small whole number is added to it, the lowest bits of the sum are that number. Converting floats to
/// integers would not be vectorised.
const INTEGERS: f64 = (1_u64 << 52) as f64;

/// Kernel that computes for each float the index of its bin, or that of values in no bin.
struct RealPlaces<'a, T> {
    values: &'a [T],
    /// Reciprocal of the width of a bin.
    scale: f64,
    first: f64,
    to: &'a mut [u16],
}

impl<T: Copy + Into<f64>> Kernel for RealPlaces<'_, T> {
    type Output = ();

    #[inline(always)]
    fn run(self) {
        for (value, to) in self.values.iter().zip(self.to) {
            let value: f64 = (*value).into();
            let scaled = value * self.scale;
            // A value that underflows to zero stays in the bin on its side of zero.
            let bin = if scaled == 0.0 && value < 0.0 { -1.0 } else { scaled.floor() };
            let place = if value.is_finite() { bin - self.first } else { f64::from(NOWHERE) };
            *to = (place + INTEGERS).to_bits() as u16;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::Number;
    use super::*;

    fn numbers(mut state: u64) -> impl FnMut() -> u64 {
        move || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            state ^ state >> 31
        }
    }

    #[test]
    fn integers_are_counted_as_one_by_one() {
        for (seed, bits) in [(1, 0), (2, 3), (3, 31), (4, 56), (5, 63)] {
            let mut next = numbers(seed);
            let values: Vec<i64> = (0..5003).map(|_| next().cast_signed() >> bits).collect();
            let mut expected = Bins::empty();
            let range = (*values.iter().min().unwrap(), *values.iter().max().unwrap());
            expected.cover(range.0.into(), range.1.into());
            for value in &values {
                expected.counts[(i128::from(*value).bin(expected.k) - expected.first) as usize] += 1;
            }
            let mut bins = Bins::empty();
            whole(&mut bins, &values).unwrap();
            assert_eq!(bins, expected);
            let (shift, first) = (bins.k, bins.first as i64);
            for level in Level::all() {
                let mut to = vec![0; values.len()];
                level.run(WholePlaces { values: &values, shift, first, to: &mut to });
                let place = |value: &i64| (i128::from(*value).bin(shift) - bins.first) as u16;
                assert!(values.iter().map(place).eq(to), "{level:?}");
                assert_eq!(level.run(WholeRange(&values)), Some(range));
            }
        }
    }

    #[test]
    fn floats_are_counted_as_one_by_one() {
        for (seed, scale) in [(1, 1.0), (2, 1e-300), (3, 1e290), (4, f64::MAX)] {
            let mut next = numbers(seed);
            let mut value = || match next() % 100 {
                0 => f64::NAN,
                1 => f64::NEG_INFINITY,
                2 => -0.0,
                3 => -5e-324,
                number => (number as f64 - 50.0) * scale,
            };
            let values: Vec<f64> = (0..5003).map(|_| value()).collect();
            let finite: Vec<f64> = values.iter().copied().filter(|value| value.is_finite()).collect();
            let range =
                (finite.iter().copied().fold(0.0, f64::min), finite.iter().copied().fold(0.0, f64::max));
            let mut expected = Bins::empty();
            expected.cover(range.0, range.1);
            for value in &finite {
                expected.counts[(value.bin(expected.k) - expected.first) as usize] += 1;
            }
            let mut bins = Bins::empty();
            assert_eq!(real(&mut bins, &values), (values.len() - finite.len()) as u64);
            assert_eq!(bins, expected);
            for level in Level::all() {
                let mut to = vec![0; values.len()];
                let (scale, first) = (exp2(-bins.k), bins.first as f64);
                level.run(RealPlaces { values: &values, scale, first, to: &mut to });
                let place = |value: &f64| match value.is_finite() {
                    true => (value.bin(bins.k) - bins.first) as u16,
                    false => NOWHERE,
                };
                assert!(values.iter().map(place).eq(to), "{level:?}");
                assert_eq!(level.run(RealRange(&values)), range, "{level:?}");
            }
        }
    }

    #[test]
    fn without_finite_values_nothing_is_in_a_bin() {
        let mut bins = Bins::empty();
        assert_eq!(real(&mut bins, &[f32::NAN; 3]), 3);
        assert_eq!(whole::<i32>(&mut Bins::empty(), &[]), Some(()));
        assert_eq!(bins, Bins::empty());
    }
}
