//! The requests of a session that are not about one place.

use std::sync::Arc;

use futures_core::future::BoxFuture;
use futures_util::future;
use tokio_postgres::Row;

use super::connection::{Call, Connection, strange};
use super::link::apart;
use super::member::{Member, signed, unsigned, whole_milliseconds};
use crate::error::{Error, Result};
use crate::kit::own_places::over;
use crate::kit::served::{Broken, Core, Over, Served, enter};
use crate::name::Name;
use crate::store::{Entered, Entry, Loss, PlaceId, PlaceList, Renewal, RequestId, Session};

/// How many places of a session that is closed are given up at once.
const CLOSES: usize = 256;
/// Into how many parts the deadline of a renewal falls: after the first one it is also sent on a connection of its own.
const PART: u32 = 3;

impl Core<Member> {
    async fn renew(&self, places: &dyn PlaceList) -> Result<Renewal> {
        let connection = self.link.connection().await?;
        let sent = self.link.clock.now();
        self.alive("renew")?;
        let known = self.member.hub.broken();
        let told = tokio::select! {
            biased;
            told = self.ask(&connection, &known) => told?,
            told = self.ask_apart(&known) => told?,
        };
        // Whatever becomes of it: its answer is not waited for.
        self.member.tidy_up();
        for broken in told {
            let Some(broken) = broken else {
                self.member.hub.end(Over::There, Loss::Expired);
                return Err(over("renew"));
            };
            self.member.hub.told_broken(broken);
        }
        self.member.confirm(sent);
        self.member.hub.acknowledged(&known);
        Ok(Renewal { gone: self.member.hub.gone(places), ..Renewal::at(sent) })
    }

    /// Broken grants; `None` says that the session is over.
    async fn ask(&self, connection: &Connection, known: &[(PlaceId, u64)]) -> Result<Vec<Option<Broken>>> {
        let heard: Vec<i64> = known.iter().map(|(_, seq)| signed(*seq)).collect();
        let ttl = whole_milliseconds(self.member.opening.ttl);
        let rows = connection.call("renew", Call::Renew, &[&signed(self.member.session), &ttl, &heard]).await?;
        rows.iter().map(read).collect()
    }

    /// The same a while later, on another connection: on the first one, a request may wait for somebody else's transaction.
    async fn ask_apart(&self, known: &[(PlaceId, u64)]) -> Result<Vec<Option<Broken>>> {
        let clock = &self.link.clock;
        clock.sleep_until(clock.now().after(self.member.opening.patience() / PART)).await;
        match apart(&self.member.config, Some(&self.member.opening)).await {
            Ok(connection) => self.ask(&connection, known).await,
            // Then the first one is the only hope.
            Err(_) => future::pending().await,
        }
    }

    async fn close(&self) -> Result<()> {
        if self.member.hub.over() != Over::There {
            let connection = self.link.connection().await?;
            let places: Vec<PlaceId> = self
                .member
                .hub
                .by_name()
                .into_iter()
                .flat_map(|(name, ids)| ids.into_iter().map(move |request| PlaceId { name: name.clone(), request }))
                .collect();
            for some in places.chunks(CLOSES) {
                future::try_join_all(some.iter().map(|place| self.give_up(&connection, place))).await?;
            }
            connection.call("close session", Call::Close, &[&signed(self.member.session)]).await?;
            self.member.hub.close();
        }
        self.link.hang_up();
        Ok(())
    }

    /// What was given up is not asked for again when closing is cut off and tried once more.
    async fn give_up(&self, connection: &Connection, place: &PlaceId) -> Result<()> {
        self.member.leave(connection, place, self.member.hub.seq(place.request)).await?;
        self.member.hub.forget(place.request);
        Ok(())
    }
}

fn read(row: &Row) -> Result<Option<Broken>> {
    let told = || -> Result<_, tokio_postgres::Error> {
        let (seq, name): (i64, String) = (row.try_get(0)?, row.try_get(1)?);
        let (client, number): (i64, i64) = (row.try_get(2)?, row.try_get(3)?);
        Ok((seq, name, RequestId { client: unsigned(client), number: unsigned(number) }, row.try_get::<_, String>(4)?))
    };
    let unreadable = |_| strange("renew");
    let (seq, name, request, reason) = told().map_err(unreadable)?;
    let Ok(grant) = u64::try_from(seq) else { return Ok(None) };
    let name = Name::new(name).map_err(|_: Error| strange("renew"))?;
    Ok(Some(Broken { place: PlaceId { name, request }, grant, reason: reason.into() }))
}

pub(super) struct PostgresSession(pub(super) Arc<Core<Member>>);

impl Session for PostgresSession {
    fn over(&self) -> Option<Loss> {
        self.0.member.hub.cause()
    }

    fn enter(&self, entry: Arc<Entry>) -> BoxFuture<'_, Result<Entered>> {
        Box::pin(enter(&self.0, entry))
    }

    fn withdraw<'a>(&'a self, name: &'a Name, id: RequestId) -> BoxFuture<'a, Result<()>> {
        Box::pin(self.0.withdraw(name, id))
    }

    fn renew<'a>(&'a self, places: &'a dyn PlaceList) -> BoxFuture<'a, Result<Renewal>> {
        Box::pin(self.0.renew(places))
    }

    fn close(&self) -> BoxFuture<'_, Result<()>> {
        Box::pin(self.0.close())
    }
}
