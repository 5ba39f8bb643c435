//! Asks several servers concurrently. A majority of the answers decides.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use futures_core::future::BoxFuture;
use tokio::sync::mpsc;
use tokio::task::AbortHandle;

use super::session::Asking;
use crate::error::{Error, ErrorKind, Result};
use crate::kit::reconnect::Dial;
use crate::kit::try_again::TryAgainSession;
use crate::store::Tasks;
use crate::stores::redis::wire::{Connection, Link};
use crate::time::{Clock, Moment, outcome_before};

/// Once a majority has answered, the session waits for further answers that may decide: for this part of the ttl, within bounds.
const PART_OF_TTL: u32 = 20;
const LEAST_GRACE: Duration = Duration::from_millis(250);
const MOST_GRACE: Duration = Duration::from_secs(1);

/// The links to all servers, for a session or for a reader.
pub(super) struct Servers {
    links: Vec<Arc<Link>>,
    /// The URLs of the servers, without secrets.
    pub(super) names: Arc<[String]>,
    pub(super) clock: Arc<dyn Clock>,
    /// How long the session waits for a server at most.
    patience: Duration,
    /// How long the session waits for the rest once a majority has answered.
    pub(super) grace: Duration,
    /// The runtime of the requests; `None` for the caller's.
    tasks: Option<Tasks>,
    /// The servers that did not answer at the last warning.
    missed: Box<[AtomicBool]>,
    /// The task that tries for waiters, which ends when this is dropped.
    tries: OnceLock<AbortHandle>,
}

impl Servers {
    pub(super) fn new(
        servers: Vec<(String, Arc<Link>)>,
        ttl: Duration,
        patience: Duration,
        tasks: Option<Tasks>,
    ) -> Self {
        let (names, links): (Vec<_>, Vec<Arc<Link>>) = servers.into_iter().unzip();
        let clock = Arc::clone(&links[0].clock);
        let grace = (ttl / PART_OF_TTL).clamp(LEAST_GRACE, MOST_GRACE).min(patience / 3);
        let missed = links.iter().map(|_| AtomicBool::new(false)).collect();
        Self { links, names: names.into(), clock, patience, grace, tasks, missed, tries: OnceLock::new() }
    }

    /// Starts the tries for waiters.
    pub(super) fn try_for(self: &Arc<Self>, session: &Arc<TryAgainSession<Asking>>) -> Result<()> {
        let tries = self.start(session.tries(self))?;
        self.tries.get_or_init(|| tries);
        session.backend.0.servers.get_or_init(|| Arc::downgrade(self));
        Ok(())
    }

    pub(super) fn size(&self) -> usize {
        self.links.len()
    }

    /// How many answers decide.
    pub(super) fn quorum(&self) -> usize {
        self.size() / 2 + 1
    }

    /// Starts a task that outlives its caller.
    fn start(&self, task: impl Future<Output = ()> + Send + 'static) -> Result<AbortHandle> {
        Ok(self.tasks.clone().map_or_else(Tasks::here, Ok)?.spawn(task))
    }

    /// Asks every server for `what`, each on a task of its own, which continues when the caller stops waiting for answers.
    pub(super) fn ask<W: Clone + Send + 'static, T: Send + 'static>(
        &self,
        what: W,
        ask: fn(W, usize, Arc<Connection>) -> BoxFuture<'static, Result<T>>,
    ) -> Result<Answers<T>> {
        self.ask_those(|_| true, what, ask)
    }

