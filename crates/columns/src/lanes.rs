//! Blocks of 1024 packed integers, as `fastlanes` lays them out.
//!
//! A block of width `w` in lanes of `L` is `1024 * w / L::BITS` lanes long: `w` rows of 128 bytes. The
//! distances of a block are spread over as many streams as lanes go into 128 bytes, so that neighbours lie
//! next to each other in a SIMD register, and each stream is a plain sequence of `w`-bit numbers. The r-th
//! numbers of all streams are consecutive rows of the block, the first of which is [`first_row`].
//! Source: Afroozeh and Boncz, "The FastLanes Compression Layout", VLDB 2023.
//!
//! Packing is the library's; unpacking is ours, fused with what is done to the values, for any instruction
//! set ([`Pairs`]).

use crate::arch::Simd;
use arrow_buffer::ArrowNativeType;
use farpool_model::limits::BLOCK_ROWS;
use fastlanes::BitPacking;

/// The order of the groups of eight numbers of a stream, in sixteenths of a block's eighth.
const GROUP_ORDER: [usize; 8] = [0, 4, 2, 6, 1, 5, 3, 7];

/// An unsigned integer that packed values are held in.
pub(crate) trait Lane: BitPacking + ArrowNativeType + Ord {
    /// Bits of the type.
    const BITS: u32;

    /// 64 bytes of lanes.
    type Unit: AsRef<[Self]> + AsMut<[Self]> + Copy;

    /// The low bits of `value`.
    fn truncate(value: u64) -> Self;

    /// The value, widened.
    fn widen(self) -> u64;

    /// The bits of a stream from `shift` on, fewer than [`Lane::BITS`], as far as `mask` wants them: those of
    /// `low` and, where they do not suffice, the lowest of `high`.
    fn part(low: Self, high: Self, shift: u32, mask: Self) -> Self;

    /// The sum, modulo the type.
    fn plus(self, other: Self) -> Self;

    /// The difference, modulo the type.
    fn minus(self, other: Self) -> Self;

    /// The unit that starts at `lanes[start]`.
    fn load(lanes: &[Self], start: usize) -> Self::Unit;

    /// [`Lane::part`] of each lane.
    fn parts<S: Simd>(simd: S, low: &Self::Unit, high: &Self::Unit, shift: u32, mask: Self) -> Self::Unit;

    /// The values whose bit of `mask` is set, in order; what follows them has no meaning.
    fn compress<S: Simd>(simd: S, values: &Self::Unit, mask: u64) -> Self::Unit;

    /// The values whose bit of `mask` is set, and 0 in the place of each other.
    fn keep<S: Simd>(simd: S, values: &Self::Unit, mask: u64) -> Self::Unit;

    /// A bit for each lane: whether the left is no greater than the right.
    fn at_most<S: Simd>(simd: S, left: &Self::Unit, right: &Self::Unit) -> u64;

    /// A bit for each lane: whether it is `low` or at most `span` above.
    fn within<S: Simd>(simd: S, values: &Self::Unit, low: Self, span: Self) -> u64;
}

macro_rules! impl_lane {
    ($($t:ty, $parts:ident, $compress:ident, $keep:ident, $at_most:ident, $within:ident);*) => {$(
        impl Lane for $t {
            const BITS: u32 = <$t>::BITS;

            type Unit = [$t; 64 / size_of::<$t>()];

            #[inline(always)]
            fn truncate(value: u64) -> Self {
                value as $t
            }

            #[inline(always)]
            fn widen(self) -> u64 {
                self as u64
            }

            #[inline(always)]
            fn part(low: Self, high: Self, shift: u32, mask: Self) -> Self {
                // In two steps, because a shift by all bits is none. What `high` adds where `low` suffices
                // lies outside the mask.
                (low >> shift | high << 1 << (<$t>::BITS - 1 - shift)) & mask
            }

            #[inline(always)]
            fn plus(self, other: Self) -> Self {
                self.wrapping_add(other)
            }

            #[inline(always)]
            fn minus(self, other: Self) -> Self {
                self.wrapping_sub(other)
            }

            #[inline(always)]
            fn load(lanes: &[Self], start: usize) -> Self::Unit {
                *lanes[start..].first_chunk().expect("a block is a whole number of units")
            }

            #[inline(always)]
            fn parts<S: Simd>(
                simd: S,
                low: &Self::Unit,
                high: &Self::Unit,
                shift: u32,
                mask: Self,
            ) -> Self::Unit {
                simd.$parts(low, high, shift, mask)
            }

            #[inline(always)]
            fn compress<S: Simd>(simd: S, values: &Self::Unit, mask: u64) -> Self::Unit {
                simd.$compress(values, mask)
            }

            #[inline(always)]
            fn keep<S: Simd>(simd: S, values: &Self::Unit, mask: u64) -> Self::Unit {
                simd.$keep(values, mask)
            }

            #[inline(always)]
            fn at_most<S: Simd>(simd: S, left: &Self::Unit, right: &Self::Unit) -> u64 {
                simd.$at_most(left, right)
            }

            #[inline(always)]
            fn within<S: Simd>(simd: S, values: &Self::Unit, low: Self, span: Self) -> u64 {
                simd.$within(values, low, span)
            }
        }
    )*};
}

