//! Who holds a lock as the masters tell it, and breaking a grant at all of them.

use std::collections::BTreeMap;
use std::sync::Arc;

use futures_util::future::try_join_all;
use redis::Value;

use super::super::dialect::{Dialect, Found, Marks, other_kind};
use super::super::show::{contender, no_records};
use super::fleet::{Answers, Fleet, Given, heard, no_quorum};
use crate::error::Result;
use crate::kit::record::{self, Record};
use crate::name::Name;
use crate::store::{Break, Contender, Expiry, Outline, Page, PlaceId, Queue, RequestId};

/// One of those whose value is at some masters.
struct Claimant {
    by: Vec<u8>,
    contender: Contender,
    /// Which masters have it.
    at: Vec<usize>,
}

/// Takes those out of `claimants` who may hold: who have a quorum if silent masters have theirs as well; or, when nobody has one for certain
/// and keys that do not run out are at so many masters that nobody can have one, one of these, so that it can be broken.
fn take_holders(fleet: &Fleet, given: &[(usize, Found)], claimants: &mut Vec<Claimant>) -> Vec<Claimant> {
    let (all, quorum) = (fleet.size(), fleet.quorum());
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

/// The holder, if the masters that answered leave it open that somebody has a quorum, or one whose key keeps everybody from one for ever;
/// what others have is strange.
pub(super) async fn queue(fleet: &Fleet, dialect: &Arc<Dialect>, name: &Name, page: Page) -> Result<Queue> {
    dialect.check_name("queue", name)?;
    let given = found(fleet, dialect, name).await?;
    read(fleet, dialect, name, page, given)
}

fn read(fleet: &Fleet, dialect: &Dialect, name: &Name, page: Page, given: Vec<(usize, Found)>) -> Result<Queue> {
    let (quorum, all) = (fleet.quorum(), fleet.size());
    let others: Vec<&String> = given.iter().filter_map(|(_, found)| other(found)).collect();
    if others.len() > all - quorum {
        return Err(other_kind("queue", others[0], dialect).with("name", name));
    }
    let mut queue =
        Queue { name: name.clone(), contenders: Vec::new(), queued: 0, beside: Vec::new(), strangers: Vec::new() };
    let mut others = claimants(dialect.marks, &given)?;
    let holders = take_holders(fleet, &given, &mut others);
    for Claimant { contender, at, .. } in others {
        let who = contender.owner.as_ref().map_or_else(|| contender.id.to_string(), ToString::to_string);
        let at: Vec<String> = at.iter().map(|index| fleet.names[*index].clone()).collect();
        queue.strangers.push(format!("{who} at {} of {all} masters: {}", at.len(), at.join(" ")));
    }
    let kinds = given.iter().filter_map(|(index, found)| Some((index, other(found)?)));
    queue.strangers.extend(kinds.map(|(index, kind)| format!("a key of the type {kind} at {}", fleet.names[*index])));
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

/// Who holds the lock, as soon as a quorum names the same one: those who wait for it have no time for silent masters.
pub(super) async fn contention(
    fleet: &Fleet,
    dialect: &Arc<Dialect>,
    name: &Name,
    mine: &[RequestId],
) -> Result<Outline> {
    let quorum = fleet.quorum();
    let is_named = |given: &Given<Vec<Found>>| {
        let holder = |found: &'_ Found| if let Found::Held(held) = found { Some(held.by.clone()) } else { None };
        let holders: Vec<_> = given.iter().flatten().flatten().flatten().filter_map(holder).collect();
        holders.iter().any(|one| holders.iter().filter(|other| *other == one).count() >= quorum)
    };
    let given = first(all_found(fleet, dialect, vec![name.clone()], is_named).await?);
    Ok(Outline::of(&read(fleet, dialect, name, Page::ALL, given)?.contenders, mine))
}

/// What is under the key at the masters that answered, with their numbers.
async fn found(fleet: &Fleet, dialect: &Arc<Dialect>, name: &Name) -> Result<Vec<(usize, Found)>> {
    let answers = all_asked(fleet, dialect, vec![name.clone()], |_| false).await?;
    fleet.has_looked(answers.given());
    Ok(first(answers.taken()))
}

/// What is under the first key.
fn first(given: Vec<(usize, Vec<Found>)>) -> Vec<(usize, Found)> {
    given.into_iter().filter_map(|(index, mut found)| Some((index, found.pop()?))).collect()
}

/// What is under these keys, in their order, at the masters that answered until that is decided, or until all have. All are asked for at
/// once, so that those who are silent are waited for once.
async fn all_found(
    fleet: &Fleet,
    dialect: &Arc<Dialect>,
    names: Vec<Name>,
    is_decided: impl Fn(&Given<Vec<Found>>) -> bool,
) -> Result<Vec<(usize, Vec<Found>)>> {
    Ok(all_asked(fleet, dialect, names, is_decided).await?.taken())
}

/// The answers of all masters to that.
async fn all_asked(
    fleet: &Fleet,
    dialect: &Arc<Dialect>,
    names: Vec<Name>,
    is_decided: impl Fn(&Given<Vec<Found>>) -> bool,
) -> Result<Answers<Vec<Found>>> {
    let (dialect, names) = (Arc::clone(dialect), Arc::new(names));
    let mut answers = fleet.ask(move |connection| {
        let (dialect, names) = (Arc::clone(&dialect), Arc::clone(&names));
        Box::pin(async move {
            let looks = names.iter().map(async |name| connection.run("queue", &dialect.show(name)).await);
            try_join_all(looks).await
        })
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

/// Where a list of names goes on, for each master; nothing before it begins.
#[derive(Default)]
pub(super) struct Cursor(Vec<Listing>);

/// How far the keys of one master are listed.
enum Listing {
    From(String),
    Done,
    /// It did not answer. The others know what a quorum has.
    PassedOver,
}

impl Listing {
    fn from(&self) -> Option<String> {
        if let Self::From(cursor) = self { Some(cursor.clone()) } else { None }
    }
}

/// Names in one portion of the keys of each master, of which a quorum may have locks, and where the next portions begin.
pub(super) async fn names(
    fleet: &Fleet,
    dialect: &Arc<Dialect>,
    Cursor(mut listings): Cursor,
    prefix: &str,
) -> Result<(Vec<Name>, Option<Cursor>)> {
    if listings.is_empty() {
        listings = (0..fleet.size()).map(|_| Listing::From("0".to_owned())).collect();
    }
    let came = portions(fleet, dialect, &mut listings, prefix).await?;
    let held = held(fleet, dialect, came, &listings).await?;
    let goes_on = listings.iter().any(|listing| listing.from().is_some());
    Ok((held, goes_on.then_some(Cursor(listings))))
}

/// The names in the next portion of each master's keys, with the masters whose portions they are in.
async fn portions(
    fleet: &Fleet,
    dialect: &Arc<Dialect>,
    listings: &mut [Listing],
    prefix: &str,
) -> Result<BTreeMap<Name, Vec<usize>>> {
    let from: Arc<[Option<String>]> = listings.iter().map(Listing::from).collect();
    let (dialect, prefix): (_, Arc<str>) = (Arc::clone(dialect), prefix.into());
    let asked = Arc::clone(&from);
    let mut answers = fleet.ask_those(
        |index| asked[index].is_some(),
        move |index, connection| {
            let (dialect, prefix, from) = (Arc::clone(&dialect), Arc::clone(&prefix), from[index].clone());
            Box::pin(async move {
                super::super::show::names(&connection, &dialect, &from.unwrap_or_default(), &prefix).await
            })
        },
    )?;
    answers.until(|_| false).await;
    let mut came: BTreeMap<Name, Vec<usize>> = BTreeMap::new();
    let unlisted = listings.iter_mut().enumerate().filter(|(_, listing)| listing.from().is_some());
    for (index, listing) in unlisted {
        match &answers.given()[index] {
            Some(Ok((names, next))) => {
                *listing = next.clone().map_or(Listing::Done, Listing::From);
                names.iter().for_each(|name| came.entry(name.clone()).or_default().push(index));
            }
            Some(Err(error)) if !error.is_retryable() => return Err(error.again()),
            _ => *listing = Listing::PassedOver,
        }
    }
    let passed_over = listings.iter().filter(|listing| matches!(listing, Listing::PassedOver)).count();
    if passed_over > fleet.size() - fleet.quorum() {
        return Err(no_quorum("names", fleet.quorum(), &fleet.names, answers.given()));
    }
    Ok(came)
}

/// Of these names those of which a quorum may have locks; each once, when it comes from the first master that has it and is listed.
async fn held(
    fleet: &Fleet,
    dialect: &Arc<Dialect>,
    came: BTreeMap<Name, Vec<usize>>,
    listings: &[Listing],
) -> Result<Vec<Name>> {
    if came.is_empty() {
        return Ok(Vec::new());
    }
    let answers = all_asked(fleet, dialect, came.keys().cloned().collect(), |_| false).await?;
    fleet.has_looked(answers.given());
    let mut given = answers.taken();
    let mut held = Vec::new();
    for (name, from) in came.into_iter().rev() {
        let found: Vec<_> = given.iter_mut().filter_map(|(index, found)| Some((*index, found.pop()?))).collect();
        let mut claimants = claimants(dialect.marks, &found)?;
        let holders = take_holders(fleet, &found, &mut claimants);
        let having = holders.iter().flat_map(|claimant| &claimant.at);
        let first = having.filter(|index| !matches!(listings[**index], Listing::PassedOver)).min();
        if first.is_some_and(|first| from.contains(first)) {
            held.push(name);
        }
    }
    Ok(held)
}

/// Breaks a grant at every master; says whether it was at one of them.
pub(super) async fn break_grant(fleet: &Fleet, dialect: &Arc<Dialect>, order: &Break) -> Result<bool> {
    dialect.check_name("break", &order.place.name)?;
    let record: Arc<str> = record::text("break", &Record::of(order))?.into();
    let (dialect, order) = (Arc::clone(dialect), Arc::new(order.clone()));
    let mut answers = fleet.ask(move |connection| {
        let (dialect, order, record) = (Arc::clone(&dialect), Arc::clone(&order), Arc::clone(&record));
        Box::pin(async move { connection.run("break", &dialect.end(&order, &record)).await })
    })?;
    answers.until(|_| false).await;
    Ok(answers.of_quorum("break")?.iter().any(|(_, was_there)| **was_there))
}

/// The breaks that any of the masters knows of.
pub(super) async fn breaks(fleet: &Fleet, dialect: &Dialect, name: &Name) -> Result<Vec<Break>> {
    let key = dialect.records_key(name);
    let mut answers = fleet.ask(move |connection| {
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
    let quorum = fleet.quorum();
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
pub(super) async fn broken(fleet: &Fleet, dialect: &Dialect, place: &PlaceId) -> Result<Option<Arc<str>>> {
    let breaks = breaks(fleet, dialect, &place.name).await?;
    Ok(breaks.into_iter().rfind(|order| order.place.request == place.request).map(|order| order.reason))
}
