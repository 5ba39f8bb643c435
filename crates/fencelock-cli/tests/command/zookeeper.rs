//! Behaviour that only `zk:` has, against a real server.

use std::io::{Read as _, Write as _};
use std::net::TcpListener;
use std::process::Stdio;

use crate::common::hand::by_hand;
use crate::common::{Place, Running, code, ended, ended_once, output, stderr, written};
use fencelock_testbed::Port;
use fencelock_testbed::zookeeper::{Ensemble, Settings, shared};

/// A session that no slowness of a test ends.
fn place() -> Place {
    Place::with_store(shared().url_with("ttl_ms=60000"))
}

#[test]
fn a_command_whose_node_is_deleted_is_stopped() {
    let parent = shared().namespace();
    let place = Place::with_store(format!("zk://{}{parent}?tick_ms=500&ttl_ms=60000", shared().address()));
    let script = "trap 'echo told >> told; exit 0' TERM; echo > ready; while :; do sleep 0.02; done";
    let running = Running::start(place.run(&["--grace-after-loss", "60s", "job"], script).stderr(Stdio::piped()));
    written(&place.path("ready"));
    by_hand(async |client| {
        let (children, _) = client.get_children(&format!("{parent}/job")).await.unwrap();
        for child in children {
            client.delete(&format!("{parent}/job/{child}"), None).await.unwrap();
        }
    });
    let output = running.end();
    assert_eq!(code(&output), 76);
    assert!(stderr(&output).contains("lost"), "{}", stderr(&output));
    assert_eq!(written(&place.path("told")), "told\n");
}

#[test]
fn a_command_whose_fencelock_died_before_it_began_does_not_begin() {
    let place = place();
    // Process 1 is not the parent of the command, so that the command must not begin.
    let (code, text) = ended(&mut place.fencelock(&["bound", "1", "--", "touch", "begun"]));
    assert_eq!((code, text.as_str(), place.path("begun").exists()), (137, "", false));
}

/// Answers every connection with `text`, or with nothing at all.
fn no_zookeeper(text: &'static str) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        for mut connection in listener.incoming().flatten() {
            let _ = connection.write_all(text.as_bytes());
            std::thread::spawn(move || connection.read_to_end(&mut Vec::new()));
        }
    });
    address.to_string()
}

#[test]
fn a_server_that_is_not_there_or_is_something_else_ends_with_69() {
    let user = Port::reserve().unwrap().address().to_string();
    let web = no_zookeeper("HTTP/1.1 400 Bad Request\r\nServer: web\r\nConnection: close\r\n\r\n");
    let silent = no_zookeeper("");
    for server in [user, web, silent] {
        let place = Place::with_store(format!("zk://me:s3cret@{server}/locks?tick_ms=100&ttl_ms=2000"));
        for arguments in
            [&["run", "--connect-wait", "0", "job", "--", "true"][..], &["ls"], &["show", "job"], &["bench"]]
        {
            let (code, text) = ended_once(&mut place.fencelock(arguments));
            assert_eq!(code, 69, "{arguments:?}: {text}");
            assert!(text.contains(&server) && text.contains("FENCELOCK_STORE"), "{text}");
            let lines: Vec<_> = text.lines().collect();
            assert!(!text.contains("s3cret") && lines.len() == 1, "{text}");
        }
    }
}

#[test]
fn a_wrong_password_is_refused_with_77_and_never_shown() {
    let (server, parent) = (shared().address(), shared().namespace());
    let with = |who: &str| Place::with_store(format!("zk://{who}@{server}{parent}?tick_ms=500&ttl_ms=60000"));
    let (right, wrong) = (with("me:right"), with("me:s3cret"));
    let _holder = right.holder("job");
    for arguments in [&["run", "job", "--", "true"][..], &["run", "another", "--", "true"], &["show", "job"], &["ls"]] {
        let (code, text) = ended(&mut wrong.fencelock(arguments));
        assert_eq!(code, 77, "{text}");
        assert!(text.contains("access control lists") && !text.contains("s3cret"), "{text}");
        assert_eq!(text.matches("the access control list does").count(), 1, "said once: {text}");
    }
    assert_eq!(right.contenders("job").len(), 1);
}

