//! Requests and places: a repeated request finds its place, and a place that is gone stays gone.

use std::sync::Arc;

use fencelock::store::{Entered, Entry, Left, Standing};
use fencelock::time::Moment;

use crate::world::{Client, Fault, Verdict, World, demand, insist, name, needs, poll_times, release};

/// A request that is sent several times has one place, with one grant.
pub async fn the_same_request_finds_the_same_place(world: World) -> Verdict {
    let (client, job) = (world.client().await?, name("job")?);
    let (first, second) = (client.entry(&job, world.whole), client.entry(&job, world.whole));
    let held = client.place(&first).await?.standing();
    let _waiting = client.place(&second).await?;
    for _ in 0..2 {
        let (again, wait) = (client.place(&first).await?.standing(), client.place(&second).await?.standing());
        demand!(again == held, "the same request was {held:?} and then {again:?}");
        demand!(matches!(wait, Standing::Waiting(_)), "a waiting request sent again is {wait:?}");
    }
    let again = client.send(&Entry { wait: false, ..first.clone() }).await?;
    demand!(matches!(&again, Entered::In(place) if place.standing() == held), "a holder's own request was refused");
    let ids = client.ids(&job).await?;
    demand!(ids == client.shown(&[first.id, second.id]), "two requests made the places {ids:?}");
    release(client.place(&first).await?).await?;
    world.granted(&mut client.place(&second).await?).await.map(drop)
}

/// A departed place does not come back, and every call on it reports that.
pub async fn a_departure_is_final(world: World) -> Verdict {
    let (client, job) = (world.client().await?, name("job")?);
    let mut place = client.hold(&job, world.whole).await?;
    let mut waiter = client.enter(&job, world.whole).await?;
    for (place, number) in [(&mut waiter, 1), (&mut place, 0)] {
        demand!(place.leave().await? == Left::Released, "a place in the queue was already gone");
        demand!(client.ids(&job).await?.len() == number, "a place that was left is still in the queue");
    }
    client.renew(&[&*place]).await?;
    demand!(client.session().over().is_none(), "leaving a place ended the session");
    demand!(client.ids(&job).await?.is_empty(), "a renewal brought a place back");
    let free = client.hold(&job, world.whole).await?;
    demand!(client.ids(&job).await? == [free.id().request], "a place that was left is back");
    Ok(())
}

/// A second `leave` is harmless, to the caller and to later contenders.
pub async fn leaving_is_repeatable_and_gives_up_one_incarnation_only(world: World) -> Verdict {
    let (client, job) = (world.client().await?, name("job")?);
    let mut old = client.hold(&job, world.whole).await?;
    demand!(old.leave().await? == Left::Released, "the first leave found nothing");
    let new = client.hold(&job, world.whole).await?;
    for _ in 0..2 {
        demand!(old.leave().await? == Left::AlreadyGone, "a repeated leave released something");
    }
    client.session().withdraw(&job, old.id().request).await?;
    demand!(client.ids(&job).await? == [new.id().request], "leaving an old place gave up the new one");
    release(new).await
}

/// A withdrawal undoes a request in any state, and may be repeated.
pub async fn a_withdrawn_request_leaves_nothing(world: World) -> Verdict {
    let (a, b, job) = (world.client().await?, world.client().await?, name("job")?);
    let never = a.entry(&job, world.whole);
    a.session().withdraw(&job, never.id).await?;
    let held = a.hold(&job, world.whole).await?;
    let mut middle = b.enter(&job, world.whole).await?;
    let mut last = a.enter(&job, world.whole).await?;
    let last_id = last.id().request;
    let mut parked = last.next(Moment::NEVER);
    world.park(&mut parked).await?;
    b.session().withdraw(&job, middle.id().request).await?;
    b.session().withdraw(&job, middle.id().request).await?;
    let rest = a.shown(&[held.id().request, last_id]);
    demand!(a.ids(&job).await? == rest, "a withdrawn waiter is still in the queue");
    let standing = middle.next(b.clock.now()).await;
    demand!(!matches!(standing, Ok(Standing::Granted(_))), "a withdrawn waiter received {standing:?}");
    a.session().withdraw(&job, held.id().request).await?;
    let told = world.in_time("a wake by a withdrawal", a.capability().wake_bound, parked).await;
    demand!(matches!(told, Some(Ok(Standing::Granted(_)))), "once the holder withdrew the waiter received {told:?}");
    release(last).await?;
    demand!(a.ids(&job).await?.is_empty(), "a withdrawn holder is still in the queue");
    Ok(())
}

