//! The view of users of locks that can be shared: the same through the engine and the guards, on the store itself.
//!
//! The edges of read-write locks and semaphores, and what shows each. Laws are tried on every store; tests by their files.
//!
//! | edge | law or test |
//! |---|---|
//! | no permits, more than there are | `a_name_is_one_kind_of_lock_at_a_time`; `laws::semaphore`: `no_permits_and_more_than_there_are_are_refused` |
//! | another number of permits, while a contender queues and after | `a_name_is_one_kind_of_lock_at_a_time`, `one_queue_has_one_capacity` |
//! | a name used as another kind of lock | the same |
//! | a reader made lighter | cannot be asked for: a reader's guard and a permit's have no downgrade |
//! | a downgrade after the loss | `a_lost_place_cannot_be_made_lighter`; `laws::rwlock`: `a_downgrade_after_a_loss_says_so` |
//! | a downgrade whose answer is lost, or that is dropped | `a_downgrade_whose_answer_was_lost_is_found_done`, `wherever_a_downgrade_is_dropped_the_place_is_one` |
//! | a reader that never leaves | `a_reader_that_never_leaves_costs_writers_their_patience_and_others_nothing`, `the_limit_of_a_hold_ends_the_wait_for_one_that_never_leaves` |
//! | a holder of permits that dies, also between its grant and the mark of it | `locks_that_dead_clients_held_together_come_back_in_time`, `a_waiter_that_dies_before_it_learns_of_its_grant_delays_no_other_for_long` |
//! | more holders than are looked at one by one | `three_hundred_share_two_hundred_permits_in_order`, `hundreds_of_readers_hold_together_between_writers` |
//! | a node of another client in the middle of a queue (ZooKeeper) | `zookeeper::kinds`: `a_node_of_another_kind_in_the_middle_stops_those_behind_it_only` |

use std::time::Duration;

use fencelock::capability::Waiters;
use fencelock::inspect::{Claim, Contention};
use fencelock::{Client, Error, ErrorKind, Loss, Name};
use tokio::task::JoinHandle;

use crate::world::{Fault, NO_PERMITS, NO_SHARED_CLAIMS, NO_WAITERS, PATIENCE, Verdict, World, demand, name, needs};

/// How long impatient contenders wait at first. No result depends on this time.
const IMPATIENCE: Duration = Duration::from_millis(200);

/// Writers behind a reader that never leaves give up in time, with its name, and leave nothing. Readers behind them are
/// granted, and later readers at once.
pub async fn a_reader_that_never_leaves_costs_writers_their_patience_and_others_nothing(world: World) -> Verdict {
    let (stays, writes, reads) = (world.user().await?, world.user().await?, world.user().await?);
    needs(stays.capability().shared_claims, NO_SHARED_CLAIMS)?;
    let page = name("page")?;
    let held = stays.rwlock(&page)?.purpose("for ever").read().await?;
    let (mut was_named, mut patience) = (false, IMPATIENCE);
    while !was_named {
        let (writer, reader) = (writes.rwlock(&page)?, reads.rwlock(&page)?);
        let writing = tokio::spawn(async move { writer.write_within(patience).await });
        world
            .until("a writer waits or gave up", async || Ok(writing.is_finished() || queued(&reads, &page).await? > 1))
            .await?;
        let reading = tokio::spawn(async move { reader.read().await });
        let refused = ended(&world, writing).await?.err();
        let refused = refused.ok_or_else(|| Fault::Broken("a writer was let in together with a reader".to_owned()))?;
        if refused.is_outage() && patience < PATIENCE {
            // On a busy machine a wait can be over before the store has answered its first request.
            patience *= 2;
        } else {
            was_named = names(&refused, ErrorKind::TimedOut, &stays, 1)?;
        }
        ended(&world, reading).await??.release().await?;
        until_queued(&world, &reads, &page, 1).await?;
        reads.rwlock(&page)?.try_read().await?.release().await?;
    }
    held.check()?;
    held.release().await?;
    writes.rwlock(&page)?.try_write().await?.release().await?;
    Ok(())
}

/// At the limit, only a holder with a limited hold loses its lock, and its waiter is served.
pub async fn the_limit_of_a_hold_ends_the_wait_for_one_that_never_leaves(world: World) -> Verdict {
    // The lock of a holder that keeps it past its limit is given back by the margin.
    let (stays, waits) = (world.user_with(|options| options.margin(IMPATIENCE)).await?, world.user().await?);
    needs(stays.capability().shared_claims, NO_SHARED_CLAIMS)?;
    let page = name("page")?;
    let held = stays.rwlock(&page)?.max_hold(IMPATIENCE).read().await?;
    let writer = waits.rwlock(&page)?;
    ended(&world, tokio::spawn(async move { writer.write().await })).await??.release().await?;
    let loss = world.within(PATIENCE, held.lost()).await;
    demand!(loss == Some(Loss::HeldTooLong), "a holder beyond its limit received {loss:?}");
    Ok(())
}

