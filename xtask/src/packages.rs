//! The needs of the machine besides Rust, and the Debian package that brings them.

pub(crate) use fencelock_testbed::install::{Need, ensure};
use fencelock_testbed::{
    CHROMIUM, CLOCK_SHIM, ETCD, MARIADB, Network, PGBOUNCER, POSTGRESQL, PROMETHEUS, PROXIES, Package, REDIS, SSH,
    SUDO, TERMINAL_PROGRAMS, ZOOKEEPER,
};

/// The programs of the gate's tests. Coreutils and a C linker are on every Debian that has Rust.
pub(crate) const GATE: &[Need] = &[
    Need { probe: &["bash", "--version"], package: "bash" },
    Need { probe: &["setsid", "--version"], package: "util-linux" },
    Need { probe: &["setpriv", "--version"], package: "util-linux" },
];

/// The servers that the gate's tests start.
pub(crate) const GATE_SERVERS: &[Package] =
    &[ZOOKEEPER, REDIS, POSTGRESQL, PGBOUNCER, MARIADB, ETCD, CLOCK_SHIM, PROMETHEUS, PROXIES, CHROMIUM];

/// The same for every test: also the tools that break the network before them, terminals, other users.
pub(crate) const SERVERS: &[Package] = &[
    ZOOKEEPER,
    REDIS,
    POSTGRESQL,
    MARIADB,
    ETCD,
    PGBOUNCER,
    CLOCK_SHIM,
    CHROMIUM,
    Network::PACKAGE,
    PROMETHEUS,
    PROXIES,
    TERMINAL_PROGRAMS,
    SSH,
    SUDO,
];

const PYTHON: Need = Need { probe: &["python3", "--version"], package: "python3" };
const VENV: Need = Need { probe: &["python3", "-c", "import venv, ensurepip"], package: "python3-venv" };

/// The peer of `bench`: Python's `filelock`, in an environment of its own.
pub(crate) const BENCH: &[Need] = &[PYTHON, VENV];

/// The tools that build and run the clients of other languages.
pub(crate) const INTEROP: &[Need] = &[
    Need { probe: &["javac", "--version"], package: "default-jdk-headless" },
    Need { probe: &["mvn", "--version"], package: "maven" },
    Need { probe: &["go", "version"], package: "golang-go" },
    PYTHON,
    VENV,
    Need { probe: &["node", "--version"], package: "nodejs" },
    Need { probe: &["npm", "--version"], package: "npm" },
];

#[cfg(test)]
mod tests {
    use fencelock_testbed::{KINDS, postgres};

    use super::*;

    #[test]
    fn the_gate_installs_every_server_that_its_tests_share() {
        for kind in KINDS.into_iter().chain([&postgres::POOLED]) {
            let is_installed = GATE_SERVERS.iter().any(|package| package.server == kind.package.server);
            assert!(is_installed, "{} is not in GATE_SERVERS", kind.package.server);
        }
    }
}
