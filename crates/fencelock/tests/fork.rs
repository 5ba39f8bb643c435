//! A forked child without exec has a copy of every guard and client, and may end nothing of its parent's.
//!
//! The test is alone in its process: when a process forks, no other thread may be inside a lock.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc;

use fencelock::blocking::{Client, Guard};
use fencelock::{ErrorKind, GuardState, Health, Loss};
use fencelock_testbed::{KINDS, PATIENCE};
use fork::Fork;

/// Runs `child` in a child, which must come to its end.
fn in_child(child: impl FnOnce()) {
    let process = match fork::fork().unwrap() {
        Fork::Child => std::process::exit(i32::from(catch_unwind(AssertUnwindSafe(child)).is_err())),
        Fork::Parent(process) => process,
    };
    let (ended, end) = mpsc::channel();
    std::thread::spawn(move || ended.send(fork::waitpid(process).unwrap()));
    let status = end.recv_timeout(PATIENCE);
    if status.is_err() {
        let stuck = rustix::process::Pid::from_raw(process).unwrap();
        rustix::process::kill_process(stuck, rustix::process::Signal::KILL).unwrap();
    }
    assert_eq!(status, Ok(0), "the child hung, or found something wrong (see above)");
}

/// The child tries the client and the guard of its parent, and a client of its own.
fn child(url: &str, (parent, held): (Client, Guard)) {
    assert_eq!(held.state(), GuardState::Lost(Loss::Closed));
    assert_eq!(parent.health(), Health::Closed);
    let refused = [
        held.check().unwrap_err(),
        parent.mutex("other").unwrap().acquire().map(drop).unwrap_err(),
        parent.queue("job").map(drop).unwrap_err(),
        parent.close().unwrap_err(),
    ];
    for error in &refused[1..] {
        assert!(error.kind() == ErrorKind::Closed && error.to_string().contains("after the fork"), "{error}");
    }
    drop(held);
    drop(parent);
    let own = Client::connect(url).unwrap();
    assert_eq!(own.mutex("job").unwrap().try_acquire().map(drop).unwrap_err().kind(), ErrorKind::Busy);
    own.mutex("other").unwrap().acquire().unwrap().release().unwrap();
    own.close().unwrap();
}

#[test]
fn a_child_of_a_fork_releases_nothing_of_its_parents_and_may_connect_anew() {
    let directory = tempfile::tempdir().unwrap();
    let file = format!("file://{}?ttl_ms=60000", directory.path().display());
    for url in std::iter::once(file).chain(KINDS.iter().map(|kind| kind.shared().url_with("ttl_ms=60000"))) {
        let client = Client::connect(&url).unwrap();
        let held = client.mutex("job").unwrap().acquire().unwrap();
        let mut parents = Some((client, held));
        // The child takes its own copy, which it keeps to its end.
        in_child(|| child(&url, parents.take().unwrap()));
        let (client, held) = parents.unwrap();
        held.check().unwrap();
        let others = Client::connect(&url).unwrap();
        let refused = others.mutex("job").unwrap().try_acquire().map(drop).unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::Busy, "{url}");
        held.release().unwrap();
        others.mutex("job").unwrap().try_acquire().unwrap().release().unwrap();
        client.close().unwrap();
    }
}
