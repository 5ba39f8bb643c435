//! The directory of a run, removed however the run ends.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use anyhow::{Context as _, Result};
use rustix::process::{Pid, test_kill_process};
use tokio::signal::unix::{SignalKind, signal};

/// A directory of this run.
#[derive(Debug)]
pub(crate) struct Scratch {
    path: PathBuf,
    made: AtomicU64,
}

impl Scratch {
    /// Makes a directory in `parent`, and removes the remains of killed runs there. Cleans up if this run is
    /// interrupted or takes longer than `limit`.
    pub(crate) fn new(parent: &Path, limit: Duration) -> Result<Self> {
        std::fs::create_dir_all(parent).with_context(|| parent.display().to_string())?;
        sweep(parent);
        let path = parent.join(format!("run-{}", std::process::id()));
        std::fs::create_dir(&path).with_context(|| path.display().to_string())?;
        clean_up_when_cut_short(path.clone(), limit)?;
        Ok(Self { path, made: AtomicU64::new(0) })
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// A new path in it.
    pub(crate) fn fresh(&self, what: &str) -> PathBuf {
        self.path.join(format!("{what}-{}", self.made.fetch_add(1, Ordering::Relaxed)))
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.path);
    }
}

fn pid(id: u32) -> Option<Pid> {
    Pid::from_raw(i32::try_from(id).ok()?)
}

fn sweep(parent: &Path) {
    for entry in parent.read_dir().into_iter().flatten().flatten() {
        let name = entry.file_name();
        let run = name.to_str().and_then(|name| name.strip_prefix("run-")?.parse().ok()).and_then(pid);
        if run.is_some_and(|run| test_kill_process(run) == Err(rustix::io::Errno::SRCH)) {
            let _ = std::fs::remove_dir_all(entry.path());
        }
    }
}

fn clean_up_when_cut_short(path: PathBuf, limit: Duration) -> Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().context("no runtime")?;
    let _inside = runtime.enter();
    let (mut interrupt, mut terminate) = (signal(SignalKind::interrupt())?, signal(SignalKind::terminate())?);
    std::thread::spawn(move || {
        let why = runtime.block_on(async {
            tokio::select! {
                _ = interrupt.recv() => "interrupted".to_owned(),
                _ = terminate.recv() => "terminated".to_owned(),
                () = tokio::time::sleep(limit) => format!("not finished after {} s: given up", limit.as_secs()),
            }
        });
        let _ = std::fs::remove_dir_all(&path);
        eprintln!("fencelock-bench: {why}");
        std::process::exit(1);
    });
    Ok(())
}
