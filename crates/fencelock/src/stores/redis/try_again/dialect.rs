//! The data of a layout without a queue. The scripts of all layouts have the same arguments and answers.

use std::sync::LazyLock;
use std::time::Duration;

use redis::{Cmd, FromRedisValue, RedisError, Value};
use serde::{Deserialize, Serialize};

use crate::error::{Error, ErrorKind, Result};
use crate::kit::fault::{Meaning, refused};
use crate::kit::record::{self, Identity};
use crate::kit::try_again::{Next, Tried, Trying};
use crate::name::Name;
use crate::queue::Claim;
use crate::store::{Break, Capability, Entry, Expiry, Opening, Owner, PlaceId, RequestId};
use crate::stores::redis::wire::{Call, Script, is_denied};
use crate::token::FencingToken;

/// A layout in which the client that finds the key absent acquires the lock.
pub(crate) struct Dialect {
    pub(crate) capability: &'static Capability,
    /// The text before a name in its key.
    pub(crate) prefix: String,
    /// The command that takes a free lock, with the answer `OK`, or nil for a held lock. `None` if taking a lock needs a script.
    pub(crate) quick: Option<Quick>,
    pub(crate) marks: &'static Marks,
    /// The further keys of a lock, which its scripts receive after its own key.
    pub(crate) extra: OtherKeys,
    /// The ending of counter keys, if nothing else distinguishes them from keys of locks.
    pub(crate) counters: Option<String>,
    /// Whether the locks are in a Cluster, where a request takes keys of one slot.
    pub(crate) is_clustered: bool,
    /// The channel on which clients publish releases of this key, if there is one. A session subscribes to the channels of the names for
    /// which it waits.
    pub(crate) channel: Option<fn(key: &str, claim: Claim) -> String>,
    /// The shortest time between two tries for one lock. The longest is three times as much, by chance.
    pub(crate) pause: Duration,
    /// The error message for a user without the rights for these commands.
    pub(crate) denied: &'static str,
    pub(crate) scripts: &'static LazyLock<Scripts>,
}

/// The command that sets this key to `head` and `said`, with this ttl.
pub(crate) type Quick = fn(key: &str, head: &str, said: &str, ttl: Duration) -> Cmd;

/// The other keys that belong to the lock under this key.
pub(crate) type OtherKeys = Box<dyn Fn(&str) -> Vec<String> + Send + Sync>;

/// The name of a lock, and the mark of its holder.
pub(crate) type At<'a> = (&'a Name, String);

/// A fencelock's request, and its text about itself.
pub(crate) type Ours<'a> = Option<(RequestId, &'a [u8])>;

/// The marks of holders in the server.
pub(crate) struct Marks {
    /// The mark of a request, unlike every other. Scripts compare the mark with the value of the key.
    pub(crate) head: fn(RequestId) -> String,
    /// The request of a fencelock that holds the lock, and its text about itself; `None` for another client.
    pub(crate) ours: fn(&Held) -> Ours<'_>,
    /// The words of a listing for another client's lock.
    pub(crate) foreign: &'static str,
    /// The same without an end.
    pub(crate) endless: &'static str,
    /// The type of the keys.
    pub(crate) kind: &'static str,
    /// The beginning of fencelocks' own values, if nothing distinguishes other clients' locks from other keys of that type.
    pub(crate) listed: &'static str,
}

/// The scripts of a dialect. `plain/scripts/` documents the arguments and answers of each.
pub(crate) struct Scripts {
    pub(crate) acquire: Script,
    pub(crate) renew: Script,
    pub(crate) leave: Script,
    /// Releases a lock, and takes it for the session's next place if no other client waits; `None` in a layout that shows no waiters.
    pub(crate) pass: Option<Script>,
    /// Readers and writers, in a layout that has them. `renew`, `leave`, `show` and `end` are for these, too.
    pub(crate) shared: Option<Sharing>,
    pub(crate) show: Script,
    pub(crate) end: Script,
    pub(crate) names: Script,
}

