//! Grants that are broken on purpose.

use std::time::SystemTime;

use fencelock::inspect::Break;
use fencelock::store::{Contender, Standing};
use fencelock::time::Moment;
use fencelock::{ErrorKind, Loss, Name};
use futures_util::StreamExt;

use crate::world::{Client, Fault, PATIENCE, Verdict, World, demand, insist, name, release, token_of};

/// A break ends the named grant, and the next grant has a higher token. No order ends a later grant: not the same order
/// again, not an order with the old token, for a waiting place, or under another name.
pub async fn a_break_ends_the_grant_it_names_and_no_later_one(world: World) -> Verdict {
    let (a, b, job) = (world.client().await?, world.client().await?, name("job")?);
    let mut held = a.hold(&job, world.whole).await?;
    let mut waiter = b.enter(&job, world.whole).await?;
    let first = order(&b, &job, 0).await?;
    let mut waiting = first.clone();
    waiting.place = waiter.id();
    demand!(!evict(&b, &waiting).await?, "a place that waits was broken with the token of another");
    let mut elsewhere = first.clone();
    elsewhere.place.name = name("elsewhere")?;
    demand!(!evict(&b, &elsewhere).await?, "a grant was broken under the name of another lock");
    let mut parked = waiter.next(Moment::NEVER);
    world.park(&mut parked).await?;
    demand!(evict(&b, &first).await?, "a grant that was there was not broken");
    let told = world.in_time("a wake by a break", b.capability().wake_bound, parked).await;
    demand!(matches!(told, Some(Ok(Standing::Granted(_)))), "after a break the next waiter received {told:?}");
    let tokens = (token_of(&*held), token_of(&*waiter));
    demand!(tokens.0.is_none() || tokens.1 > tokens.0, "the tokens around a break are {tokens:?}");
    demand!(evict(&a, &first).await?, "the same order does not find what it did");
    let mut later = first;
    later.at += std::time::Duration::from_secs(1);
    demand!(!evict(&a, &later).await?, "a grant that was gone was broken once more");
    let mut stale = later;
    stale.place = waiter.id();
    demand!(!evict(&a, &stale).await? || tokens.0.is_none(), "a grant was broken with the token of an earlier one");
    if tokens.0.is_some() {
        demand!(b.ids(&job).await? == [waiter.id().request], "a break of one grant ended a later one");
        release(waiter).await?;
    }
    held.leave().await?;
    Ok(())
}

/// The holder is notified of the broken grant and the reason. A later client can read the record.
pub async fn a_broken_holder_gets_the_reason_and_a_record_is_kept(world: World) -> Verdict {
    let (mut a, b) = (world.client().await?, world.client().await?);
    let (page, claim) = (name("page")?, world.whole);
    let held = a.hold(&page, claim).await?;
    let _kept = a.hold(&name("other")?, claim).await?;
    let order = order(&b, &page, 0).await?;
    demand!(evict(&b, &order).await?, "a grant that was there was not broken");
    let renewal = a.renew(&[&*held]).await?;
    let gone = renewal.gone.iter().all(|(id, loss)| *id == held.id() && *loss == Loss::Broken);
    demand!(gone, "the renewal of a broken place says {renewal:?}");
    let told = world.within(PATIENCE, a.opened.events.next()).await;
    let expected = fencelock::store::SessionEvent::Broken(order.grant(), order.reason.clone());
    demand!(told == Some(Some(expected)), "the broken holder receives {told:?}");
    let kept = insist(|| b.process.store.breaks(&page)).await?;
    let [record] = &kept[..] else {
        return Err(Fault::Broken(format!("of one break these are kept: {kept:?}")));
    };
    let same = (&record.place, record.token, record.claim, &record.by, &record.reason)
        == (&order.place, order.token, order.claim, &order.by, &order.reason);
    demand!(same && record.owner == order.owner, "of {order:?} this is kept: {record:?}");
    let other = name("other")?;
    demand!(insist(|| b.process.store.breaks(&other)).await?.is_empty(), "a break is kept under another name");
    Ok(())
}

/// An order to break the grant of the contender at this position.
pub(super) async fn order(by: &Client, name: &Name, position: usize) -> Verdict<Break> {
    let queue = by.queue(name).await?;
    let holder: &Contender =
        queue.contenders.get(position).ok_or_else(|| Fault::Broken("a holder is not shown".to_owned()))?;
    // Times are whole milliseconds: a store may keep no more.
    let at = SystemTime::UNIX_EPOCH + std::time::Duration::from_millis(1_700_000_000_123);
    Ok(Break::of(name, holder, by.owner.clone(), "it was \"stuck\", é", at)?)
}

pub(super) async fn evict(by: &Client, order: &Break) -> Verdict<bool> {
    match by.process.store.break_grant(order).await {
        Err(error) if error.kind() == ErrorKind::Unsupported => {
            Err(Fault::Inapplicable("the store breaks no grants".to_owned()))
        }
        broken => Ok(broken?),
    }
}
