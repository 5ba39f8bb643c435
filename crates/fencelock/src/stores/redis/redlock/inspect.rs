//! Who holds a lock as the servers tell it, and breaking a grant at all of them.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use redis::Value;

use super::servers::{Answers, Given, Servers, heard};
use crate::error::Result;
use crate::kit::record::{self, Record};
use crate::name::Name;
use crate::store::{Break, Contender, Expiry, Outline, Page, PlaceId, Queue, RequestId};
use crate::stores::redis::try_again::dialect::{Dialect, Found, Marks, other_kind};
use crate::stores::redis::try_again::inspect::{self, contender, no_records};

/// One of those whose value is at some servers.
struct Claimant {
    by: Vec<u8>,
    contender: Contender,
    /// Which servers have it.
    at: Vec<usize>,
}

/// Takes those out of `claimants` who may hold: who have a majority if silent servers have theirs as well; or, when nobody has one for
/// certain and keys that do not run out are at so many servers that nobody can have one, one of these, so that it can be broken.
fn take_holders(servers: &Servers, given: &[(usize, Found)], claimants: &mut Vec<Claimant>) -> Vec<Claimant> {
    let (all, quorum) = (servers.size(), servers.quorum());
    let silent = all - given.len();
    let is_endless = |found: &Found| match found {
        Found::Held(held) => held.expiry == Expiry::Never,
        // Whether a key of another type runs out is not asked.
        found => other(found).is_some(),
    };
    let is_barred = all - given.iter().filter(|(_, found)| is_endless(found)).count() < quorum;
    let is_certain = claimants.first().is_some_and(|first| first.at.len() >= quorum);
    let bars =
        |claimant: &Claimant| given.iter().any(|(index, found)| claimant.at.contains(index) && is_endless(found));
    match claimants.iter().position(bars) {
        Some(in_the_way) if is_barred && !is_certain => vec![claimants.remove(in_the_way)],
        _ => claimants.extract_if(.., |claimant| claimant.at.len() + silent >= quorum).collect(),
    }
}

/// The holder, if the servers that answered leave it open that somebody has a majority, or one whose key keeps everybody from one for
/// ever; what others have is strange.
pub(super) async fn queue(servers: &Servers, dialect: &Arc<Dialect>, name: &Name, page: Page) -> Result<Queue> {
    dialect.check_name("queue", name)?;
    let answers = found(servers, dialect, name, |_| false).await?;
    servers.warn_of_silent(answers.given());
    read(servers, dialect, name, page, answers.taken())
}

fn read(servers: &Servers, dialect: &Dialect, name: &Name, page: Page, given: Vec<(usize, Found)>) -> Result<Queue> {
    let (quorum, all) = (servers.quorum(), servers.size());
    let others: Vec<&String> = given.iter().filter_map(|(_, found)| other(found)).collect();
    if others.len() > all - quorum {
        return Err(other_kind("queue", others[0], dialect).with("name", name));
    }
    let mut queue =
        Queue { name: name.clone(), contenders: Vec::new(), queued: 0, beside: Vec::new(), strangers: Vec::new() };
    let mut others = claimants(dialect.marks, &given)?;
    let holders = take_holders(servers, &given, &mut others);
    for Claimant { contender, at, .. } in others {
        let who = contender.owner.as_ref().map_or_else(|| contender.id.to_string(), ToString::to_string);
        let at: Vec<String> = at.iter().map(|index| servers.names[*index].clone()).collect();
        queue.strangers.push(format!("{who} at {} of {all} servers: {}", at.len(), at.join(" ")));
    }
    let kinds = given.iter().filter_map(|(index, found)| Some((index, other(found)?)));
    queue.strangers.extend(kinds.map(|(index, kind)| format!("a key of the type {kind} at {}", servers.names[*index])));
    queue.queued = holders.len();
    queue.contenders = page.of(holders.into_iter().map(|holder| holder.contender)).collect();
    Ok(queue)
}

fn other(found: &Found) -> Option<&String> {
    match found {
        Found::Other(kind) => Some(kind),
        _ => None,
    }
}

/// Who holds the lock, as soon as a majority names the same one: those who wait for it have no time for silent servers.
pub(super) async fn contention(
    servers: &Servers,
    dialect: &Arc<Dialect>,
    name: &Name,
    mine: &[RequestId],
) -> Result<Outline> {
    let quorum = servers.quorum();
    let is_named = |given: &Given<Found>| {
        let holder = |found: &'_ Found| if let Found::Held(held) = found { Some(held.by.clone()) } else { None };
        let holders: Vec<_> = given.iter().flatten().flatten().filter_map(holder).collect();
        holders.iter().any(|one| holders.iter().filter(|other| *other == one).count() >= quorum)
    };
    let given = found(servers, dialect, name, is_named).await?.taken();
    Ok(Outline::of(&read(servers, dialect, name, Page::ALL, given)?.contenders, mine))
}

