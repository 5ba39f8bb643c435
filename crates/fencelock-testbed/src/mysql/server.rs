//! A server: its files, its process, and its faults.

use std::fs;
use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use super::shared::OWNER;
use crate::daemon::Daemon;
use crate::packages::MARIADB;
use crate::ports::Port;
use crate::process::bound;
use crate::runner::{Runner, Template, open_scratch, run};
use crate::scratch::Scratch;

/// The user of the server's package.
const USER: &str = "mysql";

/// How a server is set up.
#[derive(Debug, Clone, Default)]
pub struct Settings {
    /// Further options of the server, such as `--read-only`.
    pub extra: Vec<String>,
    /// The time zone of its operating system; `None` for this machine's.
    pub system_zone: Option<String>,
}

impl Settings {
    /// The same with one more option.
    #[must_use]
    pub fn with(mut self, option: &str) -> Self {
        self.extra.push(option.to_owned());
        self
    }
}

/// A server. Dropping it kills it and removes its data.
#[derive(Debug)]
pub struct Server {
    settings: Settings,
    port: Port,
    runner: Runner,
    daemon: Daemon,
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
        let runner = Runner::of(USER)?;
        run(Command::new("cp").arg("-a").arg(template(runner)?).arg(directory.path().join("data")))?;
        // A server that starts removes what others have in a directory for temporary tables that they share.
        let temporary = directory.path().join("tmp");
        fs::create_dir(&temporary)?;
        runner.give(&temporary)?;
        let daemon = Daemon::new(directory.path().join("log"));
        let server = Self { settings, port, runner, daemon, directory };
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
        self.daemon.id()
    }

    /// Kills the server, as `kill -9` does. Repeatable.
    ///
    /// # Panics
    /// When the system refuses to.
    pub fn kill(&self) {
        self.daemon.kill();
    }

    /// Stops the server, as SIGSTOP does; its sockets stay.
    ///
    /// # Panics
    /// When it does not run.
    pub fn pause(&self) {
        self.daemon.pause();
    }

    /// Lets a paused server go on.
    ///
    /// # Panics
    /// When it does not run.
    pub fn resume(&self) {
        self.daemon.resume();
    }

    /// Starts the server again with what is on its disk, after killing it if it still runs. Does not wait until it serves.
    ///
    /// # Errors
    /// Whatever the system says.
    pub fn restart(&self) -> io::Result<()> {
        self.kill();
        let data = self.directory.path().join("data");
        let words = self.runner.words_of_server();
        let mut command = bound(&words[0]);
        command.args(&words[1..]).args(["/usr/sbin/mariadbd", "--no-defaults"]).current_dir("/");
        command.arg(format!("--datadir={}", data.display())).arg(format!("--socket={}", data.join("s").display()));
        command.arg(format!("--tmpdir={}", self.directory.path().join("tmp").display()));
        command.arg(format!("--pid-file={}", data.join("pid").display())).arg(format!("--port={}", self.port.number()));
        command.args(["--bind-address=127.0.0.1", "--innodb-buffer-pool-size=64M", "--max-connections=600"]);
        command.arg(format!("--init-file={}", self.directory.path().join("users.sql").display()));
        command
            .args(["--skip-name-resolve", "--back-log=400", "--default-time-zone=+00:00"])
            .args(&self.settings.extra)
            .envs(self.settings.system_zone.iter().map(|zone| ("TZ", zone)));
        self.daemon.start(command)
    }

    /// Whether it runs, paused or not.
    #[must_use]
    pub fn is_running(&self) -> bool {
        self.daemon.is_running()
    }

    /// Lets everything go on: a paused server, and one that is dead.
    ///
    /// # Errors
    /// As [`Server::wait_until_serving`].
    pub fn heal(&self) -> io::Result<()> {
        self.daemon.revive(|| self.restart())?;
        self.wait_until_serving()
    }

    /// Waits until it answers.
    ///
    /// # Errors
    /// With the end of its log when it does not within [`PATIENCE`](crate::PATIENCE), or when it ended.
    pub fn wait_until_serving(&self) -> io::Result<()> {
        self.daemon.wait_until(self.address(), || self.sql("SELECT 1").is_ok())
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

/// The statements of every start: the users of tests, and a database.
fn users() -> String {
    format!(
        "CREATE USER IF NOT EXISTS {OWNER}@'%' IDENTIFIED BY 'secret';\nCREATE DATABASE IF NOT EXISTS {OWNER};\n\
         GRANT ALL ON {OWNER}.* TO {OWNER}@'%';\n"
    )
}

fn template(runner: Runner) -> io::Result<PathBuf> {
    static TEMPLATE: Template = Template::new();
    TEMPLATE.data(runner, |data| {
        let mut install = runner.command(Path::new("mariadb-install-db"));
        install.args(["--no-defaults", "--skip-test-db", "--auth-root-authentication-method=normal"]);
        install.arg(format!("--datadir={}", data.display()));
        install
    })
}
