//! The drivers of clients in other languages, built and started: for the harness of this crate, and for benchmarks that run
//! peers together with ours. `interop/README.md` says which orders a driver takes.

mod build;

pub use build::{Built, Foreign, Purpose};
