//! Helpers of the command's tests: the real binary, a store of their own, and waiting on states.

#![allow(dead_code, reason = "every test file is a crate of its own and uses some of this")]

pub(crate) mod browser;
pub(crate) mod hand;
pub(crate) mod http;
pub(crate) mod loss;
pub(crate) mod terminal;

use std::os::unix::process::{CommandExt as _, ExitStatusExt as _};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use tempfile::TempDir;

/// No state takes longer on a working machine.
const DEADLINE: Duration = Duration::from_secs(180);

/// Waits until `look` finds something.
pub(crate) fn until<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    until_ok(what, || look().ok_or_else(String::new))
}

/// The same; a failure prints what the last look found instead.
pub(crate) fn until_ok<T>(what: &str, mut look: impl FnMut() -> Result<T, String>) -> T {
    let started = Instant::now();
    loop {
        match look() {
            Ok(found) => return found,
            Err(last) => assert!(started.elapsed() < DEADLINE, "never came about: {what}; last: {last}"),
        }
        thread::sleep(Duration::from_millis(5));
    }
}

/// Where the binary under test is.
pub(crate) const PROGRAM: &str = env!("CARGO_BIN_EXE_fencelock");

/// The binary under test, with every signal as a fresh login has it: a shell that runs the tests in the background ignores
/// some signals, and its children inherit that.
pub(crate) fn binary() -> Command {
    let mut command = Command::new("env");
    command.args(["--default-signal", PROGRAM]);
    command.env_remove("FENCELOCK_STORE").env_remove("FENCELOCK_TOKEN").env_remove("FENCELOCK_NAME");
    command.env_remove("FENCELOCK_HELD");
    command.stdin(Stdio::null());
    command
}

/// A directory of the test's own, with a store in it, or one elsewhere.
pub(crate) struct Place {
    pub(crate) directory: TempDir,
    elsewhere: Option<String>,
}

impl Place {
    pub(crate) fn new() -> Self {
        Self { directory: tempfile::tempdir().unwrap(), elsewhere: None }
    }

    /// With the store at `url`.
    pub(crate) fn with_store(url: impl Into<String>) -> Self {
        Self { elsewhere: Some(url.into()), ..Self::new() }
    }

