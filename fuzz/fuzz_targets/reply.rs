//! Replies and messages of a Redis server.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| fencelock::fuzz::reply(bytes));