#[test]
fn wrong_urls_and_what_zookeeper_does_not_offer_are_wrong_usage() {
    let (server, tick) = (shared().address(), Settings::default().tick_ms);
    for (url, said) in [
        ("zk://".to_owned(), "zk"),
        (format!("zk://{server}"), "name the node under which the locks are"),
        (format!("zk://{server}/a//b"), "no part of a path"),
        (format!("zk://{server}/l?layout=etcd"), "curator kazoo shared"),
        (format!("zk://{server}/l?no_such=1"), "no_such"),
        (format!("zk://{server}/l?tick_ms={tick}&ttl_ms=1000"), "2s"),
        (format!("zk://me@{server}/l"), "user:password"),
        (format!("zks://{server}/l?tls_ca=/no/such/file"), "/no/such/file"),
    ] {
        let (code, text) = ended(&mut Place::with_store(&url).run(&["job"], "true"));
        assert_eq!(code, 64, "{url}: {text}");
        assert!(text.contains(said) && text.lines().count() == 1, "{url}: {text}");
    }
    let place = Place::with_store(shared().url_with("layout=shared"));
    for options in [["--shared", "job"], ["--exclusive", "job"], ["--permits=1/3", "job"]] {
        let (code, text) = ended(&mut place.run(&options, "true"));
        assert_eq!((code, text.contains("mutex")), (64, true), "{text}");
    }
}

#[test]
fn readers_and_permits_run_together_among_nodes_named_as_kazoo_does() {
    Place::with_store(shared().url_with("ttl_ms=60000&layout=kazoo")).lets_shared_holders_run_together();
}

#[test]
fn warnings_of_the_library_are_printed_as_often_as_was_asked() {
    let (server, parent) = (shared().address(), shared().namespace());
    // A password that is sent to 127.0.0.1 causes no warning; 0.0.0.0 is not an address of this host alone.
    let servers = format!("0.0.0.0:{0},0.0.0.0:{0}", server.port());
    let place = Place::with_store(format!("zk://me:s3cret@{servers}{parent}?tick_ms=500&ttl_ms=60000"));
    let here = Place::with_store(format!("zk://me:s3cret@{server}{parent}?tick_ms=500&ttl_ms=60000"));
    assert_eq!(ended(&mut here.run(&["job"], "true")), (0, String::new()));
    let said = |options: &[&str], level: Option<&str>| {
        let mut command = place.run(options, "true");
        if let Some(level) = level {
            command.env("FENCELOCK_LOG", level);
        }
        let (code, said) = ended(&mut command);
        assert!(!said.contains("s3cret"), "{said}");
        (code, said)
    };
    let (code, warned) = said(&["job"], None);
    assert_eq!((code, warned.lines().count()), (0, 1), "{warned}");
    assert!(warned.starts_with("fencelock: warn: the password is sent in the clear"), "{warned}");
    for (options, level) in
        [(&["--quiet", "job"][..], None), (&["--log-level", "off", "job"], None), (&["job"], Some("error"))]
    {
        assert_eq!(said(options, level), (0, String::new()), "{options:?}");
    }
    assert!(
        said(&["--quiet", "--log-level", "warn", "job"], Some("off")).1.contains("in the clear"),
        "the option wins"
    );
    let (code, wrong) = said(&["job"], Some("loud"));
    assert_eq!((code, wrong.contains("FENCELOCK_LOG") && wrong.contains("off, error, warn")), (78, true), "{wrong}");
}

#[test]
fn clients_that_take_or_look_at_a_lock_warn_of_the_end_of_its_numbers() {
    let server = Ensemble::start(Settings::default().with("digest.enabled", "false")).unwrap();
    let place = Place::with_store(format!("{}&ttl_ms=60000", server.url("/locks")));
    let warns = |told: &str, parent: &str| {
        told.contains("half of the numbers") && told.contains("1073741824") && told.contains(parent)
    };
    assert_eq!(ended(&mut place.run(&["job"], "true")).0, 0);
    server.server(0).set_sequence(&["/locks/job"], 1 << 30).unwrap();
    let (ended_with, text) = ended(&mut place.run(&["other"], "true"));
    assert_eq!((ended_with, text.as_str()), (0, ""), "another lock has numbers of its own");
    let (ended_with, text) = ended(&mut place.run(&["job"], "true"));
    assert!(ended_with == 0 && warns(&text, "/locks/job"), "{text}");
    let _holder = place.holder("job");
    let shown = output(&mut place.fencelock(&["show", "job"]));
    assert!(code(&shown) == 0 && stderr(&shown).contains("half of the numbers"), "{}", stderr(&shown));
}
