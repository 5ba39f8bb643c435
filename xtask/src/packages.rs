//! What has to be on the machine besides Rust, and the Debian package that brings it.

use std::process::Command;

use crate::shell::{self, Result};

/// Something that is there when `probe` succeeds, and comes with `package` when it is not.
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

/// What `bench` compares with: Python's `filelock`, in an environment of its own.
pub(crate) const BENCH: &[Need] = &[
    Need { probe: &["python3", "--version"], package: "python3" },
    Need { probe: &["python3", "-c", "import venv, ensurepip"], package: "python3-venv" },
];

/// Installs what is missing when we are root; otherwise fails with the command that does.
pub(crate) fn ensure(needs: &[Need]) -> Result {
    let missing = missing(needs);
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
    shell::run(apt().args(["install", "--yes", "--no-install-recommends"]).args(&missing))?;
    match self::missing(needs).as_slice() {
        [] => Ok(()),
        still => Err(format!("installed {packages}, and still missing is what {} should bring", still.join(" "))),
    }
}

fn missing(needs: &[Need]) -> Vec<&'static str> {
    let mut packages: Vec<_> = needs.iter().filter(|need| !is_there(need)).map(|need| need.package).collect();
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_there_is_not_missing_and_what_is_not_is_named_by_its_package() {
        let there = Need { probe: &["true"], package: "coreutils" };
        let fails = Need { probe: &["false"], package: "first" };
        let absent = Need { probe: &["no-such-program-anywhere"], package: "second" };
        assert_eq!(missing(&[there, fails, absent]), ["first", "second"]);
    }
}
