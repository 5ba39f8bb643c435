//! Finds a server that gives a session. Names are resolved anew for each try, and servers are dialled in random order, the next
//! one a moment after the last: a silent server does not delay the other servers. The first server that welcomes the client wins.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::time::{Instant, sleep};

use crate::connect_string::Server;
use crate::error::{Error, ErrorKind};
use crate::handshake::{Hello, Refusal, Welcome};
use crate::net::Stream;
use crate::race::{Found, Race};
use crate::shared::Shared;

/// A session on a connection, and its server.
pub(crate) struct Established {
    pub(crate) stream: Box<dyn Stream>,
    pub(crate) server: String,
    pub(crate) welcome: Welcome,
    /// Whether another server may take the session from this one: the other server was asked to continue the session, too.
    pub(crate) is_doubted: bool,
}

/// The session has expired, as a server said.
#[derive(Debug)]
pub(crate) struct Expired;

/// Why one server gave no session.
#[derive(Debug, Clone)]
struct Failure {
    server: String,
    refusal: Refusal,
}

/// The known addresses of the servers: the last resolved ones, for when names cannot be resolved. Shared by all clients of one
/// [`Config`](crate::Config).
#[derive(Debug, Default)]
pub(crate) struct Addresses {
    known: Mutex<HashMap<Server, Vec<SocketAddr>>>,
    /// The current pause of clients that found no first session.
    newcomers: Mutex<Option<Duration>>,
}

impl Addresses {
    /// A dialer for a client without a session: its pauses continue from the last failed dialer.
    pub(crate) fn newcomer(&self, times: Times) -> Dialer {
        let pause = *self.newcomers.lock().unwrap_or_else(PoisonError::into_inner);
        Dialer { pause: pause.unwrap_or(times.first_pause), ..Dialer::new(times) }
    }

    /// Notes whether `dialer`, of a client without a session, found one.
    pub(crate) fn newcomer_ended(&self, dialer: &Dialer, has_session: bool) {
        *self.newcomers.lock().unwrap_or_else(PoisonError::into_inner) = (!has_session).then_some(dialer.pause);
    }

    pub(crate) fn remember(&self, server: &Server, addresses: &[SocketAddr]) {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        known.insert(server.clone(), addresses.to_vec());
    }

    pub(crate) fn of(&self, server: &Server) -> Vec<SocketAddr> {
        let known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        known.get(server).cloned().unwrap_or_default()
    }
}

/// Looks for servers, and remembers why each failed.
#[derive(Debug)]
pub(crate) struct Dialer {
    /// The newest failure of each server.
    failures: Vec<Failure>,
    /// The servers without an answer yet, and the time of the question.
    under_way: Vec<(String, Instant)>,
    times: Times,
    /// The pause after each failure of a server, in a row.
    pause: Duration,
    /// The server that failed last is tried last.
    avoid: Option<String>,
    /// Servers that were left while they owed the answer to a write, and when; without those that had the session again since. Such a server reads
    /// the write once it resumes. The leader refuses the write, because the session is at another server. But after a second hello, this server can
    /// take the session back. Then the write takes effect, although the other server has shown that it had not been made.
    owing: Vec<(String, Instant)>,
    /// Whether to pause before the first attempt.
    wary: bool,
    /// How many races in a row were won while other servers had been asked to continue the session as well.
    contests: u32,
}

/// The time limits of dialling.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Times {
    /// The longest that one attempt may take.
    pub(crate) attempt: Duration,
    /// The time from dialling one server to dialling the next. After a failure the next one is dialled at once.
    pub(crate) stagger: Duration,
    /// How long other servers are tried before one that owes the answer to a write.
    pub(crate) last: Duration,
    /// How long a server may owe such an answer: the leader gives up a server that stands still for longer, and the
    /// server starts anew.
    pub(crate) owing: Duration,
    /// The pause after the first failure of a server, and the longest one.
    pub(crate) first_pause: Duration,
    pub(crate) longest_pause: Duration,
}

