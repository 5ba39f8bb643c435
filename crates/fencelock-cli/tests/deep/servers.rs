//! Behaviour that every store with servers shares where renewals fail and where a hundred workers contend.

use std::fs;
use std::process::Stdio;

use crate::common::{Place, Running, code, output, stderr, stdout, until};
use fencelock_testbed::{Kind, Proxy, Way};

/// The tests of this file, on each kind of server.
macro_rules! on_each {
    ($($server:ident)*) => {
        $(mod $server {
            #[test]
            fn a_command_whose_lock_cannot_be_renewed_is_gone_before_the_next_one_starts() {
                super::a_command_whose_lock_cannot_be_renewed_is_gone_before_the_next_one_starts(
                    &fencelock_testbed::$server::KIND,
                );
            }

            #[test]
            fn the_drill_of_a_hundred_workers_ends_exact() {
                super::the_drill_of_a_hundred_workers_ends_exact(&fencelock_testbed::$server::KIND);
            }
        })*

        #[test]
        fn every_kind_of_server_is_tried() {
            assert_eq!(fencelock_testbed::KINDS.len(), [$(stringify!($server)),*].len());
        }
    };
}

on_each!(mysql postgres redis zookeeper);

fn a_command_whose_lock_cannot_be_renewed_is_gone_before_the_next_one_starts(kind: &'static Kind) {
    let (server, namespace) = (kind.shared().address(), kind.shared().namespace());
    let proxy = Proxy::start(server).unwrap();
    let at = |address| Place::with_store(kind.url(address, &namespace, "ttl_ms=4000"));
    let (place, rival) = (at(proxy.address()), at(server));
    let log = place.path("log");
    let script =
        format!("trap '' TERM; echo started >> {0}; while echo alive >> {0}; do sleep 0.02; done", log.display());
    let running = Running::start(place.run(&["job"], &script).stderr(Stdio::piped()));
    until("the command runs", || log.exists().then_some(()));
    let waiting = Running::start(&mut rival.run(&["--quiet", "job"], &format!("echo rival >> {}", log.display())));
    rival.queued("job", 2);
    proxy.hold(Way::Both);
    let output = running.end();
    assert_eq!((code(&output), waiting.code()), (76, 0));
    let said = stderr(&output);
    assert!(
        said.contains("could not be renewed until") && said.contains("the command is stopped before it lapses"),
        "{said}"
    );
    let log = fs::read_to_string(&log).unwrap();
    let is_in_time = log.starts_with("started\nalive\n") && log.ends_with("alive\nrival\n");
    assert!(is_in_time, "who ignores TERM is killed in time");
}

fn the_drill_of_a_hundred_workers_ends_exact(kind: &'static Kind) {
    let arguments = ["bench", "--workers", "100", "--sections", "400", "--json"];
    let drilled = output(&mut Place::with_store(kind.shared().url_with("ttl_ms=60000")).fencelock(&arguments));
    assert_eq!((code(&drilled), stderr(&drilled)), (0, String::new()));
    let figures: serde_json::Value = serde_json::from_str(&stdout(&drilled)).unwrap();
    assert_eq!((figures["sections"].as_u64(), figures["counter"].as_u64()), (Some(400), Some(400)));
    assert_eq!((figures["exact"].as_bool(), figures["overlaps"].as_u64()), (Some(true), Some(0)));
    assert_eq!(figures["tokens_not_rising"].as_u64(), Some(0));
}
