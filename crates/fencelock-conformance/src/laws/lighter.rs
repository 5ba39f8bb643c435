//! Downgrades whose answer is lost, whose caller drops them, or whose place is gone.

use fencelock::inspect::Claim;
use fencelock::store::{Entered, Place};
use fencelock::{ErrorKind, Name};

use super::breaks::{evict, order};
use crate::fixture::Request;
use crate::world::{Client, Fault, Verdict, World, demand, grant_of, name, needs, poll_times, release};

/// A client repeats a downgrade whose answer was lost. Then one reader has the place and its grant.
pub async fn a_downgrade_whose_answer_was_lost_is_found_done(world: World) -> Verdict {
    let (a, b, page) = (world.client().await?, world.client().await?, name("page")?);
    a.needs_shared_claims()?;
    for lost in 1..=2 {
        let mut writer = a.hold(&page, Claim::WRITER).await?;
        let granted = writer.standing();
        for _ in 0..lost {
            needs(
                a.process.faults.lose_next_reply(Request::Lighten),
                "no answer can be lost on the way to this store",
            )?;
        }
        lighten(&mut writer).await?;
        demand!(writer.standing() == granted, "a downgrade made {:?} of {granted:?}", writer.standing());
        is_alone(&b, &page, &*writer, &[Claim::READER]).await?;
        release(b.hold(&page, Claim::READER).await?).await?;
        release(writer).await?;
        demand!(b.ids(&page).await?.is_empty(), "a reader that was a writer left something behind");
    }
    Ok(())
}

/// Wherever a downgrade is dropped, one place is left, a reader's or a writer's. The place can repeat the downgrade, or leave.
pub async fn wherever_a_downgrade_is_dropped_the_place_is_one(world: World) -> Verdict {
    let (a, b, page) = (world.client().await?, world.client().await?, name("page")?);
    a.needs_shared_claims()?;
    for goes_on in [true, false] {
        for polls in 0.. {
            let mut writer = a.hold(&page, Claim::WRITER).await?;
            let answer = poll_times(&mut writer.lighten(Claim::READER), polls).await;
            let is_done = answer.is_some();
            answer.transpose()?;
            is_alone(&b, &page, &*writer, &[Claim::READER, Claim::WRITER]).await?;
            if goes_on {
                lighten(&mut writer).await?;
                is_alone(&b, &page, &*writer, &[Claim::READER]).await?;
                release(b.hold(&page, Claim::READER).await?).await?;
            }
            writer.leave().await?;
            let left = b.ids(&page).await?;
            demand!(left.is_empty(), "of a downgrade dropped after {polls} polls this is left: {left:?}");
            release(b.hold(&page, Claim::WRITER).await?).await?;
            if is_done {
                break;
            }
        }
    }
    Ok(())
}

/// A downgrade of a lost place fails with an error that says so, and makes no new place.
pub async fn a_lost_place_cannot_be_made_lighter(world: World) -> Verdict {
    let (a, b, page) = (world.client().await?, world.client().await?, name("page")?);
    a.needs_shared_claims()?;
    for end in [End::Broken, End::Withdrawn, End::Closed] {
        let mut writer = a.hold(&page, Claim::WRITER).await?;
        end.come(&a, &b, &page, &*writer).await?;
        let next = b.hold(&page, Claim::WRITER).await?;
        let lightened = lighten(&mut writer).await;
        demand!(lightened.is_err(), "a writer that was {end:?} was made a reader while the next one held");
        demand!(b.ids(&page).await? == [next.id().request], "a writer that was {end:?} is back");
        writer.leave().await.ok();
        release(next).await?;
    }
    Ok(())
}

/// How a place ends while its holder looks away.
#[derive(Debug, Clone, Copy)]
enum End {
    Broken,
    Withdrawn,
    Closed,
}

impl End {
    async fn come(self, a: &Client, b: &Client, page: &Name, writer: &dyn Place) -> Verdict {
        match self {
            Self::Broken => match evict(b, &order(b, page, 0).await?).await {
                Err(Fault::Inapplicable(_)) => Ok(a.session().withdraw(page, writer.id().request).await?),
                broken => broken.map(drop),
            },
            Self::Withdrawn => Ok(a.session().withdraw(page, writer.id().request).await?),
            Self::Closed => Ok(a.session().close().await?),
        }
    }
}

/// Repeats the downgrade until the store answers, as an engine does.
async fn lighten(writer: &mut Box<dyn Place>) -> fencelock::Result<()> {
    loop {
        match writer.lighten(Claim::READER).await {
            Err(error) if error.is_retryable() && error.kind() != ErrorKind::Lost => tokio::task::yield_now().await,
            answer => return answer,
        }
    }
}

/// Demands that the queue shows `place` alone, with its grant and with one of these claims.
async fn is_alone(looks: &Client, page: &Name, place: &dyn Place, claims: &[Claim]) -> Verdict {
    let queue = looks.queue(page).await?;
    let [shown] = &queue.contenders[..] else {
        return Err(Fault::Broken(format!("one place is shown as {queue:?}")));
    };
    demand!(shown.id == place.id().request, "another place is shown: {shown:?}");
    demand!(claims.contains(&shown.claim), "a claim that may be one of {claims:?} is {}", shown.claim);
    let grant = grant_of(place)?;
    // Only the holder knows the grant's own end.
    let is_shown = shown.grant.is_some_and(|shown| shown.token == grant.token);
    demand!(is_shown, "the grant {grant:?} is shown as {:?}", shown.grant);
    if claims == [Claim::READER] {
        let refused = matches!(looks.try_enter(page, Claim::WRITER).await?, Entered::Busy);
        demand!(refused, "a writer was let in together with a reader that was a writer");
    }
    Ok(())
}
