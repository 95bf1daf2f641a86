//! A set of integer join keys as a bitmap, small enough to be sent with a program: the keys of a join's smaller side,
//! for the scan of the larger side.
//!
//! Invariant: there is at least one key, and all keys are between [`KeySet::min`] and [`KeySet::max`]. The first word
//! of the bitmap may have zero bits below the minimum, and the last word above the maximum.

use crate::{Error, Result, limits};
use std::fmt;
use std::sync::Arc;

/// First byte of an encoded bitmap.
const WORDS: u8 = 0;
/// First byte of a set that is encoded as gaps between keys.
const GAPS: u8 = 1;

/// A set of integers, or of values that are stored as integers. Clones share the bitmap.
#[derive(Clone, PartialEq)]
pub struct KeySet {
    /// The integer of the bitmap's first bit.
    first: i64,
    words: Arc<[u64]>,
    min: i64,
    max: i64,
    count: u64,
    /// Bytes of the gaps between keys in encoded form; if these are no fewer than those of the bitmap, any number that is
    /// no less than those either.
    gap_bytes: usize,
}

impl KeySet {
    /// Creates the set of `keys`. Returns `None` if there are no keys, or if their range is too wide for a bitmap of
    /// [`limits::KEY_SET_BYTES_MAX`].
    pub fn new(keys: &[i64]) -> Option<KeySet> {
        let mut builder = KeySetBuilder::new(*keys.iter().min()?, *keys.iter().max()?)?;
        builder.insert(keys);
        builder.finish()
    }

    /// Returns the union of both sets; `None` if its range is too wide, as for [`KeySet::new`].
    pub fn union(&self, other: &KeySet) -> Option<KeySet> {
        KeySet::new(&self.iter().chain(other.iter()).collect::<Vec<_>>())
    }

    /// Decodes the output of [`KeySet::to_bytes`].
    ///
    /// # Errors
    /// `Invalid` if the bytes do not encode a set; `OverLimit` if the bitmap would be too large.
    pub fn from_bytes(bytes: &[u8]) -> Result<KeySet> {
        let wrong = || Error::invalid("bytes that are not a set of keys");
        let (form, rest) = bytes.split_first().ok_or_else(wrong)?;
        let (first, keys) = rest.split_first_chunk().ok_or_else(wrong)?;
        let first = i64::from_le_bytes(*first);
        let words = match *form {
            WORDS if keys.len() > limits::KEY_SET_BYTES_MAX => return Err(too_wide()),
            WORDS => {
                let (words, rest) = keys.as_chunks::<8>();
                let words = words.iter().map(|word| u64::from_le_bytes(*word)).collect();
                if rest.is_empty() { words } else { return Err(wrong()) }
            }
            GAPS => words_of_gaps(keys)?,
            _ => return Err(wrong()),
        };
        KeySet::of_words(first, words)
    }

