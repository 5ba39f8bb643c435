//! `fencelock serve` over HTTP: which requests it answers, and how.

use std::io::{BufRead as _, BufReader, Write as _};
use std::net::TcpStream;
use std::process::Stdio;

use fencelock_testbed::redis::{Server, Settings};
use fencelock_testbed::zookeeper::shared;
use fencelock_zookeeper::CreateMode;
use nix::sys::signal::Signal;

use crate::common::hand::{by_hand, plant};
use crate::common::http::{Served, ask, token};
use crate::common::{Place, Running, ended, output, stdout, until};

/// A store in which one holds `job/one` and another waits.
fn busy() -> (Place, Running, Running) {
    let place = Place::new();
    let holder = place.holder("job/one");
    let waiter = Running::start(place.run(&["--quiet", "job/one"], "cat").stdin(Stdio::piped()));
    place.queued("job/one", 2);
    (place, holder, waiter)
}

#[test]
fn every_answer_forbids_what_the_page_does_not_need() {
    let (place, _holder, _waiter) = busy();
    let served = Served::start(&place, &[]);
    for (path, status, kind) in [
        ("/", 200, "text/html; charset=utf-8"),
        ("/page.js", 200, "text/javascript; charset=utf-8"),
        ("/page.css", 200, "text/css; charset=utf-8"),
        ("/metrics", 200, "text/plain; version=0.0.4; charset=utf-8"),
        ("/api/locks", 200, "application/json"),
        ("/api/locks/..", 400, "application/json"),
        ("/nothing", 404, ""),
    ] {
        let answer = served.get(path);
        assert_eq!((answer.status, answer.header("content-type").unwrap_or_default()), (status, kind), "{path}");
        let policy = answer.header("content-security-policy").unwrap();
        assert!(policy.starts_with("default-src 'none'") && !policy.contains("unsafe"), "{policy}");
        assert_eq!(answer.header("x-content-type-options"), Some("nosniff"));
        assert_eq!(answer.header("access-control-allow-origin"), None);
    }
    let page = served.get("/").body;
    assert!(
        !page.contains("<style") && !page.contains(" style=") && !page.contains("onclick"),
        "the policy forbids it"
    );
}

#[test]
fn a_check_of_a_load_balancer_without_a_host_is_answered() {
    let place = Place::new();
    let _holder = place.holder("job");
    let served = Served::start(&place, &[]);
    let check = |request: &str| {
        let mut stream = TcpStream::connect(served.address).unwrap();
        stream.write_all(request.as_bytes()).unwrap();
        BufReader::new(stream).lines().next().unwrap().unwrap()
    };
    until("it is healthy", || check("GET /healthz HTTP/1.0\r\n\r\n").contains("200 OK").then_some(()));
    assert!(check("GET /api/locks HTTP/1.0\r\n\r\n").contains("421"));
}

#[test]
fn other_names_and_other_sites_are_refused() {
    let place = Place::new();
    let _holder = place.holder("job");
    let served = Served::start(&place, &["--host", "locks.example"]);
    let get = |headers: &[(&str, &str)]| ask(served.address, "GET", "/api/locks", headers, "").status;
    assert_eq!(get(&[("Host", "evil.example")]), 421);
    assert_eq!(get(&[("Host", "locks.example")]), 200);
    assert_eq!(get(&[("Host", "locks.example"), ("Origin", "https://locks.example")]), 200);
    assert_eq!(get(&[("Origin", "http://evil.example")]), 403);
    assert_eq!(get(&[("Origin", "null")]), 403);
    let absolute = ask(served.address, "GET", "http://evil.example/api/locks", &[("Host", "localhost")], "");
    assert_eq!(absolute.status, 421);
}

#[test]
fn every_address_that_others_reach_needs_a_token() {
    let place = Place::new();
    let _holder = place.holder("job");
    let (token, file) = token(&place);
    for options in [&["--listen", "0.0.0.0:0"][..], &["--allow-break"], &["--listen", "[::]:0", "--allow-break"]] {
        let (code, said) = ended(place.fencelock(&["serve"]).args(options));
        assert_eq!((code, said.contains("--token-file")), (64, true), "{said}");
    }
    let served = Served::start(&place, &["--listen", "0.0.0.0:0", "--token-file", &file]);
    let bearer = |token: &str| format!("Bearer {token}");
    for path in ["/metrics", "/api/locks", "/api/events", "/api/locks/job"] {
        let refused = served.get(path);
        assert_eq!((refused.status, refused.header("www-authenticate")), (401, Some("Bearer")), "{path}");
        assert!(!refused.body.contains(token));
    }
    let with = |token: &str| ask(served.address, "GET", "/api/locks", &[("Authorization", &bearer(token))], "").status;
    assert_eq!((with(token), with(&token[1..])), (200, 401));
    for path in ["/", "/page.js", "/page.css"] {
        assert_eq!(served.get(path).status, 200);
    }
    until("it is healthy", || (served.get("/healthz").status == 200).then_some(()));

    std::fs::write(&file, "short\n").unwrap();
    let (code, said) = ended(&mut place.fencelock(&["serve", "--token-file", &file]));
    assert_eq!((code, said.contains("16 or more") && !said.contains("short")), (78, true), "{said}");
    let (code, said) = ended(&mut place.fencelock(&["serve", "--token-file", "no-such-file"]));
    assert_eq!((code, said.contains("no-such-file: there is no such file")), (78, true), "{said}");
}

