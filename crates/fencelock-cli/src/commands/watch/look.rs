//! The looks at the store, one after the other, and what was seen.

use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use fencelock::inspect::{Contender, Queue};
use fencelock::jobs::JobStatus;
use fencelock::{Client, Name};
use futures_util::{StreamExt as _, stream};
use serde::Serialize;
use tokio::sync::watch;

use super::classes::Classes;
use super::grants::Grants;
use crate::locks::{self, Lock, READS};
use crate::output::{Failure, Outcome, code};
use crate::settings::Chosen;
use crate::show::{Everybody, Shown};

/// How many locks are looked at.
const MOST: usize = 10_000;
/// How long a look at the jobs counts.
const JOBS_EVERY: Duration = Duration::from_secs(30);

/// What was seen of the store; cheap to clone.
#[derive(Clone, Default)]
pub(crate) struct Seen {
    pub(crate) store: Arc<str>,
    pub(crate) layout: &'static str,
    /// When it was looked at last, with whatever success; `None` before the first look has ended.
    pub(crate) at: Option<SystemTime>,
    pub(crate) took: Duration,
    /// Since when it has answered all looks, or none.
    pub(crate) since: Option<SystemTime>,
    /// Why the last look failed.
    pub(crate) error: Option<Arc<str>>,
    pub(crate) looks: u64,
    pub(crate) failed: u64,
    /// Those of the last look that succeeded, by name.
    pub(crate) locks: Arc<[Looked]>,
    /// How many more there are.
    pub(crate) left_out: usize,
    pub(crate) grants: Arc<Grants>,
    /// The jobs of the last look at them that succeeded.
    pub(crate) jobs: Arc<[(Name, JobStatus)]>,
}

impl Seen {
    pub(crate) fn nothing(chosen: &Chosen, client: &Client) -> Self {
        Self { store: chosen.name().into(), layout: client.capability().layout, ..Self::default() }
    }

    /// Everybody who holds, and everybody who waits.
    pub(crate) fn contenders(&self) -> (usize, usize) {
        let sum = |(holders, waiting), lock: &Looked| (holders + lock.row.holders, waiting + lock.row.waiting);
        self.locks.iter().fold((0, 0), sum)
    }

    /// Whether the last look succeeded.
    pub(crate) fn is_up(&self) -> bool {
        self.at.is_some() && self.error.is_none()
    }
}

/// One lock.
#[derive(Default)]
pub(crate) struct Looked {
    pub(crate) class: usize,
    pub(crate) row: Row,
    pub(crate) everybody: Option<Everybody>,
    /// Those who hold it, as far as they were read.
    pub(crate) held: Vec<Held>,
    pub(crate) oldest_hold: Option<SystemTime>,
    pub(crate) oldest_wait: Option<SystemTime>,
    /// Contenders of other clients in the queue, as far as they were read.
    pub(crate) foreign: usize,
    /// Contenders of other clients, wherever they stand, that may hold the lock beside its holder.
    pub(crate) beside: usize,
}

/// One lock in a list.
#[derive(Debug, Clone, Default, Serialize)]
pub(crate) struct Row {
    pub(crate) name: String,
    class: String,
    pub(crate) held_as: String,
    pub(crate) holders: usize,
    /// The first of them.
    pub(crate) holder: Option<String>,
    since: Option<String>,
    pub(crate) purpose: Option<String>,
    pub(crate) waiting: usize,
    /// What is wrong: why it cannot be read, or who may hold it, too.
    pub(crate) error: Option<String>,
}

/// One holder.
pub(crate) struct Held {
    pub(crate) request: String,
    pub(crate) token: Option<String>,
    pub(crate) who: String,
    pub(crate) claim: String,
    pub(crate) since: Option<SystemTime>,
}

