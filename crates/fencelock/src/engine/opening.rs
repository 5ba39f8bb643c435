//! The first session of a client.

use std::sync::Arc;
use std::time::Duration;

use super::Engine;
use crate::error::{Error, ErrorKind, Result};

impl Engine {
    /// Opens the first session. With a limit, what failed for a passing reason is tried again until then.
    pub(crate) async fn connect(self: &Arc<Self>, limit: Option<Duration>) -> Result<()> {
        let Some(limit) = limit.filter(|limit| !limit.is_zero()) else {
            return self.session().await.map(drop);
        };
        let until = self.clock.now().after(limit);
        let (mut failures, mut last) = (0, None);
        while self.clock.now() < until {
            let opened = tokio::select! {
                biased;
                opened = self.session() => opened,
                () = self.clock.sleep_until(until) => break,
            };
            match opened {
                Ok(_) => return Ok(()),
                Err(error) if !error.is_retryable() => return Err(error),
                Err(error) => last = Some(error),
            }
            failures += 1;
            let again = self.clock.now().after(self.retry.pause(failures)).min(until);
            self.clock.sleep_until(again).await;
        }
        let silent = || {
            let message = "the store did not answer within the connect timeout";
            Error::new(ErrorKind::Unreachable, "connect", message).outcome_unknown().retryable()
        };
        Err(last.unwrap_or_else(silent).with("connect_timeout", format!("{limit:?}")))
    }
}
