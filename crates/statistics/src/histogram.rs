//! Histogram of a numeric column: counts of values in bins of equal width.
//!
//! Bins are dyadic: their width is a power of two, 2^k, and their edges are multiples of the width. `k` is the least
//! one for which the values need no more than [`BINS_MAX`] bins. When the range of the values grows, neighbouring bins
//! are merged.
//!
//! Invariant: the state depends only on the values, not on their order or on how they were divided. Reason: `k` follows
//! from the least and the greatest value, and a bin of width 2^(k+1) consists of exactly two bins of width 2^k.

mod blocks;
mod bytes;
mod fill;
#[cfg(test)]
mod tests;

use arrow_array::Array;
use arrow_schema::DataType;
use farpool_model::{Error, Result, schema};

/// Maximum number of bins. Reason: a chart that merges eight of them into one is still smooth, and the counts take only
/// 4 KiB.
pub const BINS_MAX: usize = 512;

/// Counts of the values of one column in bins of equal width. Integers, decimals (unscaled), dates and
/// timestamps are counted as whole numbers; NaN and infinities are counted separately.
#[derive(Clone, Debug, PartialEq)]
pub struct Histogram {
    filled: Filled,
    /// Number of values that are NaN or infinite.
    outside: u64,
}

#[derive(Clone, Debug, PartialEq)]
enum Filled {
    Whole(Bins<i128>),
    Real(Bins<f64>),
}

/// Bins for one kind of number: whole numbers or floats.
#[derive(Clone, Debug, PartialEq)]
struct Bins<T> {
    /// Least and greatest value; `None` before the first value.
    range: Option<(T, T)>,
    /// Binary logarithm of the width of a bin.
    k: i32,
    /// Number of the first bin; its lower edge is `first · 2^k`.
    first: i128,
    /// Number of values in each bin, from the bin of the least value to the bin of the greatest.
    counts: Vec<u64>,
}

/// One bin: the number of values in a range.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Bin {
    /// Lower edge, inclusive.
    pub low: f64,
    /// Upper edge, exclusive.
    pub high: f64,
    /// Number of values in the bin.
    pub count: u64,
}

/// Number type of the bins.
trait Number: Copy + PartialOrd {
    /// Returns the least `k` that the type supports for values from `low` to `high`, whatever the number of bins.
    fn k_least(low: Self, high: Self) -> i32;
    /// Returns the number of the bin of width 2^k in which the value lies.
    fn bin(self, k: i32) -> i128;
}

impl Histogram {
    /// Creates an empty histogram for values of `data_type`; `None` for types without a distance between
    /// values.
    pub fn new(data_type: &DataType) -> Option<Histogram> {
        let filled = match data_type {
            DataType::Float32 | DataType::Float64 => Filled::Real(Bins::empty()),
            other if schema::is_integer_like(other) => Filled::Whole(Bins::empty()),
            _ => return None,
        };
        Some(Histogram { filled, outside: 0 })
    }

    /// Adds the values of an array. NULLs are ignored.
    ///
    /// # Errors
    /// `Invalid` for an array of another kind.
    pub fn update(&mut self, values: &dyn Array) -> Result<()> {
        fill::fill(self, values, None)
    }

    /// Adds each of `values` as many times as its count in `counts`.
    ///
    /// # Errors
    /// As [`Histogram::update`].
    pub fn update_counted(&mut self, values: &dyn Array, counts: &[u64]) -> Result<()> {
        fill::fill(self, values, Some(counts))
    }

    /// Merges the counts of another histogram into this one.
    ///
    /// # Errors
    /// `Invalid` when one counts whole numbers and the other does not.
    pub fn merge(&mut self, other: &Histogram) -> Result<()> {
        match (&mut self.filled, &other.filled) {
            (Filled::Whole(bins), Filled::Whole(more)) => bins.merge(more),
            (Filled::Real(bins), Filled::Real(more)) => bins.merge(more),
            _ => return Err(Error::invalid("histograms of different kinds of numbers cannot be added up")),
        }
        self.outside = self.outside.saturating_add(other.outside);
        Ok(())
    }

    /// Returns the number of values in all bins.
    pub fn count(&self) -> u64 {
        self.counts().iter().fold(0, |sum, count| sum.saturating_add(*count))
    }

    /// Returns the number of NaNs and infinities, which are in no bin.
    pub fn outside(&self) -> u64 {
        self.outside
    }

    /// Returns the bytes of memory that the histogram takes.
    pub fn bytes_held(&self) -> usize {
        size_of::<Self>() + size_of_val(self.counts())
    }

    /// Returns the bins, after merging them to at most `most` bins of equal width; `most` must be at least 1.
    pub fn bins(&self, most: usize) -> Vec<Bin> {
        let (k, first, counts) = match &self.filled {
            Filled::Whole(bins) => coarser(bins, most),
            Filled::Real(bins) => coarser(bins, most),
        };
        let edge = |place: usize| (first + place as i128) as f64 * exp2(k);
        let bin =
            |(place, count): (usize, &u64)| Bin { low: edge(place), high: edge(place + 1), count: *count };
        counts.iter().enumerate().map(bin).collect()
    }

