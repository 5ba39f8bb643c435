//! Batches of requests, called as a session calls them, compared with the same requests one by one.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use fastrand::Rng;
use fencelock::mysql::Schema;
use mysql_async::prelude::Queryable;
use mysql_async::{Conn, OptsBuilder, Row};

use crate::lab::{connection, database, migrated, transactions, until};

#[derive(Debug, Clone)]
struct Request {
    /// 0 enter, 1 leave, 2 withdraw.
    kind: u64,
    name: String,
    number: u64,
    /// Whether a leave says the number of the place.
    has_seq: bool,
    weight: u64,
    capacity: u64,
    waits: bool,
    again: bool,
}

impl Request {
    fn at_random(dice: &mut Rng, names: u64, newest: &mut u64) -> Self {
        let kind = [0, 0, 0, 1, 1, 1, 1, 2][usize::try_from(dice.u64(..8)).unwrap()];
        let name = dice.u64(..names);
        let permits = if dice.u64(..20) == 0 { 5 } else { [1, 1, 3][usize::try_from(name % 3).unwrap()] };
        let number = if kind == 0 && dice.u64(..6) > 0 {
            *newest += 1;
            *newest
        } else {
            newest.saturating_sub(dice.u64(..12))
        };
        Self {
            kind,
            name: format!("job/{name}"),
            number,
            has_seq: dice.u64(..4) > 0,
            weight: 1 + dice.u64(..permits),
            capacity: permits,
            waits: dice.u64(..4) > 0,
            again: dice.u64(..3) == 0,
        }
    }

    /// The request as JSON.
    fn json(&self, seq: Option<i64>) -> String {
        let Self { kind, name, number, weight, capacity, .. } = self;
        let (seq, waits, again) = (null(seq), u8::from(self.waits), u8::from(self.again));
        let hex = name.bytes().fold(String::new(), |mut hex, byte| {
            write!(hex, "{byte:02x}").unwrap();
            hex
        });
        format!("[{kind},\"{hex}\",7,{number},{seq},{weight},{capacity},{waits},{again},null]")
    }

    fn call(&self, session: u64, epoch: u64, seq: Option<i64>) -> String {
        let Self { kind, name, number, weight, capacity, waits, again, .. } = self;
        match kind {
            0 => format!(
                "CALL fencelock_enter({session}, {epoch}, '{name}', 7, {number}, {weight}, {capacity}, {waits}, {again}, NULL)"
            ),
            1 => format!("CALL fencelock_leave({session}, '{name}', 7, {number}, {})", null(seq).to_uppercase()),
            _ => format!("CALL fencelock_batch({session}, {epoch}, '[{}]')", self.json(seq)),
        }
    }
}

fn null(number: Option<i64>) -> String {
    number.map_or("null".to_owned(), |number| number.to_string())
}

/// A database with sessions of the numbers 1 to 3.
pub(crate) async fn lab() -> Conn {
    let url = database();
    migrated(async || Schema::of(&url).unwrap().migrate(&[]).await).await;
    let mut conn = connection(&url).await;
    settle(&mut conn).await;
    for session in 1..=3 {
        open(&mut conn, session).await;
    }
    conn
}

async fn settle(conn: &mut Conn) {
    conn.query_drop("SET time_zone = '+00:00', innodb_lock_wait_timeout = 30").await.unwrap();
    conn.query_drop("SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED").await.unwrap();
}

pub(crate) async fn open(conn: &mut Conn, session: u64) {
    let open = format!("CALL fencelock_open({session}, 'fencelock_{session:016}', 3600000000, 'h', 1, {session})");
    conn.query_drop(open).await.unwrap();
}

/// The number of the place of this request in this database.
async fn seq(conn: &mut Conn, request: &Request) -> Option<i64> {
    let Request { name, number, .. } = request;
    let seq = format!("SELECT MAX(seq) FROM fencelock_place WHERE name = '{name}' AND number = {number}");
    conn.query_first::<Option<i64>, _>(seq).await.unwrap().flatten().filter(|_| request.has_seq)
}

