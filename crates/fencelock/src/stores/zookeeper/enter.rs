//! Joining a queue: create and list, in one round trip.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use fencelock_zookeeper as wire;
use fencelock_zookeeper::{CreateMode, ErrorKind as Wire};
use futures_util::future;

use super::data;
use super::fault::fault;
use super::layout::{Layout, NUMBER_LIMIT, numbered, own_number};
use super::listing::Listing;
use super::numbers::{drawn, exhausted};
use super::path::LockPath;
use super::place::ZooKeeperPlace;
use super::places::{Node, RequestState};
use super::queue_view::View;
use super::session::{Found, ZooKeeperSession};
use super::wakes::Waiter;
use crate::error::{Error, ErrorKind, Result};
use crate::store::{Entered, Entry, Loss, Standing};

/// How often the client creates a vanished parent again: each time, another client's last node must have gone and the servers must have
/// cleaned up, all between two requests.
const TRIES: usize = 5;

/// An `enter` in progress.
struct Joining<'e> {
    session: &'e Arc<ZooKeeperSession>,
    entry: &'e Arc<Entry>,
    home: LockPath<'e>,
    layout: Layout,
}

struct Draft {
    /// The path without the number.
    path: String,
    data: Vec<u8>,
}

/// Our node, and the children of its parent, itself included.
struct Joined {
    node: Node,
    listing: Listing,
}

pub(super) async fn enter(session: &Arc<ZooKeeperSession>, entry: Arc<Entry>) -> Result<Entered> {
    let layout = session.config.layout_for(entry.claim)?;
    let joining = Joining { session, entry: &entry, home: session.config.home(&entry.name)?, layout };
    let draft = joining.draft();
    let joined = match session.places.begin(entry.id, entry.claim, &draft.path)? {
        None => joining.create(&draft).await?,
        // A deletion without an answer may take effect later: the node must not be granted.
        Some(RequestState::Placed(placed)) if placed.leaving => {
            joining.take_back(placed.node).await?;
            return Box::pin(enter(session, Arc::clone(&entry))).await;
        }
        Some(RequestState::Placed(placed)) => joining.look_again(placed.node).await?,
        Some(RequestState::Doubtful(_) | RequestState::Ending) => {
            match session.find(&entry.name, entry.id, entry.claim).await? {
                Some(Found { path, stat, listing }) => Joined { node: joining.placed(&path, &stat).await?, listing },
                None => joining.create(&draft).await?,
            }
        }
    };
    joining.decide(joined).await
}

