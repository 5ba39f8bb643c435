//! Places that share their lock, or may: readers, writers, permits.
//!
//! Such a waiter lists the queue, and lists again once it hears what [`hears`] names: there is no grant by a watch alone,
//! for a holder may take a lighter claim, at its own number. A grant shows in no listing of before it, so a permit that is granted writes
//! into its own node if the one behind it waits for that; whoever dies before it did, departs.
//!
//! A lighter claim is another node with the same number, created before the heavier one is deleted, as Curator's downgrade
//! does it: nobody behind ever sees neither.

use std::cmp::{Ordering, Reverse};
use std::future::poll_fn;
use std::sync::Arc;
use std::task::Poll;

use fencelock_zookeeper as wire;
use fencelock_zookeeper::{CreateMode, ErrorKind as Wire, WatchEvent};
use futures_util::future;

use super::dialect::Kind;
use super::fault::fault;
use super::layout::{Layout, Ticket, numbered, request_of};
use super::note;
use super::place::{State, ZooKeeperPlace, intruder, over};
use crate::error::{Error, ErrorKind, Result};
use crate::queue::{Admission, Claim, Hear, admits, granted, hears};
use crate::store::{Ahead, Entry, Loss};

/// With more holders than this ahead, their parent is watched instead of each of them.
const WATCHES: usize = 64;

/// What a listing says about a place.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Seen {
    /// It is granted; the one behind waits to be told, if `tell`.
    Granted {
        tell: bool,
    },
    Waits(Waits),
    /// The node is not in the listing.
    Missing,
    /// Somebody ahead uses another kind of lock, or another capacity.
    Conflict(Claim),
    /// Another node has the same number: the counter of the parent is at its end.
    Twice,
}

#[derive(Debug, PartialEq, Eq)]
pub(super) struct Waits {
    pub(super) hears: Hears,
    pub(super) ahead: Ahead,
}

/// What a waiter has to hear of.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Hears {
    /// The departure of any of these nodes.
    Departure(Vec<Box<str>>),
    /// The grant or the departure of this one.
    GrantOrDeparture(Box<str>),
    /// Any departure of too many.
    Children,
}

impl Hears {
    fn nodes(&self) -> &[Box<str>] {
        match self {
            Self::Departure(nodes) => nodes,
            Self::GrantOrDeparture(node) => std::slice::from_ref(node),
            Self::Children => &[],
        }
    }
}

/// What `children` say about `mine`, one of them with the number `number`, which asks for `claim`.
pub(super) fn see(layout: Layout, children: &[String], mine: &str, number: i64, claim: Claim) -> Seen {
    let (mut found, mut alien, mut twice) = (false, None, false);
    let (mut ahead, mut behind) = (Vec::new(), None::<Ticket>);
    for child in children {
        if child == mine {
            found = true;
            continue;
        }
        let Some(ticket) = layout.read(child, "") else { continue };
        match ticket.number.cmp(&number) {
            // Our own lighter claim, not finished.
            Ordering::Equal if request_of(child) == request_of(mine) => {}
            Ordering::Less | Ordering::Equal if ticket.alien => alien = Some(ticket.claim),
            Ordering::Equal => twice = true,
            Ordering::Less => ahead.push((ticket, child.as_str())),
            Ordering::Greater if behind.is_none_or(|known| ticket.number < known.number) => behind = Some(ticket),
            Ordering::Greater => {}
        }
    }
    match alien {
        _ if !found => Seen::Missing,
        Some(theirs) => Seen::Conflict(theirs),
        None if twice => Seen::Twice,
        None => judge(sorted(layout, ahead), claim, behind),
    }
}

/// The contenders ahead, front first. Of two nodes with which one becomes lighter, the heavier counts.
fn sorted(layout: Layout, mut ahead: Vec<(Ticket, &str)>) -> Vec<(Ticket, &str)> {
    ahead.sort_unstable_by_key(|(ticket, node)| (ticket.number, Reverse(ticket.claim.weight()), *node));
    ahead.dedup_by(|(second, other), (first, node)| is_one(layout, (first, node), (second, other)));
    ahead
}

/// Whether two nodes are of one contender that is about to become lighter.
pub(super) fn is_one(layout: Layout, (a, node): (&Ticket, &str), (b, other): (&Ticket, &str)) -> bool {
    let is_one = || match layout.kind() {
        Kind::Mutex => false,
        // Curator's ids differ.
        Kind::ReadWrite => true,
        Kind::Semaphore => request_of(node) == request_of(other),
    };
    a.number == b.number && is_one()
}

