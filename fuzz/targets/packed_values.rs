//! Compressed values of keyspaces under libFuzzer; see `farpool_fuzz`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| farpool_fuzz::packed_values(data));
