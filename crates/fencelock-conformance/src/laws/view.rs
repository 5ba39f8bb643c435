//! Laws about the queues and names that a store shows, and about the residue of an idle name.

use std::sync::Arc;

use fencelock::Name;
use fencelock::inspect::Claim;
use fencelock::store::{Ahead, Entry, Liveness, Order, Page, Place, RequestId, Standing, Tokens};
use fencelock::time::Moment;

use crate::world::{Client, Verdict, World, demand, grant_of, insist, name, release};

/// The queue shows all its contenders, in order, with owner, claim, purpose and grant.
pub async fn the_queue_shows_holders_and_waiters(world: World) -> Verdict {
    let (a, b, job) = (world.client().await?, world.client().await?, name("job")?);
    let long: Arc<str> = "é\"\n".repeat(Entry::MAX_PURPOSE / 4).into();
    let first = Entry { purpose: Some(long), ..a.entry(&job, world.whole) };
    let second = Entry { purpose: Some("later".into()), ..b.entry(&job, world.whole) };
    let (held, waiting) = (a.place(&first).await?, b.place(&second).await?);
    let grant = grant_of(&*held)?;
    if let Standing::Waiting(Some(ahead)) = waiting.standing() {
        demand!(ahead == Ahead::new(1, 0), "behind one holder {ahead:?} are ahead");
    }
    let queue = b.queue(&job).await?;
    let count = b.shown(&[first.id, second.id]).len();
    demand!(queue.name == job && queue.contenders.len() == count, "the queue of two shows {queue:?}");
    for (shown, (entry, client)) in queue.contenders.iter().zip([(&first, &a), (&second, &b)]) {
        demand!(shown.id == entry.id && shown.claim == entry.claim, "{shown:?} is not {entry:?}");
        demand!(shown.purpose == entry.purpose, "the purpose {:?} is shown as {:?}", entry.purpose, shown.purpose);
        let owner = shown.owner.as_ref();
        demand!(owner.is_none_or(|owner| *owner == client.owner), "{:?} is shown as {owner:?}", client.owner);
    }
    let grants: Vec<_> = queue.contenders.iter().map(|shown| shown.grant.map(|grant| grant.token)).collect();
    demand!(grants == [Some(grant.token), None][..count], "the grants {grants:?} are shown, not {grant:?}");
    Ok(())
}

/// Each page of a queue, and its outline (head, length, positions of given requests), agree with the whole queue.
pub async fn a_queue_is_read_by_pages_and_in_short(world: World) -> Verdict {
    let (a, b, job) = (world.client().await?, world.client().await?, name("job")?);
    shows(&b, &job, &[], a.entry(&job, world.whole).id).await?;
    let mut places = vec![a.hold(&job, world.whole).await?];
    for number in 1..7 {
        let client = if number % 3 == 0 { &a } else { &b };
        places.push(client.enter(&job, world.whole).await?);
    }
    let stranger = a.entry(&job, world.whole).id;
    let ids = |places: &[Box<dyn Place>]| places.iter().map(|place| place.id().request).collect::<Vec<_>>();
    shows(&b, &job, &ids(&places), stranger).await?;
    // A middle place leaves, then the last one, then the holder.
    for index in [3, 5, 0] {
        let gone = places.remove(index);
        let left = gone.id().request;
        release(gone).await?;
        if index == 0 && b.capability().order == Order::None {
            // Any contender may be the next holder.
            break;
        }
        world.granted(&mut places[0]).await?;
        shows(&b, &job, &ids(&places), left).await?;
    }
    Ok(())
}

/// Demands that the store shows exactly `ids` to the client `looks`, the first as the holder, and does not show `absent`.
async fn shows(looks: &Client, job: &Name, ids: &[RequestId], absent: RequestId) -> Verdict {
    let ids = &looks.shown(ids)[..];
    let all = ids.len();
    for (skip, limit) in [(0, all), (0, 1), (1, 2), (2, usize::MAX), (all, 3), (usize::MAX, 1), (0, 0)] {
        let page = Page { skip, limit };
        let queue = insist(|| looks.process.store.queue(job, page)).await?;
        let shown: Vec<RequestId> = queue.contenders.iter().map(|contender| contender.id).collect();
        let expected: Vec<RequestId> = page.of(ids.iter().copied()).collect();
        demand!(shown == expected, "{page:?} of {ids:?} shows {shown:?}");
        demand!(queue.queued == all, "of {all} in the queue, {page:?} counts {}", queue.queued);
    }
    let asked: Vec<RequestId> = ids.iter().rev().chain([&absent]).copied().collect();
    let outline = insist(|| looks.process.store.contention(job, &asked)).await?;
    let positions: Vec<Option<usize>> = (1..=all).rev().map(Some).chain([None]).collect();
    demand!(outline.positions == positions, "{asked:?} of {ids:?} stand at {:?}", outline.positions);
    demand!(outline.queued == all, "of {all} in the queue, {} are counted", outline.queued);
    demand!(outline.holders == all.min(1), "{} hold the lock", outline.holders);
    let head = outline.holder.map(|holder| (holder.id, holder.grant.is_some()));
    demand!(head == ids.first().map(|id| (*id, true)), "the head of {ids:?} is {head:?}");
    Ok(())
}