/// A try for a reader, a writer or a permit that is not free names the holder, and leaves nothing.
pub async fn a_try_names_the_holder_and_leaves_nothing(world: World) -> Verdict {
    let (holds, tries) = (world.user().await?, world.user().await?);
    needs(holds.capability().permits, NO_PERMITS)?;
    let (page, seats) = (name("page")?, name("seats")?);
    let writer = holds.rwlock(&page)?.write().await?;
    let all = holds.semaphore(&seats, 3)?.permits(2).acquire().await?;
    let one = holds.semaphore(&seats, 3)?.acquire().await?;
    let (mut page_is_named, mut seats_are_named) = (false, false);
    while !(page_is_named && seats_are_named) {
        for refused in [tries.rwlock(&page)?.try_read().await.err(), tries.rwlock(&page)?.try_write().await.err()] {
            page_is_named |= names(&taken(refused)?, ErrorKind::Busy, &holds, 1)?;
        }
        let refused = tries.semaphore(&seats, 3)?.try_acquire().await.err();
        seats_are_named |= names(&taken(refused)?, ErrorKind::Busy, &holds, 2)?;
    }
    for (name, left) in [(&page, 1), (&seats, 2)] {
        until_queued(&world, &tries, name, left).await?;
    }
    one.release().await?;
    tries.semaphore(&seats, 3)?.try_acquire().await?.release().await?;
    all.release().await?;
    writer.release().await?;
    tries.rwlock(&page)?.try_read().await?.release().await?;
    Ok(())
}

/// A downgrade keeps place and token, and lets readers in, no writer. A writer that entered its lock again cannot downgrade.
pub async fn a_downgrade_keeps_its_token_and_is_refused_while_the_writer_was_entered_again(world: World) -> Verdict {
    let (holds, other) = (world.user().await?, world.user().await?);
    needs(holds.capability().shared_claims, NO_SHARED_CLAIMS)?;
    let page = name("page")?;
    let writing = holds.rwlock(&page)?.write().await?;
    let (token, again) = (writing.token(), writing.reenter()?);
    let Err(refused) = writing.downgrade_or_keep().await else {
        return Err(Fault::Broken("a writer that was entered again was made a reader".to_owned()));
    };
    demand!(refused.error().kind() == ErrorKind::Config, "a refused downgrade says {}", refused.error());
    taken(other.rwlock(&page)?.try_read().await.err())?;
    refused.into_guard().release().await?;
    let Ok(reading) = again.downgrade().await else {
        return Err(Fault::Broken("a writer was not made a reader".to_owned()));
    };
    let front = other.queue(&page).await?.contenders.first().map(|front| (front.claim, front.grant));
    let shown = front.and_then(|(claim, grant)| Some((claim, grant?.token)));
    demand!(shown == Some((Claim::READER, token)), "a downgrade of {token:?} is shown as {shown:?}");
    demand!(reading.token() == token, "a downgrade of {token:?} has the token {:?}", reading.token());
    let beside = other.rwlock(&page)?.try_read().await?;
    taken(other.rwlock(&page)?.try_write().await.err())?;
    reading.release().await?;
    beside.check()?;
    beside.release().await?;
    other.rwlock(&page)?.try_write().await?.release().await?;
    Ok(())
}

/// While a contender queues under a name, another kind of lock or number of permits is a conflict, which names both and leaves
/// nothing. Afterwards both are accepted. Zero permits, and more than the capacity, are refused at once.
pub async fn a_name_is_one_kind_of_lock_at_a_time(world: World) -> Verdict {
    let (holds, tries) = (world.user().await?, world.user().await?);
    needs(holds.capability().permits, NO_PERMITS)?;
    let seats = tries.semaphore("none", 3)?;
    let (none, too_many) = (seats.clone().permits(0).acquire().await, seats.permits(4).acquire().await);
    for refused in [tries.semaphore("none", 0).err(), none.err(), too_many.err()] {
        let is_told = refused.as_ref().is_some_and(|refused| refused.kind() == ErrorKind::Config);
        demand!(is_told, "a number of permits that cannot be is answered with {refused:?}");
    }
    for held in Kind::ALL {
        let name = name(&format!("{held:?}"))?;
        let mut holder = Some(held.take(&holds, &name, false).await?);
        for is_held in [true, false] {
            for other in Kind::ALL {
                let excludes = is_held && other.claim().capacity() != held.claim().capacity();
                for tries_only in [true, false] {
                    if !excludes && (is_held || !tries_only) {
                        continue;
                    }
                    let answer = other.take(&tries, &name, tries_only).await;
                    let said = answer.as_ref().err().map(|error| (error.kind(), error.to_string()));
                    let names = |text: &str| [held, other].iter().all(|kind| text.contains(&kind.claim().to_string()));
                    let is_told = matches!(&said, Some((ErrorKind::Conflict, text)) if names(text));
                    demand!(is_told == excludes, "{other:?} where {held:?} was (still: {is_held}) receives {said:?}");
                    if let Ok(guard) = answer {
                        guard.release().await?;
                    }
                }
            }
            until_queued(&world, &tries, &name, usize::from(is_held)).await?;
            drop(holder.take());
            until_queued(&world, &tries, &name, 0).await?;
        }
    }
    Ok(())
}

