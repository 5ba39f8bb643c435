//! The store `etcd:` keeps the laws of time.

use crate::fixtures;

fencelock_conformance::suite!("etcd", fixtures::etcd, laws = timed);
