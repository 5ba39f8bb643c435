//! File names and targets in the directory of a `file:` store.
#![no_main]

libfuzzer_sys::fuzz_target!(|text: &str| fencelock::fuzz::ticket(text));
