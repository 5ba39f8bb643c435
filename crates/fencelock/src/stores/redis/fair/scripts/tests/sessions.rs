//! Sessions: their lives and ends, and the requests that they admit.

use super::super::*;
use super::bed::{Bed, LONG};
use crate::stores::redis::fair::fault::{Refusal, refusal};
use crate::stores::redis::fair::layout::push_id;

fn name(name: &str) -> Name {
    Name::new(name).unwrap()
}

#[test]
fn a_withdrawn_request_never_takes_effect_however_late_it_comes() {
    let (mut bed, name) = (Bed::new(), name("late"));
    let (layout, session) = (bed.layout.clone(), bed.session(LONG));
    let entry = bed.entry(&name, Claim::MUTEX, true);
    let held_up = enter(&layout, session, 1, &entry);
    let withdrawn = bed.run(withdraw(&layout, session, (&name, entry.id)));
    assert_eq!(withdrawn, (Some(2), false));
    assert_eq!(bed.run(held_up), Enter::Stale(2));
    assert_eq!(bed.raw(&name).0.len(), 0, "it left something");
    let next = bed.entry(&name, Claim::MUTEX, true);
    assert!(matches!(bed.run(enter(&layout, session, 2, &next)), Enter::Granted(_)));
}

#[test]
fn a_new_connection_of_a_session_outdates_what_the_old_one_held_up() {
    let (mut bed, name) = (Bed::new(), name("reconnect"));
    let (layout, session) = (bed.layout.clone(), bed.session(LONG));
    let entry = bed.entry(&name, Claim::MUTEX, true);
    let held_up = enter(&layout, session, 1, &entry);
    assert_eq!(bed.run(resume(&layout, session, LONG)), Some(2));
    assert_eq!(bed.run(held_up), Enter::Stale(2));
}

#[test]
fn an_ended_session_lets_nothing_in_and_is_not_revived() {
    let (mut bed, name) = (Bed::new(), name("over"));
    let (layout, session) = (bed.layout.clone(), bed.session(LONG));
    let (held, seq) = bed.hold(session, &name, Claim::MUTEX);
    bed.kill(session, &[&name]);
    assert_eq!(bed.run(renew(&layout, session, LONG, &[], &[])), Renewed::Gone);
    assert_eq!(bed.run(resume(&layout, session, LONG)), None);
    assert_eq!(bed.enter(session, &name, Claim::MUTEX).1, Enter::Gone);
    let look = bed.run(look(&layout, session, &[(name.clone(), vec![held])], true));
    assert_eq!(look, None);
    assert_eq!(bed.run(withdraw(&layout, session, (&name, held))), (None, true));
    assert!(!bed.run(leave(&layout, (&name, held), Some(seq))));
    assert_eq!(bed.words(&["EXISTS", &layout.session_key(session)]), Value::Int(0), "something revived it");
}

#[test]
fn an_opening_whose_answer_was_lost_is_repeated() {
    let mut bed = Bed::new();
    let (layout, session) = (bed.layout.clone(), bed.session(LONG));
    let owner = Owner { client: 7, host: "there".to_owned(), pid: 3 };
    assert_eq!(bed.run(open(&layout, session, LONG, &owner)), Open::Opened(2));
}

#[test]
fn another_version_of_the_layout_is_refused_and_left_alone() {
    let mut bed = Bed::new();
    let (layout, owner) = (bed.layout.clone(), Owner { client: 7, host: String::new(), pid: 0 });
    bed.words(&["SET", &layout.layout_key(), "1"]);
    assert_eq!(bed.run(open(&layout, 7, LONG, &owner)), Open::Layout("1".to_owned()));
    assert_eq!(bed.words(&["EXISTS", &layout.session_key(7)]), Value::Int(0));
}

#[test]
fn a_session_with_thousands_of_locks_is_renewed_at_once() {
    let mut bed = Bed::new();
    let (layout, session) = (bed.layout.clone(), bed.session(Duration::from_secs(60)));
    for number in 0..2000 {
        bed.hold(session, &name(&format!("many/{number}")), Claim::MUTEX);
    }
    bed.renewed(session, LONG);
    let left: u64 = match bed.words(&["PTTL", &layout.session_key(session)]) {
        Value::Int(left) => left.unsigned_abs(),
        other => panic!("{other:?}"),
    };
    assert!(left > 60_000, "{left} ms are left");
}