#[test]
fn a_port_that_is_taken_is_said() {
    let place = Place::new();
    let _holder = place.holder("job");
    let served = Served::start(&place, &[]);
    let address = served.address.to_string();
    let (code, said) = ended(&mut place.fencelock(&["serve", "--listen", &address]));
    assert_eq!(code, 71, "{said}");
    assert!(said.contains(&address) && said.contains("another program listens there"), "{said}");
    let other = place.fencelock(&["serve", "file:///no/such/store"]).output().unwrap();
    assert_eq!(other.status.code(), Some(69), "the store that the argument names: {other:?}");
    let (code, said) = ended(&mut place.fencelock(&["serve", "--listen", "localhost"]));
    assert_eq!((code, said.contains("127.0.0.1:7433")), (64, true), "{said}");
}

/// Whether `line` is one of Prometheus' text format: a name, labels, a number.
fn is_a_figure(line: &str) -> bool {
    let Some((series, value)) = line.rsplit_once(' ') else { return false };
    let (name, labels) = series.split_once('{').map_or((series, ""), |(name, labels)| (name, labels));
    let is_closed = labels.is_empty() || (labels.starts_with("store=\"") && labels.ends_with("\"}"));
    name.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'_') && is_closed && value.parse::<f64>().is_ok()
}

#[test]
fn figures_are_counted_by_class_and_parse() {
    let (place, mut holder, _waiter) = busy();
    let _other = place.holder("mail");
    let served = Served::start(&place, &["--class", "job/*", "--class", "a\"b\\/*"]);
    served.counts("fencelock_store_locks{class=\"job/*\"}", "1");
    for (name, value) in [
        ("fencelock_store_up", "1"),
        ("fencelock_store_holders{class=\"job/*\"}", "1"),
        ("fencelock_store_waiters{class=\"job/*\"}", "1"),
        ("fencelock_store_locks{class=\"other\"}", "1"),
        ("fencelock_store_waiters{class=\"other\"}", "0"),
        ("fencelock_store_locks{class=\"a\\\"b\\\\/*\"}", "0"),
        ("fencelock_store_grants_total{class=\"job/*\"}", "0"),
    ] {
        served.counts(name, value);
    }
    drop(holder.0.as_mut().unwrap().stdin.take());
    served.counts("fencelock_store_grants_total{class=\"job/*\"}", "1");
    served.counts("fencelock_store_hold_seconds_bucket{class=\"job/*\",le=\"+Inf\"}", "1");
    served.counts("fencelock_store_hold_seconds_count{class=\"job/*\"}", "1");
    let text = served.get("/metrics").body;
    for line in text.lines().filter(|line| !line.starts_with('#')) {
        assert!(is_a_figure(line), "{line}");
    }
    let helped: Vec<_> = text.lines().filter_map(|line| line.strip_prefix("# TYPE ")).collect();
    assert!(helped.len() > 10, "{text}");
    assert!(!text.contains("mail") && !text.contains("job/one"), "names are no labels: {text}");
}

#[test]
fn a_class_by_a_pattern_that_matches_a_piece_of_a_part_is_refused() {
    let place = Place::new();
    let (code, said) = ended(&mut place.fencelock(&["serve", "--class", "user-*"]));
    assert_eq!((code, said.contains("`*` is any one part between slashes")), (64, true), "{said}");
}

#[test]
fn the_last_success_of_each_job_and_whether_it_failed_are_figures() {
    let place = Place::new();
    for (name, script) in [("mail", "true"), ("re\"port", "exit 3")] {
        let _ = output(&mut place.run(&["--slot", "a", name], script));
    }
    let served = Served::start(&place, &[]);
    served.counts("fencelock_store_job_failed{name=\"re\\\"port\"}", "1");
    served.counts("fencelock_store_job_failed{name=\"mail\"}", "0");
    let last_success = "fencelock_store_job_last_success_timestamp_seconds";
    served.counts(&format!("{last_success}{{name=\"re\\\"port\"}}"), "0");
    let text = served.get("/metrics").body;
    let of_mail = text.lines().find(|line| line.starts_with(last_success) && line.contains("name=\"mail\"")).unwrap();
    let (_, of_mail) = of_mail.rsplit_once(' ').unwrap();
    assert!(of_mail.parse::<f64>().unwrap() > 1.7e9, "{text}");
}