impl Joining<'_> {
    fn draft(&self) -> Draft {
        let prefix = self.layout.prefix(self.entry.id, self.entry.claim, self.home.key);
        let (path, data) = (self.home.child(&prefix), data::write(&self.session.owner, self.entry));
        Draft { path, data }
    }

    fn create_node(&self, draft: &Draft) -> wire::Answer<wire::Created> {
        let acl = self.session.config.node_acl();
        self.session.client.create(&draft.path, &draft.data, CreateMode::EphemeralSequential, &acl)
    }

    /// Creates the node and lists the children of its parent.
    async fn create(&self, draft: &Draft) -> Result<Joined> {
        let client = &self.session.client;
        for attempt in 0..TRIES {
            let parents: Vec<_> = self.missing_parents(attempt).map(|path| self.make_parent(path)).collect();
            let created = self.create_node(draft);
            let listed = client.get_children(self.home.parent());
            let (parents, created, listed) = future::join3(future::join_all(parents), created, listed).await;
            if attempt == 0 {
                self.learn(&parents, &created);
            }
            match created {
                Ok(created) => {
                    let node = self.placed(&created.path, &created.stat).await?;
                    return match listed {
                        Ok((children, parent)) => Ok(Joined { node, listing: Listing::new(children, &parent) }),
                        Err(error) => Err(self.give_back(&created.path, fault("enter", &error)).await),
                    };
                }
                Err(error) if error.kind() == Wire::NoNode => {
                    let is_refusal = |error: &wire::Error| !matches!(error.kind(), Wire::NodeExists | Wire::NoNode);
                    let refused = parents.into_iter().filter_map(Result::err).find(is_refusal);
                    if let Some(refused) = refused {
                        return Err(self.not_created(&refused));
                    }
                }
                Err(error) => return Err(self.not_created(&error)),
            }
        }
        self.session.places.forget(self.entry.id);
        Err(Error::new(ErrorKind::Busy, "enter", "another client keeps deleting the lock's parent node").retryable())
    }

    fn own_name(&self, node: Node) -> String {
        numbered(self.layout.prefix(self.entry.id, node.claim, self.home.key), node.number)
    }

    /// The parents to create. A superfluous one is a write for all servers. So the first try creates none, or only the last parent if names
    /// were new recently; the second try the parents that this session has not seen; further tries all.
    fn missing_parents(&self, attempt: usize) -> impl Iterator<Item = &str> {
        let all = self.home.ancestors().count();
        let but_one = all.saturating_sub(1);
        let there = match attempt {
            0 if self.session.names_are_new.load(Ordering::Relaxed) => but_one,
            0 => all,
            1 if self.session.parent_was_there.load(Ordering::Relaxed) => {
                self.session.config.parent.matches('/').count().min(but_one)
            }
            _ => 0,
        };
        self.home.ancestors().skip(there)
    }

    /// Notes whether the next name is likely to be new as well, by the first try: then its parent is created in the same round trip.
    fn learn(&self, parents: &[wire::Result<wire::Created>], created: &wire::Result<wire::Created>) {
        let was_missing = |made: &wire::Result<_>| made.as_ref().err().is_none_or(|error| error.kind() == Wire::NoNode);
        let are_new = match (parents.last(), created) {
            (Some(made), _) => was_missing(made),
            (None, Err(error)) => error.kind() == Wire::NoNode,
            (None, Ok(_)) => return,
        };
        self.session.names_are_new.store(are_new, Ordering::Relaxed);
    }

    fn make_parent(&self, path: &str) -> wire::Answer<wire::Created> {
        self.session.client.create(path, b"", CreateMode::Container, &self.session.config.parent_acl())
    }

    /// The error of a create: a request that certainly had no effect needs no search.
    fn not_created(&self, error: &wire::Error) -> Error {
        if !error.outcome_unknown() {
            self.session.places.forget(self.entry.id);
        }
        fault("enter", error)
    }

    /// Our created node.
    async fn placed(&self, path: &str, stat: &wire::Stat) -> Result<Node> {
        self.session.parent_was_there.store(true, Ordering::Relaxed);
        let node = path.rsplit_once('/').map_or("", |(_, node)| node);
        let prefix = self.layout.prefix(self.entry.id, self.entry.claim, self.home.key);
        match self.grant(own_number(node, &prefix).unwrap_or(-1), stat) {
            Ok(node) => {
                // From here on the session knows the node's path, even if the listing fails.
                self.session.places.placed(self.entry.id, &self.entry.name, node);
                Ok(node)
            }
            Err(refused) => Err(self.give_back(path, refused).await),
        }
    }

    async fn look_again(&self, node: Node) -> Result<Joined> {
        let listing = Listing::synced(&self.session.client, self.home.parent()).await;
        Ok(Joined { node, listing: listing.map_err(|error| fault("enter", &error))? })
    }

    /// Our node, if its number and its transaction can be used.
    fn grant(&self, number: i64, stat: &wire::Stat) -> Result<Node> {
        if !(0..=NUMBER_LIMIT).contains(&number) {
            return Err(exhausted(&self.home, number));
        }
        drawn(&self.home, number);
        let czxid = u64::try_from(stat.czxid).ok();
        czxid.map(|czxid| Node { number, czxid, claim: self.entry.claim }).ok_or_else(|| {
            let message = "the ensemble's transaction numbers are past the last fencing token";
            Error::new(ErrorKind::Exhausted, "enter", message).with("czxid", stat.czxid)
        })
    }

    /// Takes our own node back after `error`; if the deletion is not certain, the caller has to look.
    async fn give_back(&self, path: &str, error: Error) -> Error {
        if error.is_retryable() {
            return error.outcome_unknown();
        }
        match self.session.delete("enter", path).await {
            Ok(_) => {
                self.session.places.forget(self.entry.id);
                error
            }
            Err(failed) => error.with("and its node was not deleted", failed).outcome_unknown(),
        }
    }

    async fn decide(&self, joined: Joined) -> Result<Entered> {
        let Joined { node, listing } = joined;
        let name = self.own_name(node);
        let path = self.home.child(&name);
        match listing.view(self.layout, self.home.key, &name, node.number) {
            View::Granted { tell: false } => Ok(self.granted(node)),
            View::Granted { tell: true } => match self.session.mark("enter", &path, self.entry).await {
                Ok(true) => Ok(self.granted(node)),
                Ok(false) => Ok(self.removed(node)),
                Err(error) => Err(self.give_back(&path, error).await),
            },
            View::Waits(waits) if self.entry.wait => {
                let standing = Standing::Waiting(Some(waits.ahead));
                Ok(self.place(node, standing, Some(Waiter::new(listing.parent, waits))))
            }
            View::Waits(_) => self.take_back(node).await.map(|()| Entered::Busy),
            View::Conflict(claim) => self.take_back(node).await.map(|()| Entered::Conflict(claim)),
            View::Twice => Err(self.give_back(&path, exhausted(&self.home, node.number)).await),
            View::Missing => Ok(self.removed(node)),
        }
    }

    fn granted(&self, node: Node) -> Entered {
        self.session.places.hold(self.entry.id, None);
        self.place(node, Standing::Granted(node.grant()), None)
    }

    /// The place of a node that is gone already.
    fn removed(&self, node: Node) -> Entered {
        self.session.places.forget(self.entry.id);
        self.place(node, Standing::Lost(Loss::Removed), None)
    }

    fn place(&self, node: Node, standing: Standing, waiter: Option<Box<Waiter>>) -> Entered {
        Entered::In(Box::new(ZooKeeperPlace::new(self.session, self.entry, node, standing, waiter)))
    }

    async fn take_back(&self, node: Node) -> Result<()> {
        self.session.places.unwatch(self.entry.id);
        let path = self.home.child(&self.own_name(node));
        self.session.delete("enter", &path).await.map_err(Error::outcome_unknown)?;
        self.session.places.forget(self.entry.id);
        Ok(())
    }
}
