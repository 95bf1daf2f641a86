//! KLL: a sample of limited size from which the value of any rank is estimated (Karnin, Lang, Liberty, *Optimal
//! Quantile Approximation in Streams*, FOCS 2016).
//!
//! Values are kept in levels; a value in level h stands for 2^h values. If a level is too full, it is sorted, and every
//! other value of it moves up one level, from the first or the second one on, depending on a pseudo-random bit. That
//! changes the rank of any value by 2^h or not at all, and upwards as often as downwards. So the sum of the squares of
//! these changes, which is kept, bounds the error of ranks (Azuma, Hoeffding). When there are many values, only one of
//! each block of 2^w consecutive values is kept; it goes directly to level w.
//!
//! Invariants: the weights of the values of all levels add up to the number of values that were added. The state
//! depends on the order of values and on how they were divided, but its bounds hold for any order.

use crate::bounds::CONFIDENCE;

/// Ratio of the size of a level to that of the next higher one (section 4 of the paper).
const SHRINK: f64 = 2.0 / 3.0;

/// Minimum size of a level.
const LEVEL_MIN: usize = 8;

/// Maximum number of levels: a value of the highest stands for 2^63 values.
pub(super) const LEVELS_MAX: usize = 64;

/// Number of values from which blocks of two are sampled. The error of sampling is then half of the other errors.
const SAMPLED_FROM: u64 = 1 << 17;

/// Binary logarithm of the maximum size of sampled blocks. Reason: larger ones would outlast the values of one update.
const BLOCK_LOG_MAX: u32 = 10;

/// KLL sample of values of one type.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Levels<T> {
    /// Size of the highest level.
    k: u16,
    count: u64,
    /// Levels, the lowest first; there is at least one.
    levels: Vec<Vec<T>>,
    /// Sum of the squares of the changes that ranks may have had.
    squares: f64,
    /// State of the random number generator (xorshift).
    random: u64,
}

/// The encoded parts of a state.
pub(super) struct Parts<'a, T> {
    pub levels: &'a [Vec<T>],
    pub squares: f64,
    pub random: u64,
}

/// Value of a rank, and the bounds of the true value at [`CONFIDENCE`].
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Ranked<T> {
    pub value: T,
    pub low: T,
    pub high: T,
}

impl<T: Copy + Ord> Levels<T> {
    pub fn new(k: u16) -> Levels<T> {
        Levels { k, count: 0, levels: vec![Vec::new()], squares: 0.0, random: 0x9e37_79b9_7f4a_7c15 }
    }

    /// Creates a state from its encoded parts; `None` if they cannot be those of a state of `count` values.
    pub fn from_parts(
        k: u16,
        count: u64,
        levels: Vec<Vec<T>>,
        squares: f64,
        random: u64,
    ) -> Option<Levels<T>> {
        let weights = levels.iter().enumerate().try_fold(0_u64, |sum, (height, level)| {
            sum.checked_add((level.len() as u64).checked_mul(1_u64.checked_shl(height as u32)?)?)
        });
        let is_sound = (1..=LEVELS_MAX).contains(&levels.len())
            && weights == Some(count)
            && squares.is_finite()
            && squares >= 0.0
            && random != 0;
        let read = Levels { k, count, levels, squares, random };
        (is_sound && read.held() <= read.room()).then_some(read)
    }

