//! A session of a layout without a queue, and its places.

use std::sync::Arc;
use std::task::{Context, Poll};

use futures_util::future::{join_all, try_join_all};

use super::places::{Next, Try};
use super::{Tried, TryAgainSession, UnqueuedBackend, Wire};
use crate::error::{Error, Outcome, Result};
use crate::kit::own_places::not_there;
use crate::kit::pause::ask_part;
use crate::kit::server::{self, AskedPlace, ServerSession};
use crate::kit::session_state::SessionState;
use crate::queue::Claim;
use crate::store::{Entered, Entry, Loss, PlaceId, PlaceList, Renewal, Standing};
use crate::time::Moment;

/// The state that a session and its places share.
type Core<A> = server::Core<TryAgainSession<A>>;

impl<A: UnqueuedBackend> ServerSession for TryAgainSession<A> {
    type Dial = A::Dial;
    type Slot = PlaceId;

    fn state(&self) -> &SessionState {
        &self.places.session
    }

    /// A session without a renewal for its ttl no longer holds anything.
    fn alive(&self, operation: &'static str) -> Result<()> {
        let state = self.state();
        if state.is_open() && self.opening.clock.now() >= state.confirmed().after(self.opening.ttl) {
            self.places.end(Loss::Expired);
        }
        state.alive(operation)
    }

    async fn enter(core: &Arc<Core<A>>, entry: Arc<Entry>) -> Result<Entered> {
        let (session, places) = (&core.session, &core.session.places);
        session.alive("enter")?;
        let said = session.backend.check(&entry)?;
        let place = PlaceId { name: entry.name.clone(), request: entry.id };
        let (asks, is_new) = places.begin(&entry, &said)?;
        let busy = || {
            places.forget(entry.id);
            Ok(Entered::Busy)
        };
        if !asks {
            let is_in = entry.wait || !is_new;
            return if is_in { Ok(Entered::In(Box::new(AskedPlace::new(core, place)))) } else { busy() };
        }
        let due = Try { place, claim: entry.claim, said: said.into() };
        let (tried, valid_until) = core.ask(&due, is_new).await.inspect_err(|error| {
            if is_new && error.outcome() == Outcome::NotApplied {
                places.forget(entry.id);
            }
        })?;
        match &tried {
            Tried::Other(kind) => {
                places.forget(entry.id);
                return Err(places.trying.other_kind("enter", kind));
            }
            Tried::Busy(_) if !entry.wait => return busy(),
            _ => {}
        }
        places.answered(entry.id, Ok(tried), valid_until, core.link.clock.now());
        Ok(Entered::In(Box::new(AskedPlace::new(core, due.place))))
    }

    async fn withdraw(core: &Core<A>, place: PlaceId) -> Result<()> {
        Self::leave(core, &place).await.map(drop)
    }

    async fn renew(core: &Core<A>, places: &dyn PlaceList) -> Result<Renewal> {
        let (session, most) = (&core.session, core.session.backend.locks_per_call());
        session.alive("renew")?;
        if most > 1 {
            core.link.connection().await?;
        }
        let all = places.all();
        let held: Vec<PlaceId> = session.places.renewal(&all).valid.into_iter().map(|(place, _)| place).collect();
        if held.len() <= most {
            return core.renew_portion(&held).await.map(|()| session.places.renewal(&all));
        }
        let portions: Vec<&[PlaceId]> = held.chunks(most).collect();
        if most > 1 {
            try_join_all(portions.into_iter().map(|portion| core.renew_portion(portion))).await?;
            return Ok(session.places.renewal(&all));
        }
        // Several servers. A slow machine may reach some of the locks only, and first the ones that end first.
        let calls = portions.iter().map(|portion| ask_part(&session.opening, false, || core.renew_portion(portion)));
        let mut failures: Vec<_> = join_all(calls).await.into_iter().filter_map(Result::err).collect();
        // A refusal comes first: no retry helps with it.
        failures.sort_by_key(Error::is_retryable);
        if failures.len() == portions.len() {
            return Err(failures.swap_remove(0));
        }
        if failures.last().is_some_and(Error::is_retryable) {
            // Locks without an answer keep their end, and are asked for again.
            session.places.doubt();
        }
        let refusal = failures.into_iter().next().filter(|error| !error.is_retryable()).map(Arc::new);
        Ok(Renewal { refusal, ..session.places.renewal(&all) })
    }