/// Names are listed while a contender queues for them, by prefix.
pub async fn names_lists_what_is_queued_for(world: World) -> Verdict {
    let client = world.client().await?;
    let mut places = Vec::new();
    for text in ["job/b", "job", "job/a", "jobs", "other", "job/é"] {
        places.push(client.hold(&name(text)?, world.whole).await?);
    }
    let all = ["job", "job/a", "job/b", "job/é", "jobs", "other"];
    list(&client, "", &all).await?;
    list(&client, "job", &all[..5]).await?;
    list(&client, "job/", &all[1..4]).await?;
    list(&client, "x", &[]).await?;
    for place in places {
        release(place).await?;
    }
    list(&client, "", &[]).await
}

async fn list(client: &Client, prefix: &str, expected: &[&str]) -> Verdict {
    let names = client.names(prefix).await?;
    let names: Vec<&str> = names.iter().map(fencelock::Name::as_str).collect();
    demand!(names == expected, "the names that start with {prefix:?} are {names:?}");
    Ok(())
}

/// An idle name has no queue, is not listed, and leaves nothing in the store.
pub async fn an_idle_name_leaves_nothing(world: World) -> Verdict {
    let (a, b) = (world.client().await?, world.client().await?);
    for number in 0..20 {
        let job = name(&format!("job-{number}"))?;
        let held = a.hold(&job, world.whole).await?;
        let mut waiter = b.enter(&job, world.whole).await?;
        let gives_up = a.enter(&job, world.whole).await?;
        b.try_enter(&job, world.whole).await?;
        a.session().withdraw(&job, gives_up.id().request).await?;
        release(held).await?;
        world.granted(&mut waiter).await?;
        release(waiter).await?;
        demand!(a.ids(&job).await?.is_empty(), "the queue of an idle name is not empty");
    }
    let names = a.names("").await?;
    demand!(names.is_empty(), "idle names are listed: {names:?}");
    a.session().close().await?;
    b.session().close().await?;
    drop((a, b));
    let left = world.fixture().leftovers().await.unwrap_or_default();
    demand!(left.is_empty(), "left in the store: {left:?}");
    Ok(())
}

/// The store behaves as its capability says.
pub async fn the_capability_tells_the_truth(world: World) -> Verdict {
    let (client, job) = (world.client().await?, name("job")?);
    let capability = client.capability().clone();
    let is_named = !capability.store.is_empty() && !capability.layout.is_empty() && !capability.presumes.is_empty();
    demand!(is_named, "the store, its layout or what its validity presumes is not named: {capability:?}");
    demand!(!capability.wake_bound.is_zero(), "no store wakes in no time");
    let expires = client.opened.ttl.is_some();
    demand!(expires != (capability.liveness == Liveness::Process), "ttl {:?}, {capability:?}", client.opened.ttl);
    demand!(client.opened.confirmed <= client.clock.now(), "the session counts from the future");
    let held = client.hold(&job, Claim::MUTEX).await?;
    let Standing::Granted(grant) = held.standing() else { return Ok(()) };
    let has_token = grant.token.is_some();
    demand!(has_token == (capability.tokens != Tokens::None), "the token is {:?}, {capability:?}", grant.token);
    let mut waiter = client.enter(&job, Claim::MUTEX).await?;
    let ahead = matches!(waiter.next(client.clock.now()).await?, Standing::Waiting(Some(_)));
    demand!(capability.order != Order::None || !ahead, "a store without order tells who is ahead");
    let reader = client.session().enter(Arc::new(client.entry(&name("page")?, Claim::READER))).await;
    let let_in = reader.is_ok();
    demand!(let_in == capability.shared_claims, "a reader is let in: {let_in}, {capability:?}");
    release(held).await?;
    demand!(matches!(waiter.next(Moment::NEVER).await?, Standing::Granted(_)), "a waiter was never granted");
    Ok(())
}
