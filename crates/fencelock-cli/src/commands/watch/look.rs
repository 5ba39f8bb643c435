//! The looks at the store, one at a time, and their results.

use std::cmp::Reverse;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime};

use fencelock::inspect::{Page, Queue};
use fencelock::jobs::JobStatus;
use fencelock::{Client, Name};
use futures_util::{StreamExt as _, stream};
use serde::Serialize;
use tokio::sync::watch;

use super::classes::Classes;
use super::grants::Grants;
use crate::commands::r#break::records;
use crate::commands::{Failures, farewell, watch_at};
use crate::locks::{self, Lock, READS};
use crate::output::{Failure, Outcome, code};
use crate::settings::Chosen;
use crate::show::{Broken, WholeQueue};

const MOST: usize = 10_000;
const JOBS_EVERY: Duration = Duration::from_secs(30);
/// How long after a viewer last asked for a name its records of breaks are still read.
const WATCHED: Duration = Duration::from_secs(60);

/// A view of the store; cheap to clone.
#[derive(Clone, Default)]
pub(crate) struct Seen {
    pub(crate) store: Arc<str>,
    /// `None` until the store was reached for the first time.
    pub(crate) client: Option<Client>,
    /// The end of the last look, with or without success; `None` before the first look has ended.
    pub(crate) at: Option<SystemTime>,
    /// The time of the last look that succeeded, by the store's clock.
    pub(crate) clock: Option<SystemTime>,
    pub(crate) took: Duration,
    /// Since when the store has answered all looks, or none.
    pub(crate) since: Option<SystemTime>,
    pub(crate) error: Option<Arc<str>>,
    pub(crate) looks: u64,
    pub(crate) failed: u64,
    /// Locks of the last look that succeeded, by name.
    pub(crate) locks: Arc<[Looked]>,
    pub(crate) left_out: usize,
    /// Locks that only have records of breaks, by name.
    pub(crate) broken: Arc<HashMap<String, WholeQueue>>,
    /// Names that viewers asked for, and when last: records of breaks are read for these alone.
    pub(crate) asked: Arc<Mutex<HashMap<Name, Instant>>>,
    pub(crate) grants: Arc<Grants>,
    pub(crate) jobs: Arc<[(Name, JobStatus)]>,
}

impl Seen {
    /// An empty view of each of `stores`. Fails if none can be reached, or if one of them is wrong.
    pub(crate) async fn nothing(stores: &[Chosen]) -> Outcome<Vec<Self>> {
        let mut all = Vec::new();
        let mut failures = Failures::default();
        for chosen in stores {
            let client = match watch_at(chosen).await {
                Err(failure) if failure.code != code::UNAVAILABLE => return Err(failure),
                connected => failures.note(connected),
            };
            all.push(Self { store: chosen.name().into(), client, ..Self::default() });
        }
        match failures.0 {
            Some(failure) if all.iter().all(|seen| seen.client.is_none()) => Err(failure),
            _ => Ok(all),
        }
    }

    pub(crate) async fn close(all: &[Self], has_failed: bool) {
        for client in all.iter().filter_map(|seen| seen.client.as_ref()) {
            farewell(client, has_failed).await;
        }
    }

    pub(crate) fn is_up(&self) -> bool {
        self.at.is_some() && self.error.is_none()
    }
}

#[derive(Default)]
pub(crate) struct Looked {
    pub(crate) class: usize,
    pub(crate) row: Row,
    pub(crate) whole: Option<WholeQueue>,
    pub(crate) oldest_hold: Option<SystemTime>,
    pub(crate) oldest_wait: Option<SystemTime>,
    /// Contenders of other clients in the queue, as far as they were read.
    pub(crate) foreign: usize,
    /// Contenders of other clients, at any place, that may hold the lock concurrently with its holder.
    pub(crate) beside: usize,
}

