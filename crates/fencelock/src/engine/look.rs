//! Who holds a lock that was not free: asked once for all that give up together.

use std::collections::HashMap;
use std::mem;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::oneshot;

use super::Engine;
use super::clock::Moment;
use crate::error::Result;
use crate::name::Name;
use crate::store::{Contention, Outline, RequestId, clean};

/// The longest that asking who holds a lock may take.
const LOOK_LIMIT: Duration = Duration::from_secs(1);

/// The longest that it may add to a wait that is over.
const LATEST: Duration = Duration::from_millis(100);

/// Those who want to know of each queue and are not being asked for yet. A name is here while its queue is looked at.
#[derive(Debug, Default)]
pub(super) struct Looks(Mutex<HashMap<Name, Vec<Asker>>>);

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
    /// Who is in the queue of `name`, and where `mine` stands in it, for one who waits until then: unknown when the store
    /// has not told by a moment later, or within a second.
    ///
    /// Those who ask while the queue is looked at are answered by the next look, all of them by one: a crowd that gives
    /// up at once must not have the store asked once for each, with renewals waiting behind all of them.
    pub(crate) async fn contention(
        self: &Arc<Self>,
        name: &Name,
        mine: Option<RequestId>,
        until: Moment,
    ) -> Result<Contention> {
        let limit = self.clock.now().after(LOOK_LIMIT).min(until.after(LATEST));
        let (answer, answered) = oneshot::channel();
        if self.looks.join(name, Asker { request: mine, answer }) {
            let (engine, name) = (Arc::clone(self), name.clone());
            self.spawner.spawn(async move { engine.look_for_everybody(&name).await });
        }
        let told = tokio::select! {
            biased;
            told = answered => told.ok(),
            () = self.clock.sleep_until(limit) => None,
        };
        told.unwrap_or_else(|| Ok(Contention::unknown(name.clone())))
    }

    async fn look_for_everybody(&self, name: &Name) {
        while let Some(askers) = self.looks.take(name) {
            let mine: Vec<RequestId> = askers.iter().filter_map(|asker| asker.request).collect();
            let outline = self.in_time("contention", self.store.contention(name, &mine)).await;
            answer(name, askers, outline.map(clean::outline));
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
