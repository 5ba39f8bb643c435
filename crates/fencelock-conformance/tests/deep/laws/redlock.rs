//! The store `redlock:` keeps the laws of time.

fencelock_conformance::suite!("redlock", crate::fixtures::masters, only = mutexes, laws = timed);
