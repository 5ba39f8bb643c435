//! The way to a primary that Sentinels watch, and the acknowledgement of its replicas. The layouts use neither. `NOTES.md` in this folder has the
//! reasons.

mod ask;
mod find;
mod replicas;
mod url;

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use self::ask::{Named, ask, watch};
pub(super) use self::find::newest;
pub(super) use self::replicas::{Messages, Replicas, hand_on, needs_replicas};
pub(super) use self::url::{OPTIONS, config, mapped};
use super::wire::Config;
use crate::error::Result;
use crate::kit::address::HostPort;
use crate::kit::pause::spread;
use crate::time::Clock;

/// The pause before the client subscribes at the next Sentinel.
const NEXT: Duration = Duration::from_secs(1);

/// The Sentinels that watch one primary.
#[derive(Debug, Clone)]
pub(crate) struct Sentinels {
    /// The URL without secrets.
    pub(crate) shown: Arc<str>,
    /// The name of the primary.
    name: Arc<str>,
    each: Arc<[(HostPort, Config)]>,
    /// Where servers are dialled that are named by an address which only their own network knows.
    map: Arc<[(HostPort, HostPort)]>,
    /// The Sentinel at which the client subscribes next.
    turn: Arc<AtomicUsize>,
}

impl Sentinels {
    /// Where the primary is dialled.
    pub(crate) fn dialled(&self, named: &Named) -> HostPort {
        dialled(&self.map, &named.server)
    }

    /// Asks all Sentinels within `patience`, and returns the newest configuration. The caller must still check the server's role.
    pub(crate) async fn find(&self, clock: &dyn Clock, patience: Duration) -> Result<Named> {
        let all = self.each.iter().map(|(server, config)| (server, ask(config, &self.name, clock)));
        let words = (&*self.shown, "no Sentinel names the primary", "sentinel", "sentinels");
        newest(all, |named| named.epoch, (clock, patience), words).await
    }

    /// Completes once a Sentinel names another primary by a newer configuration.
    pub(crate) async fn moved(self, found: Named, clock: Arc<dyn Clock>) {
        loop {
            let turn = self.turn.fetch_add(1, Ordering::Relaxed) % self.each.len();
            let (server, config) = &self.each[turn];
            let is_other = |named: &Named| named.epoch > found.epoch && named.server != found.server;
            match watch(config, &self.name, is_other, &*clock).await {
                Ok(()) => return,
                Err(error) => tracing::debug!(%server, %error, "a Sentinel gives no news"),
            }
            clock.sleep_until(clock.now().after(spread(NEXT))).await;
        }
    }
}

/// The address to dial for a server that is named so.
pub(super) fn dialled(map: &[(HostPort, HostPort)], named: &HostPort) -> HostPort {
    map.iter().find(|(inside, _)| inside == named).map_or(named, |(_, outside)| outside).clone()
}
