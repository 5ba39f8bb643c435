//! Reading queues and names, and breaking grants: what needs no session.

use std::collections::BTreeSet;

use futures_util::future;

use super::connection::Connection;
use super::layout::{self, Layout};
use super::record;
use super::scripts::{self, Shown};
use crate::error::Result;
use crate::name::Name;
use crate::store::{Break, Contender, Grant, Page, Queue};
use crate::token::FencingToken;

/// How many buckets one request looks into: the server does nothing else meanwhile.
const BUCKETS: u16 = 64;

/// How many requests are on their way at once.
const BATCH: usize = 8;

pub(super) async fn queue(connection: &Connection, layout: &Layout, name: &Name, page: Page) -> Result<Queue> {
    let shown = connection.run("queue", &scripts::show(layout, name)).await?;
    Ok(Queue::page_of(name.clone(), shown.into_iter().map(contender).collect(), page))
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
    let starts: Vec<u16> = (0..layout::BUCKETS).step_by(usize::from(BUCKETS)).collect();
    for batch in starts.chunks(BATCH) {
        let calls: Vec<_> = batch
            .iter()
            .map(|start| scripts::names(keys, *start..layout::BUCKETS.min(start + BUCKETS), prefix, from, limit))
            .collect();
        for names in future::join_all(calls.iter().map(|call| connection.run("names", call))).await {
            found.extend(names?);
        }
        while found.len() > limit {
            found.pop_last();
        }
    }
    Ok(found.into_iter().collect())
}

pub(super) async fn evict(connection: &Connection, layout: &Layout, order: &Break) -> Result<bool> {
    let record = record::write(order)?;
    // No grant of ours is without a token.
    let Some(evict) = scripts::evict(layout, order, &record) else { return Ok(false) };
    connection.run("evict", &evict).await
}

pub(super) async fn breaks(connection: &Connection, layout: &Layout, name: &Name) -> Result<Vec<Break>> {
    let records = connection.command("breaks", &scripts::breaks(layout, name)).await?;
    let redis::Value::Array(records) = records else { return Err(super::fault::nonsense("breaks", &records)) };
    let text = |record| match record {
        redis::Value::BulkString(text) => Some(text),
        _ => None,
    };
    Ok(records.into_iter().filter_map(|record| record::read(name, &text(record)?)).collect())
}
