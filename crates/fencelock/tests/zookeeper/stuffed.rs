//! A stranger who fills the parent of a lock with nodes.

use fencelock::{Client, ErrorKind};

use crate::lab::{Lab, acquired, acquiring, soon, stuff};

#[tokio::test]
async fn the_next_waiter_gets_the_lock_and_a_waiter_that_has_to_list_fails_when_the_queue_does_not_fit_into_a_reply() {
    let lab = Lab::new().await;
    let url = lab.url("&max_answer_bytes=4096");
    // Each client has a session of its own, without the lists of the other clients.
    let mut clients = Vec::new();
    for _ in 0..4 {
        clients.push(Client::connect(&url).await.unwrap());
    }
    let held = soon(clients[0].mutex("job").unwrap().acquire()).await.unwrap();
    let mut waiters = Vec::new();
    for (number, client) in clients.iter().enumerate().skip(1) {
        waiters.push(acquiring(client, "job"));
        lab.until_queued("job", number + 1).await;
    }
    stuff(&lab, "job", 60, 80).await;
    // A new contender cannot list the queue ahead of it, and its try leaves nothing.
    let refused = soon(clients[0].mutex("job").unwrap().try_acquire()).await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Exhausted, "{refused}");
    soon(held.release()).await.unwrap();
    // The release grants the first waiter. Its own release then grants the second, whose listing showed both places ahead.
    let last = waiters.pop().unwrap();
    for waiter in waiters {
        soon(acquired(waiter).await.release()).await.unwrap();
    }
    let refused = soon(last).await.unwrap().unwrap_err();
    assert_eq!((refused.kind(), refused.is_retryable()), (ErrorKind::Exhausted, false), "{refused}");
    lab.until_queued("job", 60).await;
}
