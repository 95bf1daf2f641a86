//! A Bloom filter of join keys: the hashes of the keys of a join's smaller side, which are sent to the scan of the
//! larger side. It is used if the range of the keys is too wide for a [`crate::KeySet`], or if they are strings or span
//! several columns.
//!
//! The filter is register-blocked: a hash selects one word of 64 bits and four bits in it (Lang et al.,
//! *Performance-Optimal Filtering: Bloom Overtakes Cuckoo at High Throughput*, PVLDB 12(5), 2019, section 3; after
//! Putze et al., *Cache-, Hash- and Space-Efficient Bloom Filters*, WEA 2007). The rate of false positives is 0.5 % at
//! 16 bits per key, 0.1 % at 32 bits, and 0.02 % at 64 bits.
//!
//! Measured over 1 Ki to 128 Ki keys, in code for any x86-64, a look-up takes 3 to 5 ns. A look-up in blocks of 256
//! bits (Parquet's) takes 2.6 to 8 ns with a rate of 0.15 %; in an exact hash set 14 to 18 ns; by binary search 9 to 34
//! ns, for keys that take three and a half times the bytes on the wire.
//!
//! Invariant: every hash that the filter was built from is found, and there is at least one word. Example: a false
//! negative would drop a row of the scan that has a match, while a false positive only sends a row that the join then
//! drops.

use crate::{Error, Result, limits};
use std::fmt;
use std::sync::Arc;

/// A Bloom filter of the hashes of join keys. `docs/wire.md` specifies how a value is hashed. Clones share the words.
#[derive(Clone, PartialEq)]
pub struct KeyFilter {
    words: Arc<[u64]>,
    count: u64,
}

impl KeyFilter {
    /// Creates the filter of join keys with these hashes, with `key_bits` bits per key. Returns `None` if there are no
    /// hashes, or if the filter would take more than [`limits::KEY_SET_BYTES_MAX`].
    pub fn new(mut hashes: Vec<u64>, key_bits: usize) -> Option<KeyFilter> {
        hashes.sort_unstable();
        hashes.dedup();
        let mut builder = KeyFilterBuilder::new(hashes.len(), key_bits)?;
        builder.insert(&hashes);
        Some(builder.finish())
    }

    /// Decodes the output of [`KeyFilter::to_bytes`].
    ///
    /// # Errors
    /// `Invalid` if the bytes do not encode a filter; `OverLimit` if there are too many.
    pub fn from_bytes(bytes: &[u8]) -> Result<KeyFilter> {
        let wrong = || Error::invalid("bytes that are not a filter of keys");
        let (words, rest) = bytes.as_chunks::<8>();
        let mut words = words.iter().map(|word| u64::from_le_bytes(*word));
        let count = words.next().ok_or_else(wrong)?;
        if words.len() == 0 || !rest.is_empty() {
            return Err(wrong());
        }
        if words.len() > limits::KEY_SET_BYTES_MAX / 8 {
            return Err(Error::over_limit(format!(
                "a filter of keys may have {} bytes, this one has {}",
                limits::KEY_SET_BYTES_MAX,
                words.len() * 8
            )));
        }
        Ok(KeyFilter { words: words.collect(), count })
    }

    /// Encodes the filter: the number of keys, then the words, each in eight bytes, little-endian.
    pub fn to_bytes(&self) -> Vec<u8> {
        std::iter::once(&self.count).chain(&*self.words).flat_map(|word| word.to_le_bytes()).collect()
    }

    /// Returns whether a key with this hash may be in the filter. `false` is certain; `true` may be a false positive.
    #[inline(always)]
    pub fn contains(&self, hash: u64) -> bool {
        let bits = bits(hash);
        self.words[place(hash, self.words.len())] & bits == bits
    }

    /// Returns the number of keys that the sender stated. It is not verified, so that it may be used for estimates
    /// only.
    pub fn count(&self) -> u64 {
        self.count
    }

    /// Returns the bytes of the filter, which are the same encoded and in memory.
    pub fn bytes(&self) -> usize {
        8 + self.words.len() * 8
    }
}

/// A filter that is being built, from some hashes at a time.
#[derive(Debug)]
pub struct KeyFilterBuilder {
    words: Vec<u64>,
    count: u64,
}

impl KeyFilterBuilder {
    /// Begins an empty filter with room for `keys` keys, `key_bits` bits for each. Returns `None` if that is no room, or
    /// more than [`limits::KEY_SET_BYTES_MAX`].
    pub fn new(keys: usize, key_bits: usize) -> Option<KeyFilterBuilder> {
        let words = keys.checked_mul(key_bits)?.div_ceil(64);
        let fits = (1..=limits::KEY_SET_BYTES_MAX / 8).contains(&words);
        fits.then(|| KeyFilterBuilder { words: vec![0; words], count: 0 })
    }

