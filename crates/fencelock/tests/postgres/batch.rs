//! Batches: several requests of a session in one transaction, each answered as if it had come alone.

use std::collections::HashSet;
use std::future::poll_fn;
use std::time::Instant;

use fastrand::Rng;
use fencelock_testbed::postgres::Settings;
use futures_util::future::{join, join_all, try_join};
use tokio::sync::mpsc::UnboundedReceiver;
use tokio_postgres::{AsyncMessage, Client, NoTls};

use crate::lab::{
    AS_CLIENTS, LONG, acquire, acquiring, client, connection, database, server, soon, until, until_queued, with,
};
use crate::side::{Request, Side, turn};

/// Requests at random, from a fixed seed.
struct Mix {
    random: Rng,
    number: i64,
    entered: Vec<(i64, Request)>,
    left: HashSet<(i64, i64)>,
}

impl Mix {
    fn requests(&mut self, session: i64) -> Vec<Request> {
        let count = 1 + self.random.u64(..16);
        (0..count).map(|_| self.request(session)).collect()
    }

    fn request(&mut self, session: i64) -> Request {
        let mine: Vec<_> = self.entered.iter().filter(|(whose, _)| *whose == session).collect();
        let known = (!mine.is_empty()).then(|| mine[self.random.usize(..mine.len())].1.clone());
        let kind = self.random.u64(..10);
        if let Some(known) = known.filter(|known| kind < 5 && !self.left.contains(&(session, known.number))) {
            if kind == 4 {
                return Request { again: true, ..known };
            }
            self.left.insert((session, known.number));
            return Request { kind: if kind < 3 { 1 } else { 2 }, ..known };
        }
        self.number += 1;
        let name = self.random.u64(..7);
        let capacity = if name < 4 { 1 } else { 3 - (self.random.u64(..12) / 11) as i64 };
        let weight = 1 + self.random.u64(..capacity as u64) as i64;
        let wait = self.random.u64(..4) > 0;
        let name = format!("name {name}");
        let request = Request { name, number: self.number, weight, capacity, wait, ..Request::default() };
        self.entered.push((session, request.clone()));
        request
    }
}

/// A holder that no client awaits leaves without the bucket's lock, and grants the lock to no other client.
#[tokio::test]
async fn no_client_waits_behind_a_holder_that_is_leaving() {
    let (url, _) = database();
    let (side, leaving) = (Side::new(&url, "one").await, connection(&url).await);
    side.begin().await;
    let ask = |number| Request { name: "job".into(), number, weight: 1, capacity: 1, wait: true, ..Request::default() };
    let (held, _) = side.alone(1, 1, &ask(1)).await;
    let leave = format!("SELECT one.leave_unrung(1, 'job', 1, 1, {}, false)", held[1]);
    leaving.batch_execute(AS_CLIENTS).await.unwrap();
    leaving.batch_execute(&format!("BEGIN; {leave}")).await.unwrap();
    assert_eq!(side.alone(2, 1, &ask(2)).await.0, [6, 0, 0]);
    leaving.batch_execute("ROLLBACK").await.unwrap();
    assert_eq!(side.alone(2, 1, &ask(2)).await.0[0], 1);
    leaving.batch_execute(&leave).await.unwrap();
    assert_eq!(side.queues().await, "job 2 2 t 1 1");
}