    /// With the schema in the store: a busy MariaDB takes longer to make it than a client waits by default.
    pub(crate) fn made(self) -> Self {
        let (code, said) = ended(&mut self.run(&["--connect-wait", "180s", "--quiet", "the-first-lock"], "true"));
        assert_eq!(code, 0, "{said}");
        self
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    pub(crate) fn url(&self) -> String {
        self.elsewhere.clone().unwrap_or_else(|| format!("file://{}", self.path("store").display()))
    }

    /// `fencelock` with these arguments, on this place's store, in this place's directory.
    pub(crate) fn fencelock(&self, arguments: &[&str]) -> Command {
        let mut command = binary();
        command.env("FENCELOCK_STORE", self.url()).current_dir(self.directory.path()).args(arguments);
        command
    }

    /// `fencelock run` with `options`, and a script for the shell.
    pub(crate) fn run(&self, options: &[&str], script: &str) -> Command {
        let mut command = self.fencelock(&["run"]);
        command.args(options).args(["--", "sh", "-c", script]);
        command
    }

    /// The contenders of `name`, as `show --json` prints them.
    pub(crate) fn contenders(&self, name: &str) -> Vec<serde_json::Value> {
        let shown = output(&mut self.fencelock(&["show", name, "--json"]));
        match code(&shown) {
            // A process that was started just now may not have made the directory yet.
            69 if stderr(&shown).contains("is not there") => return Vec::new(),
            // 1 says that another client's contender possibly does not wait for the contenders ahead of it.
            0 | 1 => {}
            other => panic!("`show {name}` ended with {other}: {}{}", stderr(&shown), stdout(&shown)),
        }
        let shown: serde_json::Value = serde_json::from_slice(&shown.stdout).unwrap();
        shown["contenders"].as_array().unwrap().clone()
    }

    /// Waits until `count` contenders are in the queue of `name`.
    pub(crate) fn queued(&self, name: &str, count: usize) {
        until_ok(&format!("{count} contenders for {name}"), || {
            let contenders = self.contenders(name);
            if contenders.len() == count { Ok(()) } else { Err(format!("{contenders:?}")) }
        });
    }

    /// A holder of `name`, whose command has begun: holds until it is dropped or its stdin is closed.
    pub(crate) fn holder(&self, name: &str) -> Running {
        let mut command = self.fencelock(&["run", name, "--purpose", "to test", "--", "cat"]);
        let holder = Running::start(command.stdin(Stdio::piped())).begun();
        let contenders = self.contenders(name);
        assert!(contenders.first().is_some_and(|contender| contender["state"] == "holder"), "{contenders:?}");
        holder
    }

    /// `run --try` and `run --wait` name the holder of a held lock, and leave nothing.
    pub(crate) fn refuses_a_busy_lock_with_its_holder_named(&self) {
        let holder = self.holder("job");
        for limit in [&["--try"][..], &["--connect-wait", "180s", "--wait", "5s"]] {
            let text = refused(&mut self.run(&[limit, &["job"]].concat(), "true"), &format!("pid {}", holder.pid()));
            assert!(text.contains("to test"), "{text}");
            let (code, text) = ended(&mut self.run(&[limit, &["-E", "9", "--quiet", "job"]].concat(), "true"));
            assert_eq!((code, text.as_str()), (9, ""));
        }
        assert_eq!(self.contenders("job").len(), 1);
    }

    /// A suspended waiter gives its place back, and waits anew when it is continued.
    pub(crate) fn passes_by_a_waiter_that_is_suspended(&self) {
        let mut holder = self.holder("job");
        // In a group of its own, which its parent could continue.
        let waiter = Running::start(self.run(&["--quiet", "job"], "echo ran > ran").process_group(0));
        for signal in [Signal::SIGTTIN, Signal::SIGTSTP] {
            self.queued("job", 2);
            waiter.signal(signal);
            stopped(waiter.pid().as_raw());
            self.queued("job", 1);
            if signal == Signal::SIGTTIN {
                waiter.signal(Signal::SIGCONT);
            }
        }
        drop(holder.0.as_mut().unwrap().stdin.take());
        assert_eq!(ended(&mut self.run(&["--quiet", "--wait", "180s", "job"], "test ! -e ran")).0, 0);
        waiter.signal(Signal::SIGCONT);
        assert_eq!(waiter.code(), 0);
        assert!(self.path("ran").exists());
    }

    /// Readers run together, permits until the capacity is used up. `--try` refuses a contender that does not fit, and
    /// `show` names the kind of each.
    pub(crate) fn lets_shared_holders_run_together(&self) {
        let start = |options: &[&str]| Running::start(self.run(options, "cat").stdin(Stdio::piped()));
        let reader = start(&["--shared", "page"]);
        self.queued("page", 1);
        assert_eq!(ended(&mut self.run(&["--try", "--shared", "page"], "true")).0, 0);
        refused(&mut self.run(&["--try", "--exclusive", "page"], "true"), &format!("pid {}", reader.pid()));
        let (conflict, said) = ended(&mut self.run(&["page"], "true"));
        assert_eq!((conflict, said.contains("reader") && said.contains("mutex")), (65, true), "{said}");
        let _writer = start(&["--quiet", "--exclusive", "page"]);
        self.queued("page", 2);
        let shown = stdout(&output(&mut self.fencelock(&["show", "page"])));
        let lines: Vec<_> = shown.lines().collect();
        assert!(lines[1].contains("reader") && lines[2].contains("writer"), "{shown}");

        let _seats = [start(&["--permits", "1/3", "seats"]), start(&["--permits", "1/3", "seats"])];
        self.queued("seats", 2);
        assert_eq!(ended(&mut self.run(&["--try", "--permits", "1/3", "seats"], "true")).0, 0);
        assert_eq!(ended(&mut self.run(&["--try", "--permits", "2/3", "seats"], "true")).0, 75);
        assert_eq!(ended(&mut self.run(&["--try", "--permits", "1/4", "seats"], "true")).0, 65, "another capacity");
    }

    /// `break` ends the grant that it names, its holder and `show` say why, and there is no second time.
    pub(crate) fn tells_a_broken_holder_why_and_shows_the_record(&self) {
        let holder =
            Running::start(self.run(&["--shared", "page"], "cat").stdin(Stdio::piped()).stderr(Stdio::piped())).begun();
        let token = self.contenders("page")[0]["token"].as_str().unwrap().to_owned();
        let next = Running::start(self.run(&["--quiet", "--exclusive", "page"], "true").stdin(Stdio::piped()));
        self.queued("page", 2);
        let command = ["break", "page", "--reason", "stuck since noon", "--yes", "--token", &token];
        assert_eq!(ended(&mut self.fencelock(&command)), (0, String::new()));
        let told = holder.end();
        assert_eq!((code(&told), stderr(&told).contains("stuck since noon")), (76, true), "{}", stderr(&told));
        assert_eq!(next.code(), 0);
        assert_eq!(ended(&mut self.fencelock(&command)).0, 1, "it is gone");
        let shown = stdout(&output(&mut self.fencelock(&["show", "page", "--json"])));
        let shown: serde_json::Value = serde_json::from_str(&shown).unwrap();
        assert_eq!(shown["breaks"][0]["reason"], "stuck since noon");
        assert_eq!(shown["breaks"][0]["token"], token.as_str());
    }
}

/// The output of `command`, which runs again while a server that is busy does not answer within the command's limit.
pub(crate) fn output(command: &mut Command) -> Output {
    until_ok(&format!("{command:?} gets an answer"), || {
        let output = command.output().unwrap();
        let is_late = code(&output) == 69 && LATE.iter().any(|words| stderr(&output).contains(words));
        if is_late { Err(stderr(&output)) } else { Ok(output) }
    })
}

/// The words of the command about a server that did not answer within a limit.
const LATE: [&str; 3] = ["in time", "none answered", "did not answer within"];

/// The exit code and what was said on stderr by the only run of `command`, whose server never answers.
pub(crate) fn ended_once(command: &mut Command) -> (i32, String) {
    let output = command.output().unwrap();
    (code(&output), stderr(&output))
}

pub(crate) fn stdout(output: &Output) -> String {
    String::from_utf8(output.stdout.clone()).unwrap()
}

/// The output on stderr, without the lines that a command prints after two seconds of silence: on a busy machine every store may
/// be silent that long.
pub(crate) fn stderr(output: &Output) -> String {
    let said = str::from_utf8(&output.stderr).unwrap();
    let is_of_patience = |line: &&str| {
        line.starts_with("fencelock: waiting for ") || line.contains(" is not reached yet, and is tried ")
    };
    said.split_inclusive('\n').filter(|line| !is_of_patience(line)).collect()
}

/// Runs `command`, to which a busy lock is refused, until the refusal says `part` of the holder: the look for the holder has a limit of a
/// second, which may be too short on a busy machine. Returns the refusal.
pub(crate) fn refused(command: &mut Command, part: &str) -> String {
    until_ok(&format!("the refusal says {part:?}"), || {
        let (code, said) = ended(command);
        assert_eq!(code, 75, "{said}");
        if said.contains(part) { Ok(said) } else { Err(said) }
    })
}

/// The exit code as a shell sees it: 128 + n for a death by signal n.
pub(crate) fn code(output: &Output) -> i32 {
    code_of(output.status)
}

pub(crate) fn code_of(status: ExitStatus) -> i32 {
    status.code().or_else(|| Some(128 + status.signal()?)).unwrap_or_else(|| panic!("{status:?}"))
}

/// The exit code and the text on stderr.
pub(crate) fn ended(command: &mut Command) -> (i32, String) {
    let output = output(command);
    (code(&output), stderr(&output))
}

/// A program that runs during the test. Dropping it kills the program.
pub(crate) struct Running(pub(crate) Option<Child>);

impl Running {
    pub(crate) fn start(command: &mut Command) -> Self {
        Self(Some(command.spawn().unwrap()))
    }