#[test]
fn a_closed_session_leaves_nothing_and_lets_the_next_one_in() {
    let (mut bed, one, two) = (Bed::new(), name("close/one"), name("close/two"));
    let (layout, session, other) = (bed.layout.clone(), bed.session(LONG), bed.session(LONG));
    let (first, _) = bed.hold(session, &one, Claim::MUTEX);
    let (own, ..) = bed.wait(session, &one, Claim::MUTEX);
    let (next, seq, _) = bed.wait(other, &one, Claim::MUTEX);
    let (second, _) = bed.hold(session, &two, Claim::MUTEX);
    let (next_two, seq_two, _) = bed.wait(other, &two, Claim::MUTEX);
    bed.received();
    let places = [(one.clone(), vec![first, own]), (two.clone(), vec![second])];
    bed.run(close(&layout, session, &places, true));
    let granted = |name: &Name, id, seq| News::Granted(PlaceId { name: name.clone(), request: id }, seq);
    assert_eq!(bed.received(), [(other, vec![granted(&one, next, seq), granted(&two, next_two, seq_two)])]);
    bed.run(close(&layout, session, &places, true));
    assert_eq!((bed.line(&one), bed.line(&two)), (vec![next], vec![next_two]));
    assert_eq!(bed.enter(session, &two, Claim::MUTEX).1, Enter::Gone);
}

#[test]
fn a_damaged_name_keeps_no_other_from_being_given_up_and_reported() {
    let (mut bed, one, two) = (Bed::new(), name("close/whole"), name("close/broken"));
    let (layout, session, other) = (bed.layout.clone(), bed.session(LONG), bed.session(LONG));
    let (first, _) = bed.hold(session, &one, Claim::MUTEX);
    let (next, seq, _) = bed.wait(other, &one, Claim::MUTEX);
    let permits = |weight| Claim::new(weight, 3).unwrap();
    let (second, _) = bed.hold(session, &two, permits(3));
    bed.wait(other, &two, permits(1));
    let (missing, ..) = bed.wait(other, &two, permits(1));
    bed.received();
    // The script finds the gap after it granted the place ahead, with a message; both are undone.
    let mut field = format!("{two}\n");
    push_id(&mut field, missing);
    bed.words(&["HDEL", &layout.slot(&two).bucket_key, &field]);
    for places in [[(&two, second), (&one, first)], [(&one, first), (&two, second)]] {
        let places = places.map(|(name, id)| (name.clone(), vec![id]));
        let error = bed.try_run(close(&layout, session, &places, true)).unwrap_err();
        assert_eq!(refusal(&error), Some(Refusal::Layout), "{error}");
    }
    let granted = News::Granted(PlaceId { name: one.clone(), request: next }, seq);
    assert_eq!(bed.received(), [(other, vec![granted])]);
    assert_eq!(bed.line(&one), [next]);
}

#[test]
fn places_of_other_sessions_survive_when_one_closes_with_their_ids() {
    let (mut bed, name) = (Bed::new(), name("close/strangers"));
    let (layout, session, other) = (bed.layout.clone(), bed.session(LONG), bed.session(LONG));
    let (held, _) = bed.hold(other, &name, Claim::MUTEX);
    bed.run(close(&layout, session, &[(name.clone(), vec![held])], true));
    assert_eq!(bed.line(&name), [held]);
}

#[test]
fn a_request_left_over_from_an_earlier_session_starts_again_at_the_tail() {
    let (mut bed, name) = (Bed::new(), name("again"));
    let (layout, old, new, other) = (bed.layout.clone(), bed.session(LONG), bed.session(LONG), bed.session(LONG));
    let (entry, Enter::Granted(before)) = bed.enter(old, &name, Claim::MUTEX) else { panic!() };
    let (next, ..) = bed.wait(other, &name, Claim::MUTEX);
    let Enter::Waiting { seq, .. } = bed.run(enter(&layout, new, 1, &entry)) else { panic!() };
    assert!(seq > before);
    assert_eq!(bed.line(&name), [next, entry.id]);
    assert!(!bed.run(leave(&layout, (&name, entry.id), Some(before))), "the old place left with the new one");
    assert_eq!(bed.seen(old, &name, entry.id), Seen::Missing);
}

