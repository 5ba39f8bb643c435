//! Notes on locks: rows that a procedure writes which looks whether the grant is current.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use mysql_async::{Row, Value};

use super::connection::{Connection, column, strange};
use crate::error::Result;
use crate::name::Name;
use crate::store::{Note, NoteOrder, NoteRead, Owner, PlaceId};
use crate::token::FencingToken;

pub(super) async fn write(connection: &Connection, order: &NoteOrder) -> Result<bool> {
    let PlaceId { name, request } = &order.grant.place;
    // No grant of ours is without a token, and none is there before the tables.
    let Some(token) = order.grant.token.filter(|_| connection.has_schema()) else { return Ok(false) };
    let arguments: Vec<Value> = vec![
        name.as_str().into(),
        request.client.into(),
        request.number.into(),
        token.get().into(),
        order.value.as_deref().into(),
        order.ttl.map(|ttl| u64::try_from(ttl.as_micros()).unwrap_or(u64::MAX)).into(),
    ];
    let answer = connection.ask("note", "write_note", arguments).await?;
    // Of a grant without a session, there is no answer.
    Ok(column::<Option<i64>>("note", &answer, 0)? == Some(1))
}

pub(super) async fn read(connection: &Connection, name: &Name) -> Result<NoteRead> {
    if !connection.has_schema() {
        let asked = "SELECT CAST(UNIX_TIMESTAMP(SYSDATE(6)) * 1000000 AS SIGNED)";
        let rows = connection.simple("note", asked).await?;
        let now = moment(rows.first().ok_or_else(|| strange("note"))?, 0)?;
        return Ok(NoteRead { note: None, now });
    }
    let row = connection.ask("note", "read_note", vec![name.as_str().into()]).await?;
    let note = column::<Option<Vec<u8>>>("note", &row, 1)?.map(|value| note_of(&row, &value)).transpose()?;
    Ok(NoteRead { note, now: moment(&row, 0)? })
}

fn note_of(row: &Row, value: &[u8]) -> Result<Note> {
    let number = |at| column::<u64>("note", row, at);
    let pid = u32::try_from(number(4)?).map_err(|_| strange("note"))?;
    let ends = column::<Option<u64>>("note", row, 7)?.is_some();
    Ok(Note {
        value: value.into(),
        token: FencingToken::new(number(2)?),
        owner: Owner { host: column("note", row, 3)?, pid, client: number(5)? },
        written: moment(row, 6)?,
        expires: if ends { Some(moment(row, 7)?) } else { None },
    })
}

/// A time of the server, in microseconds.
fn moment(row: &Row, at: usize) -> Result<SystemTime> {
    let us = Duration::from_micros(column("note", row, at)?);
    UNIX_EPOCH.checked_add(us).ok_or_else(|| strange("note"))
}
