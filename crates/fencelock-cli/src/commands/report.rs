//! `run`'s report of a lock that ends before its command: a line with the time, the store and the breaker.

use std::time::{Duration, SystemTime};

use fencelock::recipes::MultiGuard;
use fencelock::{AnyGuard, Client, FencingToken, GuardState, Loss, Name};
use tokio::task::JoinHandle;

use super::several::{Home, is_one, locks_of, refusal};
use crate::output::say;
use crate::times;

/// How long the store may take to name the client that broke the lock. A busy host needs seconds.
const WHO: Duration = Duration::from_secs(10);

/// How a lock ends before its command.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Cause {
    Lost(Loss),
    /// No renewal came through, and the lock will be gone soon.
    Lapsing,
    HeldTooLong,
}

/// Prints once why a command is stopped, or that its lock was lost.
pub(super) struct EndReport {
    /// Each store's client, and its name for people. A name has a guard in each store.
    stores: Vec<(Client, String)>,
    cause: Option<Cause>,
    /// Whether the command was stopped because of the cause, or never began. False if the command had ended before the loss
    /// was noticed.
    pub(super) stopped: bool,
    /// The message of a break, which still waits for the name of the client that broke the lock.
    asking: Option<JoinHandle<()>>,
}

impl EndReport {
    pub(super) fn new(homes: &[Home]) -> Self {
        let stores = homes.iter().map(|home| (home.client.clone(), home.chosen.name())).collect();
        Self { stores, cause: None, stopped: false, asking: None }
    }

    /// Prints that the lock of `guard` ends because of `cause`, and the effect on the command (`then`).
    pub(super) fn tell(&mut self, guard: &MultiGuard, cause: Cause, then: &'static str) {
        if self.cause.replace(cause).is_some_and(|before| before.explains(cause)) {
            return;
        }
        let is_lost = |guard: &AnyGuard| matches!(guard.state(), GuardState::Lost(_));
        let lost_in = guard.guards().iter().position(is_lost).map(|at| &self.stores[at % self.stores.len()]);
        let store = lost_in.map_or_else(
            || self.stores.iter().map(|(_, name)| name.as_str()).collect::<Vec<_>>().join(" and "),
            |(_, name)| name.clone(),
        );
        let (lock, now) = (format!("{} in {store}", locks_of(guard)), now());
        let were = if is_one(guard) { "was" } else { "were" };
        match cause {
            Cause::Lapsing => {
                let why = refusal(guard).map_or_else(String::new, |why| format!(" ({why})"));
                say(format_args!("{lock} could not be renewed until {now}{why}: {then} before it lapses"));
            }
            Cause::HeldTooLong => say(format_args!("{lock} {were} held for --max-hold until {now}: {then}")),
            Cause::Lost(Loss::Broken) => {
                let lost = guard.lost_guard();
                let reason =
                    lost.and_then(AnyGuard::break_reason).map_or_else(String::new, |reason| format!(": {reason}"));
                let grant = lost.map(|lost| (lost.name().clone(), lost.token()));
                let who = who_broke(lost_in.map(|(client, _)| client.clone()), grant);
                self.asking = Some(tokio::spawn(async move {
                    say(format_args!("{lock} was lost at {now}, {then}: it was broken by {}{reason}", who.await));
                }));
            }
            Cause::Lost(loss) => {
                let why = refusal(guard).filter(|_| loss == Loss::Unconfirmed);
                let why = why.map_or_else(String::new, |why| format!(", since {why}"));
                say(format_args!("{lock} was lost at {now}, {then}: {loss}{why}"));
            }
        }
    }

    /// Whether the lock ended before its command, or the command's end revealed the loss.
    pub(super) fn has_reported(&self) -> bool {
        self.cause.is_some()
    }

    /// Waits until the message of a break is printed.
    pub(super) async fn finish(&mut self) {
        if let Some(asking) = self.asking.take() {
            let _ = asking.await;
        }
    }
}

impl Cause {
    /// Whether the message of this cause explains `later`, too, which then gets none of its own.
    fn explains(self, later: Self) -> bool {
        match (self, later) {
            // The lock lapsed although its command was stopped in time.
            (Self::Lapsing, Self::Lost(loss)) => matches!(loss, Loss::Unconfirmed | Loss::Expired),
            (Self::Lost(_), _) => true,
            _ => false,
        }
    }
}

fn now() -> impl std::fmt::Display {
    times::to_second(SystemTime::now())
}

/// The client that broke this grant (a name and its token), from the store's record.
async fn who_broke(client: Option<Client>, grant: Option<(Name, Option<FencingToken>)>) -> String {
    const NOBODY: &str = "a client that the store does not name";
    let (Some(client), Some((name, token))) = (client, grant) else { return NOBODY.to_owned() };
    let records = tokio::time::timeout(WHO, client.breaks(&name)).await;
    let record =
        records.ok().and_then(Result::ok).and_then(|records| records.into_iter().rfind(|record| record.token == token));
    record.map_or_else(|| NOBODY.to_owned(), |record| record.by.to_string())
}
