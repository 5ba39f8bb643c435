//! Reading queues and names, and breaking grants: what needs no session.

use std::collections::HashMap;
use std::time::{Duration, UNIX_EPOCH};

use mysql_async::{Row, Value};

use super::connection::{Connection, column, strange};
use super::session::kept;
use crate::error::Result;
use crate::kit::record::{self, Record};
use crate::name::Name;
use crate::queue::Claim;
use crate::store::{Break, Contender, Grant, Outline, Owner, Page, PlaceId, Queue, RequestId};
use crate::token::FencingToken;

/// How many contenders one request shows at most.
const SHOWN_PER_CALL: usize = 1024;
/// How many names one request tells at most.
const NAMES_PER_CALL: i64 = 500;

async fn show(connection: &Connection, name: &Name, after: u64, skip: usize, limit: usize) -> Result<Vec<Row>> {
    let arguments = vec![name.as_str().into(), after.into(), (skip as u64).into(), (limit as u64).into()];
    connection.call("queue", "show", arguments).await
}

/// A page of a queue, front first, in portions: a contender that leaves or comes meanwhile may be shown or not.
pub(super) async fn queue(connection: &Connection, name: &Name, page: Page) -> Result<Queue> {
    let (mut contenders, mut skip, mut after): (Vec<Contender>, _, _) = (Vec::new(), page.skip, 0);
    loop {
        let wanted = (page.limit - contenders.len()).min(SHOWN_PER_CALL);
        let rows = show(connection, name, after, skip, wanted).await?;
        if let Some(last) = rows.last() {
            (after, skip) = (column("queue", last, 0)?, 0);
        }
        contenders.extend(rows.iter().map(contender).collect::<Result<Vec<_>>>()?);
        if rows.len() < wanted || contenders.len() == page.limit {
            let Outline { queued, closed, .. } = counts(connection, name, &[]).await?;
            let queued = queued.max(contenders.len());
            return Ok(Queue { queued, closed, ..Queue::page_of(name.clone(), contenders, Page::ALL) });
        }
    }
}

/// A queue in short.
pub(super) async fn contention(connection: &Connection, name: &Name, mine: &[RequestId]) -> Result<Outline> {
    let outline = counts(connection, name, mine).await?;
    let head = show(connection, name, 0, 0, 1).await?;
    let holder = head.first().map(contender).transpose()?;
    Ok(Outline { holder, ..outline })
}

async fn counts(connection: &Connection, name: &Name, mine: &[RequestId]) -> Result<Outline> {
    let ids: Vec<String> = mine.iter().map(|id| format!("{}-{}", id.client, id.number)).collect();
    let arguments = vec![name.as_str().into(), ids.join(",").into()];
    let rows = connection.answered("contention", "contention", arguments).await?;
    let number = |row: &Row, at| column::<u64>("contention", row, at);
    let (first, found) = rows.split_first().ok_or_else(|| strange("contention"))?;
    let mut positions = HashMap::new();
    for row in found {
        let request = RequestId { client: number(row, 0)?, number: number(row, 1)? };
        positions.insert(request, usize::try_from(number(row, 2)?).unwrap_or(usize::MAX));
    }
    let count = |at| number(first, at).map(|count| usize::try_from(count).unwrap_or(usize::MAX));
    let positions = mine.iter().map(|id| positions.get(id).copied()).collect();
    let closed = column("contention", first, 4)?;
    Ok(Outline { holder: None, holders: count(3)?, queued: count(2)?, positions, closed })
}

fn contender(row: &Row) -> Result<Contender> {
    let number = |at| column::<u64>("queue", row, at);
    let narrow = |at| u32::try_from(number(at)?).map_err(|_| strange("queue"));
    let id = RequestId { client: number(1)?, number: number(2)? };
    let claim = Claim::new(narrow(4)?, narrow(5)?).map_err(|_| strange("queue"))?;
    let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
    let purpose = column::<Option<Vec<u8>>>("queue", row, 7)?.map(text);
    Ok(Contender {
        owner: Some(Owner {
            client: number(10)?,
            host: text(column("queue", row, 8)?),
            pid: u32::try_from(number(9)?).unwrap_or(0),
        }),
        grant: (number(3)? != 0).then_some(Grant::new(FencingToken::new(number(0)?))),
        since: UNIX_EPOCH.checked_add(Duration::from_micros(number(6)?)),
        purpose: purpose.map(Into::into),
        ..Contender::new(id, claim)
    })
}

/// Up to which name they were listed: its bucket and itself.
pub(super) struct Listed(i64, Vec<u8>);

impl Default for Listed {
    /// Before the first bucket.
    fn default() -> Self {
        Self(-1, Vec::new())
    }
}

/// Names behind `from` that begin with `prefix`, and how far that came; `None` at the end.
pub(super) async fn names(connection: &Connection, from: &Listed, prefix: &str) -> Result<(Vec<Name>, Option<Listed>)> {
    let arguments: Vec<Value> = vec![from.0.into(), from.1.as_slice().into(), NAMES_PER_CALL.into()];
    let rows = connection.call("names", "names", arguments).await?;
    let mut names = Vec::new();
    let mut last = None;
    for row in &rows {
        let (bucket, name): (i64, Vec<u8>) = (column("names", row, 0)?, column("names", row, 1)?);
        if column::<i64>("names", row, 2)? != 0 && name.starts_with(prefix.as_bytes()) {
            names.extend(String::from_utf8(name.clone()).ok().and_then(|name| Name::new(name).ok()));
        }
        last = Some(Listed(bucket, name));
    }
    Ok((names, last))
}

pub(super) async fn break_grant(connection: &Connection, order: &Break) -> Result<bool> {
    let record = record::text("break", &Record::of(order))?;
    // No grant of ours is without a token.
    let Some(token) = order.token else { return Ok(false) };
    let PlaceId { name, request } = &order.place;
    let arguments: Vec<Value> = vec![
        name.as_str().into(),
        request.client.into(),
        request.number.into(),
        token.get().into(),
        record.into(),
        (&*order.reason).into(),
    ];
    match column::<i64>("break", &connection.ask("break", "break", arguments).await?, 0)? {
        0 => Ok(false),
        1 => Ok(true),
        _ => Err(kept("break", name)),
    }
}

pub(super) async fn breaks(connection: &Connection, name: &Name) -> Result<Vec<Break>> {
    let rows = connection.call("breaks", "breaks", vec![name.as_str().into()]).await?;
    let text = |row: &Row| column::<Vec<u8>>("breaks", row, 0).ok();
    Ok(rows.iter().filter_map(|row| record::read::<Record>(&text(row)?)?.order(name)).collect())
}
