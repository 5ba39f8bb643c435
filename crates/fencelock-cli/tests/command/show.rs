//! `fencelock show`: the contenders of one queue, in order.

use std::process::Stdio;

use nix::sys::signal::Signal;

use crate::common::{Place, Running, ended, output, refused, stdout, stopped, written};

#[test]
fn every_contender_is_shown_in_order() {
    let place = Place::new();
    let holder = place.holder("job");
    let mut waiters = Vec::new();
    for number in 0..2 {
        waiters.push(Running::start(
            &mut place.run(&["--quiet", "--purpose", &format!("waiter {number}"), "job"], "true"),
        ));
        place.queued("job", number + 2);
    }
    let contenders = place.contenders("job");
    let field = |index: usize, field: &str| contenders[index][field].clone();
    for index in 0..3 {
        assert_eq!(field(index, "position"), index + 1);
        assert_eq!(field(index, "state"), if index == 0 { "holder" } else { "waiter" });
        assert_eq!(field(index, "claim"), "mutex");
        assert!(field(index, "since").as_str().unwrap().ends_with('Z'));
    }
    assert_eq!(field(0, "pid"), holder.pid().as_raw());
    assert!(field(0, "token").as_str().unwrap().parse::<i64>().unwrap() > 0);
    assert!(field(1, "token").is_null());
    assert_eq!((field(1, "purpose"), field(2, "purpose")), ("waiter 0".into(), "waiter 1".into()));
    let table = stdout(&output(&mut place.fencelock(&["show", "job"])));
    let lines: Vec<_> = table.lines().collect();
    assert_eq!(lines.len(), 5, "{table}");
    assert!(lines[1].contains("holder") && lines[1].contains(&holder.pid().to_string()), "{table}");
    assert!(lines[2].contains("waiter 0") && lines[3].contains("waiter 1"), "{table}");
}

#[test]
fn an_idle_name_and_a_wrong_one_look_different() {
    let place = Place::new();
    assert_eq!(ended(&mut place.run(&["job"], "true")).0, 0);
    let idle = output(&mut place.fencelock(&["show", "idle"]));
    assert!(stdout(&idle).starts_with("no client holds or waits for idle\n"), "{}", stdout(&idle));
    assert!(idle.status.success());
    let (code, text) = ended(&mut place.fencelock(&["show", "a//b"]));
    assert_eq!(code, 64);
    assert!(text.contains("a//b"), "{text}");
}

