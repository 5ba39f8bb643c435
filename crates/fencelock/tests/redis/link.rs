//! The shared server behind a network of the test's own.

use std::time::{Duration, Instant};

use fencelock_testbed::Proxy;
use fencelock_testbed::redis::{Hands, shared};

use super::lab::{acquired, acquiring, client, soon, until_queued};

/// A way to the shared server, and a database of one's own behind it.
pub(crate) struct Link {
    pub(crate) proxy: Proxy,
    /// As in `/7`.
    pub(crate) database: String,
}

impl Link {
    pub(crate) fn new() -> Self {
        Self { proxy: Proxy::start(shared().address()).unwrap(), database: shared().namespace() }
    }

    /// The URL through the proxy.
    pub(crate) fn url(&self) -> String {
        format!("redis://{}{}", self.proxy.address(), self.database)
    }

    /// The URL past it.
    pub(crate) fn past(&self) -> String {
        format!("redis://{}{}", shared().address(), self.database)
    }
}

/// The bytes of replies before a cut: before a reply, inside it, and after it or inside the next reply.
pub(crate) const CUTS: [u64; 6] = [0, 1, 3, 9, 24, 60];

/// The server drops a message and nothing else: the connection stays, and answers further requests. Returns the time until the
/// waiter's grant, and the bound of its capability.
pub(crate) async fn a_message_is_dropped(waiter_ttl_ms: u64, holder_ttl_ms: u64) -> (Duration, Duration) {
    let link = Link::new();
    let (waiter, holder) = (client(&link.past(), waiter_ttl_ms).await, client(&link.past(), holder_ttl_ms).await);
    let bound = waiter.capability().wake_bound + waiter.capability().detection_slack;
    let guard = holder.mutex("job").unwrap().acquire().await.unwrap();
    let waiting = acquiring(&waiter, "job");
    until_queued(&waiter, "job", 2).await;
    // The holder's session vanishes, as if it had expired: no message is published.
    let mut hands = Hands::connect(shared().address()).unwrap();
    hands.ask(&["SELECT", &link.database[1..]]).unwrap();
    let sessions = hands.ask(&["KEYS", "fencelock:2:session:*"]).unwrap();
    let oldest =
        sessions.items().iter().map(ToString::to_string).min_by_key(|key| hands.ask(&["PTTL", key]).unwrap().number());
    hands.ask(&["DEL", &oldest.unwrap()]).unwrap();
    let start = Instant::now();
    let granted = acquired(waiting).await;
    let took = start.elapsed();
    soon(guard.lost()).await;
    granted.release().await.unwrap();
    (took, bound)
}
