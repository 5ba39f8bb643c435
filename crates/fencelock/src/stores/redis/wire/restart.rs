//! Whether the server behind a new connection was started anew: it may have forgotten what it granted.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use super::server::Server;
use crate::store::{Capability, Loss, Presumption};

/// Remembers the `run_id` of the server that a session met last: every start of a server draws another one.
#[derive(Default)]
pub(crate) struct RestartWatch(Mutex<Option<String>>);

impl RestartWatch {
    /// Whether the server tells its `run_id`.
    pub(crate) fn sees_restarts(&self) -> bool {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).is_some()
    }

    /// Notes the `run_id` of `server`. Says why what was confirmed before, `ago`, cannot be relied on: another process answers, or nobody
    /// can tell whether one does.
    pub(crate) fn met(&self, server: &Server, ago: Duration) -> Option<Loss> {
        let mut last = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let before = std::mem::replace(&mut *last, server.run_id.clone());
        match (before, &server.run_id) {
            (Some(before), Some(now)) if before == *now => None,
            // It ran beside the one that confirmed last.
            (Some(_), Some(_)) if server.ran_before(ago) => Some(Loss::Replaced),
            (Some(_), Some(_)) => Some(Loss::Restarted),
            _ => Some(Loss::PerhapsRestarted),
        }
    }
}

/// What is promised to a user who may not run INFO, which tells the `run_id`.
pub(crate) fn without_info(capability: &Capability) -> Capability {
    Capability {
        presumes: &[Presumption::MemoryKept, Presumption::ClockSteady, Presumption::NoConnectionBreaks],
        ..capability.clone()
    }
}
