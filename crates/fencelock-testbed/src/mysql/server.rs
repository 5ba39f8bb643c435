//! One server: its files, its process, and what is done to it.

use std::fs::{self, File};
use std::io;
use std::net::SocketAddr;
use std::os::unix::fs::{PermissionsExt, chown};
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

use super::shared::OWNER;
use crate::packages::MARIADB;
use crate::ports::Port;
use crate::process::{Process, bound};
use crate::scratch::Scratch;
use crate::{PATIENCE, wait_until};

/// How a server is set up.
#[derive(Debug, Clone, Default)]
pub struct Settings {
    /// Further options of the server, such as `--read-only`.
    pub extra: Vec<String>,
}

impl Settings {
    /// The same with one more option.
    #[must_use]
    pub fn with(mut self, option: &str) -> Self {
        self.extra.push(option.to_owned());
        self
    }
}

/// One server. Dropping it kills it and removes its data.
#[derive(Debug)]
pub struct Server {
    settings: Settings,
    port: Port,
    process: Mutex<Option<Process>>,
    directory: Scratch,
}

impl Server {
    /// Starts a server and waits until it serves. The user [`OWNER`] is there, and a database of that name which is theirs.
    ///
    /// # Errors
    /// When it does not, with the end of its log.
    ///
    /// # Panics
    /// When MariaDB is not installed, with the command that installs it.
    pub fn start(settings: Settings) -> io::Result<Self> {
        MARIADB.require();
        let (directory, port) = (open_scratch()?, Port::reserve()?);
        fs::write(directory.path().join("users.sql"), users())?;
        run(Command::new("cp").arg("-a").arg(template()?).arg(directory.path().join("data")))?;
        // A server that starts removes what others have in a directory for temporary tables that they share.
        let temporary = directory.path().join("tmp");
        fs::create_dir(&temporary)?;
        if let Some((user, group)) = user()? {
            chown(&temporary, Some(user), Some(group))?;
        }
        let server = Self { settings, port, process: Mutex::default(), directory };
        server.restart()?;
        server.wait_until_serving()?;
        Ok(server)
    }

    /// Where clients connect.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.port.address()
    }

    /// The URL of a store in the database that [`Server::start`] makes.
    #[must_use]
    pub fn url(&self) -> String {
        format!("mysql://{OWNER}:secret@{}/{OWNER}", self.address())
    }

    /// Runs statements as the administrator, and returns what the server's own command prints of them, unadorned.
    ///
    /// # Errors
    /// What the server says.
    pub fn sql(&self, statements: &str) -> io::Result<String> {
        sql_at(self.address(), statements)
    }

    /// The number of its process, while it has one.
    #[must_use]
    pub fn process_id(&self) -> Option<u32> {
        self.process().as_ref().map(Process::id)
    }

    /// Kills the server, as `kill -9` does. Repeatable.
    ///
    /// # Panics
    /// When the system refuses to.
    pub fn kill(&self) {
        if let Some(mut process) = self.process().take() {
            process.kill().expect("killing a child");
        }
    }

    /// Stops the server, as SIGSTOP does; its sockets stay.
    ///
    /// # Panics
    /// When it does not run.
    pub fn pause(&self) {
        self.process().as_mut().expect("a server that runs").pause().expect("stopping a child");
    }

    /// Lets a paused server go on.
    ///
    /// # Panics
    /// When it does not run.
    pub fn resume(&self) {
        self.process().as_mut().expect("a server that runs").resume().expect("continuing a child");
    }

    /// Starts the server again with what is on its disk, after killing it if it still runs. Does not wait until it serves.
    ///
    /// # Errors
    /// Whatever the system says.
    pub fn restart(&self) -> io::Result<()> {
        self.kill();
        let data = self.directory.path().join("data");
        let log = File::options().create(true).append(true).open(self.log())?;
        let mut words = runner()?;
        // The kernel forgets whom to kill with us when the user changes.
        words.extend(["setpriv", "--pdeathsig", "KILL", "--", "/usr/sbin/mariadbd"].map(str::to_owned));
        let mut command = bound(&words[0]);
        command.args(&words[1..]).arg("--no-defaults").current_dir("/");
        command.arg(format!("--datadir={}", data.display())).arg(format!("--socket={}", data.join("s").display()));
        command.arg(format!("--tmpdir={}", self.directory.path().join("tmp").display()));
        command.arg(format!("--pid-file={}", data.join("pid").display())).arg(format!("--port={}", self.port.number()));
        command.args(["--bind-address=127.0.0.1", "--innodb-buffer-pool-size=64M", "--max-connections=600"]);
        command.arg(format!("--init-file={}", self.directory.path().join("users.sql").display()));
        command
            .args(["--skip-name-resolve", "--back-log=400", "--default-time-zone=+00:00"])
            .args(&self.settings.extra);
        command.stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log);
        *self.process() = Some(Process::start(command)?);
        Ok(())
    }

    /// Whether it runs, paused or not.
    #[must_use]
    pub fn is_running(&self) -> bool {
        self.process().as_mut().is_some_and(|process| matches!(process.ended(), Ok(None)))
    }

    /// Lets everything go on: a paused server, and one that is dead.
    ///
    /// # Errors
    /// As [`Server::wait_until_serving`].
    pub fn heal(&self) -> io::Result<()> {
        if self.is_running() {
            self.resume();
        } else {
            self.restart()?;
        }
        self.wait_until_serving()
    }

    /// Waits until it answers.
    ///
    /// # Errors
    /// With the end of its log when it does not within [`PATIENCE`], or when it ended.
    pub fn wait_until_serving(&self) -> io::Result<()> {
        let mut runs = true;
        let settled = wait_until(PATIENCE, || {
            runs = self.is_running();
            !runs || self.sql("SELECT 1").is_ok()
        });
        if settled && runs {
            return Ok(());
        }
        let why = if runs { "does not serve" } else { "ended" };
        let log = fs::read(self.log()).unwrap_or_default();
        let log = String::from_utf8_lossy(&log);
        let lines: Vec<&str> = log.lines().collect();
        let end = lines[lines.len().saturating_sub(20)..].join("\n");
        Err(io::Error::other(format!("the server at {} {why}; its log ends:\n{end}", self.address())))
    }

    fn log(&self) -> PathBuf {
        self.directory.path().join("log")
    }

    fn process(&self) -> MutexGuard<'_, Option<Process>> {
        self.process.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.kill();
    }
}