#[test]
fn a_broken_holder_is_notified_by_message_and_by_every_renewal_until_it_acknowledges() {
    let (mut bed, name) = (Bed::new(), name("break {me}"));
    let (layout, session, other) = (bed.layout.clone(), bed.session(LONG), bed.session(LONG));
    let (held, seq) = bed.hold(session, &name, Claim::MUTEX);
    let (next, next_seq, _) = bed.wait(other, &name, Claim::MUTEX);
    bed.received();
    let place = PlaceId { name: name.clone(), request: held };
    let order = |place: &PlaceId, seq| Break {
        place: place.clone(),
        token: crate::token::FencingToken::new(seq),
        claim: Claim::MUTEX,
        owner: None,
        by: Owner { client: 1, host: String::new(), pid: 0 },
        reason: "it hangs".into(),
        at: UNIX_EPOCH,
    };
    assert!(!bed.run(break_grant(&layout, &order(&place, seq + 1), "no").unwrap()), "a later grant was broken");
    assert!(bed.run(break_grant(&layout, &order(&place, seq), "first").unwrap()));
    assert!(bed.run(break_grant(&layout, &order(&place, seq), "first").unwrap()), "the same order again");
    assert!(!bed.run(break_grant(&layout, &order(&place, seq), "second").unwrap()), "another order");
    let mut received = bed.received();
    received.sort_by_key(|(expected, _)| *expected != session);
    let granted = News::Granted(PlaceId { name: name.clone(), request: next }, next_seq);
    let broken = News::Broken(place.clone(), seq, "it hangs".into());
    assert_eq!(received, [(session, vec![broken]), (other, vec![granted])]);
    let expected = vec![Broken { place: place.clone(), grant: seq, reason: "it hangs".into() }];
    let expected = Renewed::Alive { broken: expected, lost: vec![] };
    assert_eq!(bed.run(renew(&layout, session, LONG, &[], &[])), expected);
    assert_eq!(bed.run(renew(&layout, session, LONG, &[], &[])), expected);
    let other_grant = [(place.clone(), seq - 1), (place.clone(), seq * 10)];
    for grant in other_grant {
        assert_eq!(
            bed.run(renew(&layout, session, LONG, &[], &[grant])),
            expected,
            "another grant of the place is known"
        );
    }
    let known = Renewed::Alive { broken: vec![], lost: vec![] };
    assert_eq!(bed.run(renew(&layout, session, LONG, &[], &[(place, seq)])), known);
    assert_eq!(bed.run(renew(&layout, session, LONG, &[], &[])), known);
    let kept: Vec<String> = breaks(&layout, &name).query(&mut bed.connection).unwrap();
    assert_eq!(kept, ["first"]);
}

#[test]
fn a_waiter_is_not_broken() {
    let (mut bed, name) = (Bed::new(), name("break/waiter"));
    let (layout, session) = (bed.layout.clone(), bed.session(LONG));
    bed.hold(session, &name, Claim::MUTEX);
    let (waits, seq, _) = bed.wait(session, &name, Claim::MUTEX);
    let order = Break {
        place: PlaceId { name: name.clone(), request: waits },
        token: crate::token::FencingToken::new(seq),
        claim: Claim::MUTEX,
        owner: None,
        by: Owner { client: 1, host: String::new(), pid: 0 },
        reason: "why not".into(),
        at: UNIX_EPOCH,
    };
    assert!(!bed.run(break_grant(&layout, &order, "record").unwrap()));
    assert_eq!(bed.line(&name).len(), 2);
}

#[test]
fn a_queue_shows_its_contenders_and_their_purposes() {
    let (mut bed, name) = (Bed::new(), name("shown"));
    let (layout, session) = (bed.layout.clone(), bed.session(LONG));
    let mut entry = bed.entry(&name, Claim::new(2, 3).unwrap(), true);
    entry.purpose = Some("two words\nand a line ✓".into());
    bed.run(enter(&layout, session, 1, &entry));
    // Earlier releases wrote a limit in the place of the 0.
    let record = bed.raw(&name).0.remove(name.as_str()).unwrap();
    assert!(record.contains(" 2 3 0 "), "{record}");
    let bucket = layout.slot(&name).bucket_key;
    bed.words(&["HSET", &bucket, name.as_str(), &record.replace(" 2 3 0 ", " 2 3 1500 ")]);
    let waits = bed.wait(session, &name, Claim::new(2, 3).unwrap());
    let shown = bed.shown(&name);
    assert_eq!(shown[0].purpose, entry.purpose);
    assert_eq!((shown[0].granted, shown[1].granted, shown[1].id), (true, false, waits.0));
    assert_eq!(shown[0].owner, Some(Owner { client: session, host: "here".to_owned(), pid: 17 }));
    assert!(shown[0].since <= shown[1].since);
}

#[test]
fn names_are_found_by_their_beginning_and_those_of_the_dead_are_not() {
    let mut bed = Bed::new();
    let (session, dead) = (bed.session(LONG), bed.session(LONG));
    let all = ["a", "a/b", "a/c{x}", "a/d", "b", "\u{e4}"].map(name);
    for name in &all {
        bed.hold(session, name, Claim::MUTEX);
    }
    let (gone, late) = (name("a/gone"), name("a/late"));
    for name in [&gone, &late] {
        bed.hold(dead, name, Claim::MUTEX);
    }
    bed.wait(session, &late, Claim::MUTEX);
    bed.received();
    bed.kill(dead, &[&gone, &late]);
    let mut found =
        |prefix: &str| bed.listed(4096, prefix).0.iter().map(|name| name.as_str().to_owned()).collect::<Vec<_>>();
    assert_eq!(found("a/"), ["a/b", "a/c{x}", "a/d", "a/late"]);
    assert_eq!(found(""), ["a", "a/b", "a/c{x}", "a/d", "a/late", "b", "\u{e4}"]);
    assert_eq!(found("c"), [""; 0]);
    assert_eq!(bed.received(), [], "who looks lets nobody in");
}