impl Looked {
    fn new(queue: &Queue, holders: usize, chosen: &Chosen, classes: &Classes) -> Self {
        let lock = Lock::new(queue, holders, &chosen.name());
        let class = classes.of(queue.name.as_str());
        let held = |(contender, position): (&Contender, usize)| {
            let shown = Shown::new(&queue.name, position, contender);
            let Shown { request, token, who, claim, .. } = shown;
            Held { request, token, who, claim, since: contender.since }
        };
        let (holding, waiting): (Vec<_>, Vec<_>) =
            queue.contenders.iter().zip(1..).partition(|(contender, _)| contender.grant.is_some());
        let oldest = |of: &[(&Contender, usize)]| of.iter().filter_map(|(contender, _)| contender.since).min();
        let beside = queue.beside.iter().map(|beside| beside.contenders).sum();
        let first = lock.holders.first();
        let row = Row {
            name: queue.name.to_string(),
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
            oldest_hold: oldest(&holding),
            oldest_wait: oldest(&waiting),
            held: holding.into_iter().map(held).collect(),
            everybody: Some(Everybody::new(queue, 0, &[], None, chosen)),
            foreign: queue.contenders.iter().filter(|contender| contender.foreign.is_some()).count(),
            beside,
        }
    }

    /// One that cannot be read.
    fn unread(name: &Name, failure: &Failure, classes: &Classes) -> Self {
        let class = classes.of(name.as_str());
        let error = failure.message.clone().unwrap_or_else(|| "it cannot be read".to_owned());
        let row = Row {
            name: name.to_string(),
            class: classes.name(class).to_owned(),
            held_as: "unreadable".to_owned(),
            error: Some(error),
            ..Row::default()
        };
        Self { class, row, ..Self::default() }
    }
}

/// Who looks.
pub(crate) struct Watch {
    client: Client,
    chosen: Chosen,
    prefix: String,
    classes: Classes,
    every: Duration,
    grants: Grants,
}

impl Watch {
    pub(crate) fn new(client: Client, chosen: Chosen, prefix: String, classes: Classes, every: Duration) -> Self {
        let grants = Grants::new(classes.names().len());
        Self { client, chosen, prefix, classes, every, grants }
    }

    /// Looks for ever, with rests in between.
    pub(crate) async fn run(mut self, seen: watch::Sender<Seen>) {
        let mut jobs_due = Instant::now();
        loop {
            let started = Instant::now();
            let looked = self.look().await;
            seen.send_modify(|seen| self.note(looked, started.elapsed(), seen));
            if started >= jobs_due
                && let Ok(jobs) = self.jobs().await
            {
                jobs_due = started + JOBS_EVERY;
                seen.send_if_modified(|seen| {
                    seen.jobs = jobs.into();
                    false
                });
            }
            tokio::time::sleep(self.every).await;
        }
    }

    fn note(&mut self, looked: Outcome<(Vec<Looked>, usize)>, took: Duration, seen: &mut Seen) {
        let now = SystemTime::now();
        let was_up = seen.is_up();
        let is_first = seen.at.is_none();
        (seen.at, seen.took, seen.looks) = (Some(now), took, seen.looks + 1);
        match looked {
            Ok((locks, left_out)) => {
                self.grants.note(&locks, Instant::now(), now);
                (seen.error, seen.locks, seen.left_out) = (None, locks.into(), left_out);
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

    async fn jobs(&self) -> fencelock::Result<Vec<(Name, JobStatus)>> {
        let mut names = self.client.job_names().await?;
        names.retain(|name| name.as_str().starts_with(&self.prefix));
        let looks = stream::iter(names).map(async |name| (self.client.job_status(&name).await, name));
        let jobs = looks.buffered(READS).filter_map(async |(status, name)| Some((name, status.ok()??)));
        Ok(jobs.collect().await)
    }

    /// The locks by name, and how many more there are.
    async fn look(&self) -> Outcome<(Vec<Looked>, usize)> {
        let mut names = self.client.names(&self.prefix, None, usize::MAX).await?;
        let left_out = names.len().saturating_sub(MOST);
        names.truncate(MOST);
        let mut locks = Vec::with_capacity(names.len());
        let client = &self.client;
        let looks = names.into_iter().map(|name| async move {
            let head = locks::head(client, &name).await;
            (name, head)
        });
        let mut heads = stream::iter(looks).buffered(READS);
        while let Some((name, head)) = heads.next().await {
            match head {
                Ok(Some((queue, holders))) => locks.push(Looked::new(&queue, holders, &self.chosen, &self.classes)),
                Ok(None) => {}
                Err(failure) if failure.code == code::UNAVAILABLE => return Err(failure),
                Err(failure) => locks.push(Looked::unread(&name, &failure, &self.classes)),
            }
        }
        Ok((locks, left_out))
    }
}
