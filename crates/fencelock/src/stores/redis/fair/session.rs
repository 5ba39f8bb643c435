//! A session: its places, and the requests that join, withdraw and renew.

use std::sync::Arc;

use futures_core::future::BoxFuture;
use futures_util::future;

use super::member::Member;
use super::scripts::{self, BUCKETS_PER_CALL, Renewed};
use crate::error::{ErrorKind, Result};
use crate::kit::own_places::over;
use crate::kit::served::{Core, HeldIn, Over, Places, enter, portions};
use crate::name::Name;
use crate::store::{Entered, Entry, Loss, PlaceId, PlaceList, Renewal, RequestId, Session};
use crate::stores::redis::wire::Connection;

/// How many requests of a session that is closed are on their way at once. The server serves others in between: of one client it
/// takes in a few of these at a time, at 8 KiB and a millisecond each.
const CLOSES: usize = 8;

impl Core<Member> {
    async fn renew(&self, places: &dyn PlaceList) -> Result<Renewal> {
        let connection = self.link.connection().await?;
        let sent = self.link.clock.now();
        self.alive("renew")?;
        let (known, held) = (self.member.hub.broken(), self.member.hub.held_in());
        let mut portions: Vec<&[HeldIn]> = held.chunks(BUCKETS_PER_CALL).collect();
        if portions.is_empty() {
            portions.push(&[]);
        }
        // All of it is on its way at once, so that it takes one round trip.
        let calls = portions.iter().map(|portion| self.renew_portion(&connection, portion, &known));
        let lives = future::try_join_all(calls).await;
        // Whatever became of it: its answer is not waited for.
        self.member.janitor.call();
        if lives?.contains(&false) {
            self.member.hub.end(Over::There, Loss::Expired);
            return Err(over("renew"));
        }
        self.member.confirm(sent);
        self.member.hub.acknowledged(&known);
        Ok(Renewal { gone: self.member.hub.gone(places), ..Renewal::at(sent) })
    }

    /// Renews, and asks for some of the buckets in which the session holds; says whether it lives.
    async fn renew_portion(&self, connection: &Connection, held: &[HeldIn], known: &[(PlaceId, u64)]) -> Result<bool> {
        let renew = scripts::renew(&self.member.layout, self.member.session, self.member.opening.ttl, held, known);
        let Renewed::Alive { broken, lost } = connection.run("renew", &renew).await? else { return Ok(false) };
        broken.into_iter().for_each(|broken| self.member.hub.told_broken(broken));
        for lost in lost {
            if let Some(held) = held.get(lost.index) {
                tracing::warn!(bucket = held.bucket, loss = %Loss::Removed, "a bucket of names was lost, and the locks in it");
                self.member.hub.lost_bucket(*held, lost.born);
            }
        }
        Ok(true)
    }

    /// Gives up these places, and the session with the last of them. What was given up is not asked for again when this is cut off and
    /// tried once more.
    async fn give_up(&self, connection: &Connection, mut left: Vec<Places>) -> Result<()> {
        let last = left.pop().unwrap_or_default();
        for batch in left.chunks(CLOSES) {
            future::try_join_all(batch.iter().map(|portion| self.give_up_portion(connection, portion, false))).await?;
        }
        self.give_up_portion(connection, &last, true).await
    }

    /// A name that somebody broke is passed over: without the session, nobody holds it.
    async fn give_up_portion(
        &self,
        connection: &Connection,
        portion: &[(Name, Vec<RequestId>)],
        last: bool,
    ) -> Result<()> {
        let close = scripts::close(&self.member.layout, self.member.session, portion, last);
        match connection.run("close session", &close).await {
            Ok(()) => portion.iter().flat_map(|(_, ids)| ids).for_each(|id| self.member.hub.forget(*id)),
            // The script went on with the other names.
            Err(error) if error.kind() == ErrorKind::Layout => {
                tracing::warn!(%error, "places could not be given up");
            }
            Err(error) => return Err(error),
        }
        Ok(())
    }

    async fn close(&self) -> Result<()> {
        if self.member.hub.over() != Over::There {
            let connection = self.link.connection().await?;
            // The server may have told meanwhile that there is nothing to close; closing is repeatable.
            self.give_up(&connection, portions(self.member.hub.by_name())).await?;
            self.member.hub.close();
        }
        self.link.hang_up();
        Ok(())
    }
}

pub(super) struct RedisSession(pub(super) Arc<Core<Member>>);

impl Session for RedisSession {
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
