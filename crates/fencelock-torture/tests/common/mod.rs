//! The common parts of tests over real servers.
#![allow(dead_code, reason = "every test binary takes what it needs")]

pub(crate) mod silence;

use std::path::{Path, PathBuf};

use fencelock_torture::table::{TOPOLOGIES, Topology};

/// The topology of this name.
pub(crate) fn topology(name: &str) -> &'static Topology {
    TOPOLOGIES.iter().find(|topology| topology.name == name).expect("a topology of the table")
}

/// A directory that is kept, and named, when the test fails.
pub(crate) struct Directory(PathBuf);

impl Directory {
    pub(crate) fn new(name: &str) -> Self {
        let directory = tempfile::Builder::new().prefix(&format!("fencelock-{name}-")).tempdir().unwrap();
        Self(directory.keep())
    }

    pub(crate) fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("the logs are in {}", self.0.display());
        } else {
            let _ = std::fs::remove_dir_all(&self.0);
        }
    }
}
