//! MariaDB servers, and everything that breaks them.

mod server;
mod shared;

pub use server::{Server, Settings};
pub use shared::{KIND, OWNER};
