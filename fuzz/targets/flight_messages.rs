//! Messages of Arrow Flight's clients under libFuzzer; see `farpool_fuzz`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| farpool_fuzz::flight_messages(data));