/// An answer, and the numbers of places in it as the requests to which they belong; without the times.
async fn read(conn: &mut Conn, request: &Request, answer: &[Option<i64>]) -> String {
    let answer: Vec<i64> = answer.iter().flatten().copied().collect();
    let place =
        format!("SELECT CONCAT(number, '/', granted) FROM fencelock_place WHERE name = '{}' AND seq = ", request.name);
    match (request.kind, &answer[..]) {
        (0, [kind @ (0 | 1), seq, look_in @ ..]) => {
            assert_eq!(look_in.len(), usize::from(*kind == 1), "{request:?}: {answer:?}");
            // A later request of the batch may have given the place up, or had it granted.
            assert!(*seq > 0);
            format!("place {}", kind * i64::from(look_in.first().is_none_or(|look_in| *look_in > 0)))
        }
        (0, [4, epoch]) => format!("stale {}", *epoch > 1),
        (0, _) => format!("{answer:?}"),
        (_, [2, epoch, seq]) => {
            let held: Option<String> = conn.query_first(format!("{place}{seq}")).await.unwrap();
            format!("held {held:?} {}", *epoch > 0)
        }
        (_, [left, epoch, 0]) => format!("left {left} {}", *epoch > 0),
        _ => panic!("{request:?}: {answer:?}"),
    }
}

/// Everything that is in the queues, in the order of the places.
async fn places(conn: &mut Conn) -> Vec<Row> {
    let places = "SELECT CAST(p.name AS CHAR), p.session, p.number, p.granted, p.weight, p.capacity FROM fencelock_place AS p \
        JOIN fencelock_queue AS q ON q.b = p.b AND q.name = p.name AND p.seq >= q.head JOIN fencelock_bucket AS b ON b.b = p.b AND b.last >= p.seq ORDER BY p.name, p.seq";
    let counts = "SELECT (SELECT COUNT(*) FROM fencelock_place), (SELECT COUNT(*) FROM fencelock_queue), (SELECT COUNT(DISTINCT name) FROM fencelock_place)";
    let rows: Vec<Row> = conn.query(places).await.unwrap();
    let (all, queues, names): (usize, usize, usize) = conn.query_first(counts).await.unwrap().unwrap();
    assert_eq!(
        (rows.len(), queues),
        (all, names),
        "places without a queue, or behind its head, or queues without places"
    );
    let alone = "SELECT COUNT(*) FROM fencelock_queue AS q WHERE NOT shared AND (SELECT COUNT(*) FROM fencelock_place AS p WHERE p.b = q.b AND p.name = q.name) <> 1";
    assert_eq!(conn.query_first::<u64, _>(alone).await.unwrap(), Some(0), "a queue of several that is not shared");
    rows
}

/// The grants that a departure lists, as the numbers of their requests.
fn granted(told: &str) -> Vec<u64> {
    let mut granted: Vec<u64> =
        told.split_terminator(',').map(|place| place.split('-').nth(1).unwrap().parse().unwrap()).collect();
    granted.sort_unstable();
    granted
}

async fn ask_as_batch(conn: &mut Conn, session: u64, epoch: u64, requests: &[Request]) -> (Vec<String>, Vec<u64>) {
    let mut json = Vec::new();
    for request in requests {
        let seq = seq(conn, request).await;
        json.push(request.json(seq));
    }
    let call = format!("CALL fencelock_batch({session}, {epoch}, '[{}]')", json.join(","));
    let (answers, told): (String, String) = conn.query_first(call).await.unwrap().unwrap();
    let answers: Vec<&str> = answers.split(';').collect();
    assert_eq!(answers.len(), requests.len());
    let mut read_answers = Vec::new();
    for (request, answer) in requests.iter().zip(answers) {
        let numbers: Vec<Option<i64>> = answer.split(',').map(|number| number.parse().ok()).collect();
        read_answers.push(read(conn, request, &numbers).await);
    }
    (read_answers, granted(&told))
}

async fn ask_one_by_one(conn: &mut Conn, session: u64, epoch: u64, requests: &[Request]) -> (Vec<String>, Vec<u64>) {
    let (mut answers, mut told) = (Vec::new(), Vec::new());
    let mut seqs = Vec::new();
    for request in requests {
        seqs.push(seq(conn, request).await);
    }
    for (request, seq) in requests.iter().zip(seqs) {
        let row: Row = conn.query_first(request.call(session, epoch, seq)).await.unwrap().unwrap();
        let numbers: Vec<Option<i64>> = match request.kind {
            2 => row.get::<String, _>(0).unwrap().split(',').map(|number| number.parse().ok()).collect(),
            _ => (0..3).map(|at| row.get(at).unwrap()).collect(),
        };
        answers.push(read(conn, request, &numbers).await);
        if request.kind > 0 {
            told.extend(granted(&row.get::<String, _>(row.len() - 1).unwrap()));
        }
    }
    told.sort_unstable();
    (answers, told)
}

