//! Recipes over locks: several locks at once, names that choose their store, elections, windows, and values that are made once.

mod election;
mod multi;
mod once;
mod router;
mod window;

pub use election::{Election, Leader, Leading};
pub use multi::{MultiGuard, MultiLock};
pub use once::Once;
pub use router::Router;
pub use window::{Passage, Window};

use crate::client::Client;
use crate::error::{Error, ErrorKind, Result};
use crate::primitives::Mutex;

/// The mutex `name`, for a recipe that keeps a note on it.
pub(crate) fn with_notes(client: &Client, name: impl AsRef<str>, recipe: &'static str) -> Result<Mutex> {
    let lock = client.mutex(name)?;
    if client.capability().notes {
        return Ok(lock);
    }
    let message = "the store keeps no notes, which this needs";
    Err(Error::new(ErrorKind::Unsupported, recipe, message).with("name", lock.name()))
}