#[test]
fn locks_and_queues_are_listed_as_json() {
    let (place, holder, _waiter) = busy();
    let _other = place.holder("mail");
    let served = Served::start(&place, &[]);
    served.counts("fencelock_store_locks{class=\"other\"}", "2");
    let listed = served.get("/api/locks?prefix=job/").json();
    assert_eq!(
        (&listed["matching"], &listed["up"], &listed["locks"][0]["waiting"]),
        (&1.into(), &true.into(), &1.into())
    );
    assert_eq!(served.get("/api/locks?contains=i&limit=1").json()["locks"][0]["name"], "mail");
    assert_eq!(served.get("/api/locks?skip=1").json()["locks"][0]["name"], "mail");
    assert_eq!(served.get("/api/locks?urgent=true&limit=1").json()["locks"][0]["name"], "job/one", "one waits for it");
    for path in ["/api/locks/job/one", "/api/locks/job%2Fone"] {
        let shown = served.get(path).json();
        assert_eq!((&shown["queued"], &shown["contenders"][0]["pid"]), (&2.into(), &holder.pid().as_raw().into()));
    }
    for (path, status) in [
        ("/api/locks?prefx=a", 400),
        ("/api/locks?skip=x", 400),
        ("/api/locks?class=none", 400),
        ("/api/locks/idle", 404),
        ("/api/locks/a//b", 400),
    ] {
        let refused = served.get(path);
        assert_eq!((refused.status, refused.json()["error"].is_string()), (status, true), "{path}: {refused:?}");
    }
}

#[test]
fn a_grant_is_broken_only_where_that_is_allowed_and_only_the_one_that_is_meant() {
    let (place, mut holder, waiter) = busy();
    let (token, file) = token(&place);
    let bearer = format!("Bearer {token}");
    let request = |at: usize| place.contenders("job/one")[at]["request"].as_str().unwrap().to_owned();
    let order = |request: &str, reason: &str| serde_json::json!({ "request": request, "reason": reason }).to_string();
    let (first, second) = (request(0), request(1));

    let only_shows = Served::start(&place, &[]);
    assert_eq!(only_shows.post("/api/locks/job/one/break", &[], &order(&first, "stuck")).status, 403);

    let served = Served::start(&place, &["--allow-break", "--token-file", &file]);
    let authorization = ("Authorization", bearer.as_str());
    let path = "/api/locks/job%2Fone/break";
    let post = |body: &str| served.post(path, &[authorization], body);
    assert_eq!(served.post(path, &[], &order(&first, "stuck")).status, 401);
    assert_eq!(served.post(path, &[authorization, ("Origin", "http://evil")], &order(&first, "stuck")).status, 403);
    let plain = [authorization, ("Content-Type", "text/plain")];
    assert_eq!(ask(served.address, "POST", path, &plain, &order(&first, "stuck")).status, 415);
    for body in ["", "{}", "[]", &order(&first, " "), &order(&first, "a\nb"), &order(&first, &"x".repeat(513))] {
        assert_eq!(post(body).status, 400, "{body}");
    }
    assert_eq!(post(&order(&first, &"x".repeat(20_000))).status, 413);
    assert_eq!(post(&order(&second, "stuck")).status, 404, "who waits has no grant");
    assert_eq!(post(&order(&first, "stuck since noon")).status, 200);
    // The holder would end by itself if its stdin were closed.
    let _typed = holder.0.as_mut().unwrap().stdin.take();
    assert_eq!(holder.code(), 76);
    until("the next one holds", || (request(0) == second).then_some(()));
    assert_eq!(post(&order(&first, "stuck since noon")).status, 404, "it is gone");
    let own = u64::try_from(served.running.pid().as_raw()).unwrap();
    until("the record of the break is shown", || {
        let shown = ask(served.address, "GET", "/api/locks/job%2Fone", &[authorization], "").json();
        let record = &shown["breaks"][0];
        (record["reason"] == "stuck since noon" && record["by_pid"] == own).then_some(())
    });
    drop(waiter);
}

