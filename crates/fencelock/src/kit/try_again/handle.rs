//! A session of a layout without a queue, and its places.

use std::sync::Arc;
use std::task::{Context, Poll};

use futures_core::future::BoxFuture;
use futures_util::future::{join_all, try_join_all};

use super::places::{Begun, Next, Try};
use super::{Asks, Tried, TryAgainSession, Wire};
use crate::error::{Error, Outcome, Result};
use crate::kit::own_places::not_there;
use crate::kit::reconnect::Reconnect;
use crate::kit::served::{AskedPlace, KeepsPlaces};
use crate::kit::server::{self, ServerSession};
use crate::name::Name;
use crate::queue::Claim;
use crate::store::{Entered, Entry, Loss, PlaceId, PlaceList, Renewal, RequestId, Session, Standing};
use crate::time::Moment;

/// How many locks one request renews or gives up; the requests for all of them are on their way at once.
const LOCKS_PER_CALL: usize = 256;

/// What a session and its places share.
type Core<A> = server::Core<TryAgainSession<A>>;

impl<A: Asks> ServerSession for TryAgainSession<A> {
    type Dial = A::Dial;

    fn is_over(&self) -> bool {
        self.places.over().is_some()
    }

    fn confirmed(&self) -> Moment {
        self.confirmed()
    }

    fn handle(core: Arc<Core<A>>) -> Arc<dyn Session> {
        Arc::new(SessionHandle(core))
    }
}

impl<A: Asks> Core<A> {
    async fn enter(self: &Arc<Self>, entry: &Entry) -> Result<Entered> {
        let trying = self.session.places.trying;
        self.session.alive("enter")?;
        let said = self.session.asks.check(entry)?;
        let place = PlaceId { name: entry.name.clone(), request: entry.id };
        let is_new = match self.session.places.begin(entry, &said) {
            Begun::First => true,
            Begun::Again => false,
            Begun::Behind if !entry.wait => {
                self.session.places.forget(entry.id);
                return Ok(Entered::Busy);
            }
            Begun::Known | Begun::Behind => return Ok(self.place(place)),
            Begun::Other => return Err(trying.other_kind("enter", "lock of another kind in this client")),
        };
        let due = Try { place, claim: entry.claim, said: said.into() };
        let (tried, sent) = self.ask(&due, is_new).await.inspect_err(|error| {
            if is_new && error.outcome() == Outcome::NotApplied {
                self.session.places.forget(entry.id);
            }
        })?;
        if let Tried::Other(kind) = &tried {
            self.session.places.forget(entry.id);
            return Err(trying.other_kind("enter", kind));
        }
        let now = self.link.clock.now();
        if !matches!(tried, Tried::Granted(_)) && !entry.wait {
            self.session.places.forget(entry.id);
            return Ok(Entered::Busy);
        }
        self.session.places.answered(entry.id, Ok(tried), (sent, self.session.validity()), now);
        Ok(self.place(due.place))
    }

    fn place(self: &Arc<Self>, place: PlaceId) -> Entered {
        Entered::In(Box::new(AskedPlace::new(self, place)))
    }

    /// Asks the server, and says when what it granted was sent.
    async fn ask(&self, due: &Try, is_new: bool) -> Result<(Tried, Moment)> {
        let connection = self.link.connection().await?;
        // Connecting may have told that it is over.
        self.session.alive("enter")?;
        self.session.asks.take(&connection, due, is_new).await
    }

    /// Leaves, and tries for the next one of the line with the same request.
    async fn pass(&self, connection: &Wire<A>, place: &PlaceId, next: Next<'_>) -> Result<usize> {
        let (clock, validity) = (&self.link.clock, self.session.validity());
        let sent = clock.now();
        let passed = self.session.asks.pass(connection, place, &next).await?;
        let follower = next.place.clone();
        // Without a grant it is due as soon as this place is forgotten.
        if next.answered(Ok(passed.1.unwrap_or(Tried::Busy(None))), (sent, validity), clock.now()) {
            self.session.give_back(connection, &[follower]).await;
        }
        Ok(passed.0)
    }

    /// On what locks are given up.
    async fn to_leave(&self) -> Result<Arc<Wire<A>>> {
        match self.session.asks.at_hand() {
            Some(connection) => Ok(connection),
            None => self.link.connection().await,
        }
    }

