//! Messages and values of PostgreSQL's protocol under libFuzzer; see `farpool_fuzz`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| farpool_fuzz::postgres_messages(data));
