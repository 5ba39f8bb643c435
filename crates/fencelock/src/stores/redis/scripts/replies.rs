//! What the scripts answer, taken apart. RESP2 and RESP3 bring the same.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use redis::{RedisError, Value};

use super::messages::{place_id, request_id};
use crate::error::{Error, ErrorKind, Result};
use crate::name::Name;
use crate::queue::Claim;
use crate::store::{Ahead, Owner, PlaceId, RequestId};

/// The answer to `open`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::stores::redis) enum Open {
    /// The session is open, and this is its epoch.
    Opened(u64),
    /// The keys of the server are of this other version.
    Layout(String),
}

/// The answer to `renew`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::stores::redis) enum Renewed {
    /// The session lives.
    Alive {
        /// These grants of it were broken, and are told until they are acknowledged.
        broken: Vec<Broken>,
        /// These of the buckets that were asked for are not those in which it was granted its places.
        lost: Vec<LostBucket>,
    },
    /// It is gone, and everything that hung on it.
    Gone,
}

/// A bucket that is gone, or was made anew.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::stores::redis) struct LostBucket {
    /// Which of those that were asked for, from 0.
    pub(in crate::stores::redis) index: usize,
    /// The first number that was drawn in the new one.
    pub(in crate::stores::redis) born: Option<u64>,
}

/// A grant that somebody broke.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::stores::redis) struct Broken {
    pub(in crate::stores::redis) place: PlaceId,
    pub(in crate::stores::redis) grant: u64,
    pub(in crate::stores::redis) reason: Arc<str>,
}

/// The answer to `enter`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::stores::redis) enum Enter {
    /// The place is granted; this is its number.
    Granted(u64),
    /// It waits.
    Waiting {
        /// Its number, which its grant will have.
        seq: u64,
        /// Who is ahead.
        ahead: Ahead,
        /// In what time somebody ahead could be found dead.
        look_in: Option<Duration>,
    },
    /// Somebody is ahead, and nothing was left behind.
    Busy,
    /// All who were looked at are dead, and gone now; there are more. To be sent again.
    Again,
    /// Somebody ahead believes in another capacity; nothing was left behind.
    Conflict(Claim),
    /// The session has this higher epoch; nothing was done.
    Stale(u64),
    /// The session is over; nothing was done.
    Gone,
}

/// The answer to `look`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::stores::redis) struct Look {
    /// Whether the session lives; if not, nothing else is told.
    pub(in crate::stores::redis) alive: bool,
    /// What was asked for, in the same order.
    pub(in crate::stores::redis) names: Vec<Looked>,
}

/// How the places under one name stand.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::stores::redis) struct Looked {
    /// In what time somebody could be found dead who keeps others waiting; `None` when nobody waits.
    pub(in crate::stores::redis) look_in: Option<Duration>,
    /// The places asked for, in the same order.
    pub(in crate::stores::redis) places: Vec<Seen>,
}

/// How one place stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::stores::redis) enum Seen {
    /// It is granted, with this number.
    Granted(u64),
    /// It waits with this number; who is ahead, if that was asked for.
    Waiting(u64, Option<Ahead>),
    /// It is not there.
    Missing,
}

/// The answer to `lighten`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::stores::redis) enum Lightened {
    /// The grant has the claim.
    Done,
    /// There is no such grant.
    Missing,
}

/// The answer to `withdraw`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::stores::redis) struct Withdrawn {
    /// The epoch that requests need from now on; `None` when the session is over, which lets none in.
    pub(in crate::stores::redis) epoch: Option<u64>,
    /// Whether the place was there.
    pub(in crate::stores::redis) was_there: bool,
}

/// One contender of a queue.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::stores::redis) struct Shown {
    pub(in crate::stores::redis) id: RequestId,
    pub(in crate::stores::redis) granted: bool,
    /// Its number: order and token.
    pub(in crate::stores::redis) seq: u64,
    pub(in crate::stores::redis) claim: Claim,
    /// Since when it holds the lock, or waits, by the server's clock.
    pub(in crate::stores::redis) since: SystemTime,
    pub(in crate::stores::redis) lease: Option<Duration>,
    pub(in crate::stores::redis) session: u64,
    pub(in crate::stores::redis) purpose: Option<Arc<str>>,
    pub(in crate::stores::redis) owner: Option<Owner>,
}