    async fn renew(&self, places: &dyn PlaceList) -> Result<Renewal> {
        self.session.alive("renew")?;
        let connection = self.link.connection().await?;
        let sent = self.link.clock.now();
        let end = sent.after(self.session.validity());
        self.session.alive("renew")?;
        let (held, gone) = self.session.places.held_of(places.all());
        let mut renewal = Renewal::at(sent);
        renewal.gone = gone.into_iter().map(|place| (place, Loss::Removed)).collect();
        let mut portions: Vec<&[PlaceId]> = held.chunks(LOCKS_PER_CALL).collect();
        if portions.is_empty() {
            portions.push(&[]);
        }
        let asks = &self.session.asks;
        let calls = portions.into_iter().map(async |portion| {
            let prolonged = asks.renew(&connection, portion).await?;
            Ok::<_, Error>((portion, prolonged))
        });
        let mut lost = Vec::new();
        for (portion, prolonged) in try_join_all(calls).await? {
            for (index, place) in portion.iter().enumerate() {
                if prolonged.lost.binary_search(&index).is_ok() {
                    lost.push(place);
                } else if prolonged.unknown.binary_search(&index).is_err() {
                    self.session.places.is_valid_until(place.request, end);
                    renewal.valid.push((place.clone(), end));
                }
            }
        }
        // Lost they are, whether or not the server says by whose will.
        let reasons = lost.iter().map(|place| {
            let token = self.session.places.token(place.request);
            asks.broken(&connection, place, token)
        });
        for (place, reason) in lost.iter().zip(join_all(reasons).await) {
            let reason = match reason {
                Ok(reason) => reason,
                // Asked again, with the next try to renew, which finds the same ones lost.
                Err(error) if error.is_retryable() => return Err(error),
                Err(error) => {
                    tracing::warn!(name = %place.name, %error, "a lock is gone, and nobody can say whether it was broken");
                    None
                }
            };
            if reason.is_none() {
                renewal.gone.push(((*place).clone(), Loss::Removed));
            }
            self.session.places.lost(place, reason);
        }
        self.session.confirm(sent);
        Ok(renewal)
    }

    async fn close(&self) -> Result<()> {
        let places = &self.session.places;
        let all = places.close();
        self.session.asks.bars(&all);
        if !all.is_empty() && !matches!(places.over(), Some(Loss::Expired | Loss::Closed)) {
            let connection = self.to_leave().await?;
            let asks = &self.session.asks;
            let calls = all.chunks(LOCKS_PER_CALL).map(|portion| asks.leave(&connection, "close session", portion));
            join_all(calls).await.into_iter().try_for_each(|left| left.map(drop))?;
        }
        places.end(Loss::Closed);
        self.link.hang_up();
        Ok(())
    }
}

struct SessionHandle<A: Asks>(Arc<Core<A>>);

impl<A: Asks> Session for SessionHandle<A> {
    fn over(&self) -> Option<Loss> {
        self.0.session.places.over()
    }

    fn enter(&self, entry: Arc<Entry>) -> BoxFuture<'_, Result<Entered>> {
        Box::pin(async move { self.0.enter(&entry).await })
    }

    fn withdraw<'a>(&'a self, name: &'a Name, id: RequestId) -> BoxFuture<'a, Result<()>> {
        Box::pin(async move { self.0.leave(&PlaceId { name: name.clone(), request: id }).await.map(drop) })
    }

    fn renew<'a>(&'a self, places: &'a dyn PlaceList) -> BoxFuture<'a, Result<Renewal>> {
        Box::pin(self.0.renew(places))
    }

    fn close(&self) -> BoxFuture<'_, Result<()>> {
        Box::pin(self.0.close())
    }
}

impl<A: Asks> KeepsPlaces for Core<A> {
    type Dial = A::Dial;
    type Slot = PlaceId;

    fn link(&self) -> &Arc<Reconnect<A::Dial>> {
        &self.link
    }

    fn alive(&self, operation: &'static str) -> Result<()> {
        self.session.alive(operation)
    }

    fn id(place: &PlaceId) -> &PlaceId {
        place
    }

    fn standing(&self, place: &PlaceId) -> Standing {
        self.session.places.standing(place.request)
    }

    fn poll_news(&self, place: &PlaceId, cx: &Context<'_>) -> Poll<Result<()>> {
        self.session.places.poll_news(place.request, cx)
    }

    async fn lighten(&self, place: &PlaceId, claim: Claim) -> Result<()> {
        let gone = || not_there().with("name", &place.name);
        self.session.alive("lighten")?;
        let places = &self.session.places;
        let (had, said) = places.held_as(place.request).ok_or_else(gone)?;
        if had == claim {
            return Ok(());
        }
        if !self.session.asks.lighten(&*self.link.connection().await?, place, claim, &said).await? {
            return Err(gone());
        }
        places.lightened(place.request, claim);
        Ok(())
    }

    /// By its value.
    async fn leave(&self, place: &PlaceId) -> Result<bool> {
        let places = &self.session.places;
        if matches!(places.over(), Some(Loss::Expired | Loss::Closed)) {
            return Ok(false);
        }
        let was_there = if places.leaves(place.request) {
            self.session.asks.bars(std::slice::from_ref(place));
            let connection = self.to_leave().await?;
            match places.next_after(place) {
                Some(next) => self.pass(&connection, place, next).await? > 0,
                None => self.session.asks.leave(&connection, "leave", std::slice::from_ref(place)).await? > 0,
            }
        } else {
            true
        };
        places.forget(place.request);
        Ok(was_there)
    }
}
