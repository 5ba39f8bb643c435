//! Finds a server that gives a session: names resolved anew each time, in random order, with pauses between the rounds.

use std::fmt;
use std::net::SocketAddr;
use std::time::Duration;

use tokio::time::{sleep, timeout};

use crate::config::Config;
use crate::connect_string::Server;
use crate::error::{Error, ErrorKind};
use crate::handshake::{Denial, Hello, Welcome, shake};
use crate::net::Stream;

/// A session on a connection, and to whom.
pub(crate) struct Established {
    pub(crate) stream: Box<dyn Stream>,
    pub(crate) server: String,
    pub(crate) welcome: Welcome,
}

/// The session is over, as a server said.
#[derive(Debug)]
pub(crate) struct Expired;

/// Why one server gave no session.
#[derive(Debug, Clone)]
struct Failure {
    server: String,
    kind: ErrorKind,
    why: String,
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.server, self.why)
    }
}

/// Looks for servers, and remembers why the last ones would not do.
#[derive(Debug)]
pub(crate) struct Dialer {
    /// Of the last round that was finished, and of the one that is not.
    failures: [Vec<Failure>; 2],
    /// The longest that one attempt may take.
    attempt: Duration,
    pause: Duration,
    longest_pause: Duration,
    /// The server that failed last is tried last.
    avoid: Option<String>,
    /// Whether to pause before the first attempt.
    wary: bool,
}

impl Dialer {
    const FIRST_PAUSE: Duration = Duration::from_millis(20);

    /// For a session with this timeout.
    pub(crate) fn new(session_timeout: Duration) -> Self {
        let mut dialer = Self {
            failures: [Vec::new(), Vec::new()],
            attempt: Duration::ZERO,
            pause: Self::FIRST_PAUSE,
            longest_pause: Duration::ZERO,
            avoid: None,
            wary: false,
        };
        dialer.found(session_timeout);
        dialer
    }

    /// A session was given, with this timeout.
    pub(crate) fn found(&mut self, session_timeout: Duration) {
        self.failures.iter_mut().for_each(Vec::clear);
        self.attempt = (session_timeout / 6).max(Duration::from_millis(100));
        self.longest_pause = (session_timeout / 12).clamp(Self::FIRST_PAUSE, Duration::from_secs(1));
    }

    /// The connection to `server` ended after it had lived for `lived`; one that hardly lived counts as a failed attempt.
    pub(crate) fn ended(&mut self, server: String, lived: Duration) {
        self.avoid = Some(server);
        self.wary = lived < 2 * self.attempt;
        if !self.wary {
            self.pause = Self::FIRST_PAUSE;
        }
    }

    /// Waits at random between half the pause and the whole of it, so that clients that lost one server do not come back as one; each pause
    /// is twice the last.
    async fn pause(&mut self) {
        let pause = self.pause.mul_f64(0.5 + fastrand::f64() / 2.0);
        self.pause = (self.pause * 2).min(self.longest_pause);
        sleep(pause).await;
    }

    /// Tries all servers, again and again.
    pub(crate) async fn dial(&mut self, config: &Config, hello: Hello<'_>) -> Result<Established, Expired> {
        if std::mem::take(&mut self.wary) {
            self.pause().await;
        }
        loop {
            let mut servers: Vec<&Server> = config.servers.iter().collect();
            fastrand::shuffle(&mut servers);
            servers.sort_by_key(|server| self.is_avoided(server));
            for server in servers {
                if let Some(established) = self.try_server(config, server, hello).await? {
                    return Ok(established);
                }
            }
            self.failures.swap(0, 1);
            self.failures[1].clear();
            self.pause().await;
        }
    }

    fn is_avoided(&self, server: &Server) -> bool {
        let server = server.to_string();
        // What is shown of a server begins with its name, and ends there or goes on with an address.
        let rest = self.avoid.as_ref().and_then(|avoid| avoid.strip_prefix(&server));
        rest.is_some_and(|rest| rest.is_empty() || rest.starts_with(' '))
    }

    async fn try_server(
        &mut self,
        config: &Config,
        server: &Server,
        hello: Hello<'_>,
    ) -> Result<Option<Established>, Expired> {
        let resolved = timeout(self.attempt, config.net.resolve(&server.host, server.port)).await;
        let mut addresses = match resolved {
            Ok(Ok(addresses)) if !addresses.is_empty() => addresses,
            Ok(Ok(_)) => return Ok(self.failed(server.to_string(), "has no address".to_owned())),
            Ok(Err(error)) => return Ok(self.failed(server.to_string(), format!("cannot be resolved: {error}"))),
            Err(_) => return Ok(self.failed(server.to_string(), self.too_long("be resolved"))),
        };
        fastrand::shuffle(&mut addresses);
        for address in addresses {
            let shown = shown(server, address);
            let attempt = attempt(config, server, address, hello);
            match timeout(self.attempt, attempt).await {
                Ok(Ok((stream, welcome))) => return Ok(Some(Established { stream, server: shown, welcome })),
                Ok(Err(Denial::Expired)) => return Err(Expired),
                Ok(Err(Denial::NotHere(kind, why))) => self.failures[1].push(Failure { server: shown, kind, why }),
                Err(_) => drop(self.failed(shown, self.too_long("answer"))),
            }
        }
        Ok(None)
    }

    fn too_long(&self, what: &str) -> String {
        format!("did not {what} within {:.1} s", self.attempt.as_secs_f64())
    }

    fn failed(&mut self, server: String, why: String) -> Option<Established> {
        self.failures[1].push(Failure { server, kind: ErrorKind::Unreachable, why });
        None
    }

    /// What came of trying so far: which servers were tried, and why each would not do.
    pub(crate) fn error(&self, operation: &'static str, within: Duration) -> Error {
        let [last, this] = &self.failures;
        // The newest word on each server.
        let older = last.iter().filter(|old| !this.iter().any(|new| new.server == old.server));
        let failures: Vec<&Failure> = this.iter().chain(older).collect();
        let kinds = || failures.iter().map(|failure| failure.kind);
        let kind = kinds().next().filter(|first| kinds().all(|kind| kind == *first)).unwrap_or(ErrorKind::Unreachable);
        let seconds = within.as_secs_f64();
        let told: Vec<String> = failures.iter().map(ToString::to_string).collect();
        let told = if told.is_empty() { "none answered".to_owned() } else { told.join("; ") };
        Error::new(kind, operation, format!("no server gave a session within {seconds:.1} s: {told}"))
    }
}

fn shown(server: &Server, address: SocketAddr) -> String {
    let (server, address) = (server.to_string(), address.to_string());
    if server == address { server } else { format!("{server} ({address})") }
}

async fn attempt(
    config: &Config,
    server: &Server,
    address: SocketAddr,
    hello: Hello<'_>,
) -> Result<(Box<dyn Stream>, Welcome), Denial> {
    let unreachable = |why: String| Denial::NotHere(ErrorKind::Unreachable, why);
    let stream = config.net.connect(address).await;
    let mut stream = stream.map_err(|error| unreachable(format!("cannot be reached: {error}")))?;
    if let Some(tls) = &config.tls {
        let wrapped = tls.wrap(stream, &server.host).await;
        stream = wrapped.map_err(|error| unreachable(error.message().to_owned()))?;
    }
    let welcome = shake(&mut *stream, hello, &*config.clock).await?;
    Ok((stream, welcome))
}