    /// Encodes the set in the shorter of two forms, little-endian. Form 0: the integer of the first bit, and the bitmap
    /// in words of eight bytes. Form 1: the first key, and for each further key the distance from the key before it as
    /// LEB128 (groups of seven bits, the lowest first; all but the last have the highest bit set).
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(self.bytes());
        if self.gap_bytes < self.bitmap_bytes() {
            out.push(GAPS);
            out.extend_from_slice(&self.min.to_le_bytes());
            self.gaps().for_each(|gap| push_gap(gap, &mut out));
        } else {
            out.push(WORDS);
            out.extend_from_slice(&self.first.to_le_bytes());
            out.extend(self.words.iter().flat_map(|word| word.to_le_bytes()));
        }
        out
    }

    /// Returns the distance of each key from the key before it, without the first key.
    fn gaps(&self) -> impl Iterator<Item = u64> + '_ {
        self.iter().zip(self.iter().skip(1)).map(|(key, next)| next.wrapping_sub(key) as u64)
    }

    fn of_words(first: i64, words: Vec<u64>) -> Result<KeySet> {
        let wrong = || Error::invalid("a set of keys that are none, or no integers");
        let low = words.iter().position(|word| *word != 0).ok_or_else(wrong)?;
        let high = words.iter().rposition(|word| *word != 0).ok_or_else(wrong)?;
        let key = |word: usize, bit: u32| first.checked_add((word * 64) as i64 + i64::from(bit));
        let min = key(low, words[low].trailing_zeros()).ok_or_else(wrong)?;
        let max = key(high, 63 - words[high].leading_zeros()).ok_or_else(wrong)?;
        let count = words.iter().map(|word| u64::from(word.count_ones())).sum();
        let mut set = KeySet { first, words: words.into(), min, max, count, gap_bytes: 0 };
        // Every gap takes a byte at least, so that those of many keys need not be measured.
        let least = usize::try_from(count - 1).unwrap_or(usize::MAX);
        // Larger sets are not sent.
        let is_sent = set.bitmap_bytes() <= limits::KEY_SET_BYTES_MAX;
        set.gap_bytes = match is_sent && least < set.bitmap_bytes() {
            true => set.gaps().map(gap_length).sum(),
            false => least.max(set.bitmap_bytes()),
        };
        Ok(set)
    }

    /// Returns the integer of the first bit, and the bitmap in words of 64 bits.
    pub fn bitmap(&self) -> (i64, &[u64]) {
        (self.first, &self.words)
    }

    /// Returns whether `key` is in the set.
    #[inline]
    pub fn contains(&self, key: i64) -> bool {
        // Below the first key the distance wraps around to one beyond the last word.
        let bit = key.wrapping_sub(self.first) as u64;
        let word = usize::try_from(bit / 64).ok().and_then(|word| self.words.get(word));
        key >= self.first && word.is_some_and(|word| word >> (bit % 64) & 1 == 1)
    }

    /// Returns the least key.
    pub fn min(&self) -> i64 {
        self.min
    }

    /// Returns the greatest key.
    pub fn max(&self) -> i64 {
        self.max
    }

    /// Returns the number of keys.
    pub fn count(&self) -> u64 {
        self.count
    }

    /// Returns the bytes of the encoded set.
    pub fn bytes(&self) -> usize {
        9 + self.gap_bytes.min(self.bitmap_bytes())
    }

    /// Returns the bytes of the set in memory.
    pub fn bitmap_bytes(&self) -> usize {
        self.words.len() * 8
    }

    /// Returns the runs of consecutive keys from `min` to `max`, each as its first and last key; `None` if there are more
    /// than `most`, or the keys are spread over more bits than a set that is sent may have. Takes time in proportion to the
    /// words of the bitmap, however many keys there are.
    pub fn runs(&self, min: i64, max: i64, most: usize) -> Option<Vec<(i64, i64)>> {
        let (low, high) = (min.max(self.min), max.min(self.max));
        let mut runs = Vec::new();
        let bit_of = |key: i64| key.wrapping_sub(self.first) as usize;
        let key_of = |bit: usize| self.first.wrapping_add(bit as i64);
        let mut from = (low <= high).then(|| bit_of(low));
        if from.is_some_and(|from| bit_of(high) - from > 8 * limits::KEY_SET_BYTES_MAX) {
            return None;
        }
        while let Some(first) =
            from.and_then(|from| self.next_bit(from, true)).filter(|bit| key_of(*bit) <= high)
        {
            let end = self.next_bit(first, false);
            let last = end.map_or(high, |end| key_of(end - 1).min(high));
            if runs.len() == most {
                return None;
            }
            runs.push((key_of(first), last));
            from = end;
        }
        Some(runs)
    }

    /// Returns the first bit of the bitmap from `from` on that is set, or that is not set.
    fn next_bit(&self, from: usize, is_set: bool) -> Option<usize> {
        let wanted = |word: &u64| if is_set { *word } else { !*word };
        let first = wanted(self.words.get(from / 64)?) & (u64::MAX << (from % 64));
        let rest = self.words[from / 64 + 1..].iter().map(wanted);
        let mut words = std::iter::once(first).chain(rest).zip(from / 64..);
        let (word, place) = words.find(|(word, _)| *word != 0)?;
        Some(place * 64 + word.trailing_zeros() as usize)
    }

    /// Returns the keys in ascending order.
    pub fn iter(&self) -> impl Iterator<Item = i64> + '_ {
        self.words.iter().enumerate().flat_map(move |(place, word)| {
            let first = self.first.wrapping_add((place * 64) as i64);
            let left = std::iter::successors(Some(*word), |left| Some(left & left.wrapping_sub(1)));
            let left = left.take_while(|left| *left != 0);
            left.map(move |left| first.wrapping_add(i64::from(left.trailing_zeros())))
        })
    }
}