#[derive(Debug, Clone, Default, Serialize)]
pub(crate) struct Row {
    pub(crate) name: String,
    pub(crate) store: String,
    class: String,
    pub(crate) held_as: String,
    pub(crate) holders: usize,
    pub(crate) holder: Option<String>,
    since: Option<String>,
    pub(crate) purpose: Option<String>,
    pub(crate) waiting: usize,
    /// The fault: why the queue cannot be read, or which other client may hold it, too.
    pub(crate) error: Option<String>,
}

impl Looked {
    /// The key of the order: most waiters first, then the oldest wait or hold.
    pub(crate) fn urgency(&self) -> impl Ord {
        let since = self.oldest_wait.or(self.oldest_hold);
        (Reverse(self.row.waiting), since.is_none(), since)
    }

    fn new(queue: &Queue, holders: usize, chosen: &Chosen, classes: &Classes, now: SystemTime) -> Self {
        let lock = Lock::new(queue, holders, &chosen.name(), now);
        let class = classes.of(&queue.name);
        let oldest = |holds: bool| {
            let meant = queue.contenders.iter().filter(|contender| contender.grant.is_some() == holds);
            meant.filter_map(|contender| contender.since).min()
        };
        let beside = queue.foreign_locks.iter().map(|lock| lock.contenders).sum();
        let first = lock.holders.first();
        let row = Row {
            name: queue.name.to_string(),
            store: chosen.name(),
            class: classes.name(class).to_owned(),
            held_as: lock.held_as(),
            holders,
            holder: first.map(|first| first.who.clone()),
            since: first.and_then(|holder| holder.since.clone()),
            purpose: first.and_then(|holder| holder.purpose.clone()),
            waiting: lock.waiting,
            error: lock.beside.first().map(|beside| beside.warning(queue.name.as_str())),
        };
        Self {
            class,
            row,
            oldest_hold: oldest(true),
            oldest_wait: oldest(false),
            whole: Some(WholeQueue::new(queue, 0, chosen, now)),
            foreign: queue.contenders.iter().filter(|contender| contender.foreign.is_some()).count(),
            beside,
        }
    }

    fn unread(name: &Name, failure: &Failure, chosen: &Chosen, classes: &Classes) -> Self {
        let class = classes.of(name);
        let error = failure.message.clone().unwrap_or_else(|| "it cannot be read".to_owned());
        let row = Row {
            name: name.to_string(),
            store: chosen.name(),
            class: classes.name(class).to_owned(),
            held_as: "unreadable".to_owned(),
            error: Some(error),
            ..Row::default()
        };
        Self { class, row, ..Self::default() }
    }
}

/// A looker at one of the stores.
pub(crate) struct Watch {
    chosen: Chosen,
    /// The position of the store among the shown ones.
    at: usize,
    prefix: String,
    classes: Classes,
    every: Duration,
    grants: Grants,
}

impl Watch {
    /// Looks at all of `stores` for ever, with rests of `every` in between. Ends when one of the looks ends.
    pub(crate) async fn all(
        stores: Vec<Chosen>,
        (prefix, classes, every): (String, Classes, Duration),
        seen: watch::Sender<Vec<Seen>>,
    ) {
        let number = Arc::default();
        let looks = stores.into_iter().enumerate().map(|(at, chosen)| {
            let grants = Grants::new(chosen.name().into(), classes.count(), Arc::clone(&number));
            let watch = Self { chosen, at, prefix: prefix.clone(), classes: classes.clone(), every, grants };
            Box::pin(watch.run(&seen))
        });
        futures_util::future::select_all(looks).await;
    }

