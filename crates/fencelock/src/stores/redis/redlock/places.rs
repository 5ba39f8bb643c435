//! A place of a session over several servers.

use std::future::poll_fn;
use std::sync::Arc;
use std::task::Poll;

use futures_core::future::BoxFuture;

use super::session::Locks;
use crate::error::{Error, ErrorKind, Result};
use crate::queue::Claim;
use crate::store::{Left, Place, PlaceId, Standing};
use crate::time::Moment;

pub(super) struct RedlockPlace {
    pub(super) locks: Arc<Locks>,
    pub(super) place: PlaceId,
    /// The caller was told of an outage, and is to be told of its end.
    pub(super) is_troubled: bool,
}

impl RedlockPlace {
    /// Waits for news. The session tries; somebody has to be connected for that.
    async fn settle(&mut self) -> Result<Standing> {
        loop {
            self.locks.state.alive("next")?;
            match self.standing() {
                Standing::Waiting(_) => {}
                settled => return Ok(settled),
            }
            if !self.locks.servers.is_connected() {
                self.is_troubled = true;
                self.locks.servers.connect().await?;
                continue;
            }
            if std::mem::take(&mut self.is_troubled) {
                return Ok(self.standing());
            }
            let (locks, id) = (&self.locks, self.place.request);
            // Registered first and looked around then: the end of the connections or the session wakes us afterwards.
            poll_fn(|cx| {
                let news = locks.state.places.poll_news(id, cx);
                if locks.servers.is_connected() { news } else { Poll::Ready(Ok(())) }
            })
            .await?;
        }
    }
}

impl Place for RedlockPlace {
    fn id(&self) -> PlaceId {
        self.place.clone()
    }

    fn standing(&self) -> Standing {
        self.locks.state.places.standing(self.place.request)
    }

    fn next(&mut self, until: Moment) -> BoxFuture<'_, Result<Standing>> {
        let clock = Arc::clone(&self.locks.servers.clock);
        Box::pin(async move {
            tokio::select! {
                biased;
                settled = self.settle() => return settled,
                () = clock.sleep_until(until) => {}
            }
            Ok(self.standing())
        })
    }

    fn lighten(&mut self, claim: Claim) -> BoxFuture<'_, Result<()>> {
        Box::pin(async move {
            if claim == Claim::MUTEX && matches!(self.standing(), Standing::Granted(_)) {
                return Ok(());
            }
            Err(Error::new(ErrorKind::Lost, "lighten", "the place is gone").with("name", &self.place.name))
        })
    }

    fn leave(&mut self) -> BoxFuture<'_, Result<Left>> {
        Box::pin(async move {
            let was_there = self.locks.leave(&self.place).await?;
            Ok(if was_there { Left::Released } else { Left::AlreadyGone })
        })
    }
}
