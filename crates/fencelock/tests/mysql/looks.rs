//! When a waiter looks again: behind a holder of the whole capacity, `fencelock__front` reads no other holder.

use any::{ASKS, Place, Queue, TTL_HOURS};
use mysql_async::Conn;
use mysql_async::prelude::Queryable;

use crate::batch::{lab, open};

#[path = "../looks/mod.rs"]
mod any;

impl Queue for Conn {
    const SHORTENS: bool = false;

    async fn begin(&mut self) {
        for table in ["place", "queue", "session"] {
            self.query_drop(format!("DELETE FROM fencelock_{table}")).await.unwrap();
        }
        for session in 1..=ASKS {
            open(self, session).await;
        }
        let ttl = format!("UPDATE fencelock_session SET ttl = {TTL_HOURS} * 3600000000");
        self.query_drop(ttl).await.unwrap();
    }

    async fn enter(&mut self, session: u64, number: u64, weight: u64, capacity: u64) -> Vec<i64> {
        let enter = format!("CALL fencelock_enter({session}, 1, 'job', 7, {number}, {weight}, {capacity}, 1, 0, NULL)");
        let (answer, one, two): (i64, Option<i64>, Option<i64>) = self.query_first(enter).await.unwrap().unwrap();
        vec![answer, one.unwrap_or_default(), two.unwrap_or_default()]
    }

    async fn look(&mut self, _: u64, seq: i64) -> i64 {
        let look = format!("CALL fencelock_look({ASKS}, '[[\"6a6f62\",{seq}]]')");
        let answer: String = self.query_first(look).await.unwrap().unwrap();
        answer.split(',').nth(1).and_then(|look_in| look_in.parse().ok()).unwrap()
    }

    async fn end_in(&mut self, session: u64, hours: Option<i64>) {
        let end = match hours {
            None => format!("DELETE FROM fencelock_session WHERE id = {session}"),
            Some(hours) => format!(
                "UPDATE fencelock_session SET expires = UNIX_TIMESTAMP(SYSDATE(6)) * 1000000 + ({hours} * 60 + 30) * 60000000 WHERE id = {session}"
            ),
        };
        self.query_drop(end).await.unwrap();
    }

    async fn places(&mut self) -> Vec<Place> {
        let asked = "SELECT p.session, p.number, p.granted, CAST(FLOOR((s.expires / 1000000 - UNIX_TIMESTAMP(SYSDATE(6))) / 3600) AS SIGNED)
            FROM fencelock_place AS p LEFT JOIN fencelock_session AS s ON s.id = p.session ORDER BY p.seq";
        let place = |(session, number, is_granted, hours): (u64, u64, bool, Option<i64>)| Place {
            session,
            number,
            is_granted,
            hours: hours.filter(|hours| *hours >= 0),
        };
        self.query_map(asked, place).await.unwrap()
    }
}

#[tokio::test]
async fn a_waiter_looks_again_when_the_first_session_can_be_dead_whose_death_lets_a_waiter_in() {
    any::check(&mut lab().await).await;
}
