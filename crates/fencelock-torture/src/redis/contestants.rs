//! The contestants of an experiment: fencelock, and a careful client by hand of the most common lock.

use std::io;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::thread;
use std::time::{Duration, Instant};

use clap::ValueEnum;
use fencelock::blocking::{Client, Guard};
use fencelock::{ErrorKind, FencingToken};
use fencelock_testbed::redis::{Hands, Reply};

/// How long leases are.
pub(super) const TTL: Duration = Duration::from_secs(2);

/// How soon a refused client asks again.
const AGAIN: Duration = Duration::from_millis(5);

const DROP: &str = "if redis.call('GET', KEYS[1]) == ARGV[1] then return redis.call('DEL', KEYS[1]) end return 0";

const EXTEND: &str =
    "if redis.call('GET', KEYS[1]) == ARGV[1] then return redis.call('PEXPIRE', KEYS[1], ARGV[2]) end return 0";

/// The client whose lock is tried.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Lock {
    /// fencelock's default layout on one server, with fencing tokens.
    Fair,
    /// fencelock's layout `plain` on one server: the keys of `SET NX PX` clients, without tokens.
    Plain,
    /// fencelock's layout `redisson` on one server: the keys of Redisson's `getLock`, without tokens.
    Redisson,
    /// fencelock's Redlock over several masters, without tokens.
    Redlock,
    /// `SET key value NX PX ttl`, kept alive and released by scripts that compare the value; without tokens. This careful
    /// client counts its lease from before each request, which the commands do not demand. With several masters, a quorum
    /// decides.
    ByHand,
}

impl Lock {
    /// The title where one server holds the lock, or a quorum.
    pub(super) fn title(self, is_of_quorum: bool) -> &'static str {
        match self {
            Self::Fair => "`fair`",
            Self::Plain => "`plain`",
            Self::Redisson => "`redisson`",
            Self::Redlock => "`redlock:`",
            Self::ByHand if is_of_quorum => "Redlock by hand",
            Self::ByHand => "`SET NX PX`",
        }
    }

    /// Whether the lock has tokens.
    #[must_use]
    pub fn is_fenced(self) -> bool {
        self == Self::Fair
    }

    /// The URL of a lock of fencelock; `None` for other clients' locks.
    fn url(self, hosts: &str) -> Option<String> {
        let ttl = TTL.as_millis();
        match self {
            Self::Fair => Some(format!("redis://{hosts}?ttl_ms={ttl}")),
            Self::Plain => Some(format!("redis://{hosts}?layout=plain&ttl_ms={ttl}")),
            Self::Redisson => Some(format!("redis://{hosts}?layout=redisson&ttl_ms={ttl}")),
            Self::Redlock => Some(format!("redlock://{hosts}?ttl_ms={ttl}")),
            Self::ByHand => None,
        }
    }
}

/// A lock that was granted.
pub(super) enum Held {
    Ours(Box<Guard>, #[expect(dead_code, reason = "it keeps the guard alive")] Client),
    ByHand(Arc<ByHand>),
}

impl Held {
    /// Takes the lock from the server at this address, or from a quorum of several, or gives up after `patience`.
    pub(super) fn take(lock: Lock, addresses: &[SocketAddr], patience: Duration) -> io::Result<Option<Self>> {
        let hosts = addresses.iter().map(SocketAddr::to_string).collect::<Vec<_>>().join(",");
        let url = lock.url(&hosts);
        let start = Instant::now();
        loop {
            let taken = match &url {
                Some(url) => Client::connect(url)
                    .map_err(io::Error::other)
                    .and_then(|client| Self::of(&client, patience.saturating_sub(start.elapsed()))),
                None => ByHand::take(addresses).map(|held| held.map(Self::ByHand)),
            };
            match taken {
                Ok(Some(held)) => return Ok(Some(held)),
                Ok(None) | Err(_) if start.elapsed() < patience => thread::sleep(AGAIN),
                Ok(None) => return Ok(None),
                Err(error) => return Err(error),
            }
        }
    }

