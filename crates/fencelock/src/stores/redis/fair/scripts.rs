//! The scripts, their arguments and their answers. No I/O: each function here makes a [`Call`], and its caller sends it.

mod answers;
pub(crate) mod replies;

use std::sync::LazyLock;
use std::time::{Duration, UNIX_EPOCH};

use redis::{Cmd, Value};

pub(super) use self::answers::{InShort, NamesFound, Open, Renewed, Shown, ShownPage, Swept};
use super::layout::{KeySpace, NameKeys, VERSION, push_hex, push_id};
use crate::error::Result;
use crate::kit::served::{Enter, HeldIn, Look};
use crate::name::Name;
use crate::queue::Claim;
use crate::store::{Break, Entry, NoteOrder, Owner, PlaceId, RequestId};
use crate::stores::redis::wire::{Call, Script};

macro_rules! scripts {
    ($($constant:ident = $name:literal of $($part:literal)+;)+) => {
        $(static $constant: LazyLock<Script> =
            LazyLock::new(|| Script::new($name, concat!($(include_str!(concat!("scripts/", $part, ".lua"))),+)));)+
        #[cfg(test)]
        fn all() -> impl Iterator<Item = &'static Script> {
            [$(&$constant),+].into_iter().map(|script: &'static LazyLock<Script>| &**script)
        }
    };
}

scripts! {
    OPEN = "open" of "open";
    RESUME = "resume" of "resume";
    RENEW = "renew" of "renew";
    ENTER = "enter" of "enter_free" "queue" "rule" "write" "enter";
    LOOK = "look" of "start" "queue" "rule" "write" "look";
    LIGHTEN = "lighten" of "start" "queue" "rule" "write" "lighten";
    WATCH = "watch" of "start" "queue" "rule" "write" "watch";
    LEAVE = "leave" of "leave_free" "queue" "rule" "write" "leave";
    WITHDRAW = "withdraw" of "start" "queue" "rule" "write" "withdraw";
    BREAK = "break" of "start" "queue" "rule" "write" "break";
    SHOW = "show" of "start" "queue" "show";
    CONTENTION = "contention" of "start" "queue" "front" "contention";
    NAMES = "names" of "start" "queue" "front" "names";
    CLOSE = "close" of "start" "queue" "rule" "write" "close";
    JANITOR = "janitor" of "start" "queue" "rule" "write" "janitor";
    NOTE_WRITE = "note_write" of "start" "queue" "note_write";
    NOTE_READ = "note_read" of "start" "note_read";
}

/// Milliseconds, at least one: a shorter ttl would delete the session.
fn milliseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX >> 11).clamp(1, u64::MAX >> 11)
}

/// Reads the version of the layout in the server; nil before the first session.
pub(super) fn version(layout: &KeySpace) -> Cmd {
    let mut command = redis::cmd("GET");
    command.arg(layout.layout_key());
    command
}

/// Opens a new session, or the same one again after a lost answer. Refuses a user who may not run all commands of the scripts.
pub(super) fn open(layout: &KeySpace, session: u64, ttl: Duration, owner: &Owner) -> Call<Open> {
    let ([bucket, order, breaks], session) = (layout.empty_keys(), layout.session_key(session));
    Call::new(&OPEN, &[session, layout.layout_key(), bucket, order, breaks], replies::open)
        .arg(VERSION)
        .arg(milliseconds(ttl))
        .arg(owner.host.as_str())
        .arg(owner.pid)
        .arg(format!("{:016x}", owner.client))
}

/// Resumes a session on another connection. Returns the epoch from now on, or `None` if the session has ended.
pub(super) fn resume(layout: &KeySpace, session: u64, ttl: Duration) -> Call<Option<u64>> {
    Call::new(&RESUME, &[layout.session_key(session)], replies::resumed).arg(milliseconds(ttl))
}

/// The most buckets for a call of [`renew`], so that no script takes long.
pub(super) const BUCKETS_PER_CALL: usize = 256;

/// Prolongs a session with all its places, and checks whether its buckets are still the ones in which it was granted locks.
/// `acknowledged` are broken grants that an earlier answer reported.
pub(super) fn renew(
    layout: &KeySpace,
    session: u64,
    ttl: Duration,
    buckets: &[HeldIn],
    acknowledged: &[(PlaceId, u64)],
) -> Call<Renewed> {
    let mut keys = vec![layout.session_key(session)];
    keys.extend(buckets.iter().map(|held| layout.bucket_key(held.bucket)));
    let call = Call::new(&RENEW, &keys, replies::renewed).arg(milliseconds(ttl));
    let call = buckets.iter().fold(call, |call, held| call.arg(held.lowest));
    acknowledged
        .iter()
        .fold(call, |call, (place, grant)| call.arg(format!("{}\n{}", place.name, place.request)).arg(*grant))
}