/// The further scripts of a dialect with readers and writers.
pub(crate) struct Sharing {
    /// As [`Scripts::acquire`], with `read` or `write` as the last argument.
    pub(crate) acquire: Script,
    /// Makes a writer a reader.
    pub(crate) lighten: Script,
    /// The longest ttl of a reader: other clients' renewals end longer ones.
    pub(crate) most_ttl: Duration,
}

const NO_RECORDS: &str = "the key for the records of breaks is no list: it is `fencelock:breaks:` and the key of the lock; delete it, or use another name";

/// How the keys of records of breaks begin.
const RECORDS: &str = "fencelock:breaks:";

const ONLY_MUTEXES: &str =
    "this layout knows mutexes only: readers, writers and permits need one server, redis://, with its default layout";
const NO_PERMITS: &str = "this layout knows mutexes, readers and writers: permits need `layout=fair`";
const LONG_TTL: &str = "read-write locks of this layout need a shorter `ttl_ms`, as renewals of other clients end the whole lock sooner than that";

/// The content of a key.
pub(crate) enum Found {
    /// The holders of a lock: none of a free one, several readers.
    Held(Vec<Held>),
    /// A key of this type, which is no lock of the layout.
    Other(String),
}

impl Found {
    pub(crate) fn holders(&self) -> &[Held] {
        match self {
            Self::Held(holders) => holders,
            Self::Other(_) => &[],
        }
    }

    pub(crate) fn other(&self) -> Option<&String> {
        match self {
            Self::Held(_) => None,
            Self::Other(kind) => Some(kind),
        }
    }
}

/// A lock that is held.
pub(crate) struct Held {
    pub(crate) claim: Claim,
    /// The holder's mark, byte for byte.
    pub(crate) by: Vec<u8>,
    /// The digest of the mark, which names another client's grant.
    pub(crate) digest: Vec<u8>,
    /// A fencelock's text about itself, if the layout keeps it apart from the mark; else empty.
    pub(crate) said: Vec<u8>,
    pub(crate) expiry: Expiry,
    pub(crate) token: Option<FencingToken>,
}

#[cfg(test)]
impl Held {
    pub(crate) fn of(by: &[u8], said: &[u8]) -> Self {
        Self {
            claim: Claim::MUTEX,
            by: by.to_vec(),
            digest: Vec::new(),
            said: said.to_vec(),
            expiry: Expiry::Unknown,
            token: None,
        }
    }
}

/// A fencelock's text about itself.
#[derive(Serialize, Deserialize)]
struct Said<'a> {
    by: Identity<'a>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    purpose: Option<String>,
}

/// Reads the owner and the purpose of a fencelock's lock.
pub(crate) fn read_said(said: &[u8]) -> Option<(Option<Owner>, Option<String>)> {
    let said: Said<'_> = record::read(said)?;
    Some((said.by.owner(), said.purpose))
}

/// The id of another client's grant: the digest of its value.
pub(crate) fn foreign_id(digest: &[u8]) -> Option<RequestId> {
    let digest = std::str::from_utf8(digest).ok()?;
    let part = |from: usize| u64::from_str_radix(digest.get(from..from + 16)?, 16).ok();
    Some(RequestId { client: part(0)?, number: part(16)? })
}

impl Dialect {
    pub(crate) fn key(&self, name: &Name) -> String {
        format!("{}{name}", self.prefix)
    }

    pub(crate) fn records_key(&self, name: &Name) -> String {
        let key = self.key(name);
        if self.is_clustered && !key.contains('{') { format!("{RECORDS}{{{key}}}") } else { format!("{RECORDS}{key}") }
    }

    /// How a session tries for its lines.
    pub(crate) fn trying(&self) -> Trying {
        // A node of a Cluster counts its own subscribers alone.
        let (has_channel, passes) = (self.channel.is_some(), self.scripts.pass.is_some() && !self.is_clustered);
        Trying { pause: self.pause, has_channel, passes, kind: self.marks.kind }
    }

