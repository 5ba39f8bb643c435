//! Crowds of thousands: a script removes a bounded number of dead contenders.

use fencelock_testbed::redis::{Server, Settings};
use fencelock_testbed::{PATIENCE, wait_until};

use super::super::super::*;
use super::super::bed::{Bed, LONG};
use super::super::costs::commands;

fn name(name: &str) -> Name {
    Name::new(name).unwrap()
}

fn permits(weight: u32, capacity: u32) -> Claim {
    Claim::new(weight, capacity).unwrap()
}

#[test]
fn a_full_semaphore_without_a_waiter_is_known_to_be_full_until_a_holder_could_be_dead() {
    let server = Server::start(Settings::default()).unwrap();
    let (mut bed, name) = (Bed::at(&server.url()), name("full"));
    let layout = bed.layout.clone();
    let sessions: Vec<_> = (0..3000).map(|_| bed.session(LONG)).collect();
    let held: Vec<_> = sessions.iter().map(|session| bed.hold(*session, &name, permits(1, 3000))).collect();
    let tries = |bed: &mut Bed| {
        let entry = bed.entry(&name, permits(1, 3000), false);
        commands(bed, |bed| assert_eq!(bed.run(enter(&layout, sessions[0], 1, &entry)), Enter::Busy))
    };
    // Each try looks at some of the holders, and never at all of them.
    let costs: Vec<_> = (0..6).map(|_| tries(&mut bed)).collect();
    assert!(costs.iter().all(|cost| *cost < 1100), "{costs:?}");
    assert_eq!(costs[4..], [4, 4], "{costs:?}");
    // A holder that leaves makes room for one, and the checked holders stay checked.
    assert!(bed.run(leave(&layout, (&name, held[1000].0), Some(held[1000].1))));
    bed.hold(sessions[0], &name, permits(1, 3000));
    let again = tries(&mut bed);
    assert!(again <= 6, "{again} commands");
}

#[test]
fn dead_waiters_are_removed_a_bounded_number_at_a_time_and_the_living_one_is_granted() {
    let server = Server::start(Settings::default()).unwrap();
    let (mut bed, name) = (Bed::at(&server.url()), name("graves"));
    let (layout, holds, dies, lives) = (bed.layout.clone(), bed.session(LONG), bed.session(LONG), bed.session(LONG));
    let (held, seq) = bed.hold(holds, &name, Claim::MUTEX);
    for _ in 0..3500 {
        bed.wait(dies, &name, Claim::MUTEX);
    }
    let (id, own, _) = bed.wait(lives, &name, Claim::MUTEX);
    bed.kill(dies, &[&name]);
    assert!(bed.run(leave(&layout, (&name, held), Some(seq))));
    let left = |bed: &mut Bed| {
        let key = layout.slot(&name).queue_key;
        redis::cmd("ZCARD").arg(&key).query::<usize>(&mut bed.connection).unwrap()
    };
    let mut before = left(&mut bed);
    assert!((2000..3502).contains(&before), "{before} are left");
    while bed.seen(lives, &name, id) != Seen::Granted(own) {
        let now = left(&mut bed);
        assert!(now < before && before - now <= 1100, "{before}, then {now} are left");
        before = now;
    }
    assert_eq!(bed.line(&name), [id]);
}

#[test]
fn dead_holders_are_removed_a_bounded_number_at_a_time_and_the_waiter_is_granted() {
    let server = Server::start(Settings::default()).unwrap();
    let (mut bed, name) = (Bed::at(&server.url()), name("dead permits"));
    let (dies, lives) = (bed.session(LONG), bed.session(LONG));
    for number in 0..3000 {
        bed.hold(if number == 2500 { lives } else { dies }, &name, permits(1, 3000));
    }
    let (id, own, _) = bed.wait(lives, &name, permits(2999, 3000));
    bed.kill(dies, &[&name]);
    assert!(wait_until(PATIENCE, || bed.seen(lives, &name, id) == Seen::Granted(own)));
    assert_eq!(bed.line(&name).len(), 2);
}

#[test]
fn remains_of_crashed_clients_under_unused_names_are_cleared_away() {
    let server = Server::start(Settings::default()).unwrap();
    let mut bed = Bed::at(&server.url());
    let (layout, dies, lives) = (bed.layout.clone(), bed.session(LONG), bed.session(LONG));
    for number in 0..5000 {
        bed.hold(dies, &name(&format!("random/{number}")), Claim::MUTEX);
    }
    let kept = name("kept");
    bed.hold(lives, &kept, Claim::MUTEX);
    bed.wait(dies, &kept, Claim::MUTEX);
    bed.kill(dies, &[]);
    let mut swept = Swept { bucket: 4000, cursor: "0".to_owned() };
    let mut buckets = 0;
    let gate = layout.janitor_key();
    while buckets < 4096 {
        let mut next = None;
        let cost = commands(&mut bed, |bed| next = Some(bed.run(janitor(&layout, &swept))));
        let next = next.unwrap();
        assert!(cost < 4000, "{cost} commands");
        // A second call has to wait for a moment, whichever client sends it.
        assert_eq!(bed.run(janitor(&layout, &swept)), Swept { bucket: 0, cursor: swept.cursor.clone() });
        bed.words(&["DEL", &gate]);
        buckets += usize::from(next.bucket);
        swept = Swept { bucket: (swept.bucket + next.bucket) % 4096, ..next };
    }
    let buckets: Vec<String> = redis::cmd("KEYS").arg("*}:bucket").query(&mut bed.connection).unwrap();
    let fields = buckets.iter().map(|key| redis::cmd("HLEN").arg(key).query::<usize>(&mut bed.connection).unwrap());
    // Two numbers in each, and the lock that is kept.
    let left: usize = fields.map(|fields| fields - 2).sum();
    assert!((1..=3).contains(&left), "{left} fields are left");
    assert_eq!(bed.line(&kept).len(), 1);
}
