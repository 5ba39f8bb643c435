//! Keys and values: a queue is etcd's own `concurrency.Mutex`, whose key is `<prefix><name>/<lease>`, with the request's id behind the lease.

use std::borrow::Cow;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde::{Deserialize, Serialize};

use super::proto::KeyValue;
use crate::error::Result;
use crate::kit::record::{self, Identity, Record, milliseconds};
use crate::kit::served::request_id;
use crate::name::Name;
use crate::queue::Claim;
use crate::store::{Break, Contender, Entry, Foreign, Owner, PlaceId, RequestId, Waits};

/// The layout of the keys under a prefix.
#[derive(Debug)]
pub(super) struct Keys {
    /// The beginning of every key.
    pub(super) prefix: String,
}

impl Keys {
    /// The common beginning of all keys in the queue of `name`. Keys of locks `name/…` have it, too.
    pub(super) fn queue(&self, name: &str) -> Vec<u8> {
        format!("{}{name}/", self.prefix).into_bytes()
    }

    pub(super) fn place(&self, lease: i64, PlaceId { name, request }: &PlaceId) -> Vec<u8> {
        format!("{}{name}/{lease:x}-{request}", self.prefix).into_bytes()
    }

    /// A key outside of all queues, of a session or a record. No name has an empty part, so no key of a queue begins like this.
    pub(super) fn own(&self, rest: &str) -> Vec<u8> {
        format!("{}/fencelock/{rest}", self.prefix).into_bytes()
    }

    /// The key of a session. Every request of the session compares it. The key lives as long as the lease, and its version is the epoch.
    pub(super) fn session(&self, lease: i64) -> Vec<u8> {
        self.own(&format!("{lease:x}"))
    }

    /// The common beginning of the records of a session's broken grants. They follow the session's key, so one range has both.
    pub(super) fn records(&self, lease: i64) -> Vec<u8> {
        self.own(&format!("{lease:x}/"))
    }

    pub(super) fn record(&self, lease: i64, name: &Name, grant: u64) -> Vec<u8> {
        self.own(&format!("{lease:x}/{name}//{grant:x}"))
    }

    /// The break whose record this key holds.
    pub(super) fn broken(&self, kv: &KeyValue) -> Option<Break> {
        let rest = std::str::from_utf8(kv.key.strip_prefix(&*self.own(""))?).ok()?;
        let (name, _) = rest.split_once('/')?.1.rsplit_once("//")?;
        record::read::<Record>(&kv.value)?.order(&Name::new(name).ok()?)
    }

    /// The name of the lock whose queue has this key.
    pub(super) fn name(&self, key: &[u8]) -> Option<Name> {
        let (name, rest) = std::str::from_utf8(key).ok()?.strip_prefix(&*self.prefix)?.rsplit_once('/')?;
        lease_and_request(rest).and_then(|_| Name::new(name).ok())
    }

    /// The contenders for `name` in a listing, in the order of the listing. Keys of longer names are passed over.
    pub(super) fn contenders(&self, name: &Name, listed: Vec<KeyValue>) -> Vec<QueueKey> {
        let queue = self.queue(name.as_str());
        listed.into_iter().filter_map(|kv| QueueKey::read(&queue, kv)).collect()
    }
}

/// Reads `<lease>`, and `<lease>-<client>-<number>`, all in hexadecimal digits.
fn lease_and_request(rest: &str) -> Option<(i64, Option<RequestId>)> {
    let (lease, request) = match rest.split_once('-') {
        None => (rest, None),
        Some((lease, request)) => (lease, Some(request_id(request)?)),
    };
    Some((i64::from_str_radix(lease, 16).ok()?, request))
}

/// The value of a place's key.
#[derive(Debug, Serialize, Deserialize)]
struct Value<'a> {
    /// Weight and capacity.
    claim: [u32; 2],
    owner: Identity<'a>,
    /// When the request was made, by the client's clock, in ms since 1970.
    since_ms: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    purpose: Option<Cow<'a, str>>,
}

/// The value of the key of `entry`.
pub(super) fn value(entry: &Entry, owner: &Owner, now: SystemTime) -> Result<Vec<u8>> {
    let Entry { claim, purpose, .. } = entry;
    let value = Value {
        claim: [claim.weight(), claim.capacity()],
        owner: Identity::of(owner),
        since_ms: milliseconds(now),
        purpose: purpose.as_deref().map(Cow::Borrowed),
    };
    Ok(record::text("enter", &value)?.into_bytes())
}