    /// As [`Self::ask`], for the servers that `those` selects.
    pub(super) fn ask_those<W: Clone + Send + 'static, T: Send + 'static>(
        &self,
        those: impl Fn(usize) -> bool,
        what: W,
        ask: fn(W, usize, Arc<Connection>) -> BoxFuture<'static, Result<T>>,
    ) -> Result<Answers<T>> {
        let (sender, receiver) = mpsc::unbounded_channel();
        (0..self.size()).filter(|index| those(*index)).try_for_each(|index| {
            let (sender, link, what) = (sender.clone(), Arc::clone(&self.links[index]), what.clone());
            let (clock, name, patience) = (Arc::clone(&self.clock), self.names[index].clone(), self.patience);
            let task = async move {
                let asked = async move {
                    let connection = link.connection().await?;
                    ask(what, index, connection).await
                };
                let answer = outcome_before(&*clock, clock.now().after(patience), asked).await;
                let _ = sender.send((index, answer.unwrap_or_else(|| Err(no_answer(&name)))));
            };
            self.start(task).map(drop)
        })?;
        Ok(Answers {
            receiver,
            given: (0..self.size()).map(|_| None).collect(),
            names: Arc::clone(&self.names),
            quorum: self.quorum(),
            clock: Arc::clone(&self.clock),
            limit: self.clock.now().after(self.patience),
            grace: self.grace,
        })
    }

    /// Connects to all servers; a majority is enough. At the first time, an answer that makes a server unfit for locks is an error.
    async fn connect(&self, is_first: bool) -> Result<()> {
        let mut answers = self.ask((), |(), _, _| Box::pin(async { Ok(()) }))?;
        let is_unfit = |answer: &Option<Result<()>>| matches!(answer, Some(Err(error)) if !error.is_retryable());
        let has_enough = |given: &Given<()>| !is_first && answered(given) >= self.quorum();
        answers.until(|given| has_enough(given) || is_first && given.iter().any(is_unfit)).await;
        if is_first {
            if let Some(Some(Err(error))) = answers.given.iter().find(|answer| is_unfit(answer)) {
                return Err(error.again());
            }
            self.warn_of_silent(&answers);
        }
        answers.of_quorum("connect")
    }

    /// Warns of servers that did not answer if a majority did. Each server is named once, until it answers again.
    pub(super) fn warn_of_silent<T>(&self, answers: &Answers<T>) {
        for ((missed, server), given) in self.missed.iter().zip(&*self.names).zip(&answers.given) {
            let is_missed = !matches!(given, Some(Ok(_))) && answered(&answers.given) >= self.quorum();
            if !missed.swap(is_missed, Ordering::Relaxed) && is_missed {
                let cause = why_missing(given.as_ref());
                tracing::warn!(cause, "Cannot reach Redis {server}. Locks work while a majority answers.");
            }
        }
    }
}

impl Drop for Servers {
    fn drop(&mut self) {
        self.tries.take().into_iter().for_each(|tries| tries.abort());
    }
}

/// The connection to a majority of the servers. Each server's own connection reconnects by itself.
pub(super) struct ToMajority {
    pub(super) servers: Arc<Servers>,
    /// `None` for a reader.
    pub(super) session: Option<Arc<TryAgainSession<Asking>>>,
}

impl Dial for ToMajority {
    type Connection = Servers;

    fn dial(&self, _: u64) -> BoxFuture<'_, Result<Arc<Servers>>> {
        Box::pin(async move {
            let state = self.session.as_ref().map(|session| &session.places.session);
            let (sent, opens) = (self.servers.clock.now(), state.filter(|state| !state.is_open()));
            self.servers.connect(opens.is_some()).await?;
            opens.into_iter().for_each(|state| state.confirm(sent));
            Ok(Arc::clone(&self.servers))
        })
    }

    fn too_slow(&self, _: Duration) -> Error {
        no_answer("a majority")
    }

    fn is_alive(servers: &Servers) -> bool {
        servers.links.iter().filter(|link| link.is_connected()).count() >= servers.quorum()
    }

    fn hang_up(servers: &Servers) {
        servers.links.iter().for_each(|link| link.hang_up());
    }
}

fn no_answer(server: &str) -> Error {
    let error = Error::new(ErrorKind::Unreachable, "ask", "the server gave no answer in time");
    error.with("server", server).retryable().outcome_unknown()
}

/// The answers so far, in the order of the servers.
pub(super) type Given<T> = [Option<Result<T>>];

