//! The configuration of a client before it connects.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use tokio::runtime::Handle;

use crate::clock::{Clock, SystemClock};
use crate::connect_string::{self, Server};
use crate::dial::Addresses;
use crate::error::{Error, ErrorKind, Result};
use crate::net::{BoxFuture, Net, Tcp};
use crate::tls::Tls;

/// The servers, and how to connect to them. `Debug` shows no credentials.
#[derive(Clone)]
pub struct Config {
    pub(crate) servers: Vec<Server>,
    pub(crate) chroot: String,
    pub(crate) session_timeout: Duration,
    pub(crate) request_deadline: Option<Duration>,
    pub(crate) connect_deadline: Option<Duration>,
    pub(crate) auth: Vec<Auth>,
    pub(crate) asked: Vec<(String, AskCredentials)>,
    pub(crate) tls: Option<Tls>,
    pub(crate) keep_alive: bool,
    pub(crate) max_frame: usize,
    pub(crate) max_answer: usize,
    pub(crate) patience: Option<Duration>,
    pub(crate) attempt: Option<Duration>,
    pub(crate) runtime: Option<Handle>,
    pub(crate) addresses: Arc<Addresses>,
    pub(crate) net: Arc<dyn Net>,
    pub(crate) clock: Arc<dyn Clock>,
}

#[derive(Clone)]
pub(crate) struct Auth {
    pub(crate) scheme: String,
    pub(crate) credentials: Vec<u8>,
}

impl fmt::Debug for Auth {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.scheme)
    }
}

/// Returns the present credentials of a scheme, or why there are none: for [`Config::auth_asked`].
pub type AskCredentials = Arc<dyn Fn() -> BoxFuture<'static, Result<Vec<u8>, String>> + Send + Sync>;

/// A shorter silence may be a busy machine's.
pub(crate) const SHORTEST_PATIENCE: Duration = Duration::from_millis(50);

impl Config {
    /// The session timeout requested by default.
    pub const DEFAULT_SESSION_TIMEOUT: Duration = Duration::from_secs(10);

    /// The default limit of a frame, in bytes: the servers' own unless their `jute.maxbuffer` is set.
    pub const DEFAULT_MAX_FRAME: usize = 0xf_ffff;

    /// The default limit of an answer, in bytes: 64 MiB, about a million names of children.
    pub const DEFAULT_MAX_ANSWER: usize = 64 << 20;

    /// To the servers of `connect`: `host[:port][,host[:port]]…[/chroot]`, an IPv6 address in brackets, the port 2181 unless given. With a
    /// chroot, every path given to and received from the client is relative to it; the chroot has to exist.
    ///
    /// # Errors
    /// [`ErrorKind::Config`] says what is wrong and what is allowed.
    pub fn new(connect: &str) -> Result<Self> {
        let (servers, chroot) = connect_string::parse(connect)?;
        Ok(Self {
            servers,
            chroot,
            session_timeout: Self::DEFAULT_SESSION_TIMEOUT,
            request_deadline: None,
            connect_deadline: None,
            auth: Vec::new(),
            asked: Vec::new(),
            tls: None,
            keep_alive: true,
            max_frame: Self::DEFAULT_MAX_FRAME,
            max_answer: Self::DEFAULT_MAX_ANSWER,
            patience: None,
            attempt: None,
            runtime: None,
            addresses: Arc::default(),
            net: Arc::new(Tcp),
            clock: Arc::new(SystemClock),
        })
    }

    /// The requested session timeout; 1 ms to 2^31 ms, 10 s by default. The server clamps it (by default to 2 … 20 of its ticks):
    /// [`Client::session`](crate::Client::session) says what was granted.
    #[must_use]
    pub fn session_timeout(mut self, timeout: Duration) -> Self {
        self.session_timeout = timeout;
        self
    }

    /// How long a request may take, from the call to its answer, waiting for a connection included; up to 2^31 ms, a third of the session
    /// timeout by default.
    #[must_use]
    pub fn request_deadline(mut self, deadline: Duration) -> Self {
        self.request_deadline = Some(deadline);
        self
    }

    /// How long [`Client::connect`](crate::Client::connect) tries; up to 2^31 ms, the session timeout by default.
    #[must_use]
    pub fn connect_deadline(mut self, deadline: Duration) -> Self {
        self.connect_deadline = Some(deadline);
        self
    }

