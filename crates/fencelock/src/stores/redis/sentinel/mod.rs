//! The way to a primary that Sentinels watch, and the word of its replicas. The layouts use neither. `NOTES.md` in this folder has the
//! reasons.

mod ask;
mod replicas;
mod url;

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;

use self::ask::{Named, ask, watch};
pub(super) use self::replicas::{Messages, Replicas, hand_on, needs_replicas};
pub(super) use self::url::{OPTIONS, config};
use super::wire::Config;
use crate::error::{Error, ErrorKind, Result};
use crate::kit::address::HostPort;
use crate::kit::pause::spread;
use crate::time::Clock;

/// How long other Sentinels may take to answer once one has named a primary.
const GRACE: Duration = Duration::from_millis(200);
/// The pause before the next Sentinel is asked for news.
const NEXT: Duration = Duration::from_secs(1);

/// The Sentinels that watch one primary.
#[derive(Debug, Clone)]
pub(crate) struct Sentinels {
    /// The URL without secrets.
    shown: Arc<str>,
    /// The name of the primary.
    name: Arc<str>,
    each: Arc<[(HostPort, Config)]>,
    /// Where servers are dialled that are named by an address which only their own network knows.
    map: Arc<[(HostPort, HostPort)]>,
    /// Which one is asked for news next.
    turn: Arc<AtomicUsize>,
}

/// A server that Sentinels name.
#[derive(Debug, Clone)]
pub(crate) struct Found {
    /// Where the server is dialled.
    pub(crate) server: HostPort,
    /// How the Sentinels name the server.
    pub(crate) named: HostPort,
    /// The number of the configuration that names the server: a later one has a higher number.
    epoch: u64,
}

impl Sentinels {
    fn found(&self, Named { epoch, server: named }: Named) -> Found {
        let mapped = self.map.iter().find(|(inside, _)| *inside == named).map(|(_, outside)| outside.clone());
        Found { server: mapped.unwrap_or_else(|| named.clone()), named, epoch }
    }

    /// Asks all Sentinels within `patience`, and believes the newest configuration. The server's own word for its role is still to be had.
    pub(crate) async fn find(&self, clock: &dyn Clock, patience: Duration) -> Result<Found> {
        let asks = self.each.iter().map(async |(server, config)| (server, ask(config, &self.name, clock).await));
        let (mut asks, mut newest, mut refused) = (asks.collect::<FuturesUnordered<_>>(), None::<Named>, Vec::new());
        let mut until = clock.now().after(patience);
        loop {
            tokio::select! {
                biased;
                Some((server, answer)) = asks.next() => match answer {
                    Ok(named) => {
                        until = until.min(clock.now().after(GRACE));
                        newest = newest.into_iter().chain([named]).max_by_key(|named| named.epoch);
                    }
                    Err(error) => refused.push((server, error)),
                },
                () = clock.sleep_until(until) => break,
                else => break,
            }
        }
        match newest {
            Some(named) => Ok(self.found(named)),
            None => Err(self.nameless(refused)),
        }
    }

    /// Why no primary is known. Returns a permanent error where every Sentinel gives one.
    fn nameless(&self, mut refused: Vec<(&HostPort, Error)>) -> Error {
        let all_refuse = refused.len() == self.each.len();
        if all_refuse && refused.iter().all(|(_, error)| !error.is_retryable()) {
            let (server, error) = refused.swap_remove(0);
            return error.with("sentinel", server);
        }
        let message = "no Sentinel names the primary";
        let error = Error::new(ErrorKind::Unreachable, "connect", message).with("server", &self.shown).retryable();
        let silent =
            self.each.iter().map(|(server, _)| server).filter(|server| refused.iter().all(|(one, _)| one != server));
        let silent: Vec<_> = silent.map(|server| format!("{server}: no answer")).collect();
        let refused = refused.iter().map(|(server, error)| format!("{server}: {error}"));
        error.with("sentinels", refused.chain(silent).collect::<Vec<_>>().join("; "))
    }

    /// Completes once a Sentinel names another primary by a newer configuration.
    pub(crate) async fn moved(self, found: Found, clock: Arc<dyn Clock>) {
        loop {
            let turn = self.turn.fetch_add(1, Ordering::Relaxed) % self.each.len();
            let (server, config) = &self.each[turn];
            let is_other = |named: &Named| named.epoch > found.epoch && named.server != found.named;
            match watch(config, &self.name, is_other, &*clock).await {
                Ok(()) => return,
                Err(error) => tracing::debug!(%server, %error, "a Sentinel gives no news"),
            }
            clock.sleep_until(clock.now().after(spread(NEXT))).await;
        }
    }
}

impl fmt::Display for Sentinels {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.shown)
    }
}
