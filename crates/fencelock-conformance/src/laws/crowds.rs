//! Crowds: many waiters in one line, and hundreds of holders together.

use fencelock::FencingToken;
use fencelock::inspect::Claim;
use fencelock::store::RequestId;
use tokio::sync::mpsc;

use super::schedules::{Attendant, News, Schedule};
use crate::world::{Fault, PATIENCE, Verdict, World, demand, name, permits};

/// A thousand concurrent waiters are all granted in turn, in the order of their arrival.
pub async fn a_thousand_waiters_are_all_served_in_order(world: World) -> Verdict {
    world.client().await?.needs_order()?;
    let (job, mut clients) = (name("job")?, Vec::new());
    for _ in 0..4 {
        clients.push(world.patient_client().await?);
    }
    let (reporter, mut news) = mpsc::unbounded_channel();
    let mut line = vec![(
        RequestId { client: 0, number: 0 },
        Attendant::new(clients[0].hold(&job, Claim::MUTEX).await?, reporter.clone()),
    )];
    for number in 0..1000 {
        let place = clients[number % clients.len()].enter(&job, Claim::MUTEX).await?;
        line.push((place.id().request, Attendant::new(place, reporter.clone())));
    }
    let expected: Vec<_> = line.iter().map(|(id, _)| *id).skip(1).collect();
    let mut line = line.into_iter();
    for expected in expected {
        if let Some((_, holder)) = line.next() {
            holder.leave().await?;
        }
        next_granted(&world, &mut news, expected).await?;
    }
    match line.next() {
        Some((_, last)) => last.leave().await,
        None => Ok(()),
    }
}

async fn next_granted(world: &World, news: &mut mpsc::UnboundedReceiver<News>, expected: RequestId) -> Verdict {
    loop {
        match world.within(PATIENCE, news.recv()).await {
            Some(Some(News::Nothing)) => {}
            Some(Some(News::Granted(id))) if id == expected => return Ok(()),
            news => return Err(Fault::Broken(format!("{expected} was next, but the news is {news:?}"))),
        }
    }
}

/// Three hundred contenders queue for a permit each, and two hundred hold one. Each departure grants the next. The
/// contender for all permits is served last, and nothing is left.
pub async fn three_hundred_share_two_hundred_permits_in_order(world: World) -> Verdict {
    let mut line = vec![permits(1, 200); 300];
    line.push(permits(200, 200));
    serve(&world, "seats", &line, 200).await
}

/// Hundreds of readers hold together: behind each writer, the readers before the next writer. all are served, and
/// nothing is left.
pub async fn hundreds_of_readers_hold_together_between_writers(world: World) -> Verdict {
    let (reader, writer) = (Claim::READER, Claim::WRITER);
    let line = [vec![reader; 70], vec![writer], vec![reader; 70], vec![writer], vec![reader; 60]].concat();
    serve(&world, "page", &line, 70).await
}

/// Lets all contenders of `line` queue, and leave by chance, holders mostly. After every step exactly the contenders
/// that the rule admits hold the lock, `at_first` of them before the first departure.
async fn serve(world: &World, text: &str, line: &[Claim], at_first: usize) -> Verdict {
    let client = world.client().await?;
    client.needs_order()?;
    client.needs_shared_claims()?;
    drop(client);
    let mut schedule = Schedule::new(world.clone(), world.seed, line.to_vec(), text).await?;
    for claim in line {
        schedule.join(*claim, true).await?;
    }
    schedule.settle().await?;
    let granted = schedule.model.granted().len();
    demand!(granted == at_first, "{granted} hold {text} at first");
    let mut tokens = Tokens::default();
    for departures in 0.. {
        // Each look reads all places.
        let is_alone = schedule.model.queue.first().is_some_and(|(_, claim)| claim.is_whole());
        if departures % 50 == 0 || is_alone {
            schedule.compare().await.map_err(|fault| seeded(world, &fault))?;
            tokens.look(&schedule).await?;
        }
        let (queued, holders) = (schedule.model.queue.len(), schedule.model.granted().len());
        if queued == 0 {
            return Ok(());
        }
        let of = if schedule.chance.usize(..8) == 0 { queued } else { holders };
        let position = schedule.chance.usize(..of);
        let gives_up_the_whole = position > 0 && schedule.model.queue[position].1.is_whole();
        schedule.depart(if gives_up_the_whole { 0 } else { position }).await?;
        schedule.settle().await.map_err(|fault| seeded(world, &fault))?;
    }
    Ok(())
}

fn seeded(world: &World, fault: &Fault) -> Fault {
    Fault::Broken(format!("seed {}: {fault}", world.seed))
}

/// The tokens so far. A sole holder has a higher token than all holders before it, and a lower one than all after it.
#[derive(Default)]
struct Tokens {
    /// The tokens of contenders that held together.
    seen: Vec<FencingToken>,
    /// The token of the last contender that held alone.
    alone: Option<FencingToken>,
}

impl Tokens {
    async fn look(&mut self, schedule: &Schedule) -> Verdict {
        let queue = schedule.clients[0].queue(&schedule.name).await?;
        for holder in queue.contenders.iter().filter(|contender| contender.grant.is_some()) {
            let Some(token) = holder.grant.and_then(|grant| grant.token) else { continue };
            if self.alone == Some(token) {
                continue;
            }
            demand!(Some(token) > self.alone, "the token {token:?} came after {:?}, which held alone", self.alone);
            if holder.claim.is_whole() {
                let is_highest = self.seen.iter().all(|seen| *seen < token);
                demand!(is_highest, "the token {token:?} of one that holds alone is not above all before it");
                self.alone = Some(token);
            } else {
                self.seen.push(token);
            }
        }
        Ok(())
    }
}
