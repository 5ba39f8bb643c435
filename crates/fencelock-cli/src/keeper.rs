//! The keeper: a process in a session of its own that holds a lock for another one, and ends with it.
//!
//! `fencelock acquire` starts it, and `fencelock release` finds it by the owner of the grant: a process of the same user on this host that
//! was started as a keeper. There is no other record of it. Its stdin brings two bytes: the first confirms that `acquire` prints the token,
//! the second orders the release. A stdin that closes before the first byte releases the lock. No signal does: a service manager sends TERM
//! to the script and to its keeper, while the script still works.

use std::fs::{self, OpenOptions};
use std::io::{self, Read as _, Write as _};
use std::os::fd::OwnedFd;
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::Path;
use std::process::Command;
use std::thread;

use fencelock::inspect::Contender;
use fencelock::{Client, Name};
use nix::fcntl::OFlag;
use nix::unistd::{Pid, geteuid};
use rustix::process::{PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tokio::sync::oneshot;

use crate::die_with_parent::ourselves;
use crate::output::{Failure, Outcome, code};
use crate::processes::{parent_of, start_of, to_close};

const VERB: &str = "keep";

/// The keeper's message once it holds the lock, before the token.
pub(crate) const HELD: &str = "held";

/// A watched process, identified so that no other process can be mistaken for it.
pub(crate) struct Watched {
    pub(crate) pid: i32,
    pub(crate) start: u64,
    process: AsyncFd<OwnedFd>,
}

impl Watched {
    /// The process `pid` of this user; not the process 1.
    pub(crate) fn open(pid: i32) -> Outcome<Self> {
        let wrong = |what: &str| Failure::new(code::USAGE, format!("invalid value {pid} for --pid: {what}"));
        if pid <= 1 {
            return Err(wrong("a lock is kept for a process other than the first one, as in --pid $$"));
        }
        let process = rustix::process::Pid::from_raw(pid).ok_or_else(|| wrong("it is no process"))?;
        let process = pidfd_open(process, PidfdFlags::NONBLOCK).map_err(|errno| match errno {
            rustix::io::Errno::SRCH | rustix::io::Errno::INVAL => wrong("there is no such process"),
            errno => Failure::os(format_args!("cannot watch the process {pid}"), &errno.into()),
        })?;
        // Read after the descriptor is open, so that a new process with the same number is not mistaken for this one.
        let start = start_of(Pid::from_raw(pid)).ok_or_else(|| wrong("there is no such process, or no /proc"))?;
        if !is_ours(pid) {
            return Err(wrong("it is a process of another user"));
        }
        #[expect(deprecated, reason = "what comes in its place is unsafe, and a descriptor of our own is safe")]
        let process = AsyncFd::with_interest(process, Interest::READABLE)
            .map_err(|error| Failure::os("cannot watch a process", &error))?;
        Ok(Self { pid, start, process })
    }

    /// Completes when the process has ended.
    ///
    /// # Cancel safety
    /// May be dropped and asked again.
    pub(crate) async fn ended(&self) {
        if let Ok(mut ready) = self.process.readable().await {
            ready.retain_ready();
        }
    }

    /// Asks the keeper to end, unless it has ended already.
    pub(crate) fn end(&self) {
        let _ = pidfd_send_signal(self.process.get_ref(), Signal::TERM);
    }
}

fn is_ours(pid: i32) -> bool {
    fs::metadata(format!("/proc/{pid}")).is_ok_and(|process| process.uid() == geteuid().as_raw())
}

/// The process that becomes a keeper for `watched`, with the added options; [`named`] ends the options.
pub(crate) fn command(watched: &Watched) -> Outcome<Command> {
    let mut command = ourselves(VERB)?;
    command.arg(watched.pid.to_string()).arg(watched.start.to_string()).args(to_close());
    Ok(command)
}

/// The name of the lock, which comes last.
pub(crate) fn named(command: &mut Command, name: &Name) {
    command.arg("--").arg(name.as_str());
}

/// The name of the thread of the keeper that is `client`, in 15 bytes, which the kernel keeps. The name distinguishes this keeper from a
/// process that has the same number and the same host name in another container.
fn thread_name(client: u64) -> String {
    format!("keep {:010x}", client & 0xff_ffff_ffff)
}

pub(crate) struct Keeper {
    pub(crate) process: Watched,
    pub(crate) kept_for: i32,
}

impl Keeper {
    /// The keeper that is `holder` of `name`, if that is a keeper of this user on this host.
    pub(crate) fn of(client: &Client, name: &Name, holder: &Contender) -> Option<Self> {
        let owner = holder.owner.as_ref().filter(|owner| owner.host == client.owner().host)?;
        let process = Watched::open(owner.pid.try_into().ok()?).ok()?;
        let proc = Path::new("/proc").join(process.pid.to_string());
        let is_thread = |name: String| name.trim_end() == thread_name(owner.client);
        let mut threads = fs::read_dir(proc.join("task")).ok()?.flatten().map(|thread| thread.path().join("comm"));
        let is_client = threads.any(|name| fs::read_to_string(name).is_ok_and(is_thread));
        let command_line = fs::read(proc.join("cmdline")).ok()?;
        let arguments: Vec<_> = command_line.strip_suffix(b"\0")?.split(|byte| *byte == 0).collect();
        let ([_, verb, kept_for, ..], Some(last)) = (&arguments[..], arguments.last()) else { return None };
        let is_it = *verb == VERB.as_bytes() && *last == name.as_str().as_bytes();
        let kept_for = std::str::from_utf8(kept_for).ok()?.parse().ok()?;
        (is_it && is_client).then_some(Self { process, kept_for })
    }

    pub(crate) fn order_release(&self) -> io::Result<()> {
        let Watched { pid, start, .. } = self.process;
        let stdin = format!("/proc/{pid}/fd/0");
        let mut stdin = OpenOptions::new().write(true).custom_flags(OFlag::O_NONBLOCK.bits()).open(stdin)?;
        // The number may belong to another process by now.
        if start_of(Pid::from_raw(pid)) == Some(start) { stdin.write_all(b"r") } else { Ok(()) }
    }

    /// Whether the keeper holds the lock for this process or an ancestor.
    pub(crate) fn is_around_us(&self) -> bool {
        std::iter::successors(Some(Pid::this()), |process| parent_of(*process)).any(|pid| pid.as_raw() == self.kept_for)
    }
}

/// Whether the starter confirmed (`false` if the starter is gone), and the order to release.
pub(crate) type Orders = (oneshot::Receiver<bool>, oneshot::Receiver<()>);

/// Reads the orders of the keeper that is `client`, on a thread of its own.
pub(crate) fn orders(client: u64) -> Outcome<Orders> {
    let ((confirm, confirmed), (order, ordered)) = (oneshot::channel(), oneshot::channel());
    let read = move || {
        let mut stdin = io::stdin().lock();
        let is_confirmed = matches!(stdin.read(&mut [0]), Ok(1));
        // A writer of our own keeps the pipe open for `release`.
        let _writer = is_confirmed.then(|| OpenOptions::new().write(true).open("/proc/self/fd/0"));
        let _ = confirm.send(is_confirmed);
        if is_confirmed && matches!(stdin.read(&mut [0]), Ok(1)) {
            let _ = order.send(());
        }
    };
    let started = thread::Builder::new().name(thread_name(client)).spawn(read);
    started.map_err(|error| Failure::os("cannot start a thread", &error))?;
    Ok((confirmed, ordered))
}

pub(crate) fn say_held(token: Option<&str>) -> io::Result<()> {
    let mut stdout = io::stdout().lock();
    writeln!(stdout, "{HELD} {}", token.unwrap_or_default())?;
    stdout.flush()
}
