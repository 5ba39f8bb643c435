//! Our own layout, outside of a session: queues, names, notes, and breaks of grants.

use std::fmt;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use futures_core::future::BoxFuture;
use futures_util::future;

use super::call::{Calls, Param, Row};
use super::dialect::{Dialect, units};
use super::link::{Dialler, Link, Purpose};
use super::session::FairSession;
use super::{NoUser, session_locks};
use crate::error::Result;
use crate::kit::lock_table::{self, Layout};
use crate::kit::record::{self, Record};
use crate::kit::served::Places;
use crate::kit::server::{Events, Server, ServerStore};
use crate::name::Name;
use crate::queue::Claim;
use crate::store::{
    Break, Capability, Contender, Foreign, Grant, Note, NoteOrder, NoteRead, Opening, Outline, Owner, Page, PlaceId,
    Queue, RequestId, Store, StoreUrl, Waits,
};
use crate::token::FencingToken;

const NAMES_PER_CALL: u64 = 500;

/// Opens the store of the layout in the URL.
pub(crate) fn open<D: Dialect>(url: StoreUrl) -> BoxFuture<'static, Result<Arc<dyn Store>>> {
    Box::pin(async move {
        let (layout, config) = D::layout_and_config(url)?;
        let store: Arc<dyn Store> = match layout {
            Layout::Fair => Arc::new(ServerStore::new(DatabaseStore::<D>(Arc::new(config)))),
            Layout::Table(table) => lock_table::store(config, D::Table::from(table)),
            Layout::Session(keys) => session_locks::store(config, keys),
        };
        Ok(store)
    })
}

struct DatabaseStore<D: Dialect>(Arc<D::Config>);

impl<D: Dialect> fmt::Debug for DatabaseStore<D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.0, f)
    }
}

/// The grant of a place, as functions take it: name, client, number and token.
fn grant(PlaceId { name, request }: &PlaceId, token: FencingToken) -> Vec<Param<'_>> {
    vec![name.as_str().into(), request.client.into(), request.number.into(), token.get().into()]
}

impl<D: Dialect> Server for DatabaseStore<D> {
    type Session = FairSession<D>;
    /// The bucket and the name of the last listed lock. No name is empty.
    type Listed = (i64, Vec<u8>);

    fn capability(&self) -> &Capability {
        D::CAPABILITY
    }

    fn session(&self, opening: Opening, events: Events) -> Result<(Arc<FairSession<D>>, Link<D>)> {
        let session = Arc::new(FairSession::new(&self.0, opening, Places::new(events))?);
        let dialler = Dialler::<D>::new(&self.0, Purpose::Locks, Some(&session.opening));
        Ok((Arc::clone(&session), dialler.link(session)))
    }

    fn learned(&self, session: &FairSession<D>) -> Option<Arc<Capability>> {
        D::learned(session)
    }

    fn reader(&self) -> Link<D> {
        Dialler::<D>::new(&self.0, Purpose::Looks, None).link(Arc::new(NoUser))
    }

    fn is_unused(&self, connection: &D::Connection) -> bool {
        connection.state().schema.get().is_none()
    }

    async fn queue(&self, connection: &D::Connection, name: &Name, page: Page) -> Result<Queue> {
        let shown = show::<D>(connection, name, page.skip, page.limit);
        let (rows, outline) = future::try_join(shown, counts::<D>(connection, name, &[])).await?;
        let contenders: Vec<Contender> = rows.iter().map(contender).collect::<Result<_>>()?;
        let Outline { queued, closed, .. } = outline;
        let queued = queued.max(contenders.len());
        Ok(Queue { queued, closed, ..Queue::page_of(name.clone(), contenders, Page::ALL) })
    }

    async fn contention(&self, connection: &D::Connection, name: &Name, mine: &[RequestId]) -> Result<Outline> {
        let head = show::<D>(connection, name, 0, 1);
        let (outline, head) = future::try_join(counts::<D>(connection, name, mine), head).await?;
        let holder = head.first().map(contender).transpose()?;
        Ok(Outline { holder, ..outline })
    }

    async fn names(
        &self,
        connection: &D::Connection,
        (bucket, from): (i64, Vec<u8>),
        prefix: &str,
    ) -> Result<(Vec<Name>, Option<(i64, Vec<u8>)>)> {
        let params = vec![bucket.into(), from.as_slice().into(), NAMES_PER_CALL.into()];
        let (mut names, mut last) = (Vec::new(), None);
        for row in connection.call("names", "names", params).await? {
            let name = row.bytes(1)?.unwrap_or_default();
            if row.signed(2)? != 0 && name.starts_with(prefix.as_bytes()) {
                names.extend(str::from_utf8(name).ok().and_then(|name| Name::new(name).ok()));
            }
            last = Some((row.signed(0)?, name.to_vec()));
        }
        Ok((names, last))
    }

