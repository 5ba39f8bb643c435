//! The clock and the time limits of connections to a server, for a session or for a client that only looks.

use std::sync::Arc;
use std::time::Duration;

use crate::store::{Opening, Tasks};
use crate::time::{Clock, SystemClock};

/// The client gives up a connection that takes longer to make, or is silent for longer, even if the session may live longer.
pub(crate) const MOST_PATIENCE: Duration = Duration::from_secs(10);
/// The ttl that bounds a connection without a session.
const READER_TTL: Duration = Duration::from_secs(10);

#[derive(Clone)]
pub(crate) struct Bounds {
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) patience: Duration,
    /// How long a connection may give no answer.
    pub(crate) silence: Duration,
    /// The runtime of the connections' tasks; `None` for the runtime that makes each connection.
    pub(crate) tasks: Option<Tasks>,
}

impl Bounds {
    /// The bounds of the session of `opening`; without it, of a client that only looks.
    pub(crate) fn of(opening: Option<&Opening>) -> Self {
        let ttl = opening.map_or(READER_TTL, |opening| opening.ttl);
        Self {
            clock: opening.map_or_else(|| Arc::new(SystemClock) as _, |opening| Arc::clone(&opening.clock)),
            patience: opening.map_or(READER_TTL * 3 / 10, Opening::patience).min(MOST_PATIENCE),
            silence: (ttl * 3 / 10).min(MOST_PATIENCE),
            tasks: opening.map(|opening| opening.tasks.clone()),
        }
    }
}
