//! Child processes: run in the root of the repository, their output shown as it comes.

use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, Read as _, Seek as _};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::sync::{Mutex, OnceLock, PoisonError};
use std::time::Duration;

use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process_group, setpriority_process, waitid};
use tokio::signal::unix::{SignalKind, signal};

/// Fine, or the sentence that says what was not.
pub(crate) type Result<T = ()> = std::result::Result<T, String>;

/// The root of the repository.
pub(crate) fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap_or(Path::new("."))
}

/// A command to be run in the root of the repository.
pub(crate) fn command(program: impl AsRef<OsStr>) -> Command {
    let mut command = Command::new(program);
    command.current_dir(root());
    command
}

/// The cargo that runs us, with `args`.
pub(crate) fn cargo(args: &[&str]) -> Command {
    let mut command = command(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.args(args);
    command
}

/// Says what is run, runs it, and fails unless it succeeded.
pub(crate) fn run(command: &mut Command) -> Result {
    let shown = show(command);
    println!("$ {shown}");
    judge(&shown, finish(command, Priority::Same, NO_LIMIT).map(|ended| ended.status))
}

/// Runs the command and returns what it prints; what it says on standard error is shown as it comes.
pub(crate) fn output(command: &mut Command) -> Result<String> {
    let shown = show(command);
    println!("$ {shown}");
    let fault = |error| format!("`{shown}` cannot be run: {error}");
    let output = Output::new().map_err(fault)?;
    command.stdin(Stdio::null()).stdout(output.writer().map_err(fault)?);
    judge(&shown, finish(command, Priority::Same, NO_LIMIT).map(|ended| ended.status))?;
    output.read().map_err(fault)
}

fn judge(shown: &str, ended: io::Result<ExitStatus>) -> Result {
    match ended {
        Ok(status) if status.success() => Ok(()),
        Ok(status) => Err(format!("`{shown}` failed: {status}")),
        Err(error) => Err(format!("`{shown}` cannot be run: {error}")),
    }
}

/// Where a command writes its output, for us to read it when the command has ended.
///
/// A file and not a pipe: a process that outlives the command and kept a pipe open would keep us reading.
pub(crate) struct Output(File);

impl Output {
    pub(crate) fn new() -> io::Result<Self> {
        static NUMBER: AtomicU64 = AtomicU64::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let path = std::env::temp_dir().join(format!("fencelock-xtask-{}-{number}", std::process::id()));
        let file = File::options().read(true).append(true).create_new(true).open(&path)?;
        // It lives as long as somebody has it open.
        std::fs::remove_file(&path)?;
        Ok(Self(file))
    }

    /// A standard output or error for the command. Several share one place in the file, so that lines stay in their order.
    pub(crate) fn writer(&self) -> io::Result<File> {
        self.0.try_clone()
    }

    /// Everything that was written.
    pub(crate) fn read(mut self) -> io::Result<String> {
        let mut bytes = Vec::new();
        self.0.rewind()?;
        self.0.read_to_end(&mut bytes)?;
        Ok(String::from_utf8_lossy(&bytes).into_owned())
    }
}

/// What a command may take of the processors when others want them too.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Priority {
    Same,
    YieldsToOthers,
}

/// About a tenth of what a process without it gets.
const NICE: i32 = 10;

/// A command that has ended.
pub(crate) struct Ended {
    pub(crate) status: ExitStatus,
    /// The processor time of the command and of all that it waited for.
    pub(crate) cpu: Duration,
}

/// What ends us is passed on to these: processes that we started, each with all that it started itself.
static RUNNING: Mutex<Vec<Pid>> = Mutex::new(Vec::new());

/// A month.
const NO_LIMIT: Duration = Duration::from_secs(30 * 24 * 3600);

/// Runs the command as a process group, which does not outlive us when we are interrupted or told to end. Otherwise `kill`
/// would end us alone, and leave what cargo started behind. Killed after `limit`.
pub(crate) fn finish(command: &mut Command, priority: Priority, limit: Duration) -> io::Result<Ended> {
    static RELAY: OnceLock<()> = OnceLock::new();
    RELAY.get_or_init(|| drop(std::thread::spawn(relay)));
    let running = || RUNNING.lock().unwrap_or_else(PoisonError::into_inner);
    let mut child: Child = {
        let mut running = running();
        let child = command.process_group(0).spawn()?;
        running.push(Pid::from_child(&child));
        child
    };
    let pid = Pid::from_child(&child);
    if priority == Priority::YieldsToOthers {
        // What it starts from now on inherits it. Where it may not be set, it matters little.
        let _ = setpriority_process(Some(pid), NICE);
    }
    let (ended, hears) = mpsc::channel::<()>();
    std::thread::spawn(move || {
        if hears.recv_timeout(limit) == Err(RecvTimeoutError::Timeout) {
            println!("still running after {limit:?}, and is killed: process {}", pid.as_raw_nonzero());
            let _ = kill_process_group(pid, Signal::KILL);
        }
    });
    // While nobody has asked for its status, the kernel still knows how much it computed.
    let cpu = waitid(WaitId::Pid(pid), WaitIdOptions::EXITED | WaitIdOptions::NOWAIT).ok().and_then(|_| cpu(pid));
    drop(ended);
    let status = child.wait();
    running().retain(|running| *running != pid);
    Ok(Ended { status: status?, cpu: cpu.unwrap_or_default() })
}