#[tokio::test]
async fn a_batch_answers_and_leaves_behind_what_the_same_requests_do_one_by_one() {
    for seed in 1..=4 {
        let (mut dice, mut newest) = (Rng::with_seed(seed), 0);
        let mut labs = [lab().await, lab().await];
        let mut holders = Vec::new();
        for conn in &labs {
            let mut holder = Conn::new(conn.opts().clone()).await.unwrap();
            settle(&mut holder).await;
            holders.push(holder);
        }
        for round in 0..150 {
            let session = 1 + dice.u64(..3);
            let count = 1 + dice.u64(..12);
            let names = 2 + dice.u64(..24);
            let mut requests: Vec<Request> = Vec::new();
            for _ in 0..count {
                let request = Request::at_random(&mut dice, names, &mut newest);
                // A session has one request of a number on its way.
                if requests.iter().all(|other| other.number != request.number) {
                    requests.push(request);
                }
            }
            let is_stale = dice.u64(..8) == 0;
            let (mut answers, mut left) = (Vec::new(), Vec::new());
            let (dies, quiet, holds) = (dice.u64(..15) == 0, dice.u64(..25) == 0, dice.u64(..4) == 0);
            for (at, (conn, holder)) in labs.iter_mut().zip(&mut holders).enumerate() {
                let epoch = format!("SELECT epoch FROM fencelock_session WHERE id = {session}");
                let epoch: u64 = conn.query_first(epoch).await.unwrap().unwrap();
                let epoch = if is_stale && epoch > 1 { 1 } else { 1 << 40 };
                if dies {
                    conn.query_drop(format!("UPDATE fencelock_session SET expires = 1 WHERE id = {}", 1 + session % 3))
                        .await
                        .unwrap();
                }
                if quiet {
                    conn.query_drop("UPDATE fencelock_layout SET quiet_until = 9000000000000000").await.unwrap();
                }
                if holds {
                    holder.query_drop("BEGIN").await.unwrap();
                    let hold = "SELECT COUNT(*) FROM fencelock_place WHERE granted AND number % 2 LOCK IN SHARE MODE";
                    holder.query_drop(hold).await.unwrap();
                }
                let asked = if at == 0 {
                    ask_as_batch(conn, session, epoch, &requests).await
                } else {
                    ask_one_by_one(conn, session, epoch, &requests).await
                };
                answers.push(asked);
                holder.query_drop("ROLLBACK").await.unwrap();
                conn.query_drop("UPDATE fencelock_layout SET quiet_until = 0").await.unwrap();
                left.push(places(conn).await);
                conn.query_drop(format!("DELETE FROM fencelock_session WHERE id = {} AND {dies}", 1 + session % 3))
                    .await
                    .unwrap();
                for session in 1..=3 {
                    open(conn, session).await;
                }
            }
            let what = format!("seed {seed}, round {round}: session {session}, {requests:#?}");
            assert_eq!(answers[0], answers[1], "{what}");
            assert_eq!(format!("{:?}", left[0]), format!("{:?}", left[1]), "{what}");
        }
    }
}

/// A transaction of another client locks every other row of the tables meanwhile.
#[tokio::test]
async fn a_batch_waits_for_no_row_of_another_name_or_session() {
    let mut conn = lab().await;
    conn.query_drop("SET innodb_lock_wait_timeout = 1").await.unwrap();
    for session in 4..=9 {
        open(&mut conn, session).await;
    }
    let enter = |session: u64, names: std::ops::Range<u64>| {
        let hex = |name: u64| format!("{:02x}", name);
        let enters: Vec<String> =
            names.map(|name| format!("[0,\"{}\",7,{},null,1,1,1,0,null]", hex(name), session * 1000 + name)).collect();
        format!("CALL fencelock_batch({session}, 1, '[{}]')", enters.join(","))
    };
    // Sessions 1 to 3 wait behind 9 at three names; session 4 holds other names.
    for (session, names) in [(9, 65..85), (1, 65..66), (2, 66..67), (3, 67..68), (4, 85..105)] {
        conn.query_drop(enter(session, names)).await.unwrap();
    }
    let mut other = Conn::new(conn.opts().clone()).await.unwrap();
    settle(&mut other).await;
    other.query_drop("BEGIN").await.unwrap();
    for rows in [
        "bucket WHERE b NOT IN (SELECT CONV(LEFT(SHA2(UNHEX(CONV(n, 10, 16)), 256), 3), 16, 10) FROM JSON_TABLE('[65,66,67,68,69,70,71,72,73,74,75,76,77,78,79,80,81,82,83,84,110,111,112]', '$[*]' COLUMNS (n INT PATH '$')) AS j)",
        "session WHERE id IN (4, 5, 6, 7, 8)",
        "place WHERE session = 4",
    ] {
        other.query_drop(format!("SELECT * FROM fencelock_{rows} FOR UPDATE")).await.unwrap();
    }
    let seqs: Vec<(String, u64, i64)> =
        conn.query("SELECT HEX(name), number, seq FROM fencelock_place WHERE session = 9").await.unwrap();
    let leaves = seqs.iter().map(|(name, number, seq)| format!("[1,\"{name}\",7,{number},{seq}]"));
    let enters = (110..113).map(|name| format!("[0,\"{name:02x}\",7,{name},null,1,1,1,0,null]"));
    let requests: Vec<String> = leaves.chain(enters).collect();
    let call = format!("CALL fencelock_batch(9, 1, '[{}]')", requests.join(","));
    let (answers, _): (String, String) = conn.query_first(call).await.unwrap().unwrap();
    assert_eq!(answers.matches("1,0,0").count(), 20, "{answers}");
    let rung: Vec<u64> = conn.query("SELECT rung FROM fencelock_session ORDER BY id").await.unwrap();
    assert_eq!(rung, [1, 1, 1, 0, 0, 0, 0, 0, 0]);
}

