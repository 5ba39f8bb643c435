//! Answers on the caller's own thread: such an answer equals that of `enter`, or there is none.

use std::sync::{Arc, mpsc};
use std::thread;

use fencelock::store::{Entered, Entry, Order, RequestId, Standing};
use futures_util::FutureExt;

use crate::world::{Client, Fault, Verdict, World, demand, name, permits, release};

/// The answer that `enter` has to give.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Turn {
    Granted,
    Waits,
    Busy,
    Conflict,
    Refused,
}

/// A request that is answered on its caller's thread is answered as `enter` would, and no contender gets the lock out of turn.
pub async fn an_answer_at_once_is_the_one_that_enter_gives(world: World) -> Verdict {
    let (a, b, job) = (world.client().await?, world.client().await?, name("job")?);
    let first = a.entry(&job, world.whole);
    ask_both(&a, &first, Turn::Granted).await?;
    ask_both(&a, &first, Turn::Granted).await?;
    let mut expected = vec![first.id];
    for client in [&a, &b] {
        ask_both(client, &Entry { wait: false, ..client.entry(&job, world.whole) }, Turn::Busy).await?;
        let waits = client.entry(&job, world.whole);
        ask_both(client, &waits, Turn::Waits).await?;
        expected.push(waits.id);
    }
    if a.capability().order == Order::Fifo {
        demand!(a.ids(&job).await? == expected, "who was asked for at once is not at the tail");
        // The next waiter has the lock, perhaps without having noticed its grant.
        release(a.place(&first).await?).await?;
        ask_both(&b, &Entry { wait: false, ..b.entry(&job, world.whole) }, Turn::Busy).await?;
        ask_both(&b, &b.entry(&job, world.whole), Turn::Waits).await?;
        small_claims_pass_no_waiter(&a, &b).await?;
    }
    a.session().close().await?;
    ask_both(&a, &a.entry(&name("other")?, world.whole), Turn::Refused).await
}

/// A permit that would fit next to the holders waits behind a waiter that does not fit.
async fn small_claims_pass_no_waiter(a: &Client, b: &Client) -> Verdict {
    let pool = name("pool")?;
    if !a.capability().shared_claims {
        return Ok(());
    }
    ask_both(a, &a.entry(&pool, permits(2, 3)), Turn::Granted).await?;
    ask_both(b, &b.entry(&pool, permits(3, 3)), Turn::Waits).await?;
    for client in [a, b] {
        ask_both(client, &client.entry(&pool, permits(1, 3)), Turn::Waits).await?;
        ask_both(client, &Entry { wait: false, ..client.entry(&pool, permits(1, 3)) }, Turn::Busy).await?;
        ask_both(client, &client.entry(&pool, permits(1, 2)), Turn::Conflict).await?;
    }
    Ok(())
}

/// A request that is not answered on its caller's thread is as if it had never been made, and its caller is not held up.
pub async fn no_answer_at_once_leaves_anything_or_takes_time(world: World) -> Verdict {
    let (a, b, job) = (world.client().await?, world.client().await?, name("job")?);
    for held in [false, true] {
        let holder = if held { Some(b.hold(&job, world.whole).await?) } else { None };
        for client in [&a, &b] {
            for wait in [false, true] {
                let (before, entry) = (b.ids(&job).await?, Entry { wait, ..client.entry(&job, world.whole) });
                let answer = at_once(client, &entry)?;
                let ids = b.ids(&job).await?;
                match answer {
                    None => demand!(ids == before, "what was not answered made {ids:?} of {before:?}"),
                    Some(answer) => demand!(ids == with(before, &answer?, entry.id), "an answer left {ids:?}"),
                }
                client.session().withdraw(&job, entry.id).await?;
            }
        }
        if let Some(holder) = holder {
            release(holder).await?;
        }
    }
    Ok(())
}

fn with(mut ids: Vec<RequestId>, answer: &Entered, id: RequestId) -> Vec<RequestId> {
    ids.extend(matches!(answer, Entered::In(_)).then_some(id));
    ids
}

/// Polls the request once, on a thread of its own that has no runtime, while everything else of this process stands still.
fn at_once(client: &Client, entry: &Entry) -> Verdict<Option<fencelock::Result<Entered>>> {
    let (session, entry) = (Arc::clone(client.session()), Arc::new(entry.clone()));
    let (answer, answered) = mpsc::channel();
    thread::spawn(move || {
        let first = session.answers_inline().then(|| session.enter(entry).now_or_never());
        answer.send(first.flatten())
    });
    let held_up = |_| Fault::Broken(format!("it held its caller up for {:?}, or panicked", client.patience));
    answered.recv_timeout(client.patience).map_err(held_up)
}

/// Requests the lock inline and then by `enter`, and demands the same answer.
async fn ask_both(client: &Client, entry: &Entry, expected: Turn) -> Verdict {
    let at_once = at_once(client, entry)?;
    let (place, in_time) = (&entry.name, client.session().enter(Arc::new(entry.clone())).await);
    demand!(turn(&in_time) == expected, "{place}: enter said {:?} where {expected:?} is so", turn(&in_time));
    let Some(at_once) = at_once else { return Ok(()) };
    demand!(turn(&at_once) == expected, "{place}: at once it said {:?} where {expected:?} is so", turn(&at_once));
    match (at_once, in_time) {
        (Ok(Entered::In(now)), Ok(Entered::In(then))) => {
            let (now, then) = (now.standing(), then.standing());
            let is_grant = matches!(now, Standing::Granted(_));
            demand!(!is_grant || now == then, "{place}: one request was {now:?} and then {then:?}");
        }
        (Ok(Entered::Conflict(now)), Ok(Entered::Conflict(then))) => {
            demand!(now == then, "{place}: a conflict was with {now} and then with {then}");
        }
        (Err(now), Err(then)) => demand!(now.kind() == then.kind(), "{place}: it failed with {now} and then {then}"),
        _ => {}
    }
    Ok(())
}

fn turn(answer: &fencelock::Result<Entered>) -> Turn {
    match answer {
        Ok(Entered::In(place)) => match place.standing() {
            Standing::Granted(_) => Turn::Granted,
            Standing::Waiting(_) => Turn::Waits,
            Standing::Lost(_) => Turn::Refused,
        },
        Ok(Entered::Busy) => Turn::Busy,
        Ok(Entered::Conflict(_)) => Turn::Conflict,
        Err(_) => Turn::Refused,
    }
}
