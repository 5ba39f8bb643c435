//! When a waiter looks at its queue again, on any store over a database: once a session can be dead whose death lets a waiter in. Such
//! sessions are those of the holders, and that of the first waiter.

use fastrand::Rng;

/// The session that asks. The other sessions are 1 to 5.
pub(crate) const ASKS: u64 = 6;
pub(crate) const TTL_HOURS: i64 = 100;

#[derive(Debug, Clone, Copy)]
pub(crate) struct Place {
    pub(crate) session: u64,
    pub(crate) number: u64,
    pub(crate) is_granted: bool,
    /// The whole hours until the session ends; `None` if the session is dead.
    pub(crate) hours: Option<i64>,
}

/// A queue of this store.
pub(crate) trait Queue {
    /// Whether a look shortens a session that has longer to live than its ttl, because the clock went back.
    const SHORTENS: bool;

    /// Empties the queue, and opens sessions 1 to 6.
    async fn begin(&mut self);
    async fn enter(&mut self, session: u64, number: u64, weight: u64, capacity: u64) -> Vec<i64>;
    /// The milliseconds until the next look of this place of the session that asks.
    async fn look(&mut self, number: u64, seq: i64) -> i64;
    /// The session ends half an hour after these hours. `None` removes it.
    async fn end_in(&mut self, session: u64, hours: Option<i64>);
    async fn places(&mut self) -> Vec<Place>;
}

/// Queues at random, from fixed seeds, that a session joins twice.
pub(crate) async fn check<Q: Queue>(queue: &mut Q) {
    let mut waits = 0;
    for seed in 0..150 {
        let mut random = Rng::with_seed(seed);
        queue.begin().await;
        let capacity = random.choice([1, 3]).unwrap();
        for number in 1..=random.u64(1..6) {
            queue.enter(random.u64(1..ASKS), number, random.u64(1..=capacity), capacity).await;
        }
        let mut hours: Vec<i64> = (1..=6).collect();
        random.shuffle(&mut hours);
        for (session, hours) in (1..).zip(hours) {
            let ends = match random.u64(..12) {
                _ if session == ASKS => Some(hours),
                0 => None,
                1 => Some(-hours),
                2 if Q::SHORTENS => Some(hours + 1000),
                _ => Some(hours),
            };
            queue.end_in(session, ends).await;
        }
        for number in 100..102 {
            let answer = queue.enter(ASKS, number, random.u64(1..=capacity), capacity).await;
            if answer[0] != 1 {
                continue;
            }
            waits += 1;
            check_look::<Q>(seed, number, answer[2], &queue.places().await);
            let look_in = queue.look(number, answer[1]).await;
            check_look::<Q>(seed, number, look_in, &queue.places().await);
        }
    }
    assert!(waits > 150, "{waits} waits");
}

/// The place itself may be the first that waits. Whether its own death counts makes no difference to it.
fn check_look<Q: Queue>(seed: u64, number: u64, look_in: i64, places: &[Place]) {
    let what = format!("seed {seed}: a look in {look_in} ms at {places:?}");
    let first = places.iter().position(|place| !place.is_granted).expect("a place waits");
    let ahead = &places[..=first];
    assert!(!Q::SHORTENS || ahead.iter().all(|place| place.hours.is_none_or(|hours| hours < TTL_HOURS)), "{what}");
    let hours = look_in / 3_600_000;
    if ahead.iter().any(|place| place.hours.is_none()) {
        // The next look removes it.
        assert!((100..=1000).contains(&look_in), "{what}");
    } else if hours < TTL_HOURS {
        let of = |number: u64| ahead.iter().filter(move |place| place.number != number).filter_map(|place| place.hours);
        let own = places.iter().filter(|place| place.session == ASKS).filter_map(|place| place.hours).min();
        let (others, own) = (of(number).min().expect("another place is ahead"), own.unwrap());
        assert!((others.min(own)..=others).contains(&hours), "{what}");
    } else {
        // A look that shortens a session answers as before.
        assert!(Q::SHORTENS, "{what}");
    }
}
