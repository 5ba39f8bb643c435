//! Programs whose resource objects: each detects two holders, and panics.
//!
//! They live in `src/bin/`; `cargo run -p fencelock-examples --bin stock -- URL` runs one on any store. The program in README is compiled and run as a test of
//! this crate.

#[cfg(doctest)]
#[doc = include_str!("../../README.md")]
struct Readme;
