//! Admission, and its order.

use std::pin::pin;

use fencelock::Name;
use fencelock::inspect::Claim;
use fencelock::store::{Entered, Order, Place, Standing};
use futures_util::future::{Either, select};

use crate::world::{Fault, Verdict, World, demand, name, permits, release};

/// Without a contender ahead there is no wait: the reply of `enter` itself has the grant.
pub async fn the_first_contender_is_granted_at_once(world: World) -> Verdict {
    let client = world.client().await?;
    for (claim, number) in world.claims(client.capability()).into_iter().zip(0..) {
        release(client.hold(&name(&format!("first-{number}"))?, claim).await?).await?;
    }
    Ok(())
}

/// While a contender holds a mutex, no contender of any process holds it.
pub async fn a_mutex_has_one_holder(world: World) -> Verdict {
    let (a, b, job) = (world.client().await?, world.client().await?, name("job")?);
    let first = a.hold(&job, world.whole).await?;
    let (mut second, mut third) = (b.enter(&job, world.whole).await?, a.enter(&job, world.whole).await?);
    world.waits(&mut second, &b).await?;
    world.waits(&mut third, &a).await?;
    release(first).await?;
    if a.capability().order == Order::None {
        // Each waiter may be the next holder, and is the only one.
        let is_second = {
            let (one, other) = (pin!(world.granted(&mut second)), pin!(world.granted(&mut third)));
            match select(one, other).await {
                Either::Left((granted, _)) => granted.map(|_| true)?,
                Either::Right((granted, _)) => granted.map(|_| false)?,
            }
        };
        let (waiter, client) = if is_second { (&mut third, &a) } else { (&mut second, &b) };
        world.waits(waiter, client).await?;
    } else {
        let next_granted = world.granted(&mut second).await.is_ok();
        demand!(next_granted, "the mutex was given up and the first waiter did not get it");
        world.waits(&mut third, &a).await?;
    }
    let queue = a.queue(&job).await?;
    let holders = queue.contenders.iter().filter(|contender| contender.grant.is_some()).count();
    demand!(holders == 1, "the queue of a mutex shows {holders} holders");
    Ok(())
}

/// Holders' weights add up to the capacity at most.
pub async fn the_capacity_is_never_exceeded(world: World) -> Verdict {
    let (client, pool) = (world.client().await?, name("pool")?);
    client.needs_permits()?;
    let first = client.hold(&pool, permits(2, 5)).await?;
    let _second = client.hold(&pool, permits(3, 5)).await?;
    let mut third = client.enter(&pool, permits(1, 5)).await?;
    world.waits(&mut third, &client).await?;
    let mut fourth = client.enter(&pool, permits(2, 5)).await?;
    release(first).await?;
    world.granted(&mut third).await?;
    world.waits(&mut fourth, &client).await
}

/// A small claim does not overtake a large one that waits.
pub async fn the_granted_are_a_prefix_of_the_queue(world: World) -> Verdict {
    let (client, pool) = (world.client().await?, name("pool")?);
    client.needs_permits()?;
    client.needs_order()?;
    let first = client.hold(&pool, permits(2, 3)).await?;
    let mut large = client.enter(&pool, permits(3, 3)).await?;
    let mut small = client.enter(&pool, permits(1, 3)).await?;
    world.waits(&mut large, &client).await?;
    world.waits(&mut small, &client).await?;
    release(first).await?;
    world.granted(&mut large).await?;
    world.waits(&mut small, &client).await?;
    release(large).await?;
    world.granted(&mut small).await.map(drop)
}

/// First come, first served, however the waiters look at their places.
pub async fn waiters_are_granted_in_arrival_order(world: World) -> Verdict {
    let (a, b, job) = (world.client().await?, world.client().await?, name("job")?);
    a.needs_order()?;
    let mut places = vec![a.hold(&job, world.whole).await?];
    for number in 0..16 {
        places.push((if number % 2 == 0 { &b } else { &a }).enter(&job, world.whole).await?);
    }
    for (number, place) in places[1..].iter_mut().enumerate().rev() {
        world.waits(place, if number % 2 == 0 { &b } else { &a }).await?;
    }
    places.reverse();
    while let Some(holder) = places.pop() {
        release(holder).await?;
        if let Some(next) = places.last_mut() {
            world.granted(next).await?;
        }
    }
    Ok(())
}

/// Readers hold together. A writer waits for all of them; in a store with an order, the readers behind it wait for the
/// writer.
pub async fn readers_share_and_writers_do_not(world: World) -> Verdict {
    let (a, b, page) = (world.client().await?, world.client().await?, name("page")?);
    a.needs_shared_claims()?;
    let (one, two) = (a.hold(&page, Claim::READER).await?, b.hold(&page, Claim::READER).await?);
    let mut writer = b.enter(&page, Claim::WRITER).await?;
    let mut late = [a.enter(&page, Claim::READER).await?, b.enter(&page, Claim::READER).await?];
    release(two).await?;
    world.waits(&mut writer, &b).await?;
    if a.capability().order == Order::None {
        // A reader may pass the writer of another process, which then waits for this reader, too. A reader does not pass a
        // writer of its own process.
        let [passes, waits] = &mut late;
        world.granted(passes).await?;
        release(one).await?;
        world.waits(&mut writer, &b).await?;
        world.waits(waits, &b).await?;
        passes.leave().await?;
        world.granted(&mut writer).await?;
        return release(writer).await;
    }
    world.waits(&mut late[0], &a).await?;
    release(one).await?;
    world.granted(&mut writer).await?;
    world.waits(&mut late[1], &b).await?;
    release(writer).await?;
    for place in &mut late {
        world.granted(place).await?;
    }
    Ok(())
}

