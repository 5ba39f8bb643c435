//! Programs whose resource objects: each detects two holders, and panics.
//!
//! They live in `src/bin/`; `cargo xtask examples` runs every one.
