//! The store `mysql:` keeps every law that can be tried on it.

fencelock_conformance::suite!("mysql", || crate::fixtures::mysql(""), laws = untimed);