/// A writer that becomes a reader keeps its place. The readers behind it are granted, and the writer behind these readers is not.
pub async fn a_lighter_claim_lets_in_whom_it_makes_room_for(world: World) -> Verdict {
    let (a, b, page) = (world.client().await?, world.client().await?, name("page")?);
    a.needs_shared_claims()?;
    let mut writer = a.hold(&page, Claim::WRITER).await?;
    let mut reader = b.enter(&page, Claim::READER).await?;
    let mut second = b.enter(&page, Claim::WRITER).await?;
    let mut parked = reader.next(fencelock::time::Moment::NEVER);
    world.park(&mut parked).await?;
    writer.lighten(Claim::READER).await?;
    let told = world.in_time("a wake by a lighter claim", a.capability().wake_bound, parked).await;
    demand!(matches!(told, Some(Ok(Standing::Granted(_)))), "after a downgrade the next reader received {told:?}");
    world.waits(&mut second, &b).await?;
    let front = a.queue(&page).await?.contenders.first().map(|contender| (contender.id, contender.claim));
    demand!(front == Some((writer.id().request, Claim::READER)), "after a downgrade the queue begins with {front:?}");
    release(writer).await?;
    world.waits(&mut second, &b).await?;
    release(reader).await?;
    world.granted(&mut second).await.map(drop)
}

/// When a waiting writer gives up, the readers that it blocked are granted.
pub async fn a_waiter_that_departs_lets_in_whom_it_held_up(world: World) -> Verdict {
    let (a, b, page) = (world.client().await?, world.client().await?, name("page")?);
    a.needs_shared_claims()?;
    let _holder = a.hold(&page, Claim::READER).await?;
    for withdrawn in [false, true] {
        let mut writer = a.enter(&page, Claim::WRITER).await?;
        // Without an order, a reader waits behind a writer of its own process only.
        let behind = if a.capability().order == Order::None { &a } else { &b };
        let mut reader = behind.enter(&page, Claim::READER).await?;
        let mut parked = reader.next(fencelock::time::Moment::NEVER);
        world.park(&mut parked).await?;
        if withdrawn {
            a.session().withdraw(&page, writer.id().request).await?;
        } else {
            writer.leave().await?;
        }
        let told = world.in_time("a wake by a waiter that departs", a.capability().wake_bound, parked).await;
        demand!(matches!(told, Some(Ok(Standing::Granted(_)))), "once the writer gave up the reader received {told:?}");
        release(reader).await?;
    }
    Ok(())
}

/// Two capacities cannot share a queue; the newcomer is refused, and leaves nothing.
pub async fn one_queue_has_one_capacity(world: World) -> Verdict {
    let (client, job) = (world.client().await?, name("job")?);
    client.needs_permits()?;
    let holder = client.hold(&job, Claim::MUTEX).await?;
    let before = client.ids(&job).await?;
    for claim in [Claim::READER, Claim::WRITER, permits(1, 3)] {
        for wait in [true, false] {
            let entered = client.send(&fencelock::store::Entry { wait, ..client.entry(&job, claim) }).await?;
            let told = matches!(entered, Entered::Conflict(ahead) if ahead == Claim::MUTEX);
            demand!(told, "{claim} behind a mutex got no error of the conflict");
        }
    }
    demand!(client.ids(&job).await? == before, "a contender with another capacity left something behind");
    release(holder).await?;
    release(client.hold(&job, Claim::READER).await?).await
}

/// A try is granted or leaves nothing; a refused try blocks no other contender.
pub async fn a_try_that_is_refused_leaves_nothing(world: World) -> Verdict {
    let (a, b, job) = (world.client().await?, world.client().await?, name("job")?);
    let holder = a.hold(&job, world.whole).await?;
    for client in [&a, &b] {
        let entered = client.try_enter(&job, world.whole).await?;
        demand!(matches!(entered, Entered::Busy), "a try on a held mutex was not busy");
    }
    demand!(a.ids(&job).await? == [holder.id().request], "a refused try left something behind");
    release(holder).await?;
    let Entered::In(tried) = b.try_enter(&job, world.whole).await? else {
        return Err(Fault::Broken("a try on a free mutex was refused".to_owned()));
    };
    demand!(matches!(tried.standing(), Standing::Granted(_)), "a try was let in without a grant");
    release(tried).await
}

/// Names that a store might confuse are separate locks.
pub async fn names_that_differ_never_share_a_queue(world: World) -> Verdict {
    let client = world.client().await?;
    let long = "n".repeat(Name::MAX_BYTES - 1);
    let texts = [
        "job",
        "Job",
        "job ",
        " job",
        "job/x",
        "job%2Fx",
        "job%2fx",
        "job_x",
        "job\\x",
        "..job",
        "job.",
        "{job}",
        "job*",
        "'job'",
        "日本",
        "ﬁ",
        "fi",
        "é",
        "e\u{301}",
        "__LOCK__",
        "lock-0000000001",
        "ß",
        "ss",
        "-rf",
    ];
    let long = [format!("{long}a"), format!("{long}b"), "é".repeat(Name::MAX_BYTES / 2)];
    let mut names: Vec<Name> =
        texts.iter().copied().chain(long.iter().map(String::as_str)).map(name).collect::<Verdict<_>>()?;
    let mut held: Vec<Box<dyn Place>> = Vec::new();
    for name in &names {
        held.push(client.hold(name, world.whole).await?);
    }
    for (name, place) in names.iter().zip(&held) {
        demand!(client.ids(name).await? == [place.id().request], "the queue of {name:?} is not its own");
    }
    let listed = client.names("").await?;
    names.sort_unstable();
    demand!(listed.iter().eq(&names), "the names listed are {listed:?}");
    for place in held {
        release(place).await?;
    }
    Ok(())
}
