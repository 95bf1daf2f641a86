//! Fuzz body that decodes untrusted states of histograms.

use farpool_statistics::{BINS_MAX, Histogram};

/// Decodes a state. A decoded state must answer every query, merge with itself, and decode again after
/// encoding.
pub fn histogram_decoder(data: &[u8]) {
    let Ok(mut histogram) = Histogram::from_bytes(data) else { return };
    let again = Histogram::from_bytes(&histogram.to_bytes()).expect("what we write, we read");
    assert_eq!(again, histogram);
    for most in [0, 1, 7, BINS_MAX] {
        let bins = histogram.bins(most);
        // Bins on different sides of zero are never merged.
        assert!(bins.len() <= most.max(2), "{} bins of {most}", bins.len());
        assert!(bins.iter().all(|bin| bin.low <= bin.high), "{bins:?}");
    }
    let _ = (histogram.outside(), histogram.bytes_held());
    let copy = histogram.clone();
    histogram.merge(&copy).expect("both are of the same kind");
    assert_eq!(
        histogram.count(),
        copy.bins(BINS_MAX)
            .iter()
            .fold(0_u64, |sum, bin| { sum.saturating_add(bin.count.saturating_mul(2)) })
    );
}
