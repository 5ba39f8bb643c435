//! A member, or the members of a cluster: files and requests.

use std::io::{self, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::process::Command;

use crate::daemon::{Daemon, Program};
use crate::packages::ETCD;
use crate::ports::Port;
use crate::process::bound;
use crate::runner::{open_scratch, run};
use crate::versions::{ETCD_SERVER, program};

/// etcd.
#[derive(Debug)]
pub struct Etcd {
    peers: Port,
    /// Where the member reports its health and its counters, without TLS.
    about: Port,
    extra: Vec<String>,
    /// Every member and the address for its peers, in the form of `--initial-cluster`.
    cluster: String,
}

impl Program for Etcd {
    fn command(member: &Server) -> Command {
        let Self { about, extra, cluster, .. } = &member.program;
        let is_secure = extra.iter().any(|option| option == "--cert-file");
        let clients = format!("{}://{}", if is_secure { "https" } else { "http" }, member.address());
        let (peers, about) = (member.peer_url(), format!("http://{}", about.address()));
        let mut command = bound(program(ETCD_SERVER, "/usr/bin/etcd"));
        command.current_dir("/").arg("--data-dir").arg(member.data());
        command.args(["--name", &member.name(), "--listen-client-urls", &clients, "--advertise-client-urls", &clients]);
        command.args(["--listen-peer-urls", &peers, "--initial-advertise-peer-urls", &peers]);
        command.args(["--listen-metrics-urls", &about]);
        command.args(["--initial-cluster", cluster, "--log-level", "warn", "--logger", "zap"]);
        // With this election timeout, the shortest lease is a second.
        command.args(["--heartbeat-interval", "50", "--election-timeout", "500"]).args(extra);
        command
    }

    fn serves(member: &Server) -> bool {
        get(member.program.about.address(), "/health").is_ok_and(|health| health.contains("\"true\""))
    }

    fn requests(member: &Server) -> io::Result<u64> {
        member.requests_for("")
    }
}

/// A member. A dropped member is killed, and its data removed.
pub type Server = Daemon<Etcd>;

impl Server {
    /// Starts a member with these further options, and waits until it serves. With `--cert-file`, clients connect over TLS only.
    ///
    /// # Errors
    /// An error with the end of the log if the member does not serve.
    ///
    /// # Panics
    /// When etcd is not installed, with the command that installs it.
    pub fn start(extra: &[&str]) -> io::Result<Self> {
        Ok(Self::cluster(1, extra)?.remove(0))
    }

    /// Starts a cluster of `count` members, and waits until each serves.
    ///
    /// # Errors
    /// When a member does not, with the end of its log.
    ///
    /// # Panics
    /// When etcd is not installed, with the command that installs it.
    pub fn cluster(count: usize, extra: &[&str]) -> io::Result<Vec<Self>> {
        ETCD.require();
        let member = |_| {
            let [clients, peers, about] = [Port::reserve()?, Port::reserve()?, Port::reserve()?];
            let extra = extra.iter().map(|option| (*option).to_owned()).collect();
            Self::new(clients, false, open_scratch()?, Etcd { peers, about, extra, cluster: String::new() })
        };
        let mut members = (0..count).map(member).collect::<io::Result<Vec<_>>>()?;
        let cluster: Vec<_> = members.iter().map(|member| format!("{}={}", member.name(), member.peer_url())).collect();
        for member in &mut members {
            member.program.cluster = cluster.join(",");
            member.restart()?;
        }
        members.iter().try_for_each(Self::wait_until_serving)?;
        Ok(members)
    }

    fn name(&self) -> String {
        format!("m{}", self.program.peers.address().port())
    }

    fn peer_url(&self) -> String {
        format!("http://{}", self.program.peers.address())
    }

    /// Runs `etcdctl`, and returns its output.
    pub fn control(&self, arguments: &[&str]) -> io::Result<String> {
        run(control(self.address()).args(arguments))
    }

    /// Creates the users `root` (password `top`) and `me` (`s3cret`, with rights on `locks/`), and turns authentication on. `options` go to
    /// `etcdctl`.
    pub fn demand_users(&self, options: &[&str]) -> io::Result<()> {
        let steps = "user add root:top;user add me:s3cret;role add locks;role grant-permission locks readwrite --prefix=true locks/;\
                     user grant-role me locks;user grant-role root root;auth enable";
        let run = |step: &str| self.control(&[options, &step.split(' ').collect::<Vec<_>>()].concat()).map(drop);
        steps.split(';').try_for_each(run)
    }

    /// Whether the member says that it leads its cluster.
    #[must_use]
    pub fn is_leader(&self) -> bool {
        get(self.program.about.address(), "/metrics")
            .is_ok_and(|metrics| metrics.contains("\netcd_server_is_leader 1\n"))
    }

    /// How many requests of a method the member has received, such as `Authenticate` or `Range`; of every method with an empty name.
    pub fn requests_for(&self, method: &str) -> io::Result<u64> {
        let metrics = get(self.program.about.address(), "/metrics")?;
        let begin = format!("grpc_server_started_total{{grpc_method=\"{method}");
        let counts = metrics.lines().filter(|line| line.starts_with(&begin));
        counts.map(|line| line.rsplit(' ').next().unwrap_or_default().parse::<u64>().map_err(io::Error::other)).sum()
    }
}

/// `etcdctl` for the member at `address`.
fn control(address: SocketAddr) -> Command {
    let mut control = Command::new("/usr/bin/etcdctl");
    control.env("ETCDCTL_API", "3").arg(format!("--endpoints={address}")).current_dir("/");
    control
}

/// The answer of the member to a GET, with its headers.
fn get(address: SocketAddr, path: &str) -> io::Result<String> {
    let mut stream = TcpStream::connect(address)?;
    write!(stream, "GET {path} HTTP/1.0\r\nHost: {address}\r\n\r\n")?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    Ok(answer)
}