/// A holder is there when the end of the queue is read, and leaves before the client waits.
#[tokio::test]
async fn no_client_waits_for_a_holder_that_left_since_the_queue_was_read() {
    const LEAVES: i64 = 46;
    let (url, _) = database();
    let (side, leaving, test) =
        (Side::new(&url, "one").await, connection(&url).await, Side { user: connection(&url).await, schema: "one" });
    leaving.batch_execute(AS_CLIENTS).await.unwrap();
    // The request stops between the two, until the test has had the holder leave.
    let pause = format!(
        "ALTER FUNCTION $schema._front(integer, text, bigint, timestamptz) RENAME TO _front_of_all;
        CREATE FUNCTION $schema._front(integer, text, bigint, timestamptz)
        RETURNS TABLE (is_dead boolean, boundary timestamptz, is_ahead boolean, has_room boolean) LANGUAGE plpgsql AS $$ BEGIN
            PERFORM pg_advisory_xact_lock_shared({LEAVES});
            RETURN QUERY SELECT * FROM $schema._front_of_all($1, $2, $3, $4);
        END $$"
    );
    test.run(&pause).await;
    // The capacity, and the weights of the holder that stays, the holder that leaves, and the request.
    for (capacity, stays, leaves, asks) in [(1, 0, 1, 1), (3, 1, 2, 2)] {
        side.begin().await;
        let enter = |session: i64, weight: i64| {
            format!("SELECT one.enter({session}, 1, 'job', {session}, 1, {weight}, {capacity}, true, false, NULL)")
        };
        let mut seqs: Vec<i64> = Vec::new();
        for (session, weight) in [(1, stays), (2, leaves)].into_iter().filter(|(_, weight)| *weight > 0) {
            seqs = leaving.query_one(&enter(session, weight), &[]).await.unwrap().get(0);
            assert_eq!(seqs[0], 0);
        }
        test.run(&format!("SELECT pg_advisory_lock({LEAVES})")).await;
        let ask = Request { name: "job".into(), number: 1, weight: asks, capacity, wait: true, ..Request::default() };
        let leave = async {
            let stopped = "SELECT count(*) FROM pg_locks AS l JOIN pg_database AS d ON d.oid = l.database
                WHERE d.datname = current_database() AND l.locktype = 'advisory' AND NOT l.granted";
            until("the request stops", async || test.user.query_one(stopped, &[]).await.unwrap().get::<_, i64>(0) == 1)
                .await;
            let leave = format!("SELECT one.leave_unrung(2, 'job', 2, 1, {}, false)", seqs[1]);
            let left: Vec<i64> = leaving.query_one(&leave, &[]).await.unwrap().get(0);
            assert_eq!(left, [1]);
            test.run(&format!("SELECT pg_advisory_unlock({LEAVES})")).await;
        };
        let ((answer, _), ()) = join(side.alone(3, 1, &ask), leave).await;
        assert_eq!(answer, [6, 0, 0]);
        assert_eq!(side.alone(3, 1, &ask).await.0[0], 0);
    }
}

/// While a place waits behind it, a grant is awaited, so that its release grants the lock to the next place.
#[tokio::test]
async fn each_release_grants_the_next_place_alone_and_in_a_batch_and_with_another_number_it_is_none() {
    let (url, _) = database();
    let side = Side::new(&url, "one").await;
    for way in ["alone", "together", "one by one"] {
        side.begin().await;
        side.set_taken(way == "one by one").await;
        let ask = Request { name: "job".into(), number: 1, weight: 1, capacity: 1, wait: true, ..Request::default() };
        let mut seqs = Vec::new();
        for session in 1..=3 {
            seqs.push(side.alone(session, 1, &ask).await.0[1]);
        }
        let leave = async |session: i64, seq: i64| {
            let leave = Request { kind: 1, seq: Some(seq), ..ask.clone() };
            let answer = match way {
                "alone" => side.alone(session, 1, &leave).await.0,
                _ => side.batch(session, 1, &[leave]).await.unwrap(),
            };
            (answer[0], side.queues().await)
        };
        let queues =
            ["job 1 1 t 1 1\njob 2 1 f 1 1\njob 3 1 f 1 1", "job 2 1 t 1 1\njob 3 1 f 1 1", "job 3 1 t 1 1", ""];
        for (session, seq) in (1..).zip(seqs) {
            let at = session as usize;
            assert_eq!(leave(session, seq + 1000).await, (0, queues[at - 1].to_owned()), "{way}");
            assert_eq!(leave(session, seq).await, (1, queues[at].to_owned()), "{way}");
        }
    }
}

