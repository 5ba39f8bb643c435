//! The downgrade of a writer to a reader: its place gets a lighter claim.

use std::sync::Arc;

use super::super::observe::Event;
use super::{GuardState, Hold};
use crate::error::{ErrorKind, Result};
use crate::queue::Claim;
use crate::store::checks;

impl Hold {
    /// Makes the claim lighter, and retries passing failures as long as an acquire would.
    ///
    /// After an error the place has the old claim or the new one.
    pub(crate) async fn lighten(self: &Arc<Self>, claim: Claim) -> Result<()> {
        checks::lighter(self.claim, claim)?;
        let lightened = self.lost().run_until_cancelled(self.lighten_patiently(claim)).await;
        lightened.unwrap_or_else(|| match self.cause() {
            Some(loss) => Err(self.lost_before(loss)),
            None => Err(self.released_before()),
        })
    }

    async fn lighten_patiently(self: &Arc<Self>, claim: Claim) -> Result<()> {
        let give_up = self.engine.clock.now().after(self.engine.retry.give_up_after);
        let mut failures = 0;
        loop {
            let error = match self.lighten_once(claim).await {
                Ok(()) => {
                    self.engine.observers.tell(Event::Downgraded { name: &self.id.name });
                    return Ok(());
                }
                Err(error) => error,
            };
            if error.kind() == ErrorKind::Lost {
                let loss = self.why_gone().await;
                self.lose(loss);
            }
            if let GuardState::Lost(loss) = self.state() {
                return Err(self.lost_before(loss));
            }
            if !error.is_retryable() || self.engine.clock.now() >= give_up {
                return Err(error.with("name", &self.id.name));
            }
            self.engine.observers.tell(Event::Retried { name: &self.id.name, error: &error });
            failures += 1;
            self.engine.pause_after(failures).await;
        }
    }

    async fn lighten_once(&self, claim: Claim) -> Result<()> {
        let mut slot = self.place.lock().await;
        match slot.as_mut() {
            Some(place) => self.engine.in_time("downgrade", place.lighten(claim)).await,
            None => Err(self.released_before()),
        }
    }
}
