//! Who holds a lock that was not free: asked once for all that give up together.

use std::collections::{BTreeSet, HashMap};
use std::mem;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures_util::TryStreamExt;
use tokio::sync::oneshot;

use super::Engine;
use crate::error::{Error, ErrorKind, Result};
use crate::name::Name;
use crate::store::{Contention, Outline, RequestId, clean};
use crate::time::Moment;

/// The longest that asking who holds a lock may take.
const LOOK_LIMIT: Duration = Duration::from_secs(1);

/// The longest that it may add to a wait that is over.
pub(super) const LATEST: Duration = Duration::from_millis(100);

/// Those who want to know of each queue and are not being asked for yet. A name is here while its queue is looked at.
#[derive(Debug, Default)]
pub(super) struct Looks(Mutex<HashMap<Name, Vec<Asker>>>);

/// Where the outcome of a look comes; an error when nobody looks any more.
pub(super) type Answer = oneshot::Receiver<Result<Contention>>;

/// One that gave up, and where the answer goes.
#[derive(Debug)]
struct Asker {
    request: Option<RequestId>,
    answer: oneshot::Sender<Result<Contention>>,
}

impl Looks {
    fn askers(&self) -> MutexGuard<'_, HashMap<Name, Vec<Asker>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Joins those who want to know; says whether the first of them has to start looking.
    fn join(&self, name: &Name, asker: Asker) -> bool {
        let mut askers = self.askers();
        let is_first = !askers.contains_key(name);
        askers.entry(name.clone()).or_default().push(asker);
        is_first
    }

    /// Everybody who has joined since the last time; `None`, and the name is forgotten, when nobody has.
    fn take(&self, name: &Name) -> Option<Vec<Asker>> {
        let mut askers = self.askers();
        let joined = askers.get_mut(name).map(mem::take).filter(|joined| !joined.is_empty());
        if joined.is_none() {
            askers.remove(name);
        }
        joined
    }
}

impl Engine {
    /// Asks who is in the queue of `name`, and where `mine` stands in it.
    ///
    /// Those who ask while the queue is looked at are answered by the next look, all of them by one: a crowd that gives
    /// up at once must not have the store asked once for each, with renewals waiting behind all of them.
    pub(crate) fn look(self: &Arc<Self>, name: &Name, mine: Option<RequestId>) -> Answer {
        let (answer, answered) = oneshot::channel();
        if self.looks.join(name, Asker { request: mine, answer }) {
            let looking = Looking { engine: Arc::clone(self), name: name.clone(), is_done: false };
            self.spawner.spawn(looking.for_everybody());
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

    /// The answer of a look to a caller that waits until then; `None` if it failed, or has no answer by [`LATEST`] after that or within a second.
    pub(crate) async fn told(&self, look: Answer, until: Moment) -> Option<Contention> {
        let limit = self.clock.now().after(LOOK_LIMIT).min(until.after(LATEST));
        tokio::select! {
            biased;
            told = look => told.ok()?.ok(),
            () = self.clock.sleep_until(limit) => None,
        }
    }
}

/// The task that looks at one queue for all who ask.
struct Looking {
    engine: Arc<Engine>,
    name: Name,
    is_done: bool,
}

impl Looking {
    async fn for_everybody(mut self) {
        while let Some(askers) = self.engine.looks.take(&self.name) {
            let mine: Vec<RequestId> = askers.iter().filter_map(|asker| asker.request).collect();
            let outline = self.outline(&mine).await;
            answer(&self.name, askers, outline.map(clean::outline));
        }
        self.is_done = true;
    }

    /// One look. It ends when nobody wants its answer any more, so that those who have asked since get another.
    async fn outline(&self, mine: &[RequestId]) -> Result<Outline> {
        let engine = &self.engine;
        tokio::select! {
            biased;
            outline = engine.in_time("contention", engine.store.contention(&self.name, mine)) => outline,
            () = engine.clock.sleep_until(engine.clock.now().after(LOOK_LIMIT)) => {
                let message = "the store did not say within a second who holds the lock";
                Err(Error::new(ErrorKind::Unreachable, "contention", message).retryable())
            }
        }
    }
}

impl Drop for Looking {
    /// A task that ends half-way (a store that panics, a runtime that stops) must not leave its name behind: nobody would look again.
    fn drop(&mut self) {
        if !self.is_done {
            self.engine.looks.askers().remove(&self.name);
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
        // The asker may have given up by now.
        let _ = asker.answer.send(answer);
    }
}
