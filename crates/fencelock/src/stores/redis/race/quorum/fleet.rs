//! Several masters that are asked at once, and what may be said before all of them have answered.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use futures_core::future::BoxFuture;
use tokio::sync::mpsc;
use tokio::task::AbortHandle;

use crate::error::{Error, ErrorKind, Result};
use crate::store::Tasks;
use crate::stores::redis::wire::{Connection, Link};
use crate::time::{Clock, Moment};

/// How long those are waited for that are slower than a quorum, where their word may still decide: this part of the ttl, within bounds.
const PART_OF_TTL: u32 = 20;
const LEAST_GRACE: Duration = Duration::from_millis(250);
const MOST_GRACE: Duration = Duration::from_secs(1);
/// How long they are waited for at least where their word decides nothing.
const LEAST_REST: Duration = Duration::from_millis(20);

/// The ways to all masters, for one session or for those who only look.
pub(super) struct Fleet {
    pub(super) links: Vec<Arc<Link>>,
    /// The URLs of the masters, without secrets.
    pub(super) names: Arc<[String]>,
    pub(super) clock: Arc<dyn Clock>,
    /// How long a master is waited for at most.
    patience: Duration,
    /// How long the rest is waited for once a quorum has answered.
    grace: Duration,
    /// Where masters are asked; `None` for wherever somebody wants to know.
    tasks: Option<Tasks>,
    /// Which masters were silent when somebody looked last.
    missed: Box<[AtomicBool]>,
}

impl Fleet {
    pub(super) fn new(
        masters: Vec<(String, Arc<Link>)>,
        ttl: Duration,
        patience: Duration,
        tasks: Option<Tasks>,
    ) -> Self {
        let (names, links): (Vec<_>, Vec<Arc<Link>>) = masters.into_iter().unzip();
        let clock = Arc::clone(&links[0].clock);
        let grace = (ttl / PART_OF_TTL).clamp(LEAST_GRACE, MOST_GRACE);
        let missed = links.iter().map(|_| AtomicBool::new(false)).collect();
        Self { links, names: names.into(), clock, patience, grace, tasks, missed }
    }

    pub(super) fn size(&self) -> usize {
        self.links.len()
    }

    /// How many of them decide.
    pub(super) fn quorum(&self) -> usize {
        self.size() / 2 + 1
    }

    pub(super) fn is_connected(&self) -> bool {
        self.links.iter().filter(|link| link.is_connected()).count() >= self.quorum()
    }

    /// Starts a task beside those who ask.
    pub(super) fn start(&self, task: impl Future<Output = ()> + Send + 'static) -> Result<AbortHandle> {
        Ok(self.tasks.clone().map_or_else(Tasks::here, Ok)?.spawn(task))
    }

    /// Asks every master on a task of its own, which goes on when nobody waits for the answers any more.
    pub(super) fn each(&self, ask: impl Fn(usize) -> BoxFuture<'static, ()>) -> Result<()> {
        (0..self.size()).try_for_each(|index| self.start(ask(index)).map(drop))
    }

