//! A server: its files, and statements to it.

use std::fs;
use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use super::shared::OWNER;
use crate::daemon::{Daemon, Program};
use crate::packages::MARIADB;
use crate::ports::Port;
use crate::runner::{Runner, Template, open_scratch, run};
use crate::versions::{MYSQL_SERVER, program};

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
    /// Adds an option.
    #[must_use]
    pub fn with(mut self, option: &str) -> Self {
        self.extra.push(option.to_owned());
        self
    }
}

/// MariaDB.
#[derive(Debug)]
pub struct Mariadb {
    settings: Settings,
    runner: Runner,
}

impl Program for Mariadb {
    fn command(server: &Server) -> Command {
        let (Mariadb { settings, runner }, data) = (&server.program, server.data());
        let mut command = runner.server_command(program(MYSQL_SERVER, "/usr/sbin/mariadbd"));
        let scratch = server.directory.path();
        let (socket, pid) = (data.join("s"), data.join("pid"));
        let own = [("datadir", data), ("socket", socket), ("pid-file", pid)].into_iter();
        let files = own.chain([("tmpdir", scratch.join("tmp")), ("init-file", scratch.join("users.sql"))]);
        command.arg("--no-defaults").args(files.map(|(option, path)| format!("--{option}={}", path.display())));
        command.arg(format!("--port={}", server.port.number()));
        command.args(["--bind-address=127.0.0.1", "--innodb-buffer-pool-size=64M", "--max-connections=600"]);
        command.args(["--skip-name-resolve", "--back-log=400", "--default-time-zone=+00:00"]).args(&settings.extra);
        command.envs(settings.system_zone.iter().map(|zone| ("TZ", zone)));
        command
    }

    fn serves(server: &Server) -> bool {
        server.sql("SELECT 1").is_ok()
    }

    fn requests(server: &Server) -> io::Result<u64> {
        let counted = server.sql("SHOW GLOBAL STATUS LIKE 'Questions'")?;
        let count = counted.split_whitespace().nth(1).and_then(|count| count.parse().ok());
        count.ok_or_else(|| io::Error::other(counted))
    }
}

/// A server. A dropped server is killed, and its data removed.
pub type Server = Daemon<Mariadb>;

impl Server {
    /// Starts a server and waits until it serves. The server has the user [`OWNER`], and a database of that name that the user owns.
    ///
    /// # Errors
    /// An error with the end of the log if the server does not serve.
    ///
    /// # Panics
    /// When MariaDB is not installed, with the command that installs it.
    pub fn start(settings: Settings) -> io::Result<Self> {
        MARIADB.require();
        let (directory, port, runner) = (open_scratch()?, Port::reserve()?, Runner::of(USER)?);
        fs::write(directory.path().join("users.sql"), users())?;
        run(Command::new("cp").arg("-a").arg(template(runner)?).arg(directory.path().join("data")))?;
        // A starting server removes the temporary tables of other servers in a shared directory.
        let temporary = directory.path().join("tmp");
        fs::create_dir(&temporary)?;
        runner.give(&temporary)?;
        Self::new(port, false, directory, Mariadb { settings, runner })?.started()
    }

    /// The URL of a store in the database that [`Server::start`] makes.
    #[must_use]
    pub fn url(&self) -> String {
        format!("mysql://{OWNER}:secret@{}/{OWNER}", self.address())
    }

    /// Runs statements as the administrator, and returns the plain output of the server's own command.
    pub fn sql(&self, statements: &str) -> io::Result<String> {
        sql_at(self.address(), statements)
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
         GRANT ALL ON {OWNER}.* TO {OWNER}@'%';\nCREATE USER IF NOT EXISTS root@'127.0.0.1';\n\
         GRANT ALL ON *.* TO root@'127.0.0.1' WITH GRANT OPTION;\n"
    )
}

fn template(runner: Runner) -> io::Result<PathBuf> {
    static TEMPLATE: Template = Template::new();
    TEMPLATE.data(runner, |data| {
        let mysqld = program(MYSQL_SERVER, "");
        let (installer, options) = match &*mysqld {
            "" => ("mariadb-install-db", ["--skip-test-db", "--auth-root-authentication-method=normal"].as_slice()),
            mysqld => (mysqld, ["--initialize-insecure"].as_slice()),
        };
        let mut install = runner.command(Path::new(installer));
        install.arg("--no-defaults").args(options);
        install.arg(format!("--datadir={}", data.display()));
        install
    })
}
