//! A driver process, as its parent sees it.

use std::process::{Command, Stdio};
use std::sync::mpsc::RecvTimeoutError;
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use fencelock_lab::Process;
use fencelock_testbed::process;

/// How long a driver may take to start, or to do an order that has to wait for nothing.
const PATIENCE: Duration = Duration::from_secs(60);

/// The answer of a driver to an order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Answer {
    /// Done; the words that follow.
    Done(String),
    /// Another client has the lock.
    Busy,
    /// Why not.
    Failed(String),
}

/// A process. Dropped, it is killed.
#[derive(Debug)]
pub(crate) struct Driver {
    name: &'static str,
    process: Process,
    is_ready: bool,
    is_alive: bool,
}

impl Driver {
    /// Starts it, without waiting until it is ready.
    pub(crate) fn start(name: &'static str, mut command: Command) -> Result<Self> {
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let child = process::spawn(command).with_context(|| format!("cannot start the driver of {name}"))?;
        Ok(Self { name, process: Process::of(child), is_ready: false, is_alive: true })
    }

    /// Waits until it is connected.
    pub(crate) fn ready(mut self) -> Result<Self> {
        if self.is_ready {
            return Ok(self);
        }
        match self.line(PATIENCE)?.as_deref() {
            Some("ready") => {
                self.is_ready = true;
                Ok(self)
            }
            Some(other) => bail!("the driver of {} said {other:?} for a start", self.name),
            None => bail!("the driver of {} is not ready after {} s", self.name, PATIENCE.as_secs()),
        }
    }

    /// Sets the name of the driver in errors.
    pub(crate) fn rename(&mut self, name: &'static str) {
        self.name = name;
    }

    /// Whether the driver was not killed.
    pub(crate) fn is_alive(&self) -> bool {
        self.is_alive
    }

    /// Sends an order, without waiting for the answer.
    pub(crate) fn send(&mut self, order: &str) -> Result<()> {
        self.process.order(order).with_context(|| format!("{order}: the driver of {} is gone", self.name))
    }

    /// The next answer, if it comes in time.
    pub(crate) fn answer(&self, within: Duration) -> Result<Option<Answer>> {
        Ok(self.line(within)?.map(|line| match line.split_once(' ') {
            Some(("done", rest)) => Answer::Done(rest.to_owned()),
            Some(("failed", why)) => Answer::Failed(why.to_owned()),
            _ if line == "busy" => Answer::Busy,
            _ => Answer::Done(String::new()),
        }))
    }

    /// The words of the next answer, which must come, and well.
    pub(crate) fn done(&self) -> Result<String> {
        match self.answer(PATIENCE)? {
            Some(Answer::Done(words)) => Ok(words),
            Some(Answer::Busy) => bail!("{}: busy", self.name),
            Some(Answer::Failed(why)) => bail!("{}: {why}", self.name),
            None => bail!("{} says nothing for {} s", self.name, PATIENCE.as_secs()),
        }
    }

    /// Sends an order, and waits until it is done.
    pub(crate) fn ask(&mut self, order: &str) -> Result<String> {
        self.send(order)?;
        self.done().with_context(|| format!("the order `{order}`"))
    }

    /// Kills it, as `kill -9` does.
    pub(crate) fn kill(&mut self) -> Result<()> {
        self.is_alive = false;
        self.process.kill().context("cannot kill a driver")
    }

    fn line(&self, within: Duration) -> Result<Option<String>> {
        match self.process.says(within) {
            Ok(line) => Ok(Some(line)),
            Err(RecvTimeoutError::Timeout) => Ok(None),
            Err(RecvTimeoutError::Disconnected) => bail!("the driver of {} is gone", self.name),
        }
    }
}

/// The value of `key=value` in an answer.
pub(crate) fn value<'a>(words: &'a str, key: &str) -> Result<&'a str> {
    let found = words.split(' ').find_map(|word| word.strip_prefix(key)?.strip_prefix('='));
    found.with_context(|| format!("no {key}= in {words:?}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A driver that answers each order with itself.
    fn echo() -> Driver {
        let mut command = process::bound("sh");
        command.args(["-c", "echo ready; exec cat"]);
        Driver::start("echo", command).unwrap().ready().unwrap()
    }

    #[test]
    fn answers_are_distinguished() {
        let mut driver = echo();
        assert_eq!(driver.ask("done handle=3 at=5").unwrap(), "handle=3 at=5");
        assert_eq!(driver.ask("done").unwrap(), "");
        driver.send("busy").unwrap();
        assert_eq!(driver.answer(PATIENCE).unwrap(), Some(Answer::Busy));
        assert!(format!("{:#}", driver.ask("failed as told").unwrap_err()).contains("as told"));
        assert_eq!(driver.answer(Duration::ZERO).unwrap(), None);
        assert_eq!(value("handle=3 at=5", "at").unwrap(), "5");
    }

    #[test]
    fn a_driver_that_is_gone_is_distinguished_from_a_slow_one() {
        let mut driver = echo();
        driver.kill().unwrap();
        assert!(driver.answer(PATIENCE).is_err());
    }
}