/// Runs statements as the administrator of the server at `address`.
pub(super) fn sql_at(address: SocketAddr, statements: &str) -> io::Result<String> {
    let mut mariadb = Command::new("/usr/bin/mariadb");
    mariadb.args(["--no-defaults", "--connect-timeout=10", "-N", "-B", "-u", "root", "-h"]);
    mariadb.args([&address.ip().to_string(), "-P", &address.port().to_string(), "-e", statements]);
    run(mariadb.stdin(Stdio::null()).current_dir("/"))
}

fn run(command: &mut Command) -> io::Result<String> {
    let output = command.output()?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    let said = String::from_utf8_lossy(&output.stderr);
    Err(io::Error::other(format!("{:?}: {}", command.get_program(), said.trim())))
}

/// What a server does whenever it starts: the users of tests, and a database.
fn users() -> String {
    format!(
        "CREATE USER IF NOT EXISTS {OWNER}@'%' IDENTIFIED BY 'secret';\nCREATE DATABASE IF NOT EXISTS {OWNER};\n\
         GRANT ALL ON {OWNER}.* TO {OWNER}@'%';\n"
    )
}

/// A directory that others may pass through, as `/tmp` is one.
fn open_scratch() -> io::Result<Scratch> {
    let scratch = Scratch::new()?;
    fs::set_permissions(scratch.path(), fs::Permissions::from_mode(0o755))?;
    Ok(scratch)
}

/// The user of the server's package where root runs the tests, whose server it refuses to be.
fn user() -> io::Result<Option<(u32, u32)>> {
    let id = |arguments: &[&str]| -> io::Result<u32> {
        let said = Command::new("id").args(arguments).output()?;
        String::from_utf8_lossy(&said.stdout).trim().parse().map_err(io::Error::other)
    };
    match id(&["-u"])? {
        0 => Ok(Some((id(&["-u", "mysql"])?, id(&["-g", "mysql"])?))),
        _ => Ok(None),
    }
}

/// What stands before a program of the server.
fn runner() -> io::Result<Vec<String>> {
    Ok(user()?.map_or_else(
        || vec!["env".to_owned()],
        |(user, group)| {
            let words =
                ["setpriv", "--reuid", &user.to_string(), "--regid", &group.to_string(), "--clear-groups", "--"];
            words.map(str::to_owned).to_vec()
        },
    ))
}

/// The data of a server that never ran for anybody.
fn template() -> io::Result<PathBuf> {
    static TEMPLATE: OnceLock<Result<Scratch, String>> = OnceLock::new();
    let made = TEMPLATE.get_or_init(|| make().map_err(|error| error.to_string()));
    made.as_ref().map(|scratch| scratch.path().join("data")).map_err(|error| io::Error::other(error.clone()))
}

fn make() -> io::Result<Scratch> {
    let scratch = open_scratch()?;
    let data = scratch.path().join("data");
    fs::create_dir(&data)?;
    if let Some((user, group)) = user()? {
        chown(&data, Some(user), Some(group))?;
    }
    let words = runner()?;
    let mut install = Command::new(&words[0]);
    install.args(&words[1..]).args(["mariadb-install-db", "--no-defaults", "--skip-test-db"]);
    install.arg("--auth-root-authentication-method=normal");
    run(install.arg(format!("--datadir={}", data.display())).current_dir("/").stdin(Stdio::null()))?;
    Ok(scratch)
}
