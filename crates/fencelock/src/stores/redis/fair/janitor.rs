//! Clears away remains of dead sessions, a little with each renewal. Nothing waits for the janitor, and nothing depends on it.

use std::sync::{Arc, Weak};

use tokio::sync::Notify;

use super::layout::KeySpace;
use super::scripts::{self, Swept};
use crate::kit::bucket::BUCKETS;
use crate::stores::redis::wire::Connection;
use crate::sync::Mutex;

/// The janitor of a session.
pub(super) struct Janitor {
    /// The position of the next request.
    swept: Mutex<Swept>,
    wanted: Notify,
}

impl Janitor {
    /// Clients begin at different buckets, so that together they soon visit all.
    pub(super) fn new(session: u64) -> Self {
        let swept = Swept { bucket: (session % u64::from(BUCKETS)) as u16, cursor: "0".to_owned() };
        Self { swept: Mutex::new(swept), wanted: Notify::new() }
    }

    /// Asks for a request on the current connection. Two calls before it is sent cause a single request.
    pub(super) fn call(&self) {
        self.wanted.notify_one();
    }
}

/// Removes some remains at each call of the janitor. Ends with the connection.
pub(super) async fn clear_up(connection: Weak<Connection>, layout: Arc<KeySpace>, janitor: Arc<Janitor>) {
    loop {
        janitor.wanted.notified().await;
        let Some(connection) = connection.upgrade() else { return };
        let from = janitor.swept.lock().clone();
        match connection.run("clear up", &scripts::janitor(&layout, &from)).await {
            Ok(swept) => *janitor.swept.lock() = Swept { bucket: (from.bucket + swept.bucket) % BUCKETS, ..swept },
            Err(error) => tracing::debug!(%error, "remains of dead sessions could not be cleared away"),
        }
    }
}
