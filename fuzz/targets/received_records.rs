//! Records of another node under libFuzzer; see `farpool_fuzz`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| farpool_fuzz::received_records(data));