    /// Adds keys with these hashes. A key that is added again counts again, which [`KeyFilter::count`] shows.
    pub fn insert(&mut self, hashes: &[u64]) {
        let words = self.words.len();
        for hash in hashes {
            self.words[place(*hash, words)] |= bits(*hash);
        }
        self.count += hashes.len() as u64;
    }

    /// Returns the filter of the keys that were added.
    pub fn finish(self) -> KeyFilter {
        KeyFilter { words: self.words.into(), count: self.count }
    }
}

/// Returns the index of the word that a hash selects: its upper half, scaled to the number of words.
#[inline(always)]
fn place(hash: u64, words: usize) -> usize {
    (((hash >> 32) * words as u64) >> 32) as usize
}

/// Returns the four bits that a hash selects in its word: bit numbers of six bits each, from the lowest bits of the
/// hash.
#[inline(always)]
fn bits(hash: u64) -> u64 {
    1 << (hash & 63) | 1 << (hash >> 6 & 63) | 1 << (hash >> 12 & 63) | 1 << (hash >> 18 & 63)
}

/// Shows the number of keys and not the bits, of which there are too many.
impl fmt::Debug for KeyFilter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "KeyFilter({self})")
    }
}

impl fmt::Display for KeyFilter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "a filter of {} keys", self.count)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Generates hashes by SplitMix64.
    fn hashes(seed: u64, count: usize) -> Vec<u64> {
        let hash = |i: u64| {
            let z = (seed + i).wrapping_mul(0x9e37_79b9_7f4a_7c15);
            let z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
            z ^ (z >> 31)
        };
        (0..count as u64).map(hash).collect()
    }

    #[test]
    fn a_filter_has_its_keys_and_few_others() {
        let counts = [1, 2, 63, 1 << 10, 20_000, 128 << 10];
        let rates = [(16, 0.0065), (32, 0.0012), (64, 0.0003)];
        for (count, (bits, most)) in counts.into_iter().flat_map(|count| rates.map(|rate| (count, rate))) {
            let keys = hashes(1, count);
            let filter = KeyFilter::new(keys.clone(), bits).unwrap();
            let again = KeyFilter::from_bytes(&filter.to_bytes()).unwrap();
            assert_eq!(again, filter);
            assert_eq!((again.count(), again.bytes()), (count as u64, 8 + (count * bits).div_ceil(64) * 8));
            assert_eq!(again.to_bytes().len(), again.bytes());
            assert!(keys.iter().all(|key| again.contains(*key)));
            let others = hashes(1 << 40, 200_000);
            let share = others.iter().filter(|other| again.contains(**other)).count() as f64 / 2e5;
            assert!(share < most, "{share} of others of {count} keys, {bits} bits each");
        }
    }

    #[test]
    fn duplicates_count_once() {
        let filter = KeyFilter::new(vec![7; 1000], 16).unwrap();
        assert_eq!((filter.count(), filter.bytes()), (1, 16));
    }

    #[test]
    fn filters_that_are_none_or_too_large_are_refused() {
        assert!(KeyFilter::new(Vec::new(), 16).is_none());
        assert!(KeyFilter::new((0..=limits::KEY_SET_BYTES_MAX as u64 / 2).collect(), 16).is_none());
        for bytes in [0, 7, 8, 15, 17, limits::KEY_SET_BYTES_MAX + 16] {
            assert!(KeyFilter::from_bytes(&vec![1; bytes]).is_err(), "{bytes} bytes");
        }
        let full = KeyFilter::from_bytes(&vec![0xff; limits::KEY_SET_BYTES_MAX + 8]).unwrap();
        assert!(full.contains(0) && full.contains(u64::MAX));
        assert!(!KeyFilter::from_bytes(&[0; 16]).unwrap().contains(0));
    }

    #[test]
    fn a_filter_may_be_built_from_some_keys_at_a_time() {
        let keys = hashes(3, 5000);
        let mut builder = KeyFilterBuilder::new(keys.len(), 16).unwrap();
        keys.chunks(7).for_each(|keys| builder.insert(keys));
        assert!(builder.finish() == KeyFilter::new(keys, 16).unwrap());
        assert!(KeyFilterBuilder::new(0, 16).is_none() && KeyFilterBuilder::new(1 << 20, 16).is_none());
    }
}
