//! Foreign keys, and servers without free memory.

use fencelock_testbed::redis::{Server, Settings};

use super::super::*;
use super::bed::{Bed, LONG};
use crate::stores::redis::fair::fault::{Refusal, refusal};

fn name(name: &str) -> Name {
    Name::new(name).unwrap()
}

#[test]
fn a_key_of_another_type_is_an_error_that_changes_nothing() {
    let mut bed = Bed::new();
    let (layout, session) = (bed.layout.clone(), bed.session(LONG));
    let (bucket, queue) = (name("type/bucket"), name("type/queue"));
    bed.words(&["SET", &layout.slot(&bucket).bucket_key, "mine"]);
    bed.hold(session, &queue, Claim::MUTEX);
    bed.words(&["SET", &layout.slot(&queue).queue_key, "mine"]);
    let before = bed.raw_fields(&queue);
    for name in [&bucket, &queue] {
        let entry = bed.entry(name, Claim::MUTEX, true);
        let error = bed.try_run(enter(&layout, session, 1, &entry)).unwrap_err();
        assert_eq!(refusal(&error), Some(Refusal::Layout), "{error}");
    }
    assert_eq!(bed.raw_fields(&queue), before);
    let error = bed.try_run(show(&layout, &bucket, 0, None, 9)).unwrap_err();
    assert_eq!(refusal(&error), Some(Refusal::Layout), "{error}");
    let key = layout.session_key(99);
    bed.words(&["SET", &key, "mine"]);
    let entry = bed.entry(&name("type/session"), Claim::MUTEX, true);
    let error = bed.try_run(enter(&layout, 99, 1, &entry)).unwrap_err();
    assert_eq!(refusal(&error), Some(Refusal::Layout), "{error}");
}

#[test]
fn records_of_another_kind_are_an_error_and_no_grant() {
    let (mut bed, name) = (Bed::new(), name("strange"));
    let (layout, session) = (bed.layout.clone(), bed.session(LONG));
    let bucket = layout.slot(&name).bucket_key;
    let refused = |bed: &mut Bed| {
        let entry = bed.entry(&name, Claim::MUTEX, true);
        let error = bed.try_run(enter(&layout, session, 1, &entry)).unwrap_err();
        assert_eq!(refusal(&error), Some(Refusal::Layout), "{error}");
        let detail = error.to_string();
        assert!(detail.contains(&bucket), "the error does not name the key: {detail}");
    };
    for record in ["", "hello", "2 1 1 1 z 0 0", "-1 1 1 1 - 0 0", "2 1 1 1 - 0", "000000000000000a-1 g what"] {
        bed.words(&["HSET", &bucket, name.as_str(), record]);
        refused(&mut bed);
    }
    bed.words(&["DEL", &bucket]);
    bed.words(&["HSET", &bucket, ".", "soon"]);
    refused(&mut bed);
}

#[test]
fn an_order_that_was_removed_is_an_error_and_no_grant() {
    let (mut bed, name) = (Bed::new(), name("removed"));
    let (layout, session) = (bed.layout.clone(), bed.session(LONG));
    let (held, seq) = bed.hold(session, &name, Claim::MUTEX);
    for _ in 0..2 {
        bed.wait(session, &name, Claim::MUTEX);
    }
    let queue = layout.slot(&name).queue_key;
    bed.words(&["DEL", &queue]);
    let error = bed.try_run(leave(&layout, (&name, held), Some(seq))).unwrap_err();
    assert_eq!(refusal(&error), Some(Refusal::Layout), "{error}");
    assert!(error.to_string().contains(&queue), "{error}");
}

#[test]
fn scripts_that_the_server_forgot_are_taught_again() {
    let server = Server::start(Settings::default()).unwrap();
    let (mut bed, name) = (Bed::at(&server.url()), name("forgotten"));
    let session = bed.session(LONG);
    let (id, seq) = bed.hold(session, &name, Claim::MUTEX);
    bed.words(&["SCRIPT", "FLUSH"]);
    let call = leave(&bed.layout.clone(), (&name, id), Some(seq));
    assert_eq!(bed.ask(&call.command).unwrap_err().code(), Some("NOSCRIPT"));
    assert!(bed.run(call));
}

