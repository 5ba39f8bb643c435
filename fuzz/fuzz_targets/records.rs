//! Every record that a server sends.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| fencelock_zookeeper::fuzz::records(bytes));
