//! A long queue costs other clients nothing.

use std::time::Duration;

use fencelock::ErrorKind;
use fencelock::inspect::Claim;
use fencelock::store::Order;

use super::primitives::ended;
use crate::counted::Cost;
use crate::world::{Fault, Verdict, World, demand, name};

/// The numbers of waiters whose costs are compared.
const FEW: usize = 10;
const MANY: usize = 1000;

/// How often each request is measured.
const TIMES: usize = 20;

/// The requests that a measurement may add: renewals on a slow machine, and repeated requests.
const REQUESTS: u64 = 2;
const BYTES: u64 = 800;

/// A look, a refusal and a renewal cost the same requests and answers whether ten wait or a thousand, also for the
/// owner of the places. Each is measured alone, several times, and the least cost counts: waiters look at the queue now
/// and then, and on a busy machine such looks may add to most measurements.
pub async fn looks_refusals_and_renewals_cost_the_same_however_many_wait(world: World) -> Verdict {
    let few = costs(&world, FEW).await?;
    let many = costs(&world, MANY).await?;
    for ((what, few), (_, many)) in few.iter().zip(&many) {
        let grows = |few: u64, many: u64, slack: u64| many > 2 * few + slack;
        let is_dear = grows(few.requests, many.requests, REQUESTS)
            || grows(few.seen, many.seen, REQUESTS)
            || grows(few.up, many.up, BYTES)
            || grows(few.down, many.down, BYTES);
        demand!(!is_dear, "{what} costs {few:?} with {FEW} that wait, and {many:?} with {MANY}");
    }
    Ok(())
}

/// The cost of each operation while `waiters` wait.
async fn costs(world: &World, waiters: usize) -> Verdict<Vec<(&'static str, Cost)>> {
    let (job, kept) = (name(&format!("job-{waiters}"))?, name(&format!("kept-{waiters}"))?);
    let (crowd, crowds) = world.metered_client().await?;
    let mut places = vec![crowd.hold(&job, Claim::MUTEX).await?];
    for _ in 0..waiters {
        places.push(crowd.enter(&job, Claim::MUTEX).await?);
    }
    let (other, others) = world.metered_client().await?;
    let held = other.hold(&kept, Claim::MUTEX).await?;
    let (mut of_crowd, mut of_other, mut of_looks) = (Vec::new(), Vec::new(), Vec::new());
    // The looks run in a row, not between renewals: a moment after each renewal, a session clears up in the store.
    for _ in 0..TIMES {
        let before = others.read();
        let outline = other.process.store.contention(&job, &[]).await?;
        of_looks.push(others.read().since(before));
        let told = if other.capability().order == Order::None { 1 } else { waiters + 1 };
        demand!(outline.queued == told, "the outline counts {} of {waiters} and one", outline.queued);
    }
    for _ in 0..TIMES {
        let all: Vec<_> = places.iter().map(|place| &**place).collect();
        let before = crowds.read();
        let renewal = crowd.renew(&all).await?;
        of_crowd.push(crowds.read().since(before));
        demand!(renewal.gone.is_empty(), "a renewal of {waiters} found {renewal:?}");
        let before = others.read();
        other.renew(&[&*held]).await?;
        of_other.push(others.read().since(before));
    }
    let named = [("the crowd's renewal", of_crowd), ("a bystander's renewal", of_other), ("a look", of_looks)];
    let mut costs: Vec<_> = named.iter().map(|(what, costs)| (*what, Cost::least(costs))).collect();
    costs.extend(refusals(world, &job).await?);
    other.session().close().await?;
    crowd.session().close().await?;
    Ok(costs)
}

/// The cost of waiting for `job`, which is held.
async fn refusals(world: &World, job: &fencelock::Name) -> Verdict<Vec<(&'static str, Cost)>> {
    let (user, meter) = world.metered_user().await?;
    let mut costs = Vec::new();
    for (what, limit) in [("a refused try", Duration::ZERO), ("a wait that ends", Duration::from_millis(20))] {
        let mut each = Vec::new();
        for _ in 0..TIMES {
            let before = meter.read();
            let mutex = user.mutex(job)?;
            let refused = ended(world, tokio::spawn(async move { mutex.acquire_within(limit).await })).await?.err();
            let refused = refused.ok_or_else(|| Fault::Broken("two hold a mutex".to_owned()))?;
            // On a busy machine a request may still be unanswered.
            let is_honest = matches!(refused.kind(), ErrorKind::TimedOut | ErrorKind::Unreachable);
            demand!(is_honest, "a waiter that gave up received {refused:?}");
            each.push(meter.read().since(before));
        }
        costs.push((what, Cost::median(&each)));
    }
    user.close().await?;
    Ok(costs)
}