    /// Takes the lock with this client of fencelock.
    pub(super) fn of(client: &Client, patience: Duration) -> io::Result<Option<Self>> {
        match client.mutex("job").and_then(|mutex| mutex.acquire_within(patience)) {
            Ok(guard) => Ok(Some(Self::Ours(Box::new(guard), client.clone()))),
            Err(error) if matches!(error.kind(), ErrorKind::TimedOut | ErrorKind::Busy) => Ok(None),
            Err(error) => Err(io::Error::other(error)),
        }
    }

    /// Whether the contestant believes that it holds the lock.
    pub(super) fn believes(&self) -> bool {
        match self {
            Self::Ours(guard, _) => guard.check().is_ok(),
            Self::ByHand(held) => held.believes(),
        }
    }

    /// The contestant's token for a resource.
    pub(super) fn token(&self) -> Option<i64> {
        match self {
            Self::Ours(guard, _) => guard.token().map(FencingToken::to_i64),
            Self::ByHand(_) => None,
        }
    }
}

/// A holder of a key with a time to live.
pub(super) struct ByHand {
    addresses: Vec<SocketAddr>,
    value: String,
    /// The end of the lease's certainty.
    until: Mutex<Instant>,
}

impl ByHand {
    fn take(addresses: &[SocketAddr]) -> io::Result<Option<Arc<Self>>> {
        static NUMBER: AtomicU64 = AtomicU64::new(0);
        let value = format!("{}-{}", std::process::id(), NUMBER.fetch_add(1, Ordering::Relaxed));
        let ttl = TTL.as_millis().to_string();
        let held = Self { addresses: addresses.to_vec(), value, until: Mutex::new(Instant::now() + TTL) };
        let (taken, _) = held.votes(&["SET", "job", &held.value, "NX", "PX", &ttl]);
        if taken < held.quorum() {
            held.votes(&["EVAL", DROP, "1", "job", &held.value]);
            return Ok(None);
        }
        let held = Arc::new(held);
        let kept = Arc::downgrade(&held);
        thread::spawn(move || keep_alive(&kept));
        Ok(Some(held))
    }

    fn quorum(&self) -> usize {
        self.addresses.len() / 2 + 1
    }

    /// Asks every server. Returns how many confirm the request, and how many refuse it.
    fn votes(&self, request: &[&str]) -> (usize, usize) {
        let ask = |address| Hands::connect(address).and_then(|mut hands| hands.ask(request));
        let answers: Vec<Reply> = self.addresses.iter().filter_map(|address| ask(*address).ok()).collect();
        let of = |is_it: fn(&Reply) -> bool| answers.iter().filter(|reply| is_it(reply)).count();
        (
            of(|reply| matches!(reply, Reply::Status(_) | Reply::Int(1))),
            of(|reply| matches!(reply, Reply::Nil | Reply::Int(0))),
        )
    }

    fn believes(&self) -> bool {
        Instant::now() < *self.until.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns whether a key is left to keep alive.
    fn extend(&self) -> bool {
        let sent = Instant::now();
        let ttl = TTL.as_millis().to_string();
        let (extended, gone) = self.votes(&["EVAL", EXTEND, "1", "job", &self.value, &ttl]);
        let mut until = self.until.lock().unwrap_or_else(PoisonError::into_inner);
        if extended >= self.quorum() {
            *until = sent + TTL;
        } else if gone >= self.quorum() {
            *until = sent;
        }
        // Without an answer, or after a refusal, an earlier certainty still holds.
        Instant::now() < *until
    }
}

/// Renews as often as fencelock does, until the key is lost or dropped.
fn keep_alive(held: &Weak<ByHand>) {
    loop {
        thread::sleep(TTL / 4);
        if !held.upgrade().is_some_and(|held| held.extend()) {
            return;
        }
    }
}
