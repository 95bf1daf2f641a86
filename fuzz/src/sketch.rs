//! Fuzz body that decodes untrusted states of sketches.

use farpool_statistics::{Sketch, sealed};

/// Decodes a state with a corrected checksum. A decoded state must answer every query, merge with itself, and
/// encode to the same bytes.
pub fn sketch_decoder(data: &[u8]) {
    assert!(Sketch::from_bytes(data).is_err() || data.len() > 8);
    let bytes = sealed(data.to_vec());
    let Ok(sketch) = Sketch::from_bytes(&bytes) else { return };
    assert_eq!(sketch.to_bytes(), bytes, "a state has one form");
    assert!(sketch.nulls() <= sketch.rows());
    for estimate in [sketch.distinct(), sketch.second_moment()].into_iter().flatten() {
        assert!(estimate.low <= estimate.value && estimate.value <= estimate.high, "{estimate:?}");
    }
    assert!(sketch.top(3).len() <= sketch.parameters().top as usize);
    for quantile in sketch.quantiles(&[0.0, 0.3, 1.0]).into_iter().flatten() {
        let order = quantile.low.compare(&quantile.value).zip(quantile.value.compare(&quantile.high));
        assert!(order.is_some_and(|(low, high)| low.is_le() && high.is_le()), "{quantile:?}");
    }
    let _ = (sketch.sum(), sketch.count_min_trust(), sketch.join_size(&sketch));
    let mut twice = sketch.clone();
    if twice.merge(&sketch).is_ok() {
        assert_eq!(twice.rows(), 2 * sketch.rows());
        assert_eq!(twice.distinct().map(|e| e.value >= 1.0), sketch.distinct().map(|e| e.value >= 1.0));
    }
}
