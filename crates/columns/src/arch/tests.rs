//! Every level against plain loops.

use super::*;

/// Numbers of which some lie at the ends of a lane of `bits` bits.
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

/// The first values, cut to their type.
fn lanes<T: Copy + Default, const N: usize>(values: &[u64], cut: impl Fn(u64) -> T) -> [T; N] {
    std::array::from_fn(|i| cut(values[i]))
}

impl Kernel for Steps<'_> {
    type Output = [u64; 6];

    #[inline(always)]
    fn run<S: Simd>(self, simd: S) -> [u64; 6] {
        let Steps { left, right, set } = self;
        let bytes: Vec<u8> = set.iter().flat_map(|word| word.to_le_bytes()).cycle().take(32).collect();
        [
            simd.at_most_u8(&lanes(left, |v| v as u8), &lanes(right, |v| v as u8)),
            simd.at_most_u16(&lanes(left, |v| v as u16), &lanes(right, |v| v as u16)),
            simd.at_most_u32(&lanes(left, |v| v as u32), &lanes(right, |v| v as u32)),
            simd.at_most_u64(&lanes(left, |v| v), &lanes(right, |v| v)),
            simd.bits_at_u8(bytes.first_chunk().expect("32 bytes"), &lanes(left, |v| v as u8)),
            simd.bits_at_u32(set, &lanes(left, |v| v as u32)),
        ]
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
        let plain = |n: usize, cut: u64| {
            (0..n).map(|i| u64::from(left[i] & cut <= right[i] & cut) << i).fold(0, |a, b| a | b)
        };
        assert_eq!(expected[0], plain(64, 0xff));
        assert_eq!(expected[1], plain(32, 0xffff));
        assert_eq!(expected[2], plain(16, 0xffff_ffff));
        assert_eq!(expected[3], plain(8, u64::MAX));
        for level in Level::all() {
            assert_eq!(level.run(steps()), expected, "{level:?}, seed {seed}");
        }
    }
}
