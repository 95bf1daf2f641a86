//! Predicates on bit-packed values, without decoding them to an array: kernels that clear the bits of rows which do
//! not satisfy the predicate.

use super::{BLOCK_WORDS, Blocks, UnpackBlocks, put};
use crate::arch::{Kernel, Simd};
use crate::lanes::{self, Lane, Pairs};
use farpool_model::limits::BLOCK_ROWS;

/// Maximum number of selected rows in a block for which they are tested one by one; with more, the whole block is
/// tested. Measured at 20 bits: 8 single rows took 74 ns, a whole block 240 ns on AVX-512 and 400 ns on AVX2
/// (`examples/scan_speed.rs`).
const SINGLE_MAX: u32 = 12;

/// A condition on packed values.
pub(crate) trait Condition<L: Lane> {
    /// Returns whether one value satisfies the condition. Must be `#[inline(always)]`.
    fn holds(&self, value: L) -> bool;

    /// Returns a bitmap of the values of a unit (64 bytes of values) that satisfy the condition. Must be
    /// `#[inline(always)]`.
    fn bits<S: Simd>(&self, simd: S, unit: &L::Unit) -> u64;
}

/// Kernel that clears the bits of rows whose value does not satisfy `condition`; with `inside` false, of rows whose
/// value does.
pub(crate) struct Retain<'a, L, C> {
    pub blocks: Blocks<'a, L>,
    pub condition: C,
    pub inside: bool,
    pub alive: &'a mut [u64],
}

impl<L: Lane, C: Condition<L>> Kernel for Retain<'_, L, C> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, simd: S) {
        let Retain { blocks, condition, inside, alive } = self;
        for (block, alive) in alive.chunks_mut(BLOCK_WORDS).enumerate() {
            let wanted: u32 = alive.iter().map(|word| word.count_ones()).sum();
            if wanted == 0 {
                continue;
            }
            let packed = blocks.block(block);
            if wanted <= SINGLE_MAX {
                retain_single(blocks.width, packed, &condition, inside, alive);
                continue;
            }
            let pairs = Pairs::new(blocks.width, packed);
            let mut bits = [0; BLOCK_WORDS];
            for number in 0..L::BITS {
                blocks.prefetch(simd, block + 1, number);
                let (first, left, right) = pairs.get(simd, number);
                put::<L>(&mut bits, first, [condition.bits(simd, &left), condition.bits(simd, &right)]);
            }
            keep(alive, &bits, inside);
        }
    }
}

#[inline(always)]
fn retain_single<L: Lane, C: Condition<L>>(
    width: u32,
    packed: &[L],
    condition: &C,
    inside: bool,
    alive: &mut [u64],
) {
    for (index, word) in alive.iter_mut().enumerate() {
        let mut rest = *word;
        while rest != 0 {
            let bit = rest.trailing_zeros();
            rest &= rest - 1;
            let value = lanes::unpack_one(width, packed, index * 64 + bit as usize);
            *word &= !(u64::from(condition.holds(value) != inside) << bit);
        }
    }
}

/// The condition that a value is at least `low` and at most `low + span`.
pub(crate) struct Within<L> {
    pub low: L,
    pub span: L,
}

impl<L: Lane> Condition<L> for Within<L> {
    #[inline(always)]
    fn holds(&self, value: L) -> bool {
        value.minus(self.low) <= self.span
    }

    #[inline(always)]
    fn bits<S: Simd>(&self, simd: S, unit: &L::Unit) -> u64 {
        L::within(simd, unit, self.low, self.span)
    }
}

/// Condition that the bit of `set` at index `value + offset` (modulo 2^32) is set.
pub(crate) struct Member<'a> {
    pub offset: u32,
    /// The bitmap, lowest bit of a word first; less than 2^31 bits.
    pub set: &'a [u32],
}

impl Member<'_> {
    #[inline(always)]
    fn has(&self, index: u32) -> bool {
        let index = index.wrapping_add(self.offset);
        self.set.get((index >> 5) as usize).is_some_and(|word| word >> (index & 31) & 1 == 1)
    }
}

impl Condition<u16> for Member<'_> {
    #[inline(always)]
    fn holds(&self, value: u16) -> bool {
        self.has(value.into())
    }

    #[inline(always)]
    fn bits<S: Simd>(&self, simd: S, unit: &[u16; 32]) -> u64 {
        simd.bits_at_u16(self.set, unit, self.offset)
    }
}

impl Condition<u32> for Member<'_> {
    #[inline(always)]
    fn holds(&self, value: u32) -> bool {
        self.has(value)
    }

    #[inline(always)]
    fn bits<S: Simd>(&self, simd: S, unit: &[u32; 16]) -> u64 {
        simd.bits_at_u32(self.set, unit, self.offset)
    }
}

/// The condition of [`Member`] for 8-bit values: a bitmap of all 256 possible values.
pub(crate) struct MemberByte<'a> {
    pub set: &'a [u8; 32],
}

impl Condition<u8> for MemberByte<'_> {
    #[inline(always)]
    fn holds(&self, value: u8) -> bool {
        self.set[usize::from(value >> 3)] >> (value & 7) & 1 == 1
    }

    #[inline(always)]
    fn bits<S: Simd>(&self, simd: S, unit: &[u8; 64]) -> u64 {
        simd.bits_at_u8(self.set, unit)
    }
}

