//! Answers of the scripts, taken apart.

use std::time::Duration;

use redis::Value;

use super::answers::{InShort, LostBucket, NamesFound, Open, Renewed, Shown, ShownPage, Swept};
use crate::error::{Error, ErrorKind, Result};
use crate::kit::served::{Broken, Enter, Look, Looked, Seen, place_id, request_id};
use crate::name::Name;
use crate::queue::Claim;
use crate::store::{Ahead, Owner};

/// The type of an answer, which may hold any data.
fn form(answer: &Value) -> &'static str {
    match answer {
        Value::Nil => "nothing",
        Value::Int(_) => "a number",
        Value::BulkString(_) | Value::SimpleString(_) => "a text",
        Value::Array(items) if items.is_empty() => "an empty list",
        Value::Array(_) => "a list",
        _ => "of another type",
    }
}

fn strange(form: &'static str) -> Error {
    Error::new(ErrorKind::Layout, "script", "the server answered what none of these scripts answers")
        .with("answer", form)
        .outcome_unknown()
}

fn read<R>(answer: Value, read: impl FnOnce(Value) -> Option<R>) -> Result<R> {
    let form = form(&answer);
    read(answer).ok_or_else(|| strange(form))
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

/// -1 means never.
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

pub(crate) fn open(answer: Value) -> Result<Open> {
    read(answer, |answer| match (items(answer)?.as_slice(), ()) {
        ([kind, epoch], ()) if text(kind)? == "opened" => Some(Open::Opened(number(epoch)?)),
        ([kind, found], ()) if text(kind)? == "layout" => Some(Open::Layout(text(found)?.to_owned())),
        _ => None,
    })
}

pub(crate) fn resumed(answer: Value) -> Result<Option<u64>> {
    match text(&answer) {
        Some("") => Ok(None),
        _ => number(&answer).map(Some).ok_or_else(|| strange(form(&answer))),
    }
}

pub(crate) fn renewed(answer: Value) -> Result<Renewed> {
    let broken = |pair: &[Value]| {
        let [field, value] = pair else { return None };
        let (grant, reason) = text(value)?.split_once(' ')?;
        Some(Broken { place: place_id(text(field)?)?, grant: grant.parse().ok()?, reason: reason.into() })
    };
    let lost = |pair: &[Value]| {
        let [index, born] = pair else { return None };
        let born = if text(born) == Some("") { None } else { Some(number(born)?) };
        Some(LostBucket { index: number(index)?, born })
    };
    read(answer, |answer| {
        let answer = items(answer)?;
        match answer.as_slice() {
            [Value::Int(0)] => Some(Renewed::Gone),
            [Value::Int(1), Value::Array(buckets), pairs @ ..] => Some(Renewed::Alive {
                broken: pairs.chunks(2).map(broken).collect::<Option<_>>()?,
                lost: buckets.chunks(2).map(lost).collect::<Option<_>>()?,
            }),
            _ => None,
        }
    })
}

pub(crate) fn enter(answer: Value) -> Result<Enter> {
    // The answer for a free lock is a plain number: a list takes the server as long as a command.
    if let Value::Int(seq) = answer {
        return u64::try_from(seq).map(Enter::Granted).map_err(|_| strange("a negative number"));
    }
    read(answer, |answer| {
        let answer = items(answer)?;
        Some(match (text(answer.first()?)?, &answer[1..]) {
            ("granted", [seq]) => Enter::Granted(number(seq)?),
            ("waiting", [seq, holders, waiters, boundary]) => {
                Enter::Waiting { seq: number(seq)?, ahead: Some(ahead(holders, waiters)?), look_in: look_in(boundary)? }
            }
            ("busy", []) => Enter::Busy,
            ("again", []) => Enter::Again,
            ("conflict", [weight, capacity]) => Enter::Conflict(claim(weight, capacity)?),
            ("stale", [epoch]) => Enter::Stale(number(epoch)?),
            ("gone", []) => Enter::Gone,
            _ => return None,
        })
    })
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

pub(crate) fn look(answer: Value) -> Result<Look> {
    let looked = |answer| {
        let mut answer = items(answer)?.into_iter();
        let look_in = look_in(&answer.next()?)?;
        Some(Looked { look_in, places: answer.map(seen).collect::<Option<_>>()? })
    };
    read(answer, |answer| {
        let mut answer = items(answer)?.into_iter();
        let is_alive = number::<u8>(&answer.next()?)? == 1;
        let names = answer.map(looked).collect::<Option<Vec<_>>>()?;
        Some(is_alive.then_some(names))
    })
}

pub(crate) fn yes(answer: Value) -> Result<bool> {
    match answer {
        Value::Int(0) => Ok(false),
        Value::Int(1) => Ok(true),
        other => Err(strange(form(&other))),
    }
}

pub(crate) fn done(answer: Value) -> Result<()> {
    yes(answer).map(|_| ())
}

pub(crate) fn withdrawn(answer: Value) -> Result<(Option<u64>, bool)> {
    read(answer, |answer| match items(answer)?.as_slice() {
        [epoch, was_there] => {
            let epoch = if text(epoch) == Some("") { None } else { Some(number(epoch)?) };
            Some((epoch, number::<u8>(was_there)? == 1))
        }
        _ => None,
    })
}

fn contender(answer: Value) -> Option<Shown> {
    let answer = items(answer)?;
    let [id, state, seq, weight, capacity, since, session, purpose, host, pid, client] = answer.as_slice() else {
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
        session: hexadecimal(session)?,
        purpose: purpose.map(Into::into),
        owner,
    })
}

pub(crate) fn shown(answer: Value) -> Result<ShownPage> {
    read(answer, |answer| {
        let mut answer = items(answer)?.into_iter();
        let mut next = || number(&answer.next()?);
        let (queued, dead, skipped, at_end) = (next()?, next()?, next()?, next()? == 1);
        let last = match answer.next()? {
            last if text(&last) == Some("") => None,
            last => Some(number(&last)?),
        };
        let places = answer.map(contender).collect::<Option<_>>()?;
        Some(ShownPage { queued, dead, skipped, at_end, last, places })
    })
}

pub(crate) fn in_short(answer: Value) -> Result<InShort> {
    read(answer, |answer| {
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
    })
}

pub(crate) fn names(answer: Value) -> Result<NamesFound> {
    // A field that is no name is no lock.
    let name = |value: &Value| Name::new(text(value)?).ok();
    let key = |value: &Value| text(value).map(str::to_owned);
    read(answer, |answer| {
        let mut answer = items(answer)?.into_iter();
        let (bucket, cursor) = (number(&answer.next()?)?, text(&answer.next()?)?.to_owned());
        let names = items(answer.next()?)?.iter().filter_map(name).collect();
        let foreign = items(answer.next()?)?.iter().map(key).collect::<Option<_>>()?;
        Some(NamesFound { swept: Swept { bucket, cursor }, names, foreign })
    })
}

pub(crate) fn swept(answer: Value) -> Result<Swept> {
    read(answer, |answer| match items(answer)?.as_slice() {
        [through, cursor] => Some(Swept { bucket: number(through)?, cursor: text(cursor)?.to_owned() }),
        _ => None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_that_no_script_gives_is_an_error_with_its_type() {
        let of = |answer: Value| [enter(answer.clone()).err(), withdrawn(answer.clone()).err(), yes(answer).err()];
        for (answer, form) in [
            (Value::Nil, "nothing"),
            (Value::Okay, "of another type"),
            (Value::Int(-1), "a n"),
            (Value::SimpleString("PONG".to_owned()), "a text"),
            (Value::Array(Vec::new()), "an empty list"),
            (Value::Array(vec![Value::Int(1)]), "a list"),
        ] {
            for error in of(answer) {
                let error = error.unwrap();
                assert_eq!((error.kind(), error.outcome()), (ErrorKind::Layout, crate::Outcome::Unknown));
                assert!(error.to_string().contains(&format!("answer {form}")), "{error}");
            }
        }
    }
}
