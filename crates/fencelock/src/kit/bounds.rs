//! What connections to a server go by, for a session or for somebody who only looks.

use std::sync::Arc;
use std::time::Duration;

use crate::store::{Opening, Tasks};
use crate::time::{Clock, SystemClock};

/// A connection that takes longer to be made, or is silent for longer, is given up, however long a session may live.
pub(crate) const MOST_PATIENCE: Duration = Duration::from_secs(10);
/// The ttl that the patience with a connection of no session goes by.
const READER_TTL: Duration = Duration::from_secs(10);

#[derive(Clone)]
pub(crate) struct Bounds {
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) patience: Duration,
    /// How long it may give no answer.
    pub(crate) silence: Duration,
    /// Where the connections' tasks run; `None` for wherever one is made.
    pub(crate) tasks: Option<Tasks>,
}

impl Bounds {
    /// Those of the session that is opened with `opening`; without one, of somebody who only looks.
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