/// Part of a queue.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::stores::redis) struct Page {
    /// How many are in the queue.
    pub(in crate::stores::redis) queued: usize,
    pub(in crate::stores::redis) places: Vec<Shown>,
}

/// A queue in short.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::stores::redis) struct InShort {
    pub(in crate::stores::redis) queued: usize,
    pub(in crate::stores::redis) holders: usize,
    /// Where those stand who were asked for, 1 for the front.
    pub(in crate::stores::redis) positions: Vec<Option<usize>>,
    pub(in crate::stores::redis) head: Option<Shown>,
}

/// Names of some buckets.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::stores::redis) struct Named {
    pub(in crate::stores::redis) names: Vec<Name>,
    /// So many dead ones were in the way that there has to be another call.
    pub(in crate::stores::redis) is_cut: bool,
}

/// How far clearing up after the dead has come.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::stores::redis) struct Swept {
    /// In an answer, how many buckets were gone through.
    pub(in crate::stores::redis) bucket: u16,
    /// Where the next bucket was left off, as the server says it.
    pub(in crate::stores::redis) cursor: String,
}

/// What a user may do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::stores::redis) struct Probed {
    /// The version of the layout that is there, or that we begin with.
    pub(in crate::stores::redis) version: String,
    /// Commands, and why the server refuses them.
    pub(in crate::stores::redis) refused: Vec<(String, String)>,
}

/// Why a script refused, beyond what any command can be refused for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::stores::redis) enum Refusal {
    /// A key under our names holds what is not ours, or is of another type.
    Layout,
    /// The numbers of a bucket are used up.
    Limit,
    /// The arguments made no sense.
    Invalid,
}

/// Whether an error of the server is one that the scripts raise.
pub(in crate::stores::redis) fn refusal(error: &RedisError) -> Option<Refusal> {
    // Some servers put words of their own before those of a script, and other ones in each version.
    let text = error.to_string();
    let words = [
        ("WRONGTYPE", Refusal::Layout),
        ("FLLAYOUT", Refusal::Layout),
        ("FLLIMIT", Refusal::Limit),
        ("FLINVALID", Refusal::Invalid),
    ];
    words.into_iter().find(|(word, _)| text.contains(word)).map(|(_, refusal)| refusal)
}

fn strange() -> Error {
    Error::new(ErrorKind::Layout, "script", "the server answered what none of these scripts answers").outcome_unknown()
}

fn items(value: Value) -> Option<Vec<Value>> {
    match value {
        Value::Array(items) => Some(items),
        _ => None,
    }
}

fn text(value: &Value) -> Option<&str> {
    match value {
        Value::BulkString(bytes) => std::str::from_utf8(bytes).ok(),
        Value::SimpleString(text) => Some(text),
        _ => None,
    }
}

fn number<N: TryFrom<u64> + std::str::FromStr>(value: &Value) -> Option<N> {
    match value {
        Value::Int(number) => N::try_from(u64::try_from(*number).ok()?).ok(),
        other => text(other)?.parse().ok(),
    }
}

/// -1 stands for never.
fn look_in(value: &Value) -> Option<Option<Duration>> {
    match value {
        Value::Int(-1) => Some(None),
        other => Some(Some(Duration::from_millis(number(other)?))),
    }
}

fn ahead(holders: &Value, waiters: &Value) -> Option<Ahead> {
    Some(Ahead { holders: number(holders)?, waiters: number(waiters)? })
}

fn claim(weight: &Value, capacity: &Value) -> Option<Claim> {
    Claim::new(number(weight)?, number(capacity)?).ok()
}

