//! The store: its sessions, the holders of a lock from the servers' answers, and breaks at all servers.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use super::servers::{Answers, Given, Servers, ToMajority, answered};
use super::session::{Asking, RedlockSession};
use super::votes::ServerUser;
use super::{Times, without_info};
use crate::error::{Error, ErrorKind, Result, rounded};
use crate::kit::reconnect::Reconnect;
use crate::kit::server::{Events, Server};
use crate::kit::try_again::TryAgainSession;
use crate::name::Name;
use crate::store::{Break, Capability, Contender, Expiry, Opening, Outline, Page, Queue, RequestId, Tasks};
use crate::stores::redis::try_again::Reader;
use crate::stores::redis::try_again::dialect::{Dialect, Found, Marks};
use crate::stores::redis::try_again::inspect::{self, contender};
use crate::stores::redis::wire::{Config, Link, link};

/// The ttl that bounds a look without a session.
const LOOKING: Duration = Duration::from_secs(10);

/// The store.
pub(super) struct Redlock {
    pub(super) servers: Vec<Arc<Config>>,
    pub(super) dialect: Arc<Dialect>,
    pub(super) times: Times,
}

impl fmt::Debug for Redlock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(&self.servers).finish()
    }
}

impl Redlock {
    fn servers(&self, links: Vec<Arc<Link>>, ttl: Duration, patience: Duration, tasks: Option<Tasks>) -> Arc<Servers> {
        let names = self.servers.iter().map(|config| format!("{config:?}"));
        Arc::new(Servers::new(names.zip(links).collect(), ttl, patience, tasks))
    }

    /// Reads the key at every server, until `is_decided` holds or all have answered.
    async fn found(
        &self,
        servers: &Servers,
        name: &Name,
        is_decided: impl Fn(&Given<Found>) -> bool,
    ) -> Result<Answers<Found>> {
        let mut answers = servers.ask(Arc::new(self.dialect.show(name)), |show, _, connection| {
            Box::pin(async move { connection.run("queue", &show).await })
        })?;
        answers.until(is_decided).await;
        answers.of_quorum("queue")?;
        Ok(answers)
    }

    fn read(&self, servers: &Servers, name: &Name, page: Page, given: Vec<(usize, Found)>) -> Result<Queue> {
        let (quorum, all) = (servers.quorum(), servers.size());
        let others: Vec<&String> = given.iter().filter_map(|(_, found)| found.other()).collect();
        if others.len() > all - quorum {
            return Err(self.dialect.trying().other_kind("queue", others[0]).with("name", name));
        }
        let mut others = claimants(self.dialect.marks, &given)?;
        let holders = take_holders(servers, &given, &mut others).into_iter().map(|holder| holder.contender);
        let mut queue = Queue::page_of(name.clone(), holders.collect(), page);
        for Claimant { contender, at, .. } in others {
            let who = contender.owner.as_ref().map_or_else(|| contender.id.to_string(), ToString::to_string);
            let at: Vec<String> = at.iter().map(|index| servers.names[*index].clone()).collect();
            queue.strangers.push(format!("{who} at {} of {all} servers: {}", at.len(), at.join(" ")));
        }
        let kinds = given.iter().filter_map(|(index, found)| Some((index, found.other()?)));
        queue
            .strangers
            .extend(kinds.map(|(index, kind)| format!("a key of the type {kind} at {}", servers.names[*index])));
        Ok(queue)
    }
}

impl Server for Redlock {
    type Session = TryAgainSession<Asking>;
    type Listed = ();

    fn capability(&self) -> &Capability {
        self.dialect.capability
    }

