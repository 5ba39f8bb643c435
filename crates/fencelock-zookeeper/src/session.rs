//! The session: opened, continued on another server, over.

use std::sync::Arc;

use crate::error::{Error, ErrorKind, Result};
use crate::shared::Shared;

/// Opens a session and serves it on the current runtime.
pub(crate) async fn open(shared: &Arc<Shared>) -> Result<()> {
    let _ = shared;
    Err(Error::new(ErrorKind::Unreachable, "connect", "no server was tried"))
}
