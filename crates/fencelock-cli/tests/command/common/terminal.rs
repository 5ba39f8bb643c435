//! A real pseudo-terminal with a program in front of it.

use std::fs::File;
use std::io::{Read as _, Write as _};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::thread;

use nix::pty::openpty;
use nix::sys::termios::{LocalFlags, tcgetattr};
use nix::unistd::tcgetpgrp;

use super::{PROGRAM, Place, code_of, stdout, until};

/// A program on a pseudo-terminal, to which the test types.
pub(crate) struct Screen {
    child: Child,
    keys: File,
    shown: Arc<Mutex<String>>,
    seen: usize,
}

impl Screen {
    /// Starts `command` in a session of its own whose controlling terminal is this one.
    pub(crate) fn start(command: &Command) -> Self {
        let pty = openpty(None, None).unwrap();
        let slave = || Stdio::from(pty.slave.try_clone().unwrap());
        let mut session = Command::new("setsid");
        // Restores the keyboard's signals, as a login does: a test runner in the background ignores them.
        session.args(["--ctty", "env", "--default-signal"]).arg(command.get_program()).args(command.get_args());
        for (variable, value) in command.get_envs() {
            match value {
                Some(value) => session.env(variable, value),
                None => session.env_remove(variable),
            };
        }
        if let Some(directory) = command.get_current_dir() {
            session.current_dir(directory);
        }
        let child = session.stdin(slave()).stdout(slave()).stderr(slave()).spawn().unwrap();
        let shown = Arc::new(Mutex::new(String::new()));
        let (mut screen, text) = (File::from(pty.master.try_clone().unwrap()), Arc::clone(&shown));
        thread::spawn(move || {
            let mut buffer = [0; 4096];
            // The read fails once the last process has closed the other side.
            while let Ok(count @ 1..) = screen.read(&mut buffer) {
                text.lock().unwrap().push_str(&String::from_utf8_lossy(&buffer[..count]));
            }
        });
        Self { child, keys: File::from(pty.master), shown, seen: 0 }
    }

    /// The process that was started; `setsid` became it.
    pub(crate) fn pid(&self) -> i32 {
        self.child.id().cast_signed()
    }

    pub(crate) fn types(&mut self, keys: &str) {
        self.keys.write_all(keys.as_bytes()).unwrap();
    }

    /// Waits until the screen shows `text`, after the text of the call before. The screen echoes typed keys before a program
    /// reads them: `text` must be something that only a program prints.
    pub(crate) fn shows(&mut self, text: &str) {
        let (seen, shown) = (self.seen, Arc::clone(&self.shown));
        self.seen = until(&format!("{text:?} on the screen"), || {
            let shown = shown.lock().unwrap();
            shown[seen..].find(text).map(|at| seen + at + text.len())
        });
    }

    /// Waits until a program in the foreground reads a line without echo. The prompt alone proves less: a program can write a prompt,
    /// be stopped, and discard the typed keys when it asks again.
    pub(crate) fn asks_for_a_secret(&self) {
        until("a program reads a line that is not shown", || {
            let flags = tcgetattr(&self.keys).unwrap().local_flags;
            (flags.contains(LocalFlags::ICANON) && !flags.contains(LocalFlags::ECHO)).then_some(())
        });
    }

    /// Waits for the end; the exit code that a shell would see.
    pub(crate) fn code(mut self) -> i32 {
        code_of(self.child.wait().unwrap())
    }
}

impl Drop for Screen {
    /// Prints the screen when the test has failed.
    fn drop(&mut self) {
        if thread::panicking() {
            eprintln!("the screen shows {:?}", self.shown.lock().unwrap());
            eprintln!("in front is the group {:?}", tcgetpgrp(&self.keys));
            let session = self.pid().to_string();
            let mut processes = Command::new("ps");
            processes.args(["-o", "pid,ppid,pgid,tpgid,stat,wchan:20,args", "--forest", "-s", &session]);
            eprintln!("{}", processes.output().map_or_else(|error| error.to_string(), |output| stdout(&output)));
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A shell with job control, whose prompt is `here>`.
pub(crate) fn shell(place: &Place) -> Screen {
    let mut bash = Command::new("bash");
    bash.args(["--norc", "--noprofile", "-b", "-i"]).env("FL", PROGRAM).env("PS1", "here> ");
    bash.env("TERM", "xterm")
        .env("FENCELOCK_STORE", place.url())
        .env_remove("PROMPT_COMMAND")
        .current_dir(place.directory.path());
    let mut screen = Screen::start(&bash);
    screen.shows("here> ");
    screen
}

/// Waits until the process's group has the terminal and the process runs.
pub(crate) fn in_front(process: i32) {
    until("the command is in front", || {
        let stat = std::fs::read_to_string(format!("/proc/{process}/stat")).ok()?;
        let fields: Vec<_> = stat.rsplit(')').next()?.split_whitespace().collect();
        // After the name: state, parent, group, session, terminal, foreground group (proc(5)).
        (fields.first()? != &"T" && fields.get(2)? == fields.get(5)?).then_some(())
    });
}
