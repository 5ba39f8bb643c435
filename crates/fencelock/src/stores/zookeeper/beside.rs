//! Locks of other clients that are no queue of contenders: what stands below or beside the parent of a lock, and neither
//! waits for the queue there nor holds it up.

use std::collections::{BTreeSet, HashSet};

use fencelock_zookeeper as wire;
use futures_util::future;

use super::layout::{head_of, leading_id};
use super::note;
use super::path::Home;
use super::show::or_nothing;
use crate::store::{Beside, Owner, Waits};

/// Children of the parent of Curator's SemaphoreV2 and SemaphoreMutex: the leases, and a mutex for those who want one.
const LEASES: &str = "leases";
const LOCKS: &str = "locks";
/// What stands behind the path of kazoo's semaphore in that of its mutex.
const GUARD: &str = "-__lock__";

/// Each of kazoo's leases is looked at, to tell it from the parent of a lock with such a name.
const MOST: usize = 100;

type Answered<T> = wire::Result<T>;

/// Takes those of other clients' locks out of `others`, the children of `home` that are no contenders.
pub(super) async fn beside(client: &wire::Client, home: &Home<'_>, others: &mut Vec<String>) -> Answered<Vec<Beside>> {
    let mut found = Vec::new();
    let latches: Vec<_> = others.extract_if(.., |node| is_latch(node)).collect();
    found.extend(one(client, home, "Curator LeaderLatch", &latches, 0).await?);
    if [LEASES, LOCKS].iter().all(|part| others.iter().any(|node| node == part)) {
        let [leases, locks] = [LEASES, LOCKS].map(|part| home.child(part));
        let (leases, locks) = (children(client, &leases).await?, children(client, &locks).await?);
        let leases: Vec<_> = leases.into_iter().map(|node| format!("{LEASES}/{node}")).collect();
        found.extend(
            one(client, home, "Curator InterProcessSemaphoreV2 or InterProcessSemaphoreMutex", &leases, locks.len())
                .await?,
        );
    }
    let leases = kazoo_leases(client, home, others).await?;
    if !leases.is_empty() {
        others.retain(|node| !leases.contains(node));
        let waiting = children(client, &format!("{}{GUARD}", home.parent())).await?;
        found.extend(one(client, home, "kazoo Semaphore", &leases, waiting.len()).await?);
    }
    Ok(found)
}

/// The lock that `nodes` are, with so many who wait elsewhere, and who the first of them is.
async fn one(
    client: &wire::Client,
    home: &Home<'_>,
    what: &'static str,
    nodes: &[String],
    waiting: usize,
) -> Answered<Option<Beside>> {
    let first = nodes.iter().min_by_key(|node| node.get(node.len().saturating_sub(10)..).map(str::to_owned));
    let owner = match first {
        Some(node) => or_unseen(client.get_data(&home.child(node)).await)?.and_then(|(data, _)| owner(&data)),
        None => None,
    };
    let contenders = nodes.len() + waiting;
    Ok((contenders > 0).then_some(Beside { what, contenders, waits: Waits::No, owner }))
}

/// What such a node says is who made it.
fn owner(data: &[u8]) -> Option<Owner> {
    note::named(note::read(data)).owner
}

/// What is not there, or not for us to see, tells nothing: the queue itself is shown all the same.
fn or_unseen<T>(answered: Answered<T>) -> Answered<Option<T>> {
    match answered {
        Err(error) if error.kind() == wire::ErrorKind::NoAuth => Ok(None),
        answered => or_nothing(answered),
    }
}

async fn children(client: &wire::Client, path: &str) -> Answered<Vec<String>> {
    Ok(or_unseen(client.get_children(path).await)?.map_or_else(Vec::new, |(children, _)| children))
}

pub(super) fn is_latch(node: &str) -> bool {
    head_of(node).is_some_and(|head| head.ends_with("latch-"))
}

/// Whether `node` is a lease of Curator's, under [`LEASES`].
fn is_lease(node: &str) -> bool {
    head_of(node).is_some_and(|head| head.ends_with("-lease-"))
}

/// Whether `node` is named as kazoo's leases are, which are nodes of sessions.
fn may_be_kazoo_lease(node: &str) -> bool {
    node.len() == 32 && leading_id(node).is_some()
}

async fn kazoo_leases(client: &wire::Client, home: &Home<'_>, others: &[String]) -> Answered<Vec<String>> {
    let named: Vec<&String> = others.iter().filter(|node| may_be_kazoo_lease(node)).take(MOST).collect();
    let paths: Vec<_> = named.iter().map(|node| home.child(node)).collect();
    let stats = future::join_all(paths.iter().map(|path| client.exists(path))).await;
    let mut leases = Vec::new();
    for (node, stat) in named.into_iter().zip(stats) {
        leases.extend(stat?.filter(|stat| stat.ephemeral_owner != 0).map(|_| node.clone()));
    }
    Ok(leases)
}

/// What other clients' locks consist of, so that no part of one is listed as a lock of its own.
#[derive(Debug, Default)]
pub(super) struct Others {
    /// The mutexes of Curator's semaphores.
    mutexes: HashSet<String>,
    /// The names of kazoo's semaphores' mutexes.
    pub(super) guards: BTreeSet<String>,
}

impl Others {
    /// The name of the lock of another client that the node `below` with these children is, or is a part of. Those above
    /// it were asked for before.
    pub(super) fn is_part<'a>(&mut self, below: &'a str, children: &[String], is_ephemeral: bool) -> Option<&'a str> {
        let (above, last) = below.rsplit_once('/').unwrap_or(("", below));
        if [LEASES, LOCKS].iter().all(|part| children.iter().any(|child| child == part)) {
            self.mutexes.insert(format!("{below}/{LOCKS}"));
        }
        let is_whole = children.iter().any(|child| is_latch(child));
        if is_whole && !below.is_empty() {
            return Some(below);
        }
        if is_ephemeral && may_be_kazoo_lease(last) {
            self.guards.insert(format!("{above}{GUARD}"));
            return Some(above);
        }
        let is_lease = last == LEASES && children.iter().any(|child| is_lease(child));
        let is_mutex = self.mutexes.contains(below);
        (is_lease || (is_mutex && !children.is_empty())).then_some(above)
    }
}
