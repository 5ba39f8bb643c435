//! Processes that never outlive this one.

use std::ffi::OsStr;
use std::io;
use std::process::{Child, Command, ExitStatus};
use std::sync::mpsc::{Sender, channel};
use std::sync::{Mutex, OnceLock, PoisonError};
use std::thread;

use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process, waitid};

type Order = (Command, Sender<io::Result<Child>>);

/// A command that the kernel kills with this process, to be run by [`spawn`].
#[must_use]
pub fn bound(program: impl AsRef<OsStr>) -> Command {
    let mut command = Command::new("setpriv");
    command.args(["--pdeathsig", "KILL", "--"]).arg(program);
    command
}

/// Runs `command` from a thread that lives as long as this process: the kernel sends the signal of [`bound`] when the
/// *thread* that started the child ends, and a test's thread ends early.
pub fn spawn(command: Command) -> io::Result<Child> {
    static KEEPER: OnceLock<Mutex<Sender<Order>>> = OnceLock::new();
    let keeper = KEEPER.get_or_init(|| {
        let (orders, inbox) = channel::<Order>();
        thread::spawn(move || {
            for (mut command, answer) in inbox {
                // The caller waits for it.
                let _ = answer.send(command.spawn());
            }
        });
        Mutex::new(orders)
    });
    let (answer, answered) = channel();
    let gone = || io::Error::other("the thread that starts processes is gone");
    keeper.lock().unwrap_or_else(PoisonError::into_inner).send((command, answer)).map_err(|_| gone())?;
    answered.recv().map_err(|_| gone())?
}

/// A process of ours: killed when it is dropped.
#[derive(Debug)]
pub struct Process(Child);

impl Process {
    /// Starts `command`; see [`spawn`].
    pub fn start(command: Command) -> io::Result<Self> {
        spawn(command).map(Self)
    }

    /// The process id.
    #[must_use]
    pub fn id(&self) -> u32 {
        self.0.id()
    }

    /// The process's exit status, if it has ended.
    pub fn ended(&mut self) -> io::Result<Option<ExitStatus>> {
        self.0.try_wait()
    }

    /// Stops the process, as SIGSTOP does, and returns once it is stopped.
    pub fn pause(&mut self) -> io::Result<()> {
        let pid = Pid::from_child(&self.0);
        kill_process(pid, Signal::STOP)?;
        waitid(WaitId::Pid(pid), WaitIdOptions::STOPPED | WaitIdOptions::EXITED | WaitIdOptions::NOWAIT)?;
        Ok(())
    }

    /// Continues the stopped process.
    pub fn resume(&mut self) -> io::Result<()> {
        Ok(kill_process(Pid::from_child(&self.0), Signal::CONT)?)
    }

    /// Kills the process, as SIGKILL does, and returns once it is gone. Repeatable.
    pub fn kill(&mut self) -> io::Result<()> {
        self.0.kill()?;
        self.0.wait().map(drop)
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // The kernel kills the remaining process when this process ends.
        let _ = self.kill();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{PATIENCE, wait_until};

    fn state(id: u32) -> Option<char> {
        let stat = std::fs::read_to_string(format!("/proc/{id}/stat")).ok()?;
        stat.rsplit_once(") ")?.1.chars().next()
    }

    #[test]
    fn a_process_outlives_the_thread_that_started_it_and_not_its_handle() {
        let start = || {
            let mut command = bound("sleep");
            command.arg("600");
            Process::start(command).unwrap()
        };
        let mut process = thread::spawn(start).join().unwrap();
        process.pause().unwrap();
        assert_eq!(state(process.id()), Some('T'));
        process.resume().unwrap();
        assert!(wait_until(PATIENCE, || state(process.id()) == Some('S')));
        assert!(process.ended().unwrap().is_none());
        let id = process.id();
        drop(process);
        assert_eq!(state(id), None);
    }
}
