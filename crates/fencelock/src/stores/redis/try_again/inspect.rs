//! Requests without a session: the content of a name's key, the list of names, and breaks.

use std::sync::Arc;

use super::dialect::{Dialect, Held, Marks, foreign_id, read_said};
use crate::error::{Error, ErrorKind, Result};
use crate::kit::record::{self, Record};
use crate::name::Name;
use crate::store::{Break, Contender, Expiry, Foreign, Grant, Owner, PlaceId, Waits};
use crate::stores::redis::breaks_of;
use crate::stores::redis::wire::Connection;
use crate::token::FencingToken;

/// The part of another client's value that a listing shows, in characters.
const SHOWN: usize = 64;

pub(crate) fn contender(marks: &Marks, held: &Held) -> Result<Contender> {
    let grant = Some(Grant::new(held.token));
    let ours = (marks.ours)(held).and_then(|(id, said)| Some((id, read_said(said)?)));
    if let Some((id, (owner, purpose))) = ours {
        let purpose = purpose.map(Into::into);
        return Ok(Contender { owner, grant, purpose, expiry: held.expiry, ..Contender::new(id, held.claim) });
    }
    let digest =
        foreign_id(&held.digest).ok_or_else(|| Error::new(ErrorKind::Layout, "queue", "a digest is no digest"))?;
    // The value of another client has its name for itself, and nothing more.
    let called = held.by.escape_ascii().to_string().chars().take(SHOWN).collect::<String>();
    let owner = Some(Owner::new(digest.client, called, 0));
    let what = if held.expiry == Expiry::Never { marks.endless } else { marks.foreign };
    let foreign = Some(Foreign { what, waits: Waits::Yes });
    Ok(Contender { owner, grant, foreign, expiry: held.expiry, ..Contender::new(digest, held.claim) })
}

/// Names in a page of the keys, and the cursor of the next page; `None` after the last.
pub(crate) async fn names(
    connection: &Connection,
    dialect: &Dialect,
    cursor: &str,
    prefix: &str,
) -> Result<(Vec<Name>, Option<String>)> {
    let (next, keys) = connection.run("names", &dialect.names(cursor, prefix)).await?;
    let name = |key: &Vec<u8>| {
        let key = std::str::from_utf8(key).ok().filter(|key| !dialect.is_counter(key))?;
        let name = key.strip_prefix(&*dialect.prefix)?;
        Name::new(name).ok().filter(|name| name.as_str().starts_with(prefix))
    };
    Ok((keys.iter().filter_map(name).collect(), Some(next).filter(|next| next != "0")))
}

pub(crate) async fn break_grant(connection: &Connection, dialect: &Dialect, order: &Break) -> Result<bool> {
    dialect.check_name("break", &order.place.name)?;
    let record = record::text("break", &Record::of(order))?;
    connection.run("break", &dialect.end(order, &record)).await
}

pub(crate) async fn breaks(connection: &Connection, dialect: &Dialect, name: &Name) -> Result<Vec<Break>> {
    let mut range = redis::cmd("LRANGE");
    range.arg(dialect.records_key(name)).arg(0).arg(-1);
    match connection.command("breaks", &range).await {
        Ok(records) => Ok(breaks_of(&records, name).unwrap_or_default()),
        // If the key of the records is no list, no break is recorded, and all other facts of the lock stay readable.
        Err(error) if error.kind() == ErrorKind::Layout => {
            tracing::warn!(%error, "Cannot read the records of breaks.");
            Ok(Vec::new())
        }
        Err(error) => Err(error),
    }
}

/// The reason of the break, if a user broke this place.
pub(crate) fn reason(breaks: Vec<Break>, place: &PlaceId, token: Option<FencingToken>) -> Option<Arc<str>> {
    breaks.into_iter().rfind(|order| order.grant().is_of(place, token)).map(|order| order.reason)
}
