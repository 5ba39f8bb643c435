//! Leases that really end, by the server's clock.

use fencelock_testbed::{PATIENCE, wait_until};

use super::super::super::*;
use super::super::bed::{Bed, LONG};

const SHORT: Duration = Duration::from_secs(2);

fn name(name: &str) -> Name {
    Name::new(name).unwrap()
}

#[test]
fn a_waiter_that_looks_when_the_server_asks_finds_the_dead_holder_gone() {
    let (mut bed, name) = (Bed::new(), name("lapse"));
    let (dies, lives) = (bed.session(SHORT), bed.session(LONG));
    bed.hold(dies, &name, Claim::MUTEX);
    let (id, seq, look_in) = bed.wait(lives, &name, Claim::MUTEX);
    assert!(look_in <= SHORT + Duration::from_millis(2), "{look_in:?}");
    assert!(wait_until(PATIENCE, || bed.seen(lives, &name, id) == Seen::Granted(seq)));
    assert_eq!(bed.line(&name), [id]);
}

#[test]
fn a_renewed_holder_is_not_taken_for_dead_and_the_next_look_is_later() {
    let (mut bed, name) = (Bed::new(), name("renewed"));
    let (layout, holder, waiter) = (bed.layout.clone(), bed.session(SHORT), bed.session(LONG));
    bed.hold(holder, &name, Claim::MUTEX);
    let (id, _, look_in) = bed.wait(waiter, &name, Claim::MUTEX);
    bed.renewed(holder, LONG);
    assert!(look_in <= SHORT + Duration::from_millis(2), "{look_in:?}");
    let asked = [(name.clone(), vec![id])];
    let later = || {
        let look = bed.run(look(&layout, waiter, &asked, true)).unwrap();
        assert!(matches!(look[0].places[0], Seen::Waiting(_, Some(_))), "{look:?}");
        look[0].look_in > Some(LONG / 2)
    };
    assert!(wait_until(PATIENCE, later));
}

#[test]
fn a_dead_waiter_delays_no_other_for_longer_than_its_lease() {
    let (mut bed, name) = (Bed::new(), name("dead writer"));
    let (reads, dies, waits) = (bed.session(LONG), bed.session(SHORT), bed.session(LONG));
    bed.hold(reads, &name, Claim::READER);
    bed.wait(dies, &name, Claim::WRITER);
    let (id, seq, look_in) = bed.wait(waits, &name, Claim::READER);
    assert!(look_in <= SHORT + Duration::from_millis(2), "the boundary forgets the writer: {look_in:?}");
    assert!(wait_until(PATIENCE, || bed.seen(waits, &name, id) == Seen::Granted(seq)));
}

#[test]
fn a_waiter_that_is_dead_when_its_turn_comes_is_passed_over() {
    let (mut bed, name) = (Bed::new(), name("passed over"));
    let (layout, holder, dies, waits) = (bed.layout.clone(), bed.session(LONG), bed.session(SHORT), bed.session(LONG));
    let (held, seq) = bed.hold(holder, &name, Claim::MUTEX);
    for _ in 0..100 {
        bed.wait(dies, &name, Claim::MUTEX);
    }
    let (id, next, _) = bed.wait(waits, &name, Claim::MUTEX);
    bed.until_gone(dies);
    bed.received();
    assert!(bed.run(leave(&layout, (&name, held), Some(seq))));
    let granted = News::Granted(PlaceId { name: name.clone(), request: id }, next);
    assert_eq!(bed.received(), [(waits, vec![granted])]);
    assert_eq!(bed.raw(&name).0.len(), 3, "the dead left something");
}

#[test]
fn a_try_finds_the_lock_of_a_dead_holder_free() {
    let (mut bed, name) = (Bed::new(), name("try"));
    let (layout, dies, lives) = (bed.layout.clone(), bed.session(SHORT), bed.session(LONG));
    bed.hold(dies, &name, Claim::MUTEX);
    let mut entry = bed.entry(&name, Claim::MUTEX, false);
    assert_eq!(bed.run(enter(&layout, lives, 1, &entry)), Enter::Busy);
    assert_eq!(bed.raw(&name).0.len(), 3, "a try left something");
    bed.until_gone(dies);
    entry.id.number += 1000;
    assert!(matches!(bed.run(enter(&layout, lives, 1, &entry)), Enter::Granted(_)));
}

#[test]
fn a_name_changes_its_kind_once_the_last_of_the_other_kind_is_dead() {
    let (mut bed, name) = (Bed::new(), name("kinds"));
    let (dies, lives) = (bed.session(SHORT), bed.session(LONG));
    bed.hold(dies, &name, Claim::READER);
    bed.wait(dies, &name, Claim::WRITER);
    assert_eq!(bed.enter(lives, &name, Claim::MUTEX).1, Enter::Conflict(Claim::READER));
    bed.until_gone(dies);
    bed.hold(lives, &name, Claim::MUTEX);
    assert_eq!(bed.line(&name).len(), 1);
}
