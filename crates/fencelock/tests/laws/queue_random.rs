//! The wake rule on long and mixed queues, in motion: a waiter looks at the queue only after a notice.
//!
//! Notices are delivered in any order and with any delay, while other contenders arrive, leave and lighten their
//! claims. A lost wake-up shows as a contender that the rule admits and no notice reaches.

use fencelock::queue::{
    Admission, Claim, WakeOn, admits, granted, wake_condition, woken_by_departure, woken_by_lightening,
};
use proptest::prelude::*;

/// The state of a contender in its own view; other contenders are named by number rather than by position.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Belief {
    Granted,
    Waits(Event),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Event {
    Departure(u64),
    AnyDepartureAhead,
    GrantOrDeparture(u64),
}

#[derive(Debug)]
struct Contender {
    number: u64,
    claim: Claim,
    belief: Belief,
    notified: bool,
}

#[derive(Debug, Default)]
struct World {
    queue: Vec<Contender>,
    next_number: u64,
}

impl World {
    fn claims(&self) -> Vec<Claim> {
        self.queue.iter().map(|contender| contender.claim).collect()
    }

    fn arrive(&mut self, claim: Claim) {
        let (number, belief) = (self.next_number, Belief::Granted);
        self.next_number += 1;
        self.queue.push(Contender { number, claim, belief, notified: false });
        self.look(self.queue.len() - 1);
    }

    /// The reaction of a contender to a notice. The contender reads its position, and names the events of which it
    /// needs a notice.
    fn look(&mut self, position: usize) {
        let claims = self.claims();
        let condition = wake_condition(&claims, position).map(|condition| match condition {
            WakeOn::Departure(at) => Event::Departure(self.queue[at].number),
            WakeOn::GrantOrDeparture(at) => Event::GrantOrDeparture(self.queue[at].number),
            WakeOn::AnyDepartureAhead => Event::AnyDepartureAhead,
        });
        self.queue[position].notified = false;
        let was_granted = self.queue[position].belief == Belief::Granted;
        self.queue[position].belief = condition.map_or(Belief::Granted, Belief::Waits);
        if condition.is_none() && !was_granted {
            let number = self.queue[position].number;
            self.notify(position, |event| event == Event::GrantOrDeparture(number));
        }
    }

    fn notify(&mut self, behind: usize, which: impl Fn(Event) -> bool) {
        for contender in &mut self.queue[behind..] {
            contender.notified |= matches!(contender.belief, Belief::Waits(event) if which(event));
        }
    }

    fn notify_of_departure(&mut self, behind: usize, number: u64) {
        self.notify(behind, |event| match event {
            Event::Departure(of) | Event::GrantOrDeparture(of) => of == number,
            Event::AnyDepartureAhead => true,
        });
    }

    fn leave(&mut self, position: usize) {
        let gone = self.queue.remove(position);
        self.notify_of_departure(position, gone.number);
    }

    fn lighten(&mut self, position: usize, claim: Claim) {
        let stays = &mut self.queue[position];
        if stays.belief == Belief::Granted && claim.weight() < stays.claim.weight() {
            stays.claim = claim;
            let number = stays.number;
            self.notify_of_departure(position + 1, number);
        }
    }

    fn deliver(&mut self, which: usize) {
        let woken: Vec<usize> = (0..self.queue.len()).filter(|at| self.queue[*at].notified).collect();
        if !woken.is_empty() {
            self.look(woken[which % woken.len()]);
        }
    }

    /// No contender believes in a grant that the rule does not give.
    fn check_safety(&self) {
        let claims = self.claims();
        let holders = granted(&claims);
        for (position, contender) in self.queue.iter().enumerate() {
            assert!(contender.belief != Belief::Granted || position < holders, "{contender:?} in {claims:?}");
        }
    }

    /// Delivers all notices. Then each contender that the rule admits has seen its grant.
    fn settle(&mut self) {
        while let Some(position) = self.queue.iter().position(|contender| contender.notified) {
            self.look(position);
            self.check_safety();
        }
        let claims = self.claims();
        for contender in &self.queue[..granted(&claims)] {
            assert_eq!(contender.belief, Belief::Granted, "{contender:?} is stuck in {claims:?}");
        }
    }

    fn drain(&mut self) {
        self.settle();
        while !self.queue.is_empty() {
            assert_eq!(self.queue[0].belief, Belief::Granted, "the first of {:?} is stuck", self.claims());
            self.leave(0);
            self.settle();
        }
    }
}

