//! URLs of stores.
#![no_main]

libfuzzer_sys::fuzz_target!(|text: &str| fencelock::fuzz::url(text));
