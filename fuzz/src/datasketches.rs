//! States of HyperLogLog from anybody, in the form of Apache DataSketches.

use farpool_statistics::HyperLogLog;

/// Reads a state; one that comes out has an estimate within its bounds, is not changed by being merged with itself, and
/// as it is written it is read again.
pub fn datasketches_decoder(data: &[u8]) {
    let Ok(mut state) = HyperLogLog::from_datasketches(data) else { return };
    let written = state.to_datasketches();
    let again = HyperLogLog::from_datasketches(&written).expect("what we write, we read");
    assert_eq!(again.precision(), state.precision());
    assert_eq!(again.to_datasketches(), written, "a state has one form");
    let estimate = state.estimate();
    // The estimate is a whole number, its bounds are not.
    assert!(estimate.low < estimate.value + 1.0 && estimate.value < estimate.high + 1.0, "{estimate:?}");
    state.merge(&again).expect("both have one precision");
    assert_eq!(state.to_datasketches(), written, "nothing new was merged");
}
