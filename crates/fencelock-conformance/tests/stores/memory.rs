//! The store `memory:` keeps every law.

fencelock_conformance::suite!("memory", fencelock_conformance::MemoryFixture::default);