#[test]
fn readers_writers_and_permits_look_different() {
    let place = Place::new();
    let start = |options: &[&str]| Running::start(place.run(options, "cat").stdin(std::process::Stdio::piped()));
    let _readers = [start(&["--shared", "page"]), start(&["--shared", "page"])];
    place.queued("page", 2);
    let _writer = start(&["--exclusive", "--quiet", "page"]);
    let _permits = start(&["--permits", "2/3", "seats"]);
    place.queued("page", 3);
    place.queued("seats", 1);
    let told = |name: &str| -> Vec<String> {
        let fields = |c: &serde_json::Value| format!("{} {} {} {}", c["state"], c["kind"], c["permits"], c["capacity"]);
        place.contenders(name).iter().map(fields).collect()
    };
    let (reader, writer) = (r#""holder" "reader" null null"#, r#""waiter" "writer" null null"#);
    assert_eq!(told("page"), [reader, reader, writer]);
    assert_eq!(told("seats"), [r#""holder" "permits" 2 3"#]);
    let table = stdout(&output(&mut place.fencelock(&["show", "page"])));
    let lines: Vec<_> = table.lines().collect();
    assert!(lines[0].contains("CLAIM") && lines[1].contains("reader") && lines[3].contains("writer"), "{table}");
    let listed = stdout(&output(&mut place.fencelock(&["ls"])));
    let lines: Vec<_> = listed.lines().collect();
    assert!(lines[1].contains("2 readers") && lines[2].contains("2 of 3"), "{listed}");
    let listed = stdout(&output(&mut place.fencelock(&["ls", "--json"])));
    let locks: serde_json::Value = serde_json::from_str(&listed).unwrap();
    assert_eq!((&locks[0]["kind"], &locks[1]["kind"]), (&"read-write".into(), &"semaphore".into()));
    assert_eq!((&locks[1]["permits"], &locks[1]["capacity"]), (&2.into(), &3.into()));
}

#[test]
fn a_long_queue_is_shown_by_pages() {
    let place = Place::new();
    let _holder = place.holder("job");
    let mut waiters = Vec::new();
    for number in 0..3 {
        let options = ["--quiet", "--purpose", &format!("waiter {number}"), "job"];
        waiters.push(Running::start(&mut place.run(&options, "true")));
        place.queued("job", number + 2);
    }
    let page = |options: &[&str]| stdout(&output(&mut place.fencelock(&[&["show", "job"], options].concat())));
    let first = page(&["--limit", "2"]);
    let lines: Vec<_> = first.lines().collect();
    assert!(lines[1].contains("holder") && lines[2].contains("waiter 0"), "{first}");
    assert_eq!(lines[3], "4 in the queue; --skip 2 shows those behind");
    let second = page(&["--skip", "2", "--limit", "2"]);
    let lines: Vec<_> = second.lines().collect();
    assert!(lines[1].starts_with('3') && lines[1].contains("waiter 1") && lines[2].contains("waiter 2"), "{second}");
    let json: serde_json::Value = serde_json::from_str(&page(&["--json", "--skip", "3"])).unwrap();
    assert_eq!((json["queued"].as_u64(), json["contenders"][0]["position"].as_u64()), (Some(4), Some(4)));
    assert_eq!(json["store"].as_str(), Some(&*place.url()));
    let listed = stdout(&output(&mut place.fencelock(&["ls"])));
    assert!(listed.lines().nth(1).unwrap().ends_with('3'), "{listed}");
}

/// The output of `show`, `ls` and a refused `run` about the lock `job`; the refusal says `part`.
fn reports_of_job(place: &Place, part: &str) -> [String; 3] {
    let refused = refused(&mut place.run(&["--try", "job"], "true"), part);
    [stdout(&output(&mut place.fencelock(&["show", "job"]))), stdout(&output(&mut place.fencelock(&["ls"]))), refused]
}

#[test]
fn a_killed_holder_is_shown_as_gone_with_the_process_that_keeps_its_lock() {
    let place = Place::new();
    let mut holder = Running::start(place.run(&["job"], "echo $$ > pid; exec cat").stdin(Stdio::piped()));
    let command = written(&place.path("pid")).trim().to_owned();
    let (pid, _stdin) = (holder.pid(), holder.0.as_mut().unwrap().stdin.take());
    assert!(place.contenders("job")[0]["process"].is_null());
    holder.signal(Signal::SIGKILL);
    holder.0.take().unwrap().wait().unwrap();
    let shown = &place.contenders("job")[0];
    assert_eq!((&shown["process"], shown["kept_by"][0].to_string()), (&"gone".into(), command.clone()));
    let trouble = format!("process {pid} is gone; its session is kept open by process {command}");
    for told in reports_of_job(&place, &trouble) {
        assert!(told.contains(&trouble), "{told}");
    }
}

#[test]
fn a_waiter_that_was_granted_while_it_was_stopped_is_said_to_be_with_what_helps() {
    let place = Place::new();
    let holder = place.holder("job");
    let waiter = Running::start(&mut place.run(&["--quiet", "job"], "true"));
    place.queued("job", 2);
    waiter.signal(Signal::SIGSTOP);
    stopped(waiter.pid().as_raw());
    assert_eq!(place.contenders("job")[1]["process"], "stopped");
    drop(holder);
    place.queued("job", 1);
    let pid = waiter.pid();
    let trouble = format!("process {pid} is stopped and keeps the lock");
    for told in reports_of_job(&place, &trouble) {
        assert!(told.contains(&trouble), "{told}");
        assert!(told.contains(&format!("`kill -CONT {pid}`")) && told.contains("`fencelock break job`"), "{told}");
    }
    waiter.signal(Signal::SIGCONT);
    assert_eq!(waiter.code(), 0);
}
