//! The store `postgres:` while servers end, clocks jump, networks are cut, and short ttls run.

#[allow(dead_code, reason = "a helper of the gate's tests that no test here needs")]
#[path = "../../postgres/lab.rs"]
mod lab;
mod newcomers;

mod hold;
mod outside;
mod pooled;
mod trouble;
mod ways;