    /// Encodes the state for [`Histogram::from_bytes`].
    pub fn to_bytes(&self) -> Vec<u8> {
        bytes::write(self)
    }

    /// Decodes a state that [`Histogram::to_bytes`] encoded.
    ///
    /// # Errors
    /// `Corrupt` for any other bytes.
    pub fn from_bytes(bytes: &[u8]) -> Result<Histogram> {
        bytes::read(bytes)
    }

    /// Returns whether the histogram can count values of `data_type`.
    pub fn is_for(&self, data_type: &DataType) -> bool {
        let other = Histogram::new(data_type).map(|empty| matches!(empty.filled, Filled::Real(_)));
        other == Some(matches!(self.filled, Filled::Real(_)))
    }

    fn counts(&self) -> &[u64] {
        match &self.filled {
            Filled::Whole(bins) => &bins.counts,
            Filled::Real(bins) => &bins.counts,
        }
    }
}

impl<T: Number> Bins<T> {
    fn empty() -> Self {
        Bins { range: None, k: 0, first: 0, counts: Vec::new() }
    }

    /// Creates empty bins for values from `low` to `high`.
    fn within(low: T, high: T) -> Self {
        let mut k = T::k_least(low, high);
        // The subtraction is checked, because for the widest ranges the number of bins would overflow.
        while high.bin(k).checked_sub(low.bin(k)).is_none_or(|bins| bins >= BINS_MAX as i128) {
            k += 1;
        }
        let (first, last) = (low.bin(k), high.bin(k));
        Bins { range: Some((low, high)), k, first, counts: vec![0; (last - first) as usize + 1] }
    }

    /// Extends the bins to values from `low` to `high`. Neighbouring bins are merged if there would be too many.
    fn cover(&mut self, low: T, high: T) {
        let (least, greatest) = match self.range {
            Some((least, greatest)) if least <= low && high <= greatest => return,
            Some((least, greatest)) => {
                (if low < least { low } else { least }, if high > greatest { high } else { greatest })
            }
            None => (low, high),
        };
        let mut wider = Bins::within(least, greatest);
        wider.add(self);
        *self = wider;
    }

    /// Adds the counts of `finer`, whose bins must be no wider than these and must lie within their range.
    fn add(&mut self, finer: &Bins<T>) {
        let shift = (self.k - finer.k).clamp(0, 127);
        for (place, count) in finer.counts.iter().enumerate() {
            let bin = (finer.first + place as i128) >> shift;
            let count_here = &mut self.counts[(bin - self.first) as usize];
            *count_here = count_here.saturating_add(*count);
        }
    }

    fn merge(&mut self, other: &Bins<T>) {
        if let Some((low, high)) = other.range {
            self.cover(low, high);
            self.add(other);
        }
    }
}

impl Number for i128 {
    fn k_least(_: i128, _: i128) -> i32 {
        0
    }

    fn bin(self, k: i32) -> i128 {
        self >> k.min(127)
    }
}

/// Minimum `k` for floats. Reason: the scale factor 2^-k overflows for smaller ones.
const K_LEAST: i32 = -1000;

impl Number for f64 {
    /// Returns the least `k` for which the number of every bin fits the 53 bits of a float's mantissa.
    fn k_least(low: f64, high: f64) -> i32 {
        let exponent = (low.abs().max(high.abs()).to_bits() >> 52) as i32 - 1023;
        (exponent - 51).max(K_LEAST)
    }

    fn bin(self, k: i32) -> i128 {
        let scaled = self * exp2(-k);
        // A value that underflows to zero stays in the bin on its side of zero.
        if scaled == 0.0 && self < 0.0 { -1 } else { scaled.floor() as i128 }
    }
}

/// Returns 2^k, for `k` from -1022 to 1023.
fn exp2(k: i32) -> f64 {
    f64::from_bits(((k.clamp(-1022, 1023) + 1023) as u64) << 52)
}

/// Merges neighbouring bins until there are at most `most`. Returns `k`, the number of the first bin, and the counts.
fn coarser<T: Number>(bins: &Bins<T>, most: usize) -> (i32, i128, Vec<u64>) {
    let last = bins.first + bins.counts.len() as i128 - 1;
    let mut shift = 0;
    while shift < 127 && (last >> shift) - (bins.first >> shift) >= most.max(1) as i128 {
        // The bins on either side of zero cannot be merged by doubling the width, because zero is an edge of every
        // width.
        if bins.first >> shift == -1 && last >> shift == 0 {
            break;
        }
        shift += 1;
    }
    let first = bins.first >> shift;
    let mut counts =
        vec![0_u64; if bins.counts.is_empty() { 0 } else { ((last >> shift) - first) as usize + 1 }];
    for (place, count) in bins.counts.iter().enumerate() {
        let sum = &mut counts[(((bins.first + place as i128) >> shift) - first) as usize];
        *sum = sum.saturating_add(*count);
    }
    (bins.k + shift, first, counts)
}
