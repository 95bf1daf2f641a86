//! Conditions on the entries of keyspaces under libFuzzer; see `farpool_fuzz`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| farpool_fuzz::predicate_parser(data));
