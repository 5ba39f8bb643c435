//! The ends of waits, and of dead contenders. Only the bounds of a capability are asserted.

use std::sync::Arc;
use std::time::Duration;

use fencelock::inspect::Claim;
use fencelock::store::{SessionEvent, Standing};
use fencelock::time::Moment;
use fencelock::{Error, ErrorKind, Loss, Name};
use futures_util::StreamExt;

use crate::world::{Client, Fault, GLANCE, PATIENCE, Verdict, World, demand, name, permits, poll_times, release};

/// A waiter with any kind of claim is notified of its grant within the bound, from the same process or another one.
pub async fn next_returns_within_its_bound_of_the_grant(world: World) -> Verdict {
    let (a, b) = (world.client().await?, world.client().await?);
    let mut pairs = vec![(Claim::MUTEX, Claim::MUTEX)];
    if a.capability().shared_claims {
        pairs.push((Claim::WRITER, Claim::READER));
        pairs.push((Claim::READER, Claim::WRITER));
    }
    if a.capability().permits {
        pairs.push((permits(2, 3), permits(2, 3)));
    }
    for ((ahead, behind), number) in pairs.into_iter().zip(0..) {
        let job = name(&format!("job-{number}"))?;
        for waits_in in [&a, &b] {
            let holder = a.hold(&job, ahead).await?;
            let mut waiter = waits_in.enter(&job, behind).await?;
            let mut parked = waiter.next(Moment::NEVER);
            world.park(&mut parked).await?;
            release(holder).await?;
            let told = world.in_time("a wake", a.capability().wake_bound, parked).await;
            let granted = matches!(told, Some(Ok(Standing::Granted(_))));
            demand!(granted, "a {behind} behind a {ahead} that left received {told:?} within the bound");
            release(waiter).await?;
        }
    }
    Ok(())
}

/// A wait without an event returns at its limit.
pub async fn next_returns_when_its_time_is_up(world: World) -> Verdict {
    let (client, job) = (world.client().await?, name("job")?);
    let _holder = client.hold(&job, world.whole).await?;
    let mut waiter = client.enter(&job, world.whole).await?;
    for wait in [Duration::ZERO, Duration::from_millis(30)] {
        let until = client.clock.now().after(wait);
        loop {
            let told =
                world.in_time("the end of a wait", wait + client.capability().wake_bound, waiter.next(until)).await;
            let waits = matches!(told, Some(Ok(Standing::Waiting(_))));
            demand!(waits, "a waiter whose wait of {wait:?} had ended received {told:?}");
            if client.clock.now() >= until {
                break;
            }
        }
    }
    Ok(())
}

/// A holder does not wait for its lock.
pub async fn next_returns_at_once_when_granted(world: World) -> Verdict {
    let (client, job) = (world.client().await?, name("job")?);
    let mut held = client.hold(&job, world.whole).await?;
    let mut waiter = client.enter(&job, world.whole).await?;
    let told = world.within(PATIENCE, held.next(Moment::NEVER)).await;
    demand!(matches!(told, Some(Ok(Standing::Granted(_)))), "a holder that waits receives {told:?}");
    release(held).await?;
    // The place was granted while no task listened: the store's state differs already.
    let told = world.in_time("a grant of before", client.capability().wake_bound, waiter.next(Moment::NEVER)).await;
    demand!(matches!(told, Some(Ok(Standing::Granted(_)))), "a waiter granted before it waits receives {told:?}");
    Ok(())
}

/// The places of dead holders and waiters are removed in time, and the contenders behind them are notified.
pub async fn a_dead_sessions_places_go_in_time(world: World) -> Verdict {
    let (living, job) = (world.client().await?, name("job")?);
    let ttl = world.fixture().ttl();
    let (holds, waits) = (world.client_for(ttl).await?, world.client_for(ttl).await?);
    let held = holds.hold(&job, world.whole).await?;
    let queued = waits.enter(&job, world.whole).await?;
    let mut waiter = living.enter(&job, world.whole).await?;
    let mut parked = waiter.next(Moment::NEVER);
    world.park(&mut parked).await?;
    let lives = holds.opened.ttl.unwrap_or_default().max(waits.opened.ttl.unwrap_or_default());
    holds.crash(vec![held]);
    waits.crash(vec![queued]);
    let capability = living.capability();
    let bound = lives + capability.detection_slack + capability.wake_bound;
    let told = world.in_time("the dead are gone", bound, parked).await;
    let granted = matches!(told, Some(Ok(Standing::Granted(_))));
    demand!(granted, "{bound:?} after the death of all ahead of it a waiter received {told:?}");
    let ids = living.ids(&job).await?;
    demand!(ids == [waiter.id().request], "the places of the dead are still in the queue: {ids:?}");
    Ok(())
}