/// A request of before a withdrawal, or of an older connection, has an older epoch.
#[tokio::test]
async fn a_late_request_joins_no_queue_alone_and_in_a_batch() {
    let (url, _) = database();
    let side = Side::new(&url, "one").await;
    side.begin().await;
    side.run("SELECT $schema.resume(1, 3600000)").await;
    let ask = |name: &str| {
        let name = name.to_owned();
        Request { name, number: 1, weight: 1, capacity: 1, wait: true, ..Request::default() }
    };
    assert_eq!(side.alone(2, 1, &ask("held")).await.0[0], 0);
    for name in ["free", "held"] {
        assert_eq!(side.alone(1, 1, &ask(name)).await.0, [4, 2, 0], "{name}");
        for is_taken in [false, true] {
            side.set_taken(is_taken).await;
            assert_eq!(side.batch(1, 1, &[ask(name)]).await.unwrap(), [4, 2, 0], "{name}, {is_taken}");
        }
    }
    assert_eq!(side.queues().await, "held 2 1 t 1 1");
}

#[tokio::test]
async fn each_request_of_a_batch_is_answered_as_if_it_had_come_alone() {
    let (url, _) = database();
    let (one, all) = (Side::new(&url, "one").await, Side::new(&url, "everything").await);
    let holders = [connection(&url).await, connection(&url).await];
    for seed in 0..20 {
        let mut mix = Mix { random: Rng::with_seed(seed), number: 0, entered: Vec::new(), left: HashSet::new() };
        one.begin().await;
        all.begin().await;
        for step in 0..8 {
            if step == 4 {
                // A session dies, and a transaction holds a grant.
                for (side, holder) in [&one, &all].into_iter().zip(&holders) {
                    side.run("UPDATE $schema.session SET expires = clock_timestamp() WHERE id = 3").await;
                    let hold = "BEGIN; SELECT $schema.hold(name, seq) FROM $schema.place WHERE granted AND session = 1 ORDER BY name, seq LIMIT 1";
                    holder.batch_execute(&hold.replace("$schema", side.schema)).await.unwrap();
                }
            }
            let session = 1 + mix.random.u64(..3) as i64;
            let requests = mix.requests(session);
            let late = i64::from(mix.random.u64(..12) == 0);
            let (single, batch) = (one.with_seqs(session, &requests).await, all.with_seqs(session, &requests).await);
            let (epoch, other) = (one.epoch(session).await - late, all.epoch(session).await - late);
            assert_eq!(epoch, other, "seed {seed}, step {step}");
            let (mut expected, mut grants) = (vec![Vec::new(); single.len()], Vec::new());
            for at in 0..3 {
                for (request, expected) in single.iter().zip(&mut expected).filter(|(request, _)| turn(request) == at) {
                    let (answer, granted) = one.alone(session, epoch, request).await;
                    *expected = answer;
                    grants.extend(granted);
                }
            }
            all.set_taken(mix.random.bool()).await;
            let (answers, granted) = all.batch_and_grants(session, epoch, &batch).await.unwrap();
            assert_eq!((answers.len(), granted), (3 * batch.len(), grants), "seed {seed}, step {step}: {requests:?}");
            for ((request, expected), answer) in single.iter().zip(&expected).zip(answers.chunks(3)) {
                let compared = if request.kind == 0 && expected[0] < 2 { 1 } else { 3 };
                let what = format!("seed {seed}, step {step}: {request:?} of {requests:?}");
                assert_eq!(answer[..compared], expected[..compared], "{what}");
            }
            assert_eq!(all.queues().await, one.queues().await, "seed {seed}, step {step}: {requests:?}");
        }
        for holder in &holders {
            holder.batch_execute("ROLLBACK").await.unwrap();
        }
    }
}