/// A set that is being built, from some keys at a time.
#[derive(Debug)]
pub struct KeySetBuilder {
    first: i64,
    last: i64,
    words: Vec<u64>,
}

impl KeySetBuilder {
    /// Begins an empty set for keys from `first` to `last`. Returns `None` if that range is empty, or too wide for a
    /// bitmap of [`limits::KEY_SET_BYTES_MAX`].
    pub fn new(first: i64, last: i64) -> Option<KeySetBuilder> {
        KeySetBuilder::within(first, last, limits::KEY_SET_BYTES_MAX)
    }

    /// Begins a set as [`KeySetBuilder::new`] does, with a bitmap of at most `bytes_max` bytes.
    pub fn within(first: i64, last: i64, bytes_max: usize) -> Option<KeySetBuilder> {
        let span = usize::try_from(i128::from(last) - i128::from(first)).ok()?;
        let fits = span / 8 < bytes_max;
        fits.then(|| KeySetBuilder { first, last, words: vec![0; span / 64 + 1] })
    }

    /// Returns the bytes of the bitmap.
    pub fn bytes(&self) -> usize {
        size_of_val(&*self.words)
    }

    /// Adds `keys`.
    ///
    /// # Panics
    /// When one of them is outside the range of the set.
    pub fn insert(&mut self, keys: &[i64]) {
        for key in keys {
            assert!((self.first..=self.last).contains(key), "a key outside the range of its set");
            let bit = key.wrapping_sub(self.first) as usize;
            self.words[bit / 64] |= 1 << (bit % 64);
        }
    }

    /// Returns the set of the keys that were added; `None` if there are none.
    pub fn finish(self) -> Option<KeySet> {
        KeySet::of_words(self.first, self.words).ok()
    }
}

/// Decodes gaps between keys; returns the bitmap, whose first bit is the first key.
fn words_of_gaps(bytes: &[u8]) -> Result<Vec<u64>> {
    let wrong = || Error::invalid("gaps between keys that are none");
    let mut words = vec![1_u64];
    let (mut key, mut gap, mut shift) = (0_u64, 0_u64, 0);
    for byte in bytes {
        gap |= u64::from(byte & 0x7f) << shift;
        shift += 7;
        if byte & 0x80 != 0 {
            // Four groups hold every gap that a bitmap may have.
            if shift >= 28 {
                return Err(too_wide());
            }
            continue;
        }
        key += gap;
        let word = usize::try_from(key / 64).unwrap_or(usize::MAX);
        if gap == 0 {
            return Err(wrong());
        }
        if word >= limits::KEY_SET_BYTES_MAX / 8 {
            return Err(too_wide());
        }
        words.resize(words.len().max(word + 1), 0);
        words[word] |= 1 << (key % 64);
        (gap, shift) = (0, 0);
    }
    if shift == 0 { Ok(words) } else { Err(wrong()) }
}

fn push_gap(mut gap: u64, out: &mut Vec<u8>) {
    while gap >= 0x80 {
        out.push(gap as u8 | 0x80);
        gap >>= 7;
    }
    out.push(gap as u8);
}

fn gap_length(gap: u64) -> usize {
    (u64::BITS - gap.leading_zeros()).div_ceil(7) as usize
}

fn too_wide() -> Error {
    Error::over_limit(format!(
        "a set of keys may have a bitmap of {} bytes, this one needs more",
        limits::KEY_SET_BYTES_MAX
    ))
}