    async fn close(core: &Core<A>) -> Result<()> {
        let places = &core.session.places;
        let all = places.close();
        if !all.is_empty() && !places.session.is_gone() {
            let connection = core.to_leave().await?;
            let backend = &core.session.backend;
            let calls = all
                .chunks(backend.locks_per_call())
                .map(|portion| backend.leave(&connection, "close session", portion));
            join_all(calls).await.into_iter().try_for_each(|left| left.map(drop))?;
        }
        places.end(Loss::Closed);
        core.link.hang_up();
        Ok(())
    }

    fn id(place: &PlaceId) -> &PlaceId {
        place
    }

    fn standing(&self, place: &PlaceId) -> Standing {
        self.places.standing(place.request)
    }

    fn poll_news(&self, place: &PlaceId, cx: &Context<'_>) -> Poll<Result<()>> {
        self.places.poll_news(place.request, cx)
    }

    async fn lighten(core: &Core<A>, place: &PlaceId, claim: Claim) -> Result<()> {
        let gone = || not_there().with("name", &place.name);
        core.session.alive("lighten")?;
        let places = &core.session.places;
        let (had, said) = places.held_as(place.request).ok_or_else(gone)?;
        if had == claim {
            return Ok(());
        }
        if !core.session.backend.lighten(&*core.link.connection().await?, place, claim, &said).await? {
            return Err(gone());
        }
        places.lightened(place.request, claim);
        Ok(())
    }

    async fn leave(core: &Core<A>, place: &PlaceId) -> Result<bool> {
        let places = &core.session.places;
        if places.session.is_gone() {
            return Ok(false);
        }
        let was_there = if places.leaves(place.request) {
            let connection = core.to_leave().await?;
            match places.next_after(place) {
                Some(next) => core.pass(&connection, place, next).await? > 0,
                None => core.session.backend.leave(&connection, "leave", std::slice::from_ref(place)).await? > 0,
            }
        } else {
            true
        };
        places.forget(place.request);
        Ok(was_there)
    }
}

impl<A: UnqueuedBackend> Core<A> {
    /// Renews these locks. The client is notified of each loss before the locks of other portions have an answer.
    async fn renew_portion(&self, portion: &[PlaceId]) -> Result<()> {
        let (backend, places) = (&self.session.backend, &self.session.places);
        let connection = self.link.connection().await?;
        let sent = self.link.clock.now();
        self.session.alive("renew")?;
        let prolonged = backend.renew(&connection, portion).await?;
        let mut lost = Vec::new();
        for (index, place) in portion.iter().enumerate() {
            if prolonged.lost.binary_search(&index).is_ok() {
                lost.push(place);
            } else if prolonged.unknown.binary_search(&index).is_err() {
                places.is_valid_until(place.request, self.session.valid_until(sent));
            }
        }
        // These locks are lost, even if the server reports no reason.
        let reasons = lost.iter().map(|place| backend.broken(&connection, place, places.token(place.request)));
        for (place, reason) in lost.iter().zip(join_all(reasons).await) {
            let reason = match reason {
                Ok(reason) => reason,
                // The next renewal finds the same places lost, and asks again.
                Err(error) if error.is_retryable() => return Err(error),
                Err(error) => {
                    tracing::warn!(name = %place.name, %error, "Cannot read whether this lock, which is gone, was broken.");
                    None
                }
            };
            places.lost(place, reason);
        }
        places.session.confirm(sent);
        Ok(())
    }

    /// Asks the server. Returns its answer, and until when a grant is valid.
    async fn ask(&self, due: &Try, is_new: bool) -> Result<(Tried, Moment)> {
        let connection = self.link.connection().await?;
        // The session may have ended while it connected.
        self.session.alive("enter")?;
        let valid_until = self.session.valid_until(self.link.clock.now());
        Ok((self.session.backend.take(&connection, due, is_new).await?, valid_until))
    }

    /// Leaves, and tries for the next place of the line with the same request.
    async fn pass(&self, connection: &Wire<A>, place: &PlaceId, next: Next<'_>) -> Result<usize> {
        let valid_until = self.session.valid_until(self.link.clock.now());
        let passed = self.session.backend.pass(connection, place, &next).await?;
        let follower = next.place.clone();
        // Without a grant, the next place is due as soon as this place is forgotten.
        if next.answered(Ok(passed.1.unwrap_or(Tried::Busy(None))), valid_until, self.link.clock.now()) {
            self.session.give_back(connection, &[follower]).await;
        }
        Ok(passed.0)
    }

    /// The connection for releases.
    async fn to_leave(&self) -> Result<Arc<Wire<A>>> {
        match self.session.backend.release_connection() {
            Some(connection) => Ok(connection),
            None => self.link.connection().await,
        }
    }
}
