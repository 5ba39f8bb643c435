//! One place: how it waits, and how it is left.

use std::future::{Future, poll_fn};
use std::sync::Arc;
use std::task::{Context, Poll};

use futures_core::future::BoxFuture;
use futures_util::FutureExt;

use super::slot::Slot;
use super::{Core, Lightened, Over, Served};
use crate::error::Result;
use crate::kit::own_places::not_there;
use crate::kit::reconnect::{Dial, Reconnect};
use crate::queue::Claim;
use crate::store::{Left, Place, PlaceId, Standing};
use crate::time::Moment;

/// What the places of one session share, and how it is asked about one of them.
pub(crate) trait KeepsPlaces: Send + Sync + 'static {
    /// How a connection to the server is made.
    type Dial: Dial;
    /// What is kept of one place.
    type Slot: Send + Sync + 'static;

    fn link(&self) -> &Arc<Reconnect<Self::Dial>>;

    /// Refuses what only a living session can do.
    fn alive(&self, operation: &'static str) -> Result<()>;

    fn id(slot: &Self::Slot) -> &PlaceId;

    fn standing(&self, slot: &Self::Slot) -> Standing;

    /// Ready once the place does not wait any more, or when its task has to look around; with what is wrong, if something is.
    fn poll_news(&self, slot: &Self::Slot, cx: &Context<'_>) -> Poll<Result<()>>;

    /// Sleeps for as long as a place waits; an error says that nothing was heard of the server.
    fn wait_until(&self, until: Moment) -> impl Future<Output = Result<()>> + Send {
        self.link().clock.sleep_until(until).map(Ok)
    }

    fn lighten(&self, slot: &Self::Slot, claim: Claim) -> impl Future<Output = Result<()>> + Send;

    /// Gives it up: whether it was there.
    fn leave(&self, slot: &Self::Slot) -> impl Future<Output = Result<bool>> + Send;

    /// Nobody asks for the place any more.
    fn dropped(&self, _slot: &Self::Slot) {}
}

pub(crate) struct AskedPlace<P: KeepsPlaces> {
    core: Arc<P>,
    slot: P::Slot,
    /// The caller was told of an outage, and is to be told of its end: while it waits quietly it hears of no success.
    is_troubled: bool,
}

impl<P: KeepsPlaces> AskedPlace<P> {
    pub(crate) fn new(core: &Arc<P>, slot: P::Slot) -> Self {
        Self { core: Arc::clone(core), slot, is_troubled: false }
    }

    /// Waits for news. Somebody has to be connected to hear any.
    async fn settle(&mut self) -> Result<Standing> {
        loop {
            self.core.alive("next")?;
            match self.standing() {
                Standing::Waiting(_) => {}
                settled => return Ok(settled),
            }
            if !self.core.link().is_connected() {
                self.is_troubled = true;
                self.core.link().connection().await?;
                continue;
            }
            if std::mem::take(&mut self.is_troubled) {
                return Ok(self.standing());
            }
            let (core, slot) = (&self.core, &self.slot);
            // Registered first and looked around then: the end of the connection or the session wakes us afterwards.
            poll_fn(|cx| {
                let news = core.poll_news(slot, cx);
                let is_alone = !core.link().is_connected() || core.alive("next").is_err();
                if news.is_pending() && is_alone { Poll::Ready(Ok(())) } else { news }
            })
            .await?;
        }
    }

    async fn give_up(&self) -> Result<Left> {
        let was_there = self.core.leave(&self.slot).await?;
        Ok(if was_there { Left::Released } else { Left::AlreadyGone })
    }
}

impl<P: KeepsPlaces> Drop for AskedPlace<P> {
    fn drop(&mut self) {
        self.core.dropped(&self.slot);
    }
}

impl<P: KeepsPlaces> Place for AskedPlace<P> {
    fn id(&self) -> PlaceId {
        P::id(&self.slot).clone()
    }

    fn standing(&self) -> Standing {
        self.core.standing(&self.slot)
    }

    fn next(&mut self, until: Moment) -> BoxFuture<'_, Result<Standing>> {
        let core = Arc::clone(&self.core);
        Box::pin(async move {
            tokio::select! {
                biased;
                settled = self.settle() => return settled,
                over = core.wait_until(until) => over?,
            }
            Ok(self.standing())
        })
    }

    fn lighten(&mut self, claim: Claim) -> BoxFuture<'_, Result<()>> {
        Box::pin(self.core.lighten(&self.slot, claim))
    }

    fn leave(&mut self) -> BoxFuture<'_, Result<Left>> {
        Box::pin(self.give_up())
    }
}

impl<S: Served> KeepsPlaces for Core<S> {
    type Dial = S::Dial;
    type Slot = Arc<Slot>;

    fn link(&self) -> &Arc<Reconnect<S::Dial>> {
        &self.link
    }

    fn alive(&self, operation: &'static str) -> Result<()> {
        self.alive(operation)
    }

    fn id(slot: &Arc<Slot>) -> &PlaceId {
        &slot.place
    }

    fn standing(&self, slot: &Arc<Slot>) -> Standing {
        self.session.places().cause().map_or_else(|| slot.standing(), Standing::Lost)
    }

    fn poll_news(&self, slot: &Arc<Slot>, cx: &Context<'_>) -> Poll<Result<()>> {
        slot.poll_news(cx).map(Ok)
    }

    fn wait_until(&self, until: Moment) -> impl Future<Output = Result<()>> + Send {
        self.session.wait_until(&*self.link.clock, until)
    }

    async fn lighten(&self, slot: &Arc<Slot>, claim: Claim) -> Result<()> {
        let place = &slot.place;
        let gone = || not_there().with("name", &place.name);
        self.alive("downgrade")?;
        let seq = slot.seq().ok_or_else(gone)?;
        let connection = self.link.connection().await?;
        match self.session.lighten(&connection, place, seq, claim).await? {
            Lightened::Done => Ok(()),
            Lightened::Missing => Err(gone()),
        }
    }

    async fn leave(&self, slot: &Arc<Slot>) -> Result<bool> {
        let places = self.session.places();
        if places.over() == Over::There {
            return Ok(false);
        }
        let connection = self.link.connection().await?;
        let was_there = self.session.leave(&connection, &slot.place, slot.seq()).await?;
        places.left(slot);
        Ok(was_there)
    }

    fn dropped(&self, slot: &Arc<Slot>) {
        self.session.places().dropped(slot);
    }
}
