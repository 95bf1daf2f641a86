//! Filters the values that may change a HyperLogLog (a sketch of the number of distinct values). While the sketch
//! has registers, those are values whose rank exceeds their register. While it has a set of coupons (register index
//! and rank of each value, for few values), those are values whose coupon is not in the set. Few values pass.
//!
//! With AVX-512 the registers of 16 values are gathered and compared at once. Elsewhere values are compared one by
//! one without a branch, because a branch would often be mispredicted: about one value in twenty passes. Invariant:
//! every value that changes the HyperLogLog passes, in the order of arrival.

use super::Level;
use crate::sketch::distinct::{COUPON_BITS, coupon};
use farpool_model::cpu::Instructions;

/// Number of coupons that one vector store writes. Only the first of them may be valid, so output buffers must have
/// room for this many more.
pub(crate) const SPARE: usize = 16;

impl Level {
    /// Writes to `to` the coupons of those hashes whose rank exceeds `floor` and, if `registers` are given, also
    /// exceeds the register of the hash. Returns the number of coupons written. `to` must have room for the coupons
    /// of all hashes and [`SPARE`] more.
    pub(crate) fn passing(
        self,
        (low, high): (&[u64], &[u64]),
        floor: u8,
        registers: Option<&[u8]>,
        to: &mut [u32],
    ) -> usize {
        assert!(low.len() == high.len() && to.len() >= low.len() + SPARE, "there is room for all");
        assert!(registers.is_none_or(|r| r.len().is_power_of_two() && r.len() >= 4), "registers fill quads");
        match (self.instructions(), registers) {
            #[cfg(target_arch = "x86_64")]
            (Instructions::Avx512, Some(registers)) => {
                // SAFETY: a level exists only where the CPU supports its instructions; the lengths were checked.
                unsafe { avx512::above_registers(low, high, registers, to) }
            }
            #[cfg(target_arch = "x86_64")]
            (Instructions::Avx512, None) => {
                // SAFETY: a level exists only where the CPU supports its instructions; the lengths were checked.
                unsafe { avx512::above_floor(low, high, floor, to) }
            }
            (_, Some(registers)) => one_by_one(low, high, to, is_above_register(registers)),
            (_, None) => one_by_one(low, high, to, is_above(floor)),
        }
    }

    /// Writes to `to` the coupons that are in neither of the first two slots of their probe sequence in the hash
    /// table `table`. Returns the number of coupons written. The length of `table` must be a power of two, at least
    /// 4.
    pub(crate) fn missing(self, (low, high): (&[u64], &[u64]), table: &[u32], to: &mut [u32]) -> usize {
        assert!(low.len() == high.len() && to.len() >= low.len() + SPARE, "there is room for all");
        assert!(table.len().is_power_of_two() && table.len() >= 4, "places have numbers");
        match self.instructions() {
            #[cfg(target_arch = "x86_64")]
            Instructions::Avx512 => {
                // SAFETY: a level exists only where the CPU supports its instructions; the lengths were checked.
                unsafe { avx512::missing(low, high, table, to) }
            }
            _ => one_by_one(low, high, to, is_missing(table)),
        }
    }
}

/// Returns a test of whether a coupon changes `registers`, whose number must be a power of two.
#[inline(always)]
fn is_above_register(registers: &[u8]) -> impl Fn(u32) -> bool {
    let mask = registers.len() - 1;
    move |coupon| (coupon >> COUPON_BITS) as u8 > registers[coupon as usize & mask]
}

#[inline(always)]
fn is_above(floor: u8) -> impl Fn(u32) -> bool {
    move |coupon| (coupon >> COUPON_BITS) as u8 > floor
}

#[inline(always)]
fn is_missing(table: &[u32]) -> impl Fn(u32) -> bool {
    let mask = table.len() - 1;
    move |coupon| {
        let place = coupon as usize;
        (table[place & mask] != coupon) & (table[(place + 1) & mask] != coupon)
    }
}

#[inline(always)]
fn one_by_one(low: &[u64], high: &[u64], to: &mut [u32], passes: impl Fn(u32) -> bool) -> usize {
    let mut passing = 0;
    for (low, high) in low.iter().zip(high) {
        let coupon = coupon(*low, *high);
        to[passing] = coupon;
        passing += usize::from(passes(coupon));
    }
    passing
}

