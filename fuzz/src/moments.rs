//! Fuzz body that decodes untrusted states of moments.

use farpool_statistics::{Form, Moments, sealed_moments};

/// Decodes a state, both as it is and with a corrected checksum. A decoded state must encode to the same
/// bytes, give estimates within their bounds, and merge with itself.
pub fn moments_decoder(data: &[u8]) {
    let _ = Moments::from_bytes(data);
    let sealed = sealed_moments(data);
    let Ok(mut moments) = Moments::from_bytes(&sealed) else { return };
    assert_eq!(moments.to_bytes(), sealed, "what is read is written as it was");
    let columns = moments.columns().min(8);
    for (i, j) in (0..columns).flat_map(|i| (0..columns).map(move |j| (i, j))) {
        for ratio in [moments.correlation(i, j), moments.cosine_similarity(i, j)] {
            assert!(ratio.is_nan() || (-1.0..=1.0).contains(&ratio), "{ratio}");
        }
        let _ = (moments.regression(i, j), moments.covariance(i, j, Form::Sample), moments.mean(i));
    }
    let copy = moments.clone();
    if moments.merge(&copy).is_ok() && columns > 0 {
        assert_eq!(moments.count(0, 0), 2 * copy.count(0, 0));
    }
}
