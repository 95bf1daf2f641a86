//! The keys and values of the load generator, and the distributions by which it chooses keys.
//!
//! Invariant: a value contains its key and a version, and these determine all its other bytes. Every reply can
//! therefore be checked byte by byte, regardless of which client wrote the value, and a value of another key is
//! detected.

use crate::random::{Random, hash};
use anyhow::{Result, bail, ensure};
use serde::{Deserialize, Serialize};

/// Minimum and maximum number of bytes per key: eight digits of its number, and up to eight bytes more for its prefix
/// and random letters, so that lengths differ.
const KEY_BYTES_MIN: usize = 8;
const KEY_BYTES_MAX: usize = 16;

/// Number of hexadecimal digits of a version, and of bytes of a mark such as `@07@`, which a hundredth of all values
/// have.
const VERSION_BYTES: usize = 8;
const MARK_BYTES: usize = 4;

/// Number of places at which the filler of a value may begin in the random text, and maximum number of its bytes.
const TEXT_BYTES: usize = 64 << 10;

/// Exponent of the Zipf distributions, as in YCSB.
const ZIPF: f64 = 0.99;

/// A generator of keys and values.
pub struct Data {
    /// Random letters, from which the fillers of keys and values are taken.
    text: Vec<u8>,
    /// Number of key prefixes (`s0:`, `s1:` and so on); 1 for keys without a prefix.
    prefixes: u64,
    value_bytes: usize,
}

impl Data {
    /// Creates a generator of values of `value_bytes` bytes, and of keys that are distributed among `prefixes`
    /// prefixes.
    ///
    /// # Errors
    /// Fails if values are too short to be checked, or too long.
    pub fn new(value_bytes: usize, prefixes: u64) -> Result<Data> {
        let least = KEY_BYTES_MAX + VERSION_BYTES + MARK_BYTES;
        ensure!((least..TEXT_BYTES).contains(&value_bytes), "values have {least} to {TEXT_BYTES} bytes");
        ensure!((1..10).contains(&prefixes), "there are one to nine prefixes");
        let mut random = Random(0x7e87);
        let text = (0..2 * TEXT_BYTES).map(|_| b'a' + (random.next() % 26) as u8).collect();
        Ok(Data { text, prefixes, value_bytes })
    }

    /// Appends the bytes of the key `number` to `out`.
    pub fn key(&self, number: u64, out: &mut Vec<u8>) {
        let start = out.len();
        if self.prefixes > 1 {
            out.extend([b's', b'0' + (number % self.prefixes) as u8, b':']);
        }
        let spare = KEY_BYTES_MAX - KEY_BYTES_MIN - (out.len() - start);
        let mut rest = number;
        let mut digits = [b'0'; KEY_BYTES_MIN];
        for digit in digits.iter_mut().rev() {
            *digit += (rest % 10) as u8;
            rest /= 10;
        }
        out.extend(digits);
        let hash = hash(number);
        let more = (hash % (spare as u64 + 1)) as usize;
        let from = (hash >> 32) as usize % TEXT_BYTES;
        out.extend(&self.text[from..from + more]);
    }

    /// Appends a version of the value of the key `number` to `out`; `key` has the bytes of the key.
    pub fn value(&self, number: u64, key: &[u8], version: u32, out: &mut Vec<u8>) {
        let start = out.len();
        out.extend(key);
        out.extend(
            (0..VERSION_BYTES).map(|digit| b"0123456789abcdef"[(version >> (28 - 4 * digit)) as usize & 15]),
        );
        let class = (number % 100) as u8;
        out.extend([b'@', b'0' + class / 10, b'0' + class % 10, b'@']);
        let rest = self.value_bytes - (out.len() - start);
        out.extend(self.filler(number, version, rest));
    }

    /// Returns whether `value` is a version of the value of the key `number`; `key` has the bytes of the key.
    pub fn is_value(&self, number: u64, key: &[u8], value: &[u8]) -> bool {
        if value.len() != self.value_bytes || !value.starts_with(key) {
            return false;
        }
        let (version, rest) = value[key.len()..].split_at(VERSION_BYTES);
        let version = std::str::from_utf8(version).ok().and_then(|text| u32::from_str_radix(text, 16).ok());
        let filler = &rest[MARK_BYTES..];
        version.is_some_and(|version| filler == self.filler(number, version, filler.len()))
    }

    /// Returns the number of bytes per value.
    pub fn value_bytes(&self) -> usize {
        self.value_bytes
    }

    /// Returns the bytes at the end of a value.
    fn filler(&self, number: u64, version: u32, bytes: usize) -> &[u8] {
        let from = hash(number ^ (u64::from(version) << 32)) as usize % TEXT_BYTES;
        &self.text[from..from + bytes]
    }
}

/// The distribution by which keys are chosen.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum Skew {
    /// All keys alike.
    Uniform,
    /// Zipf's law with the exponent of YCSB; ranks are scattered over the numbers of keys.
    Zipf,
    /// Zipf's law by age: the key that was inserted last is chosen most often.
    Latest,
    /// At most this number of keys alike, and no others.
    Hot(u64),
}

impl TryFrom<String> for Skew {
    type Error = anyhow::Error;

