//! Dead contenders that block other contenders: which scripts find them, and the answers about a queue meanwhile.

use fencelock_testbed::redis::{Server, Settings};

use super::super::*;
use super::bed::{Bed, LONG};

fn name(name: &str) -> Name {
    Name::new(name).unwrap()
}

fn permits(weight: u32, capacity: u32) -> Claim {
    Claim::new(weight, capacity).unwrap()
}

#[test]
fn the_sole_survivor_whom_a_look_lets_in_holds_the_lock_for_every_client() {
    let (mut bed, name) = (Bed::new(), name("survivor"));
    let (layout, dies, lives) = (bed.layout.clone(), bed.session(LONG), bed.session(LONG));
    bed.hold(dies, &name, Claim::WRITER);
    let (id, seq, _) = bed.wait(lives, &name, Claim::WRITER);
    bed.kill(dies, &[&name]);
    bed.received();
    for (head, holders) in [(None, 0), (Some((id, true)), 1)] {
        let short = bed.run(contention(&layout, &name, &[id]));
        assert_eq!((short.queued, short.holders, short.positions), (1, holders, vec![Some(1)]));
        assert_eq!(short.head.map(|head| (head.id, head.granted)), head);
        assert_eq!(bed.received(), [], "a question lets nobody in");
        assert_eq!(bed.seen(lives, &name, id), Seen::Granted(seq));
    }
    assert!(bed.run(lighten(&layout, lives, (&name, id), seq, Claim::READER)));
    assert_eq!(bed.seen(lives, &name, id), Seen::Granted(seq));
}

#[test]
fn a_capacity_that_only_the_dead_believe_in_is_no_conflict_however_many_they_are() {
    let (mut bed, name) = (Bed::new(), name("creed"));
    let (layout, dies, lives) = (bed.layout.clone(), bed.session(LONG), bed.session(LONG));
    bed.hold(dies, &name, Claim::MUTEX);
    for _ in 0..2500 {
        bed.wait(dies, &name, Claim::MUTEX);
    }
    bed.kill(dies, &[&name]);
    let entry = bed.entry(&name, permits(1, 5), false);
    let answers: Vec<_> = (0..3).map(|_| bed.run(enter(&layout, lives, 1, &entry))).collect();
    assert_eq!(answers[..2], [Enter::Again, Enter::Again]);
    assert!(matches!(answers[2], Enter::Granted(_)), "{answers:?}");
    assert_eq!(bed.line(&name), [entry.id]);
}

#[test]
fn a_lock_without_a_living_contender_is_not_said_to_be_busy() {
    let (mut bed, name) = (Bed::new(), name("graveyard"));
    let (layout, dies, lives) = (bed.layout.clone(), bed.session(LONG), bed.session(LONG));
    for _ in 0..2500 {
        bed.hold(dies, &name, permits(1, 2500));
    }
    bed.wait(dies, &name, permits(1, 2500));
    bed.kill(dies, &[&name]);
    let entry = bed.entry(&name, permits(2500, 2500), false);
    let answers: Vec<_> = (0..3).map(|_| bed.run(enter(&layout, lives, 1, &entry))).collect();
    assert_eq!(answers[..2], [Enter::Again, Enter::Again]);
    assert!(matches!(answers[2], Enter::Granted(_)), "{answers:?}");
}

#[test]
fn a_page_of_a_queue_of_the_dead_is_cut_and_the_next_one_continues() {
    let (mut bed, name) = (Bed::new(), name("pages"));
    let (layout, dies, lives) = (bed.layout.clone(), bed.session(LONG), bed.session(LONG));
    let (held, _) = bed.hold(lives, &name, Claim::MUTEX);
    let (first, ..) = bed.wait(lives, &name, Claim::MUTEX);
    for _ in 0..3000 {
        bed.wait(dies, &name, Claim::MUTEX);
    }
    let (last, ..) = bed.wait(lives, &name, Claim::MUTEX);
    bed.kill(dies, &[&name]);
    for skip in [0, 1, 2, 3] {
        let (mut found, mut left, mut after, mut cuts) = (Vec::new(), skip, None, 0);
        loop {
            let page = bed.run(show(&layout, &name, left, after, 256));
            found.extend(page.places.iter().map(|place| place.id));
            (left, after) = (left - page.skipped, page.last);
            if page.at_end {
                break;
            }
            cuts += 1;
        }
        assert_eq!(found, [held, first, last][skip..]);
        assert!((2..5).contains(&cuts), "{cuts} pages were cut");
    }
    assert_eq!(bed.stored(&name), 3003, "who looks removes nobody");
}