/// The processor time of a process and of the children that it waited for, from `/proc/<pid>/stat`: see proc_pid_stat(5).
fn cpu(pid: Pid) -> Option<Duration> {
    let stat = std::fs::read_to_string(format!("/proc/{}/stat", pid.as_raw_nonzero())).ok()?;
    // The second field is the name of the program in parentheses, and may hold spaces. Fields 14 to 17 are the times.
    let (_, rest) = stat.rsplit_once(')')?;
    let ticks: Option<u64> = rest.split_whitespace().skip(11).take(4).map(|field| field.parse::<u64>().ok()).sum();
    Some(Duration::from_millis(ticks? * 1000 / rustix::param::clock_ticks_per_second()))
}

/// Ends with the first signal, and ends what is running before.
fn relay() -> io::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let (told, code) = runtime.block_on(async {
        let (mut interrupt, mut terminate) = (signal(SignalKind::interrupt())?, signal(SignalKind::terminate())?);
        Ok::<_, io::Error>(tokio::select! {
            _ = interrupt.recv() => (Signal::INT, 130),
            _ = terminate.recv() => (Signal::TERM, 143),
        })
    })?;
    // Not given back: nothing new begins.
    let running = RUNNING.lock().unwrap_or_else(PoisonError::into_inner);
    for pid in &*running {
        // It may have ended by itself.
        let _ = kill_process_group(*pid, told);
    }
    std::process::exit(code)
}

/// Whether the command can be run and succeeds; shows nothing.
pub(crate) fn succeeds(command: &mut Command) -> bool {
    command
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status()
        .is_ok_and(|status| status.success())
}

/// Refuses arguments that a verb without any was given.
pub(crate) fn no_arguments(args: &[String]) -> Result {
    match args.first() {
        None => Ok(()),
        Some(first) => Err(format!("takes no arguments, and was given {first:?}")),
    }
}

/// The words of a command, the program without its directory.
pub(crate) fn show(command: &Command) -> String {
    let program = Path::new(command.get_program()).file_name().unwrap_or(command.get_program());
    std::iter::once(program)
        .chain(command.get_args())
        .map(|word| word.to_string_lossy().into_owned())
        .map(|word| if word.contains([' ', '"']) { format!("'{word}'") } else { word })
        .collect::<Vec<_>>()
        .join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use fencelock_testbed::{PATIENCE, wait_until};

    /// Set in the process that is told to end: where the process that it starts writes its id.
    const PLACE: &str = "XTASK_TEST_PLACE";

    #[test]
    fn what_a_command_prints_is_read_in_its_order_and_its_processor_time_is_known() {
        let output = Output::new().unwrap();
        let mut shell = command("sh");
        let spin = "echo one; echo two >&2; i=0; while [ $i -lt 100000 ]; do i=$((i+1)); done; echo three";
        shell.args(["-c", &format!("sh -c '{spin}'; exit 3")]);
        shell.stdout(output.writer().unwrap()).stderr(output.writer().unwrap());
        let ended = finish(&mut shell, Priority::YieldsToOthers, NO_LIMIT).unwrap();
        assert_eq!(ended.status.code(), Some(3));
        assert!(!ended.cpu.is_zero(), "what its child computed is not counted");
        drop(shell);
        assert_eq!(output.read().unwrap(), "one\ntwo\nthree\n");
    }

    #[test]
    fn what_was_started_ends_with_us() {
        if let Some(place) = std::env::var_os(PLACE) {
            let mut shell = command("sh");
            // A child of a child, as a test is of cargo.
            shell
                .args(["-c", "sh -c 'echo $$ > \"$0.new\"; mv \"$0.new\" \"$0\"; exec sleep 600' \"$0\"; :"])
                .arg(place);
            return run(&mut shell).unwrap();
        }
        let place = std::env::temp_dir().join(format!("xtask-test-{}", std::process::id()));
        let name = "shell::tests::what_was_started_ends_with_us";
        let mut us = Command::new(std::env::current_exe().unwrap());
        let mut us = us.args(["--exact", name]).env(PLACE, &place).stdout(Stdio::null()).spawn().unwrap();
        let mut started = None;
        wait_until(PATIENCE, || {
            started = std::fs::read_to_string(&place).ok();
            started.is_some()
        });
        std::fs::remove_file(&place).unwrap();
        let started = Path::new("/proc").join(started.unwrap().trim());
        assert!(started.exists());
        rustix::process::kill_process(Pid::from_child(&us), Signal::TERM).unwrap();
        assert_eq!(us.wait().unwrap().code(), Some(143));
        assert!(wait_until(PATIENCE, || !started.exists()), "{} lives on", started.display());
    }
}
