//! A session of a store whose server keeps the queues, as the engine sees it.

use std::future::poll_fn;
use std::sync::Arc;

use futures_core::future::BoxFuture;
use futures_util::FutureExt;

use super::enter::enter;
use super::slot::Ring;
use super::{Core, Over, Served};
use crate::error::Result;
use crate::kit::own_places::over;
use crate::name::Name;
use crate::store::{Entered, Entry, Loss, PlaceId, PlaceList, Renewal, RequestId, Session};

impl<S: Served> Core<S> {
    /// Refuses what only a living session can do.
    pub(crate) fn alive(&self, operation: &'static str) -> Result<()> {
        match self.member.hub().over() {
            Over::No => Ok(()),
            Over::Here | Over::There => Err(over(operation)),
        }
    }

    async fn withdraw(&self, name: &Name, id: RequestId) -> Result<()> {
        let hub = self.member.hub();
        // Nothing takes effect in a session that the server has no more.
        if hub.over() != Over::There {
            let connection = self.link.connection().await?;
            let place = PlaceId { name: name.clone(), request: id };
            let withdrawn = self.member.withdraw(&connection, &place).await?;
            withdrawn.epoch.into_iter().for_each(|epoch| hub.raise(epoch));
        }
        hub.forget(id);
        Ok(())
    }

    async fn renew(&self, places: &dyn PlaceList) -> Result<Renewal> {
        let hub = self.member.hub();
        let connection = self.link.connection().await?;
        let sent = self.link.clock.now();
        self.alive("renew")?;
        let known = hub.broken();
        let lives = self.member.renew(&connection, &known).await;
        // Whatever became of it: its answer is not waited for.
        self.member.tidy_up();
        if !lives? {
            hub.end(Over::There, Loss::Expired);
            return Err(over("renew"));
        }
        hub.confirm(sent);
        hub.acknowledged(&known);
        Ok(Renewal { gone: hub.gone(places), ..Renewal::at(sent) })
    }

    /// Asks again on each further connection, since messages may have been lost before it.
    async fn waited_for(&self, place: &PlaceId) -> Result<()> {
        loop {
            self.alive("look")?;
            let Some(slot) = self.member.hub().slot(place.request) else { return Ok(()) };
            let Some(seq) = slot.seq() else { return Ok(()) };
            let connection = self.link.connection().await?;
            slot.change(|state| {
                state.rung = None;
                false
            });
            if self.member.watch(&connection, place, seq).await? {
                return Ok(());
            }
            drop(connection);
            match poll_fn(|cx| slot.poll_rung(cx)).await {
                Ring::Waiter => return Ok(()),
                Ring::Disconnected => {}
            }
        }
    }

    async fn close(&self) -> Result<()> {
        let hub = self.member.hub();
        if hub.over() != Over::There {
            let connection = self.link.connection().await?;
            // The server may have told meanwhile that there is nothing to close; closing is repeatable.
            self.member.close(&connection).await?;
            hub.close();
        }
        self.link.hang_up();
        Ok(())
    }
}

pub(super) struct ServedSession<S: Served>(pub(super) Arc<Core<S>>);

impl<S: Served> Session for ServedSession<S> {
    fn over(&self) -> Option<Loss> {
        self.0.member.hub().cause()
    }

    fn enter(&self, entry: Arc<Entry>) -> BoxFuture<'_, Result<Entered>> {
        Box::pin(enter(&self.0, entry))
    }

    fn enter_now(&self, entry: &Arc<Entry>) -> Option<Result<Entered>> {
        if self.0.member.is_at_hand() { enter(&self.0, Arc::clone(entry)).now_or_never() } else { None }
    }

    fn withdraw<'a>(&'a self, name: &'a Name, id: RequestId) -> BoxFuture<'a, Result<()>> {
        Box::pin(self.0.withdraw(name, id))
    }

    fn renew<'a>(&'a self, places: &'a dyn PlaceList) -> BoxFuture<'a, Result<Renewal>> {
        Box::pin(self.0.renew(places))
    }

    fn waited_for<'a>(&'a self, place: &'a PlaceId) -> Option<BoxFuture<'a, Result<()>>> {
        if self.0.member.tells_of_waiters() { Some(Box::pin(self.0.waited_for(place))) } else { None }
    }

    fn close(&self) -> BoxFuture<'_, Result<()>> {
        Box::pin(self.0.close())
    }
}