    /// Asks every master for the same thing, by way of a connection to it.
    pub(super) fn ask<T: Send + 'static>(
        &self,
        ask: impl Fn(Arc<Connection>) -> BoxFuture<'static, Result<T>> + Clone + Send + 'static,
    ) -> Result<Answers<T>> {
        self.ask_those(|_| true, move |_, connection| ask(connection))
    }

    /// Asks those masters, each for something of its own.
    pub(super) fn ask_those<T: Send + 'static>(
        &self,
        those: impl Fn(usize) -> bool,
        ask: impl Fn(usize, Arc<Connection>) -> BoxFuture<'static, Result<T>> + Clone + Send + 'static,
    ) -> Result<Answers<T>> {
        let (sender, answers) = self.answers();
        (0..self.size()).filter(|index| those(*index)).try_for_each(|index| {
            let (sender, link, ask) = (sender.clone(), Arc::clone(&self.links[index]), ask.clone());
            let (clock, name, patience) = (Arc::clone(&self.clock), self.names[index].clone(), self.patience);
            let asked = async move {
                let connection = link.connection().await?;
                ask(index, connection).await
            };
            let task = async move {
                let answer = within(&*clock, &name, patience, asked).await;
                let _ = sender.send((index, answer));
            };
            self.start(task).map(drop)
        })?;
        Ok(answers)
    }

    /// Where each master's answer comes to, with the number of the master.
    pub(super) fn answers<T>(&self) -> (mpsc::UnboundedSender<(usize, Result<T>)>, Answers<T>) {
        let (sender, receiver) = mpsc::unbounded_channel();
        let given = (0..self.size()).map(|_| None).collect();
        let (clock, grace) = (Arc::clone(&self.clock), self.grace);
        let limit = clock.now().after(self.patience);
        let names = Arc::clone(&self.names);
        (sender, Answers { receiver, given, names, quorum: self.quorum(), clock, limit, grace, graced: None })
    }

    /// What becomes of `asked`, if that is within the patience with this master.
    pub(super) async fn within<T>(&self, index: usize, asked: impl Future<Output = Result<T>>) -> Result<T> {
        within(&*self.clock, &self.names[index], self.patience, asked).await
    }

    /// Waits for what is asked of masters that answered a moment ago; not for longer than for silent ones.
    pub(super) async fn not_for_long(&self, asked: impl Future) {
        tokio::select! {
            biased;
            _ = asked => {}
            () = self.clock.sleep_until(self.clock.now().after(self.grace.min(self.patience))) => {}
        }
    }

    /// Meets all masters: a quorum of them has to be there, and none of those that answer may be one that keeps no locks.
    pub(super) async fn meet(&self) -> Result<()> {
        let mut answers = self.ask(|_| Box::pin(async { Ok(()) }))?;
        let is_unfit = |answer: &Option<Result<()>>| matches!(answer, Some(Err(error)) if !error.is_retryable());
        answers.until(|given| given.iter().any(is_unfit)).await;
        if let Some(Some(Err(error))) = answers.given.iter().find(|answer| is_unfit(answer)) {
            return Err(error.again());
        }
        answers.of_quorum("connect")?;
        for (name, missing) in missing(&self.names, &answers.given) {
            tracing::warn!(server = name, missing, "one of the masters is not there: there are fewer that may fail");
        }
        Ok(())
    }

    /// Warns of masters that told nothing to somebody who looked: of each once, until it is heard again.
    pub(super) fn has_looked<T>(&self, given: &Given<T>) {
        for (index, missed) in self.missed.iter().enumerate() {
            let is_missed = !matches!(given[index], Some(Ok(_)));
            if !missed.swap(is_missed, Ordering::Relaxed) && is_missed {
                let missing = given[index].as_ref().and_then(|answer| answer.as_ref().err());
                let missing =
                    missing.map_or_else(|| "no answer so far".to_owned(), |error| error.said_without("server"));
                let server = &self.names[index];
                tracing::warn!(
                    server,
                    missing,
                    "one of the masters does not say what it has: what the others have is shown"
                );
            }
        }
    }

    /// Connects to all; content with a quorum.
    pub(super) async fn connect(&self) -> Result<()> {
        let mut answers = self.ask(|_| Box::pin(async { Ok(()) }))?;
        answers.until(|given| heard(given) >= self.quorum()).await;
        answers.of_quorum("connect").map(drop)
    }
}

async fn within<T>(
    clock: &dyn Clock,
    name: &str,
    patience: Duration,
    asked: impl Future<Output = Result<T>>,
) -> Result<T> {
    tokio::select! {
        biased;
        answer = asked => answer,
        () = clock.sleep_until(clock.now().after(patience)) => {
            let message = "one of the masters gave no answer in time";
            Err(Error::new(ErrorKind::Unreachable, "ask", message).with("server", name).retryable().outcome_unknown())
        }
    }
}

/// What each master answered so far, in their order.
pub(super) type Given<T> = [Option<Result<T>>];

/// How many answered what can be used.
pub(super) fn heard<T>(given: &Given<T>) -> usize {
    given.iter().filter(|answer| matches!(answer, Some(Ok(_)))).count()
}

/// How many have not answered yet.
pub(super) fn open<T>(given: &Given<T>) -> usize {
    given.iter().filter(|answer| answer.is_none()).count()
}

