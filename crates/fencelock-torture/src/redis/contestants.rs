//! Who takes part in an experiment: fencelock, and a careful client of the lock that most people write themselves.

use std::io;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::thread;
use std::time::{Duration, Instant};

use clap::ValueEnum;
use fencelock::FencingToken;
use fencelock::blocking::{Client, Guard};
use fencelock_testbed::redis::{Hands, Reply};

/// How long leases are.
pub(super) const TTL: Duration = Duration::from_secs(2);

/// How soon somebody asks again who was refused.
const AGAIN: Duration = Duration::from_millis(5);

const DROP: &str = "if redis.call('GET', KEYS[1]) == ARGV[1] then return redis.call('DEL', KEYS[1]) end return 0";

const EXTEND: &str =
    "if redis.call('GET', KEYS[1]) == ARGV[1] then return redis.call('PEXPIRE', KEYS[1], ARGV[2]) end return 0";

/// Whose lock it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Layout {
    /// Ours: the fair layout, with fencing tokens; of several masters Redlock, without.
    Fair,
    /// `SET key value NX PX ttl`, kept alive and released by scripts that compare the value; without tokens. It counts its
    /// lease from before each request, as nothing but care makes a client do. Of several masters a quorum decides.
    Plain,
}

impl Layout {
    /// What it is called where one server holds the lock, or a quorum.
    pub(super) fn title(self, is_of_quorum: bool) -> &'static str {
        match (self, is_of_quorum) {
            (Self::Fair, false) => "`fair`",
            (Self::Fair, true) => "`redlock:`",
            (Self::Plain, false) => "`SET NX PX`",
            (Self::Plain, true) => "Redlock by hand",
        }
    }
}

/// A lock that was granted.
pub(super) enum Held {
    Fair(Box<Guard>, #[expect(dead_code, reason = "it keeps the guard alive")] Client),
    Plain(Arc<Plain>),
}

impl Held {
    /// Takes the lock from the server at this address, or from a quorum of several, or gives up after `patience`.
    pub(super) fn take(layout: Layout, addresses: &[SocketAddr], patience: Duration) -> io::Result<Option<Self>> {
        let start = Instant::now();
        loop {
            let taken = match layout {
                Layout::Fair => fair(addresses, patience.saturating_sub(start.elapsed())),
                Layout::Plain => Plain::take(addresses).map(|plain| plain.map(Self::Plain)),
            };
            match taken {
                Ok(Some(held)) => return Ok(Some(held)),
                Ok(None) | Err(_) if start.elapsed() < patience => thread::sleep(AGAIN),
                Ok(None) => return Ok(None),
                Err(error) => return Err(error),
            }
        }
    }

    /// Whether its holder takes itself for one.
    pub(super) fn believes(&self) -> bool {
        match self {
            Self::Fair(guard, _) => guard.check().is_ok(),
            Self::Plain(plain) => plain.believes(),
        }
    }

    /// What it hands to a resource.
    pub(super) fn token(&self) -> Option<i64> {
        match self {
            Self::Fair(guard, _) => guard.token().map(FencingToken::to_i64),
            Self::Plain(_) => None,
        }
    }
}

fn fair(addresses: &[SocketAddr], patience: Duration) -> io::Result<Option<Held>> {
    let scheme = if addresses.len() == 1 { "redis" } else { "redlock" };
    let hosts = addresses.iter().map(SocketAddr::to_string).collect::<Vec<_>>().join(",");
    let url = format!("{scheme}://{hosts}?ttl_ms={}", TTL.as_millis());
    let granted = Client::connect(&url).and_then(|client| {
        let guard = client.mutex("job")?.acquire_within(patience)?;
        Ok(Held::Fair(Box::new(guard), client))
    });
    match granted {
        Ok(held) => Ok(Some(held)),
        Err(error) if matches!(error.kind(), fencelock::ErrorKind::TimedOut | fencelock::ErrorKind::Busy) => Ok(None),
        Err(error) => Err(io::Error::other(error)),
    }
}

/// A holder of a key with a time to live.
pub(super) struct Plain {
    addresses: Vec<SocketAddr>,
    value: String,
    start: Instant,
    /// Until when its lease lasts for certain, in nanoseconds from `start`.
    until: AtomicU64,
}

impl Plain {
    fn take(addresses: &[SocketAddr]) -> io::Result<Option<Arc<Self>>> {
        static NUMBER: AtomicU64 = AtomicU64::new(0);
        let value = format!("{}-{}", std::process::id(), NUMBER.fetch_add(1, Ordering::Relaxed));
        let start = Instant::now();
        let ttl = TTL.as_millis().to_string();
        let plain = Self { addresses: addresses.to_vec(), value, start, until: AtomicU64::new(nanos(TTL)) };
        let (taken, _) = plain.votes(&["SET", "job", &plain.value, "NX", "PX", &ttl]);
        if taken < plain.quorum() {
            plain.votes(&["EVAL", DROP, "1", "job", &plain.value]);
            return Ok(None);
        }
        let plain = Arc::new(plain);
        let kept = Arc::downgrade(&plain);
        thread::spawn(move || keep_alive(&kept));
        Ok(Some(plain))
    }

    fn quorum(&self) -> usize {
        self.addresses.len() / 2 + 1
    }

    /// Asks every server: how many say that it was done, and how many that it was not.
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
        nanos(self.start.elapsed()) < self.until.load(Ordering::Acquire)
    }

    /// Says whether there is anything left to keep alive.
    fn extend(&self) -> bool {
        let sent = self.start.elapsed();
        let ttl = TTL.as_millis().to_string();
        let (extended, gone) = self.votes(&["EVAL", EXTEND, "1", "job", &self.value, &ttl]);
        if extended >= self.quorum() {
            self.until.store(nanos(sent + TTL), Ordering::Release);
        } else if gone >= self.quorum() {
            self.until.store(0, Ordering::Release);
        }
        // Not answered, or refused: whatever was certain before still is.
        self.believes()
    }
}

/// As often as fencelock renews, until it is lost or dropped.
fn keep_alive(plain: &Weak<Plain>) {
    loop {
        thread::sleep(TTL / 4);
        if !plain.upgrade().is_some_and(|plain| plain.extend()) {
            return;
        }
    }
}

fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}
