//! Fuzz body that decodes untrusted states of HyperLogLog in the format of Apache DataSketches.

use farpool_statistics::HyperLogLog;

/// Decodes a state. A decoded state must have an estimate within its bounds, stay the same when merged with
/// itself, and decode again after encoding.
pub fn datasketches_decoder(data: &[u8]) {
    let Ok(mut state) = HyperLogLog::from_datasketches(data) else { return };
    let written = state.to_datasketches();
    let again = HyperLogLog::from_datasketches(&written).expect("what we write, we read");
    assert_eq!(again.precision(), state.precision());
    assert_eq!(again.to_datasketches(), written, "a state has one form");
    let estimate = state.estimate();
    // The estimate is rounded to a whole number, its bounds are not.
    assert!(estimate.low < estimate.value + 1.0 && estimate.value < estimate.high + 1.0, "{estimate:?}");
    state.merge(&again).expect("both have one precision");
    assert_eq!(state.to_datasketches(), written, "nothing new was merged");
}
