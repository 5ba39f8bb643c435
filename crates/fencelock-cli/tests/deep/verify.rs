//! `fencelock verify --faults` on stores whose locks expire: workers are stopped for longer than that, which takes its time.

use fencelock_testbed::mysql::KIND as MYSQL;
use fencelock_testbed::redis::{Server, Settings};
use fencelock_testbed::zookeeper::shared;
use serde_json::Value;

use crate::common::{Place, code, output, stdout};

/// The report of a run in which no promise was broken, although workers were stopped beyond the ttl.
fn kept(url: String) -> Value {
    let place = Place::with_store(url);
    let done = output(&mut place.fencelock(&["verify", "--json", "--faults", "--duration", "40s"]));
    assert_eq!(code(&done), 0, "{done:?}");
    let report: Value = serde_json::from_str(&stdout(&done)).unwrap();
    assert!(report["stops"].as_u64().unwrap() > 0 && report["kills"].as_u64().unwrap() > 0, "{report}");
    println!("{report}");
    report
}

#[test]
fn holders_that_are_stopped_beyond_their_ttl_are_refused_by_redis_tokens() {
    let server = Server::start(Settings::default()).unwrap();
    let report = kept(format!("{}?ttl_ms=2000", server.url()));
    assert!(report["late_refused"].as_u64().unwrap() > 0, "{report}");
}

#[test]
fn holders_that_are_stopped_beyond_their_session_are_refused_by_zookeepers_tokens() {
    kept(format!("zk://{}{}?tick_ms=500&ttl_ms=3000", shared().address(), shared().namespace()));
}

#[test]
fn holders_that_are_stopped_beyond_their_lease_are_refused_by_mariadbs_tokens() {
    let url = MYSQL.shared().url();
    let sign = if url.contains('?') { '&' } else { '?' };
    kept(format!("{url}{sign}ttl_ms=3000"));
}
