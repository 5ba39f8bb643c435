//! The command on ZooKeeper, for longer than a session lives without a renewal.

use crate::common::{Place, ended};
use fencelock_testbed::zookeeper::shared;

#[test]
fn a_command_runs_for_as_long_as_renewals_come_through() {
    // With the times that people get who give none. A renewal proves less there than it does elsewhere.
    let place = Place::with_store(format!("zk://{}{}", shared().address(), shared().namespace()));
    assert_eq!(ended(&mut place.run(&["--grace", "1h", "job"], "exec sleep 8")), (0, String::new()));
}
