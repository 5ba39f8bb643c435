//! One place: how it waits, and how it is left.

use std::future::poll_fn;
use std::sync::Arc;
use std::task::Poll;

use futures_core::future::BoxFuture;
use futures_util::FutureExt;

use super::slot::Slot;
use super::{Core, Lightened, Over, Served};
use crate::error::Result;
use crate::kit::own_places::not_there;
use crate::queue::Claim;
use crate::store::{Left, Place, PlaceId, Standing};
use crate::time::Moment;

pub(crate) struct ServedPlace<S: Served> {
    core: Arc<Core<S>>,
    slot: Arc<Slot>,
    /// The caller was told of an outage, and is to be told of its end: while it waits quietly it hears of no success.
    is_troubled: bool,
}

impl<S: Served> ServedPlace<S> {
    pub(crate) fn new(core: &Arc<Core<S>>, slot: Arc<Slot>) -> Self {
        Self { core: Arc::clone(core), slot, is_troubled: false }
    }

    /// Waits for news. Somebody has to be connected to hear any.
    async fn settle(&mut self) -> Result<Standing> {
        loop {
            self.core.alive("next")?;
            match self.slot.standing() {
                Standing::Waiting(_) => {}
                settled => return Ok(settled),
            }
            if !self.core.link.is_connected() {
                self.is_troubled = true;
                self.core.link.connection().await?;
                continue;
            }
            if std::mem::take(&mut self.is_troubled) {
                return Ok(self.slot.standing());
            }
            let (core, slot) = (&self.core, &self.slot);
            // Registered first and looked around then: the end of the connection or the session wakes us afterwards.
            poll_fn(|cx| {
                let news = slot.poll_news(cx);
                let alone = !core.link.is_connected() || core.session.places().over() != Over::No;
                if alone { Poll::Ready(()) } else { news }
            })
            .await;
        }
    }

    async fn give_up(&self) -> Result<Left> {
        let places = self.core.session.places();
        if places.over() == Over::There {
            return Ok(Left::AlreadyGone);
        }
        let connection = self.core.link.connection().await?;
        let was_there = self.core.session.leave(&connection, &self.slot.place, self.slot.seq()).await?;
        places.left(&self.slot);
        Ok(if was_there { Left::Released } else { Left::AlreadyGone })
    }
}

impl<S: Served> Drop for ServedPlace<S> {
    fn drop(&mut self) {
        self.core.session.places().dropped(&self.slot);
    }
}

impl<S: Served> Place for ServedPlace<S> {
    fn id(&self) -> PlaceId {
        self.slot.place.clone()
    }

    fn standing(&self) -> Standing {
        self.core.session.places().cause().map_or_else(|| self.slot.standing(), Standing::Lost)
    }

    fn next(&mut self, until: Moment) -> BoxFuture<'_, Result<Standing>> {
        let core = Arc::clone(&self.core);
        Box::pin(async move {
            tokio::select! {
                biased;
                settled = self.settle() => return settled,
                over = core.session.wait_until(&*core.link.clock, until) => over?,
            }
            Ok(self.standing())
        })
    }

    fn lighten(&mut self, claim: Claim) -> BoxFuture<'_, Result<()>> {
        Box::pin(async move {
            let place = &self.slot.place;
            let gone = || not_there().with("name", &place.name);
            self.core.alive("downgrade")?;
            let seq = self.slot.seq().ok_or_else(gone)?;
            let connection = self.core.link.connection().await?;
            match self.core.session.lighten(&connection, place, seq, claim).await? {
                Lightened::Done => Ok(()),
                Lightened::Missing => Err(gone()),
            }
        })
    }

    fn leave(&mut self) -> BoxFuture<'_, Result<Left>> {
        Box::pin(self.give_up())
    }

    fn leave_now(&mut self) -> Option<Result<Left>> {
        if self.core.session.is_at_hand() { self.give_up().now_or_never() } else { None }
    }
}
