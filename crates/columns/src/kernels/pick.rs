//! Kernel that unpacks selected values of bit-packed blocks and packs them again, without interpreting them.

use super::{BLOCK_WORDS, Blocks, UnpackBlock};
use crate::arch::{Kernel, Simd};
use crate::lanes::{self, Lane};
use farpool_model::limits::BLOCK_ROWS;

/// Kernel that appends the values whose bits are set to `out`, in packed blocks of the same width, which must not be 0.
pub(crate) struct Pick<'a, L> {
    pub blocks: Blocks<'a, L>,
    pub selected: &'a [u64],
    pub out: &'a mut Vec<L>,
}

impl<L: Lane> Kernel for Pick<'_, L> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, simd: S) {
        let Pick { blocks, selected, out } = self;
        let width = blocks.width;
        let mut values = [L::default(); BLOCK_ROWS];
        // The picked values: those left over from earlier blocks, followed by those of the current block.
        let mut picked = [L::default(); 2 * BLOCK_ROWS];
        // One packed block. It is appended to `out` as a whole, so that the spare capacity of `out` need not be
        // cleared first.
        let mut packed = [L::default(); BLOCK_ROWS];
        let packed = &mut packed[..lanes::block_lanes::<L>(width)];
        let mut count = 0;
        for (index, words) in selected.chunks(BLOCK_WORDS).enumerate() {
            if words.iter().all(|word| *word == 0) {
                continue;
            }
            UnpackBlock { blocks, index, out: &mut values }.run(simd);
            for (word, values) in words.iter().zip(values.chunks_exact(64)) {
                count += pick_word(simd, values, *word, &mut picked[count..]);
            }
            if count >= BLOCK_ROWS {
                let (full, rest) = picked.split_at_mut(BLOCK_ROWS);
                pack(width, full, packed);
                out.extend_from_slice(packed);
                count -= BLOCK_ROWS;
                full[..count].copy_from_slice(&rest[..count]);
            }
        }
        if count > 0 {
            picked[count..BLOCK_ROWS].fill(L::default());
            pack(width, &picked[..BLOCK_ROWS], packed);
            out.extend_from_slice(packed);
        }
    }
}

/// Moves those of 64 values whose bits are set to the front of `out`, which must have room for all, and
/// returns their number.
#[inline(always)]
fn pick_word<S: Simd, L: Lane>(simd: S, values: &[L], word: u64, out: &mut [L]) -> usize {
    if word == u64::MAX {
        out[..64].copy_from_slice(values);
        return 64;
    }
    let unit_lanes = 512 / L::BITS as usize;
    let mut count = 0;
    for unit in 0..64 / unit_lanes {
        let mask = word >> (unit * unit_lanes) & (u64::MAX >> (64 - unit_lanes));
        let picked = L::compress(simd, &L::load(values, unit * unit_lanes), mask);
        // Unspecified lanes are overwritten by the next unit of values, or are behind the end.
        out[count..count + unit_lanes].copy_from_slice(picked.as_ref());
        count += mask.count_ones() as usize;
    }
    count
}

#[inline(always)]
fn pack<L: Lane>(width: u32, values: &[L], out: &mut [L]) {
    if let Some(values) = values.first_chunk() {
        lanes::pack_block(width, values, out);
    }
}