#[cfg(target_arch = "x86_64")]
mod avx512 {
    use super::{SPARE, is_above, is_above_register, is_missing, one_by_one};
    use crate::sketch::distinct::COUPON_BITS;
    use std::arch::x86_64::*;

    /// Implements [`super::Level::passing`] with registers.
    ///
    /// # Safety
    /// The processor has the instructions of the level; the slices are of equal length, `to` is [`SPARE`]
    /// longer; the registers' number is a power of two, at least 4.
    #[target_feature(enable = "avx512f,avx512bw,avx512cd,avx512dq,avx512vl,popcnt")]
    pub(super) unsafe fn above_registers(
        low: &[u64],
        high: &[u64],
        registers: &[u8],
        to: &mut [u32],
    ) -> usize {
        let mask = _mm512_set1_epi32(registers.len() as i32 - 1);
        let above = |coupons: __m512i| {
            let place = _mm512_and_si512(coupons, mask);
            // SAFETY: the index of the register is less than the number of registers, which is a multiple of four.
            let quads = unsafe {
                _mm512_i32gather_epi32::<4>(_mm512_srli_epi32::<2>(place), registers.as_ptr().cast())
            };
            let shift = _mm512_slli_epi32::<3>(_mm512_and_si512(place, _mm512_set1_epi32(3)));
            let least = _mm512_and_si512(_mm512_srlv_epi32(quads, shift), _mm512_set1_epi32(0xff));
            _mm512_cmpgt_epu32_mask(_mm512_srli_epi32::<COUPON_BITS>(coupons), least)
        };
        // SAFETY: the caller guarantees the instructions and the lengths.
        let passing = unsafe { sixteen_each(low, high, to, above) };
        let (low, high) = (low.as_chunks::<16>().1, high.as_chunks::<16>().1);
        passing + one_by_one(low, high, &mut to[passing..], is_above_register(registers))
    }

    /// Implements [`super::Level::missing`].
    ///
    /// # Safety
    /// The processor has the instructions of the level; the slices are of equal length, `to` is [`SPARE`]
    /// longer; the places' number is a power of two.
    #[target_feature(enable = "avx512f,avx512bw,avx512cd,avx512dq,avx512vl,popcnt")]
    pub(super) unsafe fn missing(low: &[u64], high: &[u64], table: &[u32], to: &mut [u32]) -> usize {
        let (mask, one) = (_mm512_set1_epi32(table.len() as i32 - 1), _mm512_set1_epi32(1));
        let at = |places: __m512i| {
            // SAFETY: the place is below the number of places.
            unsafe { _mm512_i32gather_epi32::<4>(_mm512_and_si512(places, mask), table.as_ptr().cast()) }
        };
        let missing = |coupons: __m512i| {
            let first = _mm512_cmpneq_epi32_mask(at(coupons), coupons);
            first & _mm512_cmpneq_epi32_mask(at(_mm512_add_epi32(coupons, one)), coupons)
        };
        // SAFETY: the caller guarantees the instructions and the lengths.
        let passing = unsafe { sixteen_each(low, high, to, missing) };
        let (low, high) = (low.as_chunks::<16>().1, high.as_chunks::<16>().1);
        passing + one_by_one(low, high, &mut to[passing..], is_missing(table))
    }

    /// Implements [`super::Level::passing`] without registers.
    ///
    /// # Safety
    /// The CPU must support the instructions of the level; the slices must have equal lengths, and `to` must be
    /// [`SPARE`] longer.
    #[target_feature(enable = "avx512f,avx512bw,avx512cd,avx512dq,avx512vl,popcnt")]
    pub(super) unsafe fn above_floor(low: &[u64], high: &[u64], floor: u8, to: &mut [u32]) -> usize {
        let least = _mm512_set1_epi32(floor.into());
        let above =
            |coupons: __m512i| _mm512_cmpgt_epu32_mask(_mm512_srli_epi32::<COUPON_BITS>(coupons), least);
        // SAFETY: the caller guarantees the instructions and the lengths.
        let passing = unsafe { sixteen_each(low, high, to, above) };
        let (low, high) = (low.as_chunks::<16>().1, high.as_chunks::<16>().1);
        passing + one_by_one(low, high, &mut to[passing..], is_above(floor))
    }

