//! The store `mysql:` keeps the laws of time.

use crate::fixtures;

fencelock_conformance::suite!("mysql", || fixtures::mysql(""), laws = timed);
