//! Fencing tokens.

use std::time::Duration;

use fencelock::inspect::Claim;
use fencelock::store::Place;
use fencelock::{FencingToken, Name};

use crate::world::{Client, Verdict, World, demand, name, release, token_of};

/// Every grant of one name has a higher token than the one before it, whichever process it goes to.
pub async fn tokens_rise_with_every_grant(world: World) -> Verdict {
    let (a, b, job) = (world.client().await?, world.client().await?, name("job")?);
    a.needs_tokens()?;
    let mut last = None;
    let mut held = a.hold(&job, world.whole).await?;
    for number in 0..40 {
        let client = if number % 2 == 0 { &b } else { &a };
        let mut waiter = client.enter(&job, world.whole).await?;
        rise(&mut last, &*held)?;
        release(held).await?;
        world.granted(&mut waiter).await?;
        held = waiter;
    }
    rise(&mut last, &*held)
}

/// The tokens of an idle name never start again: not after any time, and not after the end of every session.
pub async fn tokens_rise_over_idle_times(world: World) -> Verdict {
    let job = name("job")?;
    let mut last = None;
    for _ in 0..4 {
        let client = world.client().await?;
        client.needs_tokens()?;
        for _ in 0..10 {
            cycle(&client, &job, world.whole, &mut last).await?;
        }
        client.session().close().await?;
        drop(client);
        world.pass(Duration::from_millis(50)).await;
    }
    Ok(())
}

async fn cycle(client: &Client, job: &Name, claim: Claim, last: &mut Option<FencingToken>) -> Verdict {
    let held = client.hold(job, claim).await?;
    rise(last, &*held)?;
    release(held).await
}

fn rise(last: &mut Option<FencingToken>, held: &dyn Place) -> Verdict {
    let token = token_of(held);
    demand!(token.is_some(), "a grant has no token");
    demand!(token > *last, "the token {token:?} came after {last:?}");
    *last = token;
    Ok(())
}