pub(super) fn open(answer: Value) -> Result<Open> {
    let read = |answer| match (items(answer)?.as_slice(), ()) {
        ([kind, epoch], ()) if text(kind)? == "opened" => Some(Open::Opened(number(epoch)?)),
        ([kind, found], ()) if text(kind)? == "layout" => Some(Open::Layout(text(found)?.to_owned())),
        _ => None,
    };
    read(answer).ok_or_else(strange)
}

pub(super) fn resumed(answer: Value) -> Result<Option<u64>> {
    match text(&answer) {
        Some("") => Ok(None),
        _ => number(&answer).map(Some).ok_or_else(strange),
    }
}

pub(super) fn renewed(answer: Value) -> Result<Renewed> {
    let broken = |pair: &[Value]| {
        let [field, told] = pair else { return None };
        let (grant, reason) = text(told)?.split_once(' ')?;
        Some(Broken { place: place_id(text(field)?)?, grant: grant.parse().ok()?, reason: reason.into() })
    };
    let lost = |pair: &[Value]| {
        let [index, born] = pair else { return None };
        let born = if text(born) == Some("") { None } else { Some(number(born)?) };
        Some(LostBucket { index: number(index)?, born })
    };
    let read = |answer| {
        let answer = items(answer)?;
        match answer.as_slice() {
            [Value::Int(0)] => Some(Renewed::Gone),
            [Value::Int(1), Value::Array(buckets), pairs @ ..] => Some(Renewed::Alive {
                broken: pairs.chunks(2).map(broken).collect::<Option<_>>()?,
                lost: buckets.chunks(2).map(lost).collect::<Option<_>>()?,
            }),
            _ => None,
        }
    };
    read(answer).ok_or_else(strange)
}

pub(super) fn enter(answer: Value) -> Result<Enter> {
    // What a free lock answers: no list, which takes the server as long as a command.
    if let Value::Int(seq) = answer {
        return u64::try_from(seq).map(Enter::Granted).map_err(|_| strange());
    }
    let read = |answer| {
        let answer = items(answer)?;
        Some(match (text(answer.first()?)?, &answer[1..]) {
            ("granted", [seq]) => Enter::Granted(number(seq)?),
            ("waiting", [seq, holders, waiters, boundary]) => {
                Enter::Waiting { seq: number(seq)?, ahead: ahead(holders, waiters)?, look_in: look_in(boundary)? }
            }
            ("busy", []) => Enter::Busy,
            ("again", []) => Enter::Again,
            ("conflict", [weight, capacity]) => Enter::Conflict(claim(weight, capacity)?),
            ("stale", [epoch]) => Enter::Stale(number(epoch)?),
            ("gone", []) => Enter::Gone,
            _ => return None,
        })
    };
    read(answer).ok_or_else(strange)
}

fn seen(answer: Value) -> Option<Seen> {
    let answer = items(answer)?;
    Some(match (text(answer.first()?)?, &answer[1..]) {
        ("granted", [seq]) => Seen::Granted(number(seq)?),
        ("waiting", [seq]) => Seen::Waiting(number(seq)?, None),
        ("waiting", [seq, holders, waiters]) => Seen::Waiting(number(seq)?, Some(ahead(holders, waiters)?)),
        ("missing", []) => Seen::Missing,
        _ => return None,
    })
}

pub(super) fn look(answer: Value) -> Result<Look> {
    let looked = |answer| {
        let mut answer = items(answer)?.into_iter();
        let look_in = look_in(&answer.next()?)?;
        Some(Looked { look_in, places: answer.map(seen).collect::<Option<_>>()? })
    };
    let read = |answer| {
        let mut answer = items(answer)?.into_iter();
        let alive = number::<u8>(&answer.next()?)? == 1;
        Some(Look { alive, names: answer.map(looked).collect::<Option<_>>()? })
    };
    read(answer).ok_or_else(strange)
}

pub(super) fn yes(answer: Value) -> Result<bool> {
    match answer {
        Value::Int(0) => Ok(false),
        Value::Int(1) => Ok(true),
        _ => Err(strange()),
    }
}

pub(super) fn done(answer: Value) -> Result<()> {
    yes(answer).map(|_| ())
}