#[derive(Debug, Clone)]
enum Step {
    Arrive(Claim),
    Leave(usize),
    Lighten(usize, Claim),
    Deliver(usize),
}

/// Claims of one queue: mutexes, readers and writers, permits, or any weights of an unbounded capacity.
fn claims() -> impl Strategy<Value = BoxedStrategy<Claim>> {
    let permits = (1_u32..40).prop_map(|capacity| weights(capacity, 1..=capacity));
    prop_oneof![
        Just(Just(Claim::MUTEX).boxed()),
        Just(prop_oneof![3 => Just(Claim::READER), 1 => Just(Claim::WRITER)].boxed()),
        permits,
        Just(odd_weights()),
    ]
}

fn weights(capacity: u32, weights: std::ops::RangeInclusive<u32>) -> BoxedStrategy<Claim> {
    weights.prop_map(move |weight| Claim::new(weight, capacity).unwrap()).boxed()
}

fn odd_weights() -> BoxedStrategy<Claim> {
    let all = Claim::UNBOUNDED;
    prop_oneof![Just(1_u32), Just(2), Just(all / 2), Just(all - 2), Just(all - 1), Just(all)]
        .prop_map(move |weight| Claim::new(weight, all).unwrap())
        .boxed()
}

fn step(claims: BoxedStrategy<Claim>) -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => claims.clone().prop_map(Step::Arrive),
        2 => any::<usize>().prop_map(Step::Leave),
        1 => (any::<usize>(), claims).prop_map(|(which, claim)| Step::Lighten(which, claim)),
        3 => any::<usize>().prop_map(Step::Deliver),
    ]
}

fn schedule() -> impl Strategy<Value = Vec<Step>> {
    claims().prop_flat_map(|claims| prop::collection::vec(step(claims), 1..160))
}

fn queue() -> impl Strategy<Value = Vec<Claim>> {
    claims().prop_flat_map(|claims| prop::collection::vec(claims, 1..120))
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn no_waiter_that_acts_only_on_its_notifications_is_stuck(schedule in schedule()) {
        let mut world = World::default();
        for step in schedule {
            let places = world.queue.len().max(1);
            match step {
                Step::Arrive(claim) => world.arrive(claim),
                Step::Leave(which) if !world.queue.is_empty() => world.leave(which % places),
                Step::Lighten(which, claim) if !world.queue.is_empty() => world.lighten(which % places, claim),
                Step::Leave(_) | Step::Lighten(..) => {}
                Step::Deliver(which) => world.deliver(which),
            }
            world.check_safety();
        }
        world.drain();
    }

    #[test]
    fn on_long_queues_too_every_newly_admitted_waiter_is_notified(queue in queue(), which in any::<usize>()) {
        let departed = which % queue.len();
        let woken = woken_by_departure(&queue, departed);
        let mut after = queue.clone();
        after.remove(departed);
        let holders = granted(&queue);
        for position in 0..granted(&after) {
            let was = position + usize::from(position >= departed);
            prop_assert!(was < holders || woken.contains(&was), "{was} is not woken");
        }
        // Permits of the unbounded capacity among readers and writers are no lock that a caller can ask for: a reader behind
        // them is notified of a writer's departure, whether or not the departure admits it.
        let is_one_lock = queue.iter().all(|claim| claim.capacity() < Claim::UNBOUNDED || claim.is_reader() || claim.is_whole());
        prop_assert!(!is_one_lock || departed >= holders || woken.len() <= granted(&after) + 2 - holders);
    }

    #[test]
    fn a_downgraded_writer_wakes_every_reader_that_it_lets_in(readers in 0_usize..200, behind in queue()) {
        let queue = [vec![Claim::WRITER], vec![Claim::READER; readers], vec![Claim::WRITER], behind].concat();
        let woken = woken_by_lightening(&queue, 0, Claim::READER);
        let expected: Vec<usize> = (1..=readers.max(1)).collect();
        prop_assert_eq!(woken, expected);
    }

    #[test]
    fn an_answer_that_is_stale_about_departures_is_never_too_good(queue in queue(), stale in queue(), at in any::<usize>()) {
        let mine = queue[at % queue.len()];
        let ahead = || queue.iter().copied().take(at % queue.len());
        let departed = stale.into_iter().filter(|claim| claim.capacity() == mine.capacity());
        if admits(ahead().chain(departed), mine) == Admission::Admitted {
            prop_assert_eq!(admits(ahead(), mine), Admission::Admitted);
        }
    }
}
