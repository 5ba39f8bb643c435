//! The layout of Redisson's `RLock`: a hash under the name, with a field for the holder. Waiters receive releases on Redisson's channel.
//! Its read-write lock is such a hash, too. `../try_again/NOTES.md` has the bytes, and which locks exclude each other.

use std::sync::{Arc, LazyLock};
use std::time::Duration;

use super::plain;
use super::try_again::{self, Dialect, Held, Marks, Scripts, Sharing};
use super::wire::{Config, Naming, Script};
use crate::queue::Claim;
use crate::store::{Capability, Peer, RequestId, Residue, Store, Tokens};

pub(super) static CAPABILITY: LazyLock<Capability> = LazyLock::new(|| Capability {
    layout: "Redisson's RLock and RReadWriteLock: a hash of holders with a ttl",
    shared_claims: true,
    same_as: &[Peer::Redisson, Peer::RedissonReadWrite],
    ..plain::CAPABILITY.clone()
});

/// The layout `redisson` with the counter of Redisson's fenced lock.
pub(super) static FENCED: LazyLock<Capability> = LazyLock::new(|| Capability {
    layout: "Redisson's RFencedLock: a hash with a ttl, and a counter",
    tokens: Tokens::Counter,
    shared_claims: false,
    same_as: &[Peer::Redisson],
    residue: &[Residue::NumberPerName, Residue::BreaksForDays(30)],
    ..CAPABILITY.clone()
});

/// The store on this server, whose keys are the names with `prefix` before them; `is_fenced` with the fenced lock's counter.
pub(super) fn new(config: Config, prefix: String, is_fenced: bool) -> Arc<dyn Store> {
    let extra = move |key: &str| {
        let mut keys = vec![of(QUEUE, key)];
        keys.extend(is_fenced.then(|| of(COUNTER, key)));
        keys
    };
    let scripts = if config.naming == Naming::Cluster { &CLUSTERED } else { &SCRIPTS };
    try_again::new(
        config,
        Dialect {
            capability: if is_fenced { &FENCED } else { &CAPABILITY },
            prefix,
            quick: None,
            marks: &MARKS,
            extra: Box::new(extra),
            // No lock of these layouts begins like the key of a counter.
            counters: None,
            is_clustered: false,
            channel: Some(|key, claim| of(if claim == Claim::MUTEX { CHANNEL } else { SHARED_CHANNEL }, key)),
            pause: PAUSE,
            denied: DENIED,
            scripts,
        },
    )
}

const DENIED: &str = "the access control list does not allow it: the user needs scripts and the commands in them, SUBSCRIBE, UNSUBSCRIBE and PUBLISH, on the keys of the locks, on `*:rwlock_timeout:*`, `redisson_lock_queue:*`, `redisson_lock_token:*` and `fencelock:breaks:*`, and on the channels `redisson_lock__channel:*` and `redisson_rwlock:*`; docs/stores.md has the rule";

/// A message may be lost, and a spin lock publishes no release.
const PAUSE: Duration = Duration::from_millis(500);

const QUEUE: &str = "redisson_lock_queue";
const COUNTER: &str = "redisson_lock_token";
const CHANNEL: &str = "redisson_lock__channel";
/// The channel of the read-write lock.
const SHARED_CHANNEL: &str = "redisson_rwlock";

/// Redisson's default `lockWatchdogTimeout`. Each of its readers sets the whole lock's ttl to that, even if a fencelock's reader would live
/// longer.
const SHARED_TTL: Duration = Duration::from_secs(30);

/// Redisson's name for a further key of the lock under `key`, in the same slot of a cluster.
fn of(what: &str, key: &str) -> String {
    if key.contains('{') { format!("{what}:{key}") } else { format!("{what}:{{{key}}}") }
}

/// The beginning of a fencelock's id: a UUID of version 8, whose other bits are ours to choose. Redisson's ids are of version 4.
const OURS: &str = "666c3100-0000-8";

