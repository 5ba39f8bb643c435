//! How a waiter notices its grant, for each kind of claim.
//!
//! - By **listing** the queue, after an event that it waits for ([`WaitingView`]).
//! - By the **watch** alone: a waiter for a mutex, and a reader behind one writer and any readers. The waiter also watches its own node. If
//!   only one contender is in the way, its departure is the grant, without a further request. A waiter for a mutex watches the two
//!   contenders ahead. When the farther one goes, the waiter lists, unless its last listing showed just these two, or the farther one was a
//!   holder of this session.
//!
//! Why the second is sound: numbers rise with every creation, so no contender appears ahead of a node that is there, and a listing sent after
//! our own creation shows all of them. A deletion is final, and one connection delivers events in the order of the transactions. So a waiter
//! is granted when the last contender that excludes it is reported gone, and its own node is not. Two conditions: (1) no other kind of lock
//! is in the parent, because Curator's downgrade adds a second node to a writer's; (2) the watches were set on the connection that reported
//! the deletion, because a reconnect reports missed events in no order. Otherwise the departure is a mere hint, and the waiter lists.
//!
//! A watch never grants a writer or a permit: a holder with a lighter claim, at its own number, still excludes them. Readers wait for no
//! reader, so a writer that becomes a reader admits them like a departure. No listing shows a grant, so a granted permit writes into its
//! own node if the next waiter waits for that; a session that dies before that counts as departed.

use std::future::poll_fn;
use std::task::{Context, Poll};

use fencelock_zookeeper as wire;
use fencelock_zookeeper::{ErrorKind as Wire, WatchEvent};
use futures_util::future;

use super::data;
use super::fault::fault;
use super::listing::{Listing, Parent};
use super::place::ZooKeeperPlace;
use super::queue_view::{View, WaitingView, Whose};
use crate::error::{Error, ErrorKind, Result};
use crate::kit::own_places::over;
use crate::store::{Loss, Standing};

/// A waiter's view of the contenders ahead. A future dropped half-way leaves the view unchanged, or makes it list again.
pub(super) struct Waiter {
    /// The parent of our node.
    pub(super) parent: Parent,
    /// The result of the last listing; `None` when it has to be listed anew.
    waits: Option<WaitingView>,
    watches: Vec<(Whose, wire::Watch)>,
    /// The connection on which the oldest of these watches was set.
    epoch: u64,
    /// The marked node before ours, in this version; the queue was listed after that.
    seen_version: Option<Box<(Box<str>, i32)>>,
    /// The node before was created by hand, and no client marks it when it is granted.
    predecessor_never_marks_grant: bool,
}

pub(super) enum Wake {
    /// The last contender that excluded this one is gone, and our own node was there then.
    Granted,
    /// Our own node is gone.
    Removed,
    /// The farther one of two is gone.
    SecondGone,
    /// Something changed: list.
    Changed,
}

impl ZooKeeperPlace {
    /// Listens until the place is granted or gone.
    pub(super) async fn settle(&mut self) -> Result<()> {
        if self.session.over().is_some() {
            return Err(over("next"));
        }
        while self.waiter.is_some() {
            // Requests are boxed: a place waits long and asks rarely.
            let listened = match self.missing()? {
                None => Box::pin(self.look()).await?,
                Some(missing) if missing.is_empty() => Some(self.hear().await?),
                Some(missing) => Box::pin(self.listen(missing)).await?,
            };
            match (listened, &mut self.waiter) {
                (Some(Wake::Granted), _) => self.is_granted(),
                (Some(Wake::Removed), _) => self.is_lost(Loss::Removed),
                (Some(Wake::SecondGone), _) => self.moved_up()?,
                (Some(Wake::Changed), Some(waiter)) => waiter.waits = None,
                _ => {}
            }
        }
        Ok(())
    }

    /// The farther one of the two ahead is gone. If it was the first of the queue, only the nearer one is left: numbers rise with every
    /// creation, so no contender has come between. Otherwise the queue is listed.
    fn moved_up(&mut self) -> Result<()> {
        let home = self.session.config.home(&self.id.name)?;
        let layout = self.session.config.dialect.mutex();
        let Some(waiter) = &mut self.waiter else { return Ok(()) };
        waiter.watches.retain(|(whose, _)| *whose != Whose::Second);
        let Some(waits) = &mut waiter.waits else { return Ok(()) };
        let second = waits.watched.iter().position(|(whose, _)| *whose == Whose::Second);
        let second = second.and_then(|at| layout.read(&waits.watched.remove(at).1, home.key));
        let is_known_first = |number| self.session.fronts.is_first(&self.id.name, waiter.parent, number);
        let was_first = second.is_some_and(|second| waits.ahead.waiters == 1 || is_known_first(second.number));
        if was_first {
            (waits.is_next, waits.ahead.waiters) = (true, 0);
            self.standing = Standing::Waiting(Some(waits.ahead));
        } else {
            waiter.waits = None;
        }
        Ok(())
    }

