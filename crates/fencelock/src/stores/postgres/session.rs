//! Our own layout as PostgreSQL has it. Everything else of a session is `kit/database/session.rs`.

use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};
use std::time::Duration;

use super::CAPABILITY;
use super::bell::listen;
use super::connection::Connection;
use super::link::Postgres;
use super::url::Config;
use crate::error::Result;
use crate::kit::database::batch::Request;
use crate::kit::database::call::{Calls, Cell, Param, Row, strange};
use crate::kit::database::dialect::Dialect;
use crate::kit::database::ear::Ear;
use crate::kit::database::session::FairSession;
use crate::kit::served::PlacesByName;
use crate::name::Name;
use crate::store::{Capability, Outline, PlaceId, RequestId};

/// The number of releases that call the procedure, after a release granted a lock to another session.
const CONTENDED: usize = 64;

pub(super) type PostgresSession = FairSession<Postgres>;

impl Dialect for Postgres {
    const CAPABILITY: &'static Capability = &CAPABILITY;
    const UNIT: Duration = Duration::from_millis(1);
    const LONGEST_TTL: u64 = i32::MAX.unsigned_abs() as u64 * 1000;
    const POLL: Duration = Duration::from_millis(50);
    const SHOW: &'static [Param<'static>] = &[];
    const KEPT: &'static str =
        "a transaction holds this grant, which cannot end before it (`hold`); pg_stat_activity shows it";

    fn learned(session: &PostgresSession) -> Option<Arc<Capability>> {
        let often = Self::POLL + Duration::from_secs(1);
        let (layout, wake_bound) = match &session.config.bell {
            Some(_) => ("fencelock postgres fair layout 8, by a pooler with a bell", CAPABILITY.wake_bound),
            None => ("fencelock postgres fair layout 8, by a pooler: waiters look every 50 ms", often),
        };
        let is_pooled = session.config.pooled.load(Ordering::Relaxed);
        is_pooled.then(|| Arc::new(Capability { layout, wake_bound, ..CAPABILITY.clone() }))
    }

    fn batch(requests: &[Request]) -> Vec<Param<'_>> {
        let mut columns: [Vec<_>; 10] = Default::default();
        for request in requests {
            columns.iter_mut().zip(request.params()).for_each(|(column, param)| column.push(param));
        }
        columns.into_iter().map(Param::List).collect()
    }

    fn batched(row: &Row) -> Option<Vec<Vec<i64>>> {
        Some(row.numbers().chunks(3).map(<[i64]>::to_vec).collect())
    }

    /// A release for which no other session waits needs no procedure, whose call costs the server a seventh of a cycle. Otherwise this client
    /// notifies the granted sessions itself, and calls the procedure for the next releases. Behind a pooler both calls would be transactions
    /// of their own, between which the notification can get lost.
    async fn leave(connection: &Connection, mut params: Vec<Param<'_>>) -> Result<Row> {
        // This call waits for no transaction.
        params.push(false.into());
        let less = |count: usize| count.checked_sub(1);
        let is_pooled = connection.pooled().is_some();
        if is_pooled || connection.contended.fetch_update(Ordering::Relaxed, Ordering::Relaxed, less).is_ok() {
            return connection.ask("leave", "leave", params).await;
        }
        let name = params[1].clone();
        let row = connection.ask("leave", "leave_unrung", params).await?;
        let answer = row.numbers();
        let index = |at: usize| usize::try_from(*answer.get(at)?).ok();
        let grants = || match &*answer {
            [_] => Some([&[][..]; 2]),
            _ => Some([answer.get(3..index(1)?)?, answer.get(index(2)?.checked_sub(1)?..)?]),
        };
        let [own, others] = grants().ok_or_else(|| row.strange())?;
        if !others.is_empty() {
            let rung = vec![Param::List(vec![name]), others.iter().copied().collect()];
            // Without this notification, the sessions look after a while. A procedure whose notification fails would fail the release.
            match connection.call("leave", "ring", rung).await {
                Ok(_) => connection.contended.store(CONTENDED, Ordering::Relaxed),
                Err(error) => {
                    tracing::warn!(%error, "granted sessions could not be notified: they look within two seconds")
                }
            }
        }
        Ok(Row { operation: "leave", cells: vec![Cell::Number(answer[0]), Cell::Numbers(own.to_vec())] })
    }

    async fn leave_in_time(session: &PostgresSession, place: &PlaceId, seq: Option<u64>) -> Result<bool> {
        let connection = session.apart().await?;
        let mut params = session.request(place);
        params.extend([seq.into(), true.into()]);
        let answer = session.read_grants(vec![&place.name], connection.ask("leave", "leave", params)).await;
        match answer.and_then(|row| row.signed(0)) {
            Ok(2) => Err(Self::kept("leave", &place.name)),
            Ok(answer) => Ok(answer == 1),
            Err(error) => Err(Self::in_vain("leave", &place.name, error)),
        }
    }

    fn take_granted(row: &mut Row) -> Result<Vec<(RequestId, u64)>> {
        let told = if row.cells.len() > 1 { row.cells.pop() } else { None };
        let Some(Cell::Numbers(told)) = told else { return Ok(Vec::new()) };
        let place = |place: &[i64]| {
            let [seq, client, number] = <[i64; 3]>::try_from(place).ok()?.map(i64::cast_unsigned);
            Some((RequestId { client, number }, seq))
        };
        told.chunks(3).map(place).collect::<Option<_>>().ok_or_else(|| row.strange())
    }

    fn look<'a>(asked: &'a PlacesByName, seqs: &[Vec<u64>]) -> Vec<Param<'a>> {
        let ids = || asked.iter().flat_map(|(_, ids)| ids);
        vec![
            asked.iter().map(|(name, _)| name.as_str()).collect(),
            asked.iter().map(|(_, ids)| ids.len() as u64).collect(),
            ids().map(|id| id.client).collect(),
            ids().map(|id| id.number).collect(),
            seqs.iter().flatten().copied().collect(),
        ]
    }

    fn looked(rows: &[Row]) -> Result<Option<Vec<i64>>> {
        Ok((!rows.is_empty()).then(|| rows.iter().flat_map(Row::numbers).collect()))
    }

    fn count<'a>(name: &'a Name, mine: &[RequestId]) -> Vec<Param<'a>> {
        let (clients, numbers) = (mine.iter().map(|id| id.client), mine.iter().map(|id| id.number));
        vec![name.as_str().into(), clients.collect(), numbers.collect()]
    }

    fn counted(rows: &[Row], _: &[RequestId]) -> Result<Outline> {
        let row = rows.first().ok_or_else(|| strange("contention"))?;
        let count = |number: &i64| usize::try_from(*number).unwrap_or(0);
        let answer = row.numbers();
        let [queued, holders, positions @ ..] = &answer[..] else { return Err(row.strange()) };
        let positions =
            positions.iter().map(|position| Some(count(position)).filter(|position| *position > 0)).collect();
        let closed = row.bytes(1)?.map(|closed| String::from_utf8_lossy(closed).into_owned());
        Ok(Outline { holder: None, holders: count(holders), queued: count(queued), positions, closed })
    }

    async fn now(connection: &Connection) -> Result<Row> {
        let asked = "SELECT floor(extract(epoch FROM clock_timestamp()) * 1000000)::bigint";
        let rows = connection.simple("note", asked).await?;
        let now = rows.first().and_then(|row| row.get(0)?.parse().ok()).ok_or_else(|| strange("note"))?;
        Ok(Row { operation: "note", cells: vec![Cell::Number(now)] })
    }

    /// Only sessions with places listen, because each notification wakes every listening connection, of any channel. Behind a pooler
    /// another client may get the server's connection, and with it a LISTEN: there, waiting sessions have a connection to the bell.
    fn needs_ear(session: &PostgresSession) -> bool {
        let Config { pooled, bell, .. } = &*session.config;
        match pooled.load(Ordering::Relaxed) {
            true => bell.is_some() && session.places.is_waiting(),
            false => session.places.has_places(),
        }
    }

    async fn listen(session: &Arc<PostgresSession>, main: &Weak<Connection>, ear: &Ear) -> Result<()> {
        listen(session, main, ear).await
    }
}