#[test]
fn without_memory_nothing_is_taken_and_everything_is_given_back() {
    let server = Server::start(Settings::default()).unwrap();
    let (mut bed, name) = (Bed::at(&server.url()), name("full"));
    let (layout, session, other) = (bed.layout.clone(), bed.session(LONG), bed.session(LONG));
    let (held, seq) = bed.hold(session, &name, Claim::WRITER);
    let (next, next_seq, _) = bed.wait(other, &name, Claim::WRITER);
    let (third, third_seq, _) = bed.wait(other, &name, Claim::READER);
    for script in all() {
        bed.ask(&script.load()).unwrap();
    }
    bed.words(&["CONFIG", "SET", "maxmemory", "1"]);
    let before = bed.raw(&name);
    let entry = bed.entry(&name, Claim::WRITER, true);
    let error = bed.try_run(enter(&layout, session, 1, &entry)).unwrap_err();
    assert!(error.to_string().contains("OOM"), "{error}");
    assert_eq!(bed.raw(&name), before, "a refused entry left something");
    bed.renewed(session, LONG);
    assert!(bed.run(withdraw(&layout, session, (&name, entry.id))).0.is_some());
    assert!(bed.run(leave(&layout, (&name, held), Some(seq))));
    assert!(bed.run(lighten(&layout, other, (&name, next), next_seq, Claim::READER)));
    assert_eq!(bed.seen(other, &name, third), Seen::Granted(third_seq));
    let given_up = [(name.clone(), vec![next, third])];
    bed.run(close(&layout, other, &given_up, true));
    assert_eq!(bed.line(&name), []);
}

#[test]
fn without_memory_queues_are_still_read_and_looked_after() {
    let server = Server::start(Settings::default()).unwrap();
    let (mut bed, name) = (Bed::at(&server.url()), name("full"));
    let (layout, session, other) = (bed.layout.clone(), bed.session(LONG), bed.session(LONG));
    bed.hold(session, &name, Claim::MUTEX);
    let (next, seq, _) = bed.wait(other, &name, Claim::MUTEX);
    for script in all() {
        bed.ask(&script.load()).unwrap();
    }
    // Every boundary has passed, so that the script looks at the contenders ahead and writes a new boundary.
    let passed = |bed: &mut Bed, dead| {
        bed.words(&["CONFIG", "SET", "maxmemory", "0"]);
        bed.kill(dead, &[&name]);
        bed.words(&["CONFIG", "SET", "maxmemory", "1"]);
    };
    let no_session = 0;
    passed(&mut bed, no_session);
    assert_eq!(bed.seen(other, &name, next), Seen::Waiting(seq, None));
    passed(&mut bed, no_session);
    assert_eq!(bed.line(&name).len(), 2);
    passed(&mut bed, no_session);
    assert_eq!(bed.listed(4096, name.as_str()).0, std::slice::from_ref(&name));
    passed(&mut bed, no_session);
    let entry = bed.entry(&name, Claim::MUTEX, false);
    assert_eq!(bed.run(enter(&layout, other, 1, &entry)), Enter::Busy);
    passed(&mut bed, session);
    assert_eq!(bed.seen(other, &name, next), Seen::Granted(seq));
}

#[test]
fn a_name_that_is_broken_is_listed_and_hides_no_other() {
    let (mut bed, name, other) = (Bed::new(), name("broken"), name("whole"));
    let (layout, session) = (bed.layout.clone(), bed.session(LONG));
    bed.hold(session, &other, Claim::MUTEX);
    let key = layout.slot(&name).bucket_key;
    for record in ["nonsense", "9 9 9 9 a 0 0", "2 2 2 2 p 0 0"] {
        bed.words(&["HSET", &key, name.as_str(), record]);
        let (listed, _) = bed.listed(4096, "");
        assert_eq!(listed, [name.clone(), other.clone()], "{record}");
    }
}