    fn session(
        &self,
        opening: Opening,
        events: Events,
    ) -> Result<(Arc<TryAgainSession<Asking>>, Arc<Reconnect<ToMajority>>)> {
        let ttl = opening.ttl;
        if self.times.drift(ttl) >= ttl / 2 {
            let message = "drift_ms is less than half of the ttl, for that is what it takes from every lock";
            return Err(Error::new(ErrorKind::Config, "open session", message).with("ttl", rounded(ttl)));
        }
        let session = RedlockSession::new(Arc::clone(&self.dialect), opening.clone(), self.times, self.servers.len());
        let session = TryAgainSession::new(Asking(session), opening, self.dialect.trying(), events);
        let opening = &session.opening;
        let links = self.servers.iter().enumerate().map(|(index, config)| {
            link(config, Arc::new(ServerUser { session: Arc::clone(&session), index }), Some(opening))
        });
        // Longer than a connection may take, so that its error arrives first, and shorter than the engine waits.
        let patience = opening.request_deadline * 19 / 20;
        let servers = self.servers(links.collect(), ttl, patience, Some(opening.tasks.clone()));
        servers.try_for(&session)?;
        Ok((Arc::clone(&session), to_majority(servers, Some(session))))
    }

    fn learned(&self, session: &TryAgainSession<Asking>) -> Option<Arc<Capability>> {
        (!session.backend.0.votes.sees_all_restarts()).then(|| Arc::new(without_info(self.dialect.capability)))
    }

    fn reader(&self) -> Arc<Reconnect<ToMajority>> {
        let user = || Arc::new(Reader(Arc::clone(&self.dialect)));
        let links = self.servers.iter().map(|config| link(config, user(), None)).collect();
        to_majority(self.servers(links, LOOKING, LOOKING / 3, None), None)
    }

    /// The clients that may hold the lock, from the answers: with a possible majority, or with keys that prevent every majority for ever.
    /// Other clients' keys are listed as strangers.
    async fn queue(&self, servers: &Servers, name: &Name, page: Page) -> Result<Queue> {
        self.dialect.check_name("queue", name)?;
        let answers = self.found(servers, name, |_| false).await?;
        servers.warn_of_silent(&answers);
        self.read(servers, name, page, answers.taken())
    }

    /// Returns as soon as a majority names the same holder: waiters have no time for silent servers.
    async fn contention(&self, servers: &Servers, name: &Name, mine: &[RequestId]) -> Result<Outline> {
        let is_named = |given: &Given<Found>| {
            let found = given.iter().flatten().flatten();
            let holders: Vec<_> = found.flat_map(Found::holders).map(|held| &held.by).collect();
            holders.iter().any(|one| holders.iter().filter(|other| *other == one).count() >= servers.quorum())
        };
        let given = self.found(servers, name, is_named).await?.taken();
        Ok(Outline::of(&self.read(servers, name, Page::ALL, given)?.contenders, mine))
    }

    /// The names with a key at a majority of the servers, counting silent servers as if they had the key. Each server lists all of its keys
    /// within the time of one request.
    async fn names(&self, servers: &Servers, (): (), prefix: &str) -> Result<(Vec<Name>, Option<()>)> {
        let what = (Arc::clone(&self.dialect), prefix.to_owned());
        let mut answers = servers.ask(what, |(dialect, prefix), _, connection| {
            Box::pin(async move {
                let (mut all, mut cursor) = (BTreeSet::new(), String::new());
                loop {
                    let (names, next) = inspect::names(&connection, &dialect, &cursor, &prefix).await?;
                    all.extend(names);
                    let Some(next) = next else { return Ok(all) };
                    cursor = next;
                }
            })
        })?;
        answers.until(|_| false).await;
        answers.of_quorum("names")?;
        servers.warn_of_silent(&answers);
        let given = answers.taken();
        let needed = servers.quorum().saturating_sub(servers.size() - given.len()).max(1);
        let mut at: BTreeMap<Name, usize> = BTreeMap::new();
        given.into_iter().flat_map(|(_, names)| names).for_each(|name| *at.entry(name).or_default() += 1);
        Ok((at.into_iter().filter(|(_, number)| *number >= needed).map(|(name, _)| name).collect(), None))
    }

