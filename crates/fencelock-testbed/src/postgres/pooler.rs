//! PgBouncer before a server.

use std::fs;
use std::io;
use std::net::{SocketAddr, TcpStream};
use std::process::Stdio;
use std::sync::Mutex;

use super::server::USER;
use crate::packages::PGBOUNCER;
use crate::ports::Port;
use crate::process::{Process, bound};
use crate::runner::{Runner, open_scratch};
use crate::scratch::Scratch;
use crate::{PATIENCE, wait_until};

/// A pooler. Dropping it kills it.
#[derive(Debug)]
pub struct Pooler {
    port: Port,
    _process: Mutex<Process>,
    _directory: Scratch,
}

impl Pooler {
    /// Starts one before the server at `upstream`, in this mode: `session` or `transaction`.
    ///
    /// # Errors
    /// When it does not serve.
    ///
    /// # Panics
    /// When PgBouncer is not installed, with the command that installs it.
    pub fn start(upstream: SocketAddr, mode: &str) -> io::Result<Self> {
        PGBOUNCER.require();
        let (directory, port, runner) = (open_scratch()?, Port::reserve()?, Runner::of(USER)?);
        runner.give(directory.path())?;
        let path = directory.path().display();
        let config = format!(
            "[databases]\n* = host={} port={}\n[pgbouncer]\nlisten_addr = 127.0.0.1\nlisten_port = {}\nunix_socket_dir =\n\
             auth_type = trust\nauth_file = {path}/users\nlogfile = {path}/log\npool_mode = {mode}\n",
            upstream.ip(),
            upstream.port(),
            port.number(),
        );
        for (file, text) in [("pgbouncer.ini", config.as_str()), ("users", "\"fencelock\" \"secret\"\n")] {
            fs::write(directory.path().join(file), text)?;
            runner.give(&directory.path().join(file))?;
        }
        let words = runner.words_of_server();
        let mut command = bound(&words[0]);
        command
            .args(&words[1..])
            .args(["/usr/sbin/pgbouncer", "-q"])
            .arg(directory.path().join("pgbouncer.ini"))
            .current_dir("/");
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let process = Process::start(command)?;
        let pooler = Self { port, _process: Mutex::new(process), _directory: directory };
        match wait_until(PATIENCE, || TcpStream::connect(pooler.address()).is_ok()) {
            true => Ok(pooler),
            false => Err(io::Error::other("PgBouncer does not serve")),
        }
    }

    /// Where clients connect.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.port.address()
    }
}