impl Times {
    const SHORTEST_ATTEMPT: Duration = Duration::from_millis(100);
    /// The pauses of a client with a session to lose.
    const FIRST_PAUSE: Duration = Duration::from_millis(20);
    const LONGEST_PAUSE: Duration = Duration::from_millis(250);
    /// The pauses of a client without a session: where a server limits its connections, clients with sessions come
    /// first.
    const NEWCOMER: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(5));
    const STAGGER: Duration = Duration::from_millis(200);

    /// The pace after `contests` contested races in a row. The leader gives a session to the server that asks last. Servers that
    /// answer slower than the next one is dialled would take the session from each other for ever.
    fn after(self, contests: u32) -> Self {
        let stagger = self.stagger.saturating_mul(2_u32.saturating_pow(contests)).min(self.attempt);
        Self { stagger, ..self }
    }

    /// The times for a session with this timeout.
    pub(crate) fn of(session_timeout: Duration, attempt: Option<Duration>) -> Self {
        Self {
            attempt: attempt.unwrap_or((session_timeout / 3).max(Self::SHORTEST_ATTEMPT)),
            // Two silent servers and a third that answers fit into the time that `Config::patience` leaves.
            stagger: (session_timeout / 50).clamp(Duration::from_millis(10), Self::STAGGER),
            // This server may be the only living one. With its silence before (`Config::patience`) the time is 5/24 of the timeout,
            // else 1/12.
            last: session_timeout / 12,
            owing: session_timeout,
            first_pause: Self::FIRST_PAUSE,
            longest_pause: (session_timeout / 12).clamp(Self::FIRST_PAUSE, Self::LONGEST_PAUSE),
        }
    }

    /// The times for a client without a session.
    pub(crate) fn of_newcomer(session_timeout: Duration, attempt: Option<Duration>) -> Self {
        let (first_pause, longest_pause) = Self::NEWCOMER;
        Self { first_pause, longest_pause, ..Self::of(session_timeout, attempt) }
    }
}

impl Dialer {
    /// A dialler with these times.
    pub(crate) fn new(times: Times) -> Self {
        let (failures, under_way) = (Vec::new(), Vec::new());
        Self {
            failures,
            under_way,
            times,
            pause: times.first_pause,
            avoid: None,
            owing: Vec::new(),
            wary: false,
            contests: 0,
        }
    }

    /// A server gave a session.
    pub(crate) fn found(&mut self, server: &str, times: Times) {
        self.owing.retain(|(other, _)| other != server);
        self.failures.clear();
        self.under_way.clear();
        if self.times.first_pause != times.first_pause {
            self.pause = times.first_pause;
        }
        self.times = times;
    }

    /// The connection to `server` ended after it had lived for `lived`; a connection that hardly lived counts as a failed attempt. `owes`
    /// says that a write was not answered.
    pub(crate) fn ended(&mut self, server: String, lived: Duration, owes: bool) {
        if owes {
            self.owing.push((server.clone(), Instant::now()));
        }
        self.avoid = Some(server);
        self.wary = lived < self.times.attempt;
        if !self.wary {
            self.pause = self.times.first_pause;
            self.contests = 0;
        }
    }

    /// A random time between half the pause and the whole pause, so that clients that lost one server do not return together.
    /// Each pause is twice the last.
    fn next_pause(&mut self) -> Duration {
        let pause = self.pause.mul_f64(0.5 + fastrand::f64() / 2.0);
        self.pause = (self.pause * 2).min(self.times.longest_pause);
        pause
    }