    /// Breaks the grant at every server. Returns whether a server had it.
    async fn break_grant(&self, servers: &Servers, order: &Break) -> Result<bool> {
        let what = (Arc::clone(&self.dialect), order.clone());
        let mut answers = servers.ask(what, |(dialect, order), _, connection| {
            Box::pin(async move { inspect::break_grant(&connection, &dialect, &order).await })
        })?;
        answers.until(|_| false).await;
        answers.of_quorum("break")?;
        Ok(answers.taken().into_iter().any(|(_, was_there)| was_there))
    }

    async fn breaks(&self, servers: &Servers, name: &Name) -> Result<Vec<Break>> {
        breaks(servers, &self.dialect, name).await
    }
}

/// Each server has a patience of its own.
fn to_majority(servers: Arc<Servers>, session: Option<Arc<TryAgainSession<Asking>>>) -> Arc<Reconnect<ToMajority>> {
    let clock = Arc::clone(&servers.clock);
    Reconnect::new(ToMajority { servers, session }, clock, Duration::MAX)
}

/// A client whose value is at some servers.
struct Claimant {
    by: Vec<u8>,
    contender: Contender,
    /// The servers that have the value.
    at: Vec<usize>,
}

/// Takes the possible holders out of `claimants`: claimants that have a majority if silent servers have their value, too. If keys without
/// an end leave no majority of servers free, and no claimant has a certain majority, the holder is a claimant with such a key: so a user
/// can break it.
fn take_holders(servers: &Servers, given: &[(usize, Found)], claimants: &mut Vec<Claimant>) -> Vec<Claimant> {
    let (all, quorum) = (servers.size(), servers.quorum());
    let silent = all - given.len();
    // The expiry of a key of another type is unknown.
    let is_endless =
        |found: &Found| found.other().is_some() || found.holders().iter().any(|held| held.expiry == Expiry::Never);
    let is_barred = all - given.iter().filter(|(_, found)| is_endless(found)).count() < quorum;
    let is_certain = claimants.first().is_some_and(|first| first.at.len() >= quorum);
    let bars =
        |claimant: &Claimant| given.iter().any(|(index, found)| claimant.at.contains(index) && is_endless(found));
    match claimants.iter().position(bars) {
        Some(in_the_way) if is_barred && !is_certain => vec![claimants.remove(in_the_way)],
        _ => claimants.extract_if(.., |claimant| claimant.at.len() + silent >= quorum).collect(),
    }
}

/// The clients whose values are there, most servers first.
fn claimants(marks: &Marks, given: &[(usize, Found)]) -> Result<Vec<Claimant>> {
    let mut claimants: Vec<Claimant> = Vec::new();
    for (index, held) in given.iter().flat_map(|(index, found)| found.holders().iter().map(move |held| (index, held))) {
        match claimants.iter_mut().find(|claimant| claimant.by == held.by) {
            Some(claimant) => claimant.at.push(*index),
            None => {
                claimants.push(Claimant { by: held.by.clone(), contender: contender(marks, held)?, at: vec![*index] })
            }
        }
    }
    claimants.sort_by_key(|claimant| std::cmp::Reverse(claimant.at.len()));
    Ok(claimants)
}

/// The breaks that one server at least has recorded.
pub(super) async fn breaks(servers: &Servers, dialect: &Arc<Dialect>, name: &Name) -> Result<Vec<Break>> {
    let mut answers = servers.ask((Arc::clone(dialect), name.clone()), |(dialect, name), _, connection| {
        Box::pin(async move { inspect::breaks(&connection, &dialect, &name).await })
    })?;
    let quorum = servers.quorum();
    answers.until(|given: &Given<Vec<Break>>| answered(given) >= quorum).await;
    answers.of_quorum("breaks")?;
    let mut breaks = Vec::new();
    for order in answers.taken().into_iter().flat_map(|(_, breaks)| breaks) {
        if !breaks.contains(&order) {
            breaks.push(order);
        }
    }
    breaks.sort_by_key(|order| order.at);
    Ok(breaks)
}
