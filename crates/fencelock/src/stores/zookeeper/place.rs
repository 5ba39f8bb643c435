//! One place: how it waits, and how it is left.
//!
//! A waiter learns that it is next in one of two ways.
//!
//! - By **listing** the queue once the one ahead of it is gone.
//! - By the **watch** alone. It watches the two ahead of it and its own node. When the farther one goes, it lists, unless it
//!   is known that nobody was ahead of that one: a listing showed just these two, or another place of this session has told
//!   how far the front has moved. Once only one contender is ahead, that one's departure is the grant, with nothing asked in
//!   between.
//!
//! Why the second is sound: numbers rise with every creation, so nobody appears ahead of a node that is there, and a
//! listing sent after our own creation shows everybody ahead. A deletion is final, and the events of one connection come in
//! the order of the transactions; so when the last one ahead is told to be gone and our own node was not, ours is the
//! first. It holds only while (1) no other kind of lock is in the parent, for Curator's downgrade puts a second node beside a
//! writer's; (2) the watches were set on the connection that told of the deletion, for after a reconnect what happened meanwhile is
//! told in no order. Otherwise the departure is a hint like any other, and the queue is listed.

use std::future::poll_fn;
use std::sync::Arc;
use std::task::Poll;

use fencelock_zookeeper as wire;
use fencelock_zookeeper::{ErrorKind as Wire, WatchEvent};
use futures_core::future::BoxFuture;

use super::config::HandOver;
use super::fault::fault;
use super::layout::{Ticket, numbered};
use super::line::{self, View};
use super::outlook::{Listing, Parent, Queue};
use super::session::Core;
use super::share::Share;
use super::table::Node;
use crate::engine::clock::Moment;
use crate::error::{Error, ErrorKind, Result};
use crate::queue::Claim;
use crate::store::{self, Left, Loss, Place, PlaceId, Standing};

pub(super) struct ZooKeeperPlace {
    pub(super) core: Arc<Core>,
    pub(super) id: PlaceId,
    pub(super) node: Node,
    pub(super) state: State,
    /// Only while waiting for a mutex.
    pub(super) cursor: Option<Box<Cursor>>,
    /// Of a reader, a writer or a permit.
    pub(super) share: Option<Box<Share>>,
    /// Its node was the only child of its parent when it was created, and is the only one of this place.
    pub(super) is_alone: bool,
}

/// Where the place stands, in few bytes.
#[derive(Clone, Copy)]
pub(super) enum State {
    Granted,
    /// So many are ahead.
    Waiting(store::Ahead),
    Lost(Loss),
}

/// What a waiter knows of those ahead. Whatever future is dropped half-way leaves it as it was, or asks for a new look.
pub(super) struct Cursor {
    /// What is known of the queue in this session.
    pub(super) queue: Arc<Queue>,
    /// Under which parent our node is.
    parent: Parent,
    /// What the last listing said; `None` when it has to be listed anew.
    ahead: Option<line::Ahead>,
    nearest: Option<wire::Watch>,
    second: Option<wire::Watch>,
    own: Option<wire::Watch>,
    /// The connection that the oldest of these watches was set on.
    epoch: u64,
}

/// What a waiter heard.
pub(super) enum Heard {
    /// The last one ahead is gone, and our own node was there when it went.
    First,
    /// Our own node is gone.
    Removed,
    /// The farther one of two is gone.
    SecondGone,
    /// Something changed: list.
    Changed,
}

impl ZooKeeperPlace {
    pub(super) fn granted(
        core: &Arc<Core>,
        id: PlaceId,
        node: Node,
        share: Option<Box<Share>>,
        is_alone: bool,
    ) -> Self {
        Self { core: Arc::clone(core), id, node, state: State::Granted, cursor: None, share, is_alone }
    }

    pub(super) fn waiting(core: &Arc<Core>, id: PlaceId, node: Node, ahead: line::Ahead, seen: &Arc<Listing>) -> Self {
        let (state, parent) = (State::Waiting(behind(ahead.count)), seen.parent);
        let queue = core.outlook.queue(&id.name);
        queue.shows(seen, node.number);
        let cursor = Cursor { queue, parent, ahead: Some(ahead), nearest: None, second: None, own: None, epoch: 0 };
        let cursor = Some(Box::new(cursor));
        Self { core: Arc::clone(core), id, node, state, cursor, share: None, is_alone: false }
    }

