//! When a waiter looks again: `enter` reads the first two places alone where they decide, and all holders elsewhere.

use any::{ASKS, Place, Queue, TTL_HOURS};

use crate::lab::database;
use crate::side::{Request, Side};

#[path = "../looks/mod.rs"]
mod any;

impl Queue for Side {
    const SHORTENS: bool = true;

    async fn begin(&mut self) {
        Side::begin(self).await;
        let more = "INSERT INTO $schema.session SELECT 3 + n, expires, ttl, epoch, bell, host, pid, client
            FROM $schema.session, generate_series(1, 3) AS n WHERE id = 3";
        self.run(more).await;
        self.run(&format!("UPDATE $schema.session SET ttl = '{TTL_HOURS} hours'")).await;
    }

    async fn enter(&mut self, session: u64, number: u64, weight: u64, capacity: u64) -> Vec<i64> {
        let [number, weight, capacity] = [number, weight, capacity].map(u64::cast_signed);
        let ask = Request { name: "job".into(), number, weight, capacity, wait: true, ..Request::default() };
        self.alone(session.cast_signed(), 1, &ask).await.0
    }

    async fn look(&mut self, number: u64, seq: i64) -> i64 {
        let look = format!(
            "SELECT r_look_in FROM one.look({ASKS}, ARRAY['job'], ARRAY[1], ARRAY[{ASKS}]::bigint[], ARRAY[{number}]::bigint[], ARRAY[{seq}])"
        );
        self.user.query_one(&look, &[]).await.unwrap().get(0)
    }

    async fn end_in(&mut self, session: u64, hours: Option<i64>) {
        let end = match hours {
            None => format!("DELETE FROM $schema.session WHERE id = {session}"),
            Some(hours) => format!(
                "UPDATE $schema.session SET expires = clock_timestamp() + interval '{hours} hours 30 minutes' WHERE id = {session}"
            ),
        };
        self.run(&end).await;
    }

    async fn places(&mut self) -> Vec<Place> {
        let asked = "SELECT p.session, p.number, p.granted, floor(extract(epoch FROM s.expires - clock_timestamp()) / 3600)::bigint
            FROM one.place AS p LEFT JOIN one.session AS s ON s.id = p.session ORDER BY p.seq";
        let place = |row: &tokio_postgres::Row| Place {
            session: row.get::<_, i64>(0).cast_unsigned(),
            number: row.get::<_, i64>(1).cast_unsigned(),
            is_granted: row.get(2),
            hours: row.get::<_, Option<i64>>(3).filter(|hours| *hours >= 0),
        };
        self.user.query(asked, &[]).await.unwrap().iter().map(place).collect()
    }
}

#[tokio::test]
async fn a_waiter_looks_again_when_the_first_session_can_be_dead_whose_death_lets_a_waiter_in() {
    let (url, _) = database();
    any::check(&mut Side::new(&url, "one").await).await;
}
