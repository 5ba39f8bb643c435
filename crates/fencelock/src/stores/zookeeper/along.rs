//! Waiting in a queue that does not fit into an answer any more, because somebody has filled its parent with nodes.
//!
//! A waiter for a mutex keeps its place then. It asks for those ahead of it one by one, by the last listing that came. That is
//! sound for the reason that hand-over by watch is: numbers rise with every creation, so nobody is ahead of a node who was not in
//! a listing that showed it, and a departure is final. Where another kind of lock is in the parent it does not hold, and where
//! claims become lighter (readers, writers, permits) neither: those waiters end with the error.

use futures_util::future;

use fencelock_zookeeper as wire;

use super::fault::fault;
use super::place::ZooKeeperPlace;
use super::queue_view::Waits;
use super::waiter::Heard;
use crate::error::Result;

/// So many contenders are asked for at once.
const BATCH: usize = 100;

impl ZooKeeperPlace {
    /// Finds the nearest contender ahead that is still there, when a listing failed as `too_large`.
    pub(super) async fn look_along(&mut self, too_large: &wire::Error) -> Result<Option<Heard>> {
        let refused = || fault("next", too_large);
        let Some(waiter) = &self.waiter else { return Ok(None) };
        let home = self.core.config.home(&self.id.name)?;
        let layout = self.core.config.dialect.mutex();
        let own = self.own_name(home.key)?;
        let listing = waiter.queue.shown().ok_or_else(refused)?;
        let ahead = listing.ahead(layout, home.key, &own, self.node.number).ok_or_else(refused)?;
        let client = self.core.client.clone();
        let exists = |node: &str| client.exists(&home.child(node));
        let mut left = ahead.len();
        while left > 0 {
            let from = left.saturating_sub(BATCH);
            let stats = future::join_all(ahead[from..left].iter().map(|node| exists(node))).await;
            for (at, stat) in (from..left).zip(stats).rev() {
                if stat.map_err(|error| fault("next", &error))?.is_some() {
                    self.is_behind(Waits::behind(ahead[at], None, at + 1), listing.parent)?;
                    return Ok(None);
                }
            }
            left = from;
        }
        // Asked after those ahead were told to be gone: it was there when they went.
        let own = exists(&own).await.map_err(|error| fault("next", &error))?;
        Ok(Some(if own.is_some() { Heard::Granted } else { Heard::Removed }))
    }
}
