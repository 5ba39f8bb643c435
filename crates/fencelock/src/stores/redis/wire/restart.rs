//! Detects a restart of the server behind a new connection: the server may have forgotten its grants.

use std::time::Duration;

pub(crate) use super::server::Era;
use super::server::Server;
use crate::store::{Capability, Loss, Presumption};
use crate::sync::Mutex;

/// Remembers the server that a session met last.
#[derive(Default)]
pub(crate) struct RestartWatch(Mutex<Option<Era>>);

impl RestartWatch {
    /// Whether the server reports its `run_id`.
    pub(crate) fn sees_restarts(&self) -> bool {
        self.0.lock().is_some()
    }

    /// Notes `server`. Returns why confirmations until `ago` no longer hold: another process answers, the server was a replica meanwhile,
    /// or it does not say.
    pub(crate) fn met(&self, server: &Server, ago: Duration) -> Option<Loss> {
        let mut last = self.0.lock();
        let now = server.era();
        match (std::mem::replace(&mut *last, now.clone()), now) {
            (Some(before), Some(now)) if is_same_era(&before, &now) => None,
            (Some((before, _)), Some((now, _))) if before == now => Some(Loss::Demoted),
            // This server ran while another one confirmed last.
            (Some(_), Some(_)) if server.ran_before(ago) => Some(Loss::Replaced),
            (Some(_), Some(_)) => Some(Loss::Restarted),
            _ => Some(Loss::PerhapsRestarted),
        }
    }
}

/// Whether the server has been the same primary in between. A primary without replicas forgets its promotion after a while.
pub(crate) fn is_same_era(before: &Era, now: &Era) -> bool {
    before.0 == now.0 && (now.1.is_none() || before.1 == now.1)
}

/// The capability for a user who may not run INFO, which has the `run_id`.
pub(crate) fn without_info(capability: &Capability) -> Capability {
    Capability {
        presumes: &[Presumption::MemoryKept, Presumption::ClockSteady, Presumption::NoConnectionBreaks],
        ..capability.clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_promotion_ends_locks_and_a_primary_that_forgets_its_promotion_ends_none() {
        let server = |from: &str| {
            let info = format!("run_id:a\r\nmaster_replid2:{from}\r\nuptime_in_seconds:9000\r\n");
            Server::answered(redis::Value::BulkString(info.into_bytes()))
        };
        let watch = RestartWatch::default();
        let met = |from| watch.met(&server(from), Duration::ZERO);
        met("b1");
        assert_eq!((met("b1"), met("0000"), met("0000")), (None, None, None));
        assert_eq!(met("c2"), Some(Loss::Demoted));
    }
}
