//! Scripts, and calls of them. No I/O: a [`Connection`](super::connection::Connection) sends them.

use std::fmt;

use redis::{Cmd, Value};

use crate::error::Result;

/// A script, which the server keeps by its digest.
pub(crate) struct Script {
    /// The name of its file.
    pub(crate) name: &'static str,
    /// The text of the script.
    source: String,
    digest: String,
}

impl Script {
    pub(crate) fn new(name: &'static str, source: impl Into<String>) -> Self {
        let source = source.into();
        Self { name, digest: redis::Script::new(&source).get_hash().to_owned(), source }
    }

    /// Loads the script into the server. Repeatable.
    pub(crate) fn load(&self) -> Cmd {
        let mut command = redis::cmd("SCRIPT");
        command.arg("LOAD").arg(&self.source);
        command
    }
}

impl fmt::Debug for Script {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.name, self.digest)
    }
}

/// A script with its keys and arguments, and the reader of its answer.
#[derive(Clone)]
pub(crate) struct Call<R> {
    /// The script, to load after a `NOSCRIPT`.
    pub(crate) script: &'static Script,
    /// Calls the script by its digest. A server without the script replies `NOSCRIPT`, and changes nothing.
    pub(crate) command: Cmd,
    /// Reads the answer. Another answer than the script's is an error of the kind `Layout`.
    pub(crate) read: fn(Value) -> Result<R>,
}

impl<R> Call<R> {
    pub(crate) fn new(script: &'static Script, keys: &[impl AsRef<str>], read: fn(Value) -> Result<R>) -> Self {
        let mut command = Cmd::with_capacity(keys.len() + 8, 256);
        command.arg("EVALSHA").arg(script.digest.as_str()).arg(keys.len());
        for key in keys {
            command.arg(key.as_ref());
        }
        Self { script, command, read }
    }

    pub(crate) fn arg(mut self, argument: impl redis::ToRedisArgs) -> Self {
        self.command.arg(argument);
        self
    }
}

impl<R> fmt::Debug for Call<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "call of {}", self.script.name)
    }
}
