//! Tests the operations of every level of CPU instructions against plain loops.

use super::*;

/// Returns random numbers of `bits` bits, among them the least and the greatest.
pub(crate) fn numbers(seed: u64, count: usize, bits: u32) -> Vec<u64> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mask = if bits == 64 { u64::MAX } else { (1 << bits) - 1 };
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        let number = match state >> 61 {
            0 => [0, 1, mask, mask >> 1, (mask >> 1) + 1, mask - 1][(state >> 20) as usize % 6],
            1 => (state >> 20) & 3,
            _ => state >> 3,
        };
        number & mask
    };
    (0..count).map(|_| next()).collect()
}

struct Steps<'a> {
    left: &'a [u64],
    right: &'a [u64],
    set: &'a [u32],
}

/// Converts the first `N` values to an array of a lane type, with `cut`.
fn lanes<T: Copy + Default, const N: usize>(values: &[u64], cut: impl Fn(u64) -> T) -> [T; N] {
    std::array::from_fn(|i| cut(values[i]))
}

/// Runs all operations, and keeps their results as strings for comparison.
impl Kernel for Steps<'_> {
    type Output = Vec<String>;

    #[inline(always)]
    fn run<S: Simd>(self, simd: S) -> Vec<String> {
        let Steps { left, right, set } = self;
        let bytes: Vec<u8> = set.iter().flat_map(|word| word.to_le_bytes()).cycle().take(32).collect();
        let mut out = Vec::new();
        macro_rules! steps {
            ($($t:ty, $at_most:ident, $within:ident, $parts:ident, $compress:ident, $keep:ident);*) => {$(
                let (l, r) = (lanes(left, |v| v as $t), lanes(right, |v| v as $t));
                out.push(format!("{:x}", simd.$at_most(&l, &r)));
                out.push(format!("{:x}", simd.$within(&l, r[0], r[1])));
                let mask = right[2] >> (64 - 64 / size_of::<$t>());
                let picked = &simd.$compress(&l, mask)[..mask.count_ones() as usize];
                out.push(format!("{picked:?}"));
                let kept = simd.$keep(&l, mask);
                let bit = |lane: usize| (mask >> lane & 1) as $t;
                assert_eq!(kept, std::array::from_fn(|lane| l[lane] * bit(lane)));
                for shift in [0, 1, 5, <$t>::BITS - 1] {
                    out.push(format!("{:?}", simd.$parts(&l, &r, shift, <$t>::MAX >> 1)));
                }
            )*};
        }
        steps!(
            u8, at_most_u8, within_u8, parts_u8, compress_u8, keep_u8;
            u16, at_most_u16, within_u16, parts_u16, compress_u16, keep_u16;
            u32, at_most_u32, within_u32, parts_u32, compress_u32, keep_u32;
            u64, at_most_u64, within_u64, parts_u64, compress_u64, keep_u64
        );
        let (bytes_left, mask) = (lanes(left, |v| v as u8), right[2] | right[3]);
        let mut padded = [1; 64];
        simd.compress_padded_u8(&bytes_left, mask, 7, &mut padded);
        let picked = &simd.compress_u8(&bytes_left, mask)[..mask.count_ones() as usize];
        assert_eq!(padded[..picked.len()], *picked);
        assert!(padded[picked.len()..].iter().all(|pad| *pad == 7));
        out.push(format!("{:?}", simd.keys_f32(&lanes(left, |v| f32::from_bits(v as u32)))));
        out.push(format!("{:?}", simd.keys_f64(&lanes(left, f64::from_bits))));
        let bytes = bytes.first_chunk().expect("32 bytes");
        out.push(format!("{:x}", simd.bits_at_u8(bytes, &lanes(left, |v| v as u8))));
        for offset in [0, 7, 0u32.wrapping_sub(9)] {
            out.push(format!("{:x}", simd.bits_at_u16(set, &lanes(left, |v| v as u16), offset)));
            out.push(format!("{:x}", simd.bits_at_u32(set, &lanes(left, |v| v as u32), offset)));
        }
        out
    }
}

#[test]
fn every_level_takes_the_steps_of_the_portable_one() {
    assert!(Level::all().next() == Some(Level::PORTABLE));
    for seed in 0..400 {
        let bits = [3, 8, 10, 16, 32, 64][seed % 6];
        let (left, right) =
            (numbers(seed as u64, 64, bits), numbers(!seed as u64, 64, [bits, 64][seed % 2].min(bits + 1)));
        let set: Vec<u32> = numbers(77 + seed as u64, 1 + seed % 40, 32).iter().map(|v| *v as u32).collect();
        let steps = || Steps { left: &left, right: &right, set: &set };
        let expected = Level::PORTABLE.run(steps());
        let bytes = (0..64).map(|i| u64::from(left[i] as u8 <= right[i] as u8) << i);
        assert_eq!(expected[0], format!("{:x}", bytes.fold(0, |a, b| a | b)));
        for level in Level::all() {
            assert_eq!(level.run(steps()), expected, "{level:?}, seed {seed}");
        }
    }
}
