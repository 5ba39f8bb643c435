//! The errors, and whether a request that failed can have taken effect.

use std::borrow::Cow;
use std::fmt;

/// The result of everything in this crate that can fail.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// The kind of an error.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ErrorKind {
    /// The configuration or the connect string is not valid; the message says what is allowed.
    Config,
    /// No server gave a session, or none was there while the request waited: the request was never written.
    Unreachable,
    /// The connection went after the request was written and before its answer came.
    ConnectionLoss,
    /// The request's deadline passed. [`Error::outcome_unknown`] says whether it had been written.
    Deadline,
    /// The node, or its parent, does not exist.
    NoNode,
    /// The node exists already.
    NodeExists,
    /// The node has children.
    NotEmpty,
    /// The node has another version.
    BadVersion,
    /// The access control list does not allow the operation.
    NoAuth,
    /// The server refused the credentials; the client has ended.
    AuthFailed,
    /// The session has ended, with every ephemeral node of it.
    SessionExpired,
    /// The session was continued on another connection.
    SessionMoved,
    /// The parent is ephemeral, and such nodes have no children.
    NoChildrenForEphemerals,
    /// The access control list is empty, malformed, or names credentials that the session does not have.
    InvalidAcl,
    /// A request is longer than [`Config::max_frame`](crate::Config::max_frame), or an answer than [`Config::max_answer`](crate::Config::max_answer).
    TooLarge,
    /// A quota on the server, or its limit of ephemeral nodes of one session, is exceeded.
    QuotaExceeded,
    /// The server has no quorum and serves reads only; this client refuses it.
    ReadOnlyServer,
    /// An argument is not valid, mostly a path.
    BadArguments,
    /// The server sent bytes that no ZooKeeper server sends.
    Protocol,
    /// The client was closed.
    Closed,
    /// The server has too many requests to accept this one.
    Throttled,
    /// The server or the ensemble failed or timed out internally; the request may have taken effect.
    ServerFailed,
    /// The server does not know this operation: the server is too old.
    Unimplemented,
    /// The session is local to one server, which makes no ephemeral nodes for it.
    LocalSession,
    /// Another error of the server, by its code.
    Other(i32),
}

/// An error: its kind, whether the request can have taken effect, and where it happened. Never holds credentials.
#[derive(Clone)]
pub struct Error(Box<Inner>);

#[derive(Clone)]
struct Inner {
    kind: ErrorKind,
    operation: &'static str,
    path: Option<String>,
    server: Option<String>,
    message: Cow<'static, str>,
    code: Option<i32>,
    number: Option<usize>,
    outcome_unknown: bool,
}

impl Error {
    pub(crate) fn new(kind: ErrorKind, operation: &'static str, message: impl Into<Cow<'static, str>>) -> Self {
        let message = message.into();
        let (path, server, code, number, outcome_unknown) = (None, None, None, None, false);
        Self(Box::new(Inner { kind, operation, path, server, message, code, number, outcome_unknown }))
    }

    pub(crate) fn on_path(mut self, path: impl Into<String>) -> Self {
        self.0.path = Some(path.into());
        self
    }

    pub(crate) fn on_server(mut self, server: impl Into<String>) -> Self {
        self.0.server = Some(server.into());
        self
    }

    pub(crate) fn with_code(mut self, code: i32) -> Self {
        self.0.code = Some(code);
        self
    }

    pub(crate) fn of_operation(mut self, number: usize) -> Self {
        self.0.number = Some(number);
        self
    }

    pub(crate) fn unknown(mut self) -> Self {
        self.0.outcome_unknown = true;
        self
    }

    pub(crate) fn in_operation(mut self, operation: &'static str) -> Self {
        self.0.operation = operation;
        self
    }

    /// The kind of this error.
    #[must_use]
    pub fn kind(&self) -> ErrorKind {
        self.0.kind
    }

    /// Whether the request may have taken effect, or may still take effect. `false` means: the request certainly did not and will not.
    #[must_use]
    pub fn outcome_unknown(&self) -> bool {
        self.0.outcome_unknown
    }

    /// The code that the server answered with, as ZooKeeper numbers its errors; `None` when the error is not a server's.
    #[must_use]
    pub fn code(&self) -> Option<i32> {
        self.0.code
    }

    /// Which operation of [`Client::multi`](crate::Client::multi) was refused, counted from 0; none of them was done.
    #[must_use]
    pub fn refused_operation(&self) -> Option<usize> {
        self.0.number
    }

    /// The operation that failed: `create`, `connect`, …
    #[must_use]
    pub fn operation(&self) -> &'static str {
        self.0.operation
    }

    /// The path that the operation was about, as the caller gave it.
    #[must_use]
    pub fn path(&self) -> Option<&str> {
        self.0.path.as_deref()
    }

    /// The server that the client was connected to, where one was involved.
    #[must_use]
    pub fn server(&self) -> Option<&str> {
        self.0.server.as_deref()
    }

    pub(crate) fn message(&self) -> &str {
        &self.0.message
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0.operation)?;
        if let Some(path) = &self.0.path {
            write!(f, " {path}")?;
        }
        if let Some(server) = &self.0.server {
            write!(f, " on {server}")?;
        }
        if let Some(number) = self.0.number {
            return write!(f, ": operation {number} (from 0) was refused, and none was done: {}", self.0.message);
        }
        write!(f, ": {}", self.0.message)
    }
}

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let outcome = if self.0.outcome_unknown { "outcome unknown" } else { "not applied" };
        write!(f, "{:?} ({outcome}): {self}", self.0.kind)
    }
}

impl std::error::Error for Error {}
