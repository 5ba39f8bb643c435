//! A grant that arrives after its own end, or just before, and is unusable.

use super::Acquire;
use crate::error::{Error, ErrorKind, Result, rounded};
use crate::store::Grant;

impl Acquire {
    /// Whether the grant's own validity had ended at its arrival, or was closer to its end than the margin.
    pub(super) fn is_too_late(&self, grant: Grant) -> bool {
        grant.valid_until.is_some() && self.engine.clock.now() >= self.engine.timing.own_end(grant)
    }

    pub(super) fn too_late(&self, grant: Grant) -> Error {
        let message = "the store granted the lock too late to use it: no more than the margin was left of the grant's own validity; \
                       set a longer ttl or a shorter margin, or see why the store is slow";
        let timing = &self.engine.timing;
        let left = grant.valid_until.map(|end| end.since(self.engine.clock.now())).unwrap_or_default();
        Error::new(ErrorKind::Unreachable, "acquire", message)
            .with("left", rounded(left))
            .with("margin", rounded(timing.margin))
            .with("ttl", rounded(timing.ttl))
            .retryable()
    }

    /// Pauses before another entry into the queue. Returns the error for a single try, and after `give_up_after` of late grants. A longer
    /// wait between two late grants starts that time anew.
    pub(super) async fn came_late(&mut self, error: Error) -> Result<()> {
        if !self.wish.queues() {
            return Err(error.with("name", &self.wish.name));
        }
        let now = self.engine.clock.now();
        self.in_vain.forget_after(self.engine.retry.give_up_after, now);
        let failed = self.in_vain.another(now);
        let error = self.pause_after(failed, error).await?;
        self.in_vain.was(Some(error));
        Ok(())
    }
}
