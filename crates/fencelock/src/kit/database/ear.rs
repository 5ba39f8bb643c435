//! The ear of a session's connection: the database wakes the session for its grants. A session without an ear looks at its waiting places at
//! short intervals.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use tokio::sync::Notify;

use super::dialect::Dialect;
use super::session::FairSession;
use crate::kit::served::{Places, REPAIR};

#[derive(Default)]
pub(crate) struct Ear {
    rings: AtomicU64,
    is_listening: AtomicBool,
    /// Has the task that listens compare its state with the needs of the session.
    pub(crate) unsettled: Notify,
}

impl Ear {
    /// Compare this number before and after a request: a ring in between may be for a place that did not wait yet.
    pub(crate) fn rings(&self) -> u64 {
        self.rings.load(Ordering::SeqCst)
    }

    /// The session listens from now on, or was rung without a message: each waiting place may be granted.
    pub(crate) fn rung(&self, places: &Places) {
        self.rings.fetch_add(1, Ordering::SeqCst);
        self.is_listening.store(true, Ordering::SeqCst);
        places.look_at_those(|_| true);
    }

    /// Ends the listening. Returns whether the session listened.
    pub(crate) fn stop(&self) -> bool {
        self.is_listening.swap(false, Ordering::SeqCst)
    }

    /// The time until the next look at a place. The server asked for `said`, in the answer to a request; `rings` is the ear's count before that
    /// request. Without an ear all places of a session have the same next look, at a multiple of `POLL` of the clock, and share a request.
    pub(crate) fn look_in<D: Dialect>(
        &self,
        session: &FairSession<D>,
        said: Option<Duration>,
        rings: Option<u64>,
    ) -> Option<Duration> {
        if self.is_listening.load(Ordering::SeqCst) {
            return if rings.is_none_or(|rings| rings == self.rings()) { said } else { Some(Duration::ZERO) };
        }
        self.unsettled.notify_one();
        let since = session.opening.clock.now().as_nanos() % D::POLL.as_nanos() as u64;
        Some(D::POLL - Duration::from_nanos(since))
    }
}

/// Listens while the session needs that, until the connection ends.
pub(crate) async fn listen<D: Dialect>(session: Arc<FairSession<D>>, main: Weak<D::Connection>, ear: Arc<Ear>) {
    let (clock, mut known) = (&session.opening.clock, None);
    loop {
        ear.unsettled.notified().await;
        while main.strong_count() > 0 && D::needs_ear(&session) {
            let listened = D::listen(&session, &main, &ear).await;
            if ear.stop() {
                known = None;
                session.places.look_at_those(|_| true);
            }
            let Err(error) = listened else { continue };
            if known.replace(error.kind()) != Some(error.kind()) {
                let ms = D::POLL.as_millis();
                tracing::warn!(%error, "the session cannot listen: its waiting places are looked at every {ms} ms");
            }
            // An operator may mend a permanent fault.
            let pause = if error.is_retryable() { REPAIR } else { REPAIR * 30 };
            clock.sleep_until(clock.now().after(pause)).await;
        }
    }
}
