//! PgBouncer before a server.

use std::fs;
use std::io;
use std::net::{SocketAddr, TcpStream};
use std::process::Stdio;
use std::sync::Mutex;

use super::server::{USER, sql_at};
use crate::packages::PGBOUNCER;
use crate::ports::Port;
use crate::process::Process;
use crate::runner::{Runner, open_scratch};
use crate::scratch::Scratch;
use crate::wait_for;

/// A pooler. A dropped pooler is killed.
#[derive(Debug)]
pub struct Pooler {
    port: Port,
    mode: String,
    _process: Mutex<Process>,
    directory: Scratch,
}

impl Pooler {
    /// Starts a pooler before the server at `upstream`, in this mode: `session`, `transaction` or `statement`; further lines of its
    /// configuration may follow.
    ///
    /// # Panics
    /// When PgBouncer is not installed, with the command that installs it.
    pub fn start(upstream: SocketAddr, mode: &str) -> io::Result<Self> {
        PGBOUNCER.require();
        let (directory, port, runner) = (open_scratch()?, Port::reserve()?, Runner::of(USER)?);
        runner.give(directory.path())?;
        let users = directory.path().join("users");
        fs::write(&users, "\"fencelock\" \"secret\"\n\"postgres\" \"\"\n")?;
        runner.give(&users)?;
        write_config(&directory, runner, port.number(), upstream, mode)?;
        let mut command = runner.server_command("/usr/sbin/pgbouncer");
        command.arg("-q").arg(directory.path().join("pgbouncer.ini"));
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let process = Process::start(command)?;
        let pooler = Self { port, mode: mode.to_owned(), _process: Mutex::new(process), directory };
        wait_for("PgBouncer serves", || TcpStream::connect(pooler.address()).is_ok()).map(|()| pooler)
    }

    /// Where clients connect.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.port.address()
    }

    /// Runs a command of the pooler's console, such as `PAUSE` and `RESUME`.
    pub fn command(&self, command: &str) -> io::Result<String> {
        sql_at(self.address(), "pgbouncer", command)
    }

    /// Leads the next transactions to another server, as after a failover. The clients stay connected.
    pub fn lead_to(&self, upstream: SocketAddr) -> io::Result<()> {
        write_config(&self.directory, Runner::of(USER)?, self.port.number(), upstream, &self.mode)?;
        self.command("RELOAD").map(drop)
    }
}

fn write_config(directory: &Scratch, runner: Runner, port: u16, upstream: SocketAddr, mode: &str) -> io::Result<()> {
    let (path, file) = (directory.path().display(), directory.path().join("pgbouncer.ini"));
    let config = format!(
        "[databases]\n* = host={} port={}\n[pgbouncer]\nlisten_addr = 127.0.0.1\nlisten_port = {port}\nunix_socket_dir =\n\
         auth_type = trust\nauth_file = {path}/users\nadmin_users = postgres\nlogfile = {path}/log\nmax_client_conn = 1000\n\
         server_idle_timeout = 5\npool_mode = {mode}\n",
        upstream.ip(),
        upstream.port(),
    );
    fs::write(&file, config)?;
    runner.give(&file)
}
