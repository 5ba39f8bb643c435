//! The first request of an acquire on the caller's own thread, where the store can answer it at once.

use std::sync::Arc;

use super::super::Engine;
use super::super::hold::Hold;
use super::super::session::Live;
use super::Acquire;
use super::attempt::{Attempt, Stage};
use crate::error::Result;
use crate::name::Name;
use crate::store::Entered;
use crate::time::Moment;

/// One entry into the queue, and the store's answer to it if there is one already.
pub(crate) struct Begun {
    pub(super) attempt: Attempt,
    /// A time before the request was made.
    pub(super) known_since: Moment,
    pub(super) answer: Option<Result<Entered>>,
}

impl Begun {
    pub(super) fn fresh(engine: &Arc<Engine>, live: Arc<Live>, name: &Name) -> Self {
        let known_since = engine.clock.now();
        Self { attempt: Attempt::new(engine, live, name.clone()), known_since, answer: None }
    }

    /// Taken out of the box where somebody waits, the box would stay as long as the wait.
    #[expect(clippy::boxed_local, reason = "to free the box is what it is for")]
    pub(super) fn unboxed(self: Box<Self>) -> Self {
        *self
    }
}

/// An acquire that was not over at once, and what was begun of it.
type Unfinished = (Box<Acquire>, Option<Box<Begun>>);

impl Acquire {
    /// Asks the store on this very thread, if it can answer at once. All but a grant continues in [`Acquire::run`] on the I/O thread, for a
    /// wait must not depend on the caller. Nothing here awaits, so no caller can drop it half-way.
    pub(crate) fn now(mut self) -> Result<Arc<Hold>, Unfinished> {
        self.first().map_err(|begun| (Box::new(self), begun))
    }

    fn first(&mut self) -> Result<Arc<Hold>, Option<Box<Begun>>> {
        let live = self.engine.current().ok_or(None)?;
        let mut begun = Begun::fresh(&self.engine, live, &self.wish.name);
        let attempt = &mut begun.attempt;
        let entry = self.entry(attempt.id.request);
        // Should the store panic, nobody knows what it has done.
        attempt.stage = Stage::Entering;
        let Some(answer) = attempt.live.session().enter_now(&entry) else {
            attempt.stage = Stage::Fresh;
            return Err(None);
        };
        let grant = match &answer {
            Ok(Entered::In(place)) => place.standing().grant(),
            _ => None,
        };
        let grant = grant.filter(|grant| attempt.live.over().is_none() && !self.is_too_late(*grant));
        match (grant, answer) {
            (Some(grant), Ok(Entered::In(place))) => {
                attempt.stage = Stage::Placed(place);
                let hold = self.granted(attempt, grant, begun.known_since);
                self.tell_granted(&hold);
                Ok(hold)
            }
            (_, answer) => {
                begun.answer = Some(answer);
                Err(Some(Box::new(begun)))
            }
        }
    }
}