    /// Waits until the command of this `run` has begun: only then has the client certainly received its grant.
    pub(crate) fn begun(self) -> Self {
        let ours = std::fs::canonicalize(PROGRAM).unwrap();
        let is_command = |pid: i32| std::fs::read_link(format!("/proc/{pid}/exe")).is_ok_and(|program| program != ours);
        until("the command has begun", || children(self.pid()).into_iter().any(is_command).then_some(()));
        self
    }

    pub(crate) fn pid(&self) -> Pid {
        Pid::from_raw(self.0.as_ref().unwrap().id().cast_signed())
    }

    pub(crate) fn signal(&self, signal: Signal) {
        kill(self.pid(), signal).unwrap();
    }

    pub(crate) fn end(mut self) -> Output {
        self.0.take().unwrap().wait_with_output().unwrap()
    }

    pub(crate) fn code(self) -> i32 {
        code(&self.end())
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if let Some(child) = &mut self.0 {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// The text of the file at `path`, once the text ends with a line break.
pub(crate) fn written(path: &Path) -> String {
    until(&format!("a line in {}", path.display()), || {
        std::fs::read_to_string(path).ok().filter(|text| text.ends_with('\n'))
    })
}

/// The first whole line in the file at `path` that says `part`.
pub(crate) fn line_with(path: &Path, part: &str) -> String {
    until_ok(&format!("a line with {part:?} in {}", path.display()), || {
        let text = std::fs::read_to_string(path).map_err(|error| error.to_string())?;
        let mut lines = text.split_inclusive('\n').filter(|line| line.ends_with('\n'));
        lines.find(|line| line.contains(part)).map(str::to_owned).ok_or_else(|| text.clone())
    })
}

/// Whether the process is there, and is no zombie.
pub(crate) fn is_alive(pid: i32) -> bool {
    std::fs::read_to_string(format!("/proc/{pid}/stat"))
        .is_ok_and(|stat| !stat.rsplit(')').next().unwrap().trim_start().starts_with('Z'))
}

/// Waits until the process is stopped.
pub(crate) fn stopped(pid: i32) {
    until(&format!("process {pid} stops"), || is_stopped(pid).then_some(()));
}

/// Whether the process is stopped, or waits in the kernel for a child that is (vfork(2)): that child has not become another program
/// yet, and the process itself cannot be stopped until then.
pub(crate) fn is_stopped(pid: i32) -> bool {
    let state = |pid: i32| {
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        stat.rsplit(')').next()?.trim_start().chars().next()
    };
    let forked = || children(Pid::from_raw(pid)).iter().any(|child| state(*child) == Some('T'));
    state(pid) == Some('T') || (state(pid) == Some('D') && forked())
}

/// The processes that `parent` started and that are still there.
pub(crate) fn children(parent: Pid) -> Vec<i32> {
    let text = std::fs::read_to_string(format!("/proc/{parent}/task/{parent}/children")).unwrap_or_default();
    text.split_whitespace().map(|pid| pid.parse().unwrap()).collect()
}
