//! The store `redlock:` keeps every law that can be tried on it.

fencelock_conformance::suite!("redlock", crate::fixtures::masters, only = mutexes, laws = untimed);
