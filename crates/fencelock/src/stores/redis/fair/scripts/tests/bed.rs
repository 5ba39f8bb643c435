//! A connection to a real server, and keys that no other test has.

use std::collections::BTreeMap;
use std::time::Duration;

use fencelock_testbed::redis::shared;
use redis::{Cmd, Connection, RedisError, Value};

use super::super::{Call, Enter, News, Open, Renewed, Seen, Shown, Swept, enter, look, names, news, open, renew, show};
use crate::name::Name;
use crate::queue::Claim;
use crate::store::{Entry, Owner, RequestId};
use crate::stores::redis::fair::layout::KeySpace;

/// Longer than any test.
pub(super) const LONG: Duration = Duration::from_secs(600);

/// Random numbers from one seed, which is shown when the test fails.
pub(super) struct Dice(fastrand::Rng);

impl Dice {
    /// With the seed of the environment's `FENCELOCK_SEED`, or else one of chance.
    pub(super) fn random() -> Self {
        let given = std::env::var("FENCELOCK_SEED").ok();
        let seed = given.map_or_else(|| fastrand::u64(..), |seed| seed.parse().unwrap());
        println!("seed {seed}");
        Self(fastrand::Rng::with_seed(seed))
    }

    pub(super) fn below(&mut self, end: usize) -> usize {
        self.0.usize(..end)
    }

    pub(super) fn percent(&mut self, percent: usize) -> bool {
        self.below(100) < percent
    }
}

pub(super) struct Bed {
    pub(super) connection: Connection,
    pub(super) layout: KeySpace,
    listener: Connection,
    requests: u64,
}

impl Bed {
    /// On the server that tests share.
    pub(super) fn new() -> Self {
        Self::at(&shared().url())
    }

    /// On a server of one's own.
    pub(super) fn at(url: &str) -> Self {
        let client = redis::Client::open(format!("{url}?protocol=resp3")).unwrap();
        let layout = KeySpace::new(&format!("test-{:016x}", getrandom::u64().unwrap()));
        let plain = redis::Client::open(url).unwrap();
        let mut bed = Self {
            connection: client.get_connection().unwrap(),
            layout,
            listener: plain.get_connection().unwrap(),
            requests: 0,
        };
        let pattern = format!("{}*", bed.layout.session_prefix());
        redis::cmd("PSUBSCRIBE").arg(pattern).exec(&mut bed.listener).unwrap();
        bed
    }

    pub(super) fn ask(&mut self, command: &Cmd) -> Result<Value, RedisError> {
        command.query(&mut self.connection)
    }

    pub(super) fn words(&mut self, words: &[&str]) -> Value {
        let mut command = redis::cmd(words[0]);
        command.arg(&words[1..]);
        self.ask(&command).unwrap()
    }

    pub(super) fn try_run<R>(&mut self, call: Call<R>) -> Result<R, RedisError> {
        let answer = match self.ask(&call.command) {
            Err(error) if error.code() == Some("NOSCRIPT") => {
                self.ask(&call.script.load())?;
                self.ask(&call.command)?
            }
            answer => answer?,
        };
        Ok((call.read)(answer.clone()).unwrap_or_else(|error| panic!("{call:?}: {answer:?}: {error}")))
    }

    pub(super) fn run<R>(&mut self, call: Call<R>) -> R {
        let shown = format!("{call:?}");
        self.try_run(call).unwrap_or_else(|error| panic!("{shown}: {error}"))
    }

    /// A new session.
    pub(super) fn session(&mut self, ttl: Duration) -> u64 {
        let session = getrandom::u64().unwrap();
        let owner = Owner { client: session, host: "here".to_owned(), pid: 17 };
        assert_eq!(self.run(open(&self.layout.clone(), session, ttl, &owner)), Open::Opened(1));
        session
    }

    /// An entry with a new request id.
    pub(super) fn entry(&mut self, name: &Name, claim: Claim, wait: bool) -> Entry {
        self.requests += 1;
        let id = RequestId { client: 0xc0ffee, number: self.requests };
        Entry { name: name.clone(), claim, id, wait, purpose: None }
    }

    /// Enters in `session`. Returns the entry and the answer.
    pub(super) fn enter(&mut self, session: u64, name: &Name, claim: Claim) -> (Entry, Enter) {
        let entry = self.entry(name, claim, true);
        let answer = self.run(enter(&self.layout.clone(), session, 1, &entry));
        (entry, answer)
    }

    /// Enters, and demands a grant. Returns the request and its number.
    pub(super) fn hold(&mut self, session: u64, name: &Name, claim: Claim) -> (RequestId, u64) {
        match self.enter(session, name, claim) {
            (entry, Enter::Granted(seq)) => (entry.id, seq),
            (_, answer) => panic!("{answer:?}"),
        }
    }

    /// Enters, and demands that the request waits.
    pub(super) fn wait(&mut self, session: u64, name: &Name, claim: Claim) -> (RequestId, u64, Duration) {
        match self.enter(session, name, claim) {
            (entry, Enter::Waiting { seq, look_in: Some(look_in), .. }) => (entry.id, seq, look_in),
            (_, answer) => panic!("{answer:?}"),
        }
    }

    /// The standing of a place, after a look at its queue.
    pub(super) fn seen(&mut self, session: u64, name: &Name, id: RequestId) -> Seen {
        let look = self.run(look(&self.layout.clone(), session, &[(name.clone(), vec![id])], false));
        look.unwrap()[0].places[0]
    }

