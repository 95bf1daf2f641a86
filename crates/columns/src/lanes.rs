//! Blocks of 1024 bit-packed integers in the layout of `fastlanes`.
//!
//! A lane is an unsigned integer type in which packed values are stored. A block of values of `w` bits in lanes of type
//! `L` has `1024 * w / L::BITS` lanes, which are `w` lines of 128 bytes. The values are spread over as many streams as
//! 128 bytes have lanes, so that values of neighbouring streams lie next to each other in a SIMD register; each stream
//! is a plain sequence of `w`-bit numbers. The r-th numbers of all streams are consecutive rows of the block, of which
//! [`first_row`] is the first. Source: Afroozeh and Boncz, "The FastLanes Compression Layout", VLDB 2023.
//!
//! The library packs. Unpacking is done here, together with the operation on the values, for any level of CPU
//! instructions ([`Pairs`]).

use crate::arch::Simd;
use arrow_buffer::ArrowNativeType;
use farpool_model::limits::BLOCK_ROWS;
use fastlanes::BitPacking;

/// Order of the groups of eight numbers within a stream, in multiples of 16 rows within an eighth of a block.
const GROUP_ORDER: [usize; 8] = [0, 4, 2, 6, 1, 5, 3, 7];

/// An unsigned integer type that packed values are stored in.
pub(crate) trait Lane: BitPacking + ArrowNativeType + Ord {
    /// Number of bits of the type.
    const BITS: u32;

    /// 64 bytes of lanes (a unit).
    type Unit: AsRef<[Self]> + AsMut<[Self]> + Copy;

    /// Returns the low bits of `value`.
    fn truncate(value: u64) -> Self;

    /// Returns the value as 64 bits.
    fn widen(self) -> u64;

    /// Returns bits of a stream from bit `shift` of `low` on (less than [`Lane::BITS`]), masked by `mask`: those of
    /// `low` and, above them, the lowest bits of `high`.
    fn part(low: Self, high: Self, shift: u32, mask: Self) -> Self;

    /// Returns the sum, modulo the type.
    fn plus(self, other: Self) -> Self;

    /// Returns the difference, modulo the type.
    fn minus(self, other: Self) -> Self;

    /// Loads the unit that starts at `lanes[start]`.
    fn load(lanes: &[Self], start: usize) -> Self::Unit;

    /// Applies [`Lane::part`] to each lane.
    fn parts<S: Simd>(simd: S, low: &Self::Unit, high: &Self::Unit, shift: u32, mask: Self) -> Self::Unit;

    /// Moves the values whose bit of `mask` is set to the front, in order; the rest of the unit is
    /// unspecified.
    fn compress<S: Simd>(simd: S, values: &Self::Unit, mask: u64) -> Self::Unit;

    /// Keeps the values whose bit of `mask` is set, and sets the others to 0.
    fn keep<S: Simd>(simd: S, values: &Self::Unit, mask: u64) -> Self::Unit;

    /// Returns a bit for each lane: whether the left value is no greater than the right one.
    fn at_most<S: Simd>(simd: S, left: &Self::Unit, right: &Self::Unit) -> u64;

    /// Returns a bit for each lane: whether the value is at least `low` and at most `low + span`, modulo the
    /// type.
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
                // The shift is made in two steps, because a shift by the width of the type is not allowed. If all
                // wanted bits are in `low`, those of `high` are outside the mask.
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

/// Returns the number of bits of the narrowest lane for values of `width` bits.
pub(crate) fn lane_bits(width: u32) -> u32 {
    match width {
        0..=8 => 8,
        9..=16 => 16,
        17..=32 => 32,
        _ => 64,
    }
}

/// Returns the number of lanes of one block.
pub(crate) fn block_lanes<L: Lane>(width: u32) -> usize {
    BLOCK_ROWS * width as usize / L::BITS as usize
}

/// Returns the number of streams of a block: the lanes in 128 bytes.
const fn streams<L: Lane>() -> usize {
    BLOCK_ROWS / L::BITS as usize
}

/// Returns the row of a block to which number `number` of the first stream belongs. The numbers of the other streams
/// belong to the rows after it.
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

/// A block that is unpacked 128 bytes of values (two units) at a time, for use in a kernel. The kernel must loop over
/// the pairs itself, because a closure might not be compiled with the kernel's instructions.
#[derive(Clone, Copy)]
pub(crate) struct Pairs<'a, L> {
    width: u32,
    packed: &'a [L],
    mask: L,
}

impl<'a, L: Lane> Pairs<'a, L> {
    /// Creates the pairs of a block; `width` must not be 0.
    #[inline(always)]
    pub fn new(width: u32, packed: &'a [L]) -> Self {
        assert!((1..=L::BITS).contains(&width), "no width of these lanes");
        assert!(packed.len() == block_lanes::<L>(width), "a block of another size");
        Pairs { width, packed, mask: L::truncate(u64::MAX >> (64 - width)) }
    }

    /// Returns pair `number` of the [`Lane::BITS`] pairs of units, and the row of the block to which its first value
    /// belongs.
    #[inline(always)]
    pub fn get<S: Simd>(&self, simd: S, number: u32) -> (usize, L::Unit, L::Unit) {
        let (word, shift) = (number * self.width / L::BITS, number * self.width % L::BITS);
        // Index of the lane with the last bit of the value; it may be that of the first bit.
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

/// Returns the stream of a block to which a row belongs, and the number's index in that stream.
#[inline(always)]
fn place<L: Lane>(row: usize) -> (usize, u32) {
    debug_assert!(row < BLOCK_ROWS);
    // The inverse of `first_row`, whose table of group orders is its own inverse.
    let stream = row % streams::<L>();
    let group = GROUP_ORDER[(row % 128 - stream) / 16];
    (stream, (group * 8 + row / 128) as u32)
}

/// Returns the indices of the first and last lane of a block that hold bits of a row's value; they may be equal.
/// `width` must not be 0.
#[inline(always)]
pub(crate) fn lanes_of<L: Lane>(width: u32, row: usize) -> [usize; 2] {
    let (stream, number) = place::<L>(row);
    let lane = |bit: u32| (bit / L::BITS) as usize * streams::<L>() + stream;
    [lane(number * width), lane(number * width + width - 1)]
}

/// Returns the value of one row of a block; `width` must not be 0.
#[inline(always)]
pub(crate) fn unpack_one<L: Lane>(width: u32, packed: &[L], row: usize) -> L {
    // If the first lane has all bits of the value, the last lane is the same one, so that no second cache line is
    // read.
    let [first, last] = lanes_of::<L>(width, row);
    let shift = place::<L>(row).1 * width % L::BITS;
    L::part(packed[first], packed[last], shift, L::truncate(u64::MAX >> (64 - width)))
}