    /// The key of a lock, and its further keys.
    fn keys(&self, name: &Name) -> Vec<String> {
        let key = self.key(name);
        let mut keys = (self.extra)(&key);
        keys.insert(0, key);
        keys
    }

    pub(crate) fn channel(&self, name: &Name, claim: Claim) -> Option<String> {
        self.channel.map(|channel| channel(&self.key(name), claim))
    }

    /// Refuses an entry that this layout does not support. Returns the text about the holder and its purpose for other clients.
    pub(crate) fn check_entry(&self, entry: &Entry, opening: &Opening) -> Result<String> {
        self.check_name("enter", &entry.name)?;
        self.check(entry.claim, opening.ttl).map_err(|error| error.with("name", &entry.name))?;
        let said = Said { by: Identity::of(&opening.owner), purpose: entry.purpose.as_deref().map(str::to_owned) };
        record::text("enter", &said)
    }

    /// Refuses a claim that this layout does not support, at all or with this ttl.
    fn check(&self, claim: Claim, ttl: Duration) -> Result<()> {
        let shared = self.scripts.shared.as_ref().filter(|_| self.capability.shared_claims);
        match (claim, shared) {
            (Claim::MUTEX, _) => Ok(()),
            (Claim::READER | Claim::WRITER, Some(shared)) if ttl <= shared.most_ttl => Ok(()),
            (Claim::READER | Claim::WRITER, Some(shared)) => {
                let error = Error::new(ErrorKind::Config, "enter", LONG_TTL).with("ttl_ms", milliseconds(ttl));
                Err(error.with("allowed", milliseconds(shared.most_ttl)).with("claim", claim))
            }
            (_, Some(_)) => Err(Error::new(ErrorKind::Unsupported, "enter", NO_PERMITS).with("claim", claim)),
            (_, None) => Err(Error::new(ErrorKind::Unsupported, "enter", ONLY_MUTEXES).with("claim", claim)),
        }
    }

    /// Refuses a name whose key is that of a counter or of records: clients would take a counter for a lock, or a lock for a counter.
    pub(crate) fn check_name(&self, operation: &'static str, name: &Name) -> Result<()> {
        if self.key(name).starts_with(RECORDS) {
            let message = "a key that begins so has records of the breaks of another lock: use another name or prefix";
            return Err(Error::new(ErrorKind::InvalidName, operation, message)
                .with("name", name)
                .with("begins", RECORDS));
        }
        let Some(ending) = self.counters.as_deref().filter(|_| self.is_counter(&self.key(name))) else { return Ok(()) };
        let message = "a key that ends so is the counter of another lock (option `fence`): use another name";
        Err(Error::new(ErrorKind::InvalidName, operation, message).with("name", name).with("ending", ending))
    }

    pub(crate) fn is_counter(&self, key: &str) -> bool {
        self.counters.as_deref().is_some_and(|ending| key.ends_with(ending))
    }

