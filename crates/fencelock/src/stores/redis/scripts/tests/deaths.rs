//! The dead in the way, as they are found by those who come by, and what may be said of a queue meanwhile.

use super::super::*;
use super::bed::{Bed, LONG};

fn name(name: &str) -> Name {
    Name::new(name).unwrap()
}

fn permits(weight: u32, capacity: u32) -> Claim {
    Claim::new(weight, capacity).unwrap()
}

#[test]
fn the_sole_survivor_whom_a_question_lets_in_holds_the_lock_for_everybody() {
    let (mut bed, name) = (Bed::new(true), name("survivor"));
    let (layout, dies, lives) = (bed.layout.clone(), bed.session(LONG), bed.session(LONG));
    bed.hold(dies, &name, Claim::WRITER);
    let (id, seq, _) = bed.wait(lives, &name, Claim::WRITER);
    bed.kill(dies, &[&name]);
    bed.heard();
    let short = bed.run(contention(&layout, &name, &[id]));
    assert_eq!((short.queued, short.holders, short.positions), (1, 1, vec![Some(1)]));
    assert_eq!(short.head.map(|head| (head.id, head.granted)), Some((id, true)));
    assert_eq!(bed.heard().len(), 1, "who was let in is told");
    assert_eq!(bed.run(lighten(&layout, lives, (&name, id), seq, Claim::READER)), Lightened::Done);
    assert_eq!(bed.seen(lives, &name, id), Seen::Granted(seq));
}

#[test]
fn a_capacity_that_only_the_dead_believe_in_is_no_conflict_however_many_they_are() {
    let (mut bed, name) = (Bed::new(true), name("creed"));
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
fn a_lock_is_not_said_to_be_busy_when_nobody_alive_was_found() {
    let (mut bed, name) = (Bed::new(true), name("graveyard"));
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
