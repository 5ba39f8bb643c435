//! The requests of a hand-over.

use std::cell::Cell;
use std::collections::VecDeque;
use std::time::Instant;

use fencelock::{Client, Io, Loss};

use crate::lab::{Lab, acquired, acquiring, granted, observed, reading, soon, taking, until, writing};

/// The number of requests that one release causes with `waiters` waiters, its own included.
async fn requests_of_a_release(options: &str, waiters: usize) -> u64 {
    let (server, lab) = Lab::alone().await;
    let client = lab.client(options).await;
    let mut holder = client.mutex("job").unwrap().acquire().await.unwrap();
    let mut line = Vec::new();
    for number in 0..waiters {
        line.push(acquiring(&client, "job"));
        lab.until_queued("job", number + 2).await;
    }
    let count = || server.server(0).monitor("zk_packets_received").unwrap();
    let mut least = u64::MAX;
    // Renewals fall into some rounds; the cheapest one is what the hand-over itself takes.
    for waits in line.drain(..waiters / 2) {
        // A listener has its watches once its own requests are answered, which are before this one.
        client.names("~", None, 1).await.unwrap();
        let before = count();
        holder.release().await.unwrap();
        holder = acquired(waits).await;
        client.names("~", None, 1).await.unwrap();
        least = least.min(count() - before);
    }
    least
}

/// The two requests that prove the end of the hand-over, and the one that counts.
const COUNTING: u64 = 3;

#[tokio::test]
async fn a_release_grants_one_of_the_same_session_and_asks_for_nothing_however_many_wait() {
    for waiters in [12, 100] {
        let requests = requests_of_a_release("", waiters).await;
        assert!(requests <= 1 + COUNTING, "{requests} requests with {waiters} waiters");
    }
}

/// Counts the requests of permits that are released in turn: three seats, one of which is given up in each round.
async fn a_permit_given_up_wakes_two_of(waiters: u64) {
    // The delete; the list and the mark of the granted waiter, and after 10 to 20 ms the watch on its own node; the list of the next
    // waiter, and its watches on three holders. And the two requests that prove the end of the round.
    const A_ROUND: u64 = 8 + 2;
    let (server, lab) = Lab::alone().await;
    let client = lab.client("").await;
    let seats = client.semaphore("seats", 3).unwrap();
    let mut held = VecDeque::new();
    for _ in 0..3 {
        held.push_back(seats.acquire().await.unwrap());
    }
    let mut line = Vec::new();
    for number in 0..waiters {
        line.push(taking(&client, "seats", 1, 3));
        lab.until_queued("seats", usize::try_from(number).unwrap() + 4).await;
    }
    // Each count is a packet as well.
    let counts = Cell::new(0);
    let received = || {
        counts.set(counts.get() + 1);
        server.server(0).monitor("zk_packets_received").unwrap() - counts.get()
    };
    client.names("~", None, 1).await.unwrap();
    let (start, before) = (Instant::now(), received());
    for (round, waits) in (1..).zip(line.drain(..waiters as usize / 2)) {
        held.pop_front().unwrap().release().await.unwrap();
        held.push_back(granted(waits).await);
        client.names("~", None, 1).await.unwrap();
        until("the holder's own node is watched, too", async || received() - before >= round * A_ROUND).await;
    }
    let (asked, rounds) = (received() - before, waiters / 2);
    // The watches of the first holders, and the renewals of three sessions, one each in 15 s at most.
    let besides = 3 + start.elapsed().as_secs() / 5;
    assert!(
        asked <= rounds * A_ROUND + besides,
        "{asked} requests in {rounds} rounds with {waiters} waiters, {besides} besides"
    );
}

#[tokio::test]
async fn a_permit_given_up_wakes_the_one_it_lets_in_and_the_next_however_many_wait() {
    for waiters in [20, 40] {
        a_permit_given_up_wakes_two_of(waiters).await;
    }
}

#[tokio::test]
async fn a_reader_whose_node_is_deleted_while_it_waits_is_notified_and_queues_again() {
    let lab = Lab::new().await;
    let (client, requeued) = observed(&lab.url("")).await;
    let writer = client.rwlock("page").unwrap().write().await.unwrap();
    let reads = reading(&client, "page");
    let nodes = lab.until_queued("page", 2).await;
    lab.delete(&format!("page/{}", nodes[1])).await;
    // The writer keeps its lock: no event ahead notifies the reader.
    let again = soon(async {
        loop {
            let now = lab.until_queued("page", 2).await;
            if now != nodes {
                return now;
            }
        }
    })
    .await;
    assert_eq!((&again[0], again.len()), (&nodes[0], 2));
    assert_eq!(*requeued.0.lock().unwrap(), [Loss::Removed]);
    writer.release().await.unwrap();
    granted(reads).await.release().await.unwrap();
}

#[tokio::test]
async fn a_reader_behind_two_writers_is_not_let_in_by_the_end_of_the_nearer_one() {
    let (lab, client) = Lab::with_client().await;
    let first = client.rwlock("page").unwrap().write().await.unwrap();
    let second = writing(&client, "page");
    let nodes = lab.until_queued("page", 2).await;
    let reads = reading(&client, "page");
    lab.until_queued("page", 3).await;
    second.abort();
    soon(async { while lab.children("page").await.contains(&nodes[1]) {} }).await;
    // The reader was notified of the nearer writer's end, and watches the other writer now.
    client.names("~", None, 1).await.unwrap();
    assert!(!reads.is_finished() && first.check().is_ok());
    first.release().await.unwrap();
    granted(reads).await.release().await.unwrap();
}

#[tokio::test]
async fn a_reader_lists_though_others_of_its_session_stand_still_in_the_middle_of_a_listing() {
    let lab = Lab::new().await;
    let far = lab.client("").await;
    // With this runtime each acquire is polled by its own task.
    let near = Client::builder().io(Io::CurrentRuntime).connect(&lab.url("")).await.unwrap();
    let first = far.rwlock("page").unwrap().write().await.unwrap();
    let second = writing(&far, "page");
    lab.until_queued("page", 2).await;
    let late = reading(&near, "page");
    let nodes = lab.until_queued("page", 3).await;
    near.names("~", None, 1).await.unwrap();
    // A `select!` leaves its futures in this state while its other branch works.
    let lock = near.rwlock("page").unwrap();
    let mut still: Vec<_> = (0..20).map(|_| Box::pin(lock.read())).collect();
    for acquire in &mut still {
        assert!(futures_util::poll!(acquire.as_mut()).is_pending());
    }
    second.abort();
    soon(async { while lab.children("page").await.contains(&nodes[1]) {} }).await;
    first.release().await.unwrap();
    granted(late).await.release().await.unwrap();
    drop(still);
}
