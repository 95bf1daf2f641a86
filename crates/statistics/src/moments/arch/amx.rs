//! Kernel of moments for AMX, the matrix instructions of recent Intel CPUs: one instruction multiplies 16 columns
//! of bytes with 16 others over 64 rows. Four such instructions are in progress at a time, on four tiles (matrix
//! registers) of sums (Intel's optimization manual, chapter 20).
//!
//! Written in assembly, because the compiler has no stable intrinsics for these instructions yet. The tiles of a
//! thread are configured on entry and released on exit, so that the rest of the program is not affected.

use crate::moments::matrix::{Bytes, GROUP, LINE};
use std::arch::asm;
use std::ops::Range;

/// Returns whether the CPU supports AMX with bytes and Linux allows this process to use it, which must be requested.
pub(super) fn allowed() -> bool {
    /// `ARCH_REQ_XCOMP_PERM` of the kernel's `asm/prctl.h`, and the number of the state component of the tiles.
    const REQUEST: (libc::c_long, libc::c_long) = (0x1023, 18);
    let leaf = std::arch::x86_64::__cpuid_count(7, 0);
    let (tile, int8) = (leaf.edx & (1 << 24) != 0, leaf.edx & (1 << 25) != 0);
    if !(tile && int8) {
        return false;
    }
    // SAFETY: the call takes two numbers and changes nothing but what this process may use.
    unsafe { libc::syscall(libc::SYS_arch_prctl, REQUEST.0, REQUEST.1) == 0 }
}

/// Configuration of the eight tiles: 16 rows of 64 bytes each.
#[repr(C, align(64))]
struct Configuration([u8; 64]);

static CONFIGURATION: Configuration = {
    let mut bytes = [0; 64];
    bytes[0] = 1;
    let mut tile = 0;
    while tile < 8 {
        bytes[16 + 2 * tile] = LINE as u8;
        bytes[48 + tile] = GROUP as u8;
        tile += 1;
    }
    Configuration(bytes)
};

/// Number of lines (of 64 rows) per pass. Reason: so many lines of two groups of columns on either side fit the L1
/// cache.
const CHUNK: usize = 16;

/// Computes the sums over all rows of the products of pairs of byte columns.
///
/// # Safety
/// The CPU must support AMX, and the process must be allowed to use it; the ranges and the length of `to` must have
/// been checked; the matrix must be interleaved.
pub(super) unsafe fn byte_products(
    matrix: &Bytes,
    (left, right): (Range<usize>, Range<usize>),
    to: &mut [u32],
    width: usize,
) {
    // SAFETY: the configuration has the form that the instruction reads.
    unsafe { asm!("ldtilecfg [{}]", in(reg) &raw const CONFIGURATION, options(nostack, readonly)) };
    for first in (0..matrix.lines()).step_by(CHUNK) {
        let lines = first..matrix.lines().min(first + CHUNK);
        for i in left.clone().step_by(2 * GROUP) {
            for j in right.clone().step_by(2 * GROUP) {
                // A last group of columns without a partner is its own partner, so that it is computed twice.
                let i_next = if i + GROUP < left.end { i + GROUP } else { i };
                let j_next = if j + GROUP < right.end { j + GROUP } else { j };
                let at = |i: usize, j: usize| (i - left.start) * width + j - right.start;
                let tiles = [at(i, j), at(i, j_next), at(i_next, j), at(i_next, j_next)];
                let groups = ([i, i_next], [j / GROUP, j_next / GROUP]);
                // SAFETY: the caller guarantees AMX and the size of `to`.
                unsafe { four_tiles(matrix, lines.clone(), groups, to, tiles, width) };
            }
        }
    }
    // SAFETY: the instruction has no operands, and the contents of the tiles are not needed any more.
    unsafe { asm!("tilerelease", options(nostack, nomem)) };
}

/// Computes the sums of products of two groups of columns on the left with two groups on the right.
///
/// # Safety
/// As [`byte_products`], with the tiles configured.
unsafe fn four_tiles(
    matrix: &Bytes,
    lines: Range<usize>,
    (left, right): ([usize; 2], [usize; 2]),
    to: &mut [u32],
    tiles: [usize; 4],
    width: usize,
) {
    let left = left.map(|i| matrix.columns_from(i, GROUP)[lines.start * LINE..].as_ptr());
    let right = right.map(|group| matrix.interleaved(group)[lines.start * LINE * GROUP..].as_ptr());
    let to = tiles.map(|at| to[at..].as_mut_ptr());
    // SAFETY: each step reads 64 bytes of the 16 columns of each side, of which there are as many as lines;
    // each tile is loaded from and stored into 16 rows of 16 numbers, for which there is room.
    unsafe {
        if lines.start == 0 {
            asm!("tilezero tmm0", "tilezero tmm1", "tilezero tmm2", "tilezero tmm3", options(nostack, nomem));
        } else {
            asm!(
                "tileloadd tmm0, [{t0} + {width} * 1]",
                "tileloadd tmm1, [{t1} + {width} * 1]",
                "tileloadd tmm2, [{t2} + {width} * 1]",
                "tileloadd tmm3, [{t3} + {width} * 1]",
                t0 = in(reg) to[0], t1 = in(reg) to[1], t2 = in(reg) to[2], t3 = in(reg) to[3],
                width = in(reg) 4 * width,
                options(nostack, readonly),
            );
        }
        asm!(
            "2:",
            "tileloadd tmm4, [{a0} + {stride} * 1]",
            "tileloadd tmm6, [{b0} + {line} * 1]",
            "tileloadd tmm7, [{b1} + {line} * 1]",
            "tdpbuud tmm0, tmm4, tmm6",
            "tileloadd tmm5, [{a1} + {stride} * 1]",
            "tdpbuud tmm1, tmm4, tmm7",
            "tdpbuud tmm2, tmm5, tmm6",
            "tdpbuud tmm3, tmm5, tmm7",
            "add {a0}, 64", "add {a1}, 64", "add {b0}, 1024", "add {b1}, 1024",
            "dec {lines}",
            "jnz 2b",
            a0 = inout(reg) left[0] => _, a1 = inout(reg) left[1] => _,
            b0 = inout(reg) right[0] => _, b1 = inout(reg) right[1] => _,
            lines = inout(reg) lines.len() => _,
            stride = in(reg) matrix.stride(), line = in(reg) LINE,
            options(nostack, readonly),
        );
        asm!(
            "tilestored [{t0} + {width} * 1], tmm0",
            "tilestored [{t1} + {width} * 1], tmm1",
            "tilestored [{t2} + {width} * 1], tmm2",
            "tilestored [{t3} + {width} * 1], tmm3",
            t0 = in(reg) to[0], t1 = in(reg) to[1], t2 = in(reg) to[2], t3 = in(reg) to[3],
            width = in(reg) 4 * width,
            options(nostack),
        );
    }
}
