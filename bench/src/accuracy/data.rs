//! Data sets with known counts: all values equally frequent, or with a skew (thesis, section 4.3.4).
//!
//! The hash of the sketches has a fixed seed; instead, each seed of a data set has different values with the same
//! counts. Invariant: no value belongs to two seeds of a data set, as long as these have fewer than 2^32 / 3 values in
//! total.

use crate::random::Random;
use anyhow::Result;
use arrow::array::{ArrayRef, UInt32Array};
use serde::Serialize;
use std::collections::HashMap;
use std::sync::Arc;

/// Number of values with which sketches are updated at a time: a row group.
const BATCH: u64 = 65536;

/// Values below this limit are counted in an array. With skew nearly all values are below it.
const FREQUENT: u32 = 1 << 20;

/// The distribution of a data set.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Family {
    /// Every value occurs this many times.
    Uniform { times: u64 },
    /// The frequency of a value is about its power of -`skew`.
    Zipf { skew: f64 },
}

/// A data set.
pub struct Data {
    pub family: Family,
    pub distinct: u64,
    pub rows: u64,
    /// The count of each value, unless all are equal.
    counts: Vec<u64>,
}

impl Data {
    pub fn uniform(times: u64, distinct: u64) -> Data {
        Data { family: Family::Uniform { times }, distinct, rows: times * distinct, counts: Vec::new() }
    }

    pub fn zipf(skew: f64, rows: u64) -> Data {
        let mut random = Random(rows);
        let (mut frequent, mut others) = (vec![0; FREQUENT as usize], HashMap::<u32, u64>::new());
        for _ in 0..rows {
            match random.zipf(skew) {
                value @ 0..FREQUENT => frequent[value as usize] += 1,
                value => *others.entry(value).or_default() += 1,
            }
        }
        let counts: Vec<u64> = frequent.into_iter().filter(|n| *n > 0).chain(others.into_values()).collect();
        Data { family: Family::Zipf { skew }, distinct: counts.len() as u64, rows, counts }
    }

    /// Returns the name of the data set in a report.
    pub fn name(&self) -> String {
        match self.family {
            Family::Uniform { times } => format!("{} values, {times}× each", self.distinct),
            Family::Zipf { skew } => format!("{} rows, Zipf {skew}", self.rows),
        }
    }

    /// Returns the count of the value at index `place`.
    pub fn count(&self, place: u64) -> u64 {
        match self.family {
            Family::Uniform { times } if place < self.distinct => times,
            Family::Uniform { .. } => 0,
            Family::Zipf { .. } => self.counts.get(place as usize).copied().unwrap_or(0),
        }
    }

    /// Returns the sum of the squares of the counts.
    pub fn second_moment(&self) -> f64 {
        match self.family {
            Family::Uniform { times } => self.distinct as f64 * (times as f64).powi(2),
            Family::Zipf { .. } => self.counts.iter().map(|count| (*count as f64).powi(2)).sum(),
        }
    }

    /// Calls `take` with the values of a seed, in parts, and with their counts if these are not 1.
    pub fn each(
        &self,
        seed: u64,
        mut take: impl FnMut(&ArrayRef, Option<&[u64]>) -> Result<()>,
    ) -> Result<()> {
        for first in (0..self.distinct).step_by(BATCH as usize) {
            let places = first..(first + BATCH).min(self.distinct);
            let counts: Vec<u64> = match self.family {
                Family::Uniform { times: 1 } => Vec::new(),
                _ => places.clone().map(|place| self.count(place)).collect(),
            };
            let values: ArrayRef = Arc::new(UInt32Array::from_iter_values(places.map(|p| value(seed, p))));
            take(&values, (!counts.is_empty()).then_some(&counts[..]))?;
        }
        Ok(())
    }
}

/// Returns the value at index `place`; indexes from [`Data::distinct`] on give values that do not occur.
pub fn value(seed: u64, place: u64) -> u32 {
    // Multiples of the golden ratio keep the seeds' ranges apart; the rest, the 32-bit finalizer of Murmur3, is a
    // bijection.
    let k = (seed as u32).wrapping_mul(0x9e37_79b9).wrapping_add(place as u32);
    let k = (k ^ (k >> 16)).wrapping_mul(0x85eb_ca6b);
    let k = (k ^ (k >> 13)).wrapping_mul(0xc2b2_ae35);
    k ^ (k >> 16)
}

#[cfg(test)]
mod tests {
    use super::*;
    use arrow::array::AsArray;
    use arrow::datatypes::UInt32Type;
    use std::collections::HashSet;

    #[test]
    fn seeds_have_values_of_their_own_and_the_same_counts() {
        for data in [Data::uniform(1, 70_000), Data::uniform(20, 10), Data::zipf(1.5, 100_000)] {
            let mut all = HashSet::new();
            for seed in 0..20 {
                let (mut rows, mut squares) = (0, 0.0);
                data.each(seed, |values, counts| {
                    let values = values.as_primitive::<UInt32Type>().values();
                    assert!(values.iter().all(|value| all.insert(*value)));
                    let counts = counts.map_or(vec![1; values.len()], <[u64]>::to_vec);
                    rows += counts.iter().sum::<u64>();
                    squares += counts.iter().map(|count| (*count as f64).powi(2)).sum::<f64>();
                    Ok(())
                })
                .expect("values are made");
                assert_eq!((rows, squares), (data.rows, data.second_moment()));
                assert!(!all.contains(&value(seed, data.distinct)) && data.count(data.distinct) == 0);
            }
            assert_eq!(all.len() as u64, 20 * data.distinct);
        }
    }
}
