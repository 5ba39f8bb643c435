//! `fencelock bench`: the counter of the drill ends exact, and the output says so.

use crate::common::{PROGRAM, Place, code, ended, output, stderr, stdout};

#[test]
fn the_counter_ends_exact_over_several_processes() {
    let place = Place::new();
    let arguments = ["bench", "--workers", "24", "--processes", "3", "--sections", "240", "--json"];
    let drilled = output(&mut place.fencelock(&arguments));
    assert_eq!((code(&drilled), stderr(&drilled)), (0, String::new()));
    let figures: serde_json::Value = serde_json::from_str(&stdout(&drilled)).unwrap();
    assert_eq!((figures["sections"].as_u64(), figures["counter"].as_u64()), (Some(240), Some(240)));
    assert_eq!((figures["exact"].as_bool(), figures["overlaps"].as_u64()), (Some(true), Some(0)));
    assert_eq!(figures["tokens_not_rising"].as_u64(), Some(0));
    assert_eq!(stdout(&output(&mut place.fencelock(&["ls", "--json"]))), "[]\n");
}

#[test]
fn workers_are_waited_for_though_the_parent_ignores_the_end_of_children() {
    let place = Place::new();
    let mut ignored = std::process::Command::new("env");
    ignored.args(["--ignore-signal=CHLD", PROGRAM, "bench", "--workers", "2", "--processes", "2", "--sections", "5"]);
    let drilled = output(ignored.env("FENCELOCK_STORE", place.url()));
    assert_eq!((code(&drilled), stderr(&drilled)), (0, String::new()));
}

#[test]
fn a_store_that_locks_only_inside_a_process_is_reported() {
    let place = Place::new();
    let arguments = ["--store", "memory:", "bench", "--workers", "8", "--processes", "4", "--seconds", "1"];
    let (code, text) = ended(&mut place.fencelock(&arguments));
    assert_eq!(code, 1, "{text}");
    assert!(text.contains("not exact"), "{text}");
}

#[test]
fn a_store_that_cannot_be_opened_is_reported_once() {
    let place = Place::new();
    let (code, text) = ended(place.fencelock(&["bench"]).env("FENCELOCK_STORE", "bogus:///x"));
    assert_eq!((code, text.lines().count()), (64, 1), "{text}");
}

#[test]
fn a_report_is_one_page_that_fetches_nothing() {
    let place = Place::new();
    let options = ["bench", "--workers", "8", "--processes", "2", "--sections", "80", "--report", "report.html"];
    assert_eq!(code(&output(&mut place.fencelock(&options))), 0);
    let page = std::fs::read_to_string(place.path("report.html")).unwrap();
    assert_eq!((page.matches("<svg").count(), page.matches("</svg>").count()), (4, 4));
    for part in ["Throughput", "Cycle", "Hand-over", "Fairness", "prefers-color-scheme: dark", "counter exact"] {
        assert!(page.contains(part), "{part}");
    }
    for part in ["<script", "http://", "https://", "url(", "src=", "href="] {
        assert!(!page.contains(part), "{part}");
    }
    assert!(!page.contains("NaN") && !page.contains("inf\""), "{page}");
    let (code, said) = ended(&mut place.fencelock(&["bench", "--sections", "1", "--report", "no/such/report.html"]));
    assert_eq!((code, said.lines().count()), (74, 1), "{said}");
}
