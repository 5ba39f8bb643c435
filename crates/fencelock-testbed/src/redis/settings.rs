//! The settings of a server at its start.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::Network;
use crate::versions::asks_for_debug_commands;

/// How a server is set up.
#[derive(Debug, Clone, Default)]
pub struct Settings {
    /// The server's role towards other servers.
    pub role: Role,
    /// The password of the user `default`, who has none otherwise.
    pub password: Option<String>,
    /// Whether every change is on disk before it is answered; otherwise nothing outlives the process but what `SAVE` wrote.
    pub durable: bool,
    /// A second port with TLS.
    pub tls: Option<Tls>,
    /// Whether the server's wall clock can be moved, see [`Server::set_clock`](super::Server::set_clock). Needs a C compiler.
    pub own_clock: bool,
    /// The host on which the server runs, instead of here. There, the server listens on all addresses.
    pub host: Option<(Arc<Network>, usize)>,
    /// Further lines of its configuration, such as `maxmemory 3mb`; they override the settings above.
    pub extra: Vec<String>,
}

/// The role of a server towards other servers.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Role {
    /// The only server, or the server that replicas copy.
    #[default]
    Alone,
    /// Copies the server at this address.
    ReplicaOf(SocketAddr),
    /// Watches over the server at this address, which it calls `locks`.
    SentinelOf(SocketAddr),
    /// A node of a cluster, which has every slot once it is assigned.
    ClusterNode,
    /// A node of a cluster, without slots at first.
    ClusterMember,
}

/// TLS on a second port.
#[derive(Debug, Clone)]
pub struct Tls {
    /// A PEM file with the server's certificate.
    pub certificate: PathBuf,
    /// A PEM file with its key.
    pub key: PathBuf,
    /// A PEM file with the certificates that clients are checked against.
    pub trusted: PathBuf,
    /// Whether clients have to show a certificate.
    pub asks_clients: bool,
}

impl Settings {
    /// A server of this role.
    #[must_use]
    pub fn role(role: Role) -> Self {
        Self { role, ..Self::default() }
    }

    /// A further line of the configuration.
    #[must_use]
    pub fn with(mut self, line: &str) -> Self {
        self.extra.push(line.to_owned());
        self
    }

    /// A further user, by the rules of an access list such as `on >secret ~* &* +@all`.
    #[must_use]
    pub fn with_user(self, name: &str, rules: &str) -> Self {
        self.with(&format!("user {name} {rules}"))
    }

    /// The configuration of a server with these ports that keeps everything in `directory`.
    pub(super) fn config(&self, port: u16, tls_port: Option<u16>, bus: Option<u16>, directory: &Path) -> String {
        let mut lines = vec![
            format!("port {port}"),
            format!("bind {}", if self.host.is_some() { "0.0.0.0" } else { "127.0.0.1" }),
            format!("dir {}", directory.display()),
        ];
        if let Role::SentinelOf(primary) = self.role {
            lines.push(format!("sentinel monitor locks {} {} 2", primary.ip(), primary.port()));
            lines.push("sentinel down-after-milliseconds locks 500".to_owned());
            // A failover that did not succeed is tried again after twice this time.
            lines.push("sentinel failover-timeout locks 3000".to_owned());
        } else {
            lines.extend(self.data(directory, bus));
        }
        lines.extend(self.password.iter().map(|password| format!("requirepass {password}")));
        lines.extend(self.tls.iter().zip(tls_port).flat_map(|(tls, port)| tls.lines(port)));
        lines.extend(self.extra.iter().cloned());
        lines.join("\n") + "\n"
    }

    fn data(&self, directory: &Path, bus: Option<u16>) -> Vec<String> {
        let mut lines = vec![format!("unixsocket {}", directory.join("socket").display())];
        lines.extend(["save \"\"", "databases 4096"].map(str::to_owned));
        lines.extend(asks_for_debug_commands().then(|| "enable-debug-command yes".to_owned()));
        if self.durable {
            lines.extend(["appendonly yes", "appendfsync always"].map(str::to_owned));
        }
        match self.role {
            Role::ReplicaOf(primary) => lines.push(format!("replicaof {} {}", primary.ip(), primary.port())),
            Role::ClusterNode => lines.push("cluster-enabled yes".to_owned()),
            Role::ClusterMember => {
                lines.extend(["cluster-enabled yes", "repl-diskless-sync-delay 0"].map(str::to_owned));
                lines.extend(bus.map(|bus| format!("cluster-port {bus}")));
            }
            // The server makes a copy for a replica at once, without a wait for further replicas.
            Role::Alone => lines.push("repl-diskless-sync-delay 0".to_owned()),
            Role::SentinelOf(_) => {}
        }
        lines
    }
}

impl Tls {
    fn lines(&self, port: u16) -> [String; 5] {
        [
            format!("tls-port {port}"),
            format!("tls-cert-file {}", self.certificate.display()),
            format!("tls-key-file {}", self.key.display()),
            format!("tls-ca-cert-file {}", self.trusted.display()),
            format!("tls-auth-clients {}", if self.asks_clients { "yes" } else { "no" }),
        ]
    }
}
