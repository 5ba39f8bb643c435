//! The store `postgres:` keeps every law that can be tried on it.

fencelock_conformance::suite!("postgres", || crate::fixtures::postgres(""), laws = untimed);