#[test]
fn an_outage_is_said_with_no_old_figures_and_ends_with_the_outage() {
    let server = Server::start(Settings::default()).unwrap();
    let place = Place::with_store(format!("{}?ttl_ms=60000", server.url()));
    let _holder = place.holder("job");
    let served = Served::start(&place, &[]);
    served.counts("fencelock_store_locks{class=\"other\"}", "1");
    assert_eq!(served.get("/healthz").status, 200);
    server.kill();
    served.counts("fencelock_store_up", "0");
    assert_eq!(served.get("/healthz").status, 503);
    assert!(!served.get("/metrics").body.contains("fencelock_store_locks{"));
    assert_eq!(served.get("/api/locks").json()["up"], false);
    server.restart().unwrap();
    served.counts("fencelock_store_up", "1");
    until("it is healthy", || (served.get("/healthz").status == 200).then_some(()));
}

#[test]
fn ages_are_counted_by_the_clock_of_the_store() {
    let server = Server::start(Settings { own_clock: true, ..Settings::default() }).unwrap();
    server.set_clock(-86_400 * 3).unwrap();
    let place = Place::with_store(format!("{}?ttl_ms=60000", server.url()));
    let _holder = place.holder("job");
    for verb in [&["show", "job"][..], &["ls"], &["top", "--once"]] {
        let shown = output(&mut place.fencelock(verb));
        let table = stdout(&shown);
        let line = table.lines().find(|line| line.contains("to test")).unwrap_or_else(|| panic!("{verb:?}: {shown:?}"));
        assert!(!line.contains("day") && !line.contains("3d") && !line.contains("72h"), "{verb:?}: {line}");
    }
    let served = Served::start(&place, &[]);
    served.counts("fencelock_store_locks{class=\"other\"}", "1");
    let text = served.get("/metrics").body;
    let age = text.lines().find(|line| line.starts_with("fencelock_store_oldest_hold_seconds")).unwrap();
    assert!(age.rsplit_once(' ').unwrap().1.parse::<f64>().unwrap() < 86_400.0, "{age}");
}

#[test]
fn a_signal_ends_the_server_although_a_client_reads_events() {
    let place = Place::new();
    let _holder = place.holder("job");
    let served = Served::start(&place, &[]);
    let mut stream = TcpStream::connect(served.address).unwrap();
    stream.write_all(b"GET /api/events HTTP/1.1\r\nHost: localhost\r\n\r\n").unwrap();
    let mut lines = BufReader::new(stream).lines();
    let mut read = || lines.find(|line| line.as_ref().is_ok_and(|line| line.starts_with("data: {"))).unwrap().unwrap();
    let event: serde_json::Value = serde_json::from_str(&read()["data: ".len()..]).unwrap();
    assert!(
        event["stores"][0]["store"].as_str().unwrap().starts_with("file://") && event["classes"][0]["class"] == "other"
    );
    served.counts("fencelock_store_viewers", "1");
    served.running.signal(Signal::SIGTERM);
    assert_eq!(served.running.code(), 0);
}

#[test]
fn contenders_of_other_clients_are_counted_and_shown_and_not_broken() {
    let parent = shared().namespace();
    let place = Place::with_store(format!("zk://{}{parent}?tick_ms=500&ttl_ms=60000", shared().address()));
    let (token, file) = token(&place);
    by_hand(async |client| {
        let sequential = CreateMode::EphemeralSequential;
        let curator = "_c_fb230995-c2bc-4a6c-98b5-6f506fd9afae-lock-";
        plant(&client, &format!("{parent}/theirs/{curator}"), sequential, "10.0.0.7").await;
        let _holder = place.holder("ours");
        let kazoo = "94b6e5cf49364b1f8706ee06e5d07c35__lock__";
        plant(&client, &format!("{parent}/ours/{kazoo}"), sequential, "10.0.0.8").await;
        let served = Served::start(&place, &["--allow-break", "--token-file", &file]);
        let authorization = ("Authorization", format!("Bearer {token}"));
        let authorization = [(authorization.0, authorization.1.as_str())];
        let get = |path: &str| ask(served.address, "GET", path, &authorization, "");
        let store = place.url().split('?').next().unwrap().to_owned();
        for (figure, count) in [("foreign", 2), ("beside", 1)] {
            let line = format!("fencelock_store_{figure}_contenders{{store=\"{store}\",class=\"other\"}} {count}\n");
            until(&line, || get("/metrics").body.contains(&line).then_some(()));
        }
        let listed = get("/api/locks").json();
        let warned = listed["locks"][0]["error"].as_str().unwrap();
        assert!(warned.contains("kazoo") && warned.contains("may be held by several at once"), "{warned}");
        assert_eq!(listed["locks"][1]["holder"], "10.0.0.7");
        let request = get("/api/locks/theirs").json()["contenders"][0]["request"].take();
        let order = serde_json::json!({ "request": request, "reason": "stuck" }).to_string();
        let refused = served.post("/api/locks/theirs/break", &authorization, &order);
        assert_eq!((refused.status, refused.body.contains("--untold")), (409, true), "{refused:?}");
    });
}
