//! The settings of an ensemble at its start.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use crate::Network;
use crate::ports::Port;

/// How servers are set up.
#[derive(Debug, Clone)]
pub struct Settings {
    /// The number of servers: 1 or 3.
    pub servers: usize,
    /// The length of a tick in milliseconds, the unit of everything the servers time; 500 by default.
    pub tick_ms: u64,
    /// How many ticks a follower may be out of touch with its leader; 4 by default.
    pub sync_limit: u64,
    /// The shortest session timeout that is granted, in milliseconds; two ticks by default.
    pub min_session_timeout_ms: u64,
    /// The longest session timeout that is granted, in milliseconds; 60,000 by default.
    pub max_session_timeout_ms: u64,
    /// Whether each follower reaches its leader through a proxy of its own, see [`Ensemble::link`](super::Ensemble::link).
    pub links: bool,
    /// Hosts for the servers, one each, instead of 127.0.0.1 for all; then there are no links.
    pub network: Option<Arc<Network>>,
    /// A second client port with TLS.
    pub tls: Option<Tls>,
    /// Further lines of `zoo.cfg`, such as `forceSync=no`; they override the settings above.
    pub extra: Vec<(String, String)>,
    /// Java's arguments; by default for a small server that starts soon.
    pub java: Vec<String>,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            servers: 1,
            tick_ms: 500,
            sync_limit: 4,
            min_session_timeout_ms: 1000,
            max_session_timeout_ms: 60_000,
            links: false,
            network: None,
            tls: None,
            extra: Vec::new(),
            java: ["-Xmx48m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-XX:-UsePerfData"]
                .map(str::to_owned)
                .into(),
        }
    }
}

impl Settings {
    /// Three servers, their links through proxies.
    #[must_use]
    pub fn ensemble() -> Self {
        Self { servers: 3, links: true, ..Self::default() }
    }

    /// A further line of `zoo.cfg`.
    #[must_use]
    pub fn with(mut self, key: &str, value: impl ToString) -> Self {
        self.extra.push((key.to_owned(), value.to_string()));
        self
    }

    /// The memory of a server in mebibytes.
    #[must_use]
    pub fn heap(mut self, mebibytes: usize) -> Self {
        self.java.push(format!("-Xmx{mebibytes}m"));
        self
    }

    /// A port for the server with this number: any one, or `usual` on a host of its own.
    pub(super) fn port(&self, number: usize, usual: u16) -> io::Result<Port> {
        match &self.network {
            None => Port::reserve(),
            Some(network) => Ok(Port::elsewhere(network.address(number), usual)),
        }
    }

    /// The beginning of every server's `zoo.cfg`.
    pub(super) fn common(&self) -> Vec<(String, String)> {
        let pair = |key: &str, value: &dyn ToString| (key.to_owned(), value.to_string());
        let mut lines = vec![
            pair("tickTime", &self.tick_ms),
            pair("initLimit", &20),
            pair("syncLimit", &self.sync_limit),
            pair("minSessionTimeout", &self.min_session_timeout_ms),
            pair("maxSessionTimeout", &self.max_session_timeout_ms),
            pair("maxClientCnxns", &0),
            pair("4lw.commands.whitelist", &"*"),
            pair("admin.enableServer", &false),
        ];
        if let Some(tls) = &self.tls {
            lines.push(pair("serverCnxnFactory", &"org.apache.zookeeper.server.NettyServerCnxnFactory"));
            lines.push(pair("ssl.keyStore.location", &tls.identity.display()));
            lines.push(pair("ssl.trustStore.location", &tls.trusted.display()));
            lines.push(pair("ssl.keyStore.type", &"PEM"));
            lines.push(pair("ssl.trustStore.type", &"PEM"));
            lines.push(pair("ssl.clientAuth", &if tls.asks_clients { "need" } else { "none" }));
        }
        lines
    }
}

/// TLS on a second client port.
#[derive(Debug, Clone)]
pub struct Tls {
    /// A PEM file (named `*.pem`) with the server's key, as PKCS #8, and its chain of certificates.
    pub identity: PathBuf,
    /// A PEM file (named `*.pem`) with the certificates that clients are checked against.
    pub trusted: PathBuf,
    /// Whether clients have to show a certificate.
    pub asks_clients: bool,
}
