//! Reading queues and names, and breaking grants: what needs no session.

use std::sync::Arc;
use std::time::{Duration, UNIX_EPOCH};

use tokio_postgres::Row;
use tokio_postgres::types::ToSql;

use super::connection::{Call, Connection, strange};
use super::link::apart;
use super::member::{kept, signed, unsigned};
use super::url::Config;
use crate::error::Result;
use crate::kit::record::{self, Record};
use crate::name::Name;
use crate::queue::Claim;
use crate::store::{Break, Contender, Grant, Outline, Owner, Page, PlaceId, Queue, RequestId};
use crate::token::FencingToken;

/// How many contenders one request shows at most.
const SHOWN_PER_CALL: usize = 1024;
/// How many places one request for names looks at.
const NAMES_PER_CALL: i32 = 1000;

/// A page of a queue, front first, in portions: a contender that leaves or comes meanwhile may be shown or not.
pub(super) async fn queue(connection: &Connection, name: &Name, page: Page) -> Result<Queue> {
    let (mut contenders, mut skip, mut after): (Vec<Contender>, _, _) = (Vec::new(), page.skip, 0_i64);
    loop {
        let wanted = (page.limit - contenders.len()).min(SHOWN_PER_CALL);
        let (skipped, limit) = (i64::try_from(skip).unwrap_or(i64::MAX), i64::try_from(wanted).unwrap_or(i64::MAX));
        let arguments: [&(dyn ToSql + Sync); 4] = [&name.as_str(), &after, &skipped, &limit];
        let rows = connection.call("queue", Call::Show, &arguments).await?;
        if let Some(last) = rows.last() {
            (after, skip) = (last.try_get(0).map_err(|_| strange("queue"))?, 0);
        }
        contenders.extend(rows.iter().map(contender).collect::<Result<Vec<_>>>()?);
        if rows.len() < wanted || contenders.len() == page.limit {
            let is_whole = rows.len() < wanted && page.skip == 0;
            let queued = if is_whole { contenders.len() } else { counts(connection, name, &[]).await?.queued };
            let (beside, strangers) = (Vec::new(), Vec::new());
            return Ok(Queue { name: name.clone(), contenders, queued, beside, strangers });
        }
    }
}

/// A queue in short.
pub(super) async fn contention(connection: &Connection, name: &Name, mine: &[RequestId]) -> Result<Outline> {
    let head = async {
        let arguments: [&(dyn ToSql + Sync); 4] = [&name.as_str(), &0_i64, &0_i64, &1_i64];
        connection.call("contention", Call::Show, &arguments).await
    };
    let (outline, head) = futures_util::future::try_join(counts(connection, name, mine), head).await?;
    let holder = head.first().map(contender).transpose()?;
    Ok(Outline { holder, ..outline })
}

async fn counts(connection: &Connection, name: &Name, mine: &[RequestId]) -> Result<Outline> {
    let clients: Vec<i64> = mine.iter().map(|id| signed(id.client)).collect();
    let numbers: Vec<i64> = mine.iter().map(|id| signed(id.number)).collect();
    let arguments: [&(dyn ToSql + Sync); 3] = [&name.as_str(), &clients, &numbers];
    let answer: Vec<i64> = connection.ask("contention", Call::Contention, &arguments).await?;
    let count = |number: i64| usize::try_from(number).unwrap_or(0);
    let [queued, holders, positions @ ..] = answer.as_slice() else { return Err(strange("contention")) };
    let positions = positions.iter().map(|position| Some(count(*position)).filter(|position| *position > 0)).collect();
    Ok(Outline { holder: None, holders: count(*holders), queued: count(*queued), positions })
}

fn contender(row: &Row) -> Result<Contender> {
    let read = || -> Result<Option<Contender>, tokio_postgres::Error> {
        let number = |column| row.try_get::<_, i64>(column).map(unsigned);
        let (seq, id) = (number(0)?, RequestId { client: number(1)?, number: number(2)? });
        let (weight, capacity) = (u32::try_from(number(4)?), u32::try_from(number(5)?));
        let (Ok(weight), Ok(capacity)) = (weight, capacity) else { return Ok(None) };
        let Ok(claim) = Claim::new(weight, capacity) else { return Ok(None) };
        let granted: bool = row.try_get(3)?;
        let (host, pid): (String, i64) = (row.try_get(8)?, row.try_get(9)?);
        let purpose: Option<String> = row.try_get(7)?;
        Ok(Some(Contender {
            owner: Some(Owner { client: number(10)?, host, pid: u32::try_from(pid).unwrap_or(0) }),
            grant: granted.then_some(Grant::new(FencingToken::new(seq))),
            since: UNIX_EPOCH.checked_add(Duration::from_micros(number(6)?)),
            purpose: purpose.map(Into::into),
            ..Contender::new(id, claim)
        }))
    };
    read().ok().flatten().ok_or_else(|| strange("queue"))
}

/// Up to which place names were listed: its bucket and its name.
pub(super) struct Listed(i32, String);

impl Default for Listed {
    /// Before the first bucket.
    fn default() -> Self {
        Self(-1, String::new())
    }
}

/// Names behind `from` that begin with `prefix`, and how far that came; `None` at the end.
pub(super) async fn names(connection: &Connection, from: &Listed, prefix: &str) -> Result<(Vec<Name>, Option<Listed>)> {
    let rows = connection.call("names", Call::Names, &[&from.0, &from.1, &NAMES_PER_CALL]).await?;
    let mut names = Vec::new();
    let mut last = None;
    for row in &rows {
        let read = || -> Result<(i32, String, bool), tokio_postgres::Error> {
            Ok((row.try_get(0)?, row.try_get(1)?, row.try_get(2)?))
        };
        let (bucket, name, alive) = read().map_err(|_| strange("names"))?;
        if alive && name.starts_with(prefix) {
            names.extend(Name::new(name.clone()));
        }
        last = Some(Listed(bucket, name));
    }
    Ok((names, last))
}

pub(super) async fn break_grant(config: &Arc<Config>, connection: &Connection, order: &Break) -> Result<bool> {
    let record = record::text("break", &Record::of(order))?;
    // No grant of ours is without a token.
    let Some(token) = order.token else { return Ok(false) };
    let PlaceId { name, request } = &order.place;
    let (client, number, seq) = (signed(request.client), signed(request.number), signed(token.get()));
    let ask = async |connection: &Connection, patient: bool| {
        let arguments: [&(dyn ToSql + Sync); 7] =
            [&name.as_str(), &client, &number, &seq, &record, &&*order.reason, &patient];
        connection.ask::<i32>("break", Call::Break, &arguments).await
    };
    match ask(connection, false).await? {
        2 => match ask(&*apart(config, None).await?, true).await {
            Ok(answer) => Ok(answer == 1),
            Err(error) => Err(kept("break", name).with("cause", error)),
        },
        answer => Ok(answer == 1),
    }
}

pub(super) async fn breaks(connection: &Connection, name: &Name) -> Result<Vec<Break>> {
    let rows = connection.call("breaks", Call::Breaks, &[&name.as_str()]).await?;
    let text = |row: &Row| row.try_get::<_, String>(0).ok();
    Ok(rows.iter().filter_map(|row| record::read::<Record>(text(row)?.as_bytes())?.order(name)).collect())
}
