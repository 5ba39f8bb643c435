//! Requests without a session: reads queues and names, and breaks grants.

use futures_util::future;

use super::layout::KeySpace;
use super::scripts::{self, SHOWN_PER_CALL, SWEPT_PER_CALL, Shown, Swept};
use crate::error::Result;
use crate::kit::bucket;
use crate::kit::record::{self, Record};
use crate::name::Name;
use crate::store::{Break, Contender, Grant, Outline, Page, Queue, RequestId};
use crate::stores::redis::wire::Connection;
use crate::token::FencingToken;

/// How many requests for names are in flight concurrently.
const BATCH: usize = 16;

/// A page of a queue, front first, in portions. The server serves other clients in between, so a contender that leaves or arrives meanwhile
/// may be shown or not.
pub(super) async fn queue(connection: &Connection, layout: &KeySpace, name: &Name, page: Page) -> Result<Queue> {
    let (mut contenders, mut skip, mut after, mut dead) = (Vec::new(), page.skip, None, 0);
    loop {
        let wanted = (page.limit - contenders.len()).min(SHOWN_PER_CALL);
        let shown = connection.run("queue", &scripts::show(layout, name, skip, after, wanted)).await?;
        (skip, after, dead) = (skip.saturating_sub(shown.skipped), shown.last, dead + shown.dead);
        contenders.extend(shown.places.into_iter().map(contender));
        if shown.at_end || contenders.len() == page.limit {
            let is_whole = shown.at_end && page.skip == 0;
            let queued = if is_whole { contenders.len() } else { shown.queued.saturating_sub(dead) };
            let (foreign_locks, strangers) = (Vec::new(), Vec::new());
            return Ok(Queue { name: name.clone(), contenders, queued, foreign_locks, strangers, closed: None });
        }
    }
}

/// The outline of a queue: the server looks only at its head and at the requested places.
pub(super) async fn contention(
    connection: &Connection,
    layout: &KeySpace,
    name: &Name,
    mine: &[RequestId],
) -> Result<Outline> {
    let (first, others) = mine.split_at(mine.len().min(SHOWN_PER_CALL));
    let short = connection.run("contention", &scripts::contention(layout, name, first)).await?;
    let mut positions = short.positions;
    for ids in others.chunks(SHOWN_PER_CALL) {
        positions.extend(connection.run("contention", &scripts::contention(layout, name, ids)).await?.positions);
    }
    let holder = short.head.map(contender);
    Ok(Outline { holder, holders: short.holders, queued: short.queued, positions, closed: None })
}

fn contender(shown: Shown) -> Contender {
    let token = FencingToken::new(shown.seq);
    Contender {
        owner: shown.owner,
        grant: shown.granted.then_some(Grant::new(token)),
        since: Some(shown.since),
        purpose: shown.purpose,
        ..Contender::new(shown.id, shown.claim)
    }
}

/// The part of the buckets that is not listed yet.
struct Unlisted {
    from: Swept,
    upto: u16,
}

/// The parts that are left.
pub(super) struct Listed(Vec<Unlisted>);

impl Default for Listed {
    /// All buckets, in parts that are listed concurrently.
    fn default() -> Self {
        let starts = (0..bucket::BUCKETS).step_by(usize::from(SWEPT_PER_CALL.0));
        let part = |bucket| Unlisted {
            from: Swept { bucket, cursor: "0".to_owned() },
            upto: bucket::BUCKETS.min(bucket + SWEPT_PER_CALL.0),
        };
        Self(starts.map(part).collect())
    }
}

/// Names in some of these buckets, and the parts that are left. Each part has a request in flight, which looks at a bounded number of
/// names, living and dead.
pub(super) async fn names(
    connection: &Connection,
    layout: &KeySpace,
    Listed(mut unlisted): Listed,
    prefix: &str,
) -> Result<(Vec<Name>, Option<Listed>)> {
    let later = unlisted.split_off(unlisted.len().min(BATCH));
    let calls: Vec<_> = unlisted.iter().map(|part| scripts::names(layout, &part.from, part.upto, prefix)).collect();
    let listed = future::try_join_all(calls.iter().map(|call| connection.run("names", call))).await?;
    let mut names = Vec::new();
    for (part, listed) in unlisted.iter_mut().zip(listed) {
        names.extend(listed.names);
        for key in listed.foreign {
            tracing::warn!(
                key,
                "This key is not of the type that fencelock writes. Delete it: no lock in it can be taken or listed."
            );
        }
        part.from = Swept { bucket: part.from.bucket + listed.swept.bucket, ..listed.swept };
    }
    unlisted.retain(|part| part.from.bucket < part.upto);
    unlisted.extend(later);
    Ok((names, (!unlisted.is_empty()).then_some(Listed(unlisted))))
}

pub(super) async fn break_grant(connection: &Connection, layout: &KeySpace, order: &Break) -> Result<bool> {
    let record = record::text("break", &Record::of(order))?;
    // No grant of ours is without a token.
    let Some(call) = scripts::break_grant(layout, order, &record) else { return Ok(false) };
    connection.run("break", &call).await
}

pub(super) async fn breaks(connection: &Connection, layout: &KeySpace, name: &Name) -> Result<Vec<Break>> {
    let records = connection.command("breaks", &scripts::breaks(layout, name)).await?;
    let redis::Value::Array(records) = records else { return Err(super::fault::nonsense("breaks", &records)) };
    let text = |record| match record {
        redis::Value::BulkString(text) => Some(text),
        _ => None,
    };
    Ok(records.into_iter().filter_map(|record| record::read::<Record>(&text(record)?)?.order(name)).collect())
}