/// A session that is renewed often enough outlives its ttl, and so do its places.
pub async fn a_renewed_session_outlives_its_ttl(world: World) -> Verdict {
    let (client, job) = (world.client_for(world.fixture().ttl()).await?, name("job")?);
    let Some(ttl) = client.opened.ttl else {
        return Err(Fault::Inapplicable("no place of this store can expire".to_owned()));
    };
    let held = client.hold(&job, world.whole).await?;
    for _ in 0..5 {
        world.pass(ttl / 3).await;
        // The request is sent at the first poll. A server's answer comes later.
        let places = [held.id()];
        let mut renewing = client.session().renew(&places);
        let at_once = poll_times(&mut renewing, 1).await;
        let sent = client.clock.now();
        let renewal = match at_once {
            Some(renewal) => renewal?,
            None => renewing.await?,
        };
        demand!(renewal.gone.is_empty(), "a session renewed in time receives {renewal:?}");
        demand!(renewal.confirmed <= client.clock.now(), "a renewal counts from the future");
        demand!(renewal.confirmed <= sent, "a renewal counts from after it was sent");
    }
    demand!(client.ids(&job).await? == [held.id().request], "a renewed place is gone");
    release(held).await
}

/// A session that was not renewed for its ttl has ended for all clients, its own included.
pub async fn an_expired_session_is_reported_as_expired(world: World) -> Verdict {
    let (mut client, job) = (world.client_for(world.fixture().ttl()).await?, name("job")?);
    let Some(ttl) = client.opened.ttl else {
        return Err(Fault::Inapplicable("no session of this store can expire".to_owned()));
    };
    let mut held = client.hold(&job, world.whole).await?;
    world.pass(ttl + client.capability().detection_slack).await;
    demand!(client.ids(&job).await?.is_empty(), "an expired place is still in the queue");
    takes_nothing_more(&client, &job, world.whole, Loss::Expired).await?;
    let standing = held.next(client.clock.now()).await;
    demand!(!matches!(standing, Ok(Standing::Granted(_))), "a holder whose session expired receives {standing:?}");
    let event = world.within(PATIENCE, client.opened.events.next()).await;
    demand!(event == Some(Some(SessionEvent::Over)), "the event of an expired session is {event:?}");
    let event = world.within(GLANCE, client.opened.events.next()).await;
    demand!(matches!(event, None | Some(None)), "after its end a session received {event:?}");
    demand!(
        client.session().over() == Some(Loss::Expired),
        "a session that expired ended by {:?}",
        client.session().over()
    );
    Ok(())
}

/// A closed session reports that, and refuses requests.
pub async fn a_closed_session_has_ended_and_takes_nothing_more(world: World) -> Verdict {
    let (client, job) = (world.client().await?, name("job")?);
    let _held = client.hold(&job, world.whole).await?;
    demand!(client.session().over().is_none(), "an open session ended by {:?}", client.session().over());
    client.session().close().await?;
    takes_nothing_more(&client, &job, world.whole, Loss::Closed).await
}

/// Demands that the session takes neither a renewal nor a request, and says why it ended.
async fn takes_nothing_more(client: &Client, job: &Name, claim: Claim, cause: Loss) -> Verdict {
    let lost = |error: &Error| matches!(error.kind(), ErrorKind::Lost | ErrorKind::Closed);
    let renewal = client.session().renew(&[]).await;
    demand!(renewal.as_ref().is_err_and(lost), "the renewal of an ended session said {renewal:?}");
    let entered = client.session().enter(Arc::new(client.entry(job, claim))).await;
    demand!(entered.is_err_and(|error| lost(&error)), "an ended session still lets in, or names no cause");
    let over = client.session().over();
    demand!(over == Some(cause), "a session that ended by {cause:?} says {over:?}");
    Ok(())
}

/// A renewal names the places that the store no longer has.
pub async fn a_renewal_names_what_is_gone(world: World) -> Verdict {
    let (client, job, other) = (world.client().await?, name("job")?, name("other")?);
    let (mut left, held) = (client.hold(&job, world.whole).await?, client.hold(&other, world.whole).await?);
    let waiting = client.enter(&other, world.whole).await?;
    left.leave().await?;
    let renewal = client.renew(&[&*left, &*held, &*waiting]).await?;
    let gone: Vec<_> = renewal.gone.iter().map(|(id, _)| id.clone()).collect();
    demand!(gone == [left.id()], "of a left, a held and a waiting place these are gone: {gone:?}");
    Ok(())
}