    fn try_from(text: String) -> Result<Skew> {
        Ok(match (text.as_str(), text.strip_prefix("hot ")) {
            ("uniform", _) => Skew::Uniform,
            ("zipf", _) => Skew::Zipf,
            ("latest", _) => Skew::Latest,
            (_, Some(count)) => Skew::Hot(count.parse()?),
            _ => bail!("{text:?} is no distribution: uniform, zipf, latest or \"hot N\""),
        })
    }
}

impl From<Skew> for String {
    fn from(skew: Skew) -> String {
        match skew {
            Skew::Uniform => "uniform".to_string(),
            Skew::Zipf => "zipf".to_string(),
            Skew::Latest => "latest".to_string(),
            Skew::Hot(count) => format!("hot {count}"),
        }
    }
}

/// Chooses keys at random.
pub struct Draw {
    skew: Skew,
    zipf: Option<Zipf>,
}

impl Draw {
    /// Prepares the choice among `keys` keys, which takes time in proportion to their number for Zipf's law.
    pub fn new(skew: Skew, keys: u64) -> Draw {
        let zipf = matches!(skew, Skew::Zipf | Skew::Latest).then(|| Zipf::new(keys));
        Draw { skew, zipf }
    }

    /// Returns the number of one of the `keys` keys that exist now.
    pub fn next(&self, random: &mut Random, keys: u64) -> u64 {
        let drawn = random.next();
        match (self.skew, &self.zipf) {
            (Skew::Hot(count), _) => hash(drawn % count) % keys,
            (Skew::Zipf, Some(zipf)) => hash(zipf.rank(drawn)) % keys,
            (Skew::Latest, Some(zipf)) => keys - 1 - zipf.rank(drawn).min(keys - 1),
            _ => drawn % keys,
        }
    }
}

/// Random ranks that follow Zipf's law ("Quickly Generating Billion-Record Synthetic Databases", Gray et al. 1994, as
/// in YCSB).
struct Zipf {
    count: f64,
    sum: f64,
    alpha: f64,
    eta: f64,
}

impl Zipf {
    fn new(count: u64) -> Zipf {
        let sum_of = |count: u64| (1..=count).map(|rank| (rank as f64).powf(-ZIPF)).sum::<f64>();
        let (sum, count) = (sum_of(count), count as f64);
        let eta = (1.0 - (2.0 / count).powf(1.0 - ZIPF)) / (1.0 - sum_of(2) / sum);
        Zipf { count, sum, alpha: 1.0 / (1.0 - ZIPF), eta }
    }

    /// Maps 64 random bits to a rank from 0, the most frequent one.
    fn rank(&self, random: u64) -> u64 {
        let part = (random >> 11) as f64 / (1_u64 << 53) as f64;
        let scaled = part * self.sum;
        match scaled {
            _ if scaled < 1.0 => 0,
            _ if scaled < 1.0 + 0.5_f64.powf(ZIPF) => 1,
            _ => (self.count * (self.eta * part - self.eta + 1.0).powf(self.alpha)) as u64,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Data, Draw, Skew};
    use crate::random::Random;
    use std::collections::{BTreeSet, HashMap};

    #[test]
    fn keys_differ_and_values_are_those_of_their_keys() {
        for prefixes in [1, 7] {
            let data = Data::new(64, prefixes).expect("it is long enough");
            let keys: BTreeSet<Vec<u8>> = (0..2000).map(|number| key(&data, number)).collect();
            assert_eq!(keys.len(), 2000);
            assert!(keys.iter().all(|key| (8..=16).contains(&key.len())));
            let mut value = Vec::new();
            data.value(7, &key(&data, 7), 0xdead_beef, &mut value);
            assert_eq!(value.len(), 64);
            assert!(data.is_value(7, &key(&data, 7), &value));
            assert!(!data.is_value(8, &key(&data, 8), &value));
            *value.last_mut().expect("it has bytes") ^= 1;
            assert!(!data.is_value(7, &key(&data, 7), &value));
        }
    }

    #[test]
    fn draws_are_skewed_as_they_say() {
        let drawn = |skew| {
            let (draw, mut random, mut counts) = (Draw::new(skew, 10_000), Random(1), HashMap::new());
            (0..100_000).for_each(|_| *counts.entry(draw.next(&mut random, 10_000)).or_insert(0) += 1);
            assert!(counts.keys().all(|key| *key < 10_000));
            (counts.len(), counts.values().copied().max().unwrap_or(0))
        };
        let (uniform, hot, zipf) = (drawn(Skew::Uniform), drawn(Skew::Hot(128)), drawn(Skew::Zipf));
        assert!(uniform.0 > 9_900 && uniform.1 < 60, "{uniform:?}");
        assert!((100..=128).contains(&hot.0), "{hot:?}");
        // The first of 10,000 ranks has 1 / H(10,000, 0.99) = 9.7 %.
        assert!((9_000..11_000).contains(&zipf.1), "{zipf:?}");
        let latest = Draw::new(Skew::Latest, 10_000);
        let mut random = Random(1);
        let of_last = (0..1_000).filter(|_| latest.next(&mut random, 20_000) == 19_999).count();
        assert!((60..150).contains(&of_last), "{of_last}");
    }

    fn key(data: &Data, number: u64) -> Vec<u8> {
        let mut key = Vec::new();
        data.key(number, &mut key);
        key
    }
}
