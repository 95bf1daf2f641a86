//! Random numbers that are the same on every machine, for the data of the suites.

use std::ops::RangeInclusive;

/// SplitMix64 (Steele, Lea and Flood 2014).
pub struct Random(pub u64);

impl Random {
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        mixed(self.0)
    }

    /// Returns a number within these bounds, all alike frequent.
    pub fn between(&mut self, bounds: RangeInclusive<i32>) -> i32 {
        let values = i64::from(*bounds.end()) - i64::from(*bounds.start()) + 1;
        bounds.start() + below(self.next(), values.cast_unsigned()) as i32
    }

    /// Returns one of some values, all alike frequent. There must be one.
    pub fn pick<T: Copy>(&mut self, values: &[T]) -> T {
        values[below(self.next(), values.len() as u64) as usize]
    }

    /// Returns a number of at least 1, with a frequency of about its power of -`skew`.
    pub fn zipf(&mut self, skew: f64) -> u32 {
        let uniform = ((self.next() >> 11) + 1) as f64 / (1_u64 << 53) as f64;
        uniform.powf(-1.0 / (skew - 1.0)).min(4e9) as u32
    }
}

/// Returns a number below `values`, derived from 64 random bits.
pub fn below(random: u64, values: u64) -> u64 {
    ((u128::from(random) * u128::from(values)) >> 64) as u64
}

/// Mixes the bits of a value (Stafford's mix 13): the finalizer of SplitMix64.
pub fn mixed(value: u64) -> u64 {
    let value = (value ^ (value >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let value = (value ^ (value >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    value ^ (value >> 31)
}

/// Returns the first number of [`Random`] with this seed.
pub fn hash(seed: u64) -> u64 {
    Random(seed).next()
}