fn judge(ahead: Vec<(Ticket, &str)>, claim: Claim, behind: Option<Ticket>) -> Seen {
    let queue: Vec<Claim> = ahead.iter().map(|(ticket, _)| ticket.claim).chain([claim]).collect();
    let position = ahead.len();
    if let Admission::Conflict(theirs) = admits(queue[..position].iter().copied(), claim) {
        return Seen::Conflict(theirs);
    }
    let node = |at: usize| Box::<str>::from(ahead[at].1);
    let hears = match hears(&queue, position) {
        None => {
            let waits = |behind: Ticket| !behind.alien && !behind.claim.is_whole();
            let tell = !claim.is_whole() && !claim.is_reader() && behind.is_some_and(waits);
            return Seen::Granted { tell };
        }
        Some(Hear::Departure(at)) => Hears::Departure(vec![node(at)]),
        Some(Hear::GrantOrDeparture(at)) => Hears::GrantOrDeparture(node(at)),
        Some(Hear::AnyDepartureAhead) if position > WATCHES => Hears::Children,
        Some(Hear::AnyDepartureAhead) => Hears::Departure((0..position).map(node).collect()),
    };
    let count = |number: usize| u32::try_from(number).unwrap_or(u32::MAX);
    let holders = granted(&queue[..position]);
    Seen::Waits(Waits { hears, ahead: Ahead { holders: count(holders), waiters: count(position - holders) } })
}

/// What such a place needs besides what every place does.
pub(super) struct Share {
    /// For what is written into its nodes.
    entry: Arc<Entry>,
    /// What the last listing said, while waiting; `None` when it has to be listed.
    hears: Option<Hears>,
    watches: Vec<wire::Watch>,
    /// A node that was written into by this version of it, and the queue was listed after that.
    looked_after: Option<(Box<str>, i32)>,
    /// The one before was made by hand, and will not write into its node when it is granted.
    is_behind_a_mute: bool,
    lighter: Option<Lighter>,
}

/// A lighter claim under way.
struct Lighter {
    claim: Claim,
    /// The transaction that made its node, once the heavier one was seen beside it: from then on the place is never
    /// without a node, and whoever finds the heavier one gone need not know who deleted it.
    made_by: Option<i64>,
}

impl Share {
    pub(super) fn new(entry: Arc<Entry>, hears: Option<Hears>) -> Box<Self> {
        Box::new(Self { entry, hears, watches: Vec::new(), looked_after: None, is_behind_a_mute: false, lighter: None })
    }

    /// Listens to nothing any more.
    pub(super) fn settled(&mut self) {
        (self.hears, self.watches, self.looked_after) = (None, Vec::new(), None);
    }

    /// The claim of the node that may stand beside the place's own.
    pub(super) fn lighter(&self) -> Option<Claim> {
        self.lighter.as_ref().map(|lighter| lighter.claim)
    }

    fn watches(&self, path: &str) -> bool {
        self.watches.iter().any(|watch| watch.path() == path)
    }

    /// Waits for any of the events.
    async fn hear(&mut self) -> Result<()> {
        let watches = &mut self.watches;
        let event = poll_fn(|cx| {
            let mut fired = watches.iter_mut().filter_map(|watch| match watch.poll_fired(cx) {
                Poll::Ready(event) => Some(event),
                Poll::Pending => None,
            });
            fired.next().map_or(Poll::Pending, Poll::Ready)
        });
        if event.await == WatchEvent::SessionOver {
            return Err(over());
        }
        self.hears = None;
        Ok(())
    }
}

impl ZooKeeperPlace {
    /// Listens until the place is granted or gone.
    pub(super) async fn settle_share(&mut self) -> Result<()> {
        while matches!(self.state, State::Waiting(_)) {
            let Some(share) = &self.share else { return Ok(()) };
            match &share.hears {
                None => Box::pin(self.look_among()).await?,
                Some(_) if self.is_set()? => self.hear_among().await?,
                Some(Hears::Children) => Box::pin(self.watch_parent()).await?,
                Some(_) => Box::pin(self.watch_nodes()).await?,
            }
        }
        Ok(())
    }

    async fn hear_among(&mut self) -> Result<()> {
        match &mut self.share {
            Some(share) => share.hear().await,
            None => Ok(()),
        }
    }

    /// Whether everything is watched that the last listing asks for.
    fn is_set(&self) -> Result<bool> {
        let home = self.core.config.home(&self.id.name)?;
        let Some(share) = &self.share else { return Ok(false) };
        Ok(match &share.hears {
            None => false,
            Some(Hears::Children) => share.watches(home.parent()),
            Some(hears) => hears.nodes().iter().all(|node| share.watches(&home.child(node))),
        })
    }

