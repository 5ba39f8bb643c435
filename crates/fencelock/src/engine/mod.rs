//! The only loops, the only background work.

pub(crate) mod clock;