    /// Credentials, sent at once and again on every reconnect; `digest` takes `user:password`. May be called several times. They are sent as
    /// they are: without [`Config::tls`] the network sees them.
    #[must_use]
    pub fn auth(mut self, scheme: impl Into<String>, credentials: impl Into<Vec<u8>>) -> Self {
        self.auth.push(Auth { scheme: scheme.into(), credentials: credentials.into() });
        self
    }

    /// As [`Config::auth`], with credentials requested for each connection: the new credentials count from that connection
    /// onwards. If asking fails, no session is opened, and an existing one keeps the last credentials.
    #[must_use]
    pub fn auth_asked(mut self, scheme: impl Into<String>, ask: AskCredentials) -> Self {
        self.asked.push((scheme.into(), ask));
        self
    }

    /// Encrypts all connections, and verifies the servers; off by default.
    #[must_use]
    pub fn tls(mut self, tls: Tls) -> Self {
        self.tls = Some(tls);
        self
    }

    /// Whether a connection that was idle for a third of the session timeout sends a ping by itself; yes by default. Without, the session
    /// lives as long as requests are made, [`Client::confirm`](crate::Client::confirm) among them, and no longer than its timeout without.
    #[must_use]
    pub fn keep_alive(mut self, keep_alive: bool) -> Self {
        self.keep_alive = keep_alive;
        self
    }

    /// The longest frame to send, in bytes, its length field aside; 1 KiB to 2^31 − 1, 1 MiB − 1 by default. To be raised together with
    /// `jute.maxbuffer` of the servers, which close the connection on longer ones.
    #[must_use]
    pub fn max_frame(mut self, bytes: usize) -> Self {
        self.max_frame = bytes;
        self
    }

    /// The longest answer to take, in bytes, its length field aside; 1 KiB to 2^31 − 1, 64 MiB by default. Servers send what they are asked
    /// for, however long it is. An answer beyond this is passed over as it comes, and is [`ErrorKind::TooLarge`].
    #[must_use]
    pub fn max_answer(mut self, bytes: usize) -> Self {
        self.max_answer = bytes;
        self
    }

    /// How long a server that owes an answer may be silent before another one is dialled; at least 50 ms and less than the session timeout,
    /// an eighth of it by default, a third where the only server is given by its IP address. Together with the time that dialling takes it
    /// must fit into what is left of certainty when a renewal is overdue: a client that confirms every sixth of the timeout has a sixth
    /// left for both. A server that sends something and no whole answer is left after the longer of this and [`Config::request_deadline`].
    #[must_use]
    pub fn patience(mut self, patience: Duration) -> Self {
        self.patience = Some(patience);
        self
    }

    /// How long one server may take to be connected to and to answer the first frame; 1 ms to the session timeout, after which there would be
    /// nothing to continue, and a third of it by default. The next server is dialled a moment after the last, a fiftieth of the session timeout and
    /// 200 ms at most, whether that has answered or not. A new session that comes later than this is closed.
    #[must_use]
    pub fn attempt(mut self, attempt: Duration) -> Self {
        self.attempt = Some(attempt);
        self
    }

    /// Where the tasks of the session run; by default on the runtime that calls [`Client::connect`](crate::Client::connect).
    #[must_use]
    pub fn runtime(mut self, runtime: Handle) -> Self {
        self.runtime = Some(runtime);
        self
    }

    /// How names are resolved and connections made; TCP by default.
    #[must_use]
    pub fn net(mut self, net: Arc<dyn Net>) -> Self {
        self.net = net;
        self
    }

    /// The clock of [`Client::confirmed`](crate::Client::confirmed); [`SystemClock`] by default.
    #[must_use]
    pub fn clock(mut self, clock: Arc<dyn Clock>) -> Self {
        self.clock = clock;
        self
    }

    /// All credentials as they are now.
    pub(crate) async fn credentials(&self) -> Result<Vec<Auth>> {
        let mut all = self.auth.clone();
        for (scheme, ask) in &self.asked {
            let failed =
                |why| Error::new(ErrorKind::Config, "connect", format!("the credentials cannot be had: {why}"));
            all.push(Auth { scheme: scheme.clone(), credentials: ask().await.map_err(failed)? });
        }
        Ok(all)
    }