    /// A reader's, a writer's or a permit's.
    pub(super) fn shared(core: &Arc<Core>, id: PlaceId, node: Node, state: State, share: Box<Share>) -> Self {
        Self { core: Arc::clone(core), id, node, state, cursor: None, share: Some(share), is_alone: false }
    }

    pub(super) fn lost(core: &Arc<Core>, id: PlaceId, node: Node, loss: Loss) -> Self {
        let state = State::Lost(loss);
        Self { core: Arc::clone(core), id, node, state, cursor: None, share: None, is_alone: false }
    }

    pub(super) fn path(&self) -> Result<String> {
        self.core.path(&self.id.name, self.id.request, self.node)
    }

    /// Listens until the place is granted or gone.
    async fn settle(&mut self) -> Result<Standing> {
        if self.core.is_over() {
            return Err(over());
        }
        self.settle_share().await?;
        while let Some(cursor) = &mut self.cursor {
            // Requests are boxed: a place waits for long, and asks for a moment.
            let heard = match &cursor.ahead {
                None => Box::pin(self.look()).await?,
                Some(_) if !cursor.is_set(self.core.config.hand_over) => Box::pin(self.listen()).await?,
                Some(_) => Some(cursor.hear(&self.core.client).await?),
            };
            match heard {
                None => {}
                Some(Heard::First) => self.is_granted(),
                Some(Heard::Removed) => self.is_lost(Loss::Removed),
                Some(Heard::SecondGone) => self.moved_up()?,
                Some(Heard::Changed) => {
                    if let Some(cursor) = &mut self.cursor {
                        cursor.ahead = None;
                    }
                }
            }
        }
        Ok(self.standing())
    }

    /// The farther one of the two ahead is gone. If it was the first of the queue, only the nearer one is left; numbers rise with
    /// every creation, so nobody has come between.
    fn moved_up(&mut self) -> Result<()> {
        let home = self.core.config.home(&self.id.name)?;
        let layout = self.core.config.dialect.mutex();
        let Some(cursor) = &mut self.cursor else { return Ok(()) };
        cursor.second = None;
        let Some(ahead) = &mut cursor.ahead else { return Ok(()) };
        let second = ahead.second.take().and_then(|node| layout.read(&node, home.key));
        let was_first = |ticket: &Ticket| ahead.count == 2 || cursor.queue.is_first(cursor.parent, ticket.number);
        if ahead.pure && second.as_ref().is_some_and(was_first) {
            ahead.count = 1;
            self.state = State::Waiting(behind(1));
        } else {
            cursor.ahead = None;
        }
        Ok(())
    }

    /// Lists the queue.
    async fn look(&mut self) -> Result<Option<Heard>> {
        let Some(cursor) = &self.cursor else { return Ok(None) };
        let home = self.core.config.home(&self.id.name)?;
        let listing = match cursor.queue.list(&self.core.client, home.parent()).await {
            Ok(listing) => listing,
            Err(error) if error.kind() == Wire::NoNode => return Ok(Some(Heard::Removed)),
            Err(error) if error.kind() == Wire::TooLarge => return self.look_along(&error).await,
            Err(error) => return Err(fault("next", &error)),
        };
        let layout = self.core.config.dialect.mutex();
        let own = numbered(layout.prefix(self.id.request, self.node.claim, home.key), self.node.number);
        let ahead = match listing.view(layout, home.key, &own, self.node.number) {
            View::First => return Ok(Some(Heard::First)),
            View::Missing => return Ok(Some(Heard::Removed)),
            View::Behind(ahead) => ahead,
            // Made by hand: nothing that counts puts a node ahead of one that is there.
            View::Conflict(claim) => return Err(intruder(ErrorKind::Conflict, &home.child(&own)).with("theirs", claim)),
            View::Twice => return Err(intruder(ErrorKind::Exhausted, &home.child(&own))),
        };
        cursor.queue.shows(&listing, self.node.number);
        self.is_behind(ahead, listing.parent)?;
        Ok(None)
    }

    /// Waits behind `ahead` from now on, under this parent.
    pub(super) fn is_behind(&mut self, ahead: line::Ahead, parent: Parent) -> Result<()> {
        let home = self.core.config.home(&self.id.name)?;
        let layout = self.core.config.dialect.mutex();
        self.state = State::Waiting(behind(ahead.count));
        if let Some(cursor) = &mut self.cursor {
            if cursor.epoch != self.core.client.connection_epoch() {
                (cursor.nearest, cursor.second, cursor.own) = (None, None, None);
            }
            if ahead.count == 1
                && let Some(first) = layout.read(&ahead.nearest, home.key)
            {
                cursor.queue.begins_at(parent, first.number);
            }
            cursor.parent = parent;
            cursor.keep(&ahead, |name| home.child(name));
            cursor.ahead = Some(ahead);
        }
        Ok(())
    }

