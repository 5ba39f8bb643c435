//! Contenders and locks of other clients on ZooKeeper: `show` names the kind of each, and shows no possible holder as a
//! waiter.

use std::process::Stdio;

use crate::common::hand::{by_hand, plant};
use crate::common::terminal::Screen;
use crate::common::{Place, Running, code, ended, output, refused, stderr, stdout};
use fencelock_testbed::zookeeper::shared;
use fencelock_zookeeper::{Acl, CreateMode};

const CURATOR: &str = "_c_fb230995-c2bc-4a6c-98b5-6f506fd9afae";

#[test]
fn nodes_of_other_clients_are_shown_in_the_same_queue() {
    let parent = shared().namespace();
    let place = Place::with_store(format!("zk://{}{parent}?tick_ms=500&ttl_ms=60000", shared().address()));
    by_hand(async |client| {
        let put = async |path: &str, data: &str, mode| {
            client.create(&format!("{parent}{path}"), data.as_bytes(), mode, &[Acl::open()]).await.unwrap()
        };
        put("", "", CreateMode::Persistent).await;
        put("/job", "", CreateMode::Persistent).await;
        let sequential = CreateMode::EphemeralSequential;
        put("/job/_c_fb230995-c2bc-4a6c-98b5-6f506fd9afae-lock-", "10.0.0.7", sequential).await;
        put("/job/lock-", "", sequential).await;
        put("/job/94b6e5cf49364b1f8706ee06e5d07c35__lock__", "import of \u{1b}[2J prices", sequential).await;
        put("/job/notes", "of nobody", CreateMode::Persistent).await;
        let shown = output(&mut place.fencelock(&["show", "job"]));
        let (table, said) = (stdout(&shown), stderr(&shown));
        let lines: Vec<_> = table.lines().collect();
        assert_eq!((code(&shown), lines.len()), (1, 5), "{table}{said}");
        assert!(lines[1].contains("holder") && lines[1].contains("10.0.0.7"), "{table}");
        assert!(lines[1].contains("(Curator InterProcessMutex)"), "{table}");
        // The nodes do not show whether these contenders wait for Curator's.
        assert!(lines[2].contains("waits or holds too") && lines[3].contains("waits or holds too"), "{table}");
        assert!(lines[3].contains("(kazoo Lock or WriteLock)") && lines[3].contains("import of [2J prices"), "{table}");
        assert!(said.contains("not part of the queue") && said.contains("notes"), "{said}");
        let contenders = place.contenders("job");
        assert_eq!(
            (&contenders[2]["host"], contenders[2]["purpose"].is_null()),
            (&"import of [2J prices".into(), true)
        );
        assert!(contenders[0]["token"].is_string() && contenders[0]["pid"].is_null(), "{contenders:?}");
        refused(&mut place.run(&["--try", "job"], "true"), "held by 10.0.0.7 (Curator InterProcessMutex)");
        let listed = stdout(&output(&mut place.fencelock(&["ls", "--json"])));
        let listed: serde_json::Value = serde_json::from_str(&listed).unwrap();
        assert_eq!((&listed[0]["name"], &listed[0]["waiting"]), (&"job".into(), &2.into()));
    });
}

#[test]
fn show_and_ls_report_a_contender_that_does_not_wait_for_a_command() {
    let parent = shared().namespace();
    let place = Place::with_store(format!("zk://{}{parent}?tick_ms=500&ttl_ms=60000", shared().address()));
    by_hand(async |client| {
        for (name, mark, state, what) in [
            ("a", "-__WRIT__", "holds too", "Curator InterProcessReadWriteLock"),
            ("b", "__lock__", "waits or holds too", "kazoo Lock or WriteLock"),
        ] {
            let id = if mark == "__lock__" { "94b6e5cf49364b1f8706ee06e5d07c35" } else { CURATOR };
            let mut command = place.run(&[name], "cat");
            let running = Running::start(command.stdin(Stdio::piped()).stderr(Stdio::piped()));
            place.queued(name, 1);
            plant(&client, &format!("{parent}/{name}/{id}{mark}"), CreateMode::EphemeralSequential, "10.0.0.7").await;
            let shown = output(&mut place.fencelock(&["show", name]));
            let (table, said) = (stdout(&shown), stderr(&shown));
            let row = table.lines().nth(2).unwrap();
            assert!(code(&shown) == 1 && row.contains(state) && row.contains(what), "{table}{said}");
            assert!(said.contains(what) && said.contains("by several at once"), "{said}");
            let listed = output(&mut place.fencelock(&["ls", name]));
            assert!(code(&listed) == 1 && stderr(&listed).contains(what), "{listed:?}");
            let listed = stdout(&output(&mut place.fencelock(&["ls", name, "--json"])));
            let listed: serde_json::Value = serde_json::from_str(&listed).unwrap();
            assert_eq!(listed[0]["beside"][0]["what"], what);
            drop(running);
        }
    });
}

#[test]
fn a_holder_that_gets_no_notice_is_broken_only_on_request() {
    let parent = shared().namespace();
    let place = Place::with_store(format!("zk://{}{parent}?tick_ms=500&ttl_ms=60000", shared().address()));
    by_hand(async |client| {
        let node = format!("{parent}/job/{CURATOR}-lock-");
        plant(&client, &node, CreateMode::EphemeralSequential, "10.0.0.7").await;
        let order = ["break", "job", "--reason", "stuck"];
        let (code, said) = ended(&mut place.fencelock(&[&order[..], &["--yes"]].concat()));
        assert_eq!(code, 64, "{said}");
        assert!(said.contains("Curator InterProcessMutex is not notified") && said.contains("--untold"), "{said}");
        assert_eq!(place.contenders("job").len(), 1);
        let mut screen = Screen::start(&place.fencelock(&order));
        screen.shows("is not notified");
        screen.shows("[y/N]");
        screen.types("n\n");
        assert_eq!(screen.code(), 1);
        let (code, said) = ended(&mut place.fencelock(&[&order[..], &["--yes", "--untold"]].concat()));
        assert!(code == 0 && said.contains("is not notified"), "{said}");
        assert_eq!(place.contenders("job").len(), 0);
    });
}

#[test]
fn no_text_of_another_client_is_more_than_one_line() {
    let parent = shared().namespace();
    let place = Place::with_store(format!("zk://{}{parent}?tick_ms=500&ttl_ms=60000", shared().address()));
    by_hand(async |client| {
        let note = r#"{"fencelock":1,"client":"0000000000000001","host":"db\nfencelock: all is well","pid":7,"claim":[1,1],"purpose":"a\u2028b\u202ec\u001b[2J"}"#;
        let node = format!("{parent}/job/{CURATOR}-lock-");
        plant(&client, &node, CreateMode::EphemeralSequential, note).await;
        let shown = stdout(&output(&mut place.fencelock(&["show", "job", "--json"])));
        let shown: serde_json::Value = serde_json::from_str(&shown).unwrap();
        let holder = &shown["contenders"][0];
        assert_eq!(holder["host"], "db\u{fffd}fencelock: all is well");
        assert_eq!(holder["purpose"], "a\u{fffd}b\u{fffd}c\u{fffd}[2J");
        let (busy, said) = ended(&mut place.run(&["--try", "job"], "true"));
        assert_eq!((busy, said.lines().count()), (75, 1), "{said}");
        assert!(!said.contains(['\u{2028}', '\u{202e}', '\u{1b}']), "{said}");
    });
}