#[tokio::test]
async fn a_batch_locks_its_buckets_in_the_order_of_their_numbers() {
    let mut conn = lab().await;
    let names: Vec<String> = (0..64).map(|name| format!("{name:02}")).collect();
    let bucket = "SELECT CAST(CONV(LEFT(SHA2(?, 256), 3), 16, 10) AS SIGNED)";
    let mut buckets: Vec<u64> = Vec::new();
    for name in &names {
        buckets.push(conn.exec_first(bucket, (name,)).await.unwrap().unwrap());
    }
    buckets.sort_unstable();
    buckets.dedup();
    let (mut other, mut third) =
        (Conn::new(conn.opts().clone()).await.unwrap(), Conn::new(conn.opts().clone()).await.unwrap());
    settle(&mut third).await;
    let middle = buckets[buckets.len() / 2];
    other.query_drop("BEGIN").await.unwrap();
    other.query_drop(format!("SELECT * FROM fencelock_bucket WHERE b = {middle} FOR UPDATE")).await.unwrap();
    let enters: Vec<String> = names
        .iter()
        .enumerate()
        .map(|(number, name)| {
            let hex: String = name.bytes().map(|byte| format!("{byte:02x}")).collect();
            format!("[0,\"{hex}\",7,{number},null,1,1,1,0,null]")
        })
        .collect();
    let call = format!("CALL fencelock_batch(1, 1, '[{}]')", enters.join(","));
    let batch = tokio::spawn(async move { conn.query_first::<Row, _>(call).await.unwrap() });
    let last_before = buckets[buckets.len() / 2 - 1];
    until("the batch has the bucket before that", async || {
        let taken =
            third.query_drop(format!("SELECT * FROM fencelock_bucket WHERE b = {last_before} FOR UPDATE NOWAIT")).await;
        taken.is_err()
    })
    .await;
    let free = "SELECT b FROM fencelock_bucket FOR UPDATE SKIP LOCKED";
    let free: Vec<u64> = third.query(free).await.unwrap();
    let locked: Vec<u64> = buckets.iter().copied().filter(|bucket| !free.contains(bucket)).collect();
    assert_eq!(locked, buckets[..=buckets.len() / 2]);
    assert_eq!(free.len() + locked.len(), 4096);
    other.query_drop("ROLLBACK").await.unwrap();
    assert!(batch.await.unwrap().is_some());
}

#[tokio::test]
async fn two_sessions_whose_batches_cross_buckets_never_deadlock() {
    let mut first = lab().await;
    let second = Conn::new(first.opts().clone()).await.unwrap();
    let admin_opts = first.opts().clone();
    let mut sessions = tokio::task::JoinSet::new();
    settle(&mut first).await;
    for (session, mut conn) in [(1, first), (2, second)] {
        sessions.spawn(async move {
            settle(&mut conn).await;
            let (mut dice, mut newest, mut seqs) = (Rng::with_seed(session), session << 32, BTreeMap::new());
            for _ in 0..1_500 {
                let mut requests: Vec<Request> = Vec::new();
                for _ in 0..1 + dice.u64(..16) {
                    let request = Request::at_random(&mut dice, 30, &mut newest);
                    if requests.iter().all(|other| other.number != request.number) {
                        requests.push(request);
                    }
                }
                let json = requests.iter().map(|request| request.json(seqs.get(&request.number).copied()));
                let json: Vec<String> = json.collect();
                let call = format!("CALL fencelock_batch({session}, {}, '[{}]')", 1_u64 << 40, json.join(","));
                let (answers, _): (String, String) = conn.query_first(call).await.unwrap().unwrap();
                for (request, answer) in requests.iter().zip(answers.split(';')) {
                    if let ("0", Some(seq)) = (&answer[..1], answer.split(',').nth(1)) {
                        seqs.insert(request.number, seq.parse().unwrap());
                    }
                }
            }
        });
    }
    while let Some(ended) = sessions.join_next().await {
        ended.unwrap();
    }
    places(&mut Conn::new(admin_opts).await.unwrap()).await;
}

