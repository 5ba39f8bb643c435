//! A hold of no store: for callers that continue without a lock rather than stop.

use std::sync::Arc;

use futures_core::future::BoxFuture;
use futures_util::{FutureExt, StreamExt, future, stream};

use super::Engine;
use super::acquire::Wish;
use super::hold::{Hold, Outside};
use super::observe::Event;
use super::session::Live;
use crate::error::{Error, ErrorKind, Result};
use crate::name::Name;
use crate::queue::Claim;
use crate::store::{
    Entered, Entry, Grant, Left, Loss, Opened, Place, PlaceId, PlaceList, Renewal, RequestId, Session, Standing,
};
use crate::time::Moment;

const GRANT: Grant = Grant::new(None);

impl Engine {
    pub(crate) fn hold_nowhere(self: &Arc<Self>, wish: &Wish) -> Arc<Hold> {
        let now = self.clock.now();
        let opened = Opened {
            session: Arc::new(Nowhere),
            events: stream::empty().boxed(),
            ttl: None,
            confirmed: now,
            capability: None,
        };
        let live = Live::new(&opened, Arc::clone(&self.clock), self.timing, Arc::default());
        let place = NoPlace(PlaceId { name: wish.name.clone(), request: self.next_request() });
        let deadline = wish.max_hold.map_or(Moment::NEVER, |most| now.after(most));
        let hold = Hold::new(Arc::clone(self), live, Box::new(place), wish.claim, GRANT, deadline);
        hold.is_outside(Outside::Nowhere);
        self.observers.tell(Event::Degraded { name: &wish.name, store: None });
        hold.report_grant();
        hold
    }
}

struct Nowhere;

impl Session for Nowhere {
    fn over(&self) -> Option<Loss> {
        None
    }

    fn enter(&self, _: Arc<Entry>) -> BoxFuture<'_, Result<Entered>> {
        future::ready(Err(Error::new(ErrorKind::Internal, "acquire", "there is no store"))).boxed()
    }

    fn answers_inline(&self) -> bool {
        true
    }

    fn withdraw<'a>(&'a self, _: &'a Name, _: RequestId) -> BoxFuture<'a, Result<()>> {
        future::ready(Ok(())).boxed()
    }

    fn renew<'a>(&'a self, _: &'a dyn PlaceList) -> BoxFuture<'a, Result<Renewal>> {
        future::ready(Ok(Renewal::at(Moment::NEVER))).boxed()
    }

    fn close(&self) -> BoxFuture<'_, Result<()>> {
        future::ready(Ok(())).boxed()
    }
}

struct NoPlace(PlaceId);

impl Place for NoPlace {
    fn id(&self) -> PlaceId {
        self.0.clone()
    }

    fn standing(&self) -> Standing {
        Standing::Granted(GRANT)
    }

    fn next(&mut self, _: Moment) -> BoxFuture<'_, Result<Standing>> {
        future::ready(Ok(self.standing())).boxed()
    }

    fn lighten(&mut self, _: Claim) -> BoxFuture<'_, Result<()>> {
        future::ready(Ok(())).boxed()
    }

    fn leave(&mut self) -> BoxFuture<'_, Result<Left>> {
        future::ready(Ok(Left::Released)).boxed()
    }
}
