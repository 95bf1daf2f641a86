//! A set of integer keys as a bitmap, small enough to travel with a program: the keys of a join's smaller
//! side, sent to the scan of the other.
//!
//! Invariant: there is at least one key; the lowest bit of the first word and some bit of the last word need
//! not be set, but no key lies outside [`KeySet::min`] and [`KeySet::max`].

use crate::{Error, Result, limits};
use std::fmt;
use std::sync::Arc;

/// Integers, or what is held as integers. Clones share the bitmap.
#[derive(Clone, PartialEq)]
pub struct KeySet {
    /// What the first bit stands for.
    first: i64,
    words: Arc<[u64]>,
    min: i64,
    max: i64,
    count: u64,
}

impl KeySet {
    /// The set of `keys`; `None` when there are none, or they lie too far apart for a bitmap of
    /// [`limits::KEY_SET_BYTES_MAX`].
    pub fn new(keys: &[i64]) -> Option<KeySet> {
        let (first, last) = (*keys.iter().min()?, *keys.iter().max()?);
        let span = usize::try_from(i128::from(last) - i128::from(first)).ok()?;
        if span >= limits::KEY_SET_BYTES_MAX * 8 {
            return None;
        }
        let mut words = vec![0_u64; span / 64 + 1];
        for key in keys {
            let bit = key.wrapping_sub(first) as usize;
            words[bit / 64] |= 1 << (bit % 64);
        }
        KeySet::of_words(first, words).ok()
    }

    /// The keys of both sets; `None` as [`KeySet::new`].
    pub fn union(&self, other: &KeySet) -> Option<KeySet> {
        KeySet::new(&self.iter().chain(other.iter()).collect::<Vec<_>>())
    }

    /// A set from what [`KeySet::to_bytes`] gave.
    ///
    /// # Errors
    /// `Invalid` when the bytes are not those of a set; `OverLimit` when they are too many.
    pub fn from_bytes(bytes: &[u8]) -> Result<KeySet> {
        let wrong = || Error::invalid("bytes that are not a set of keys");
        let (first, words) = bytes.split_first_chunk().ok_or_else(wrong)?;
        if words.len() > limits::KEY_SET_BYTES_MAX {
            return Err(Error::over_limit(format!(
                "a set of keys may have {} bytes, this one has {}",
                limits::KEY_SET_BYTES_MAX,
                words.len()
            )));
        }
        let (words, rest) = words.as_chunks::<8>();
        if !rest.is_empty() {
            return Err(wrong());
        }
        KeySet::of_words(i64::from_le_bytes(*first), words.iter().map(|w| u64::from_le_bytes(*w)).collect())
    }

    /// What the first bit stands for, then the bits in words of eight bytes, both little-endian.
    pub fn to_bytes(&self) -> Vec<u8> {
        let words = self.words.iter().flat_map(|word| word.to_le_bytes());
        self.first.to_le_bytes().into_iter().chain(words).collect()
    }

    fn of_words(first: i64, words: Vec<u64>) -> Result<KeySet> {
        let wrong = || Error::invalid("a set of keys that are none, or no integers");
        let low = words.iter().position(|word| *word != 0).ok_or_else(wrong)?;
        let high = words.iter().rposition(|word| *word != 0).ok_or_else(wrong)?;
        let key = |word: usize, bit: u32| first.checked_add((word * 64) as i64 + i64::from(bit));
        let min = key(low, words[low].trailing_zeros()).ok_or_else(wrong)?;
        let max = key(high, 63 - words[high].leading_zeros()).ok_or_else(wrong)?;
        let count = words.iter().map(|word| u64::from(word.count_ones())).sum();
        Ok(KeySet { first, words: words.into(), min, max, count })
    }

    /// Whether `key` is in the set.
    #[inline]
    pub fn contains(&self, key: i64) -> bool {
        // Below the first key the distance wraps around to one beyond the last word.
        let bit = key.wrapping_sub(self.first) as u64;
        let word = usize::try_from(bit / 64).ok().and_then(|word| self.words.get(word));
        key >= self.first && word.is_some_and(|word| word >> (bit % 64) & 1 == 1)
    }

    /// The least key.
    pub fn min(&self) -> i64 {
        self.min
    }

    /// The greatest key.
    pub fn max(&self) -> i64 {
        self.max
    }

    /// The number of keys.
    pub fn count(&self) -> u64 {
        self.count
    }

    /// Bytes that the set has on its way.
    pub fn bytes(&self) -> usize {
        8 + self.words.len() * 8
    }

    /// The keys in ascending order.
    pub fn iter(&self) -> impl Iterator<Item = i64> + '_ {
        let words = self.words.iter().enumerate();
        words.flat_map(move |(place, word)| {
            let first = self.first.wrapping_add((place * 64) as i64);
            let left = std::iter::successors(Some(*word), |left| Some(left & left.wrapping_sub(1)));
            let left = left.take_while(|left| *left != 0);
            left.map(move |left| first.wrapping_add(i64::from(left.trailing_zeros())))
        })
    }
}

/// Not the bits: there are too many.
impl fmt::Debug for KeySet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "KeySet({self})")
    }
}

impl fmt::Display for KeySet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} keys from {} to {}", self.count, self.min, self.max)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_set_has_its_keys_and_no_others() {
        let lists: [&[i64]; 5] = [
            &[5],
            &[-3, 200, 7, 7],
            &[i64::MIN, i64::MIN + 70],
            &[i64::MAX, i64::MAX - 700],
            &[0, 8_388_607],
        ];
        for keys in lists {
            let set = KeySet::new(keys).unwrap();
            let again = KeySet::from_bytes(&set.to_bytes()).unwrap();
            assert_eq!(again, set);
            let mut sorted = keys.to_vec();
            sorted.sort_unstable();
            sorted.dedup();
            assert_eq!(again.iter().collect::<Vec<_>>(), sorted);
            assert_eq!(
                (again.min(), again.max(), again.count()),
                (sorted[0], *sorted.last().unwrap(), sorted.len() as u64)
            );
            let near =
                keys.iter().flat_map(|k| [k.wrapping_sub(1), *k, k.wrapping_add(1), k.wrapping_add(64)]);
            for key in near.chain([0, i64::MIN, i64::MAX]) {
                assert_eq!(again.contains(key), keys.contains(&key), "{key} of {keys:?}");
            }
        }
        let both = KeySet::new(&[1, 3]).unwrap().union(&KeySet::new(&[-100, 3]).unwrap()).unwrap();
        assert_eq!(both.iter().collect::<Vec<_>>(), [-100, 1, 3]);
    }

    #[test]
    fn sets_that_are_none_or_too_wide_are_refused() {
        assert!(KeySet::new(&[]).is_none());
        assert!(KeySet::new(&[0, 8 << 20]).is_none());
        assert!(KeySet::new(&[i64::MIN, i64::MAX]).is_none());
        for bytes in [&[][..], &[0; 8], &[0; 16], &[1; 17], &[0xff; 24]] {
            let checked = KeySet::from_bytes(bytes).map(|set| set.count());
            assert!(checked.is_err() || bytes == [0xff; 24], "{bytes:?}");
        }
        assert!(KeySet::from_bytes(&[&i64::MAX.to_le_bytes()[..], &[0xff; 8]].concat()).is_err());
        assert!(KeySet::from_bytes(&vec![1; limits::KEY_SET_BYTES_MAX + 16]).is_err());
    }
}