/// What is under the key at the servers that answered until that is decided, or until all have.
async fn found(
    servers: &Servers,
    dialect: &Arc<Dialect>,
    name: &Name,
    is_decided: impl Fn(&Given<Found>) -> bool,
) -> Result<Answers<Found>> {
    let show = Arc::new(dialect.show(name));
    let mut answers = servers.ask(move |_, connection| {
        let show = Arc::clone(&show);
        Box::pin(async move { connection.run("queue", &show).await })
    })?;
    answers.until(is_decided).await;
    answers.of_quorum("queue")?;
    Ok(answers)
}

/// Those whose values are there, the one with most masters first.
fn claimants(marks: &Marks, given: &[(usize, Found)]) -> Result<Vec<Claimant>> {
    let mut claimants: Vec<Claimant> = Vec::new();
    for (index, found) in given {
        let Found::Held(held) = found else { continue };
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

/// The names that have a key at a majority of the servers, or may have one if silent servers have it. Each server lists all of its keys
/// within the time of one request.
pub(super) async fn names(servers: &Servers, dialect: &Arc<Dialect>, prefix: &str) -> Result<Vec<Name>> {
    let (dialect, prefix): (_, Arc<str>) = (Arc::clone(dialect), prefix.into());
    let mut answers = servers.ask(move |_, connection| {
        let (dialect, prefix) = (Arc::clone(&dialect), Arc::clone(&prefix));
        Box::pin(async move {
            let (mut all, mut cursor) = (BTreeSet::new(), "0".to_owned());
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
    servers.warn_of_silent(answers.given());
    let told = answers.taken();
    let needed = servers.quorum().saturating_sub(servers.size() - told.len()).max(1);
    let mut at: BTreeMap<Name, usize> = BTreeMap::new();
    told.into_iter().flat_map(|(_, names)| names).for_each(|name| *at.entry(name).or_default() += 1);
    Ok(at.into_iter().filter(|(_, number)| *number >= needed).map(|(name, _)| name).collect())
}

/// Breaks a grant at every server; says whether it was at one of them.
pub(super) async fn break_grant(servers: &Servers, dialect: &Arc<Dialect>, order: &Break) -> Result<bool> {
    dialect.check_name("break", &order.place.name)?;
    let record: Arc<str> = record::text("break", &Record::of(order))?.into();
    let (dialect, order) = (Arc::clone(dialect), Arc::new(order.clone()));
    let mut answers = servers.ask(move |_, connection| {
        let (dialect, order, record) = (Arc::clone(&dialect), Arc::clone(&order), Arc::clone(&record));
        Box::pin(async move { connection.run("break", &dialect.end(&order, &record)).await })
    })?;
    answers.until(|_| false).await;
    Ok(answers.of_quorum("break")?.iter().any(|(_, was_there)| **was_there))
}

/// The breaks that any of the servers knows of.
pub(super) async fn breaks(servers: &Servers, dialect: &Dialect, name: &Name) -> Result<Vec<Break>> {
    let key = dialect.records_key(name);
    let mut answers = servers.ask(move |_, connection| {
        let key = key.clone();
        Box::pin(async move {
            let mut range = redis::cmd("LRANGE");
            range.arg(key).arg(0).arg(-1);
            match connection.command("breaks", &range).await {
                Ok(Value::Array(records)) => Ok(records),
                Ok(_) => Ok(Vec::new()),
                Err(error) => no_records(error),
            }
        })
    })?;
    let quorum = servers.quorum();
    answers.until(|given: &Given<Vec<Value>>| heard(given) >= quorum).await;
    let mut texts: Vec<Vec<u8>> = Vec::new();
    for (_, records) in answers.of_quorum("breaks")? {
        for record in records {
            if let Value::BulkString(text) = record
                && !texts.contains(text)
            {
                texts.push(text.clone());
            }
        }
    }
    let mut breaks: Vec<Break> = texts.iter().filter_map(|text| record::read::<Record>(text)?.order(name)).collect();
    breaks.sort_by_key(|order| order.at);
    Ok(breaks)
}

/// Why a place is gone, if somebody broke it.
pub(super) async fn broken(servers: &Servers, dialect: &Dialect, place: &PlaceId) -> Result<Option<Arc<str>>> {
    let breaks = breaks(servers, dialect, &place.name).await?;
    Ok(breaks.into_iter().rfind(|order| order.place.request == place.request).map(|order| order.reason))
}
