//! The layout of most Redis clients: a string with a ttl under the name, set if absent. The client that set the value holds the lock.
//! `docs/stores.md` lists the clients with this layout.

use std::sync::{Arc, LazyLock};
use std::time::Duration;

use redis::Cmd;

use super::try_again::{self, Dialect, Held, Marks, Scripts, WAKE_BOUND};
use super::wire::{Config, Script};
use crate::kit::served::request_id;
use crate::store::{Capability, Peer, Presumption, RequestId, Residue, Store, Tokens};

pub(super) static CAPABILITY: Capability = Capability {
    presumes: &[Presumption::MemoryKept, Presumption::KeyStays, Presumption::ClockSteady],
    detection_slack: Duration::from_millis(100),
    wake_bound: WAKE_BOUND,
    same_as: &[
        Peer::RedisPy,
        Peer::Redsync,
        Peer::NpmRedlock,
        Peer::Rslock,
        Peer::BsmRedislock,
        Peer::RedisSemaphore,
        Peer::SetIfAbsent,
    ],
    residue: &[Residue::BreaksForDays(30)],
    ..Capability::least("redis", "SET name value NX PX ttl")
};

/// The layout `plain` with the signal of python-redis-lock.
pub(super) static SIGNALLING: LazyLock<Capability> = LazyLock::new(|| Capability {
    layout: "SET name value NX PX ttl, and python-redis-lock's signal at each release",
    same_as: &[Peer::PythonRedisLock, Peer::SetIfAbsent],
    residue: &[Residue::SignalForSeconds(1), Residue::BreaksForDays(30)],
    ..CAPABILITY.clone()
});

/// The layout `plain` with the counter that bsm/redislock calls its fence key.
pub(super) static COUNTING: LazyLock<Capability> = LazyLock::new(|| Capability {
    layout: "SET name value NX PX ttl, and a counter",
    tokens: Tokens::Counter,
    residue: &[Residue::NumberPerName, Residue::BreaksForDays(30)],
    ..CAPABILITY.clone()
});

/// The further key of each lock.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Extra {
    Nothing,
    /// The list on which python-redis-lock waits.
    Signal,
    /// A counter: its key is the lock's key with this ending.
    Counter(String),
}

/// The prefixes of python-redis-lock, for keys and for signals.
pub(super) const SIGNALLED: &str = "lock:";
const SIGNALS: &str = "lock-signal:";

/// The store on this server, whose keys are the names with `prefix` before them.
pub(super) fn new(config: Config, prefix: String, extra: Extra) -> Arc<dyn Store> {
    try_again::new(config, dialect(prefix, extra))
}

/// The layout, for one server and for several.
pub(super) fn dialect(prefix: String, extra: Extra) -> Dialect {
    let (capability, scripts): (&Capability, _) = match extra {
        Extra::Nothing => (&CAPABILITY, &SCRIPTS),
        Extra::Signal => (&SIGNALLING, &SIGNALLING_SCRIPTS),
        Extra::Counter(_) => (&COUNTING, &COUNTING_SCRIPTS),
    };
    // The script that takes the lock raises the counter, so a single command is not enough.
    let quick: Option<try_again::Quick> = if matches!(extra, Extra::Counter(_)) { None } else { Some(quick) };
    let counters = if let Extra::Counter(ending) = &extra { Some(ending.clone()) } else { None };
    let extra = move |key: &str| match &extra {
        Extra::Nothing => Vec::new(),
        Extra::Signal => vec![format!("{SIGNALS}{}", key.strip_prefix(SIGNALLED).unwrap_or(key))],
        Extra::Counter(ending) => vec![format!("{key}{ending}")],
    };
    Dialect {
        capability,
        prefix,
        quick,
        marks: &MARKS,
        extra: Box::new(extra),
        counters,
        is_clustered: false,
        channel: None,
        pause: PAUSE,
        denied: DENIED,
        scripts,
    }
}

const DENIED: &str = "the access control list does not allow it: the user needs scripts and the commands in them, on the keys of the locks, on their further keys (`signal`, `fence`), and on `fencelock:breaks:*`; docs/stores.md has the rule";

/// With this pause, a session asks for a busy lock some five times a second, for any number of waiters.
const PAUSE: Duration = Duration::from_millis(100);

/// The beginning of a fencelock's value.
pub(super) const OURS: &str = "fl1:";

pub(super) static MARKS: Marks = Marks {
    head: |id| format!("{OURS}{id}:"),
    ours,
    foreign: "a string lock of another client",
    endless: "a string without a ttl, of another client or no lock at all",
    kind: "string",
    listed: OURS,
};

/// Reads the request at the beginning of a fencelock's value, and the text after it.
fn ours(held: &Held) -> Option<(RequestId, &[u8])> {
    let (id, said) = std::str::from_utf8(&held.by).ok()?.strip_prefix(OURS)?.split_once(':')?;
    Some((request_id(id)?, said.as_bytes()))
}

/// The command with which every client takes the lock. If the key is there, the command changes nothing and names no holder.
fn quick(key: &str, head: &str, said: &str, ttl: Duration) -> Cmd {
    let mut command = redis::cmd("SET");
    command.arg(key).arg(format!("{head}{said}")).arg("NX").arg("PX").arg(try_again::milliseconds(ttl));
    command
}

/// The scripts, with or without the further key of a lock.
fn scripts(signals: bool, counts: bool) -> Scripts {
    const COMMON: &str = concat!(include_str!("../try_again/count.lua"), include_str!("scripts/signal.lua"));
    let script = |name, text| Script::new(name, format!("local signals, counts = {signals}, {counts}\n{COMMON}{text}"));
    Scripts {
        acquire: script("plain/try", include_str!("scripts/try.lua")),
        renew: script("plain/renew", include_str!("scripts/renew.lua")),
        leave: script("plain/leave", include_str!("scripts/leave.lua")),
        // The layout does not show whether another client waits.
        pass: None,
        shared: None,
        show: script("plain/show", include_str!("scripts/show.lua")),
        end: script("plain/break", include_str!("scripts/break.lua")),
        names: script("plain/names", include_str!("scripts/names.lua")),
    }
}

static SCRIPTS: LazyLock<Scripts> = LazyLock::new(|| scripts(false, false));
static SIGNALLING_SCRIPTS: LazyLock<Scripts> = LazyLock::new(|| scripts(true, false));
static COUNTING_SCRIPTS: LazyLock<Scripts> = LazyLock::new(|| scripts(false, true));