#[test]
fn tries_find_the_dead_behind_a_living_crowd_however_far_apart_they_are() {
    let (mut bed, name) = (Bed::new(), name("far apart"));
    let (layout, dies, lives) = (bed.layout.clone(), bed.session(LONG), bed.session(LONG));
    let sessions: Vec<_> = (0..2999).map(|_| bed.session(LONG)).collect();
    for session in &sessions {
        bed.hold(*session, &name, permits(1, 4000));
    }
    for _ in 2999..4000 {
        bed.hold(dies, &name, permits(1, 4000));
    }
    bed.kill(dies, &[]);
    let is_in = (0..8).any(|_| {
        bed.pass_boundary(&[&name]);
        bed.run(contention(&layout, &name, &[]));
        bed.listed(4096, name.as_str());
        let entry = bed.entry(&name, permits(1, 4000), false);
        matches!(bed.run(enter(&layout, lives, 1, &entry)), Enter::Granted(_))
    });
    assert!(is_in, "the dead are never found");
}

#[test]
fn tries_of_all_weights_find_the_dead_in_front_of_a_living_crowd_once_they_were_at_its_end() {
    let (mut bed, name) = (Bed::new(), name("round"));
    let (layout, dies, lives) = (bed.layout.clone(), bed.session(LONG), bed.session(LONG));
    bed.hold(lives, &name, permits(1, 3000));
    bed.hold(dies, &name, permits(1, 3000));
    let sessions: Vec<_> = (0..2998).map(|_| bed.session(LONG)).collect();
    for session in &sessions {
        bed.hold(*session, &name, permits(1, 3000));
    }
    let tried = |bed: &mut Bed, weight| {
        bed.pass_boundary(&[&name]);
        let entry = bed.entry(&name, permits(weight, 3000), false);
        bed.run(enter(&layout, lives, 1, &entry))
    };
    // The checks have passed the holder that dies.
    assert_eq!([1, 3000, 1].map(|weight| tried(&mut bed, weight)), [const { Enter::Busy }; 3]);
    bed.kill(dies, &[]);
    let is_in = (0..6).any(|round| matches!(tried(&mut bed, 1 + round % 2), Enter::Granted(_)));
    assert!(is_in, "the dead are never found");
}

#[test]
fn the_dead_behind_a_living_holder_are_cleared_away_though_no_client_asks() {
    let server = Server::start(Settings::default()).unwrap();
    let (mut bed, name) = (Bed::at(&server.url()), name("behind"));
    let (layout, dies, lives) = (bed.layout.clone(), bed.session(LONG), bed.session(LONG));
    let (kept, _) = bed.hold(lives, &name, Claim::READER);
    for _ in 0..2600 {
        bed.hold(dies, &name, Claim::READER);
    }
    bed.wait(dies, &name, Claim::WRITER);
    let (waits, seq, _) = bed.wait(lives, &name, Claim::READER);
    bed.wait(dies, &name, Claim::READER);
    bed.kill(dies, &[]);
    bed.received();
    let (bucket, mut before) = (layout.slot(&name).bucket, bed.stored(&name));
    let mut swept = Swept { bucket, cursor: "0".to_owned() };
    while swept.bucket == bucket {
        let next = bed.run(janitor(&layout, &swept));
        swept = Swept { bucket: swept.bucket + next.bucket, ..next };
        let now = bed.stored(&name);
        assert!(before - now <= 1600, "{} went at once", before - now);
        before = now;
        bed.words(&["DEL", &layout.janitor_key()]);
    }
    assert_eq!(before, 2);
    let expected = [(lives, vec![News::Granted(PlaceId { name: name.clone(), request: waits }, seq)])];
    assert_eq!(bed.received(), expected, "who comes in by it is told");
    assert_eq!(bed.seen(lives, &name, waits), Seen::Granted(seq));
    assert_eq!(bed.line(&name), [kept, waits]);
}

#[test]
fn a_light_waiter_looks_again_when_the_heavy_one_ahead_of_it_could_be_dead() {
    let (mut bed, name) = (Bed::new(), name("light"));
    let (long, heavy, light) = (bed.session(LONG), bed.session(LONG / 2), bed.session(LONG));
    for _ in 0..10 {
        bed.hold(long, &name, permits(1, 10));
    }
    bed.wait(heavy, &name, permits(5, 10));
    let (.., look_in) = bed.wait(light, &name, permits(1, 10));
    // The claim fits once one holder dies, and not all holders were checked.
    assert!(look_in <= LONG / 2 + Duration::from_millis(2), "{look_in:?}");
}
