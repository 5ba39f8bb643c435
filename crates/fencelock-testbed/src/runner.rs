//! Servers of databases: their user, and the data of a new one, made once for each process and copied for each server.

use std::ffi::OsStr;
use std::io;
use std::os::unix::fs::{PermissionsExt, chown};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::OnceLock;

use crate::process::bound;
use crate::scratch::Scratch;

/// The user of a server: such servers refuse root, so the user of their package runs them where we are root.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Runner(Option<(u32, u32)>);

impl Runner {
    /// The user of this name where we are root, else our own.
    pub(crate) fn of(user: &str) -> io::Result<Self> {
        Ok(match id(&["-u"])? {
            0 => Self(Some((id(&["-u", user])?, id(&["-g", user])?))),
            _ => Self(None),
        })
    }

    /// The words before a program of the server.
    fn words(self) -> Vec<String> {
        self.0.map_or_else(Vec::new, |(user, group)| {
            let words =
                ["setpriv", "--reuid", &user.to_string(), "--regid", &group.to_string(), "--clear-groups", "--"];
            words.map(str::to_owned).to_vec()
        })
    }

    /// A server, which the kernel kills with this process.
    pub(crate) fn server_command(self, server: impl AsRef<OsStr>) -> Command {
        // The kernel forgets the parent-death signal when the user changes.
        let again = ["setpriv", "--pdeathsig", "KILL", "--"].map(str::to_owned);
        let words: Vec<_> = self.words().into_iter().chain(again).collect();
        let mut command = bound(&words[0]);
        command.args(&words[1..]).arg(server).current_dir("/");
        command
    }

    /// A program of the server.
    pub(crate) fn command(self, program: &Path) -> Command {
        let mut words = self.words();
        words.push(program.to_string_lossy().into_owned());
        let mut command = Command::new(&words[0]);
        command.args(&words[1..]).current_dir("/").stdin(Stdio::null());
        command
    }

    /// Makes `path` this user's.
    pub(crate) fn give(self, path: &Path) -> io::Result<()> {
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

/// A directory that other users may enter, such as `/tmp`.
pub(crate) fn open_scratch() -> io::Result<Scratch> {
    let scratch = Scratch::new()?;
    std::fs::set_permissions(scratch.path(), std::fs::Permissions::from_mode(0o755))?;
    Ok(scratch)
}

pub(crate) fn run(command: &mut Command) -> io::Result<String> {
    let output = command.output()?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    let said = String::from_utf8_lossy(&output.stderr);
    Err(io::Error::other(format!("{:?}: {}", command.get_program(), said.trim())))
}

/// The data of a server that no client has used.
#[derive(Debug)]
pub(crate) struct Template(OnceLock<Result<Scratch, String>>);

impl Template {
    pub(crate) const fn new() -> Self {
        Self(OnceLock::new())
    }

    /// The directory of the data. The first time, `fill` has the server's own program fill the empty directory.
    pub(crate) fn data(&self, runner: Runner, fill: impl FnOnce(&Path) -> Command) -> io::Result<PathBuf> {
        let make = || {
            let scratch = open_scratch()?;
            let data = scratch.path().join("data");
            std::fs::create_dir(&data)?;
            runner.give(&data)?;
            run(&mut fill(&data)).map(|_| scratch)
        };
        let made = self.0.get_or_init(|| make().map_err(|error: io::Error| error.to_string()));
        made.as_ref().map(|scratch| scratch.path().join("data")).map_err(|error| io::Error::other(error.clone()))
    }
}
