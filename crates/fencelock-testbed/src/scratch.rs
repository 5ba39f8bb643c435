//! Directories for the files of servers.

use std::io;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use tempfile::TempDir;

/// A directory that is removed when the value is dropped, or when this process ends, even by KILL.
#[derive(Debug)]
pub(crate) struct Scratch {
    directory: TempDir,
    reaper: Child,
}

/// Waits for the end of its input, which only this process can write. Then kills processes that still work in the
/// directory, such as paused children of a dead PostgreSQL server, removes their shared memory, and removes the
/// directory. The removal is repeated, since dying servers may still write.
const REAPER: &str = r#"trap '' INT TERM; read -r _
for _ in 1 2 3 4 5; do
    kill -9 $(find /proc/[0-9]*/cwd -maxdepth 0 -lname "$0/*" | cut -d/ -f3)
    [ -f "$0/data/postmaster.pid" ] && ipcrm -m $(sed -n '7s/.* //p' "$0/data/postmaster.pid")
    rm -rf "$0" && exit
    sleep 0.1
done"#;

impl Scratch {
    pub(crate) fn new() -> io::Result<Self> {
        let directory = tempfile::Builder::new().prefix("fencelock-testbed-").tempdir()?;
        let mut reaper = Command::new("sh");
        reaper.args(["-c", REAPER]).arg(directory.path()).current_dir("/");
        let reaper = reaper.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null()).spawn()?;
        Ok(Self { directory, reaper })
    }

    pub(crate) fn path(&self) -> &Path {
        self.directory.path()
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        // The reaper removes the directory before the drop of its `TempDir`, which then finds nothing.
        drop(self.reaper.stdin.take());
        let _ = self.reaper.wait();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_directory_is_deleted_with_its_handle_and_all_its_content() {
        let scratch = Scratch::new().unwrap();
        let path = scratch.path().to_owned();
        std::fs::create_dir_all(path.join("deep/er")).unwrap();
        drop(scratch);
        assert!(!path.exists());
    }
}
