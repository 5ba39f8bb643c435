//! A place: waits for its grant, and leaves.

use std::future::poll_fn;
use std::sync::Arc;
use std::task::Poll;

use futures_core::future::BoxFuture;
use futures_util::TryFutureExt;

use super::{Core, ServerSession};
use crate::error::Result;
use crate::queue::Claim;
use crate::store::{Left, Place, PlaceId, Standing};
use crate::time::Moment;

pub(crate) struct AskedPlace<S: ServerSession> {
    core: Arc<Core<S>>,
    slot: S::Slot,
    /// The waiter received an error, and must receive the end of the outage, too: a quiet wait reports no success.
    is_troubled: bool,
}

impl<S: ServerSession> AskedPlace<S> {
    pub(crate) fn new(core: &Arc<Core<S>>, slot: S::Slot) -> Self {
        Self { core: Arc::clone(core), slot, is_troubled: false }
    }

    /// Waits for a message, which arrives only while the session is connected.
    async fn settle(&mut self) -> Result<Standing> {
        loop {
            self.core.session.alive("next")?;
            match self.standing() {
                Standing::Waiting(_) => {}
                settled => return Ok(settled),
            }
            if !self.core.link.is_connected() {
                self.is_troubled = true;
                self.core.link.connection().await?;
                continue;
            }
            if std::mem::take(&mut self.is_troubled) {
                return Ok(self.standing());
            }
            let (core, slot) = (&self.core, &self.slot);
            // Registers the waker before the check: from then on, the end of the connection or the session wakes this task.
            poll_fn(|cx| {
                let news = core.session.poll_news(slot, cx);
                let is_alone = !core.link.is_connected() || core.session.alive("next").is_err();
                if news.is_pending() && is_alone { Poll::Ready(Ok(())) } else { news }
            })
            .await?;
        }
    }
}

impl<S: ServerSession> Drop for AskedPlace<S> {
    fn drop(&mut self) {
        self.core.session.dropped(&self.slot);
    }
}

impl<S: ServerSession> Place for AskedPlace<S> {
    fn id(&self) -> PlaceId {
        S::id(&self.slot).clone()
    }

    fn standing(&self) -> Standing {
        self.core.session.state().cause().map_or_else(|| self.core.session.standing(&self.slot), Standing::Lost)
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
        Box::pin(S::lighten(&self.core, &self.slot, claim))
    }

    fn leave(&mut self) -> BoxFuture<'_, Result<Left>> {
        let left = |was_there| if was_there { Left::Released } else { Left::AlreadyGone };
        Box::pin(S::leave(&self.core, &self.slot).map_ok(left))
    }
}
