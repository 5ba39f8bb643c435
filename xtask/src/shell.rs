//! Child processes: run in the root of the repository, their output shown as it comes.

use std::ffi::OsStr;
use std::io;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Mutex, OnceLock, PoisonError};

use rustix::process::{Pid, Signal, kill_process_group};
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
    match status(command) {
        Ok(status) if status.success() => Ok(()),
        Ok(status) => Err(format!("`{shown}` failed: {status}")),
        Err(error) => Err(format!("`{shown}` cannot be run: {error}")),
    }
}

/// What ends us is passed on to these: processes that we started, each with all that it started itself.
static RUNNING: Mutex<Vec<Pid>> = Mutex::new(Vec::new());

/// Runs the command as a process group, which does not outlive us when we are interrupted or told to end. Otherwise `kill`
/// would end us alone, and leave what cargo started behind.
fn status(command: &mut Command) -> io::Result<ExitStatus> {
    static RELAY: OnceLock<()> = OnceLock::new();
    RELAY.get_or_init(|| drop(std::thread::spawn(relay)));
    let running = || RUNNING.lock().unwrap_or_else(PoisonError::into_inner);
    let mut child: Child = {
        let mut running = running();
        let child = command.process_group(0).spawn()?;
        running.push(Pid::from_child(&child));
        child
    };
    let status = child.wait();
    running().retain(|pid| *pid != Pid::from_child(&child));
    status
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

fn show(command: &Command) -> String {
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
