//! A session of a store whose server keeps the queues.

use std::future::poll_fn;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use futures_core::future::BoxFuture;

use super::slot::{PlaceSlot, Ring};
use super::{REPAIR, Served, enter};
use crate::error::Result;
use crate::kit::own_places::{not_there, over};
use crate::kit::server::{Core, ServerSession};
use crate::kit::session_state::SessionState;
use crate::queue::Claim;
use crate::store::{Entered, Entry, Loss, PlaceId, PlaceList, Renewal, Standing};
use crate::time::{Clock, Moment};

/// How often a session looks for waiters if its server sends no notification of them.
pub(crate) const LOOK: Duration = Duration::from_millis(100);

impl<S: Served> ServerSession for S {
    type Dial = <S as Served>::Dial;
    type Slot = Arc<PlaceSlot>;

    fn state(&self) -> &SessionState {
        &self.places().session
    }

    async fn enter(core: &Arc<Core<S>>, entry: Arc<Entry>) -> Result<Entered> {
        enter::enter(core, entry).await
    }

    fn answers_inline(&self) -> bool {
        Served::answers_inline(self)
    }

    async fn withdraw(core: &Core<S>, place: PlaceId) -> Result<()> {
        let places = core.session.places();
        // No request takes effect in a session that the server no longer has.
        if !places.session.is_gone() {
            let connection = core.link.connection().await?;
            let epoch = Served::withdraw(&*core.session, &connection, &place).await?;
            epoch.into_iter().for_each(|epoch| places.raise(epoch));
        }
        places.forget(place.request);
        Ok(())
    }

    async fn renew(core: &Core<S>, asked: &dyn PlaceList) -> Result<Renewal> {
        let (session, places) = (&core.session, core.session.places());
        let connection = core.link.connection().await?;
        let sent = core.link.clock.now();
        session.alive("renew")?;
        let known = places.broken();
        let lives = Served::renew(&**session, &connection, &known).await;
        // The renewal does not wait for the answer to this, and needs none.
        session.tidy_up();
        if !lives? {
            places.end(Loss::Expired);
            return Err(over("renew"));
        }
        places.session.confirm(sent);
        places.acknowledged(&known);
        Ok(Renewal { gone: places.gone(asked), ..Renewal::at(sent) })
    }

    fn waited_for<'a>(core: &'a Core<S>, place: &'a PlaceId) -> Option<BoxFuture<'a, Result<()>>> {
        match core.session.tells_of_waiters() {
            true => Some(Box::pin(core.waited_for(place))),
            false => Some(Box::pin(core.looked_for(place))),
        }
    }

    async fn close(core: &Core<S>) -> Result<()> {
        let places = core.session.places();
        if !places.session.is_gone() {
            let connection = core.link.connection().await?;
            // The server may have ended the session meanwhile; closing is repeatable.
            Served::close(&*core.session, &connection).await?;
            places.end(Loss::Closed);
        }
        core.link.hang_up();
        Ok(())
    }

    fn id(slot: &Arc<PlaceSlot>) -> &PlaceId {
        &slot.place
    }

    fn standing(&self, slot: &Arc<PlaceSlot>) -> Standing {
        slot.standing()
    }

    fn poll_news(&self, slot: &Arc<PlaceSlot>, cx: &Context<'_>) -> Poll<Result<()>> {
        slot.poll_news(cx).map(Ok)
    }

    async fn wait_until(&self, clock: &dyn Clock, until: Moment) -> Result<()> {
        Served::wait_until(self, clock, until).await
    }

    async fn lighten(core: &Core<S>, slot: &Arc<PlaceSlot>, claim: Claim) -> Result<()> {
        let place = &slot.place;
        let gone = || not_there().with("name", &place.name);
        core.session.alive("downgrade")?;
        let seq = slot.seq().ok_or_else(gone)?;
        let connection = core.link.connection().await?;
        if Served::lighten(&*core.session, &connection, place, seq, claim).await? { Ok(()) } else { Err(gone()) }
    }

    async fn leave(core: &Core<S>, slot: &Arc<PlaceSlot>) -> Result<bool> {
        let places = core.session.places();
        if places.session.is_gone() {
            return Ok(false);
        }
        let connection = core.link.connection().await?;
        let was_there = Served::leave(&*core.session, &connection, &slot.place, slot.seq()).await?;
        places.left(slot);
        Ok(was_there)
    }

    fn dropped(&self, slot: &Arc<PlaceSlot>) {
        self.places().dropped(slot);
    }
}

impl<S: Served> Core<S> {
    /// Asks again on each further connection, and every half a minute, since a message may be lost. Thousands of kept locks cost the server little.
    async fn waited_for(&self, place: &PlaceId) -> Result<()> {
        loop {
            self.session.alive("look")?;
            let Some(slot) = self.session.places().slot(place.request) else { return Ok(()) };
            let Some(seq) = slot.seq() else { return Ok(()) };
            let connection = self.link.connection().await?;
            slot.state.lock().rung = None;
            if self.session.watch(&connection, place, seq).await? {
                return Ok(());
            }
            drop(connection);
            let clock = &self.link.clock;
            tokio::select! {
                biased;
                ring = poll_fn(|cx| slot.poll_rung(cx)) => if ring == Ring::Waiter { return Ok(()) },
                () = clock.sleep_until(clock.now().after(REPAIR * 15)) => {}
            }
        }
    }

    /// Looks every [`LOOK`] until another contender waits behind the place. The session sends a single request for all of its kept grants.
    async fn looked_for(&self, place: &PlaceId) -> Result<()> {
        let clock = &self.link.clock;
        loop {
            self.session.alive("look")?;
            if self.session.places().slot(place.request).is_none() {
                return Ok(());
            }
            let mut waited = self.waited.lock().await;
            if waited.due.is_none_or(|due| due <= clock.now()) {
                waited.asked.push(place.clone());
                let connection = self.link.connection().await?;
                waited.found = self.session.waited_for(&connection, &waited.asked).await?;
                (waited.asked, waited.due) = (Vec::new(), Some(clock.now().after(LOOK)));
            }
            if waited.found.contains(&place.request) {
                return Ok(());
            }
            waited.asked.push(place.clone());
            let due = waited.due.unwrap_or(Moment::NEVER);
            drop(waited);
            clock.sleep_until(due).await;
        }
    }
}
