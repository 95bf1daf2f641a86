//! Predicates on packed values: they clear the bits of rows that do not satisfy them.

use super::{BLOCK_WORDS, Blocks, UnpackBlock, put};
use crate::arch::{Kernel, Simd};
use crate::lanes::{self, Lane, Pairs};
use farpool_model::limits::BLOCK_ROWS;

/// Up to how many wanted rows of a block are looked at one by one.
const SINGLE_MAX: u32 = 12;

/// A condition on packed values.
pub(crate) trait Condition<L: Lane> {
    /// Whether one value satisfies it; `#[inline(always)]`.
    fn holds(&self, value: L) -> bool;

    /// Where the values of a unit satisfy it; `#[inline(always)]`.
    fn bits<S: Simd>(&self, simd: S, unit: &L::Unit) -> u64;
}

/// Keeps the rows whose value satisfies a condition (or, unless `inside`, does not).
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
                let (first, left, right) = pairs.get(number);
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

/// The value is at least `low` and at most `low + span`.
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
        L::at_most(simd, &L::all_minus(unit, self.low), &self.span.splat())
    }
}

/// The value, `offset` added, is a member of a set. A negative sum, as it is in 64 bits, is none.
pub(crate) struct Member<'a> {
    pub offset: u64,
    /// The lowest bit of a word first.
    pub set: &'a [u32],
}

impl Member<'_> {
    /// No set has so many bits as what does not fit.
    #[inline(always)]
    fn index<L: Lane>(&self, value: L) -> u32 {
        let sum = value.widen().wrapping_add(self.offset);
        if sum > u64::from(u32::MAX) { u32::MAX } else { sum as u32 }
    }
}

impl<L: Lane> Condition<L> for Member<'_> {
    #[inline(always)]
    fn holds(&self, value: L) -> bool {
        let index = self.index(value);
        self.set.get((index >> 5) as usize).is_some_and(|word| word >> (index & 31) & 1 == 1)
    }

    #[inline(always)]
    fn bits<S: Simd>(&self, simd: S, unit: &L::Unit) -> u64 {
        let unit = unit.as_ref();
        let mut bits = 0;
        for part in 0..unit.len().div_ceil(16) {
            let mut indices = [u32::MAX; 16];
            for i in 0..unit.len().min(16) {
                indices[i] = self.index(unit[part * 16 + i]);
            }
            let used = if unit.len() < 16 { (1 << unit.len()) - 1 } else { u64::MAX };
            bits |= (simd.bits_at_u32(self.set, &indices) & used) << (16 * part);
        }
        bits
    }
}

/// The same for lanes of a byte: all members that they can reach are 256 bits.
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

/// Keeps the rows whose value on the left, `left_offset` added, is no greater than the one on the right,
/// `right_offset` added (or, unless `inside`, is). The lanes of `W` hold the sums.
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
        let unit_lanes = W::default().splat().as_ref().len();
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

/// The values of a block in other lanes, `offset` added.
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
    UnpackBlock {
        width: blocks.width,
        packed: blocks.block(block),
        out,
        map: |value: L| W::truncate(value.widen()).plus(offset),
    }
    .run(simd);
}

/// Keeps the rows whose key is at least `low` and at most `low + span` (or, unless `inside`, is not).
pub(crate) struct RetainPlain<'a, T, L, F> {
    /// As many as `alive` has bits, or fewer.
    pub values: &'a [T],
    pub key: F,
    pub low: L,
    pub span: L,
    pub inside: bool,
    pub alive: &'a mut [u64],
}

impl<T: Copy, L: Lane, F: Fn(T) -> L> Kernel for RetainPlain<'_, T, L, F> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, simd: S) {
        let RetainPlain { values, key, low, span, inside, alive } = self;
        let spans = span.splat();
        let unit_lanes = spans.as_ref().len();
        for (values, alive) in values.chunks(64).zip(alive) {
            if *alive == 0 {
                continue;
            }
            let mut bits = 0;
            let mut keys = [L::default(); 64];
            keys.iter_mut().zip(values).for_each(|(above, value)| *above = key(*value).minus(low));
            for unit in 0..64 / unit_lanes {
                let above = L::load(&keys, unit * unit_lanes);
                bits |= L::at_most(simd, &above, &spans) << (unit * unit_lanes);
            }
            *alive &= if inside { bits } else { !bits };
        }
    }
}

#[inline(always)]
fn keep(alive: &mut [u64], bits: &[u64; BLOCK_WORDS], inside: bool) {
    let turned = if inside { 0 } else { u64::MAX };
    alive.iter_mut().zip(bits).for_each(|(alive, bits)| *alive &= bits ^ turned);
}