static MARKS: Marks = Marks {
    head: field,
    ours,
    foreign: "a lock of Redisson",
    endless: "a lock of Redisson without a ttl",
    kind: "hash of a lock for mutexes, of a read-write lock for readers and writers",
    listed: "",
};

/// Redisson's field is its client's UUID and a thread; a fencelock's is a UUID with the client's number, and the request.
fn field(id: RequestId) -> String {
    let client = format!("{:016x}", id.client);
    format!("{OURS}{}-8{}-00{}:{}", &client[..3], &client[3..6], &client[6..], id.number)
}

fn ours(held: &Held) -> Option<(RequestId, &[u8])> {
    let by = std::str::from_utf8(&held.by).ok()?;
    let by = if held.claim == Claim::WRITER { by.strip_suffix(":write")? } else { by };
    let (uuid, number) = by.split_once(':')?;
    let client: String = uuid.strip_prefix(OURS)?.split('-').zip([0, 1, 2]).map(|(part, at)| &part[at..]).collect();
    let id = RequestId { client: u64::from_str_radix(&client, 16).ok()?, number: number.parse().ok()? };
    (field(id) == by).then_some((id, &*held.said))
}

const COMMON: &str = concat!(
    include_str!("../try_again/count.lua"),
    include_str!("scripts/holder.lua"),
    include_str!("scripts/shared.lua")
);

/// The scripts. In a Cluster, Redisson subscribes to sharded channels.
fn scripts(sharded: bool) -> Scripts {
    let script = |name, text| Script::new(name, format!("local sharded = {sharded}\n{COMMON}{text}"));
    Scripts {
        acquire: script("redisson/try", include_str!("scripts/try.lua")),
        renew: script("redisson/renew", include_str!("scripts/renew.lua")),
        leave: script("redisson/leave", include_str!("scripts/leave.lua")),
        pass: Some(script("redisson/pass", include_str!("scripts/pass.lua"))),
        shared: Some(Sharing {
            acquire: script("redisson/try_shared", include_str!("scripts/try_shared.lua")),
            lighten: script("redisson/lighten", include_str!("scripts/lighten.lua")),
            most_ttl: SHARED_TTL,
        }),
        show: script("redisson/show", include_str!("scripts/show.lua")),
        end: script("redisson/break", include_str!("scripts/break.lua")),
        names: script("redisson/names", include_str!("scripts/names.lua")),
    }
}

static SCRIPTS: LazyLock<Scripts> = LazyLock::new(|| scripts(false));
static CLUSTERED: LazyLock<Scripts> = LazyLock::new(|| scripts(true));

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_read_as_they_are_written_and_those_of_redisson_are_not_ours() {
        let held = |by: &str| Held::of(by.as_bytes(), b"{}");
        for (client, number) in [(0, 1), (u64::MAX, u64::MAX), (0x0123_4567_89ab_cdef, 42)] {
            let id = RequestId { client, number };
            assert_eq!(ours(&held(&field(id))).map(|(id, _)| id), Some(id), "{}", field(id));
        }
        let id = RequestId { client: 0x0123_4567_89ab_cdef, number: 42 };
        assert_eq!(field(id), "666c3100-0000-8012-8345-006789abcdef:42");
        for other in [
            "9ab0343c-daa2-4ba9-b245-bc89ab979c09:1",
            "666c3100-0000-8é12-8345-006789abcdef:42",
            "666c3100-0000-8:1",
            "",
        ] {
            assert_eq!(ours(&held(other)), None, "{other}");
        }
    }

    #[test]
    fn keys_of_a_lock_have_the_names_that_redisson_gives_them() {
        assert_eq!(of(CHANNEL, "job"), "redisson_lock__channel:{job}");
        assert_eq!(of(COUNTER, "a{b}c"), "redisson_lock_token:a{b}c");
        assert_eq!(of(QUEUE, "a{b"), "redisson_lock_queue:a{b");
    }
}