/// The answers of all masters, as they come.
pub(super) struct Answers<T> {
    receiver: mpsc::UnboundedReceiver<(usize, Result<T>)>,
    given: Vec<Option<Result<T>>>,
    names: Arc<[String]>,
    quorum: usize,
    clock: Arc<dyn Clock>,
    /// Nobody is waited for after this.
    limit: Moment,
    grace: Duration,
    /// When those have been waited for that are slower than a quorum, once a quorum has answered.
    graced: Option<Moment>,
}

impl<T> Answers<T> {
    /// Waits until that is so, or all have answered, or a quorum has and the rest takes too long, or all take too long.
    pub(super) async fn until(&mut self, is_decided: impl Fn(&Given<T>) -> bool) -> &Given<T> {
        let mut limit = self.limit;
        let mut is_heard = false;
        while open(&self.given) > 0 && !is_decided(&self.given) {
            if !is_heard && heard(&self.given) >= self.quorum {
                is_heard = true;
                limit = limit.min(self.clock.now().after(self.grace));
                self.graced = Some(limit);
            }
            let answer = tokio::select! {
                biased;
                answer = self.receiver.recv() => answer,
                () = self.clock.sleep_until(limit) => break,
            };
            let Some((index, answer)) = answer else { break };
            self.given[index] = Some(answer);
        }
        &self.given
    }

    /// Waits until all masters have been seen to. Those that are silent are waited for once, here and in [`Self::until`]: when a quorum
    /// of those that were asked at `sent` decided without them, about as long again as it took.
    pub(super) async fn until_done(&mut self, sent: Moment) {
        let now = self.clock.now();
        let as_long = || self.limit.min(now.after(now.since(sent).clamp(LEAST_REST, self.grace)));
        let limit = self.graced.unwrap_or_else(as_long);
        loop {
            let answer = tokio::select! {
                biased;
                answer = self.receiver.recv() => answer,
                () = self.clock.sleep_until(limit) => return,
            };
            let Some((index, answer)) = answer else { return };
            self.given[index] = Some(answer);
        }
    }

    /// What was answered, with the number of each master, if that is by a quorum.
    pub(super) fn of_quorum(&mut self, operation: &'static str) -> Result<Vec<(usize, &T)>> {
        if heard(&self.given) < self.quorum {
            return Err(no_quorum(operation, self.quorum, &self.names, &self.given));
        }
        let told = self.given.iter().enumerate();
        Ok(told.filter_map(|(index, answer)| Some((index, answer.as_ref()?.as_ref().ok()?))).collect())
    }

    pub(super) fn given(&self) -> &Given<T> {
        &self.given
    }

    /// What was answered, with the number of each master.
    pub(super) fn taken(self) -> Vec<(usize, T)> {
        let told = self.given.into_iter().enumerate();
        told.filter_map(|(index, answer)| Some((index, answer?.ok()?))).collect()
    }
}

/// The masters that did not answer, or not what can be used, each with why.
pub(super) fn missing<'a, T>(names: &'a [String], given: &'a Given<T>) -> impl Iterator<Item = (&'a String, String)> {
    names.iter().zip(given).filter_map(|(name, answer)| match answer {
        Some(Ok(_)) => None,
        Some(Err(error)) => Some((name, error.said_without("server"))),
        None => Some((name, "no answer so far".to_owned())),
    })
}

/// The error of a request that too few masters answered. It names those that did not, and says why.
pub(super) fn no_quorum<T>(operation: &'static str, quorum: usize, names: &[String], given: &Given<T>) -> Error {
    let faults: Vec<&Error> = given.iter().filter_map(|answer| answer.as_ref()?.as_ref().err()).collect();
    // What does not pass by itself is said as it is, when it is what is wrong with so many.
    let is_final = faults.iter().filter(|fault| !fault.is_retryable()).count() > given.len() - quorum;
    let first = faults.iter().find(|fault| !is_final || !fault.is_retryable());
    let kind = first.filter(|_| is_final).map_or(ErrorKind::Unreachable, |fault| fault.kind());
    let mut error = Error::new(kind, operation, "fewer masters than a quorum answered")
        .with("answered", format!("{} of {}", heard(given), given.len()))
        .with("quorum", quorum)
        .outcome_unknown();
    for (name, why) in missing(names, given) {
        error = error.with("missing", format_args!("{name}: {why}"));
    }
    if is_final { error } else { error.retryable() }
}