    /// The name of a place, and the mark of its holder.
    pub(crate) fn at<'a>(&self, place: &'a PlaceId) -> At<'a> {
        (&place.name, (self.marks.head)(place.request))
    }

    pub(crate) fn quick(&self, (name, head): &At<'_>, said: &str, ttl: Duration) -> Option<Cmd> {
        self.quick.map(|quick| quick(&self.key(name), head, said, ttl))
    }

    pub(crate) fn acquire(&self, (name, head): At<'_>, claim: Claim, said: &str, ttl: Duration) -> Call<Tried> {
        let shared = self.scripts.shared.as_ref().filter(|_| claim != Claim::MUTEX);
        let script = shared.map_or(&self.scripts.acquire, |shared| &shared.acquire);
        let call = Call::new(script, &self.keys(name), tried).arg(head).arg(said).arg(milliseconds(ttl));
        if shared.is_none() { call } else { call.arg(if claim.is_reader() { "read" } else { "write" }) }
    }

    /// Makes a writer a reader; `None` in a layout without readers. Returns whether the place holds as a reader now.
    pub(crate) fn lighten(&self, place: &PlaceId, said: &str, ttl: Duration) -> Option<Call<bool>> {
        let script = &self.scripts.shared.as_ref()?.lighten;
        let call = Call::new(script, &self.keys(&place.name), plainly).arg((self.marks.head)(place.request));
        Some(call.arg(said).arg(milliseconds(ttl)))
    }

    /// Returns the indices of the lost locks, in order.
    pub(crate) fn renew(&self, places: Vec<At<'_>>, ttl: Duration) -> Call<Vec<usize>> {
        let keys: Vec<String> = places.iter().map(|(name, _)| self.key(name)).collect();
        let call = Call::new(&self.scripts.renew, &keys, plainly).arg(milliseconds(ttl));
        places.into_iter().fold(call, |call, (_, head)| call.arg(head))
    }

    /// Returns how many of the locks were there.
    pub(crate) fn leave(&self, places: Vec<At<'_>>) -> Call<usize> {
        let keys: Vec<String> = places.iter().flat_map(|(name, _)| self.keys(name)).collect();
        let call = Call::new(&self.scripts.leave, &keys, plainly);
        places.into_iter().fold(call, |call, (_, head)| call.arg(head))
    }

    /// Returns how many locks were there, and the grant of the next place, if there is one.
    pub(crate) fn pass(&self, place: &PlaceId, next: &Next<'_>, ttl: Duration) -> Option<Call<(usize, Option<Tried>)>> {
        let call = Call::new(self.scripts.pass.as_ref()?, &self.keys(&place.name), passed);
        let call = call.arg((self.marks.head)(place.request)).arg((self.marks.head)(next.place.request));
        Some(call.arg(&*next.said).arg(milliseconds(ttl)).arg(next.ours))
    }

    pub(crate) fn show(&self, name: &Name) -> Call<Found> {
        Call::new(&self.scripts.show, &self.keys(name), found)
    }

    pub(crate) fn end(&self, order: &Break, record: &str) -> Call<bool> {
        let (name, id) = (&order.place.name, order.place.request);
        let mut keys = self.keys(name);
        keys.insert(1, self.records_key(name));
        Call::new(&self.scripts.end, &keys, plainly)
            .arg((self.marks.head)(id))
            .arg(format!("{:016x}{:016x}", id.client, id.number))
            .arg(record)
            .arg(order.token.map_or_else(String::new, |token| token.get().to_string()))
    }

    /// Returns the next cursor, and keys that begin with `prefix`. The first cursor is ''. Without a prefix of the layout, nothing
    /// distinguishes another client's lock from any other string.
    pub(crate) fn names(&self, cursor: &str, prefix: &str) -> Call<(String, Vec<Vec<u8>>)> {
        let escape = |text: &str| {
            text.chars().flat_map(|c| "*?[]\\^".contains(c).then_some('\\').into_iter().chain([c])).collect::<String>()
        };
        Call::new(&self.scripts.names, &[""; 0], plainly)
            .arg(if cursor.is_empty() { "0" } else { cursor })
            .arg(format!("{}{}*", escape(&self.prefix), escape(prefix)))
            .arg(if self.prefix.is_empty() { self.marks.listed } else { "" })
    }
}

fn plainly<T: FromRedisValue>(answer: Value) -> Result<T> {
    redis::from_redis_value(answer).map_err(nonsense)
}

/// Counters from here on are no tokens: scripts handle numbers as doubles.
const COUNTER_LIMIT: u64 = 1 << 51;

/// Reads the token of a grant.
pub(crate) fn token(answer: Value) -> Result<FencingToken> {
    let number: i64 = plainly(answer)?;
    u64::try_from(number)
        .ok()
        .filter(|number| *number < COUNTER_LIMIT)
        .and_then(FencingToken::new)
        .ok_or_else(|| no_counter(number).outcome_unknown())
}

fn no_counter(counter: impl ToString) -> Error {
    let message = "the counter of the lock counts no fencing tokens: they are from 0 to 2^51 - 1; set or delete the counter, or use another name";
    Error::new(ErrorKind::Exhausted, "enter", message).with("counter", counter.to_string())
}

