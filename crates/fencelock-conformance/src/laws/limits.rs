//! Time limits: the limit of a hold, and the wait limits of many waiters.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use fencelock::recipes::MultiLock;
use fencelock::store::Order;
use fencelock::{Breaker, BreakerState, Error, ErrorKind, Loss, Mutex, OnOutage};

use tokio::task::JoinHandle;

use super::primitives::ended;
use crate::world::{Fault, GLANCE, NO_ORDER, PATIENCE, User, Verdict, World, demand, name, needs};

/// How long a lock may be held here.
const BRIEFLY: Duration = Duration::from_millis(100);

/// How long another client may wait for a lock meanwhile.
const HELD_UP: Duration = Duration::from_secs(5);

/// How many contenders give up together.
const CROWD: usize = 300;
/// How long impatient contenders wait.
const IMPATIENCE: Duration = Duration::from_secs(1);

/// At the end of `max_hold` the holder is notified. A rival is granted only when the work under the lock has stopped.
pub async fn no_rival_is_granted_while_a_holder_whose_time_is_up_still_runs(world: World) -> Verdict {
    // A pause for less than the margin (of the holder's machine, or of the store's) is no fault.
    let margin = world.fixture().long_ttl() / 5;
    let (holds, waits) = (world.user_with(|options| options.margin(margin)).await?, world.user().await?);
    let job = name("job")?;
    let guard = holds.mutex(&job)?.max_hold(BRIEFLY).acquire().await?;
    let runs = Arc::new(AtomicBool::new(true));
    let (rival, still_runs) = (waits.mutex(&job)?, Arc::clone(&runs));
    let rival = tokio::spawn(async move {
        let guard = rival.acquire().await?;
        Ok::<_, Error>((still_runs.load(Ordering::SeqCst), guard))
    });
    let loss = world.within(PATIENCE, guard.lost()).await;
    demand!(loss == Some(Loss::HeldTooLong), "a holder beyond its limit received {loss:?}");
    // Work under a lock needs a moment to stop.
    world.pass(GLANCE).await;
    runs.store(false, Ordering::SeqCst);
    drop(guard);
    let (is_beside, guard) = ended(&world, rival).await??;
    demand!(!is_beside, "a rival was granted while the holder still ran");
    guard.release().await?;
    Ok(())
}

/// A client with a limit of waiters is not refused because of waiters that have left.
pub async fn a_waiter_that_left_is_not_counted(world: World) -> Verdict {
    let (holds, leaves, stays) = (world.user().await?, world.user().await?, world.user().await?);
    needs(holds.capability().order == Order::Fifo, NO_ORDER)?;
    let job = name("job")?;
    let held = holds.mutex(&job)?.acquire().await?;
    let wait = |user: &User, most| {
        let mutex = user.mutex(&job)?.max_waiters(most);
        Ok::<_, Error>(tokio::spawn(async move { mutex.acquire().await }))
    };
    let are_queued = async |count| {
        world.until("so many are in the queue", async || Ok(holds.queue(&job).await?.queued == count)).await
    };
    let mut waiting = Vec::new();
    for (user, queued) in [(&leaves, 2), (&leaves, 3), (&leaves, 4), (&stays, 5)] {
        waiting.push(wait(user, 9)?);
        are_queued(queued).await?;
    }
    // The third waiter stays: the next client listens to it.
    waiting[0].abort();
    waiting[1].abort();
    are_queued(3).await?;
    let last = wait(&stays, 3)?;
    let joins = async || Ok(last.is_finished() || holds.queue(&job).await?.queued == 4);
    world.until("it is refused, or waits", joins).await?;
    // The time for the refusal.
    world.pass(GLANCE).await;
    demand!(!last.is_finished(), "behind two waiters one is refused who waits behind three at most");
    for task in waiting.into_iter().chain([last]) {
        task.abort();
    }
    are_queued(1).await?;
    held.check()?;
    held.release().await?;
    Ok(())
}

