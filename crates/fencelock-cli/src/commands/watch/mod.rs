//! The store, looked at again and again: the source of `serve` and `top`.

#![cfg_attr(not(all(feature = "serve", feature = "top")), allow(dead_code, reason = "each of the two shows a part"))]

pub(crate) mod classes;
pub(crate) mod grants;
pub(crate) mod look;
