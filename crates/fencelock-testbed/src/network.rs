//! Hosts in network namespaces, joined by a bridge, between which packets can be dropped. Needs root; everything else in
//! this crate does not.

use std::fs::{self, File};
use std::io::{self, Write};
use std::net::{IpAddr, Ipv4Addr};
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread;

use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

use crate::process::bound;

/// Some hosts and a hub that reaches all of them. The root namespace has no address in there. The drop removes the
/// namespaces; processes in them must have ended before.
#[derive(Debug)]
pub struct Network {
    id: String,
    hosts: usize,
    /// The sender of dropped packets, and their receiver.
    cuts: Mutex<Vec<(From, usize)>>,
}

/// The source of packets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum From {
    Host(usize),
    Anywhere,
}

impl Network {
    /// The package to install.
    pub const PACKAGE: crate::Package = crate::Package {
        server: "a network of namespaces",
        files: &[("/usr/sbin/nft", "nftables"), ("/usr/sbin/ip", "iproute2")],
    };

    /// Sets up `hosts` hosts, up to 200.
    ///
    /// # Errors
    /// Without root, which the error says; otherwise what `ip` says.
    ///
    /// # Panics
    /// When `ip` or `nft` is not installed, with the command that installs them.
    pub fn start(hosts: usize) -> io::Result<Self> {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        Self::PACKAGE.require();
        if !rustix::process::geteuid().is_root() {
            let needs = "network namespaces need root: run these tests as root";
            return Err(io::Error::new(io::ErrorKind::PermissionDenied, needs));
        }
        remove_what_the_dead_left();
        let id = format!("fl{}-{}", std::process::id(), NUMBER.fetch_add(1, Ordering::Relaxed));
        let network = Self { id, hosts, cuts: Mutex::default() };
        network.set_up()?;
        Ok(network)
    }

    fn set_up(&self) -> io::Result<()> {
        let hub = self.hub();
        ip(&["netns", "add", &hub])?;
        // A device cannot be called "br": `ip` takes that for "broadcast".
        ip(&["-n", &hub, "link", "add", "name", "flbr", "type", "bridge"])?;
        ip(&["-n", &hub, "addr", "add", &format!("{}/24", address(HUB)), "dev", "flbr"])?;
        ip(&["-n", &hub, "link", "set", "flbr", "up"])?;
        ip(&["-n", &hub, "link", "set", "lo", "up"])?;
        for number in 0..self.hosts {
            let (host, cable) = (self.host(number), format!("v{number}"));
            ip(&["netns", "add", &host])?;
            ip(&["-n", &hub, "link", "add", &cable, "type", "veth", "peer", "name", "eth0", "netns", &host])?;
            ip(&["-n", &hub, "link", "set", &cable, "master", "flbr", "up"])?;
            ip(&["-n", &host, "addr", "add", &format!("{}/24", address(number)), "dev", "eth0"])?;
            ip(&["-n", &host, "link", "set", "eth0", "up"])?;
            ip(&["-n", &host, "link", "set", "lo", "up"])?;
        }
        Ok(())
    }

    /// The address of a host.
    #[must_use]
    pub fn address(&self, host: usize) -> IpAddr {
        address(host).into()
    }

    /// The address of the hub.
    #[must_use]
    pub fn hub_address(&self) -> IpAddr {
        address(HUB).into()
    }

    /// A command that runs `program` on a host, killed with this process; see [`spawn`](crate::process::spawn).
    #[must_use]
    pub fn command(&self, host: usize, program: &str) -> Command {
        let mut command = bound("ip");
        command.args(["netns", "exec", &self.host(host), program]);
        command
    }

    /// Runs `work` on a thread in the hub. Threads and processes that it starts are there too.
    pub fn inside<T: Send>(&self, work: impl FnOnce() -> T + Send) -> io::Result<T> {
        let hub = File::open(format!("/run/netns/{}", self.hub()))?;
        let enter = || {
            move_into_link_name_space(std::os::fd::AsFd::as_fd(&hub), Some(LinkNameSpaceType::Network))?;
            Ok(work())
        };
        thread::scope(|scope| scope.spawn(enter).join()).unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    }

    /// Drops every packet between two hosts.
    pub fn cut(&self, one: usize, other: usize) -> io::Result<()> {
        self.cut_one_way(one, other)?;
        self.cut_one_way(other, one)
    }

