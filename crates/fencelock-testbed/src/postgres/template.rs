//! The data of a new server, made once for each process and copied for each server.

use std::io;
use std::os::unix::fs::{PermissionsExt, chown};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::OnceLock;

use crate::scratch::Scratch;
use crate::versions::postgres_program;

/// Who runs the servers: the server refuses root, so another user does where we are root.
#[derive(Debug, Clone, Copy)]
pub(super) struct Runner(Option<(u32, u32)>);

impl Runner {
    pub(super) fn get() -> io::Result<Self> {
        static RUNNER: OnceLock<Runner> = OnceLock::new();
        if let Some(runner) = RUNNER.get() {
            return Ok(*runner);
        }
        let found = match id(&["-u"])? {
            0 => Self(Some((id(&["-u", "postgres"])?, id(&["-g", "postgres"])?))),
            _ => Self(None),
        };
        Ok(*RUNNER.get_or_init(|| found))
    }

    /// What stands before a program of the server.
    pub(super) fn words(self) -> Vec<String> {
        self.0.map_or_else(Vec::new, |(user, group)| {
            let words =
                ["setpriv", "--reuid", &user.to_string(), "--regid", &group.to_string(), "--clear-groups", "--"];
            words.map(str::to_owned).to_vec()
        })
    }

    /// A program of the server.
    pub(super) fn command(self, program: &str) -> Command {
        let mut words = self.words();
        words.push(postgres_program(program).to_string_lossy().into_owned());
        let mut command = Command::new(&words[0]);
        command.args(&words[1..]).current_dir("/").stdin(Stdio::null());
        command
    }

    /// Makes `path` this user's.
    pub(super) fn give(self, path: &Path) -> io::Result<()> {
        match self.0 {
            Some((user, group)) => chown(path, Some(user), Some(group)),
            None => Ok(()),
        }
    }
}

fn id(arguments: &[&str]) -> io::Result<u32> {
    let said = Command::new("id").args(arguments).output()?;
    String::from_utf8_lossy(&said.stdout).trim().parse().map_err(io::Error::other)
}

/// A directory that others may pass through, as `/tmp` is one.
pub(super) fn open_scratch() -> io::Result<Scratch> {
    let scratch = Scratch::new()?;
    std::fs::set_permissions(scratch.path(), std::fs::Permissions::from_mode(0o755))?;
    Ok(scratch)
}

pub(super) fn run(command: &mut Command) -> io::Result<String> {
    let output = command.output()?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    let said = String::from_utf8_lossy(&output.stderr);
    Err(io::Error::other(format!("{:?}: {}", command.get_program(), said.trim())))
}

/// The data of a server that never ran, whose superuser is `postgres`.
pub(super) fn template() -> io::Result<PathBuf> {
    static TEMPLATE: OnceLock<Result<Scratch, String>> = OnceLock::new();
    let made = TEMPLATE.get_or_init(|| make().map_err(|error| error.to_string()));
    made.as_ref().map(|scratch| scratch.path().join("data")).map_err(|error| io::Error::other(error.clone()))
}

fn make() -> io::Result<Scratch> {
    let runner = Runner::get()?;
    let scratch = open_scratch()?;
    let data = scratch.path().join("data");
    std::fs::create_dir(&data)?;
    runner.give(&data)?;
    let mut initdb = runner.command("initdb");
    initdb.args(["--no-sync", "-U", "postgres", "-E", "UTF8", "--locale=C", "--auth=trust", "-D"]).arg(&data);
    run(&mut initdb)?;
    Ok(scratch)
}
