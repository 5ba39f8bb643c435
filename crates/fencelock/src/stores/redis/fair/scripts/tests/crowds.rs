//! Crowds: requests about a long queue take no longer than about a short one. Crowds that die: `deep/crowds.rs`.

use fencelock_testbed::redis::{Server, Settings};

use super::super::*;
use super::bed::{Bed, LONG};
use super::costs::commands;

fn name(name: &str) -> Name {
    Name::new(name).unwrap()
}

#[test]
fn a_queue_in_short_costs_as_much_behind_a_thousand_waiters_as_behind_ten() {
    let server = Server::start(Settings::default()).unwrap();
    let mut bed = Bed::at(&server.url());
    let (layout, session) = (bed.layout.clone(), bed.session(LONG));
    let mut costs = Vec::new();
    for waiters in [10, 1000] {
        let name = name(&format!("crowd/{waiters}"));
        let (held, _) = bed.hold(session, &name, Claim::MUTEX);
        let waiting: Vec<_> = (0..waiters).map(|_| bed.wait(session, &name, Claim::MUTEX).0).collect();
        let mine = [waiting[waiters - 1], held, RequestId { client: 1, number: 1 }];
        let mut short = None;
        costs.push(commands(&mut bed, |bed| short = Some(bed.run(contention(&layout, &name, &mine)))));
        let short = short.unwrap();
        assert_eq!((short.queued, short.holders), (waiters + 1, 1));
        assert_eq!(short.positions, [Some(waiters + 1), Some(1), None]);
        assert_eq!(short.head.map(|head| (head.id, head.granted)), Some((held, true)));
    }
    assert!(costs[0] <= 10 && costs[1] <= 10, "{costs:?}");
}

#[test]
fn a_page_costs_as_much_of_a_long_queue_as_of_a_short_one() {
    let server = Server::start(Settings::default()).unwrap();
    let mut bed = Bed::at(&server.url());
    let (layout, session) = (bed.layout.clone(), bed.session(LONG));
    let mut costs = Vec::new();
    for waiters in [20, 1000] {
        let name = name(&format!("page/{waiters}"));
        bed.hold(session, &name, Claim::MUTEX);
        let waiting: Vec<_> = (0..waiters).map(|_| bed.wait(session, &name, Claim::MUTEX)).collect();
        for (skip, after) in [(5, None), (0, Some(waiting[3].1))] {
            let mut page = None;
            costs.push(commands(&mut bed, |bed| page = Some(bed.run(show(&layout, &name, skip, after, 7)))));
            let page = page.unwrap();
            let shown: Vec<_> = page.places.iter().map(|place| place.id).collect();
            let expected: Vec<_> = waiting[4..11].iter().map(|(id, ..)| *id).collect();
            assert_eq!((page.queued, shown), (waiters + 1, expected));
        }
    }
    assert!(costs.iter().all(|cost| *cost <= 10), "{costs:?}");
}

#[test]
fn names_are_listed_among_thousands_that_the_dead_left() {
    let server = Server::start(Settings::default()).unwrap();
    let mut bed = Bed::at(&server.url());
    let (layout, dies, lives) = (bed.layout.clone(), bed.session(LONG), bed.session(LONG));
    // A crowd within the limit of one call, and a crowd beyond it.
    let all: Vec<_> = (0..)
        .map(|number| name(&format!("n{number}")))
        .filter(|name| layout.slot(name).bucket < 64)
        .take(2500)
        .collect();
    for name in &all[..2499] {
        bed.hold(dies, name, Claim::MUTEX);
    }
    bed.hold(lives, &all[2499], Claim::MUTEX);
    bed.kill(dies, &[]);
    let before = bed.words(&["DEBUG", "DIGEST"]);
    let (found, calls) = bed.listed(64, "");
    assert_eq!(found, all[2499..]);
    assert!((3..6).contains(&calls), "{calls} calls");
    assert_eq!(bed.words(&["DEBUG", "DIGEST"]), before, "who looks writes nothing");
}