impl_lane!(
    u8, parts_u8, compress_u8, keep_u8, at_most_u8, within_u8;
    u16, parts_u16, compress_u16, keep_u16, at_most_u16, within_u16;
    u32, parts_u32, compress_u32, keep_u32, at_most_u32, within_u32;
    u64, parts_u64, compress_u64, keep_u64, at_most_u64, within_u64
);

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

/// Streams of a block: the lanes of 128 bytes.
const fn streams<L: Lane>() -> usize {
    BLOCK_ROWS / L::BITS as usize
}

/// The row of a block that the first stream's `number`-th number is; those of the other streams follow.
#[inline(always)]
pub(crate) fn first_row(number: usize) -> usize {
    GROUP_ORDER[number / 8] * 16 + number % 8 * 128
}

/// Packs the low `width` bits of each value.
#[expect(unsafe_code, reason = "the library leaves a check to its caller")]
pub(crate) fn pack_block<L: Lane>(width: u32, values: &[L; BLOCK_ROWS], packed: &mut [L]) {
    assert!(width <= L::BITS && packed.len() == block_lanes::<L>(width), "a block of another size");
    // SAFETY: the lengths are those that the width asks for, as just checked.
    unsafe { L::unchecked_pack(width as usize, values, packed) }
}

/// A block that is unpacked 128 bytes of values at a time. For use in a kernel; the loop over the pairs is
/// the kernel's own, because a closure might not be compiled with the kernel's instructions.
#[derive(Clone, Copy)]
pub(crate) struct Pairs<'a, L> {
    width: u32,
    packed: &'a [L],
    mask: L,
}

impl<'a, L: Lane> Pairs<'a, L> {
    /// The pairs of a block; `width` is not 0.
    #[inline(always)]
    pub fn new(width: u32, packed: &'a [L]) -> Self {
        assert!((1..=L::BITS).contains(&width), "no width of these lanes");
        assert!(packed.len() == block_lanes::<L>(width), "a block of another size");
        Pairs { width, packed, mask: L::truncate(u64::MAX >> (64 - width)) }
    }

    /// Values of [`Lane::BITS`] pairs, in two halves, and the row of the block that the first of them is.
    #[inline(always)]
    pub fn get<S: Simd>(&self, simd: S, number: u32) -> (usize, L::Unit, L::Unit) {
        let (word, shift) = (number * self.width / L::BITS, number * self.width % L::BITS);
        // Where the last bit lies, which may be the same word.
        let next = (number * self.width + self.width - 1) / L::BITS;
        let (low, high) = (word as usize * streams::<L>(), next as usize * streams::<L>());
        let (low_half, high_half) = (low + streams::<L>() / 2, high + streams::<L>() / 2);
        let (left, left_next) = (L::load(self.packed, low), L::load(self.packed, high));
        let (right, right_next) = (L::load(self.packed, low_half), L::load(self.packed, high_half));
        (
            first_row(number as usize),
            L::parts(simd, &left, &left_next, shift, self.mask),
            L::parts(simd, &right, &right_next, shift, self.mask),
        )
    }
}

/// The stream of a block that a row is in, and its number there.
#[inline(always)]
fn place<L: Lane>(row: usize) -> (usize, u32) {
    debug_assert!(row < BLOCK_ROWS);
    // The inverse of `first_row`, whose table is its own inverse.
    let stream = row % streams::<L>();
    let group = GROUP_ORDER[(row % 128 - stream) / 16];
    (stream, (group * 8 + row / 128) as u32)
}

/// The lanes of a block that hold the value of a row, which may be the same; `width` is not 0.
#[inline(always)]
pub(crate) fn lanes_of<L: Lane>(width: u32, row: usize) -> [usize; 2] {
    let (stream, number) = place::<L>(row);
    let lane = |bit: u32| (bit / L::BITS) as usize * streams::<L>() + stream;
    [lane(number * width), lane(number * width + width - 1)]
}

/// One value of a block; `width` is not 0.
#[inline(always)]
pub(crate) fn unpack_one<L: Lane>(width: u32, packed: &[L], row: usize) -> L {
    // Where the last bit lies is no other cache line than the first one's if that has all.
    let [first, last] = lanes_of::<L>(width, row);
    let shift = place::<L>(row).1 * width % L::BITS;
    L::part(packed[first], packed[last], shift, L::truncate(u64::MAX >> (64 - width)))
}