#[tokio::test]
async fn batches_of_two_sessions_over_the_same_names_never_deadlock() {
    let (url, _) = database();
    let (one, other) = (Side::new(&url, "fencelock").await, Side::new(&url, "fencelock").await);
    one.begin().await;
    let run = async |side: &Side, session: i64| {
        let mut random = Rng::with_seed(session as u64);
        for round in 0..1000_i64 {
            let enter = |at| {
                let name = format!("name {}", random.u64(..40));
                Request {
                    name,
                    number: round * 10 + at,
                    weight: 1,
                    capacity: 1,
                    wait: at % 3 == 0,
                    ..Request::default()
                }
            };
            let mut requests: Vec<_> = (0..8).map(enter).collect();
            let answers = soon(side.batch(session, 1, &requests)).await?;
            for (request, answer) in requests.iter_mut().zip(answers.chunks(3)) {
                (request.kind, request.seq) = (1, Some(answer[1]).filter(|_| answer[0] < 2));
            }
            requests.retain(|request| request.seq.is_some());
            if !requests.is_empty() {
                let answers = soon(side.batch(session, 1, &requests)).await?;
                assert!(answers.chunks(3).all(|answer| *answer == [1, 0, 0]), "{answers:?}");
            }
        }
        Ok::<_, tokio_postgres::Error>(())
    };
    try_join(run(&one, 1), run(&other, 2)).await.unwrap();
    assert_eq!(one.queues().await, "");
}

/// A connection that listens to a bell, and what it receives.
async fn listening(url: &str, bell: &str) -> (Client, UnboundedReceiver<String>) {
    let (ear, mut wire) = tokio_postgres::connect(url, NoTls).await.unwrap();
    let (told, heard) = tokio::sync::mpsc::unbounded_channel();
    tokio::spawn(async move {
        while let Some(Ok(message)) = poll_fn(|cx| wire.poll_message(cx)).await {
            if let AsyncMessage::Notification(said) = message {
                // The test may have ended.
                let _ = told.send(said.payload().to_owned());
            }
        }
    });
    ear.batch_execute(&format!("SELECT fencelock.listen('{bell}')")).await.unwrap();
    (ear, heard)
}

/// The first release of a client does without the procedure that notifies, and the next ones call it.
#[tokio::test]
async fn each_release_notifies_the_session_that_it_grants_the_lock() {
    let (url, _) = database();
    let (holder, waiter) = (client(&url, LONG).await, client(&url, LONG).await);
    let user = connection(&url).await;
    for round in 0..3 {
        let guard = acquire(&holder, "job").await;
        let waiting = acquiring(&waiter, "job");
        until_queued(&holder, "job", 2).await;
        let asked = "SELECT bell, seq FROM fencelock.place AS p JOIN fencelock.session AS s ON s.id = p.session WHERE NOT granted";
        let row = user.query_one(asked, &[]).await.unwrap();
        let (_ear, mut heard) = listening(&url, row.get(0)).await;
        guard.release().await.unwrap();
        let said = soon(heard.recv()).await.unwrap();
        assert!(
            said.starts_with("n job\ng ") && said.ends_with(&format!(" {}", row.get::<_, i64>(1))),
            "{round}: {said}"
        );
        soon(waiting).await.unwrap().unwrap().release().await.unwrap();
    }
}