    async fn look(&mut self) -> Result<Option<Wake>> {
        let home = self.session.config.home(&self.id.name)?;
        match self.session.client.get_children(home.parent()).await {
            Ok((children, stat)) => self.saw(&Listing::new(children, &stat)).await,
            Err(error) if error.kind() == Wire::NoNode => Ok(Some(Wake::Removed)),
            Err(error) => Err(fault("next", &error)),
        }
    }

    /// Takes the result of a listing that was requested after the event.
    async fn saw(&mut self, listing: &Listing) -> Result<Option<Wake>> {
        let home = self.session.config.home(&self.id.name)?;
        let layout = self.session.config.layout_for(self.node.claim)?;
        let own = self.own_name(home.key)?;
        let mut waits = match listing.view(layout, home.key, &own, self.node.number) {
            View::Granted { tell } => {
                let is_there = !tell || self.tell_of_grant(&home.child(&own)).await?;
                return Ok(Some(if is_there { Wake::Granted } else { Wake::Removed }));
            }
            View::Missing => return Ok(Some(Wake::Removed)),
            View::Waits(waits) => waits,
            // Created by hand: no client of this layout puts a node ahead of an existing one.
            View::Conflict(claim) => return Err(intruder(ErrorKind::Conflict, &home.child(&own)).with("theirs", claim)),
            View::Twice => return Err(intruder(ErrorKind::Exhausted, &home.child(&own))),
        };
        let Some(waiter) = &self.waiter else { return Ok(None) };
        if waiter.predecessor_never_marks_grant && matches!(waits.watched[..], [(Whose::Predecessor, _)]) {
            waits.watched = vec![(Whose::Parent, "".into())];
        }
        let wanted = self.wanted(&waits)?;
        self.standing = Standing::Waiting(Some(waits.ahead));
        let Some(waiter) = &mut self.waiter else { return Ok(None) };
        if waiter.epoch != self.session.client.connection_epoch() {
            waiter.watches.clear();
        }
        waiter.keep(&wanted);
        (waiter.parent, waiter.waits) = (listing.parent, Some(waits));
        Ok(None)
    }

    /// The paths to watch during this wait. The own node is read last, so the node was there after a predecessor was found to be gone.
    fn wanted(&self, waits: &WaitingView) -> Result<Vec<(Whose, String)>> {
        let home = self.session.config.home(&self.id.name)?;
        let mut wanted: Vec<_> = waits
            .watched
            .iter()
            .map(|(whose, node)| match whose {
                Whose::Parent => (*whose, home.parent().to_owned()),
                _ => (*whose, home.child(node)),
            })
            .collect();
        if wanted.last().is_some_and(|(whose, _)| *whose == Whose::Nearest) {
            wanted.push((Whose::Own, self.path()?));
        }
        Ok(wanted)
    }

    /// The nodes that the last listing asks to watch, and that have no watch yet; `None` when the queue is to be listed.
    fn missing(&self) -> Result<Option<Vec<(Whose, String)>>> {
        let Some(waiter) = &self.waiter else { return Ok(None) };
        let Some(waits) = &waiter.waits else { return Ok(None) };
        let mut wanted = self.wanted(waits)?;
        wanted.retain(|(_, path)| waiter.watches.iter().all(|(_, watch)| watch.path() != path));
        Ok(Some(wanted))
    }

    async fn listen(&mut self, missing: Vec<(Whose, String)>) -> Result<Option<Wake>> {
        if let [(Whose::Parent, path)] = &missing[..] {
            return self.watch_parent(path).await;
        }
        let client = self.session.client.clone();
        let epoch = client.connection_epoch();
        let asked = missing.into_iter().map(|(whose, path)| {
            let answer = client.get_data_watched(&path);
            async move { (whose, answer.await) }
        });
        let answers = future::join_all(asked).await;
        let Some(waiter) = &mut self.waiter else { return Ok(None) };
        if waiter.watches.is_empty() {
            waiter.epoch = epoch;
        }
        waiter.watches.reserve_exact(answers.len());
        let (mut gone, mut is_notified) = (Vec::new(), false);
        for (whose, answer) in answers {
            match answer {
                Ok((data, stat, watch)) => {
                    is_notified |= whose == Whose::Predecessor && waiter.is_marked(watch.path(), &data, stat.version);
                    waiter.watches.push((whose, watch));
                }
                Err(error) if error.kind() == Wire::NoNode => gone.push(whose),
                Err(error) => return Err(fault("next", &error)),
            }
        }
        let is_fact = waiter.is_fact(&client);
        Ok(match gone[..] {
            [] if is_notified => Some(Wake::Changed),
            [] => None,
            [.., Whose::Own] => Some(Wake::Removed),
            [Whose::Nearest] if is_fact => Some(Wake::Granted),
            [Whose::Second] => Some(Wake::SecondGone),
            _ => Some(Wake::Changed),
        })
    }

