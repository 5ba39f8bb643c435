//! The store `zk:` with crowds, thousands of foreign nodes, silent and hostile servers, and outages.

#[allow(dead_code, reason = "a helper of the gate's tests that no test here needs")]
#[path = "../../zookeeper/lab.rs"]
mod lab;

mod crowd;
mod hostile;
mod many;
mod outage;
mod reach;
mod stuffed;