/// A transaction of the caller's own is not ended: the sessions are notified when it commits.
#[tokio::test]
async fn a_batch_notifies_the_session_that_it_grants_a_lock_after_the_commit() {
    let (url, _) = database();
    let side = Side::new(&url, "fencelock").await;
    side.begin().await;
    let (_ear, mut heard) = listening(&url, "fencelock_0000000000000002").await;
    let enter = |name: &str| Request {
        name: name.to_owned(),
        number: 1,
        weight: 1,
        capacity: 1,
        wait: true,
        ..Request::default()
    };
    let direct =
        Side { user: connection(&with(&url, "options=-c%20fencelock.direct%3Don")).await, schema: "fencelock" };
    direct.run(AS_CLIENTS).await;
    for (user, name) in [(&direct, "a"), (&side, "b")] {
        let (mut held, waiting) = (enter(name), enter(name));
        held.seq = Some(side.batch(1, 1, std::slice::from_ref(&held)).await.unwrap()[1]);
        let waits = side.batch(2, 1, &[waiting]).await.unwrap();
        assert_eq!(waits[0], 1);
        held.kind = 1;
        assert_eq!(user.batch(1, 1, &[held]).await.unwrap(), [1, 0, 0]);
        let expected = format!("n {name}\ng 0000000000000002-1 {}", waits[1]);
        assert_eq!(soon(heard.recv()).await.unwrap(), expected);
    }
}

/// How often the server ran these functions, on a server that counts calls.
async fn calls(user: &Client, functions: &str) -> i64 {
    let asked = "SELECT coalesce(sum(calls), 0)::bigint FROM pg_stat_user_functions WHERE funcname = ANY (string_to_array($1, ' '))";
    user.query_one(asked, &[&functions]).await.unwrap().get(0)
}

#[tokio::test]
async fn releases_call_the_procedure_that_notifies_only_while_other_sessions_wait() {
    const CYCLES: i64 = 10;
    let own = server(Settings::default());
    own.sql("postgres", "ALTER ROLE fencelock SET track_functions = 'all'").unwrap();
    let (one, other) = (client(&own.url(), LONG).await, client(&own.url(), LONG).await);
    let user = connection(&own.url()).await;
    let cycles = async || {
        for _ in 0..CYCLES {
            soon(acquire(&one, "free").await.release()).await.unwrap();
        }
    };
    cycles().await;
    until("the server counted releases", async || calls(&user, "leave_unrung").await == CYCLES).await;
    assert_eq!(calls(&user, "leave ring").await, 0);
    let (guard, waiting) = (acquire(&one, "job").await, acquiring(&other, "job"));
    until_queued(&one, "job", 2).await;
    soon(guard.release()).await.unwrap();
    soon(waiting).await.unwrap().unwrap().release().await.unwrap();
    cycles().await;
    until("the server counted calls", async || calls(&user, "leave").await == CYCLES).await;
    assert_eq!(calls(&user, "ring").await, 1);
}

/// The answer to a release lists grants of the same session, so the client needs neither a notification nor a look.
#[tokio::test]
async fn a_lock_passes_within_a_client_without_a_notification() {
    const ROUNDS: i64 = 20;
    let own = server(Settings::default());
    own.sql("postgres", "ALTER ROLE fencelock SET track_functions = 'all'").unwrap();
    let (client, user) = (client(&own.url(), LONG).await, connection(&own.url()).await);
    let pass = async |_: i64| {
        let lock = client.mutex("job").unwrap();
        for _ in 0..ROUNDS {
            soon(lock.acquire()).await.unwrap().release().await.unwrap();
        }
    };
    let began = Instant::now();
    join_all((0..10).map(pass)).await;
    until("the server counted releases", async || calls(&user, "leave_unrung").await >= ROUNDS).await;
    let (notified, looks) = (calls(&user, "ring notify").await, calls(&user, "look").await);
    // Waiters look for lost messages about once a second.
    let most = 20 + 2 * began.elapsed().as_secs() as i64;
    assert!(notified == 0 && looks <= most, "{notified} notifications, {looks} looks");
}

/// With more steps, and batches that arrive late: `tests/deep/postgres/batch.rs`.
#[tokio::test]
async fn in_every_order_of_two_steps_of_two_sessions_a_batch_is_answered_as_its_requests_are() {
    let states = crate::model::check_all(2, false).await;
    assert!(states > 50, "{states} states");
}
