//! The places of dead readers and dead holders of permits.

use std::time::Duration;

use fencelock::inspect::Claim;
use fencelock::store::{Place, Standing};
use fencelock::time::Moment;
use futures_util::future::join_all;

use crate::world::{Client, Verdict, World, demand, name, permits, release};

/// The shares of dead readers and dead holders of permits return in time. A living holder keeps its share.
pub async fn locks_that_dead_clients_held_together_come_back_in_time(world: World) -> Verdict {
    let living = world.client().await?;
    living.needs_permits()?;
    let dying = world.client_for(world.fixture().ttl()).await?;
    let (seats, page, book) = (name("seats")?, name("page")?, name("book")?);
    let kept = [living.hold(&seats, permits(1, 4)).await?, living.hold(&book, Claim::READER).await?];
    let mut dead = vec![dying.hold(&seats, permits(1, 4)).await?, dying.hold(&seats, permits(2, 4)).await?];
    dead.extend([dying.hold(&page, Claim::READER).await?, dying.hold(&page, Claim::READER).await?]);
    // A writer that waits, and dies, holds up the reader behind it.
    dead.push(dying.enter(&book, Claim::WRITER).await?);
    let mut waiters = vec![living.enter(&seats, permits(3, 4)).await?, living.enter(&page, Claim::WRITER).await?];
    waiters.push(living.enter(&book, Claim::READER).await?);
    let bound = bound(&living, &dying);
    dying.crash(dead);
    are_granted(&world, &mut waiters, bound).await?;
    for (name, place) in [(&seats, &kept[0]), (&book, &kept[1])] {
        let ids = living.ids(name).await?;
        demand!(ids.len() == 2 && ids[0] == place.id().request, "among the living the dead are shown: {ids:?}");
    }
    for place in waiters.into_iter().chain(kept) {
        release(place).await?;
    }
    Ok(())
}

/// A contender that dies before it notices its grant notifies no successor. The next contender waits only while the store takes the
/// dead one for living.
pub async fn a_waiter_that_dies_before_it_learns_of_its_grant_delays_no_other_for_long(world: World) -> Verdict {
    let living = world.client().await?;
    living.needs_permits()?;
    // A contender for a part, which leaves room behind it, and a contender for everything, which leaves none.
    let cases = [("some", permits(2, 3), permits(1, 3)), ("all", permits(3, 3), permits(3, 3))];
    for is_granted_first in [true, false] {
        let dying = world.client_for(world.fixture().ttl()).await?;
        let (mut held, mut dead, mut waiters) = (Vec::new(), Vec::new(), Vec::new());
        for (text, first, next) in cases {
            let name = name(text)?;
            held.push(living.hold(&name, permits(3, 3)).await?);
            // The dead contender never looks at its place.
            dead.push(dying.enter(&name, first).await?);
            waiters.push(living.enter(&name, next).await?);
        }
        let bound = bound(&living, &dying);
        if is_granted_first {
            release_all(held).await?;
            dying.crash(dead);
        } else {
            dying.crash(dead);
            release_all(held).await?;
        }
        are_granted(&world, &mut waiters, bound).await?;
        release_all(waiters).await?;
    }
    Ok(())
}

/// How long the dead `dying` may hold up `living`.
fn bound(living: &Client, dying: &Client) -> Duration {
    let capability = living.capability();
    dying.opened.ttl.unwrap_or_default() + capability.detection_slack + capability.wake_bound
}

async fn release_all(places: Vec<Box<dyn Place>>) -> Verdict {
    for place in places {
        release(place).await?;
    }
    Ok(())
}

/// Demands that all of them are granted within the bound.
async fn are_granted(world: &World, places: &mut [Box<dyn Place>], bound: Duration) -> Verdict {
    let waits = join_all(places.iter_mut().map(|place| async move {
        loop {
            match place.next(Moment::NEVER).await {
                Ok(Standing::Waiting(_)) => tokio::task::yield_now().await,
                told => return told,
            }
        }
    }));
    let told = world.in_time("the dead are gone", bound, waits).await;
    let told_all = told.as_ref().is_some_and(|told| told.iter().all(|told| matches!(told, Ok(Standing::Granted(_)))));
    demand!(told_all, "{bound:?} after the death of the place ahead, waiters received {told:?}");
    Ok(())
}
