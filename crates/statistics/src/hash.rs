//! The hash function of all sketches: Murmur3 x64 128 (Appleby, 2011), with the seed of Apache DataSketches and the
//! bytes that it hashes for a value, so that HyperLogLog states of both can be merged.
//!
//! Bytes that are hashed for a value:
//! - integers of any width, booleans (0, 1), days of dates, units of timestamps, and the unscaled value of
//!   a decimal that fits 64 bits: 8 bytes, little-endian, sign-extended; so 32-bit and 64-bit keys meet.
//!   Unsigned 64-bit integers: their 8 bytes.
//! - decimals beyond 64 bits: 16 bytes, little-endian.
//! - floats: the 8 bytes of the 64-bit float, -0.0 as 0.0 and every NaN as 0x7ff8000000000000.
//! - strings: their UTF-8 bytes; binaries: their bytes.
//!
//! Invariant: equal values of one kind have equal bytes, whatever Arrow array holds them.

/// The seed of Apache DataSketches.
pub const SEED: u64 = 9001;

const C1: u64 = 0x87c3_7b91_1142_53d5;
const C2: u64 = 0x4cf5_ad43_2745_937f;

/// A 128-bit hash. Each sketch uses some of its bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Hash {
    /// First 64 bits (h1 in the reference implementation).
    pub low: u64,
    /// Second 64 bits (h2 in the reference implementation).
    pub high: u64,
}

impl Hash {
    /// Returns `bits` bits (fewer than 32) from bit `from` on, where bit 0 is the lowest bit of `low` and bit 64 that
    /// of `high`.
    #[inline(always)]
    pub fn slice(self, from: u32, bits: u32) -> u32 {
        let all = u128::from(self.high) << 64 | u128::from(self.low);
        (all >> from) as u32 & ((1 << bits) - 1)
    }
}

/// Hashes `bytes`.
pub fn murmur3(bytes: &[u8], seed: u64) -> Hash {
    let (mut h1, mut h2) = (seed, seed);
    let mut blocks = bytes.chunks_exact(16);
    for block in &mut blocks {
        let (k1, k2) = block.split_at(8);
        h1 ^= mixed_first(word(k1));
        h1 = h1.rotate_left(27).wrapping_add(h2).wrapping_mul(5).wrapping_add(0x52dc_e729);
        h2 ^= mixed_second(word(k2));
        h2 = h2.rotate_left(31).wrapping_add(h1).wrapping_mul(5).wrapping_add(0x3849_5ab5);
    }
    let (k1, k2) = tail(bytes);
    h2 ^= mixed_second(k2);
    h1 ^= mixed_first(k1);
    finished(h1, h2, bytes.len() as u64)
}

/// Returns the bytes after the last whole block of 16 bytes, as two words padded with zeros.
#[inline]
fn tail(bytes: &[u8]) -> (u64, u64) {
    let rest = bytes.len() % 16;
    // Loads the last 16 bytes and shifts out those that belong to whole blocks. This avoids branches on the length,
    // which varies.
    if let Some(last) = bytes.last_chunk::<16>() {
        let both = u128::from_le_bytes(*last).checked_shr(8 * (16 - rest) as u32).unwrap_or(0);
        return (both as u64, (both >> 64) as u64);
    }
    let (k1, k2) = bytes.split_at(rest.min(8));
    (word(k1), word(k2))
}

/// Hashes 8 bytes: [`murmur3`] of `value`, little-endian.
#[inline(always)]
pub fn murmur3_word(value: u64, seed: u64) -> Hash {
    finished(seed ^ mixed_first(value), seed, 8)
}

#[inline(always)]
fn mixed_first(k: u64) -> u64 {
    k.wrapping_mul(C1).rotate_left(31).wrapping_mul(C2)
}

#[inline(always)]
fn mixed_second(k: u64) -> u64 {
    k.wrapping_mul(C2).rotate_left(33).wrapping_mul(C1)
}

