//! Directories for what servers write.

use std::fs;
use std::io;
use std::path::Path;

use tempfile::TempDir;

const PREFIX: &str = "fencelock-testbed-";

/// A directory that goes when it is dropped. What processes left that died before they could, goes now.
pub(crate) fn directory() -> io::Result<TempDir> {
    let parent = std::env::temp_dir();
    for left in fs::read_dir(&parent)?.flatten() {
        if left.file_name().to_str().and_then(owner).is_some_and(|pid| !is_alive(pid)) {
            // Another process may be removing it too.
            let _ = fs::remove_dir_all(left.path());
        }
    }
    tempfile::Builder::new().prefix(&format!("{PREFIX}{}-", std::process::id())).tempdir_in(parent)
}

fn owner(name: &str) -> Option<u32> {
    name.strip_prefix(PREFIX)?.split_once('-')?.0.parse().ok()
}

fn is_alive(pid: u32) -> bool {
    Path::new("/proc").join(pid.to_string()).exists()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_dead_process_left_goes_and_what_a_living_one_has_stays() {
        let mut child = std::process::Command::new("true").spawn().unwrap();
        let left = std::env::temp_dir().join(format!("{PREFIX}{}-left", child.id()));
        child.wait().unwrap();
        fs::create_dir_all(left.join("deep")).unwrap();
        let (first, second) = (directory().unwrap(), directory().unwrap());
        assert!(!left.exists() && first.path().is_dir() && second.path().is_dir());
    }
}