/// A contender of a queue, as its key shows it.
pub(super) struct QueueKey {
    pub(super) key: Vec<u8>,
    /// The revision in which the key was made: its number, and its fencing token.
    pub(super) seq: u64,
    pub(super) lease: i64,
    /// `None` for another client's.
    pub(super) request: Option<RequestId>,
    pub(super) claim: Claim,
    value: Vec<u8>,
}

impl QueueKey {
    fn read(queue: &[u8], kv: KeyValue) -> Option<Self> {
        let rest = std::str::from_utf8(kv.key.strip_prefix(queue)?).ok()?;
        let (lease, request) = lease_and_request(rest)?;
        let value: Option<Value<'_>> = request.and_then(|_| record::read(&kv.value));
        // A key of another client, or a key with a value that was changed by hand, excludes all other contenders.
        let claim = value.and_then(|Value { claim: [weight, capacity], .. }| Claim::new(weight, capacity).ok());
        let (seq, claim) = (kv.create_revision.cast_unsigned(), claim.unwrap_or(Claim::MUTEX));
        Some(Self { key: kv.key, seq, lease, request, claim, value: kv.value })
    }

    /// The value with another claim.
    pub(super) fn lightened(self, claim: Claim) -> Option<Vec<u8>> {
        let value = Value { claim: [claim.weight(), claim.capacity()], ..record::read(&self.value)? };
        Some(record::text("downgrade", &value).ok()?.into_bytes())
    }

    pub(super) fn contender(&self) -> Contender {
        // No request of ours has the number 0.
        let foreign_id = RequestId { client: self.lease.cast_unsigned(), number: 0 };
        let what = "etcd's concurrency (clientv3's Mutex or Election, `etcdctl lock`)";
        let value: Option<Value<'_>> = self.request.and_then(|_| record::read(&self.value));
        let value = value.as_ref();
        Contender {
            owner: value.and_then(|value| value.owner.owner()),
            since: value.and_then(|value| UNIX_EPOCH.checked_add(Duration::from_millis(value.since_ms))),
            purpose: value.and_then(|value| value.purpose.as_deref()).map(Arc::from),
            foreign: self.request.is_none().then_some(Foreign { what, waits: Waits::Yes }),
            ..Contender::new(self.request.unwrap_or(foreign_id), self.claim)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stores::etcd::ops::end_of;

    fn contenders(name: &str, keys: &[&str]) -> Vec<Option<RequestId>> {
        let listed = keys.iter().map(|key| KeyValue { key: key.as_bytes().to_vec(), ..KeyValue::default() }).collect();
        let found = Keys { prefix: "l/".to_owned() }.contenders(&Name::new(name).unwrap(), listed);
        found.iter().map(|key| key.request).collect()
    }

    #[test]
    fn places_are_distinguished_from_those_of_other_clients_and_of_longer_names() {
        let id = RequestId { client: 0xab, number: 26 };
        let (name, keys) = (Name::new("a").unwrap(), Keys { prefix: "l/".to_owned() });
        let key = keys.place(0x7f, &PlaceId { name: name.clone(), request: id });
        assert_eq!(key, b"l/a/7f-00000000000000ab-1a");
        assert_eq!(keys.name(&key), Some(name));
        let found = contenders("a", &["l/a/7f-00000000000000ab-1a", "l/a/7f", "l/a/b/7f", "l/a/x", "l/a/7f-1", "l/a/"]);
        assert_eq!(found, [Some(id), None]);
        assert_eq!(contenders("a/b", &["l/a/b/7f", "l/a/7f"]), [None]);
    }

    #[test]
    fn no_name_has_a_key_among_the_records() {
        let keys = Keys { prefix: "l/".to_owned() };
        let name = Name::new("fencelock/session").unwrap();
        assert!(!keys.queue(name.as_str()).starts_with(b"l//"));
        for own in [keys.session(5), keys.record(5, &name, 7)] {
            assert!(keys.name(&own).is_none() && own.starts_with(&keys.own("")));
        }
        // The range of a session has its records, and none of another session.
        let range = keys.session(5)..end_of(&keys.records(5));
        assert!(range.contains(&keys.session(5)) && range.contains(&keys.record(5, &name, 7)));
        assert!([4, 6, 0x51, 0x5f].iter().all(|other| !range.contains(&keys.session(*other))));
    }
}