    /// The break has a connection of its own: a break may wait for a transaction that keeps the grant, and a reader may be on a replica.
    async fn break_grant(&self, _: &D::Connection, order: &Break) -> Result<bool> {
        let record = record::text("break", &Record::of(order))?;
        // No grant of ours is without a token.
        let Some(token) = order.token else { return Ok(false) };
        let mut params = grant(&order.place, token);
        params.extend([record.into(), (&*order.reason).into()]);
        let name = &order.place.name;
        let connection = Dialler::<D>::alone(&self.0, Purpose::Patience, None).await?;
        let answer =
            connection.ask("break", "break", params).await.map_err(|error| D::in_vain("break", name, error))?;
        match answer.signed(0)? {
            0 => Ok(false),
            1 => Ok(true),
            _ => Err(D::kept("break", name)),
        }
    }

    async fn breaks(&self, connection: &D::Connection, name: &Name) -> Result<Vec<Break>> {
        let rows = connection.call("breaks", "breaks", vec![name.as_str().into()]).await?;
        Ok(rows.iter().filter_map(|row| record::read::<Record>(row.bytes(0).ok()??)?.order(name)).collect())
    }

    async fn write_note(&self, connection: &D::Connection, order: &NoteOrder) -> Result<bool> {
        // Every grant of this layout has a token, and without tables there is no grant.
        let Some(token) = order.grant.token.filter(|_| !self.is_unused(connection)) else { return Ok(false) };
        let mut params = grant(&order.grant.place, token);
        params.extend([order.value.as_deref().into(), order.ttl.map(units::<D>).into()]);
        // A grant without a session has no answer of its own.
        Ok(connection.ask("note", "write_note", params).await?.optional(0)? == Some(1))
    }

    async fn note(&self, connection: &D::Connection, name: &Name) -> Result<NoteRead> {
        if self.is_unused(connection) {
            let row = D::now(connection).await?;
            return Ok(NoteRead { note: None, now: moment(&row, 0)? });
        }
        let row = connection.ask("note", "read_note", vec![name.as_str().into()]).await?;
        let note = row.bytes(1)?.map(|value| note_of(&row, value)).transpose()?;
        Ok(NoteRead { note, now: moment(&row, 0)? })
    }
}

fn note_of(row: &Row, value: &[u8]) -> Result<Note> {
    let pid = u32::try_from(row.number(4)?).map_err(|_| row.strange())?;
    Ok(Note {
        value: value.into(),
        token: FencingToken::new(row.number(2)?),
        owner: Owner { host: row.text(3)?.to_owned(), pid, client: row.number(5)? },
        written: moment(row, 6)?,
        expires: row.optional(7)?.map(|_| moment(row, 7)).transpose()?,
    })
}

fn moment(row: &Row, at: usize) -> Result<SystemTime> {
    let us = u64::try_from(row.signed(at)?).ok();
    us.and_then(|us| UNIX_EPOCH.checked_add(Duration::from_micros(us))).ok_or_else(|| row.strange())
}

async fn show<D: Dialect>(connection: &D::Connection, name: &Name, skip: usize, limit: usize) -> Result<Vec<Row>> {
    let count = |number| Param::Signed(i64::try_from(number).unwrap_or(i64::MAX));
    let first = [Param::from(name.as_str())].into_iter().chain(D::SHOW.iter().cloned());
    connection.call("queue", "show", first.chain([count(skip), count(limit)]).collect()).await
}

async fn counts<D: Dialect>(connection: &D::Connection, name: &Name, mine: &[RequestId]) -> Result<Outline> {
    D::counted(&connection.call("contention", "contention", D::count(name, mine)).await?, mine)
}

fn contender(row: &Row) -> Result<Contender> {
    let part = |at| u32::try_from(row.number(at)?).map_err(|_| row.strange());
    let text = |at| row.bytes(at).map(|text| text.map(|text| String::from_utf8_lossy(text).into_owned()));
    let id = RequestId { client: row.number(1)?, number: row.number(2)? };
    let claim = Claim::new(part(4)?, part(5)?).map_err(|_| row.strange())?;
    // The session is dead, and a transaction keeps the grant (`hold`).
    let keeper = if row.cells.len() > 11 { text(11)? } else { None };
    let foreign = keeper.is_some().then_some(Foreign { what: "a transaction with `hold`", waits: Waits::Yes });
    let owner = match keeper {
        Some(keeper) => Owner::new(id.client, keeper, 0),
        None => Owner { host: text(8)?.ok_or_else(|| row.strange())?, pid: part(9)?, client: row.number(10)? },
    };
    Ok(Contender {
        owner: Some(owner),
        foreign,
        grant: (row.signed(3)? != 0).then_some(Grant::new(FencingToken::new(row.number(0)?))),
        since: UNIX_EPOCH.checked_add(Duration::from_micros(row.number(6)?)),
        purpose: text(7)?.map(Into::into),
        ..Contender::new(id, claim)
    })
}