    /// Sets the watches that are not set: the farther one first and our own node last, so that a predecessor found gone
    /// was gone while our own node was still there.
    async fn listen(&mut self) -> Result<Option<Heard>> {
        let Some(cursor) = &mut self.cursor else { return Ok(None) };
        let Some(ahead) = cursor.ahead.clone() else { return Ok(None) };
        let home = self.core.config.home(&self.id.name)?;
        let by_watch = self.core.config.hand_over == HandOver::Watch;
        let client = self.core.client.clone();
        let epoch = client.connection_epoch();
        let fresh = cursor.nearest.is_none() && cursor.second.is_none() && cursor.own.is_none();
        let watch = |path: String| client.get_data_watched(&path);
        let (has_second, has_nearest, has_own) =
            (cursor.second.is_some(), cursor.nearest.is_some(), cursor.own.is_some());
        let second = ahead.second.as_ref().filter(|_| by_watch && !has_second).map(|name| watch(home.child(name)));
        let nearest = (!has_nearest).then(|| watch(home.child(&ahead.nearest)));
        let own = if by_watch && !has_own { Some(watch(self.path()?)) } else { None };
        let (second, nearest, own) = (answer(second).await?, answer(nearest).await?, answer(own).await?);
        let Some(cursor) = &mut self.cursor else { return Ok(None) };
        if fresh {
            cursor.epoch = epoch;
        }
        Ok(cursor.set(own, nearest, second, &client))
    }

    pub(super) fn is_granted(&mut self) {
        self.state = State::Granted;
        if let Some(share) = &mut self.share {
            share.settled();
        }
        let own = self.cursor.take().and_then(|cursor| {
            cursor.queue.begins_at(cursor.parent, self.node.number);
            cursor.own
        });
        self.core.table.hold(self.id.request, own);
    }

    pub(super) fn is_lost(&mut self, loss: Loss) {
        self.state = State::Lost(loss);
        if let Some(share) = &mut self.share {
            share.settled();
        }
        self.cursor = None;
        self.core.table.forget(self.id.request);
    }
}

impl Cursor {
    /// Whether everything is watched that the last listing asks for.
    fn is_set(&self, hand_over: HandOver) -> bool {
        let Some(ahead) = &self.ahead else { return false };
        let by_list = self.nearest.is_some();
        let by_watch = self.own.is_some() && (self.second.is_some() || ahead.second.is_none());
        by_list && (by_watch || hand_over == HandOver::List)
    }

    /// Keeps the watches that are still of use for a waiter behind `ahead`.
    fn keep(&mut self, ahead: &line::Ahead, path: impl Fn(&str) -> String) {
        let silent = |watch: &wire::Watch| watch.heard().is_none();
        let mut known = [self.nearest.take(), self.second.take()];
        let mut keep = |name: Option<&str>| {
            let path = path(name?);
            known.iter_mut().find(|watch| watch.as_ref().is_some_and(|w| w.path() == path && silent(w)))?.take()
        };
        self.nearest = keep(Some(&ahead.nearest));
        self.second = keep(ahead.second.as_deref());
        self.own = self.own.take().filter(silent);
    }

    /// Takes the watches that were asked for; says what was found gone instead.
    fn set(&mut self, own: Watched, nearest: Watched, second: Watched, client: &wire::Client) -> Option<Heard> {
        match own {
            Watched::Gone => return Some(Heard::Removed),
            Watched::Set(watch) => self.own = Some(watch),
            Watched::NotAsked => {}
        }
        match nearest {
            Watched::Gone if self.is_fact(client) => return Some(Heard::First),
            Watched::Gone => return Some(Heard::Changed),
            Watched::Set(watch) => self.nearest = Some(watch),
            Watched::NotAsked => {}
        }
        match second {
            Watched::Gone => return Some(Heard::SecondGone),
            Watched::Set(watch) => self.second = Some(watch),
            Watched::NotAsked => {}
        }
        None
    }

