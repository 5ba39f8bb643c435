//! A process of a crew: started, ordered over its stdin, stopped, continued and killed.

use std::io::{self, BufRead as _, BufReader, Write as _};
use std::process::{Child, ChildStdin, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::thread;
use std::time::Duration;

use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process, waitid};

/// A process. Killed when it is dropped before its end.
#[derive(Debug)]
pub struct Process {
    child: Child,
    orders: Option<ChildStdin>,
    said: Receiver<String>,
}

impl Process {
    /// Starts `command` with a pipe for its stdin and one for its stdout.
    pub fn start(command: &mut Command) -> io::Result<Self> {
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().map(Self::of)
    }

    /// A process that was started elsewhere, by its pipes.
    pub fn of(mut child: Child) -> Self {
        let (orders, stdout) = (child.stdin.take(), child.stdout.take());
        let (line, said) = channel();
        if let Some(stdout) = stdout {
            let mut lines = BufReader::new(stdout).lines().map_while(Result::ok);
            thread::spawn(move || lines.try_for_each(|said| line.send(said)));
        }
        Self { child, orders, said }
    }

    /// The process id.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// The next line of the process's stdout. `Disconnected` says that no line follows.
    pub fn says(&self, patience: Duration) -> Result<String, RecvTimeoutError> {
        self.said.recv_timeout(patience)
    }

    /// Waits for the line `ready`. Returns how the process ended, if it did so before.
    pub fn ready(&mut self) -> io::Result<Option<ExitStatus>> {
        let is_ready = self.says(Duration::MAX).is_ok_and(|line| line == "ready");
        if is_ready { Ok(None) } else { self.wait().map(Some) }
    }

    /// Sends a line. Fails when the process has closed its stdin.
    pub fn order(&mut self, line: &str) -> io::Result<()> {
        self.orders.as_mut().map_or(Ok(()), |orders| orders.write_all(format!("{line}\n").as_bytes()))
    }

    /// Closes the stdin of the process.
    pub fn dismiss(&mut self) {
        self.orders = None;
    }

    /// The process's exit status, if it has ended.
    pub fn ended(&mut self) -> io::Result<Option<ExitStatus>> {
        self.child.try_wait()
    }

    /// Waits for the end of the process.
    pub fn wait(&mut self) -> io::Result<ExitStatus> {
        self.child.wait()
    }

    /// Kills the process, as SIGKILL does, and returns once it is dead. Repeatable.
    pub fn kill(&mut self) -> io::Result<()> {
        self.child.kill()?;
        self.child.wait().map(drop)
    }

    /// Stops the process, as SIGSTOP does, and returns once it is stopped.
    pub fn stop(&self) -> io::Result<()> {
        let pid = Pid::from_child(&self.child);
        kill_process(pid, Signal::STOP)?;
        waitid(WaitId::Pid(pid), WaitIdOptions::STOPPED | WaitIdOptions::EXITED | WaitIdOptions::NOWAIT)?;
        Ok(())
    }

    /// Continues the process.
    pub fn resume(&self) -> io::Result<()> {
        Ok(kill_process(Pid::from_child(&self.child), Signal::CONT)?)
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // A process that cannot be killed has ended.
        let _ = self.kill();
    }
}
