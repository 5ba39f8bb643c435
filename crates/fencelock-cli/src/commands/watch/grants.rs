//! Beginnings and ends of grants, found by comparing each look at a store with the look before.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant, SystemTime};

use serde::Serialize;

use crate::show::{Shown, WholeQueue};
use crate::times;

const KEPT: usize = 200;

/// The upper bounds of the histogram of hold times, in seconds.
pub(crate) const BOUNDS: [u64; 8] = [1, 5, 15, 60, 300, 1_800, 7_200, 86_400];

#[derive(Clone, Default)]
pub(crate) struct Grants {
    pub(crate) events: VecDeque<Arc<Event>>,
    pub(crate) counts: Vec<Counts>,
    held: Arc<HashMap<Key, Since>>,
    begun: bool,
    store: Arc<str>,
    last: Arc<AtomicU64>,
}

/// A grant: the lock, the request, and the token, because a place can be granted again.
type Key = (Arc<str>, Arc<str>, Option<Arc<str>>);

#[derive(Clone)]
struct Since {
    class: usize,
    seen: Instant,
    age: Duration,
    who: Arc<str>,
    claim: Arc<str>,
}

/// The beginning or the end of a grant.
#[derive(Debug, Serialize)]
pub(crate) struct Event {
    /// Events of all stores are numbered together, without a gap.
    pub(crate) number: u64,
    at: String,
    what: &'static str,
    name: String,
    store: String,
    who: String,
    claim: String,
    /// The request of the holder, as its queue shows it.
    request: String,
    token: Option<String>,
    held_ms: Option<u64>,
}

#[derive(Debug, Clone, Default)]
pub(crate) struct Counts {
    pub(crate) granted: u64,
    pub(crate) ended: u64,
    /// For each bound, the number of holds that were longer than the bound before it, and not longer than this one.
    pub(crate) holds: [u64; BOUNDS.len()],
    pub(crate) held: Duration,
}

impl Grants {
    /// The grants in `store`. Events of all stores share one numbering.
    pub(crate) fn new(store: Arc<str>, classes: usize, last: Arc<AtomicU64>) -> Self {
        Self { store, counts: vec![Counts::default(); classes], last, ..Self::default() }
    }

    pub(crate) fn granted(&self) -> u64 {
        self.counts.iter().map(|counts| counts.granted).sum()
    }

    /// Compares the holders of `locks` with the holders at the last look. Each lock is given by its class and its queue.
    pub(crate) fn note<'a>(
        &mut self,
        locks: impl Iterator<Item = (usize, &'a WholeQueue)>,
        seen: Instant,
        now: SystemTime,
    ) {
        let mut before = std::mem::take(&mut self.held);
        let old = Arc::make_mut(&mut before);
        let mut held = HashMap::with_capacity(old.len());
        for (class, queue) in locks {
            for holder in queue.contenders.iter().filter(|shown| shown.holds()) {
                let key = key(&queue.name, holder);
                let since = old.remove(&key).unwrap_or_else(|| {
                    let age = holder.age.filter(|_| !self.begun).unwrap_or_default();
                    let (who, claim) = (holder.who.as_str().into(), holder.claim.as_str().into());
                    let since = Since { class, seen, age, who, claim };
                    if self.begun {
                        self.counts[class].granted += 1;
                        self.happened("granted", &key, &since, None, now);
                    }
                    since
                });
                held.insert(key, since);
            }
        }
        for (key, since) in old.drain() {
            let length = since.age + seen.duration_since(since.seen);
            self.counts[since.class].end(length);
            self.happened("ended", &key, &since, Some(length), now);
        }
        (self.held, self.begun) = (Arc::new(held), true);
    }

    fn happened(&mut self, what: &'static str, key: &Key, since: &Since, held: Option<Duration>, now: SystemTime) {
        let (name, request, token) = key;
        self.events.push_back(Arc::new(Event {
            number: self.last.fetch_add(1, Ordering::Relaxed) + 1,
            at: times::to_millisecond(now),
            what,
            name: name.to_string(),
            store: self.store.to_string(),
            who: since.who.to_string(),
            claim: since.claim.to_string(),
            request: request.to_string(),
            token: token.as_ref().map(ToString::to_string),
            held_ms: held.map(|held| u64::try_from(held.as_millis()).unwrap_or(u64::MAX)),
        }));
        if self.events.len() > KEPT {
            self.events.pop_front();
        }
    }
}

impl Counts {
    fn end(&mut self, length: Duration) {
        self.ended += 1;
        self.held += length;
        if let Some(bound) = BOUNDS.iter().position(|bound| length <= Duration::from_secs(*bound)) {
            self.holds[bound] += 1;
        }
    }
}

fn key(name: &str, holder: &Shown) -> Key {
    (name.into(), holder.request.as_str().into(), holder.token.as_deref().map(Into::into))
}