/// Shows the number and the range of the keys and not the bits, of which there are too many.
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
            assert_eq!(again.to_bytes(), set.to_bytes());
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
    fn runs_are_those_of_the_keys() {
        let dense: Vec<i64> = (-300..700).collect();
        let gaps: Vec<i64> = dense.iter().copied().filter(|key| key % 130 != 0 && key % 64 != 63).collect();
        let ends = [i64::MIN, i64::MIN + 1, i64::MIN + 64];
        let last = [i64::MAX - 128, i64::MAX - 1, i64::MAX];
        for keys in [&dense[..], &gaps, &ends, &last, &[5]] {
            let set = KeySet::new(keys).unwrap();
            let (least, greatest) = (keys[0], keys[keys.len() - 1]);
            for (min, max) in [
                (i64::MIN, i64::MAX),
                (least, greatest),
                (least.saturating_add(63), greatest.saturating_sub(65)),
                (-64, 63),
                (0, 0),
                (greatest, least),
            ] {
                let mut runs: Vec<(i64, i64)> = Vec::new();
                for key in keys.iter().copied().filter(|key| (min..=max).contains(key)) {
                    match runs.last_mut() {
                        Some((_, last)) if *last + 1 == key => *last = key,
                        _ => runs.push((key, key)),
                    }
                }
                assert_eq!(set.runs(min, max, runs.len()).as_ref(), Some(&runs), "{min} {max} {keys:?}");
                assert!(runs.is_empty() || set.runs(min, max, runs.len() - 1).is_none());
            }
        }
    }

    #[test]
    fn a_set_may_be_built_from_some_keys_at_a_time() {
        let keys: Vec<i64> = (0..1000).map(|key| key * key - 70).collect();
        let mut builder = KeySetBuilder::new(-100, 1_000_000).unwrap();
        keys.chunks(7).for_each(|keys| builder.insert(keys));
        let (built, at_once) = (builder.finish().unwrap(), KeySet::new(&keys).unwrap());
        assert!(built.iter().eq(at_once.iter()));
        assert_eq!((built.min(), built.max(), built.bytes()), (-70, 997_931, at_once.bytes()));
        assert!(KeySetBuilder::new(5, 4).is_none() && KeySetBuilder::new(0, 8 << 20).is_none());
        assert!(KeySetBuilder::new(0, 5).unwrap().finish().is_none(), "no keys");
    }

    #[test]
    fn sets_that_are_none_or_too_wide_are_refused() {
        assert!(KeySet::new(&[]).is_none());
        assert!(KeySet::new(&[0, 8 << 20]).is_none());
        assert!(KeySet::new(&[i64::MIN, i64::MAX]).is_none());
        for bytes in [&[][..], &[0; 8], &[0; 9], &[0; 17], &[0; 18], &[2; 17], &[1; 8]] {
            assert!(KeySet::from_bytes(bytes).is_err(), "{bytes:?}");
        }
        let with = |form: u8, first: i64, keys: &[u8]| {
            KeySet::from_bytes(&[&[form][..], &first.to_le_bytes(), keys].concat())
        };
        assert!(with(WORDS, i64::MAX, &[0xff; 8]).is_err(), "keys beyond 64 bits");
        assert!(with(WORDS, 0, &vec![1; limits::KEY_SET_BYTES_MAX + 8]).is_err());
        assert_eq!(with(GAPS, 5, &[]).unwrap().iter().collect::<Vec<_>>(), [5]);
        assert_eq!(with(GAPS, -1, &[1, 0x82, 1]).unwrap().iter().collect::<Vec<_>>(), [-1, 0, 130]);
        for gaps in [&[0][..], &[0x80], &[0xff; 5], &[0xff, 0xff, 0xff, 0x7f], &[1, 0]] {
            assert!(with(GAPS, 0, gaps).is_err(), "{gaps:?}");
        }
        assert!(with(GAPS, i64::MAX, &[1]).is_err(), "keys beyond 64 bits");
    }

    #[test]
    fn few_keys_far_apart_travel_as_gaps_and_many_as_bits() {
        let few = KeySet::new(&(0..1000).map(|key| key * 5000).collect::<Vec<_>>()).unwrap();
        assert_eq!((few.bytes(), few.to_bytes().len()), (9 + 999 * 2, 9 + 999 * 2));
        let many = KeySet::new(&(0..1000).map(|key| key * 3).collect::<Vec<_>>()).unwrap();
        assert_eq!((many.bytes(), many.to_bytes().len()), (9 + 47 * 8, 9 + 47 * 8));
        assert_eq!(KeySet::from_bytes(&few.to_bytes()).unwrap().iter().count(), 1000);
    }
}