    pub fn parts(&self) -> Parts<'_, T> {
        Parts { levels: &self.levels, squares: self.squares, random: self.random }
    }

    pub fn bytes_held(&self) -> usize {
        self.levels.iter().map(|level| level.capacity() * size_of::<T>() + size_of::<Vec<T>>()).sum()
    }

    /// Returns the maximum number of bytes that a state with this `k` takes between two updates.
    pub fn bytes_most(k: u16) -> usize {
        let values = 3 * usize::from(k) + LEVELS_MAX * LEVEL_MIN;
        2 * values * size_of::<T>() + LEVELS_MAX * size_of::<Vec<T>>()
    }

    /// Adds values, each once.
    pub fn add(&mut self, values: impl ExactSizeIterator<Item = T>) {
        let log = self.block_log();
        let (before, mut rest) = (self.count, values.len());
        self.count = before.saturating_add(rest as u64);
        if log == 0 {
            self.levels[0].extend(values);
            return self.compress();
        }
        self.make_level(log as usize);
        let block = 1_usize << log;
        let mut chosen = self.below(block);
        let mut place = 0;
        for value in values {
            if rest < block && place == 0 {
                self.levels[0].push(value);
                continue;
            }
            if place == chosen {
                self.levels[log as usize].push(value);
                self.squares += (block * block) as f64 / 4.0;
            }
            place += 1;
            if place == block {
                (place, chosen) = (0, self.below(block));
                rest -= block;
            }
        }
        self.compress();
    }

    /// Adds each value as many times as the count beside it.
    pub fn add_counted(&mut self, values: impl Iterator<Item = (T, u64)>) {
        for (value, times) in values {
            self.count = self.count.saturating_add(times);
            let mut left = times;
            while left > 0 {
                let height = left.trailing_zeros() as usize;
                self.make_level(height);
                self.levels[height].push(value);
                left &= left - 1;
            }
        }
        self.compress();
    }

    pub fn merge(&mut self, other: &Levels<T>) {
        self.make_level(other.levels.len() - 1);
        for (ours, theirs) in self.levels.iter_mut().zip(&other.levels) {
            ours.extend_from_slice(theirs);
        }
        self.count = self.count.saturating_add(other.count);
        self.squares += other.squares;
        self.random = (self.random ^ other.random.rotate_left(17)).max(1);
        self.compress();
    }

    /// Returns for each fraction in `shares` a value such that this fraction of the values is at or below it. Returns
    /// an empty list without values.
    pub fn ranked(&self, shares: &[f64]) -> Vec<Ranked<T>> {
        let weight = |height: usize| 1_u64 << height;
        let all = self.levels.iter().enumerate();
        let mut values: Vec<(T, u64)> =
            all.flat_map(|(height, level)| level.iter().map(move |value| (*value, weight(height)))).collect();
        values.sort_unstable_by_key(|(value, _)| *value);
        let mut sum = 0;
        for (_, weight) in &mut values {
            sum += *weight;
            *weight = sum;
        }
        let Some((greatest, _)) = values.last().copied() else { return Vec::new() };
        let at = |rank: f64| {
            let rank = rank.ceil().max(1.0);
            let place = values.partition_point(|(_, below)| (*below as f64) < rank);
            values.get(place).map_or(greatest, |(value, _)| *value)
        };
        let error = self.rank_error();
        let ranked = |share: &f64| {
            let rank = share.clamp(0.0, 1.0) * sum as f64;
            Ranked { value: at(rank), low: at(rank - error), high: at(rank + error) }
        };
        shares.iter().map(ranked).collect()
    }

    /// Returns the error of the rank of a value at [`CONFIDENCE`], as a number of values.
    pub fn rank_error(&self) -> f64 {
        (2.0 * self.squares * (2.0 / (1.0 - CONFIDENCE)).ln()).sqrt()
    }

    /// Returns the binary logarithm of the size of sampled blocks. Their error is a fraction of that of the levels,
    /// whatever the number of values.
    fn block_log(&self) -> u32 {
        (self.count / SAMPLED_FROM).checked_ilog2().map_or(0, |log| (log + 1).min(BLOCK_LOG_MAX))
    }

    fn make_level(&mut self, height: usize) {
        if self.levels.len() <= height {
            self.levels.resize_with(height + 1, Vec::new);
        }
    }

    /// Returns the maximum number of values of level `height`.
    fn capacity(&self, height: usize) -> usize {
        let depth = (self.levels.len() - 1 - height) as i32;
        ((f64::from(self.k) * SHRINK.powi(depth)).ceil() as usize).max(LEVEL_MIN)
    }

    fn held(&self) -> usize {
        self.levels.iter().map(Vec::len).sum()
    }

    fn room(&self) -> usize {
        (0..self.levels.len()).map(|height| self.capacity(height)).sum()
    }

    /// Moves values to higher levels until the values of all levels together fit the room.
    fn compress(&mut self) {
        while self.held() > self.room() {
            let is_full = |height: &usize| self.levels[*height].len() >= self.capacity(*height);
            // A full level exists, because the levels together hold more values than the sum of their sizes.
            let Some(height) = (0..self.levels.len()).find(is_full) else { return };
            if height + 1 == LEVELS_MAX {
                return;
            }
            self.compact(height);
        }
    }

    fn compact(&mut self, height: usize) {
        self.make_level(height + 1);
        let start = self.below(2);
        let (below, above) = self.levels.split_at_mut(height + 1);
        let level = &mut below[height];
        level.sort_unstable();
        // With an odd number of values, the last one stays in the level.
        let even = level.len() & !1;
        above[0].extend(level[..even].iter().skip(start).step_by(2));
        level.drain(..even);
        level.shrink_to(2 * LEVEL_MIN);
        self.squares += 4_f64.powi(height as i32);
    }

    /// Returns a pseudo-random number below `end`, which must be a power of two.
    fn below(&mut self, end: usize) -> usize {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        // The high bits of the state are the most random ones.
        (self.random >> 40) as usize & (end - 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn of(values: &[i64], k: u16, part: usize) -> Levels<i64> {
        let mut levels = Levels::new(k);
        values.chunks(part).for_each(|part| levels.add(part.iter().copied()));
        levels
    }

    /// Returns the range of ranks of a value, as two fractions: of the values below it, and of those at or below it.
    fn shares(sorted: &[i64], value: i64) -> (f64, f64) {
        let share = |place: usize| place as f64 / sorted.len() as f64;
        (share(sorted.partition_point(|v| *v < value)), share(sorted.partition_point(|v| *v <= value)))
    }

    /// Returns the error of the rank of `value` as the answer for the quantile `q`.
    fn off(sorted: &[i64], q: f64, value: i64) -> f64 {
        let (below, up_to) = shares(sorted, value);
        (below - q).max(q - up_to).max(0.0)
    }

    const QS: [f64; 9] = [0.001, 0.01, 0.1, 0.25, 0.5, 0.75, 0.9, 0.99, 0.999];

    #[test]
    fn few_values_are_all_there() {
        let values: Vec<i64> = (0..100).map(|i| i * 37 % 101).collect();
        let mut sorted = values.clone();
        sorted.sort_unstable();
        let levels = of(&values, 128, 7);
        assert_eq!(levels.rank_error(), 0.0);
        for (i, ranked) in levels.ranked(&[0.0, 0.005, 0.25, 0.5, 0.995, 1.0]).into_iter().enumerate() {
            let value = sorted[[0, 0, 24, 49, 99, 99][i]];
            assert_eq!(ranked, Ranked { value, low: value, high: value });
        }
        assert!(Levels::<i64>::new(64).ranked(&[0.5]).is_empty());
    }

    /// The orders are hard for a sample: ascending, descending, in runs, mixed; also few values, and skewed ones.
    #[test]
    fn bounds_hold_for_hostile_orders() {
        type Order = fn(i64) -> i64;
        const N: i64 = 400_000;
        fn mixed(i: i64) -> i64 {
            i.wrapping_mul(0x5851_f42d_4c95_7f2d) >> 20
        }
        let orders: [(&str, Order); 7] = [
            ("ascending", |i| i),
            ("descending", |i| N - i),
            ("runs", |i| i % 1000),
            ("zigzag", |i| if i % 2 == 0 { i } else { N - i }),
            ("mixed", mixed),
            ("few", |i| mixed(i) % 3),
            ("skewed", |i| if mixed(i) % 50 == 0 { i } else { 0 }),
        ];
        let (mut asked, mut missed) = (0, 0);
        for (name, order) in orders {
            let values: Vec<i64> = (0..N).map(order).collect();
            let mut sorted = values.clone();
            sorted.sort_unstable();
            for part in [97, 4096, 65_536] {
                let levels = of(&values, 256, part);
                assert!(levels.held() <= levels.room(), "{name}");
                let stated = levels.rank_error() / N as f64;
                assert!(stated < 0.012, "{name} in parts of {part}: {stated}");
                for (q, ranked) in QS.iter().zip(levels.ranked(&QS)) {
                    let off = off(&sorted, *q, ranked.value);
                    assert!(
                        off <= 1.5 * stated,
                        "{name} in parts of {part}: {q} is off by {off} of {stated}"
                    );
                    let truth = sorted[((q * N as f64).ceil() as usize).max(1) - 1];
                    asked += 1;
                    missed += usize::from(truth < ranked.low || ranked.high < truth);
                }
            }
        }
        // The bounds must hold in at least 95 of 100 cases.
        assert!(missed * 20 <= asked, "{missed} of {asked}");
    }

    #[test]
    fn counted_values_and_merged_parts_are_within_the_bounds() {
        let n = 1_000_000_i64;
        let value = |i: i64| (i.wrapping_mul(0x5851_f42d_4c95_7f2d) >> 44).unsigned_abs() as i64 % 5000;
        let values: Vec<i64> = (0..n).map(value).collect();
        let mut sorted = values.clone();
        sorted.sort_unstable();
        let mut counted = Levels::new(200);
        for part in values.chunks(50_000) {
            let mut part = part.to_vec();
            part.sort_unstable();
            counted.add_counted(part.chunk_by(|a, b| a == b).map(|same| (same[0], same.len() as u64)));
        }
        let mut merged = Levels::new(200);
        values.chunks(30_001).for_each(|part| merged.merge(&of(part, 200, 1000)));
        for levels in [counted, merged] {
            assert_eq!(levels.count, n as u64);
            let stated = levels.rank_error() / n as f64;
            assert!(stated < 0.02, "{stated}");
            for (q, ranked) in QS.iter().zip(levels.ranked(&QS)) {
                assert!(off(&sorted, *q, ranked.value) <= stated, "{q}");
            }
        }
    }

    proptest! {
        #[test]
        fn weights_add_up(
            parts in prop::collection::vec((prop::collection::vec(any::<i64>(), 0..300), any::<bool>()), 0..20),
            k in 8_u16..40,
        ) {
            let (mut levels, mut count) = (Levels::new(k), 0);
            for (values, is_merged) in parts {
                count += values.len() as u64;
                match is_merged {
                    true => levels.merge(&of(&values, k, 50)),
                    false => levels.add(values.iter().copied()),
                }
                let Parts { levels: held, squares, random } = levels.parts();
                let read = Levels::from_parts(k, count, held.to_vec(), squares, random);
                prop_assert_eq!(read.as_ref(), Some(&levels));
            }
        }
    }
}
