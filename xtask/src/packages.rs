//! What has to be on the machine besides Rust, and the Debian package that brings it.

use std::fs::{self, File, Permissions};
use std::io::{ErrorKind, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use fencelock_testbed::{
    CLOCK_SHIM, Network, PGBOUNCER, POSTGRESQL, Package, REDIS, SSH, SUDO, TERMINAL_PROGRAMS, ZOOKEEPER,
    ZOOKEEPER_COMMAND,
};

use crate::shell::{self, Result};

/// Something that is there when `probe` succeeds, and comes with `package` when it is not.
#[derive(Debug)]
pub(crate) struct Need {
    pub(crate) probe: &'static [&'static str],
    pub(crate) package: &'static str,
}

/// What the tests run. Coreutils and a C linker are on every Debian that has Rust.
pub(crate) const TESTS: &[Need] = &[
    Need { probe: &["bash", "--version"], package: "bash" },
    Need { probe: &["setsid", "--version"], package: "util-linux" },
    Need { probe: &["setpriv", "--version"], package: "util-linux" },
];

/// The servers that the tests start, the network before them, and a server's own command.
pub(crate) const SERVERS: &[Package] = &[
    ZOOKEEPER,
    ZOOKEEPER_COMMAND,
    REDIS,
    POSTGRESQL,
    PGBOUNCER,
    CLOCK_SHIM,
    Network::PACKAGE,
    TERMINAL_PROGRAMS,
    SSH,
    SUDO,
];

/// What `bench` compares with: Python's `filelock`, in an environment of its own.
pub(crate) const BENCH: &[Need] = &[
    Need { probe: &["python3", "--version"], package: "python3" },
    Need { probe: &["python3", "-c", "import venv, ensurepip"], package: "python3-venv" },
];

/// What builds and runs the clients of other languages.
pub(crate) const INTEROP: &[Need] = &[
    Need { probe: &["setpriv", "--version"], package: "util-linux" },
    Need { probe: &["javac", "--version"], package: "default-jdk-headless" },
    Need { probe: &["mvn", "--version"], package: "maven" },
    Need { probe: &["go", "version"], package: "golang-go" },
    Need { probe: &["python3", "--version"], package: "python3" },
    Need { probe: &["python3", "-c", "import venv, ensurepip"], package: "python3-venv" },
    Need { probe: &["node", "--version"], package: "nodejs" },
    Need { probe: &["npm", "--version"], package: "npm" },
];

/// Installs what is missing when we are root; otherwise fails with the command that does.
pub(crate) fn ensure(needs: &[Need], servers: &[Package]) -> Result {
    let missing = missing(needs, servers);
    if missing.is_empty() {
        return Ok(());
    }
    let packages = missing.join(" ");
    if !shell::succeeds(Command::new("apt-get").arg("--version")) {
        return Err(format!("this machine has no apt-get; install what Debian calls: {packages}"));
    }
    if !is_root() {
        return Err(format!(
            "packages are missing; run\n  sudo apt-get update && sudo apt-get install --yes --no-install-recommends {packages}"
        ));
    }
    shell::run(apt().arg("update"))?;
    let policy = NoDaemons::set(Path::new(POLICY))?;
    let installed = shell::run(apt().args(["install", "--yes", "--no-install-recommends"]).args(&missing));
    drop(policy);
    installed?;
    match self::missing(needs, servers).as_slice() {
        [] => Ok(()),
        still => Err(format!("installed {packages}, and still missing is what {} should bring", still.join(" "))),
    }
}

fn missing(needs: &[Need], servers: &[Package]) -> Vec<&'static str> {
    let mut packages: Vec<_> = needs.iter().filter(|need| !is_there(need)).map(|need| need.package).collect();
    packages.extend(servers.iter().flat_map(Package::missing));
    packages.sort_unstable();
    packages.dedup();
    packages
}

fn is_there(need: &Need) -> bool {
    let Some((program, args)) = need.probe.split_first() else { return true };
    shell::succeeds(Command::new(program).args(args))
}

fn is_root() -> bool {
    Command::new("id").arg("-u").output().is_ok_and(|output| output.stdout.trim_ascii() == b"0")
}

fn apt() -> Command {
    let mut command = shell::command("apt-get");
    command.env("DEBIAN_FRONTEND", "noninteractive");
    command
}

/// What Debian's packages ask whether their daemons may be started.
const POLICY: &str = "/usr/sbin/policy-rc.d";

/// The policy that forbids it, and says whose it is.
const FORBIDDEN: &str = "#!/bin/sh\n# cargo xtask of fencelock: removed when the packages are installed\nexit 101\n";

/// Forbids packages to start daemons; tests start their own. A policy that is there already stays as it is, unless it is one
/// that an interrupted run left behind.
struct NoDaemons(Option<PathBuf>);

impl NoDaemons {
    fn set(policy: &Path) -> Result<Self> {
        let fault = |error: std::io::Error| format!("{}: {error}", policy.display());
        match File::create_new(policy) {
            Err(error) if error.kind() == ErrorKind::AlreadyExists => {
                let is_ours = fs::read_to_string(policy).is_ok_and(|there| there == FORBIDDEN);
                return Ok(Self(is_ours.then(|| policy.to_owned())));
            }
            created => created.and_then(|mut file| file.write_all(FORBIDDEN.as_bytes())).map_err(fault)?,
        }
        fs::set_permissions(policy, Permissions::from_mode(0o755)).map_err(fault)?;
        Ok(Self(Some(policy.to_owned())))
    }
}

impl Drop for NoDaemons {
    fn drop(&mut self) {
        if let Some(policy) = &self.0 {
            // Worth no failure: it only keeps daemons from starting.
            let _ = fs::remove_file(policy);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_there_is_not_missing_and_what_is_not_is_named_by_its_package() {
        let there = Need { probe: &["true"], package: "coreutils" };
        let fails = Need { probe: &["false"], package: "first" };
        let absent = Need { probe: &["no-such-program-anywhere"], package: "second" };
        let server = Package { server: "a server", files: &[("/", "coreutils"), ("/no/such/file", "third")] };
        assert_eq!(missing(&[there, fails, absent], &[server]), ["first", "second", "third"]);
    }

    #[test]
    fn daemons_are_forbidden_for_a_while_and_a_policy_that_was_there_stays() {
        let path = std::env::temp_dir().join(format!("fencelock-policy-{}", std::process::id()));
        drop(NoDaemons::set(&path).map(|_forbidden| assert!(path.exists())));
        assert!(!path.exists());
        std::mem::forget(NoDaemons::set(&path));
        drop(NoDaemons::set(&path));
        assert!(!path.exists(), "what an interrupted run left behind stays");
        fs::write(&path, "mine").unwrap();
        drop(NoDaemons::set(&path));
        assert_eq!(fs::read_to_string(&path).unwrap(), "mine");
        fs::remove_file(&path).unwrap();
    }
}
