//! The requests of Redis clients under libFuzzer; see `farpool_fuzz`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| farpool_fuzz::resp_decoder(data));