/// Joins a queue at its tail, with the epoch that the session had last.
pub(super) fn enter(layout: &KeySpace, session: u64, epoch: u64, entry: &Entry) -> Call<Enter> {
    let keys = [layout.bucket_key(layout.bucket_of(&entry.name)), layout.session_key(session)];
    let mut text = String::with_capacity(64);
    push_id(&mut text, entry.id);
    let call = Call::new(&ENTER, &keys, replies::enter).arg(entry.name.as_str()).arg(text.as_str()).arg(epoch);
    text.clear();
    // Instead of the 0, earlier releases wrote the longest time to hold the lock.
    for number in [entry.claim.weight(), entry.claim.capacity(), 0] {
        text.push_str(&u32::to_string(&number));
        text.push(' ');
    }
    push_hex(&mut text, session, 16);
    text.push(' ');
    text.push_str(entry.purpose.as_deref().unwrap_or_default());
    let call = call.arg(text);
    if entry.wait { call } else { call.arg("try") }
}

/// Keys and arguments of scripts for places of one session under any number of names.
fn places<R>(
    script: &'static Script,
    read: fn(Value) -> Result<R>,
    session_key: String,
    layout: &KeySpace,
    flag: bool,
    places: &[(Name, Vec<RequestId>)],
) -> Call<R> {
    let mut keys = vec![session_key];
    for (name, _) in places {
        let slot = layout.slot(name);
        keys.extend([slot.bucket_key, slot.queue_key]);
    }
    let mut call = Call::new(script, &keys, read).arg(u8::from(flag));
    for (name, ids) in places {
        call = call.arg(name.as_str()).arg(ids.len());
        call = ids.iter().fold(call, |call, id| call.arg(id.to_string()));
    }
    call
}

/// Asks for the standing of places of a session; with `exact`, also for the number of contenders ahead of each.
pub(super) fn look(layout: &KeySpace, session: u64, asked: &[(Name, Vec<RequestId>)], exact: bool) -> Call<Look> {
    places(&LOOK, replies::look, layout.session_key(session), layout, exact, asked)
}

/// Gives up places of a session, and with `last` the session itself.
pub(super) fn close(layout: &KeySpace, session: u64, given_up: &[(Name, Vec<RequestId>)], last: bool) -> Call<()> {
    places(&CLOSE, replies::done, layout.session_key(session), layout, last, given_up)
}

fn on_name<R>(
    script: &'static Script,
    read: fn(Value) -> Result<R>,
    layout: &KeySpace,
    session: u64,
    place: (&Name, RequestId),
) -> Call<R> {
    let NameKeys { bucket_key, queue_key, .. } = layout.slot(place.0);
    Call::new(script, &[bucket_key, queue_key, layout.session_key(session)], read)
        .arg(place.0.as_str())
        .arg(place.1.to_string())
}

/// Replaces the claim of the grant `seq` by a lighter one. Returns whether there is such a grant.
pub(super) fn lighten(
    layout: &KeySpace,
    session: u64,
    place: (&Name, RequestId),
    seq: u64,
    claim: Claim,
) -> Call<bool> {
    on_name(&LIGHTEN, replies::yes, layout, session, place).arg(seq).arg(claim.weight())
}

/// Marks the grant `seq`, so that its session receives a message about the first waiter behind it. Returns whether a waiter is there
/// already, or the grant is gone.
pub(super) fn watch(layout: &KeySpace, (name, id): (&Name, RequestId), seq: u64) -> Call<bool> {
    let slot = layout.slot(name);
    Call::new(&WATCH, &[&slot.bucket_key, &slot.queue_key], replies::yes)
        .arg(name.as_str())
        .arg(id.to_string())
        .arg(seq)
        .arg(layout.session_prefix())
}

/// Gives up a place, only with the number `seq` unless that is `None`. Returns whether the place was there.
pub(super) fn leave(layout: &KeySpace, (name, id): (&Name, RequestId), seq: Option<u64>) -> Call<bool> {
    let mut beginning = String::with_capacity(64);
    push_id(&mut beginning, id);
    if let Some(seq) = seq {
        beginning.push_str(" g ");
        beginning.push_str(&seq.to_string());
    }
    beginning.push(' ');
    Call::new(&LEAVE, &[layout.bucket_key(layout.bucket_of(name))], replies::yes).arg(name.as_str()).arg(beginning)
}

/// Withdraws a request: from now on it has no effect, even if it arrives later. The answer is the session's epoch, `None` if the session has
/// ended, and whether the place was there.
pub(super) fn withdraw(layout: &KeySpace, session: u64, place: (&Name, RequestId)) -> Call<(Option<u64>, bool)> {
    on_name(&WITHDRAW, replies::withdrawn, layout, session, place)
}

/// Breaks exactly the grant that `order` names and keeps `record` of it. Returns whether the grant was there, or this record is kept
/// already. `None` for an order without a token: every grant here has one.
pub(super) fn break_grant(layout: &KeySpace, order: &Break, record: &str) -> Option<Call<bool>> {
    let (name, token) = (&order.place.name, order.token?);
    let slot = layout.slot(name);
    let keys = [slot.bucket_key, slot.queue_key, layout.breaks_key(name)];
    let call = Call::new(&BREAK, &keys, replies::yes)
        .arg(name.as_str())
        .arg(order.place.request.to_string())
        .arg(token.get())
        .arg(record)
        .arg(&*order.reason)
        .arg(layout.session_prefix());
    Some(call)
}