/// The number of servers that answered without an error.
pub(super) fn answered<T>(given: &Given<T>) -> usize {
    given.iter().filter(|answer| matches!(answer, Some(Ok(_)))).count()
}

/// The number of servers without an answer yet.
pub(super) fn open<T>(given: &Given<T>) -> usize {
    given.iter().filter(|answer| answer.is_none()).count()
}

/// The answers of all servers, in the order of arrival.
pub(super) struct Answers<T> {
    receiver: mpsc::UnboundedReceiver<(usize, Result<T>)>,
    pub(super) given: Vec<Option<Result<T>>>,
    names: Arc<[String]>,
    quorum: usize,
    clock: Arc<dyn Clock>,
    /// The end of the wait for answers.
    limit: Moment,
    grace: Duration,
}

impl<T> Answers<T> {
    /// Waits until `is_decided` holds, or all have answered, or the time is up: the grace after a majority's answers, or the patience.
    pub(super) async fn until(&mut self, is_decided: impl Fn(&Given<T>) -> bool) -> &Given<T> {
        let mut has_majority = false;
        while open(&self.given) > 0 && !is_decided(&self.given) {
            if !has_majority && answered(&self.given) >= self.quorum {
                has_majority = true;
                self.not_for_long();
            }
            let answer = outcome_before(&*self.clock, self.limit, self.receiver.recv()).await;
            let Some((index, answer)) = answer.flatten() else { break };
            self.given[index] = Some(answer);
        }
        &self.given
    }

    /// Limits the further wait to the grace that slow servers have after a majority's answers.
    pub(super) fn not_for_long(&mut self) {
        self.limit = self.limit.min(self.clock.now().after(self.grace));
    }

    /// Returns an error if too few servers answered.
    pub(super) fn of_quorum(&self, operation: &'static str) -> Result<()> {
        let is_enough = answered(&self.given) >= self.quorum;
        if is_enough { Ok(()) } else { Err(no_quorum(operation, self.quorum, &self.names, &self.given)) }
    }

    /// The answers without errors, each with the number of its server.
    pub(super) fn taken(self) -> Vec<(usize, T)> {
        let given = self.given.into_iter().enumerate();
        given.filter_map(|(index, answer)| Some((index, answer?.ok()?))).collect()
    }
}

fn why_missing<T>(answer: Option<&Result<T>>) -> String {
    let error = answer.and_then(|answer| answer.as_ref().err());
    error.map_or_else(|| "no answer so far".to_owned(), |error| error.said_without("server"))
}

/// The servers without a usable answer, each with the reason.
pub(super) fn missing<'a, T>(names: &'a [String], given: &'a Given<T>) -> impl Iterator<Item = (&'a String, String)> {
    let silent = names.iter().zip(given).filter(|(_, answer)| !matches!(answer, Some(Ok(_))));
    silent.map(|(name, answer)| (name, why_missing(answer.as_ref())))
}

/// The error of a request that too few servers answered. Names the servers without an answer, with the reasons.
pub(super) fn no_quorum<T>(operation: &'static str, quorum: usize, names: &[String], given: &Given<T>) -> Error {
    let faults: Vec<&Error> = given.iter().filter_map(|answer| answer.as_ref()?.as_ref().err()).collect();
    // Reports a permanent error if enough servers share it.
    let is_final = faults.iter().filter(|fault| !fault.is_retryable()).count() > given.len() - quorum;
    let first = faults.iter().find(|fault| !is_final || !fault.is_retryable());
    let kind = first.filter(|_| is_final).map_or(ErrorKind::Unreachable, |fault| fault.kind());
    let mut error = Error::new(kind, operation, "fewer servers than a majority answered")
        .with("answered", format!("{} of {}", answered(given), given.len()))
        .with("majority", quorum)
        .outcome_unknown();
    for (name, why) in missing(names, given) {
        error = error.with("missing", format_args!("{name}: {why}"));
    }
    if is_final { error } else { error.retryable() }
}
