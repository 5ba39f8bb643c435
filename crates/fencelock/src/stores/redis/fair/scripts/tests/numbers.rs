//! The numbers: order and token in one.

use std::time::UNIX_EPOCH;

use fencelock_testbed::redis::{Server, Settings};

use super::super::*;
use super::bed::{Bed, LONG};
use crate::kit::number::clock_number;
use crate::stores::redis::fair::fault::{Refusal, refusal};

fn name(name: &str) -> Name {
    Name::new(name).unwrap()
}

/// Takes a lock in a session of its own, and gives it up.
fn token(bed: &mut Bed, name: &Name) -> u64 {
    let session = bed.session(LONG);
    let (id, seq) = bed.hold(session, name, Claim::MUTEX);
    assert!(bed.run(leave(&bed.layout.clone(), (name, id), Some(seq))));
    seq
}

#[test]
fn tokens_rise_after_everything_was_flushed() {
    let server = Server::start(Settings::default()).unwrap();
    let (mut bed, name) = (Bed::at(&server.url()), name("flushed"));
    let before = token(&mut bed, &name);
    bed.words(&["FLUSHALL"]);
    assert!(token(&mut bed, &name) > before);
}

#[test]
fn tokens_rise_after_an_older_state_was_restored() {
    let server = Server::start(Settings::default()).unwrap();
    let (mut bed, name) = (Bed::at(&server.url()), name("restored"));
    token(&mut bed, &name);
    let backup = server.backup().unwrap();
    let before = (0..100).map(|_| token(&mut bed, &name)).max().unwrap();
    server.restore(&backup).unwrap();
    server.wait_until_serving().unwrap();
    let layout = bed.layout.clone();
    bed = Bed::at(&server.url());
    bed.layout = layout;
    assert!(token(&mut bed, &name) > before);
}

#[test]
fn tokens_rise_whichever_way_the_servers_clock_jumps() {
    let server = Server::start(Settings { own_clock: true, ..Settings::default() }).unwrap();
    let (mut bed, name) = (Bed::at(&server.url()), name("jumps"));
    let mut last = token(&mut bed, &name);
    for seconds in [60, -60, 0, 3600, -3600, 0] {
        server.set_clock(seconds).unwrap();
        for _ in 0..3 {
            let next = token(&mut bed, &name);
            assert!(next > last, "{next} after {last}, {seconds} s off");
            last = next;
        }
    }
}

#[test]
fn numbers_are_exact_up_to_the_limit_and_refused_there() {
    let (mut bed, name) = (Bed::new(), name("limit"));
    let (layout, session) = (bed.layout.clone(), bed.session(LONG));
    let bucket = layout.slot(&name).bucket_key;
    let limit = 1_u64 << 51;
    bed.words(&["HSET", &bucket, ".", &(limit - 4).to_string()]);
    let (held, seq) = bed.hold(session, &name, Claim::MUTEX);
    let (waits, next, _) = bed.wait(session, &name, Claim::MUTEX);
    assert_eq!((seq, next), (limit - 3, limit - 2));
    let (last, last_seq, _) = bed.wait(session, &name, Claim::MUTEX);
    assert_eq!(last_seq, limit - 1);
    let entry = bed.entry(&name, Claim::MUTEX, true);
    let error = bed.try_run(enter(&layout, session, 1, &entry)).unwrap_err();
    assert_eq!(refusal(&error), Some(Refusal::Limit), "{error}");
    bed.run(leave(&layout, (&name, held), Some(seq)));
    assert_eq!(bed.seen(session, &name, waits), Seen::Granted(limit - 2));
    assert_eq!(bed.line(&name), [waits, last]);
}

#[test]
fn neighbours_in_a_bucket_draw_from_one_counter() {
    let (mut bed, one) = (Bed::new(), name("neighbour"));
    let (layout, session) = (bed.layout.clone(), bed.session(LONG));
    let bucket = layout.slot(&one).bucket;
    let other =
        (0..).map(|number| name(&format!("n{number}"))).find(|name| layout.slot(name).bucket == bucket).unwrap();
    let mut last = 0;
    for name in [&one, &other, &one, &other] {
        let seq = match bed.enter(session, name, Claim::READER).1 {
            Enter::Granted(seq) => seq,
            answer => panic!("{answer:?}"),
        };
        assert!(seq > last);
        last = seq;
    }
}

#[test]
fn a_number_is_what_every_other_store_makes_of_the_same_clock() {
    let (mut bed, name) = (Bed::new(), name("clock"));
    for _ in 0..50 {
        let session = bed.session(LONG);
        let (id, seq) = bed.hold(session, &name, Claim::MUTEX);
        let record = bed.raw(&name).0.remove(name.as_str()).unwrap();
        let (seconds, micros) = record.split(' ').nth(3).unwrap().split_once(':').unwrap();
        let since = Duration::from_secs(seconds.parse().unwrap()) + Duration::from_micros(micros.parse().unwrap());
        assert_eq!(seq, clock_number(UNIX_EPOCH + since), "{record}");
        assert!(bed.run(leave(&bed.layout.clone(), (&name, id), Some(seq))));
    }
}