    /// Drops every packet from one host to another, and none on the way back.
    pub fn cut_one_way(&self, from: usize, to: usize) -> io::Result<()> {
        self.drop_packets(From::Host(from), to)
    }

    /// Drops every packet that enters or leaves a host. The host still answers requests for its address: no message says that the host is away.
    pub fn black_hole(&self, host: usize) -> io::Result<()> {
        self.drop_packets(From::Anywhere, host)
    }

    fn drop_packets(&self, from: From, to: usize) -> io::Result<()> {
        let mut cuts = self.cuts.lock().unwrap_or_else(PoisonError::into_inner);
        cuts.push((from, to));
        self.filter(to, &cuts)
    }

    /// Cuts a host off from all other hosts and the hub.
    pub fn pull_cable(&self, host: usize) -> io::Result<()> {
        ip(&["-n", &self.hub(), "link", "set", &format!("v{host}"), "down"])
    }

    /// Lets every packet through again.
    pub fn heal(&self) -> io::Result<()> {
        let mut cuts = self.cuts.lock().unwrap_or_else(PoisonError::into_inner);
        cuts.clear();
        (0..self.hosts).try_for_each(|host| {
            self.filter(host, &cuts)?;
            ip(&["-n", &self.hub(), "link", "set", &format!("v{host}"), "up"])
        })
    }

    /// Drops packets at `host` from the hosts of `cuts`.
    fn filter(&self, host: usize, cuts: &[(From, usize)]) -> io::Result<()> {
        let rule = |from| match from {
            From::Host(from) => format!("ip saddr {} drop\n", address(from)),
            From::Anywhere => "drop\n".to_owned(),
        };
        let drops: String = cuts.iter().filter(|(_, to)| *to == host).map(|(from, _)| rule(*from)).collect();
        let leaving = if cuts.contains(&(From::Anywhere, host)) { "drop\n" } else { "" };
        let chain =
            |name, hook, rules: &str| format!("chain {name} {{\ntype filter hook {hook} priority 0;\n{rules}}}\n");
        let chains = chain("i", "input", &drops) + &chain("o", "output", leaving);
        let rules = format!("table ip flcut\ndelete table ip flcut\ntable ip flcut {{\n{chains}}}\n");
        let mut nft = Command::new("ip");
        nft.args(["netns", "exec", &self.host(host), "nft", "-f", "-"]).stdin(Stdio::piped());
        let mut child = nft.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn()?;
        child.stdin.take().map_or(Ok(()), |mut input| input.write_all(rules.as_bytes()))?;
        succeeded("nft", &child.wait_with_output()?)
    }

    fn hub(&self) -> String {
        format!("{}hub", self.id)
    }

    fn host(&self, number: usize) -> String {
        format!("{}h{number}", self.id)
    }
}

impl Drop for Network {
    fn drop(&mut self) {
        // The devices are removed with their namespaces.
        for host in (0..self.hosts).map(|number| self.host(number)).chain([self.hub()]) {
            let _ = ip(&["netns", "del", &host]);
        }
    }
}

/// Removes namespaces of processes that could not remove them.
fn remove_what_the_dead_left() {
    let owner = |name: &str| name.strip_prefix("fl")?.split_once('-')?.0.parse::<u32>().ok();
    let is_dead = |pid: u32| !Path::new("/proc").join(pid.to_string()).exists();
    for entry in fs::read_dir("/run/netns").into_iter().flatten().flatten() {
        if let Some(name) = entry.file_name().to_str()
            && owner(name).is_some_and(is_dead)
        {
            // Another process may remove the namespace, too.
            let _ = ip(&["netns", "del", name]);
        }
    }
}

/// The number behind all hosts.
const HUB: usize = 200;

/// The address is in a range for such measurements (RFC 2544), which is never routed.
fn address(host: usize) -> Ipv4Addr {
    Ipv4Addr::new(198, 18, 7, u8::try_from(host + 1).unwrap_or(254))
}

fn ip(args: &[&str]) -> io::Result<()> {
    succeeded("ip", &Command::new("ip").args(args).stdin(Stdio::null()).output()?)
}

fn succeeded(program: &str, output: &Output) -> io::Result<()> {
    match output.status.success() {
        true => Ok(()),
        false => Err(io::Error::other(format!("{program}: {}", String::from_utf8_lossy(&output.stderr).trim()))),
    }
}