    /// Whether the departure of the nearest one ahead is a grant.
    fn is_fact(&self, client: &wire::Client) -> bool {
        self.ahead.as_ref().is_some_and(|ahead| ahead.count == 1 && ahead.pure)
            && self.own.as_ref().is_some_and(|own| own.heard().is_none())
            && client.connection_epoch() == self.epoch
    }

    /// Waits for news of those ahead, and of our own node.
    async fn hear(&mut self, client: &wire::Client) -> Result<Heard> {
        let (whose, event) = poll_fn(|cx| {
            // Our own node first: it may have gone before the one ahead. Then the order in which those ahead go.
            let watches =
                [(&mut self.own, Whose::Own), (&mut self.second, Whose::Second), (&mut self.nearest, Whose::Nearest)];
            for (watch, whose) in watches {
                if let Some(Poll::Ready(event)) = watch.as_mut().map(|watch| watch.poll_fired(cx)) {
                    return Poll::Ready((whose, event));
                }
            }
            Poll::Pending
        })
        .await;
        match (whose, event) {
            (_, WatchEvent::SessionOver) => Err(over()),
            (Whose::Own, WatchEvent::Deleted) => Ok(Heard::Removed),
            // Asked after the event was heard, so that an end of our own node before it has been heard as well.
            (Whose::Nearest, WatchEvent::Deleted) if self.is_fact(client) => Ok(Heard::First),
            (Whose::Second, WatchEvent::Deleted) => Ok(Heard::SecondGone),
            _ => Ok(Heard::Changed),
        }
    }
}

/// Whose node a watch is on.
enum Whose {
    Own,
    Nearest,
    Second,
}

/// What became of a watch.
enum Watched {
    NotAsked,
    Gone,
    Set(wire::Watch),
}

async fn answer(asked: Option<wire::Answer<(Vec<u8>, wire::Stat, wire::Watch)>>) -> Result<Watched> {
    let Some(asked) = asked else { return Ok(Watched::NotAsked) };
    match asked.await {
        Ok((_, _, watch)) => Ok(Watched::Set(watch)),
        Err(error) if error.kind() == Wire::NoNode => Ok(Watched::Gone),
        Err(error) => Err(fault("next", &error)),
    }
}

/// Behind so many in a queue of mutexes.
fn behind(count: u32) -> store::Ahead {
    store::Ahead { holders: 1, waiters: count.saturating_sub(1) }
}

pub(super) fn over() -> Error {
    Error::new(ErrorKind::Lost, "next", "the session is over")
}

pub(super) fn intruder(kind: ErrorKind, path: &str) -> Error {
    Error::new(kind, "next", "somebody put a node of its own ahead of one that waits").with("node", path)
}

impl Place for ZooKeeperPlace {
    fn id(&self) -> PlaceId {
        self.id.clone()
    }

    fn standing(&self) -> Standing {
        match self.state {
            State::Granted => Standing::Granted(self.node.grant()),
            State::Waiting(ahead) => Standing::Waiting(Some(ahead)),
            State::Lost(loss) => Standing::Lost(loss),
        }
    }

    fn next(&mut self, until: Moment) -> BoxFuture<'_, Result<Standing>> {
        Box::pin(async move {
            let clock = Arc::clone(&self.core.clock);
            tokio::select! {
                biased;
                settled = self.settle() => return settled,
                () = clock.sleep_until(until) => {}
            }
            Ok(self.standing())
        })
    }

    fn lighten(&mut self, claim: Claim) -> BoxFuture<'_, Result<()>> {
        Box::pin(self.lighten_to(claim))
    }

    fn leave(&mut self) -> BoxFuture<'_, Result<Left>> {
        Box::pin(async move {
            let (table, request) = (&self.core.table, self.id.request);
            // Not what the table says: it forgets a place whose node is gone, and the lighter one may have come after that.
            let lighter = self.share.as_ref().and_then(|share| share.lighter());
            let nodes = (self.node, lighter.map(|claim| self.node.with(claim)));
            table.unwatch(request);
            // One try: after an answer that did not come, nothing is concluded from the next one.
            let was_alone = std::mem::take(&mut self.is_alone);
            let left = match self.core.delete_place("leave", &self.id.name, request, nodes).await {
                Ok(true) => {
                    if was_alone {
                        self.core.alone.left(&self.id.name, self.node);
                    }
                    Left::Released
                }
                Ok(false) => Left::AlreadyGone,
                Err(error) => {
                    table.hold(request, None);
                    return Err(error);
                }
            };
            self.is_lost(Loss::Removed);
            Ok(left)
        })
    }
}
