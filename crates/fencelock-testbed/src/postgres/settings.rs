//! The settings of a server at its start.

use std::fmt::Write as _;
use std::net::SocketAddr;
use std::path::PathBuf;

/// How a server is set up.
#[derive(Debug, Clone, Default)]
pub struct Settings {
    /// The server that this standby copies, asynchronously; `None` for a primary.
    pub standby_of: Option<SocketAddr>,
    /// TLS, next to connections in the clear.
    pub tls: Option<Tls>,
    /// Whether the server's wall clock can be moved, see [`Server::set_clock`](super::Server::set_clock). Needs a C compiler.
    pub own_clock: bool,
    /// Whether roles need a password; otherwise all users on this host are trusted.
    pub asks_passwords: bool,
    /// Further lines of its configuration, such as `max_connections = 20`; they win over ours.
    pub extra: Vec<String>,
}

/// TLS, on the same port.
#[derive(Debug, Clone)]
pub struct Tls {
    /// A PEM file with the server's certificate.
    pub certificate: PathBuf,
    /// A PEM file with its key.
    pub key: PathBuf,
}

impl Settings {
    /// Adds a line of configuration.
    #[must_use]
    pub fn with(mut self, line: &str) -> Self {
        self.extra.push(line.to_owned());
        self
    }

    /// The configuration, next to the one that `initdb` writes.
    pub(super) fn config(&self, port: u16, sockets: &str, tls: Option<(&str, &str)>) -> String {
        let mut config = format!(
            "listen_addresses = '127.0.0.1'\nport = {port}\nunix_socket_directories = '{sockets}'\nmax_connections = 400\n\
             shared_buffers = 64MB\nwal_level = replica\nmax_wal_senders = 4\nhot_standby = on\nlog_min_messages = warning\n\
             password_encryption = 'scram-sha-256'\nmax_wal_size = 256MB\nmin_wal_size = 64MB\nautovacuum_naptime = 1s\n\
             dynamic_shared_memory_type = mmap\n"
        );
        if let Some((certificate, key)) = tls {
            let _ = writeln!(config, "ssl = on\nssl_cert_file = '{certificate}'\nssl_key_file = '{key}'");
        }
        if let Some(primary) = self.standby_of {
            let (host, port) = (primary.ip(), primary.port());
            let _ = writeln!(config, "primary_conninfo = 'host={host} port={port} user=postgres'");
        }
        self.extra.iter().for_each(|line| config.extend([line, "\n"]));
        config
    }

    /// The roles that may connect, and from where.
    pub(super) fn access(&self) -> String {
        let way = if self.asks_passwords { "scram-sha-256" } else { "trust" };
        format!(
            "local all postgres trust\nlocal all all {way}\nhost replication postgres 127.0.0.1/32 trust\n\
             host all postgres 127.0.0.1/32 trust\nhost all all 127.0.0.1/32 {way}\n"
        )
    }
}
