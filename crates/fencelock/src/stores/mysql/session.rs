//! Our own layout as MariaDB has it. Everything else of a session is `kit/database/session.rs`.

use std::collections::HashMap;
use std::sync::{Arc, Weak};
use std::time::Duration;

use super::CAPABILITY;
use super::bell::listen;
use super::connection::{Connection, column};
use super::fault::cut_short;
use super::link::Mysql;
use crate::error::Result;
use crate::kit::database::batch::{Request, RequestKind};
use crate::kit::database::call::{Calls, Cell, Param, Row, strange};
use crate::kit::database::dialect::Dialect;
use crate::kit::database::ear::Ear;
use crate::kit::database::session::{Departed, FairSession, departed};
use crate::kit::served::PlacesByName;
use crate::name::Name;
use crate::store::{Capability, Outline, PlaceId, RequestId};

/// The most tries of a release that a transaction delays; each follows the end of that transaction.
const TRIES: usize = 4;

pub(super) type MysqlSession = FairSession<Mysql>;

fn granted(listed: &str) -> Option<Vec<(RequestId, u64)>> {
    let place = |place: &str| {
        let mut numbers = place.split('-').map(|number| number.parse().ok());
        let (client, number, seq) = (numbers.next()??, numbers.next()??, numbers.next()??);
        numbers.next().is_none().then_some((RequestId { client, number }, seq))
    };
    listed.split_terminator(',').map(place).collect()
}

impl Dialect for Mysql {
    const CAPABILITY: &'static Capability = &CAPABILITY;
    const UNIT: Duration = Duration::from_micros(1);
    const LONGEST_TTL: u64 = u64::MAX / 8;
    const POLL: Duration = Duration::from_millis(500);
    const SHOW: &'static [Param<'static>] = &[Param::Number(0)];
    const KEPT: &'static str = "another transaction keeps the row of this grant, which cannot end before it; information_schema.innodb_trx shows it";

    fn batch(requests: &[Request]) -> Vec<Param<'_>> {
        let requests: Vec<String> = requests.iter().map(json).collect();
        vec![format!("[{}]", requests.join(",")).into()]
    }

    fn batched(row: &Row) -> Option<Vec<Vec<i64>>> {
        row.text(0).ok()?.split(';').map(numbers).collect()
    }

    /// A separate connection waits for the row alone, without the bucket's lock, so that other names are not delayed.
    async fn leave_in_time(session: &MysqlSession, place: &PlaceId, seq: Option<u64>) -> Result<bool> {
        let connection = session.apart().await?;
        let mut kept_seq = seq;
        for _ in 0..TRIES {
            let awaited = vec![place.name.as_str().into(), kept_seq.into()];
            if let Err(error) = connection.ask("leave", "await", awaited).await {
                return Err(Self::kept("leave", &place.name).with("cause", error));
            }
            let leave = Request { place: place.clone(), kind: RequestKind::Leave(kept_seq) };
            match departed(&session.ask_alone(&connection, &leave).await?) {
                Some(Departed { found: 2, kept, .. }) => kept_seq = kept,
                left => return Ok(left.is_some_and(|left| left.found == 1)),
            }
        }
        Err(Self::kept("leave", &place.name))
    }

    fn take_granted(row: &mut Row) -> Result<Vec<(RequestId, u64)>> {
        let told = granted(row.text(row.cells.len() - 1)?).ok_or_else(|| row.strange());
        row.cells.pop();
        told
    }

    fn look<'a>(asked: &'a PlacesByName, seqs: &[Vec<u64>]) -> Vec<Param<'a>> {
        let names = asked.iter().zip(seqs).map(|((name, _), seqs)| {
            let seqs: String = seqs.iter().map(|seq| format!(",{seq}")).collect();
            format!("[{}{seqs}]", hex(name.as_str()))
        });
        vec![format!("[{}]", names.collect::<Vec<_>>().join(",")).into()]
    }

    fn looked(rows: &[Row]) -> Result<Option<Vec<i64>>> {
        let row = rows.first().ok_or_else(|| cut_short("look"))?;
        let answer = row.bytes(0)?.ok_or_else(|| cut_short("look"))?;
        let numbers = str::from_utf8(answer).ok().and_then(numbers).ok_or_else(|| strange("look"))?;
        let (alive, numbers) = numbers.split_first().ok_or_else(|| strange("look"))?;
        Ok((*alive != 0).then(|| numbers.to_vec()))
    }

    fn count<'a>(name: &'a Name, mine: &[RequestId]) -> Vec<Param<'a>> {
        let ids: Vec<String> = mine.iter().map(|id| format!("{}-{}", id.client, id.number)).collect();
        vec![name.as_str().into(), ids.join(",").into()]
    }

    fn counted(rows: &[Row], mine: &[RequestId]) -> Result<Outline> {
        let (first, found) = rows.split_first().ok_or_else(|| strange("contention"))?;
        let count = |row: &Row, at| row.number(at).map(|count| usize::try_from(count).unwrap_or(usize::MAX));
        let mut positions = HashMap::new();
        for row in found {
            positions.insert(RequestId { client: row.number(0)?, number: row.number(1)? }, count(row, 2)?);
        }
        let positions = mine.iter().map(|id| positions.get(id).copied()).collect();
        let closed = first.bytes(4)?.map(|closed| String::from_utf8_lossy(closed).into_owned());
        Ok(Outline { holder: None, holders: count(first, 3)?, queued: count(first, 2)?, positions, closed })
    }

    async fn now(connection: &Connection) -> Result<Row> {
        let asked = "SELECT CAST(UNIX_TIMESTAMP(SYSDATE(6)) * 1000000 AS SIGNED)";
        let rows = connection.simple("note", asked).await?;
        let now = column("note", rows.first().ok_or_else(|| strange("note"))?, 0)?;
        Ok(Row { operation: "note", cells: vec![Cell::Number(now)] })
    }

    fn needs_ear(session: &MysqlSession) -> bool {
        session.places.is_waiting()
    }

    async fn listen(session: &Arc<MysqlSession>, main: &Weak<Connection>, ear: &Ear) -> Result<()> {
        listen(session, main, ear).await
    }
}

fn hex(text: &str) -> String {
    format!("\"{}\"", text.bytes().map(|byte| format!("{byte:02x}")).collect::<String>())
}

fn json(request: &Request) -> String {
    let param = |param| match param {
        Param::Number(number) => number.to_string(),
        Param::Flag(flag) => u8::from(flag).to_string(),
        Param::Text(text) => hex(&text),
        _ => "null".to_owned(),
    };
    format!("[{}]", request.params().map(param).join(","))
}

fn numbers(text: &str) -> Option<Vec<i64>> {
    text.split(',').map(|number| number.parse().ok()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_that_a_departure_granted_are_taken_apart_and_other_text_is_refused() {
        let place = |client, number| RequestId { client, number };
        assert_eq!(granted(""), Some(Vec::new()));
        assert_eq!(granted("1-2-3,4-5-6,"), Some(vec![(place(1, 2), 3), (place(4, 5), 6)]));
        for listed in ["1-2,", "1-2-3-4,", "1-2-x,", ","] {
            assert_eq!(granted(listed), None, "{listed:?}");
        }
    }
}
