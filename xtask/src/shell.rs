//! Child processes: run in the root of the repository, their output shown as it comes.

use std::ffi::OsStr;
use std::io::{self, BufRead as _, BufReader};
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process_group, waitid};
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

/// `Ok`, or a sentence that names the failure.
pub(crate) type Result<T = ()> = std::result::Result<T, String>;

/// The root of the repository.
pub(crate) fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap_or(Path::new("."))
}

/// The text of a file of the repository.
pub(crate) fn read(path: &str) -> Result<String> {
    std::fs::read_to_string(root().join(path)).map_err(|error| format!("{path}: {error}"))
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

/// Until when our commands may run: a month from now, unless a caller set less.
static DEADLINE: Mutex<Option<Instant>> = Mutex::new(None);

/// From now on, a command is killed when `limit` has passed, with all that it started.
pub(crate) fn limit(limit: Duration) {
    *DEADLINE.lock().unwrap_or_else(PoisonError::into_inner) = Some(Instant::now() + limit);
}

fn left() -> Duration {
    let deadline = *DEADLINE.lock().unwrap_or_else(PoisonError::into_inner);
    deadline.map_or(Duration::from_secs(30 * 24 * 3600), |deadline| deadline.saturating_duration_since(Instant::now()))
}

/// Says what is run, runs it, and fails unless it succeeded.
pub(crate) fn run(command: &mut Command) -> Result {
    run_and_look(command, |_| {})
}

/// The same; `look` is shown each line of its standard output.
pub(crate) fn run_and_look(command: &mut Command, mut look: impl FnMut(&str)) -> Result {
    let shown = show(command);
    println!("$ {shown}");
    let ended = follow(command, left(), |line| {
        println!("{line}");
        look(line);
    });
    judge(&shown, ended)
}

/// Runs the command and returns its output; its standard error is shown as it comes.
pub(crate) fn output(command: &mut Command) -> Result<String> {
    println!("$ {}", show(command));
    let (output, ended) = captured(command);
    ended.map(|()| output)
}

/// Runs the command without showing anything. Returns its standard output, and how it ended.
pub(crate) fn captured(command: &mut Command) -> (String, Result) {
    let mut output = String::new();
    let ended = follow(command, left(), |line| output.extend([line, "\n"]));
    (output, judge(&show(command), ended))
}

fn judge(shown: &str, ended: io::Result<ExitStatus>) -> Result {
    match ended {
        Ok(status) if status.success() => Ok(()),
        Ok(status) => Err(format!("`{shown}` failed: {status}")),
        Err(error) => Err(format!("`{shown}` cannot be run: {error}")),
    }
}

/// Signals that end us are passed on to these: processes that we started, each with all that it started itself.
static RUNNING: Mutex<Vec<Pid>> = Mutex::new(Vec::new());

fn running() -> std::sync::MutexGuard<'static, Vec<Pid>> {
    RUNNING.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Runs the command as a process group, which outlives neither its end, nor `limit`, nor our end.
fn follow(command: &mut Command, limit: Duration, mut each: impl FnMut(&str)) -> io::Result<ExitStatus> {
    static RELAY: OnceLock<()> = OnceLock::new();
    RELAY.get_or_init(|| {
        // The handlers are there before a command is: a signal that comes early ends the command, too.
        if let Ok(signals) = Signals::new([SIGINT, SIGTERM]) {
            std::thread::spawn(move || relay(signals));
        }
    });
    let mut child: Child = {
        let mut running = running();
        let child = command.process_group(0).stdin(Stdio::null()).stdout(Stdio::piped()).spawn()?;
        running.push(Pid::from_child(&child));
        child
    };
    let pid = Pid::from_child(&child);
    let (ended, hears) = mpsc::channel::<()>();
    let watch = std::thread::spawn(move || {
        if hears.recv_timeout(limit) == Err(RecvTimeoutError::Timeout) {
            println!("still running after {limit:?}, and is killed");
            let _ = kill_process_group(pid, Signal::KILL);
        }
    });
    let has_ended = Arc::new(AtomicBool::new(false));
    let ends = Arc::clone(&has_ended);
    let end = std::thread::spawn(move || {
        // No thread asks for its status before, so the number is still its own.
        let _ = waitid(WaitId::Pid(pid), WaitIdOptions::EXITED | WaitIdOptions::NOWAIT);
        let _ = kill_process_group(pid, Signal::KILL);
        ends.store(true, Ordering::SeqCst);
    });
    let (line, lines) = mpsc::channel();
    let stdout = child.stdout.take();
    std::thread::spawn(move || {
        let read = stdout.into_iter().flat_map(|stdout| BufReader::new(stdout).split(b'\n'));
        read.map_while(io::Result::ok).try_for_each(|text| line.send(text))
    });
    // A process that outlives it in a group of its own may keep its output open, and print, for ever.
    let mut end_seen = None;
    while end_seen.is_none_or(|seen: Instant| seen.elapsed() < Duration::from_secs(2)) {
        match lines.recv_timeout(Duration::from_millis(100)) {
            Ok(text) => each(&String::from_utf8_lossy(&text)),
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => break,
        }
        end_seen = end_seen.or_else(|| has_ended.load(Ordering::SeqCst).then(Instant::now));
    }
    let _ = end.join();
    drop(ended);
    let _ = watch.join();
    let status = child.wait();
    running().retain(|running| *running != pid);
    status
}

/// Ends with the first signal, and ends what is running before.
fn relay(mut signals: Signals) {
    let Some(signal) = signals.forever().next() else { return };
    // Not given back: nothing new begins.
    let running = running();
    for pid in &*running {
        // The group may have ended by itself.
        let _ = kill_process_group(*pid, if signal == SIGINT { Signal::INT } else { Signal::TERM });
    }
    std::process::exit(128 + signal)
}

/// Whether the command can be run and succeeds; shows nothing.
pub(crate) fn succeeds(command: &mut Command) -> bool {
    command.output().is_ok_and(|output| output.status.success())
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

    /// Set in the process that is asked to end: where the process that it starts writes its id.
    const PLACE: &str = "XTASK_TEST_PLACE";

    #[test]
    fn output_of_a_command_is_read_although_a_child_outlives_it() {
        assert_eq!(
            output(command("sh").args(["-c", "sleep 600 & setsid sleep 2 & echo one; echo two"])).unwrap(),
            "one\ntwo\n"
        );
        let failed = output(command("sh").args(["-c", "exit 3"])).unwrap_err();
        assert!(failed.contains("exit status: 3"), "{failed}");
    }

    #[test]
    fn a_command_that_runs_for_too_long_is_killed_with_all_its_children() {
        let mut shell = command("sh");
        let killed = follow(shell.args(["-c", "sleep 600; :"]), Duration::from_millis(100), |_| {});
        assert_eq!(killed.unwrap().code(), None);
    }

    #[test]
    fn a_started_command_ends_with_its_parent() {
        if let Some(place) = std::env::var_os(PLACE) {
            let mut shell = command("sh");
            // A child of a child, as a test is of cargo.
            shell
                .args(["-c", "sh -c 'echo $$ > \"$0.new\"; mv \"$0.new\" \"$0\"; exec sleep 600' \"$0\"; :"])
                .arg(place);
            return run(&mut shell).unwrap();
        }
        let place = std::env::temp_dir().join(format!("xtask-test-{}", std::process::id()));
        let name = "shell::tests::a_started_command_ends_with_its_parent";
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
