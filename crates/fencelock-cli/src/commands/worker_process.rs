//! A process that works for `bench` or `verify`: it says when it is connected, and begins at a word.

use std::io::{self, BufRead as _, BufReader, Write as _};
use std::process::{Child, ChildStdin, ChildStdout, Command, ExitStatus, Stdio};

use nix::unistd::Pid;

use crate::job::ended_early;
use crate::output::{Failure, Outcome};

/// A worker. Killed when it is dropped before its end.
pub(super) struct WorkerProcess {
    child: Child,
    stdin: Option<ChildStdin>,
    answers: BufReader<ChildStdout>,
}

impl WorkerProcess {
    pub(super) fn start(command: &mut Command) -> Outcome<Self> {
        let failed = |error| Failure::os("cannot start a worker", &error);
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().map_err(failed)?;
        let stdin = child.stdin.take();
        match child.stdout.take() {
            Some(stdout) => Ok(Self { child, stdin, answers: BufReader::new(stdout) }),
            None => Err(failed(io::Error::other("no pipe"))),
        }
    }

    pub(super) fn pid(&self) -> Pid {
        Pid::from_raw(self.child.id().cast_signed())
    }

    pub(super) fn ready(&mut self) -> Outcome<()> {
        let mut answer = String::new();
        self.answers.read_line(&mut answer)?;
        if answer == "ready\n" { Ok(()) } else { Err(ended_early("a worker", self.end()?)) }
    }

    pub(super) fn begin(&mut self) -> Outcome<()> {
        let begun = self.stdin.as_mut().map_or(Ok(()), |stdin| stdin.write_all(b"go\n"));
        begun.map_err(|error| Failure::os("a worker ended early", &error))
    }

    /// Closes its stdin, which ends a worker of `verify`.
    pub(super) fn dismiss(&mut self) {
        self.stdin = None;
    }

    pub(super) fn ended(&mut self) -> Outcome<Option<ExitStatus>> {
        self.child.try_wait().map_err(|error| Failure::os("cannot wait for a worker", &error))
    }

    pub(super) fn end(&mut self) -> Outcome<ExitStatus> {
        self.child.wait().map_err(|error| Failure::os("cannot wait for a worker", &error))
    }
}

impl Drop for WorkerProcess {
    fn drop(&mut self) {
        if let Ok(None) = self.child.try_wait() {
            let _ = self.child.kill();
            let _ = self.child.wait();
        }
    }
}