/// A guard that its body passed on ends during the next section of a sticky lock: the holder of that section is notified when its grant is
/// broken.
pub async fn a_section_behind_a_lent_guard_is_notified_of_its_break(world: World) -> Verdict {
    let (holds, other) = (world.user().await?, world.user().await?);
    needs(holds.capability().waiters != Waiters::Unseen, NO_WAITERS)?;
    let page = name("page")?;
    let lock = holds.mutex(&page)?.sticky(Duration::from_secs(60));
    let lent = lock.run(async |guard| guard).await?;
    let section = lock.acquire().await?;
    lent.release().await?;
    section.check()?;
    let queue = other.queue(&page).await?;
    let holder = queue.contenders.first().ok_or_else(|| Fault::Broken("a holder is not shown".to_owned()))?;
    demand!(other.break_grant(&page, holder, "it is needed").await?, "a grant that was there was not broken");
    let loss = world.within(PATIENCE, section.lost()).await;
    demand!(loss == Some(Loss::Broken), "the holder of a broken section received {loss:?}");
    Ok(())
}

/// The possible uses of a name.
#[derive(Debug, Clone, Copy)]
enum Kind {
    Mutex,
    Reader,
    Writer,
    SeatOfThree,
    SeatOfFour,
}

impl Kind {
    const ALL: [Self; 5] = [Self::Mutex, Self::Reader, Self::Writer, Self::SeatOfThree, Self::SeatOfFour];

    fn claim(self) -> Claim {
        match self {
            Self::Mutex => Claim::MUTEX,
            Self::Reader => Claim::READER,
            Self::Writer => Claim::WRITER,
            Self::SeatOfThree => crate::world::permits(1, 3),
            Self::SeatOfFour => crate::world::permits(1, 4),
        }
    }

    async fn take(self, client: &Client, name: &Name, tries_only: bool) -> Result<fencelock::AnyGuard, Error> {
        let wait = if tries_only { Duration::ZERO } else { Duration::MAX };
        Ok(match self {
            Self::Mutex if tries_only => client.mutex(name)?.try_acquire().await?.into_any(),
            Self::Mutex => client.mutex(name)?.acquire_within(wait).await?.into_any(),
            Self::Reader if tries_only => client.rwlock(name)?.try_read().await?.into_any(),
            Self::Reader => client.rwlock(name)?.read_within(wait).await?.into_any(),
            Self::Writer if tries_only => client.rwlock(name)?.try_write().await?.into_any(),
            Self::Writer => client.rwlock(name)?.write_within(wait).await?.into_any(),
            Self::SeatOfThree | Self::SeatOfFour => {
                let seats = client.semaphore(name, self.claim().capacity())?;
                let guard = if tries_only { seats.try_acquire().await? } else { seats.acquire().await? };
                guard.into_any()
            }
        })
    }
}

/// The outcome of a task that has to end.
pub(super) async fn ended<T>(world: &World, task: JoinHandle<T>) -> Verdict<T> {
    let ended = world.within(PATIENCE, task).await;
    let ended = ended.ok_or_else(|| Fault::Broken("a contender waits that must not".to_owned()))?;
    ended.map_err(|panicked| Fault::Broken(format!("a client panicked: {panicked}")))
}

/// The error of a try that must be refused as busy.
fn taken(refused: Option<Error>) -> Verdict<Error> {
    match refused {
        Some(refused) if refused.kind() == ErrorKind::Busy => Ok(refused),
        answer => Err(Fault::Broken(format!("on a taken lock a try was answered with {answer:?}"))),
    }
}

/// Whether a refusal of this kind names `holder`, and counts `holders`. A refusal names no client where the store did not answer in
/// time, and never names a wrong one.
fn names(refused: &Error, kind: ErrorKind, holder: &Client, holders: usize) -> Verdict<bool> {
    demand!(refused.kind() == kind, "a refusal that must be {kind:?} is {refused:?}");
    let Some(Contention { holder: Some(named), holders: counted, .. }) = refused.contention() else {
        return Ok(false);
    };
    let is_right = named.id.client == holder.owner().client && *counted == holders;
    demand!(is_right, "{holders} of {:?} hold it, and a refusal says {refused:?}", holder.owner());
    Ok(true)
}

async fn queued(looks: &Client, name: &Name) -> Verdict<usize> {
    Ok(looks.queue(name).await?.contenders.len())
}

async fn until_queued(world: &World, looks: &Client, name: &Name, count: usize) -> Verdict {
    world.until(&format!("{count} are in the queue"), async || Ok(queued(looks, name).await? == count)).await
}