/// Kernel that clears the bits of rows unless `left + left_offset <= right + right_offset`; with `inside` false, the
/// bits of rows where that holds. The sums must fit the type `W`.
pub(crate) struct RetainAtMost<'a, L, R, W> {
    pub left: Blocks<'a, L>,
    pub left_offset: W,
    pub right: Blocks<'a, R>,
    pub right_offset: W,
    pub inside: bool,
    pub alive: &'a mut [u64],
}

impl<L: Lane, R: Lane, W: Lane> Kernel for RetainAtMost<'_, L, R, W> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, simd: S) {
        let RetainAtMost { left, left_offset, right, right_offset, inside, alive } = self;
        let (mut lefts, mut rights) = ([W::default(); BLOCK_ROWS], [W::default(); BLOCK_ROWS]);
        let unit_lanes = 512 / W::BITS as usize;
        for (block, alive) in alive.chunks_mut(BLOCK_WORDS).enumerate() {
            if alive.iter().all(|word| *word == 0) {
                continue;
            }
            widen(simd, left, block, left_offset, &mut lefts);
            widen(simd, right, block, right_offset, &mut rights);
            let mut bits = [0; BLOCK_WORDS];
            let units = lefts.chunks_exact(unit_lanes).zip(rights.chunks_exact(unit_lanes));
            for (unit, (lefts, rights)) in units.enumerate() {
                let unit_bits = W::at_most(simd, &W::load(lefts, 0), &W::load(rights, 0));
                let row = unit * unit_lanes;
                bits[row / 64] |= unit_bits << (row % 64);
            }
            keep(alive, &bits, inside);
        }
    }
}

/// Unpacks a block to other lanes and adds `offset` to each value.
#[inline(always)]
fn widen<S: Simd, L: Lane, W: Lane>(
    simd: S,
    blocks: Blocks<'_, L>,
    block: usize,
    offset: W,
    out: &mut [W; BLOCK_ROWS],
) {
    if blocks.width == 0 {
        out.fill(offset);
        return;
    }
    let blocks = Blocks { width: blocks.width, lanes: blocks.block(block) };
    let map = |value: L| W::truncate(value.widen()).plus(offset);
    UnpackBlocks { blocks, out: std::slice::from_mut(out), map }.run(simd);
}

/// Type of plain values that are compared by an integer key, which sorts as the values do.
pub(crate) trait Plain: Copy {
    type Key: Lane;

    /// Returns the comparison keys of a unit (64 bytes) of values. Must be `#[inline(always)]`.
    fn keys<S: Simd>(simd: S, values: &[Self; 64], start: usize) -> <Self::Key as Lane>::Unit;
}

impl Plain for f32 {
    type Key = u32;

    #[inline(always)]
    fn keys<S: Simd>(simd: S, values: &[f32; 64], start: usize) -> [u32; 16] {
        simd.keys_f32(values[start..].first_chunk().expect("a whole number of units"))
    }
}

impl Plain for f64 {
    type Key = u64;

    #[inline(always)]
    fn keys<S: Simd>(simd: S, values: &[f64; 64], start: usize) -> [u64; 8] {
        simd.keys_f64(values[start..].first_chunk().expect("a whole number of units"))
    }
}

/// Kernel that clears the bits of rows whose comparison key is not between `low` and `low + span`, both included; with
/// `inside` false, of rows whose key is.
pub(crate) struct RetainPlain<'a, T: Plain> {
    /// Values; at least as many as `alive` has rows.
    pub values: &'a [T],
    pub low: T::Key,
    pub span: T::Key,
    pub inside: bool,
    pub alive: &'a mut [u64],
}

impl<T: Plain> Kernel for RetainPlain<'_, T> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, simd: S) {
        let RetainPlain { values, low, span, inside, alive } = self;
        let turned = if inside { 0 } else { u64::MAX };
        let (whole, rest) = values.as_chunks::<64>();
        let (words, last) = alive.split_at_mut(whole.len().min(alive.len()));
        for (values, alive) in whole.iter().zip(words) {
            if *alive != 0 {
                *alive &= word_within(simd, values, low, span) ^ turned;
            }
        }
        if let (Some(alive), Some(first)) = (last.first_mut(), rest.first()) {
            let mut values = [*first; 64];
            values[..rest.len()].copy_from_slice(rest);
            *alive &= word_within(simd, &values, low, span) ^ turned;
        }
    }
}

/// Returns a bit for each of 64 values: whether its key is within the range.
#[inline(always)]
fn word_within<S: Simd, T: Plain>(simd: S, values: &[T; 64], low: T::Key, span: T::Key) -> u64 {
    let unit_lanes = 64 / size_of::<T>();
    let mut bits = 0;
    for unit in 0..size_of::<T>() {
        let start = unit * unit_lanes;
        bits |= T::Key::within(simd, &T::keys(simd, values, start), low, span) << start;
    }
    bits
}

#[inline(always)]
fn keep(alive: &mut [u64], bits: &[u64; BLOCK_WORDS], inside: bool) {
    let turned = if inside { 0 } else { u64::MAX };
    alive.iter_mut().zip(bits).for_each(|(alive, bits)| *alive &= bits ^ turned);
}