    /// The ids in a queue that are alive, front first.
    pub(super) fn line(&mut self, name: &Name) -> Vec<RequestId> {
        self.shown(name).iter().map(|shown| shown.id).collect()
    }

    /// The living contenders of a queue, front first; no more than a page.
    pub(super) fn shown(&mut self, name: &Name) -> Vec<Shown> {
        let page = self.run(show(&self.layout.clone(), name, 0, None, 1000));
        assert_eq!(page.queued, page.places.len() + page.dead);
        page.places
    }

    /// The names that begin with `prefix` in this number of first buckets, and the number of calls for them.
    pub(super) fn listed(&mut self, buckets: u16, prefix: &str) -> (Vec<Name>, usize) {
        let (mut found, mut calls) = (std::collections::BTreeSet::new(), 0);
        let mut from = Swept { bucket: 0, cursor: "0".to_owned() };
        while from.bucket < buckets {
            let named = self.run(names(&self.layout.clone(), &from, buckets, prefix));
            found.extend(named.names);
            from = Swept { bucket: from.bucket + named.swept.bucket, ..named.swept };
            calls += 1;
        }
        (found.into_iter().collect(), calls)
    }

    /// A renewal that asks about no bucket, and whose answer reports nothing.
    pub(super) fn renewed(&mut self, session: u64, ttl: Duration) {
        let answer = self.run(renew(&self.layout.clone(), session, ttl, &[], &[]));
        assert_eq!(answer, Renewed::Alive { broken: vec![], lost: vec![] });
    }

    /// The messages since the last call, each with its session and its events.
    pub(super) fn received(&mut self) -> Vec<(u64, Vec<News>)> {
        let end = format!("{}end", self.layout.session_prefix());
        self.words(&["PUBLISH", &end, ""]);
        let mut received = Vec::new();
        loop {
            let (channel, message) = match self.listener.recv_response().unwrap() {
                Value::Array(items) | Value::Push { data: items, .. } => {
                    let [.., channel, message] = items.as_slice() else { continue };
                    (bytes(channel), bytes(message))
                }
                _ => continue,
            };
            if channel == end.as_bytes() {
                return received;
            }
            let channel = String::from_utf8(channel).unwrap();
            let Some(session) = channel.strip_prefix(&self.layout.session_prefix()) else { continue };
            received.push((u64::from_str_radix(session, 16).unwrap(), news(&message)));
        }
    }

    /// All fields of the bucket of a name, and the order of its queue.
    pub(super) fn raw(&mut self, name: &Name) -> (BTreeMap<String, String>, Vec<(String, u64)>) {
        let slot = self.layout.slot(name);
        let fields = self.raw_fields(name);
        let order: Vec<(String, u64)> = redis::cmd("ZRANGE")
            .arg(&slot.queue_key)
            .arg(0)
            .arg(-1)
            .arg("WITHSCORES")
            .query(&mut self.connection)
            .unwrap();
        (fields, order)
    }

    /// All fields of the bucket of a name.
    pub(super) fn raw_fields(&mut self, name: &Name) -> BTreeMap<String, String> {
        redis::cmd("HGETALL").arg(self.layout.slot(name).bucket_key).query(&mut self.connection).unwrap()
    }

    /// The server's clock, and up to when these sessions live, in ms.
    pub(super) fn ends(&mut self, sessions: &[u64]) -> (u64, BTreeMap<u64, u64>) {
        let text = "local time = redis.call('TIME') \
                    local answer = { time[1] * 1000 + math.floor(time[2] / 1000) } \
                    for _, key in ipairs(KEYS) do answer[#answer + 1] = redis.call('PEXPIRETIME', key) end \
                    return answer";
        let keys: Vec<String> = sessions.iter().map(|session| self.layout.session_key(*session)).collect();
        let mut command = redis::cmd("EVAL");
        command.arg(text).arg(keys.len()).arg(&keys);
        // The moments themselves: a rest of time would shrink until the next question.
        let moments: Vec<u64> = command.query(&mut self.connection).unwrap();
        (moments[0], sessions.iter().copied().zip(moments[1..].iter().copied()).collect())
    }

    /// Ends a session as if its ttl had passed, and with it the boundaries of its queues.
    pub(super) fn kill(&mut self, session: u64, names: &[&Name]) {
        let key = self.layout.session_key(session);
        self.words(&["DEL", &key]);
        self.pass_boundary(names);
    }

    /// Makes the boundary pass: the scripts have to check again which contenders live.
    pub(super) fn pass_boundary(&mut self, names: &[&Name]) {
        for name in names {
            let key = self.layout.slot(name).bucket_key;
            let Value::BulkString(record) = self.words(&["HGET", &key, name.as_str()]) else { continue };
            let record = String::from_utf8(record).unwrap();
            let mut fields: Vec<&str> = record.split(' ').collect();
            if fields.len() != 7 {
                // The record is the only place.
                continue;
            }
            (fields[5], fields[6]) = ("0", "0");
            self.words(&["HSET", &key, name.as_str(), &fields.join(" ")]);
        }
    }

    /// The number of stored places of a queue of two or more.
    pub(super) fn stored(&mut self, name: &Name) -> usize {
        let key = self.layout.slot(name).queue_key;
        redis::cmd("ZCARD").arg(&key).query(&mut self.connection).unwrap()
    }
}

fn bytes(value: &Value) -> Vec<u8> {
    match value {
        Value::BulkString(bytes) => bytes.clone(),
        Value::SimpleString(text) => text.clone().into_bytes(),
        _ => Vec::new(),
    }
}