/// Wherever an `enter` is dropped, a withdrawal leaves nothing of it.
pub async fn a_dropped_enter_once_withdrawn_strands_nothing(world: World) -> Verdict {
    let (a, b, job) = (world.client().await?, world.client().await?, name("job")?);
    for busy in [false, true] {
        let holder = if busy { Some(a.hold(&job, world.whole).await?) } else { None };
        for polls in 0.. {
            let done = drop_and_withdraw(&b, &b.entry(&job, world.whole), polls).await?;
            let left = a.ids(&job).await?.len();
            demand!(left == usize::from(busy), "an enter dropped after {polls} polls left a place in the queue");
            if done {
                break;
            }
        }
        if let Some(holder) = holder {
            release(holder).await?;
        }
    }
    world.pass(crate::world::GLANCE).await;
    demand!(a.ids(&job).await?.is_empty(), "a dropped enter took effect after its withdrawal");
    Ok(())
}

async fn drop_and_withdraw(client: &Client, entry: &Entry, polls: usize) -> Verdict<bool> {
    let mut enter = client.session().enter(Arc::new(entry.clone()));
    let answer = poll_times(&mut enter, polls).await;
    drop(enter);
    let done = match answer {
        Some(answer) => {
            drop(answer?);
            true
        }
        None => false,
    };
    client.session().withdraw(&entry.name, entry.id).await?;
    Ok(done)
}

/// Wherever a `next` is dropped, the call after it reports the change.
pub async fn a_dropped_next_loses_no_wake_up(world: World) -> Verdict {
    let (a, b, job) = (world.client().await?, world.client().await?, name("job")?);
    for (polls, before) in [(1, true), (1, false), (2, true), (3, false)] {
        let holder = a.hold(&job, world.whole).await?;
        let mut waiter = b.enter(&job, world.whole).await?;
        let mut next = waiter.next(Moment::NEVER);
        let mut polled = Box::pin(async { poll_times(&mut next, polls).await.is_some() });
        world.within(crate::world::GLANCE, &mut polled).await;
        if before {
            drop(polled);
            drop(next);
            release(holder).await?;
        } else {
            release(holder).await?;
            drop(polled);
            drop(next);
        }
        world.granted(&mut waiter).await?;
        release(waiter).await?;
    }
    Ok(())
}

/// A close removes every place of the session, waiting or granted, and no other. A close may be repeated.
pub async fn closing_a_session_ends_its_places_and_no_others(world: World) -> Verdict {
    let (a, b, job, other) = (world.client().await?, world.client().await?, name("job")?, name("other")?);
    let _held = a.hold(&job, world.whole).await?;
    let mut waiter = b.enter(&job, world.whole).await?;
    let kept = b.hold(&other, world.whole).await?;
    let _queued = a.enter(&other, world.whole).await?;
    let mut parked = waiter.next(Moment::NEVER);
    world.park(&mut parked).await?;
    insist(|| a.session().close()).await?;
    insist(|| a.session().close()).await?;
    let told = world.in_time("a wake by the end of a session", b.capability().wake_bound, parked).await;
    demand!(matches!(told, Some(Ok(Standing::Granted(_)))), "once the holder closed the waiter received {told:?}");
    demand!(b.ids(&other).await? == [kept.id().request], "closing left a waiter, or took another's place");
    let entered = a.send(&a.entry(&job, world.whole)).await;
    demand!(entered.is_err(), "a closed session still lets in");
    Ok(())
}