    async fn run(mut self, seen: &watch::Sender<Vec<Seen>>) {
        let mut jobs_due = Instant::now();
        loop {
            let started = Instant::now();
            let (client, asked) = {
                let seen = &seen.borrow()[self.at];
                let mut asked = seen.asked.lock().unwrap_or_else(PoisonError::into_inner);
                asked.retain(|_, at| at.elapsed() < WATCHED);
                (seen.client.clone(), asked.keys().cloned().collect::<Vec<_>>())
            };
            let connected = match client {
                Some(client) => Ok(client),
                None => watch_at(&self.chosen).await,
            };
            let (client, looked) = match connected {
                Ok(client) => (Some(client.clone()), self.look(&client, &asked).await),
                Err(failure) => (None, Err(failure)),
            };
            seen.send_modify(|seen| {
                seen[self.at].client.clone_from(&client);
                self.note(looked, started.elapsed(), &mut seen[self.at]);
            });
            if let Some(client) = client.filter(|_| started >= jobs_due)
                && let Ok(jobs) = self.jobs(&client).await
            {
                jobs_due = started + JOBS_EVERY;
                seen.send_if_modified(|seen| {
                    seen[self.at].jobs = jobs.into();
                    false
                });
            }
            tokio::time::sleep(self.every).await;
        }
    }

    fn note(&mut self, looked: Outcome<Look>, took: Duration, seen: &mut Seen) {
        let now = SystemTime::now();
        let was_up = seen.is_up();
        let is_first = seen.at.is_none();
        (seen.at, seen.took, seen.looks) = (Some(now), took, seen.looks + 1);
        match looked {
            Ok(Look { locks, left_out, broken, clock }) => {
                let read = locks.iter().filter_map(|lock| Some((lock.class, lock.whole.as_ref()?)));
                self.grants.note(read, Instant::now(), clock);
                (seen.error, seen.locks, seen.left_out) = (None, locks.into(), left_out);
                (seen.clock, seen.broken) = (Some(clock), broken.into());
                seen.grants = Arc::new(self.grants.clone());
            }
            Err(failure) => {
                seen.error = Some(failure.message.unwrap_or_else(|| "it cannot be read".to_owned()).into());
                seen.failed += 1;
            }
        }
        if is_first || was_up != seen.is_up() {
            seen.since = Some(now);
        }
    }

    async fn jobs(&self, client: &Client) -> fencelock::Result<Vec<(Name, JobStatus)>> {
        let mut names = client.job_names().await?;
        names.retain(|name| name.as_str().starts_with(&self.prefix));
        let looks = stream::iter(names).map(async |name| (client.job_status(&name).await, name));
        let jobs = looks.buffered(READS).filter_map(async |(status, name)| Some((name, status.ok()??)));
        Ok(jobs.collect().await)
    }

    /// Looks at all locks, and at the break records of the `asked` ones.
    async fn look(&self, client: &Client, asked: &[Name]) -> Outcome<Look> {
        let (mut locks, chosen, classes) = (Vec::new(), &self.chosen, &self.classes);
        let clock = locks::now(client, chosen).await;
        let heads = locks::heads(client, (chosen, &self.prefix, MOST), |name, head| {
            locks.push(match head {
                Ok((queue, holders)) => Looked::new(&queue, holders, chosen, classes, clock),
                Err(failure) => Looked::unread(name, &failure, chosen, classes),
            });
        });
        let left_out = heads.await?;
        let mut broken = HashMap::new();
        let reads = stream::iter(asked.to_vec()).map(async |name| (records(client, &name).await, name));
        for (records, name) in reads.buffered(READS).collect::<Vec<_>>().await {
            let breaks: Vec<_> = records?.iter().map(Broken::new).collect();
            match locks.binary_search_by(|lock| lock.row.name.as_str().cmp(name.as_str())) {
                Ok(at) => locks[at].whole.iter_mut().for_each(|whole| whole.breaks.clone_from(&breaks)),
                Err(_) if breaks.is_empty() => {}
                Err(_) => {
                    let queue = Queue::page_of(name.clone(), Vec::new(), Page::ALL);
                    let empty = WholeQueue { breaks, ..WholeQueue::new(&queue, 0, chosen, clock) };
                    broken.insert(name.to_string(), empty);
                }
            }
        }
        Ok(Look { locks, left_out, broken, clock })
    }
}

/// The findings of one look.
struct Look {
    locks: Vec<Looked>,
    left_out: usize,
    broken: HashMap<String, WholeQueue>,
    clock: SystemTime,
}
