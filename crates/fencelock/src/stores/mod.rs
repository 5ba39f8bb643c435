//! The stores, one room each with the same roles.
