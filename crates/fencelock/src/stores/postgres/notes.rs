//! Notes on locks: rows that a function writes which looks whether the grant is current.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use tokio_postgres::Row;

use super::connection::{Connection, strange, value};
use crate::error::Result;
use crate::name::Name;
use crate::store::{Note, NoteOrder, NoteRead, Owner, PlaceId};
use crate::token::FencingToken;

pub(super) async fn write(connection: &Connection, order: &NoteOrder) -> Result<bool> {
    let PlaceId { name, request } = &order.grant.place;
    // No grant of ours is without a token, and none is there before the schema.
    let Some(token) = order.grant.token.filter(|_| connection.has_schema()) else { return Ok(false) };
    let (client, number) = (request.client.cast_signed(), request.number.cast_signed());
    let (name, seq) = (name.as_str(), token.to_i64());
    let ttl_ms = order.ttl.map(|ttl| i64::try_from(ttl.as_millis()).unwrap_or(i64::MAX));
    let value = order.value.as_deref();
    connection.ask("note", "write_note", &[&name, &client, &number, &seq, &value, &ttl_ms]).await
}

pub(super) async fn read(connection: &Connection, name: &Name) -> Result<NoteRead> {
    if !connection.has_schema() {
        let asked = "SELECT floor(extract(epoch FROM clock_timestamp()) * 1000000)::bigint";
        let rows = connection.simple("note", asked).await?;
        let now = rows.first().and_then(|row| moment(row.get(0)?.parse().ok()?)).ok_or_else(|| strange("note"))?;
        return Ok(NoteRead { note: None, now });
    }
    let rows = connection.call("note", "read_note", &[&name.as_str()]).await?;
    let row = rows.first().ok_or_else(|| strange("note"))?;
    let now = moment(value("note", row, 0)?).ok_or_else(|| strange("note"))?;
    let note = value::<Option<&[u8]>>("note", row, 1)?.map(|text| note_of(row, text)).transpose()?;
    Ok(NoteRead { note, now })
}

fn note_of(row: &Row, text: &[u8]) -> Result<Note> {
    let number = |column| value::<i64>("note", row, column);
    let written = moment(number(6)?).ok_or_else(|| strange("note"))?;
    let ttl = value::<Option<i64>>("note", row, 7)?.map(|ms| Duration::from_millis(ms.unsigned_abs()));
    let pid = u32::try_from(number(4)?).map_err(|_| strange("note"))?;
    Ok(Note {
        value: text.into(),
        token: FencingToken::new(number(2)?.unsigned_abs()),
        owner: Owner { host: value("note", row, 3)?, pid, client: number(5)?.cast_unsigned() },
        written,
        expires: ttl.and_then(|ttl| written.checked_add(ttl)),
    })
}

/// A time of the server, in microseconds.
fn moment(us: i64) -> Option<SystemTime> {
    UNIX_EPOCH.checked_add(Duration::from_micros(u64::try_from(us).ok()?))
}
