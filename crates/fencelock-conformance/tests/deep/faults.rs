//! A failed drill reports its failure and the cause.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use fencelock::Client;
use fencelock_lab::{Drill, Strategy};

fn directory(name: &str) -> PathBuf {
    let path = std::env::temp_dir().join(format!("fencelock-faults-{name}-{}", std::process::id()));
    fs::create_dir_all(path.join("logs")).unwrap();
    path
}

fn drill(directory: &Path, worker: &str) -> Drill {
    let url = format!("file://{}/store", directory.display());
    Drill { strikes: 1, ..Drill::new(&url, &directory.join("logs"), Path::new(worker), Strategy::Calm, 1) }
}

#[test]
fn a_lock_that_is_granted_to_no_client_is_reported() {
    let directory = directory("stuck");
    let drill = drill(&directory, env!("CARGO_BIN_EXE_fencelock-conformance-worker"));
    // The drill waits for a grant that never comes.
    let drill = Drill { patience: Duration::from_secs(2), ..drill };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let client = runtime.block_on(Client::connect(&drill.site.url(0))).unwrap();
    let guard = runtime.block_on(client.mutex("lock-1").unwrap().acquire()).unwrap();
    let verdict = drill.run().unwrap();
    for fault in ["before the first strike", "a lock is stuck", "does not finish", "census: "] {
        assert!(verdict.faults.iter().any(|found| found.to_string().contains(fault)), "{fault}: {verdict}");
    }
    runtime.block_on(guard.release()).unwrap();
    fs::remove_dir_all(&directory).unwrap();
}

#[test]
fn a_worker_that_ends_by_itself_is_reported() {
    let directory = directory("ended");
    let verdict = drill(&directory, "/bin/false").run().unwrap();
    assert!(verdict.faults.iter().any(|fault| fault.to_string().contains("ended by itself")), "{verdict}");
    fs::remove_dir_all(&directory).unwrap();
}

#[test]
fn an_error_that_no_fault_explains_ends_a_worker_and_is_reported() {
    let directory = directory("unexplained");
    let drill = drill(&directory, env!("CARGO_BIN_EXE_fencelock-conformance-worker"));
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let client = runtime.block_on(Client::connect(&drill.site.url(0))).unwrap();
    // A client that asks for a mutex there is refused.
    let permit = runtime.block_on(client.semaphore("lock-1", 2).unwrap().acquire()).unwrap();
    let verdict = drill.run().unwrap();
    let is_named = |fault: String| fault.contains("ended by itself") && fault.contains("Conflict");
    assert!(verdict.faults.iter().map(ToString::to_string).any(is_named), "{verdict}");
    runtime.block_on(permit.release()).unwrap();
    fs::remove_dir_all(&directory).unwrap();
}