pub(crate) fn tried(answer: Value) -> Result<Tried> {
    let (what, more): (u8, Option<Value>) = match answer {
        Value::Array(mut parts) if parts.len() == 1 => (plainly(parts.remove(0))?, None),
        other => plainly(other)?,
    };
    match (what, more) {
        (1, None) => Ok(Tried::Granted(None)),
        (1, Some(number)) => Ok(Tried::Granted(Some(token(number)?))),
        (0, Some(left)) => {
            let left: i64 = plainly(left)?;
            Ok(Tried::Busy(u64::try_from(left).ok().map(Duration::from_millis)))
        }
        (3, Some(why)) => Err(no_counter(plainly::<String>(why)?)),
        (4, Some(why)) => Err(no_counter(plainly::<String>(why)?).outcome_unknown()),
        (_, Some(kind)) => Ok(Tried::Other(plainly(kind)?)),
        _ => Err(nonsense("a number of its own")),
    }
}

pub(crate) fn passed(answer: Value) -> Result<(usize, Option<Tried>)> {
    let mut parts = plainly::<Vec<Value>>(answer)?.into_iter();
    let left = parts.next().map(plainly).transpose()?.unwrap_or_default();
    let Some(_) = parts.next() else { return Ok((left, None)) };
    Ok((left, Some(Tried::Granted(parts.next().map(token).transpose()?))))
}

pub(crate) fn found(answer: Value) -> Result<Found> {
    let mut parts = plainly::<Vec<Value>>(answer)?.into_iter();
    let Some(kind) = parts.next() else { return Ok(Found::Held(Vec::new())) };
    let kind = plainly::<Vec<u8>>(kind)?;
    let claim = match &*kind {
        b"read" => Some(Claim::READER),
        b"write" => Some(Claim::WRITER),
        _ => None,
    };
    if let Some(claim) = claim {
        let holders = parts.map(|holder| held(claim, plainly::<Vec<Value>>(holder)?.into_iter()));
        return holders.collect::<Result<_>>().map(Found::Held);
    }
    if parts.as_slice().is_empty() {
        return Ok(Found::Other(String::from_utf8_lossy(&kind).into_owned()));
    }
    Ok(Found::Held(vec![held(Claim::MUTEX, parts)?]))
}

/// Reads a holder: its mark, the digest, and the rest of the answer.
fn held(claim: Claim, mut parts: impl Iterator<Item = Value>) -> Result<Held> {
    let (Some(by), Some(digest)) = (parts.next(), parts.next()) else {
        return Err(nonsense("a holder without a digest"));
    };
    let said = parts.next().map(plainly).transpose()?.unwrap_or_default();
    let left: i64 = parts.next().map(plainly).transpose()?.unwrap_or(-1);
    let expiry = u64::try_from(left).map_or(Expiry::Never, |left| Expiry::In(Duration::from_millis(left)));
    // A counter that is no token must not hide the holder of the lock.
    let token = parts.next().and_then(|number| token(number).ok());
    Ok(Held { claim, by: plainly(by)?, digest: plainly(digest)?, said, expiry, token })
}

pub(crate) fn milliseconds(ttl: Duration) -> u64 {
    u64::try_from(ttl.as_millis()).unwrap_or(u64::MAX)
}

fn nonsense(cause: impl ToString) -> Error {
    let message = "a script answered with what this release does not understand";
    Error::new(ErrorKind::Layout, "redis store", message).with("cause", cause.to_string()).outcome_unknown()
}

impl Dialect {
    /// The meaning of the server's errors that are specific to this layout.
    pub(crate) fn meaning(&self, error: &RedisError) -> Option<Meaning> {
        if error.code() == Some("WRONGTYPE") {
            return Some(refused(ErrorKind::Layout, NO_RECORDS));
        }
        // The refused command may be in the middle of a script.
        is_denied(error).then(|| Meaning { unknown: true, ..refused(ErrorKind::Denied, self.denied) })
    }
}
