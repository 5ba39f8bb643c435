//! The stores, one room each with the same roles.

#[cfg(feature = "memory")]
pub mod memory;
