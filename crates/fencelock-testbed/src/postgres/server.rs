//! A server: its files, and statements to it.

use std::fs::{self, DirBuilder};
use std::io;
use std::net::SocketAddr;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use rustix::process::Signal;

use super::pooler::Pooler;
use super::settings::Settings;
use super::shared::OWNER;
use crate::daemon::{Daemon, Program, signal};
use crate::packages::POSTGRESQL;
use crate::ports::Port;
use crate::runner::{Runner, Template, open_scratch, run};
use crate::versions::postgres_program;
use crate::wait_for;

/// The user of the server's package.
pub(super) const USER: &str = "postgres";

/// PostgreSQL.
#[derive(Debug)]
pub struct Postgres {
    settings: Settings,
    runner: Runner,
    /// The pooler that clients connect to, if there is one.
    pub(super) pooler: Option<Pooler>,
}

impl Program for Postgres {
    fn command(server: &Server) -> Command {
        let mut command = server.program.runner.server_command(postgres_program("postgres"));
        command.arg("-D").arg(server.data());
        command
    }

    fn serves(server: &Server) -> bool {
        server.sql("postgres", "SELECT 1").is_ok()
    }

    fn requests(server: &Server) -> io::Result<u64> {
        let counted = "SELECT sum(xact_commit + xact_rollback)::bigint FROM pg_stat_database";
        server.sql("postgres", counted)?.trim().parse().map_err(io::Error::other)
    }

    fn front(&self) -> Option<SocketAddr> {
        self.pooler.as_ref().map(Pooler::address)
    }
}

/// A server. A dropped server is killed, and its data removed.
pub type Server = Daemon<Postgres>;

impl Server {
    /// Starts a server and waits until it serves. The server has the role [`OWNER`], and a database of that name that the role owns.
    ///
    /// # Errors
    /// An error with the end of the log if the server does not serve.
    ///
    /// # Panics
    /// When PostgreSQL is not installed, with the command that installs it.
    pub fn start(settings: Settings) -> io::Result<Self> {
        let is_primary = settings.standby_of.is_none();
        let server = Self::prepare(settings)?.started()?;
        if is_primary {
            server.sql("postgres", &format!("CREATE ROLE {OWNER} LOGIN PASSWORD 'secret'"))?;
            server.sql("postgres", &format!("CREATE DATABASE {OWNER} OWNER {OWNER}"))?;
        }
        Ok(server)
    }

    fn prepare(settings: Settings) -> io::Result<Self> {
        POSTGRESQL.require();
        let (directory, port, runner) = (open_scratch()?, Port::reserve()?, Runner::of(USER)?);
        let data = directory.path().join("data");
        match settings.standby_of {
            None => {
                run(Command::new("cp").arg("-a").arg(template(runner)?).arg(&data))?;
            }
            Some(primary) => {
                DirBuilder::new().mode(0o700).create(&data)?;
                runner.give(&data)?;
                let mut copy = runner.command(&postgres_program("pg_basebackup"));
                copy.args(["-h", &primary.ip().to_string(), "-p", &primary.port().to_string(), "-U", "postgres"]);
                copy.args(["--checkpoint=fast", "--no-sync", "-R", "-D"]).arg(&data);
                run(&mut copy)?;
            }
        }
        let sockets = directory.path().join("sockets");
        fs::create_dir(&sockets)?;
        runner.give(&sockets)?;
        let tls = match &settings.tls {
            None => None,
            Some(tls) => Some((own_copy(runner, &tls.certificate, &data)?, own_copy(runner, &tls.key, &data)?)),
        };
        let own_clock = settings.own_clock;
        let server = Self::new(port, own_clock, directory, Postgres { settings, runner, pooler: None })?;
        let tls = tls.as_ref().map(|(certificate, key)| (&**certificate, &**key));
        let settings = &server.program.settings;
        let config = settings.config(server.port.number(), &sockets.to_string_lossy(), tls);
        for (file, text) in [("postgresql.auto.conf", config), ("pg_hba.conf", settings.access())] {
            fs::write(data.join(file), text)?;
            runner.give(&data.join(file))?;
        }
        Ok(server)
    }

    /// The directory of its socket file.
    #[must_use]
    pub fn sockets(&self) -> PathBuf {
        self.directory.path().join("sockets")
    }

    /// The URL of a store in the database that [`Server::start`] makes.
    #[must_use]
    pub fn url(&self) -> String {
        format!("postgres://{OWNER}:secret@{}/{OWNER}", self.address())
    }

    /// Runs statements as the superuser, and returns the plain output of `psql`.
    pub fn sql(&self, database: &str, statements: &str) -> io::Result<String> {
        sql_at(self.address(), database, statements)
    }

    /// Ends the server as an immediate shutdown does: without a notice, and without data that was not on disk yet.
    pub fn stop_immediately(&self) -> io::Result<()> {
        let Some(mut process) = self.process().take() else { return Ok(()) };
        signal(&[process.id()], Signal::QUIT);
        wait_for("the server ends", || matches!(process.ended(), Ok(Some(_))))
    }

    /// Promotes a standby, so that it takes writes.
    pub fn promote(&self) -> io::Result<()> {
        self.sql("postgres", "SELECT pg_promote(true, 60)").map(drop)
    }
}

/// Runs statements as the superuser of the server at `address`.
pub(super) fn sql_at(address: SocketAddr, database: &str, statements: &str) -> io::Result<String> {
    let mut psql = Command::new(postgres_program("psql"));
    psql.args(["-XAtq", "-v", "ON_ERROR_STOP=1", "-U", "postgres", "-d", database]).args(["-c", statements]);
    psql.args(["-h", &address.ip().to_string(), "-p", &address.port().to_string()]).env("PGCONNECT_TIMEOUT", "10");
    run(psql.stdin(Stdio::null()).current_dir("/"))
}

/// The data of a server that never ran, whose superuser is `postgres`.
fn template(runner: Runner) -> io::Result<PathBuf> {
    static TEMPLATE: Template = Template::new();
    TEMPLATE.data(runner, |data| {
        let mut initdb = runner.command(&postgres_program("initdb"));
        initdb.args(["--no-sync", "-U", "postgres", "-E", "UTF8", "--locale=C", "--auth=trust", "-D"]).arg(data);
        initdb
    })
}

/// A copy that only the server's user can read, as the server demands for a key.
fn own_copy(runner: Runner, file: &Path, data: &Path) -> io::Result<String> {
    use std::os::unix::fs::PermissionsExt;
    let copy = data.join(file.file_name().unwrap_or_default());
    fs::copy(file, &copy)?;
    fs::set_permissions(&copy, fs::Permissions::from_mode(0o600))?;
    runner.give(&copy)?;
    Ok(copy.to_string_lossy().into_owned())
}
