//! A histogram of latencies in logarithmic buckets: the width of a bucket is at most a 64th of the values in it.

/// Number of buckets per power of two, itself a power of two: percentiles are then exact to 1.6 %.
const STEPS: u64 = 64;

/// Latencies in nanoseconds. Latencies above 2^40 (18 minutes) are counted as 2^40.
#[derive(Clone)]
pub struct Histogram {
    counts: Vec<u64>,
    count: u64,
    most: u64,
}

impl Histogram {
    /// Creates a histogram without latencies.
    pub fn new() -> Histogram {
        Histogram { counts: vec![0; bucket(1 << 40) + 1], count: 0, most: 0 }
    }

    /// Counts a latency of `ns` nanoseconds.
    pub fn add(&mut self, ns: u64) {
        self.counts[bucket(ns.min(1 << 40))] += 1;
        self.count += 1;
        self.most = self.most.max(ns);
    }

    /// Adds the counts of another histogram.
    pub fn merge(&mut self, other: &Histogram) {
        self.counts.iter_mut().zip(&other.counts).for_each(|(own, theirs)| *own += theirs);
        self.count += other.count;
        self.most = self.most.max(other.most);
    }

    /// Returns the largest latency, in nanoseconds.
    pub fn most(&self) -> u64 {
        self.most
    }

    /// Returns the quantile `part` (0.99 for the 99th percentile) in nanoseconds, rounded up to the end of its bucket;
    /// NaN if there are no latencies.
    pub fn percentile(&self, part: f64) -> f64 {
        let wanted = (part * self.count as f64).ceil().max(1.0) as u64;
        let mut seen = 0;
        for (bucket, count) in self.counts.iter().enumerate() {
            seen += count;
            if seen >= wanted {
                return end(bucket).min(self.most) as f64;
            }
        }
        f64::NAN
    }
}

/// Returns the index of the bucket that counts a latency of `ns` nanoseconds.
fn bucket(ns: u64) -> usize {
    let shift = (ns.max(1).ilog2()).saturating_sub(STEPS.ilog2());
    (u64::from(shift) * STEPS + (ns >> shift)) as usize
}

/// Returns the largest latency of a bucket, in nanoseconds.
fn end(bucket: usize) -> u64 {
    let bucket = bucket as u64;
    let shift = (bucket / STEPS).saturating_sub(1);
    let step = bucket - shift * STEPS;
    ((step + 1) << shift) - 1
}

#[cfg(test)]
mod tests {
    use super::{Histogram, bucket, end};

    #[test]
    fn buckets_hold_what_lies_in_them() {
        for ns in
            (0..100_000).chain((20..40).flat_map(|bits| [(1_u64 << bits) - 1, 1 << bits, (1 << bits) + 1]))
        {
            let place = bucket(ns);
            assert!(ns <= end(place), "{ns}");
            assert!(place == 0 || ns > end(place - 1), "{ns}");
            assert!(end(place) - ns <= ns / 64, "{ns}");
        }
    }

    #[test]
    fn percentiles_are_near_the_values() {
        let mut histogram = Histogram::new();
        (1..=1000).for_each(|us| histogram.add(us * 1000));
        let mut other = Histogram::new();
        other.add(5_000_000);
        histogram.merge(&other);
        assert!((histogram.percentile(0.5) / 501_000.0 - 1.0).abs() < 0.02);
        assert!((histogram.percentile(0.99) / 991_000.0 - 1.0).abs() < 0.02);
        assert_eq!((histogram.percentile(1.0), histogram.most()), (5_000_000.0, 5_000_000));
        assert!(Histogram::new().percentile(0.5).is_nan());
    }
}
