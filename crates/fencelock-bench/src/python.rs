//! A Python of our own with the peers that `peers/requirements.txt` pins.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context as _, Result, bail};

const REQUIREMENTS: &str = include_str!("../peers/requirements.txt");

/// The interpreter with the pinned packages. The environment is made in `parent` if it is missing, or has other pins.
pub(crate) fn interpreter(parent: &Path) -> Result<PathBuf> {
    let home = parent.join("python");
    let (python, installed) = (home.join("bin/python"), home.join("installed.txt"));
    if python.exists() && std::fs::read_to_string(&installed).is_ok_and(|text| text == REQUIREMENTS) {
        return Ok(python);
    }
    let _ = std::fs::remove_dir_all(&home);
    let no_python = "Python 3 with its module venv is needed; Debian's packages are python3 and python3-venv";
    run(Command::new("python3").args(["-m", "venv"]).arg(&home), no_python)?;
    let requirements = concat!(env!("CARGO_MANIFEST_DIR"), "/peers/requirements.txt");
    let pip = ["-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--requirement", requirements];
    run(Command::new(&python).args(pip), "pip must be able to reach a package index")?;
    std::fs::write(&installed, REQUIREMENTS).with_context(|| installed.display().to_string())?;
    Ok(python)
}

/// The versions of the peers.
pub(crate) fn describe(python: &Path) -> Result<String> {
    let script =
        "import platform, filelock; print(f'Python {platform.python_version()}, filelock {filelock.__version__}')";
    let output = Command::new(python).args(["-c", script]).output().context("cannot run Python")?;
    Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned())
}

fn run(command: &mut Command, needed: &str) -> Result<()> {
    // Only the result may be on stdout.
    let output = command.stdin(Stdio::null()).output().with_context(|| needed.to_owned())?;
    if !output.status.success() {
        let said = [output.stderr, output.stdout].concat();
        bail!("{needed}\n{}", String::from_utf8_lossy(&said).trim_end());
    }
    Ok(())
}
