//! The store `postgres:` while servers end, clocks jump, networks are cut, and short ttls run.

#[allow(dead_code, reason = "a helper of the gate's tests that no test here needs")]
#[path = "../../postgres/lab.rs"]
mod lab;
#[path = "../../postgres/model.rs"]
mod model;
mod newcomers;
#[allow(dead_code, reason = "helpers of the gate's tests that no test here needs")]
#[path = "../../postgres/side.rs"]
mod side;

mod batch;
mod hold;
mod outside;
mod pooled;
mod trouble;
mod ways;