/// The records of broken grants of `name`, oldest first: a command, and no script.
pub(super) fn breaks(layout: &KeySpace, name: &Name) -> Cmd {
    let mut command = redis::cmd("LRANGE");
    command.arg(layout.breaks_key(name)).arg(0).arg(-1);
    command
}

/// Writes or deletes the note on a lock, if the grant that `order` names is current. Returns whether it was. `None` for an order without a
/// token: every grant here has one.
pub(super) fn write_note(layout: &KeySpace, order: &NoteOrder, owner: &str) -> Option<Call<bool>> {
    let (place, token) = (&order.grant.place, order.grant.token?);
    let slot = layout.slot(&place.name);
    let keys = [slot.bucket_key, slot.queue_key, layout.note_key(&place.name)];
    let call = Call::new(&NOTE_WRITE, &keys, replies::yes)
        .arg(place.name.as_str())
        .arg(place.request.to_string())
        .arg(token.get())
        .arg(layout.session_prefix());
    let Some(value) = &order.value else { return Some(call) };
    Some(call.arg(order.ttl.map_or(0, milliseconds)).arg(owner).arg(&**value))
}

/// The note on a lock, and the time.
pub(super) fn note(layout: &KeySpace, name: &Name) -> Call<Value> {
    Call::new(&NOTE_READ, &[layout.note_key(name)], Ok)
}

/// The most places for a call of [`show`] or [`contention`].
pub(super) const SHOWN_PER_CALL: usize = 256;

/// Part of a queue, front first: up to `limit` living places, after the first `skip` places behind the number `after`.
pub(super) fn show(layout: &KeySpace, name: &Name, skip: usize, after: Option<u64>, limit: usize) -> Call<ShownPage> {
    let slot = layout.slot(name);
    Call::new(&SHOW, &[&slot.bucket_key, &slot.queue_key], replies::shown)
        .arg(name.as_str())
        .arg(layout.session_prefix())
        // No queue has that many places.
        .arg(skip.min(u32::MAX as usize))
        .arg(after.map(|after| after.to_string()).unwrap_or_default())
        .arg(limit)
}

/// The outline of a queue, and the positions of these requests.
pub(super) fn contention(layout: &KeySpace, name: &Name, ids: &[RequestId]) -> Call<InShort> {
    let slot = layout.slot(name);
    let call = Call::new(&CONTENTION, &[&slot.bucket_key, &slot.queue_key], replies::in_short)
        .arg(name.as_str())
        .arg(layout.session_prefix());
    ids.iter().fold(call, |call, id| call.arg(id.to_string()))
}

/// Names that begin with `prefix`, in no order, from a bucket on, and the position of the next call. A thousand names take the server some
/// milliseconds, dead ones included.
pub(super) fn names(layout: &KeySpace, from: &Swept, upto: u16, prefix: &str) -> Call<NamesFound> {
    let (buckets, fields) = SWEPT_PER_CALL;
    let buckets = from.bucket..upto.min(from.bucket + buckets);
    let keys: Vec<_> = buckets.map(|bucket| layout.bucket_key(bucket)).collect();
    Call::new(&NAMES, &keys, replies::names).arg(prefix).arg(layout.session_prefix()).arg(&from.cursor).arg(fields)
}

/// The most buckets for a call of [`janitor`] or [`names`], and the most names and places.
pub(super) const SWEPT_PER_CALL: (u16, usize) = (64, 1000);

/// Clears away the remains of dead sessions, beginning at a bucket. Returns the position of the next call.
pub(super) fn janitor(layout: &KeySpace, from: &Swept) -> Call<Swept> {
    let (buckets, fields) = SWEPT_PER_CALL;
    let upto = crate::kit::bucket::BUCKETS.min(from.bucket + buckets);
    let mut keys = vec![layout.janitor_key()];
    keys.extend((from.bucket..upto).map(|bucket| layout.bucket_key(bucket)));
    Call::new(&JANITOR, &keys, replies::swept).arg(layout.session_prefix()).arg(&from.cursor).arg(fields)
}

/// Reads a moment that a script wrote: seconds, `:`, microseconds.
pub(super) fn moment(text: &str) -> Option<std::time::SystemTime> {
    let (seconds, micros) = text.split_once(':')?;
    let since = Duration::from_secs(seconds.parse().ok()?).checked_add(Duration::from_micros(micros.parse().ok()?))?;
    UNIX_EPOCH.checked_add(since)
}

#[cfg(test)]
use self::answers::LostBucket;
#[cfg(test)]
use crate::kit::served::{Broken, News, Seen, news};
#[cfg(test)]
mod tests;