    pub(crate) fn request_deadline_or_default(&self) -> Duration {
        self.request_deadline.unwrap_or(self.session_timeout / 3)
    }

    pub(crate) fn connect_deadline_or_default(&self) -> Duration {
        self.connect_deadline.unwrap_or(self.session_timeout)
    }

    /// The relations between the settings.
    pub(crate) fn check(&self) -> Result<()> {
        const SMALLEST_FRAME: usize = 1024;
        let longest = Duration::from_millis(i32::MAX.unsigned_abs().into());
        let refuse = |message: String| Err(Error::new(ErrorKind::Config, "connect", message));
        if self.session_timeout < Duration::from_millis(1) || self.session_timeout > longest {
            return refuse(format!("the session timeout {:?} is not from 1 ms to 2^31 ms", self.session_timeout));
        }
        for deadline in [self.request_deadline_or_default(), self.connect_deadline_or_default()] {
            if deadline.is_zero() || deadline > longest {
                return refuse(format!("the deadline {deadline:?} is not from 1 ns to 2^31 ms"));
            }
        }
        let timeout = self.session_timeout;
        if let Some(patience) = self.patience.filter(|given| *given < SHORTEST_PATIENCE || *given >= timeout) {
            let allowed = "50 ms and less than the session timeout";
            return refuse(format!("the patience {patience:?} is not at least {allowed}, which is {timeout:?}"));
        }
        if let Some(attempt) = self.attempt.filter(|given| *given < Duration::from_millis(1) || *given > timeout) {
            return refuse(format!("the attempt {attempt:?} is not from 1 ms to the session timeout, {timeout:?}"));
        }
        for limit in [self.max_frame, self.max_answer] {
            if limit < SMALLEST_FRAME || i32::try_from(limit).is_err() {
                return refuse(format!("the frame limit {limit} is not from {SMALLEST_FRAME} to 2^31 - 1 bytes"));
            }
        }
        Ok(())
    }
}

impl fmt::Debug for Config {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let servers: Vec<_> = self.servers.iter().map(ToString::to_string).collect();
        let given = self.auth.iter().map(|auth| &auth.scheme);
        let schemes: Vec<_> = given.chain(self.asked.iter().map(|(scheme, _)| scheme)).collect();
        f.debug_struct("Config")
            .field("servers", &servers)
            .field("chroot", &self.chroot)
            .field("session_timeout", &self.session_timeout)
            .field("request_deadline", &self.request_deadline_or_default())
            .field("connect_deadline", &self.connect_deadline_or_default())
            .field("auth", &schemes)
            .field("tls", &self.tls)
            .field("keep_alive", &self.keep_alive)
            .field("max_frame", &self.max_frame)
            .field("max_answer", &self.max_answer)
            .field("patience", &self.patience)
            .field("attempt", &self.attempt)
            .field("net", &self.net)
            .field("clock", &self.clock)
            .finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_credentials_are_shown() {
        let config = Config::new("a").unwrap().auth("digest", "user:canary");
        assert!(!format!("{config:?}").contains("canary"));
    }

    #[test]
    fn settings_out_of_range_are_refused() {
        let config = || Config::new("a").unwrap();
        assert!(config().check().is_ok());
        let longest = config().patience(Duration::from_millis(9_999)).attempt(Config::DEFAULT_SESSION_TIMEOUT);
        assert!(longest.check().is_ok());
        assert!(config().session_timeout(Duration::from_millis(1)).check().is_ok(), "what is not given fits");
        for wrong in [
            config().session_timeout(Duration::ZERO),
            config().session_timeout(Duration::from_secs(1 << 40)),
            config().request_deadline(Duration::ZERO),
            config().connect_deadline(Duration::ZERO),
            config().request_deadline(Duration::MAX),
            config().connect_deadline(Duration::MAX),
            config().max_frame(10),
            config().max_frame(1 << 31),
            config().max_answer(10),
            config().patience(Duration::from_millis(49)),
            config().patience(Config::DEFAULT_SESSION_TIMEOUT),
            config().attempt(Duration::ZERO),
            config().attempt(Config::DEFAULT_SESSION_TIMEOUT + Duration::from_nanos(1)),
        ] {
            assert_eq!(wrong.check().unwrap_err().kind(), ErrorKind::Config, "{wrong:?}");
        }
    }
}
