//! Kernel that unpacks single values of bit-packed blocks.

use super::{Blocks, UnpackBlock};
use crate::arch::{Kernel, Simd};
use crate::lanes::{self, Lane};
use farpool_model::limits::BLOCK_ROWS;

/// Minimum number of rows of one block for unpacking the whole block instead of single values. Measured at 20 bits:
/// 43 single values took 350 ns; 64 values took 300 ns with the whole block (`examples/scan_speed.rs`).
const WHOLE_BLOCK_MIN: usize = 48;

/// Number of values between the one that is unpacked and the one that is prefetched.
const AHEAD: usize = 24;

/// Calls `visit` with the value of each of `rows`; the width must not be 0.
pub(crate) struct Gather<'a, L, F> {
    pub blocks: Blocks<'a, L>,
    pub rows: &'a [u32],
    pub visit: F,
}

impl<L: Lane, F: FnMut(L)> Kernel for Gather<'_, L, F> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, simd: S) {
        let Gather { blocks, rows, mut visit } = self;
        let mut values = [L::default(); BLOCK_ROWS];
        let mut done = 0;
        let same_block = |a: &u32, b: &u32| *a as usize / BLOCK_ROWS == *b as usize / BLOCK_ROWS;
        for group in rows.chunk_by(same_block) {
            let index = group[0] as usize / BLOCK_ROWS;
            let packed = blocks.block(index);
            let whole = group.len() >= WHOLE_BLOCK_MIN;
            if whole {
                UnpackBlock { blocks, index, out: &mut values }.run(simd);
            }
            for row in group {
                let row = *row as usize % BLOCK_ROWS;
                done += 1;
                if whole {
                    visit(values[row]);
                    continue;
                }
                if let Some(row) = rows.get(done + AHEAD) {
                    blocks.prefetch_one(simd, *row as usize);
                }
                visit(lanes::unpack_one(blocks.width, packed, row));
            }
        }
    }
}
