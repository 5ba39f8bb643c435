//! Clocks that go back, and sessions whose end is removed.

use fencelock_testbed::redis::{Server, Settings};
use fencelock_testbed::{PATIENCE, wait_until};

use super::super::super::*;
use super::super::bed::{Bed, LONG};

const SHORT: Duration = Duration::from_secs(2);

fn name(name: &str) -> Name {
    Name::new(name).unwrap()
}

#[test]
fn a_boundary_is_no_fact_before_it_was_set() {
    let server = Server::start(Settings { own_clock: true, ..Settings::default() }).unwrap();
    let (mut bed, name) = (Bed::at(&server.url()), name("back"));
    let (dies, lives) = (bed.session(SHORT), bed.session(LONG * 60));
    bed.hold(dies, &name, Claim::MUTEX);
    let (id, seq, _) = bed.wait(lives, &name, Claim::MUTEX);
    server.set_clock(-3600).unwrap();
    // The session lives for a while, by the clock of now, and dies.
    bed.renewed(dies, SHORT);
    bed.until_gone(dies);
    assert!(wait_until(PATIENCE, || bed.seen(lives, &name, id) == Seen::Granted(seq)));
}

#[test]
fn a_clock_that_goes_back_keeps_no_waiter_behind_a_holder_that_died_without_another_renewal() {
    let server = Server::start(Settings { own_clock: true, ..Settings::default() }).unwrap();
    let (mut bed, name) = (Bed::at(&server.url()), name("back"));
    let (dies, lives) = (bed.session(SHORT), bed.session(LONG * 60));
    bed.hold(dies, &name, Claim::MUTEX);
    let (id, seq, _) = bed.wait(lives, &name, Claim::MUTEX);
    server.set_clock(-3600).unwrap();
    assert!(wait_until(PATIENCE, || bed.seen(lives, &name, id) == Seen::Granted(seq)));
}

#[test]
fn a_session_whose_key_lost_its_expiry_is_not_alive_for_ever() {
    let (mut bed, name) = (Bed::new(), name("endless"));
    let (layout, dies, lives) = (bed.layout.clone(), bed.session(SHORT), bed.session(LONG));
    bed.hold(dies, &name, Claim::MUTEX);
    bed.words(&["PERSIST", &layout.session_key(dies)]);
    let (id, seq, _) = bed.wait(lives, &name, Claim::MUTEX);
    assert!(wait_until(PATIENCE, || bed.seen(lives, &name, id) == Seen::Granted(seq)));
}