    async fn watch_parent(&mut self, path: &str) -> Result<Option<Wake>> {
        let (children, stat, watch) = match self.session.client.get_children_watched(path).await {
            Ok(listed) => listed,
            Err(error) if error.kind() == Wire::NoNode => return Ok(Some(Wake::Removed)),
            Err(error) => return Err(fault("next", &error)),
        };
        if let Some(waiter) = &mut self.waiter {
            // To be listed again if a later step fails.
            waiter.waits = None;
            (waiter.watches, waiter.epoch) = (vec![(Whose::Parent, watch)], self.session.client.connection_epoch());
        }
        self.saw(&Listing::new(children, &stat)).await
    }

    /// Waits for an event of a contender ahead, or of our own node.
    async fn hear(&mut self) -> Result<Wake> {
        let Some(waiter) = &mut self.waiter else { return Ok(Wake::Changed) };
        match poll_fn(|cx| waiter.poll_fired(cx)).await {
            (_, WatchEvent::SessionOver) => Err(over("next")),
            (Whose::Own, WatchEvent::Deleted) => Ok(Wake::Removed),
            // Read after the event, so that an earlier end of our own node has arrived as well.
            (Whose::Nearest, WatchEvent::Deleted) if waiter.is_fact(&self.session.client) => Ok(Wake::Granted),
            (Whose::Second, WatchEvent::Deleted) => Ok(Wake::SecondGone),
            _ => Ok(Wake::Changed),
        }
    }

    /// Marks our node as granted; `false` if the node is gone.
    async fn tell_of_grant(&self, path: &str) -> Result<bool> {
        match &self.entry {
            Some(entry) => self.session.mark("next", path, entry).await,
            None => Ok(true),
        }
    }
}

impl Waiter {
    /// The waiter of a place whose listing showed this wait.
    pub(super) fn new(parent: Parent, waits: WaitingView) -> Box<Self> {
        Box::new(Self {
            parent,
            waits: Some(waits),
            watches: Vec::new(),
            epoch: 0,
            seen_version: None,
            predecessor_never_marks_grant: false,
        })
    }

    /// The watch on our own node, for a holder.
    pub(super) fn own(self) -> Option<wire::Watch> {
        self.watches.into_iter().find(|(whose, _)| *whose == Whose::Own).map(|(_, watch)| watch)
    }

    /// Keeps the watches that are still needed.
    fn keep(&mut self, wanted: &[(Whose, String)]) {
        let known = std::mem::take(&mut self.watches);
        let silent = known.into_iter().filter(|(_, watch)| watch.event().is_none());
        self.watches = silent
            .filter_map(|(_, watch)| {
                let (whose, _) = wanted.iter().find(|(_, path)| path == watch.path())?;
                Some((*whose, watch))
            })
            .collect();
    }

    /// Whether the departure of the nearest one ahead is a grant.
    fn is_fact(&self, client: &wire::Client) -> bool {
        let is_silent = |(whose, watch): &(Whose, wire::Watch)| *whose == Whose::Own && watch.event().is_none();
        self.waits.as_ref().is_some_and(|waits| waits.is_next)
            && self.watches.iter().any(is_silent)
            && client.connection_epoch() == self.epoch
    }

    /// Whether the contender before was granted, or never marks its grant: both need a new listing.
    fn is_marked(&mut self, path: &str, data: &[u8], version: i32) -> bool {
        self.predecessor_never_marks_grant |= !data::is_ours(data);
        let is_new = version > 0 && self.seen_version.as_ref().is_none_or(|seen| (&*seen.0, seen.1) != (path, version));
        if is_new {
            self.seen_version = Some(Box::new((path.into(), version)));
        }
        is_new || self.predecessor_never_marks_grant
    }

    /// The event that counts first.
    fn poll_fired(&mut self, cx: &mut Context<'_>) -> Poll<(Whose, WatchEvent)> {
        let fired = self.watches.iter_mut().filter_map(|(whose, watch)| match watch.poll_fired(cx) {
            Poll::Ready(event) => Some((*whose, event)),
            Poll::Pending => None,
        });
        fired.min_by_key(|(whose, _)| *whose).map_or(Poll::Pending, Poll::Ready)
    }
}

fn intruder(kind: ErrorKind, path: &str) -> Error {
    Error::new(kind, "next", "another client put a node ahead of one that waits").with("node", path)
}