    /// Writes to `to` the coupons of those values for which `passes` sets a bit. Processes all values except the last
    /// few that do not fill a vector.
    ///
    /// # Safety
    /// The CPU must support the instructions of the level; the slices must have equal lengths, and `to` must be
    /// [`SPARE`] longer.
    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,avx512cd,avx512dq,avx512vl,popcnt")]
    unsafe fn sixteen_each(
        low: &[u64],
        high: &[u64],
        to: &mut [u32],
        passes: impl Fn(__m512i) -> __mmask16,
    ) -> usize {
        let halves = _mm512_setr_epi32(0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30);
        let narrow = |one: __m512i, other: __m512i| _mm512_permutex2var_epi32(one, halves, other);
        let place_bits = _mm512_set1_epi32((1 << COUPON_BITS) - 1);
        let mut passing = 0;
        for (low, high) in low.as_chunks::<16>().0.iter().zip(high.as_chunks::<16>().0) {
            // SAFETY: there are 16 words in each.
            let load = |words: &[u64; 16], first: usize| unsafe {
                _mm512_loadu_si512(words.as_ptr().add(first).cast())
            };
            let zeros = |first: usize| {
                // A bit that is always set limits the number of leading zeros to 62.
                _mm512_lzcnt_epi64(_mm512_or_si512(load(high, first), _mm512_set1_epi64(2)))
            };
            let rank = _mm512_add_epi32(narrow(zeros(0), zeros(8)), _mm512_set1_epi32(1));
            let places = narrow(load(low, 0), load(low, 8));
            let coupons =
                _mm512_or_si512(_mm512_slli_epi32::<COUPON_BITS>(rank), _mm512_and_si512(places, place_bits));
            let pass = passes(coupons);
            debug_assert!(passing + SPARE <= to.len());
            // SAFETY: no more values than came before have passed, and `to` is longer than all by 16.
            unsafe {
                let at = to.as_mut_ptr().add(passing);
                _mm512_storeu_si512(at.cast(), _mm512_maskz_compress_epi32(pass, coupons));
            }
            passing += pass.count_ones() as usize;
        }
        passing
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn numbers(mut state: u64) -> impl FnMut() -> u64 {
        move || {
            state = state.wrapping_mul(0xd134_2543_de82_ef95).wrapping_add(1);
            state ^ state >> 29
        }
    }

    #[test]
    fn every_level_misses_the_same_coupons() {
        let mut next = numbers(9);
        for (places, len) in [(4, 0), (4, 15), (8, 16), (64, 17), (512, 1000)] {
            let low: Vec<u64> = (0..len).map(|_| next() % 300).collect();
            let high: Vec<u64> = low.iter().map(|low| low.wrapping_mul(0x9e37_79b9_7f4a_7c15)).collect();
            let mut table = vec![0_u32; places];
            for (low, high) in low.iter().zip(&high).step_by(3) {
                let coupon = coupon(*low, *high);
                table[(coupon as usize + (next() >> 60) as usize % 2) % places] = coupon;
            }
            let mut expected = vec![0; len + SPARE];
            let count = Level::PORTABLE.missing((&low, &high), &table, &mut expected);
            for level in Level::all() {
                let mut found = vec![0; len + SPARE];
                let missing = level.missing((&low, &high), &table, &mut found);
                assert_eq!(found[..missing], expected[..count], "{level:?}");
            }
        }
    }

    #[test]
    fn every_level_lets_the_same_values_pass() {
        let mut next = numbers(7);
        for precision in [2, 4, 11, 16] {
            for len in [0, 1, 15, 16, 17, 1000] {
                let low: Vec<u64> = (0..len).map(|_| next()).collect();
                let high: Vec<u64> = (0..len).map(|i| (next() | 1) >> (i % 64)).collect();
                let registers: Vec<u8> = (0..1_usize << precision).map(|_| (next() >> 60) as u8).collect();
                for (floor, registers) in [(0, Some(&registers[..])), (3, None), (0, None), (62, None)] {
                    let mut expected = vec![0; len + SPARE];
                    let count = Level::PORTABLE.passing((&low, &high), floor, registers, &mut expected);
                    for level in Level::all() {
                        let mut found = vec![0; len + SPARE];
                        let passing = level.passing((&low, &high), floor, registers, &mut found);
                        assert_eq!(found[..passing], expected[..count], "{level:?}");
                    }
                }
            }
        }
    }
}
