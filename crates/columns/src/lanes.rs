//! Blocks of 1024 packed integers, as `fastlanes` lays them out, behind functions that check what the
//! library leaves to its caller.
//!
//! A block of width `w` in lanes of `L` is `1024 * w / L::BITS` lanes long. The layout spreads neighbours
//! over the lanes of a SIMD register, so packing and unpacking are plain vector code on any processor.
//! Source: Afroozeh and Boncz, "The FastLanes Compression Layout", VLDB 2023.

use arrow_buffer::ArrowNativeType;
use farpool_model::limits::BLOCK_ROWS;
use fastlanes::BitPacking;

/// An unsigned integer that packed values are held in.
pub(crate) trait Lane: BitPacking + ArrowNativeType + Ord {
    /// Bits of the type.
    const BITS: u32;

    /// The low bits of `value`.
    fn truncate(value: u64) -> Self;

    /// The value, widened.
    fn widen(self) -> u64;
}

macro_rules! impl_lane {
    ($($t:ty),*) => {$(
        impl Lane for $t {
            const BITS: u32 = <$t>::BITS;

            #[inline(always)]
            fn truncate(value: u64) -> Self {
                value as $t
            }

            #[inline(always)]
            fn widen(self) -> u64 {
                self as u64
            }
        }
    )*};
}

impl_lane!(u8, u16, u32, u64);

/// Bits of the narrowest lane for values of `width` bits.
pub(crate) fn lane_bits(width: u32) -> u32 {
    match width {
        0..=8 => 8,
        9..=16 => 16,
        17..=32 => 32,
        _ => 64,
    }
}

/// Lanes of one block.
pub(crate) fn block_lanes<L: Lane>(width: u32) -> usize {
    BLOCK_ROWS * width as usize / L::BITS as usize
}

/// Packs the low `width` bits of each value.
pub(crate) fn pack_block<L: Lane>(width: u32, values: &[L; BLOCK_ROWS], packed: &mut [L]) {
    assert!(width <= L::BITS && packed.len() == block_lanes::<L>(width), "a block of another size");
    // SAFETY: the lengths are those that the width asks for, as just checked.
    unsafe { L::unchecked_pack(width as usize, values, packed) }
}

/// Unpacks a whole block.
#[inline]
pub(crate) fn unpack_block<L: Lane>(width: u32, packed: &[L], values: &mut [L; BLOCK_ROWS]) {
    assert!(width <= L::BITS && packed.len() == block_lanes::<L>(width), "a block of another size");
    // SAFETY: as above.
    unsafe { L::unchecked_unpack(width as usize, packed, values) }
}

/// Unpacks one value of a block.
#[inline]
pub(crate) fn unpack_one<L: Lane>(width: u32, packed: &[L], index: usize) -> L {
    assert!(width <= L::BITS && packed.len() == block_lanes::<L>(width), "a block of another size");
    assert!(index < BLOCK_ROWS, "an index outside the block");
    // SAFETY: as above.
    unsafe { L::unchecked_unpack_single(width as usize, packed, index) }
}