    fn see(&self, children: &[String]) -> Result<Seen> {
        let home = self.core.config.home(&self.id.name)?;
        let (layout, node) = (self.core.config.layout_for(self.node.claim)?, self.node);
        let own = numbered(layout.prefix(self.id.request, node.claim, home.key), node.number);
        let mut seen = see(layout, children, &own, node.number, node.claim);
        if let (Seen::Waits(waits), Some(share)) = (&mut seen, &self.share)
            && share.is_behind_a_mute
            && matches!(waits.hears, Hears::GrantOrDeparture(_))
        {
            waits.hears = Hears::Children;
        }
        Ok(seen)
    }

    /// Lists the queue.
    async fn look_among(&mut self) -> Result<()> {
        let home = self.core.config.home(&self.id.name)?;
        let children = match self.core.client.get_children(home.parent()).await {
            Ok((children, _)) => children,
            Err(error) if error.kind() == Wire::NoNode => Vec::new(),
            Err(error) => return Err(fault("next", &error)),
        };
        match self.see(&children)? {
            Seen::Granted { tell } => {
                let is_there = !tell || tell_of_grant(self).await?;
                if is_there { self.is_granted() } else { self.is_lost(Loss::Removed) }
            }
            Seen::Missing => self.is_lost(Loss::Removed),
            Seen::Waits(waits) => {
                self.state = State::Waiting(waits.ahead);
                let Some(share) = &mut self.share else { return Ok(()) };
                let wanted: Vec<String> = match &waits.hears {
                    Hears::Children => vec![home.parent().to_owned()],
                    hears => hears.nodes().iter().map(|node| home.child(node)).collect(),
                };
                share.watches.retain(|watch| watch.heard().is_none() && wanted.iter().any(|path| path == watch.path()));
                share.hears = Some(waits.hears);
            }
            // Made by hand: nothing that counts puts a node ahead of one that is there.
            Seen::Conflict(claim) => {
                return Err(intruder(ErrorKind::Conflict, &self.path()?).with("theirs", claim));
            }
            Seen::Twice => return Err(intruder(ErrorKind::Exhausted, &self.path()?)),
        }
        Ok(())
    }

    /// Sets the watches that are not set, all in one go. What is found changed meanwhile asks for another listing.
    async fn watch_nodes(&mut self) -> Result<()> {
        let home = self.core.config.home(&self.id.name)?;
        let Some(share) = &mut self.share else { return Ok(()) };
        let Some(hears) = &share.hears else { return Ok(()) };
        let nodes: Vec<_> = hears.nodes().iter().map(|node| (node.clone(), home.child(node))).collect();
        let unset = nodes.into_iter().filter(|(_, path)| !share.watches(path));
        let asked = unset.map(|(node, path)| {
            let answer = self.core.client.get_data_watched(&path);
            async move { (node, answer.await) }
        });
        let hears_of_grants = matches!(hears, Hears::GrantOrDeparture(_));
        for (node, answer) in future::join_all(asked).await {
            match answer {
                Ok((data, stat, watch)) => {
                    share.watches.push(watch);
                    if hears_of_grants && !note::is_ours(&data) {
                        (share.is_behind_a_mute, share.hears) = (true, None);
                    }
                    let written = (node, stat.version);
                    if hears_of_grants && stat.version > 0 && share.looked_after.as_ref() != Some(&written) {
                        share.looked_after = Some(written);
                        share.hears = None;
                    }
                }
                Err(error) if error.kind() == Wire::NoNode => share.hears = None,
                Err(error) => return Err(fault("next", &error)),
            }
        }
        Ok(())
    }

    async fn watch_parent(&mut self) -> Result<()> {
        let home = self.core.config.home(&self.id.name)?;
        let (children, watch) = match self.core.client.get_children_watched(home.parent()).await {
            Ok((children, _, watch)) => (children, Some(watch)),
            Err(error) if error.kind() == Wire::NoNode => (Vec::new(), None),
            Err(error) => return Err(fault("next", &error)),
        };
        let is_same = matches!(self.see(&children)?, Seen::Waits(Waits { hears: Hears::Children, .. }));
        let Some(share) = &mut self.share else { return Ok(()) };
        share.watches = watch.into_iter().collect();
        if !is_same {
            share.hears = None;
        }
        Ok(())
    }

