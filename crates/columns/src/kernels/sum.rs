//! Kernel that sums bit-packed values while it unpacks them.

use super::{BLOCK_WORDS, Blocks, UnpackBlock};
use crate::arch::{Kernel, Simd};
use crate::lanes::{Lane, Pairs};
use farpool_model::limits::BLOCK_ROWS;

/// Kernel that sums the first `rows` distances or, if a bitmap is given, those of them whose bit is set. The width
/// must not be 0.
pub(crate) struct Sum<'a, L> {
    pub blocks: Blocks<'a, L>,
    pub rows: usize,
    pub selected: Option<&'a [u64]>,
}

impl<L: Lane> Kernel for Sum<'_, L> {
    type Output = u128;

    #[inline(always)]
    fn run<S: Simd>(self, simd: S) -> u128 {
        let Sum { blocks, rows, selected } = self;
        let mut values = [L::default(); BLOCK_ROWS];
        let mut sum = 0;
        for index in 0..rows.div_ceil(BLOCK_ROWS) {
            let words = selected.map(|selected| &selected[index * BLOCK_WORDS..]);
            match words {
                None => UnpackBlock { blocks, index, out: &mut values }.run(simd),
                Some(words) if words.iter().take(BLOCK_WORDS).all(|word| *word == 0) => continue,
                Some(words) => unpack_selected(simd, blocks, index, words, &mut values),
            }
            sum += total(&values[..BLOCK_ROWS.min(rows - index * BLOCK_ROWS)]);
        }
        sum
    }
}

/// Unpacks a block, with 0 in place of the values whose bit is clear.
#[inline(always)]
fn unpack_selected<S: Simd, L: Lane>(
    simd: S,
    blocks: Blocks<'_, L>,
    index: usize,
    words: &[u64],
    out: &mut [L; BLOCK_ROWS],
) {
    let mut bits = [0; BLOCK_WORDS + 1];
    let count = words.len().min(BLOCK_WORDS);
    bits[..count].copy_from_slice(&words[..count]);
    let unit_lanes = 512 / L::BITS as usize;
    let pairs = Pairs::new(blocks.width, blocks.block(index));
    for number in 0..L::BITS {
        blocks.prefetch(simd, index + 1, number);
        let (first, left, right) = pairs.get(simd, number);
        let second = first + unit_lanes;
        let (left_bits, right_bits) = (bits[first / 64] >> (first % 64), bits[second / 64] >> (second % 64));
        out[first..second].copy_from_slice(L::keep(simd, &left, left_bits).as_ref());
        out[second..second + unit_lanes].copy_from_slice(L::keep(simd, &right, right_bits).as_ref());
    }
}

/// Returns the sum of the values of at most one block. 64-bit values are added in two halves, because their sum may
/// exceed 64 bits.
#[inline(always)]
fn total<L: Lane>(values: &[L]) -> u128 {
    if L::BITS <= 16 {
        return values.iter().map(|value| value.widen() as u32).sum::<u32>().into();
    }
    let low = values.iter().map(|value| value.widen() & u64::from(u32::MAX)).sum::<u64>();
    if L::BITS <= 32 {
        return low.into();
    }
    let high = values.iter().map(|value| value.widen() >> 32).sum::<u64>();
    u128::from(low) + (u128::from(high) << 32)
}