/// A single place leaves without the bucket's lock. A change under the bucket's lock sees all of that release or nothing of it, and the
/// other way round.
#[tokio::test]
async fn a_release_without_the_bucket_and_an_arrival_see_all_of_each_other_or_nothing() {
    let mut admin = lab().await;
    let mut other = Conn::new(admin.opts().clone()).await.unwrap();
    let root = OptsBuilder::from_opts(admin.opts().clone()).user(Some("root")).pass(None::<String>);
    let mut root = Conn::new(root).await.unwrap();
    let enter = |session: u64, name: &str, waits: bool| {
        format!("CALL fencelock_enter({session}, 1, '{name}', 7, {session}, 1, 2, {waits}, FALSE, NULL)")
    };
    for name in ["gone", "kept", "shared"] {
        admin.query_drop(enter(1, name, true)).await.unwrap();
    }
    for (name, ends, answer) in [("gone", "COMMIT", "[0, 1]"), ("kept", "ROLLBACK", "[0, 2]")] {
        other.query_drop("BEGIN").await.unwrap();
        for table in ["queue", "place"] {
            other.query_drop(format!("DELETE FROM fencelock_{table} WHERE name = '{name}'")).await.unwrap();
        }
        let mut arriving = Conn::new(admin.opts().clone()).await.unwrap();
        settle(&mut arriving).await;
        let (id, call) = (arriving.id(), enter(2, name, false));
        let arrival = tokio::spawn(async move { arriving.query_first::<Row, _>(call).await.unwrap().unwrap() });
        let waits = format!("trx_state = 'LOCK WAIT' AND trx_mysql_thread_id = {id}");
        until("the arrival waits", async || transactions(&mut root, &waits).await == 1).await;
        other.query_drop(ends).await.unwrap();
        let granted: i64 = arrival.await.unwrap().get(0).unwrap();
        assert_eq!(format!("{:?}", [granted, places_of(&mut admin, name).await]), answer, "{name}");
    }
    // As an arrival that waits.
    other.query_drop("BEGIN").await.unwrap();
    for change in [
        "UPDATE fencelock_bucket SET last = last + 1 WHERE b = (SELECT b FROM fencelock_queue WHERE name = 'shared')",
        "UPDATE fencelock_queue SET shared = TRUE WHERE name = 'shared'",
        "INSERT INTO fencelock_place SELECT b, name, seq + 1, FALSE, weight, capacity, 2, 7, 2, since, purpose FROM fencelock_place WHERE name = 'shared'",
    ] {
        other.query_drop(change).await.unwrap();
    }
    let mut leaving = Conn::new(admin.opts().clone()).await.unwrap();
    settle(&mut leaving).await;
    let seq: i64 = admin.query_first("SELECT seq FROM fencelock_place WHERE name = 'shared'").await.unwrap().unwrap();
    let (id, call) = (leaving.id(), format!("CALL fencelock_leave(1, 'shared', 7, 1, {seq})"));
    let release = tokio::spawn(async move { leaving.query_first::<Row, _>(call).await.unwrap().unwrap() });
    let waits = format!("trx_state = 'LOCK WAIT' AND trx_mysql_thread_id = {id}");
    until("the release waits", async || transactions(&mut root, &waits).await == 1).await;
    other.query_drop("COMMIT").await.unwrap();
    assert_eq!(release.await.unwrap().get::<i64, _>(0), Some(1));
    let granted = "SELECT granted FROM fencelock_place WHERE name = 'shared'";
    assert_eq!(admin.query::<bool, _>(granted).await.unwrap(), [true]);
    places(&mut admin).await;
}

async fn places_of(conn: &mut Conn, name: &str) -> i64 {
    places(conn).await;
    let count = format!("SELECT COUNT(*) FROM fencelock_place WHERE name = '{name}'");
    conn.query_first(count).await.unwrap().unwrap()
}
