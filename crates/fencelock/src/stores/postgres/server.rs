//! What a server is asked outside of a session: queues and names, and to break a grant.

use std::sync::Arc;
use std::time::{Duration, UNIX_EPOCH};

use futures_util::future;
use tokio_postgres::Row;

use super::connection::{Connection, strange, value};
use super::link::{Link, Purpose, apart, link};
use super::notes;
use super::session::{PostgresSession, kept_waiting};
use super::{CAPABILITY, Postgres};
use crate::error::Result;
use crate::kit::record::{self, Record};
use crate::kit::served::Places;
use crate::kit::server::{Events, Server};
use crate::name::Name;
use crate::queue::Claim;
use crate::store::{
    Break, Capability, Contender, Foreign, Grant, NoteOrder, NoteRead, Opening, Outline, Owner, Page, PlaceId, Queue,
    RequestId, Waits,
};
use crate::token::FencingToken;

/// How many places one request for names looks at.
const NAMES_PER_CALL: i32 = 1000;

/// Up to which place names were listed: its bucket and its name.
pub(super) struct Listed(i32, String);

impl Default for Listed {
    /// Before the first bucket.
    fn default() -> Self {
        Self(-1, String::new())
    }
}

impl Server for Postgres {
    type Session = PostgresSession;
    type Listed = Listed;

    fn capability(&self) -> &Capability {
        &CAPABILITY
    }

    fn session(&self, opening: Opening, events: Events) -> Result<(Arc<PostgresSession>, Arc<Link>)> {
        let session = Arc::new(PostgresSession::new(Arc::clone(&self.0), opening, Places::new(events))?);
        Ok((Arc::clone(&session), link(&self.0, Some(session))))
    }

    fn reader(&self) -> Arc<Link> {
        link(&self.0, None)
    }

    /// The schema is made by whoever takes the first lock.
    fn is_unused(&self, connection: &Connection) -> bool {
        !connection.has_schema()
    }

    async fn queue(&self, connection: &Connection, name: &Name, page: Page) -> Result<Queue> {
        let (contenders, counted) =
            future::try_join(show(connection, name, page), counts(connection, name, &[])).await?;
        // Another one may have come or left between the two answers.
        let queued = counted.queued.max(contenders.len());
        let closed = counted.closed;
        Ok(Queue { name: name.clone(), contenders, queued, beside: Vec::new(), strangers: Vec::new(), closed })
    }

    async fn contention(&self, connection: &Connection, name: &Name, mine: &[RequestId]) -> Result<Outline> {
        let first = Page { skip: 0, limit: 1 };
        let (outline, head) = future::try_join(counts(connection, name, mine), show(connection, name, first)).await?;
        Ok(Outline { holder: head.into_iter().next(), ..outline })
    }

    async fn names(&self, connection: &Connection, from: Listed, prefix: &str) -> Result<(Vec<Name>, Option<Listed>)> {
        let rows = connection.call("names", "names", &[&from.0, &from.1, &NAMES_PER_CALL]).await?;
        let (mut names, mut last) = (Vec::new(), None);
        for row in &rows {
            let name: String = value("names", row, 1)?;
            if value("names", row, 2)? && name.starts_with(prefix) {
                names.extend(Name::new(name.clone()));
            }
            last = Some(Listed(value("names", row, 0)?, name));
        }
        Ok((names, last))
    }

    /// It waits for a transaction that holds the grant, so on a connection of its own.
    async fn break_grant(&self, _: &Connection, order: &Break) -> Result<bool> {
        let record = record::text("break", &Record::of(order))?;
        // No grant of ours is without a token.
        let Some(token) = order.token else { return Ok(false) };
        let PlaceId { name, request } = &order.place;
        let connection = apart(&self.0, Purpose::Patience, None).await?;
        let (client, number) = (request.client.cast_signed(), request.number.cast_signed());
        let (text, reason, seq) = (name.as_str(), &*order.reason, token.to_i64());
        let grant = [&text as _, &client as _, &number as _, &seq as _, &record as _, &reason as _];
        connection.ask("break", "break_grant", &grant).await.map_err(|error| kept_waiting("break", name, error))
    }

    async fn breaks(&self, connection: &Connection, name: &Name) -> Result<Vec<Break>> {
        let rows = connection.call("breaks", "breaks", &[&name.as_str()]).await?;
        let text = |row: &Row| row.try_get::<_, String>(0).ok();
        Ok(rows.iter().filter_map(|row| record::read::<Record>(text(row)?.as_bytes())?.order(name)).collect())
    }

    async fn write_note(&self, connection: &Connection, order: &NoteOrder) -> Result<bool> {
        notes::write(connection, order).await
    }

    async fn note(&self, connection: &Connection, name: &Name) -> Result<NoteRead> {
        notes::read(connection, name).await
    }
}

async fn counts(connection: &Connection, name: &Name, mine: &[RequestId]) -> Result<Outline> {
    let clients: Vec<i64> = mine.iter().map(|id| id.client.cast_signed()).collect();
    let numbers: Vec<i64> = mine.iter().map(|id| id.number.cast_signed()).collect();
    let rows = connection.call("contention", "contention", &[&name.as_str(), &clients, &numbers]).await?;
    let row = rows.first().ok_or_else(|| strange("contention"))?;
    let answer: Vec<i64> = value("contention", row, 0)?;
    let count = |number: i64| usize::try_from(number).unwrap_or(0);
    let [queued, holders, positions @ ..] = answer.as_slice() else { return Err(strange("contention")) };
    let positions = positions.iter().map(|position| Some(count(*position)).filter(|position| *position > 0)).collect();
    let closed = value("contention", row, 1)?;
    Ok(Outline { holder: None, holders: count(*holders), queued: count(*queued), positions, closed })
}

async fn show(connection: &Connection, name: &Name, page: Page) -> Result<Vec<Contender>> {
    let count = |number| i64::try_from(number).unwrap_or(i64::MAX);
    let rows = connection.call("queue", "show", &[&name.as_str(), &count(page.skip), &count(page.limit)]).await?;
    rows.iter().map(contender).collect()
}

fn contender(row: &Row) -> Result<Contender> {
    let number = |column| value::<i64>("queue", row, column).map(i64::cast_unsigned);
    let part = |column| u32::try_from(number(column)?).map_err(|_| strange("queue"));
    let id = RequestId { client: number(1)?, number: number(2)? };
    let claim = Claim::new(part(4)?, part(5)?).map_err(|_| strange("queue"))?;
    let grant = Grant::new(FencingToken::new(number(0)?));
    // The session is dead, and a transaction keeps the grant (`hold`).
    let keeper: Option<String> = value("queue", row, 11)?;
    let foreign = keeper.is_some().then_some(Foreign { what: "a transaction with `hold`", waits: Waits::Yes });
    let owner = match keeper {
        Some(keeper) => Owner::new(id.client, keeper, 0),
        None => Owner { host: value("queue", row, 8)?, pid: part(9)?, client: number(10)? },
    };
    Ok(Contender {
        owner: Some(owner),
        foreign,
        grant: value::<bool>("queue", row, 3)?.then_some(grant),
        since: UNIX_EPOCH.checked_add(Duration::from_micros(number(6)?)),
        purpose: value::<Option<String>>("queue", row, 7)?.map(Into::into),
        ..Contender::new(id, claim)
    })
}
