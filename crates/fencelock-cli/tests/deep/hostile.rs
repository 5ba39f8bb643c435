//! A hostile ZooKeeper server: `run` ends with its limit, and starts nothing.

use std::time::{Duration, Instant};

use crate::common::{Place, ended};
use fencelock_testbed::within;
use fencelock_testbed::zookeeper::{Manner, hostile};

#[test]
fn a_wait_ends_with_its_limit_for_any_bytes_of_a_server() {
    const LIMIT: Duration = Duration::from_secs(2);
    // The promise is half a second for the close, and as much for requests under way. The rest is for a busy machine.
    const BOUND: Duration = Duration::from_secs(4);
    for manner in Manner::WITHOUT_SESSION.into_iter().chain(Manner::WITH_SESSION) {
        let place = Place::with_store(format!("zk://{}/locks", hostile(manner, 10_000).unwrap()));
        let start = Instant::now();
        let (code, said) = ended(&mut place.run(&["--wait", "2s", "job"], "echo > started"));
        within(LIMIT + BOUND, start.elapsed(), &format!("{manner:?}"));
        assert!(matches!(code, 69 | 71), "{manner:?}: {code}: {said}");
        assert!(!place.path("started").exists(), "{manner:?}");
    }
}