/// Many contenders that give up together cost other clients no lock, and hardly any time. They end in time, and leave
/// nothing.
pub async fn a_crowd_that_gives_up_together_delays_no_other_client(world: World) -> Verdict {
    let (holds, crowd, bystander) = (world.user().await?, world.user().await?, world.user().await?);
    let (job, other) = (name("job")?, name("other")?);
    let held = holds.mutex(&job)?.acquire().await?;
    let kept = bystander.mutex("kept")?.acquire().await?;
    let waiting: Vec<_> = (0..CROWD)
        .map(|_| crowd.mutex(&job).map(|mutex| tokio::spawn(async move { mutex.acquire_within(IMPATIENCE).await })))
        .collect::<Result<_, _>>()?;
    let mutex = bystander.mutex(&other)?;
    world.pass(IMPATIENCE).await;
    for waits in waiting {
        let refused = ended(&world, waits).await?.err();
        let refused = refused.ok_or_else(|| Fault::Broken("two hold a mutex".to_owned()))?;
        // On a busy machine a request may still be unanswered.
        let is_honest = matches!(refused.kind(), ErrorKind::TimedOut | ErrorKind::Unreachable);
        demand!(is_honest, "a waiter of a crowd that gave up received {refused:?}");
        if refused.contention().is_some_and(|contention| contention.holder.is_some()) {
            cycle(&world, &mutex).await?;
        }
    }
    cycle(&world, &mutex).await?;
    world
        .until("no waiter of the crowd is left", async || {
            Ok(holds.queue(&job).await?.queued == 1 && holds.contention(&job).await?.queued == 1)
        })
        .await?;
    for guard in [held, kept] {
        guard.check()?;
        guard.release().await?;
    }
    Ok(())
}

/// However short the waits for a held lock are, and however many end together: each times out. None counts for the breaker, and
/// none is granted without the store.
pub async fn short_waits_for_a_held_lock_are_no_outage(world: World) -> Verdict {
    time_out(&world, CROWD).await
}

/// As [`short_waits_for_a_held_lock_are_no_outage`], with a thousand waits at once.
pub async fn a_thousand_short_waits_for_a_held_lock_are_no_outage(world: World) -> Verdict {
    time_out(&world, 1000).await
}

/// Lets `crowd` waits of 200 ms time out at once, then calls of several locks, then waits of 4 ms behind a round trip of 6 ms.
async fn time_out(world: &World, crowd: usize) -> Verdict {
    const MS: Duration = Duration::from_millis(1);
    let holds = world.user().await?;
    let waits = world.user_with(|options| options.breaker(Breaker::default().failures(1))).await?;
    let job = name("job")?;
    let held = holds.mutex(&job)?.acquire().await?;
    let mutex = waits.mutex(&job)?.on_outage(OnOutage::RunWithout);
    let wait = |limit| {
        let mutex = mutex.clone();
        tokio::spawn(async move { mutex.acquire_within(limit).await.map(drop) })
    };
    let free = waits.mutex("free")?.on_outage(OnOutage::RunWithout);
    let several = MultiLock::new([free, mutex.clone()])?;
    let wait_for_both = || {
        let several = several.clone();
        tokio::spawn(async move { several.acquire_within(50 * MS).await.map(drop) })
    };
    let mut waiting: Vec<_> = (0..crowd).map(|_| wait(200 * MS)).collect();
    waiting.extend((0..crowd / 10).map(|_| wait_for_both()));
    world.pass(200 * MS).await;
    times_out(world, waiting).await?;
    for _ in 0..20 {
        let both = wait_for_both();
        world.pass(50 * MS).await;
        times_out(world, [both]).await?;
    }
    waits.process.faults.slow(3 * MS);
    for _ in 0..5 {
        let short = wait(4 * MS);
        world.pass(4 * MS).await;
        times_out(world, [short]).await?;
    }
    demand!(
        waits.breaker() == Some(BreakerState::Closed),
        "the breaker of a store that lives is {:?}",
        waits.breaker()
    );
    held.check()?;
    held.release().await?;
    Ok(())
}

async fn times_out(world: &World, waiting: impl IntoIterator<Item = JoinHandle<Result<(), Error>>>) -> Verdict {
    for wait in waiting {
        let refused = ended(world, wait).await?.err();
        let refused = refused.ok_or_else(|| Fault::Broken("a wait for a held lock was granted".to_owned()))?;
        demand!(refused.kind() == ErrorKind::TimedOut, "a short wait for a held lock ended with {refused:?}");
    }
    Ok(())
}

async fn cycle(world: &World, mutex: &Mutex) -> Verdict {
    let mutex = mutex.clone();
    let taken = ended(world, tokio::spawn(async move { mutex.acquire_within(HELD_UP).await })).await?;
    taken.map_err(|error| Fault::Broken(format!("a bystander was held up: {error:?}")))?.release().await?;
    Ok(())
}
