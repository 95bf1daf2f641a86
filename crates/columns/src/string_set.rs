//! Growing set of strings whose copies share their common parts.
//!
//! The strings are in layers, like the levels of a log-structured merge tree. Each addition is a new layer, and layers
//! are merged so that each has at least twice as many strings as the next. A copy shares the layers of the original.
//! The amortized cost of adding is proportional to the number of new strings.
//!
//! Invariant: no string is in two layers.

use std::collections::HashSet;
use std::sync::Arc;

/// Bytes counted for a string in addition to its own bytes: an entry in a half-full hash table, and its reference
/// counts.
const STRING_BYTES: usize = 2 * size_of::<Arc<[u8]>>() + 16;

/// A set of byte strings.
#[derive(Clone, Debug, Default)]
pub(crate) struct StringSet {
    /// Layers, the largest first.
    layers: Vec<Arc<HashSet<Arc<[u8]>>>>,
    count: usize,
    bytes: usize,
}

impl StringSet {
    /// Returns the number of strings.
    pub fn len(&self) -> usize {
        self.count
    }

    /// Returns the bytes that the strings take. Strings that are shared with other sets count in full.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Returns whether `value` is in the set.
    pub fn contains(&self, value: &[u8]) -> bool {
        self.layers.iter().any(|layer| layer.contains(value))
    }

    /// Adds those of `values` that are new. Returns false if there are then more than `count_max` strings, or they take
    /// more than `bytes_max` bytes; the set must not be used after that.
    #[must_use]
    pub fn extend(&mut self, values: &[&[u8]], count_max: usize, bytes_max: usize) -> bool {
        let mut fresh: HashSet<Arc<[u8]>> = HashSet::new();
        for value in values {
            if self.contains(value) || fresh.contains(*value) {
                continue;
            }
            self.count += 1;
            self.bytes += STRING_BYTES + value.len();
            if self.count > count_max || self.bytes > bytes_max {
                return false;
            }
            fresh.insert(Arc::from(*value));
        }
        if !fresh.is_empty() {
            self.layers.push(Arc::new(fresh));
            self.merge();
        }
        true
    }

    /// Merges the last layers until each has at least twice as many strings as the next.
    fn merge(&mut self) {
        while let [.., before, last] = &self.layers[..]
            && before.len() < 2 * last.len()
        {
            let (last, before) = (self.layers.pop(), self.layers.pop());
            let mut merged = before.map(Arc::unwrap_or_clone).unwrap_or_default();
            merged.extend(last.iter().flat_map(|last| last.iter().cloned()));
            self.layers.push(Arc::new(merged));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        #[test]
        fn it_is_a_set_and_copies_do_not_see_what_is_added_to_others(
            additions in prop::collection::vec(prop::collection::vec(0..400_u32, 0..40), 0..40),
        ) {
            let (mut set, mut naive) = (StringSet::default(), std::collections::BTreeSet::new());
            let mut copies = Vec::new();
            for values in &additions {
                copies.push((set.clone(), naive.len()));
                let texts: Vec<String> = values.iter().map(u32::to_string).collect();
                let texts: Vec<&[u8]> = texts.iter().map(String::as_bytes).collect();
                prop_assert!(set.extend(&texts, 400, 1 << 20));
                naive.extend(values.iter().copied());
                prop_assert_eq!(set.len(), naive.len());
                let halves = set.layers.windows(2).all(|pair| pair[0].len() >= 2 * pair[1].len());
                prop_assert!(halves && set.layers.iter().map(|layer| layer.len()).sum::<usize>() == set.len());
            }
            for value in 0..400 {
                prop_assert_eq!(set.contains(value.to_string().as_bytes()), naive.contains(&value));
            }
            prop_assert!(copies.iter().all(|(copy, count)| copy.len() == *count));
        }
    }

    #[test]
    fn a_copy_that_grows_a_little_shares_what_was_there() {
        let texts: Vec<String> = (0..10_000).map(|i| format!("a string that is the {i}th")).collect();
        let texts: Vec<&[u8]> = texts.iter().map(String::as_bytes).collect();
        let mut base = StringSet::default();
        assert!(base.extend(&texts[..9_000], 1 << 20, 1 << 30));
        for end in 9_001..9_200 {
            let mut grown = base.clone();
            assert!(grown.extend(&texts[..end], 1 << 20, 1 << 30));
            assert!(Arc::ptr_eq(&base.layers[0], &grown.layers[0]), "the strings were copied");
            assert_eq!(grown.len(), end);
            base = grown;
        }
    }

    #[test]
    fn more_strings_or_bytes_than_may_be_are_refused() {
        let long = vec![b'x'; 1 << 20];
        assert!(StringSet::default().extend(&[&long, b"x", b"x"], 2, 2 << 20));
        assert!(!StringSet::default().extend(&[&long, b"x", b"y"], 2, 2 << 20));
        assert!(!StringSet::default().extend(&[&long, b"x"], 2, 1 << 20));
    }
}