pub(super) fn lightened(answer: Value) -> Result<Lightened> {
    yes(answer).map(|done| if done { Lightened::Done } else { Lightened::Missing })
}

pub(super) fn withdrawn(answer: Value) -> Result<Withdrawn> {
    let read = |answer| match items(answer)?.as_slice() {
        [epoch, was_there] if text(epoch) == Some("") => Some((None, number::<u8>(was_there)?)),
        [epoch, was_there] => Some((Some(number(epoch)?), number(was_there)?)),
        _ => None,
    };
    let (epoch, was_there) = read(answer).ok_or_else(strange)?;
    Ok(Withdrawn { epoch, was_there: was_there == 1 })
}

fn contender(answer: Value) -> Option<Shown> {
    let answer = items(answer)?;
    let [id, state, seq, weight, capacity, since, lease, session, purpose, host, pid, client] = answer.as_slice()
    else {
        return None;
    };
    let hexadecimal = |value| u64::from_str_radix(text(value)?, 16).ok();
    let purpose = Some(text(purpose)?).filter(|purpose| !purpose.is_empty());
    let owner =
        hexadecimal(client).and_then(|client| Some(Owner { client, host: text(host)?.to_owned(), pid: number(pid)? }));
    Some(Shown {
        id: request_id(text(id)?)?,
        granted: text(state)? == "g",
        seq: number(seq)?,
        claim: claim(weight, capacity)?,
        since: super::moment(text(since)?)?,
        lease: Some(number(lease)?).filter(|lease| *lease > 0).map(Duration::from_millis),
        session: hexadecimal(session)?,
        purpose: purpose.map(Into::into),
        owner,
    })
}

pub(super) fn shown(answer: Value) -> Result<Page> {
    let read = |answer| {
        let mut answer = items(answer)?.into_iter();
        let (queued, _holders) = (number(&answer.next()?)?, answer.next()?);
        Some(Page { queued, places: answer.map(contender).collect::<Option<_>>()? })
    };
    read(answer).ok_or_else(strange)
}

pub(super) fn in_short(answer: Value) -> Result<InShort> {
    let read = |answer| {
        let mut answer = items(answer)?;
        let head = match answer.pop_if(|last| matches!(last, Value::Array(_))) {
            Some(head) => Some(contender(head)?),
            None => None,
        };
        let [queued, holders, positions @ ..] = answer.as_slice() else { return None };
        let position = |value| Some(Some(number(value)?).filter(|position| *position > 0));
        Some(InShort {
            queued: number(queued)?,
            holders: number(holders)?,
            positions: positions.iter().map(position).collect::<Option<_>>()?,
            head,
        })
    };
    read(answer).ok_or_else(strange)
}

pub(super) fn names(answer: Value) -> Result<Named> {
    let name = |value: &Value| Name::new(text(value)?).ok();
    let read = |answer| {
        let answer = items(answer)?;
        let (cut, names) = answer.split_first()?;
        Some(Named { names: names.iter().map(name).collect::<Option<_>>()?, is_cut: number::<u8>(cut)? == 1 })
    };
    read(answer).ok_or_else(strange)
}

pub(super) fn swept(answer: Value) -> Result<Swept> {
    let read = |answer| match items(answer)?.as_slice() {
        [through, cursor] => Some(Swept { bucket: number(through)?, cursor: text(cursor)?.to_owned() }),
        _ => None,
    };
    read(answer).ok_or_else(strange)
}

pub(super) fn probed(answer: Value) -> Result<Probed> {
    let refused = |pair: &[Value]| match pair {
        [command, said] => Some((text(command)?.to_owned(), text(said)?.to_owned())),
        _ => None,
    };
    let read = |answer| {
        let answer = items(answer)?;
        let (version, pairs) = answer.split_first()?;
        let refused = pairs.chunks(2).map(refused).collect::<Option<_>>()?;
        Some(Probed { version: text(version)?.to_owned(), refused })
    };
    read(answer).ok_or_else(strange)
}
