//! A wall clock that jumps on order, for one server alone.

use std::fs::{self, File};
use std::io::{self, Write};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// The source of the preloaded library.
const SOURCE: &str = include_str!("clock.c");

/// The environment variable with the path of the library's file.
const VARIABLE: &str = "FENCELOCK_TESTBED_CLOCK";

/// The package to install for it, besides the server.
pub const CLOCK_SHIM: crate::Package = crate::Package {
    server: "a clock that jumps",
    files: &[("/usr/bin/cc", "gcc"), ("/usr/include/time.h", "libc6-dev")],
};

/// The clock of one server.
#[derive(Debug)]
pub(crate) struct Clock {
    library: PathBuf,
    offset: PathBuf,
}

impl Clock {
    /// Compiles the preloaded library into `directory`, with the C compiler that links Rust programs.
    pub(crate) fn new(directory: &Path) -> io::Result<Self> {
        CLOCK_SHIM.require();
        let clock = Self { library: directory.join("clock.so"), offset: directory.join("clock") };
        fs::write(&clock.offset, [0; 8])?;
        let mut cc = Command::new("cc");
        cc.args(["-shared", "-fPIC", "-O1", "-Wall", "-x", "c", "-", "-o"]).arg(&clock.library);
        let mut cc = cc.stdin(Stdio::piped()).stderr(Stdio::piped()).spawn()?;
        cc.stdin.take().map_or(Ok(()), |mut input| input.write_all(SOURCE.as_bytes()))?;
        let output = cc.wait_with_output()?;
        if output.status.success() {
            Ok(clock)
        } else {
            Err(io::Error::other(format!("cc: {}", String::from_utf8_lossy(&output.stderr).trim())))
        }
    }

    /// Makes the program that `command` runs read this clock.
    pub(crate) fn give_to(&self, command: &mut Command) {
        command.env("LD_PRELOAD", &self.library).env(VARIABLE, &self.offset);
    }

    /// Sets the difference to the true clock.
    pub(crate) fn set(&self, seconds: i64) -> io::Result<()> {
        File::options().write(true).open(&self.offset)?.write_all_at(&seconds.to_ne_bytes(), 0)
    }
}
