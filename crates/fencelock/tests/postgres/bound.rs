//! `liveness=connection`: a session ends with its connection, and at the latest with its lease.

use std::process::{Child, Command, Stdio};

use fencelock::postgres::HOLD;
use fencelock::{Client, ErrorKind, Loss, Name};
use fencelock_testbed::postgres::{KIND, Server, Settings};
use fencelock_testbed::{Proxy, Way};

use crate::lab::{
    LONG, acquire, acquiring, bound, client, code, connection, database, queued, server, soon, until, until_queued,
};

/// Set in the process that holds a lock until it is killed: the URL.
const HOLDER: &str = "FENCELOCK_TEST_HOLDER";

/// Another process that holds `job`; killed when it is dropped.
struct Holder(Child);

impl Holder {
    /// Runs a test of this name, whose first line is that of [`held_by_this_process`].
    fn start(test: &str, url: &str) -> Self {
        let mut again = Command::new(std::env::current_exe().unwrap());
        again.args(["--exact", test, "--nocapture"]).env(HOLDER, url).stdin(Stdio::null()).stdout(Stdio::null());
        Self(again.spawn().unwrap())
    }

    fn kill(&mut self) {
        self.0.kill().unwrap();
        self.0.wait().unwrap();
    }
}

impl Drop for Holder {
    fn drop(&mut self) {
        // It may be dead already.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// In the process that a [`Holder`] is: holds the lock, and never returns.
async fn held_by_this_process() {
    let Ok(url) = std::env::var(HOLDER) else { return };
    let client = bound(&url, LONG).await;
    let _guard = acquire(&client, "job").await;
    std::future::pending().await
}

#[tokio::test]
async fn the_lock_of_a_killed_process_is_granted_to_the_next_one_long_before_the_lease_ends() {
    held_by_this_process().await;
    let (url, _) = database();
    let (leased, bound) = (client(&url, LONG).await, bound(&url, LONG).await);
    for next in [leased, bound] {
        let mut holder = Holder::start(
            "bound::the_lock_of_a_killed_process_is_granted_to_the_next_one_long_before_the_lease_ends",
            &url,
        );
        until_queued(&next, "job", 1).await;
        let waiting = acquiring(&next, "job");
        until_queued(&next, "job", 2).await;
        holder.kill();
        soon(waiting).await.unwrap().unwrap().release().await.unwrap();
    }
}

#[tokio::test]
async fn who_comes_after_the_death_of_a_holder_is_granted_at_once_and_sees_no_holder() {
    held_by_this_process().await;
    let (url, _) = database();
    let next = client(&url, LONG).await;
    let mut holder =
        Holder::start("bound::who_comes_after_the_death_of_a_holder_is_granted_at_once_and_sees_no_holder", &url);
    until_queued(&next, "job", 1).await;
    assert_eq!(next.mutex("job").unwrap().try_acquire().await.unwrap_err().kind(), ErrorKind::Busy);
    holder.kill();
    until_queued(&next, "job", 0).await;
    assert!(next.names("", None, 10).await.unwrap().is_empty());
    next.mutex("job").unwrap().try_acquire().await.unwrap().release().await.unwrap();
}

#[tokio::test]
async fn a_connection_that_ends_costs_every_lock_of_the_session_and_the_holder_is_told() {
    let own = server(Settings::default());
    let (one, other) = (bound(&own.url(), LONG).await, client(&own.url(), LONG).await);
    let guards = [acquire(&one, "job").await, acquire(&one, "another").await];
    let waiting = acquiring(&other, "job");
    until_queued(&other, "job", 2).await;
    end_connections(&own);
    for guard in &guards {
        assert_eq!(soon(guard.lost()).await, Loss::Disconnected);
    }
    soon(waiting).await.unwrap().unwrap().release().await.unwrap();
    until_queued(&other, "another", 0).await;
    // The client goes on with another session.
    acquire(&one, "job").await.release().await.unwrap();
}

#[tokio::test]
async fn sessions_of_both_kinds_stand_in_one_queue_in_the_order_of_their_arrival() {
    let (url, _) = database();
    let clients =
        [bound(&url, LONG).await, client(&url, LONG).await, bound(&url, LONG).await, client(&url, LONG).await];
    let mut waiting = Vec::new();
    for (index, client) in clients.iter().enumerate() {
        waiting.push(acquiring(client, "job"));
        until_queued(&clients[0], "job", index + 1).await;
    }
    let mut last = None;
    for next in waiting {
        let guard = soon(next).await.unwrap().unwrap();
        assert!(guard.token() > last, "{:?} after {last:?}", guard.token());
        last = guard.token();
        guard.release().await.unwrap();
    }
    // Readers and permits count those of either kind, too.
    let permit = async |client: &Client| soon(client.semaphore("pool", 2).unwrap().acquire()).await.unwrap();
    let guards = [permit(&clients[0]).await, permit(&clients[1]).await];
    let third = clients[2].semaphore("pool", 2).unwrap().try_acquire().await;
    assert_eq!(third.unwrap_err().kind(), ErrorKind::Busy);
    for guard in guards {
        guard.release().await.unwrap();
    }
}

/// Each waits for its own way in: whichever dies, the others go on.
#[tokio::test]
async fn a_waiter_whose_connection_ends_leaves_the_queue_and_lets_those_behind_it_in() {
    let own = server(Settings::default());
    let (holder, other) = (client(&own.url(), LONG).await, client(&own.url(), LONG).await);
    let dying = bound(&own.url(), LONG).await;
    let reader = holder.rwlock("page").unwrap().read().await.unwrap();
    let writer = dying.rwlock("page").unwrap();
    let writing = tokio::spawn(async move { writer.write().await });
    until_queued(&other, "page", 2).await;
    let behind = other.rwlock("page").unwrap();
    let reading = tokio::spawn(async move { behind.read().await });
    until_queued(&other, "page", 3).await;
    end_connections(&own);
    // It enters again, behind the reader that it kept waiting.
    let second = soon(reading).await.unwrap().unwrap();
    assert!(!writing.is_finished());
    reader.release().await.unwrap();
    second.release().await.unwrap();
    soon(writing).await.unwrap().unwrap().release().await.unwrap();
}

#[tokio::test]
async fn a_transaction_that_holds_the_lock_of_a_dead_holder_keeps_everybody_waiting() {
    held_by_this_process().await;
    let (url, _) = database();
    let other = bound(&url, LONG).await;
    let mut holder =
        Holder::start("bound::a_transaction_that_holds_the_lock_of_a_dead_holder_keeps_everybody_waiting", &url);
    until_queued(&other, "job", 1).await;
    let token =
        other.queue(&Name::new("job").unwrap()).await.unwrap().contenders[0].grant.unwrap().token.unwrap().to_i64();
    let user = connection(&url).await;
    user.batch_execute("BEGIN; CREATE TABLE written (by text)").await.unwrap();
    user.execute(HOLD, &[&"job", &token]).await.unwrap();
    let waiting = acquiring(&other, "job");
    until_queued(&other, "job", 2).await;
    holder.kill();
    until("it is found dead", async || queued(&other, "job").await == 1).await;
    for _ in 0..30 {
        acquire(&other, "another").await.release().await.unwrap();
    }
    assert!(!waiting.is_finished(), "a rival was granted beside a transaction that holds");
    user.batch_execute("INSERT INTO written VALUES ('the dead'); COMMIT").await.unwrap();
    soon(waiting).await.unwrap().unwrap().release().await.unwrap();
    // A new one does not begin on the grant of somebody who is gone.
    assert_eq!(code(user.execute(HOLD, &[&"job", &token]).await), "FL001");
}

/// What everybody may read says nothing by which a place could be given up, and nobody who looks keeps a lock.
#[tokio::test]
async fn the_servers_list_of_locks_shows_no_number_of_a_session_and_none_of_those_who_look() {
    let (url, _) = database();
    let (one, other) = (bound(&url, LONG).await, bound(&url, LONG).await);
    let guard = acquire(&one, "job").await;
    let waiting = acquiring(&other, "job");
    until_queued(&other, "job", 2).await;
    let user = connection(&url).await;
    let listed = "SELECT ((classid::bigint << 32) | objid::bigint) FROM pg_locks WHERE locktype = 'advisory' AND mode = 'ExclusiveLock'
        AND database = (SELECT oid FROM pg_database WHERE datname = current_database())";
    let shown: Vec<i64> = user.query(listed, &[]).await.unwrap().iter().map(|row| row.get(0)).collect();
    assert_eq!(shown.len(), 2);
    let sessions: Vec<i64> =
        user.query("SELECT id FROM fencelock.session", &[]).await.unwrap().iter().map(|row| row.get(0)).collect();
    assert!(sessions.iter().all(|session| !shown.contains(session)), "{sessions:?} {shown:?}");
    guard.release().await.unwrap();
    soon(waiting).await.unwrap().unwrap().release().await.unwrap();
    let kept = listed.replace("ExclusiveLock", "ShareLock");
    until("nobody who looked keeps a lock", async || user.query(&kept, &[]).await.unwrap().is_empty()).await;
    for client in [one, other] {
        client.close().await.unwrap();
    }
    until("a session that is closed keeps none", async || user.query(listed, &[]).await.unwrap().is_empty()).await;
}

/// The grant that nobody was told of ends with the connection, and so does not keep the client itself waiting.
#[tokio::test]
async fn a_grant_whose_answer_was_lost_with_the_connection_keeps_nobody_waiting() {
    let (url, _) = database();
    let other = client(&url, LONG).await;
    let proxy = Proxy::start(KIND.shared().address()).unwrap();
    let through = url.replace(&KIND.shared().address().to_string(), &proxy.address().to_string());
    let one = bound(&through, LONG).await;
    for cuts in 1..=5 {
        proxy.cut_after(0, Way::Down);
        acquire(&one, "job").await.release().await.unwrap();
        assert_eq!(proxy.cuts(), cuts);
        until_queued(&other, "job", 0).await;
    }
}

/// Ends the connections of all sessions that are bound to theirs.
fn end_connections(server: &Server) {
    let ended = "SELECT pg_terminate_backend(l.pid) FROM pg_locks AS l JOIN fencelock.session AS s
        ON s.bound = ((l.classid::bigint << 32) | l.objid::bigint) WHERE l.locktype = 'advisory'";
    server.sql("fencelock", ended).unwrap();
}
