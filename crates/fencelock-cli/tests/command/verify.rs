//! `fencelock verify`: its counts on a store that keeps its promises, and on one that breaks them.

use fencelock_lab::ledger::read;
use fencelock_testbed::zookeeper::shared;
use serde_json::Value;

use crate::common::{Place, code, output, stderr, stdout};

/// The report of a run without a broken promise.
fn kept(place: &Place, options: &[&str]) -> Value {
    let done = output(&mut place.fencelock(&[&["verify", "--json"], options].concat()));
    assert_eq!((code(&done), stderr(&done)), (0, String::new()), "{}", stdout(&done));
    serde_json::from_slice(&done.stdout).unwrap()
}

fn check<'a>(report: &'a Value, promise: &str) -> &'a Value {
    let checks = report["checks"].as_array().unwrap();
    checks.iter().find(|check| check["promise"].as_str().unwrap().contains(promise)).unwrap()
}

#[test]
fn a_store_that_keeps_its_promises_is_reported_with_a_bound_for_each() {
    let place = Place::new();
    let report = kept(&place, &["--duration", "2s", "--names", "2"]);
    let sections = report["grants"].as_u64().unwrap();
    let one = check(&report, "pairs of believers");
    assert_eq!((one["broken"].as_u64(), one["of"].as_u64()), (Some(0), Some(sections)));
    assert!((one["fewer_than"].as_f64().unwrap() * sections as f64 - 3.0).abs() < 1e-6, "{report}");
    assert!(check(&report, "out of order")["of"].as_u64().unwrap() > 0, "{report}");
    assert_eq!((&report["ok"], &report["other"], &report["kills"]), (&true.into(), &0.into(), &0.into()));
    assert_eq!(stdout(&output(&mut place.fencelock(&["ls", "--json"]))), "[]\n");
}

#[test]
fn workers_that_are_killed_and_stopped_break_no_promise() {
    let report = kept(&Place::new(), &["--duration", "5s", "--faults"]);
    let hurt = report["kills"].as_u64().unwrap() + report["stops"].as_u64().unwrap();
    assert!(hurt > 0 && report["sections"].as_u64().unwrap() > 0, "{report}");
}

#[test]
fn a_report_is_one_row_of_the_ledger() {
    let done = output(&mut Place::new().fencelock(&["verify", "--report", "--duration", "2s", "--faults"]));
    assert_eq!((code(&done), stderr(&done)), (0, String::new()), "{}", stdout(&done));
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), &done.stdout).unwrap();
    let rows = read(file.path()).unwrap();
    assert_eq!(rows.len(), 1, "{}", stdout(&done));
    assert!(rows[0].is_clean() && rows[0].counted("grants") > 0, "{rows:?}");
    assert!(rows[0].store.starts_with("file:") && rows[0].fault == "verify", "{rows:?}");
}

#[test]
fn zookeeper_takes_the_names_too() {
    let url = format!("zk://{}{}?tick_ms=500&ttl_ms=60000", shared().address(), shared().namespace());
    let report = kept(&Place::with_store(url), &["--duration", "1s", "--names", "2"]);
    assert!(report["sections"].as_u64().unwrap() > 0, "{report}");
}

#[test]
fn a_store_that_locks_only_inside_a_process_is_reported() {
    let done = output(&mut Place::with_store("memory:").fencelock(&["verify", "--duration", "2s"]));
    assert_eq!((code(&done), stderr(&done).contains("pairs of believers")), (1, true), "{done:?}");
    assert!(stdout(&done).contains("BROKEN") && stdout(&done).contains("Exclusion on"), "{done:?}");
}

#[test]
fn a_promise_that_cannot_be_verified_is_named_once() {
    let done = output(Place::new().fencelock(&["verify"]).env("FENCELOCK_STORE", "bogus:///x"));
    assert_eq!((code(&done), stderr(&done).lines().count()), (64, 1), "{done:?}");
    let done = output(&mut Place::new().fencelock(&["verify", "--processes", "1"]));
    assert_eq!(code(&done), 64, "{done:?}");
}