    /// Takes the lighter claim; whatever fails half-way is gone on with by the next call.
    pub(super) async fn lighten_to(&mut self, claim: Claim) -> Result<()> {
        let mine = self.node.claim;
        let half_way = self.share.as_ref().and_then(|share| share.lighter());
        if claim == mine && half_way.is_none() {
            return Ok(());
        }
        if claim.capacity() != mine.capacity() || claim.weight() > mine.weight() {
            let message = "a lighter claim has the same capacity and less weight";
            return Err(Error::new(ErrorKind::Config, "lighten", message).with("held", mine).with("asked", claim));
        }
        self.core.config.layout_for(claim)?;
        if !matches!(self.state, State::Granted) {
            return Err(Error::new(ErrorKind::Lost, "lighten", "the place is not held"));
        }
        if half_way.is_some_and(|other| other != claim) {
            self.go_on_lightening().await?;
            return Box::pin(self.lighten_to(claim)).await;
        }
        // A second node of this place draws a number of its own, too.
        self.is_alone = false;
        if let Some(share) = &mut self.share {
            share.lighter.get_or_insert(Lighter { claim, made_by: None });
        }
        self.go_on_lightening().await
    }

    async fn go_on_lightening(&mut self) -> Result<()> {
        let Some(share) = &mut self.share else { return Ok(()) };
        let Some(lighter) = &mut share.lighter else { return Ok(()) };
        let (core, request) = (Arc::clone(&self.core), self.id.request);
        let path = |claim: Claim| core.path(&self.id.name, request, self.node.with(claim));
        let (heavy, light) = (path(self.node.claim)?, path(lighter.claim)?);
        if let Err(full) = core.table.lightening(request, lighter.claim, &light) {
            share.lighter = None;
            return Err(full.refused("lighten"));
        }
        if lighter.made_by.is_none() {
            let note = note::lighter(&core.owner, &share.entry, lighter.claim, self.node.czxid);
            lighter.made_by = core.make_lighter(&light, &heavy, &note).await?;
        }
        let is_there = match lighter.made_by {
            Some(made_by) => core.replace(&heavy, &light, made_by).await?,
            None => false,
        };
        if !is_there {
            core.delete("lighten", &light).await?;
            return Err(Error::new(ErrorKind::Lost, "lighten", "the place is gone"));
        }
        self.node = self.node.with(lighter.claim);
        share.lighter = None;
        core.table.lightened(request, self.node.claim);
        Ok(())
    }
}

/// Writes into the node that it is granted; `false` when it is gone.
async fn tell_of_grant(place: &ZooKeeperPlace) -> Result<bool> {
    let Some(share) = &place.share else { return Ok(true) };
    place.core.mark("next", &place.path()?, &share.entry).await
}

impl super::session::Core {
    /// Writes into a node of ours that it is granted; `false` when it is gone.
    pub(super) async fn mark(&self, operation: &'static str, path: &str, entry: &Entry) -> Result<bool> {
        match self.client.set_data(path, &note::granted(&self.owner, entry), None).await {
            Ok(_) => Ok(true),
            Err(error) if error.kind() == Wire::NoNode => Ok(false),
            Err(error) => Err(fault(operation, &error)),
        }
    }

    /// Makes the node of a lighter claim, or finds the one that a request made whose answer was lost. Says which
    /// transaction made it; `None` when the heavier node was gone by then: somebody else may have been granted.
    async fn make_lighter(&self, light: &str, heavy: &str, note: &[u8]) -> Result<Option<i64>> {
        let failed = |error: wire::Error| fault("lighten", &error);
        let created = self.client.create(light, note, CreateMode::Ephemeral, &self.config.node_acl());
        // Requests of one connection are answered in order, so this is how it stands after the create.
        let (made, beside) = (self.client.exists(light), self.client.exists(heavy));
        let (created, made, beside) = future::join3(created, made, beside).await;
        if let Err(error) = created
            && !matches!(error.kind(), Wire::NodeExists | Wire::NoNode)
        {
            return Err(failed(error));
        }
        let (made, beside) = (made.map_err(failed)?, beside.map_err(failed)?);
        let made = made.filter(|stat| stat.ephemeral_owner == self.id && beside.is_some());
        Ok(made.map(|stat| stat.czxid))
    }

    /// Deletes the heavier node; whether the lighter one holds the place then.
    async fn replace(&self, heavy: &str, light: &str, made_by: i64) -> Result<bool> {
        match self.client.delete(heavy, None).await {
            Ok(()) => Ok(true),
            // By a request of ours that nobody heard the answer to, or by somebody who breaks the grant: then the
            // lighter one goes as well.
            Err(error) if error.kind() == Wire::NoNode => {
                let stat = self.client.exists(light).await.map_err(|error| fault("lighten", &error))?;
                Ok(stat.is_some_and(|stat| stat.czxid == made_by))
            }
            Err(error) => Err(fault("lighten", &error)),
        }
    }
}
