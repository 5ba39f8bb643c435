//! Installs what tests need besides Rust, from Debian's packages.

use std::fs::{self, File, Permissions};
use std::io::{ErrorKind, Write as _};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::Package;

/// A program or module: installed if `probe` succeeds, else installed with `package`.
#[derive(Debug)]
pub struct Need {
    /// A command and its arguments.
    pub probe: &'static [&'static str],
    /// The package of Debian.
    pub package: &'static str,
}

/// Installs missing packages when we are root; otherwise fails with the command that installs them.
///
/// # Errors
/// The sentence that says what is missing and how to get it.
pub fn ensure(needs: &[Need], servers: &[Package]) -> Result<(), String> {
    let missing = missing(needs, servers);
    if missing.is_empty() {
        return Ok(());
    }
    let packages = missing.join(" ");
    if !succeeds(Command::new("apt-get").arg("--version")) {
        return Err(format!("this machine has no apt-get; install what Debian calls: {packages}"));
    }
    if !is_root() {
        return Err(format!(
            "packages are missing; run\n  sudo apt-get update && sudo apt-get install --yes --no-install-recommends {packages}"
        ));
    }
    run(apt().arg("update"))?;
    let policy = NoDaemons::set(Path::new(POLICY))?;
    let installed = run(apt().args(["install", "--yes", "--no-install-recommends"]).args(&missing));
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
    succeeds(Command::new(program).args(args))
}

/// Whether the command can be run and succeeds; shows nothing.
fn succeeds(command: &mut Command) -> bool {
    let quiet = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    quiet.status().is_ok_and(|status| status.success())
}

fn run(command: &mut Command) -> Result<(), String> {
    let status = command.stdin(Stdio::null()).status();
    let status = status.map_err(|error| format!("{command:?} cannot be run: {error}"))?;
    if status.success() { Ok(()) } else { Err(format!("{command:?} failed: {status}")) }
}

fn is_root() -> bool {
    Command::new("id").arg("-u").output().is_ok_and(|output| output.stdout.trim_ascii() == b"0")
}

fn apt() -> Command {
    let mut command = Command::new("apt-get");
    command.env("DEBIAN_FRONTEND", "noninteractive");
    command
}

/// The program that Debian's packages ask whether their daemons may be started.
const POLICY: &str = "/usr/sbin/policy-rc.d";

/// The policy that forbids daemons, and names its author.
const FORBIDDEN: &str = "#!/bin/sh\n# cargo xtask of fencelock: removed when the packages are installed\nexit 101\n";

/// Forbids packages to start daemons; tests start their own. An existing policy stays, unless an interrupted run left
/// it behind.
struct NoDaemons(Option<PathBuf>);

impl NoDaemons {
    fn set(policy: &Path) -> Result<Self, String> {
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
            // A failure is harmless: the policy only keeps daemons from starting.
            let _ = fs::remove_file(policy);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_program_is_named_by_its_package() {
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