    /// Dials all servers, again and again.
    ///
    /// # Cancel safety
    /// A drop leaves no session: a new session that arrives later is closed.
    pub(crate) async fn dial(&mut self, shared: &Arc<Shared>, hello: Hello) -> Result<Established, Expired> {
        self.under_way.clear();
        if std::mem::take(&mut self.wary) {
            let pause = self.next_pause();
            sleep(pause).await;
        }
        self.owing.retain(|(_, left)| left.elapsed() < self.times.owing);
        let last = self.owing.iter().map(|(server, _)| server.clone()).collect();
        let mut race = Race::new(shared, hello, self.times.after(self.contests), self.avoid.as_deref(), last);
        let mut failures = 0;
        loop {
            match race.next().await {
                Found::Started(server) => self.under_way.push((server, Instant::now())),
                Found::Failed { server, again, refusal } => {
                    self.failed(server, refusal);
                    failures += 1;
                    // A round ends when each server has failed once.
                    let pause = if failures % race.size() == 0 { self.next_pause() } else { self.pause.mul_f64(0.75) };
                    race.resolve(again, pause);
                }
                Found::Session(mut established) => {
                    self.contests += u32::from(established.is_doubted);
                    // The loser of an earlier race may still arrive.
                    established.is_doubted = self.contests > 0;
                    return Ok(established);
                }
                Found::Expired => return Err(Expired),
            }
        }
    }

    fn failed(&mut self, server: String, refusal: Refusal) {
        self.under_way.retain(|(other, _)| *other != server);
        self.failures.retain(|other| other.server != server);
        self.failures.push(Failure { server, refusal });
    }

    /// The outcome of the tries so far: the servers tried, and each one's fault.
    pub(crate) fn error(&self, operation: &'static str, within: Duration) -> Error {
        let mut newest = self.failures.clone();
        for (server, since) in &self.under_way {
            // A server's earlier reply explains more than its present silence.
            if newest.iter().any(|other| other.server == *server) {
                continue;
            }
            let why = too_long("answer", since.elapsed());
            let refusal = Refusal { kind: ErrorKind::Unreachable, why, code: None };
            newest.push(Failure { server: server.clone(), refusal });
        }
        newest.sort_by(|a, b| a.server.cmp(&b.server));
        let all = || newest.iter().map(|failure| (failure.refusal.kind, failure.refusal.code));
        let same = all().next().filter(|first| all().all(|other| other == *first));
        let (kind, code) = same.unwrap_or((ErrorKind::Unreachable, None));
        let seconds = within.as_secs_f64();
        let failures: Vec<String> =
            newest.iter().map(|failure| format!("{} {}", failure.server, failure.refusal.why)).collect();
        let failures = if failures.is_empty() { "none answered".to_owned() } else { failures.join("; ") };
        let error = Error::new(kind, operation, format!("no server gave a session within {seconds:.1} s: {failures}"));
        if let Some(code) = code { error.with_code(code) } else { error }
    }
}

pub(crate) fn too_long(what: &str, within: Duration) -> String {
    format!("did not {what} within {:.1} s", within.as_secs_f64())
}

#[cfg(test)]
mod tests {
    use super::*;

    const TIMEOUT: Duration = Duration::from_secs(10);

    fn pauses(dialer: &mut Dialer, longest: &[u64]) {
        for longest in longest.iter().map(|ms| Duration::from_millis(*ms)) {
            let pause = dialer.next_pause();
            assert!(longest / 2 <= pause && pause <= longest, "{pause:?}, {longest:?}");
        }
    }

    #[test]
    fn a_client_with_a_session_dials_soon_and_one_without_ever_more_rarely() {
        let (addresses, times) = (Addresses::default(), Times::of_newcomer(TIMEOUT, None));
        let mut dialer = addresses.newcomer(times);
        pauses(&mut dialer, &[100, 200, 400, 800]);
        addresses.newcomer_ended(&dialer, false);
        dialer = addresses.newcomer(times);
        pauses(&mut dialer, &[1600, 3200, 5000, 5000]);
        addresses.newcomer_ended(&dialer, true);
        dialer.found("a", Times::of(TIMEOUT, None));
        pauses(&mut dialer, &[20, 40, 80, 160, 250, 250]);
        dialer.ended("a".to_owned(), TIMEOUT, false);
        pauses(&mut dialer, &[20, 40]);
        pauses(&mut addresses.newcomer(times), &[100]);
    }
}
