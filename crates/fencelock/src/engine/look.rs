//! The look for the holder of a lock that was not free: once for all acquires that give up together.

use std::collections::{BTreeSet, HashMap};
use std::mem;
use std::sync::Arc;
use std::time::Duration;

use futures_util::TryStreamExt;
use tokio::sync::oneshot;

use super::Engine;
use crate::error::{Error, ErrorKind, Result};
use crate::name::Name;
use crate::store::{Contention, Outline, RequestId, clean};
use crate::sync::Mutex;
use crate::time::{Moment, outcome_before};

/// The longest time of a look.
const LOOK_LIMIT: Duration = Duration::from_secs(1);

/// The longest time that a look may add to a wait that has ended.
pub(super) const LATEST: Duration = Duration::from_millis(100);

/// For each queue with a look under way, the callers that arrived after the look began.
#[derive(Debug, Default)]
pub(super) struct Looks(Mutex<HashMap<Name, Vec<Asker>>>);

/// Receives the outcome of a look; an error when the looking task has ended.
pub(super) type Answer = oneshot::Receiver<Result<Contention>>;

/// An acquire that gave up, and the sender of its answer.
#[derive(Debug)]
struct Asker {
    request: Option<RequestId>,
    answer: oneshot::Sender<Result<Contention>>,
}

impl Looks {
    /// Joins the callers of a name; returns whether this caller is the first and has to start the look.
    fn join(&self, name: &Name, asker: Asker) -> bool {
        let mut askers = self.0.lock();
        let is_first = !askers.contains_key(name);
        askers.entry(name.clone()).or_default().push(asker);
        is_first
    }

    /// All callers that have joined since the last call. Without callers, forgets the name and returns `None`.
    fn take(&self, name: &Name) -> Option<Vec<Asker>> {
        let mut askers = self.0.lock();
        let joined = askers.get_mut(name).map(mem::take).filter(|joined| !joined.is_empty());
        if joined.is_none() {
            askers.remove(name);
        }
        joined
    }
}

impl Engine {
    /// Looks at the queue of `name`, and finds the position of `mine`.
    ///
    /// A single further look answers all callers that arrive during a look: many acquires that give up at once must not send a request
    /// each, with renewals waiting behind them.
    pub(crate) fn look(self: &Arc<Self>, name: &Name, mine: Option<RequestId>) -> Answer {
        let (answer, answered) = oneshot::channel();
        if self.looks.join(name, Asker { request: mine, answer }) {
            let looking = Looking { engine: Arc::clone(self), name: name.clone(), is_done: false };
            self.spawner.spawn(looking.for_all_callers());
        }
        answered
    }

    /// The first `limit` names after `from`, of all that the store lists. Each portion has the request deadline.
    pub(crate) async fn names(&self, prefix: &str, from: Option<&Name>, limit: usize) -> Result<Vec<Name>> {
        let (mut portions, mut first) = (self.store.names(prefix), BTreeSet::new());
        while let Some(portion) = self.in_time("names", portions.try_next()).await? {
            first.extend(portion.into_iter().filter(|name| from.is_none_or(|from| name > from)));
            while first.len() > limit {
                first.pop_last();
            }
        }
        Ok(first.into_iter().collect())
    }

    /// The answer of a look; `None` after a failure, or without an answer within `LOOK_LIMIT`, or until [`LATEST`] after `until`.
    pub(crate) async fn answer_in_time(&self, look: Answer, until: Moment) -> Option<Contention> {
        let limit = self.clock.now().after(LOOK_LIMIT).min(until.after(LATEST));
        outcome_before(&*self.clock, limit, look).await?.ok()?.ok()
    }
}

/// The task that looks at a queue for all its callers.
struct Looking {
    engine: Arc<Engine>,
    name: Name,
    is_done: bool,
}

impl Looking {
    async fn for_all_callers(mut self) {
        while let Some(askers) = self.engine.looks.take(&self.name) {
            let mine: Vec<RequestId> = askers.iter().filter_map(|asker| asker.request).collect();
            let outline = self.outline(&mine).await;
            answer(&self.name, askers, outline.map(clean::outline));
        }
        self.is_done = true;
    }

    /// A single look. The look ends when no caller waits for its answer, so that later callers get another.
    async fn outline(&self, mine: &[RequestId]) -> Result<Outline> {
        let engine = &self.engine;
        let outline = engine.in_time("contention", engine.store.contention(&self.name, mine));
        outcome_before(&*engine.clock, engine.clock.now().after(LOOK_LIMIT), outline).await.unwrap_or_else(|| {
            let message = "the store did not say within a second who holds the lock";
            Err(Error::new(ErrorKind::Unreachable, "contention", message).retryable())
        })
    }
}

impl Drop for Looking {
    /// A task that ends half-way (a store that panics, a runtime that stops) must remove its name: otherwise no task would look again.
    fn drop(&mut self) {
        if !self.is_done {
            self.engine.looks.0.lock().remove(&self.name);
        }
    }
}

fn answer(name: &Name, askers: Vec<Asker>, outline: Result<Outline>) {
    let mut positions = outline.as_ref().map_or(&[][..], |outline| &outline.positions).iter().copied();
    for asker in askers {
        let position = asker.request.and_then(|_| positions.next().flatten());
        let answer = match &outline {
            Ok(outline) => Ok(outline.contention(name.clone(), position)),
            Err(error) => Err(error.again()),
        };
        // The caller may have given up by now.
        let _ = asker.answer.send(answer);
    }
}