#[inline(always)]
fn finished(h1: u64, h2: u64, length: u64) -> Hash {
    let (h1, h2) = (h1 ^ length, h2 ^ length);
    let h1 = h1.wrapping_add(h2);
    let h2 = h2.wrapping_add(h1);
    let (h1, h2) = (avalanche(h1), avalanche(h2));
    let low = h1.wrapping_add(h2);
    Hash { low, high: h2.wrapping_add(low) }
}

#[inline(always)]
pub(crate) fn avalanche(k: u64) -> u64 {
    let k = (k ^ (k >> 33)).wrapping_mul(0xff51_afd7_ed55_8ccd);
    let k = (k ^ (k >> 33)).wrapping_mul(0xc4ce_b9fe_1a85_ec53);
    k ^ (k >> 33)
}

/// Returns up to 8 bytes as a little-endian word, padded with zeros. Overlapping loads are cheaper than one load of
/// variable length.
#[inline]
pub(crate) fn word(bytes: &[u8]) -> u64 {
    if let (Some(first), Some(last)) = (bytes.first_chunk(), bytes.last_chunk()) {
        let [first, last] = [first, last].map(|half| u64::from(u32::from_le_bytes(*half)));
        return first | last << (8 * (bytes.len() - 4));
    }
    // Of one to three bytes, the first, the middle and the last are all bytes.
    let at = |place: usize| u64::from(bytes[place]) << (8 * place);
    if bytes.is_empty() { 0 } else { at(0) | at(bytes.len() / 2) | at(bytes.len() - 1) }
}

/// Returns the bits that are hashed for a float.
#[inline(always)]
pub fn float_bits(value: f64) -> u64 {
    // Adding 0.0 turns -0.0 into 0.0 and changes nothing else.
    if value.is_nan() { 0x7ff8_0000_0000_0000 } else { (value + 0.0).to_bits() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn published_vectors() {
        let check = |bytes: &[u8], seed, low, high| {
            assert_eq!(murmur3(bytes, seed), Hash { low, high }, "{bytes:?}, seed {seed}");
        };
        check(b"", 0, 0, 0);
        check(b"", 1, 0x4610_abe5_6eff_5cb5, 0x5162_2daa_78f8_3583);
        check(b"hello", 0, 0xcbd8_a7b3_41bd_9b02, 0x5b1e_906a_48ae_1d19);
        let text = b"The quick brown fox jumps over the lazy dog";
        check(text, 0, 0xe34b_bc7b_bc07_1b6c, 0x7a43_3ca9_c49a_9347);
    }

    /// The self-test of the reference implementation of Murmur3: hashes of keys of all lengths up to 255, hashed
    /// again.
    #[test]
    fn the_reference_verifies_itself() {
        let key: Vec<u8> = (0..=255).collect();
        let hashes: Vec<u8> = (0..256)
            .flat_map(|length| {
                let hash = murmur3(&key[..length], 256 - length as u64);
                [hash.low.to_le_bytes(), hash.high.to_le_bytes()].concat()
            })
            .collect();
        assert_eq!(murmur3(&hashes, 0).low as u32, 0x6384_ba69);
    }

    #[test]
    fn a_word_is_hashed_as_its_bytes() {
        for value in [0, 1, u64::MAX, 0x0123_4567_89ab_cdef] {
            assert_eq!(murmur3_word(value, SEED), murmur3(&value.to_le_bytes(), SEED));
        }
        assert_eq!(float_bits(-0.0), float_bits(0.0));
        assert_eq!(float_bits(-f64::NAN), float_bits(f64::from_bits(0x7ff0_0000_0000_0001)));
    }

    #[test]
    fn slices_reach_across_the_words() {
        let hash = Hash { low: 0xf << 60, high: 0b1010 };
        assert_eq!(hash.slice(60, 8), 0b1010_1111);
        assert_eq!(hash.slice(64, 4), 0b1010);
        assert_eq!(hash.slice(0, 31), 0);
    }
}