/// A client that looks at a queue again and again sees newcomers at its end only.
pub async fn no_place_appears_ahead_of_one_already_visible(world: World) -> Verdict {
    let clients = [world.client().await?, world.client().await?, world.client().await?];
    clients[0].needs_order()?;
    let (job, mut chance) = (name("job")?, fastrand::Rng::with_seed(world.seed));
    let (mut places, mut seen) = (Vec::new(), Vec::new());
    for _ in 0..20 {
        let entries: Vec<_> = clients.iter().map(|client| client.entry(&job, world.whole)).collect();
        let enters = clients.iter().zip(&entries).map(|(client, entry)| client.place(entry));
        let snapshot = clients[chance.usize(..3)].ids(&job);
        let (entered, now) = futures_util::future::join(futures_util::future::join_all(enters), snapshot).await;
        places.extend(entered.into_iter().collect::<Verdict<Vec<_>>>()?);
        for now in [now?, clients[chance.usize(..3)].ids(&job).await?] {
            let known: Vec<_> = seen.iter().filter(|id| now.contains(id)).copied().collect();
            demand!(now.starts_with(&known), "seed {}: the queue was {seen:?} and is {now:?}", world.seed);
            seen = now;
        }
        while places.len() > 6 {
            let mut place = places.swap_remove(chance.usize(..places.len()));
            demand!(place.leave().await? == Left::Released, "seed {}: a place was already gone", world.seed);
        }
    }
    Ok(())
}

/// An answer that was lost changes nothing: the request finds its place, and a leave finds it gone.
pub async fn a_request_whose_reply_was_lost_is_found_again(world: World) -> Verdict {
    use crate::fixture::Request::{Enter, Leave};
    let (client, job) = (world.client().await?, name("job")?);
    // A store that connects at the first lock of a name connects here, so that the fault hits the request of this kind.
    release(client.hold(&job, world.whole).await?).await?;
    let entry = client.entry(&job, world.whole);
    needs(client.process.faults.lose_next_reply(Enter), "no answer can be lost on the way to this store")?;
    let answer = client.session().enter(Arc::new(entry.clone())).await;
    let unknown = answer.is_err_and(|error| error.outcome() == fencelock::Outcome::Unknown);
    demand!(unknown, "an enter whose answer was lost did not say that its outcome is unknown");
    let mut place = client.place(&entry).await?;
    demand!(matches!(place.standing(), Standing::Granted(_)), "the request sent again is {:?}", place.standing());
    demand!(client.ids(&job).await? == [entry.id], "the request sent again made a second place");
    if client.process.faults.lose_next_reply(Leave) {
        demand!(place.leave().await.is_err(), "a leave whose answer was lost succeeded");
    }
    insist(async || place.leave().await).await?;
    demand!(client.ids(&job).await?.is_empty(), "a leave whose answer was lost left the place");
    Ok(())
}

/// A request held back on its way has no effect once its withdrawal, or the end of its session, was confirmed.
pub async fn a_withdrawn_request_never_takes_effect(world: World) -> Verdict {
    // Runs both concurrently, because each waits until a silent connection is given up.
    let (withdrawn, closed) = futures_util::future::join(held_back(&world, false), held_back(&world, true)).await;
    withdrawn.and(closed)
}

/// Holds a request back, withdraws it or closes its session, and then lets the request arrive.
async fn held_back(world: &World, close: bool) -> Verdict {
    let (client, other) = (world.client().await?, world.client().await?);
    let job = name(if close { "closed" } else { "withdrawn" })?;
    // A store that connects at the first lock of a name connects here: a future connection is not held back.
    release(client.hold(&job, world.whole).await?).await?;
    let Some(late) = client.process.faults.delay_next(crate::fixture::Request::Enter) else {
        return Err(Fault::Inapplicable("no request can be held back on the way to this store".to_owned()));
    };
    let entry = client.entry(&job, world.whole);
    let mut enter = client.session().enter(Arc::new(entry.clone()));
    world.park(&mut enter).await?;
    drop(enter);
    if close {
        insist(|| client.session().close()).await?;
    } else {
        insist(|| client.session().withdraw(&job, entry.id)).await?;
    }
    late.release().await;
    let ids = other.ids(&job).await?;
    demand!(ids.is_empty(), "a request took effect after its end was confirmed (by closing: {close}): {ids:?}");
    release(other.hold(&job, world.whole).await?).await
}
