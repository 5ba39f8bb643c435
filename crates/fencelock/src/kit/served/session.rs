//! A session of a store whose server keeps the queues, as the engine sees it.

use std::future::poll_fn;
use std::sync::Arc;
use std::time::Duration;

use futures_core::future::BoxFuture;

use super::enter::enter;
use super::slot::Ring;
use super::{Over, REPAIR, Served};
use crate::error::Result;
use crate::kit::own_places::over;
use crate::kit::server::Core;
use crate::name::Name;
use crate::store::{Entered, Entry, Loss, PlaceId, PlaceList, Renewal, RequestId, Session};
use crate::time::Moment;

/// How often a session looks where its server tells of no waiters.
pub(crate) const LOOK: Duration = Duration::from_millis(100);

impl<S: Served> Core<S> {
    /// Refuses what only a living session can do.
    pub(crate) fn alive(&self, operation: &'static str) -> Result<()> {
        match self.session.places().over() {
            Over::No => Ok(()),
            Over::Here | Over::There => Err(over(operation)),
        }
    }

    async fn withdraw(&self, name: &Name, id: RequestId) -> Result<()> {
        let places = self.session.places();
        // Nothing takes effect in a session that the server has no more.
        if places.over() != Over::There {
            let connection = self.link.connection().await?;
            let place = PlaceId { name: name.clone(), request: id };
            let withdrawn = self.session.withdraw(&connection, &place).await?;
            withdrawn.epoch.into_iter().for_each(|epoch| places.raise(epoch));
        }
        places.forget(id);
        Ok(())
    }

    async fn renew(&self, asked: &dyn PlaceList) -> Result<Renewal> {
        let places = self.session.places();
        let connection = self.link.connection().await?;
        let sent = self.link.clock.now();
        self.alive("renew")?;
        let known = places.broken();
        let lives = self.session.renew(&connection, &known).await;
        // Whatever became of it: its answer is not waited for.
        self.session.tidy_up();
        if !lives? {
            places.end(Over::There, Loss::Expired);
            return Err(over("renew"));
        }
        places.confirm(sent);
        places.acknowledged(&known);
        Ok(Renewal { gone: places.gone(asked), ..Renewal::at(sent) })
    }

    /// Asks again on each further connection, and every half a minute, since a message may be lost. Thousands of kept locks cost the server little.
    async fn waited_for(&self, place: &PlaceId) -> Result<()> {
        loop {
            self.alive("look")?;
            let Some(slot) = self.session.places().slot(place.request) else { return Ok(()) };
            let Some(seq) = slot.seq() else { return Ok(()) };
            let connection = self.link.connection().await?;
            slot.lock().rung = None;
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

    /// Looks every [`LOOK`] until others wait behind the place. One look is for all grants of the session that are looked after.
    async fn looked_for(&self, place: &PlaceId) -> Result<()> {
        let clock = &self.link.clock;
        loop {
            self.alive("look")?;
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

    async fn close(&self) -> Result<()> {
        let places = self.session.places();
        if places.over() != Over::There {
            let connection = self.link.connection().await?;
            // The server may have told meanwhile that there is nothing to close; closing is repeatable.
            self.session.close(&connection).await?;
            places.close();
        }
        self.link.hang_up();
        Ok(())
    }
}

pub(super) struct ServedSession<S: Served>(pub(super) Arc<Core<S>>);

impl<S: Served> Session for ServedSession<S> {
    fn over(&self) -> Option<Loss> {
        self.0.session.places().cause()
    }

    fn enter(&self, entry: Arc<Entry>) -> BoxFuture<'_, Result<Entered>> {
        Box::pin(enter(&self.0, entry))
    }

    fn answers_inline(&self) -> bool {
        self.0.session.answers_inline()
    }

    fn withdraw<'a>(&'a self, name: &'a Name, id: RequestId) -> BoxFuture<'a, Result<()>> {
        Box::pin(self.0.withdraw(name, id))
    }

    fn renew<'a>(&'a self, places: &'a dyn PlaceList) -> BoxFuture<'a, Result<Renewal>> {
        Box::pin(self.0.renew(places))
    }

    fn waited_for<'a>(&'a self, place: &'a PlaceId) -> Option<BoxFuture<'a, Result<()>>> {
        match self.0.session.tells_of_waiters() {
            true => Some(Box::pin(self.0.waited_for(place))),
            false => Some(Box::pin(self.0.looked_for(place))),
        }
    }

    fn close(&self) -> BoxFuture<'_, Result<()>> {
        Box::pin(self.0.close())
    }
}
