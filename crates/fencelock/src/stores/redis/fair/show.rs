//! Reading queues and names, and breaking grants: what needs no session.

use std::collections::BTreeSet;
use std::ops::Range;

use futures_util::future;

use super::layout::Layout;
use super::scripts::{self, SHOWN_PER_CALL, Shown};
use crate::error::Result;
use crate::kit::bucket;
use crate::kit::record::{self, Record};
use crate::name::Name;
use crate::store::{Break, Contender, Grant, Outline, Page, Queue, RequestId};
use crate::stores::redis::wire::Connection;
use crate::token::FencingToken;

/// How many buckets one request looks into: the server does nothing else meanwhile.
const BUCKETS: u16 = 16;

/// How many names one request asks for.
const NAMES: usize = 1000;

/// How many requests are on their way at once.
const BATCH: usize = 16;

/// A page of a queue, front first, in portions: the server does something else in between, and whoever leaves or comes
/// meanwhile may be shown or not.
pub(super) async fn queue(connection: &Connection, layout: &Layout, name: &Name, page: Page) -> Result<Queue> {
    let (mut contenders, mut after) = (Vec::new(), None);
    loop {
        let wanted = (page.limit - contenders.len()).min(SHOWN_PER_CALL);
        let shown = connection.run("queue", &scripts::show(layout, name, page.skip, after, wanted)).await?;
        let is_last = !shown.is_cut && shown.places.len() < wanted;
        after = shown.places.last().map(|last| last.seq).or(after);
        contenders.extend(shown.places.into_iter().map(contender));
        if is_last || contenders.len() == page.limit {
            let is_whole = is_last && page.skip == 0;
            let queued = if is_whole { contenders.len() } else { shown.queued };
            let (beside, strangers) = (Vec::new(), Vec::new());
            return Ok(Queue { name: name.clone(), contenders, queued, beside, strangers });
        }
    }
}

/// A queue in short: no more is looked at than its head and those who are asked for.
pub(super) async fn contention(
    connection: &Connection,
    layout: &Layout,
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
    Ok(Outline { holder, holders: short.holders, queued: short.queued, positions })
}

fn contender(shown: Shown) -> Contender {
    let token = FencingToken::new(shown.seq, 0);
    Contender {
        id: shown.id,
        owner: shown.owner,
        claim: shown.claim,
        grant: shown.granted.then_some(Grant { token }),
        since: Some(shown.since),
        purpose: shown.purpose,
        foreign: None,
    }
}

/// Up to `limit` names in byte order, over all buckets.
pub(super) async fn names(
    connection: &Connection,
    keys: &Layout,
    prefix: &str,
    from: Option<&Name>,
    limit: usize,
) -> Result<Vec<Name>> {
    let mut found = BTreeSet::new();
    let starts: Vec<u16> = (0..bucket::BUCKETS).step_by(usize::from(BUCKETS)).collect();
    for batch in starts.chunks(BATCH) {
        let asked = batch.iter().map(|start| {
            let buckets = *start..bucket::BUCKETS.min(start + BUCKETS);
            names_of(connection, keys, buckets, prefix, from, limit)
        });
        for names in future::try_join_all(asked).await? {
            found.extend(names);
        }
        while found.len() > limit {
            found.pop_last();
        }
    }
    Ok(found.into_iter().collect())
}

/// The same of some buckets. One request clears away so many names of the dead at most.
async fn names_of(
    connection: &Connection,
    keys: &Layout,
    buckets: Range<u16>,
    prefix: &str,
    from: Option<&Name>,
    limit: usize,
) -> Result<Vec<Name>> {
    let (mut found, mut from) = (Vec::new(), from.cloned());
    loop {
        let wanted = (limit - found.len()).min(NAMES);
        let call = scripts::names(keys, buckets.clone(), prefix, from.as_ref(), wanted);
        let named = connection.run("names", &call).await?;
        if named.is_cut {
            continue;
        }
        let is_last = named.names.len() < wanted;
        from = named.names.iter().max().cloned();
        found.extend(named.names);
        if is_last || found.len() >= limit {
            return Ok(found);
        }
    }
}

pub(super) async fn evict(connection: &Connection, layout: &Layout, order: &Break) -> Result<bool> {
    let record = record::text("break", &Record::of(order))?;
    // No grant of ours is without a token.
    let Some(evict) = scripts::evict(layout, order, &record) else { return Ok(false) };
    connection.run("evict", &evict).await
}

pub(super) async fn breaks(connection: &Connection, layout: &Layout, name: &Name) -> Result<Vec<Break>> {
    let records = connection.command("breaks", &scripts::breaks(layout, name)).await?;
    let redis::Value::Array(records) = records else { return Err(super::refusal::nonsense("breaks", &records)) };
    let text = |record| match record {
        redis::Value::BulkString(text) => Some(text),
        _ => None,
    };
    Ok(records.into_iter().filter_map(|record| record::read::<Record>(&text(record)?)?.order(name)).collect())
}
