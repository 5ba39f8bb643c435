//! A stranger who fills the parent of a lock with nodes.

use fencelock::{Client, ErrorKind};
use fencelock_testbed::zookeeper::shared;
use fencelock_testbed::{Proxy, Way};
use fencelock_zookeeper::CreateMode;

use crate::lab::{Lab, acquired, acquiring, soon, stuff};
use crate::older::{Manner, Older};

#[tokio::test]
async fn who_is_next_gets_the_lock_and_who_has_to_list_is_told_when_the_queue_does_not_fit_into_an_answer_any_more() {
    let lab = Lab::new().await;
    let url = lab.url("&max_answer_bytes=4096");
    // Each with a session of its own: what is learned in one session is not known in the next.
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
    // Nobody who comes now can know who is ahead, and nothing is left of it.
    let refused = soon(clients[0].mutex("job").unwrap().try_acquire()).await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Exhausted, "{refused}");
    soon(held.release()).await.unwrap();
    // The departure is the grant of the first, and that of the second, whose listing showed the two ahead of it.
    let last = waiters.pop().unwrap();
    for waiter in waiters {
        soon(acquired(waiter).await.release()).await.unwrap();
    }
    let refused = soon(last).await.unwrap().unwrap_err();
    assert_eq!((refused.kind(), refused.is_retryable()), (ErrorKind::Exhausted, false), "{refused}");
    lab.until_queued("job", 60).await;
}

/// Waits until so many nodes are under the lock `job`.
async fn until_count(lab: &Lab, count: i32) {
    soon(async {
        while lab.hands.exists(&lab.path("job")).await.unwrap().unwrap().num_children != count {
            crate::lab::pause().await;
        }
    })
    .await;
}

/// An acquire whose create takes effect and is not answered, below a parent that its session cannot list: given up, or refused.
async fn unanswered(lab: &Lab, near: &Client, proxy: &Proxy, is_given_up: bool) {
    proxy.hold(Way::Down);
    let waiting = acquiring(near, "job");
    until_count(lab, 61).await;
    if is_given_up {
        waiting.abort();
    }
    proxy.reset();
    proxy.release();
    if !is_given_up {
        let refused = soon(waiting).await.unwrap().unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::Exhausted, "{refused}");
    }
}

#[tokio::test]
async fn the_node_of_a_request_without_an_answer_is_taken_back_from_a_parent_that_cannot_be_listed() {
    for is_given_up in [false, true] {
        let lab = Lab::new().await;
        let proxy = Proxy::start(shared().address()).unwrap();
        let url = format!("zk://{}{}?tick_ms=500&ttl_ms=30000&max_answer_bytes=4096", proxy.address(), lab.parent);
        let near = Client::connect(&url).await.unwrap();
        lab.put("job/first", CreateMode::Persistent).await;
        lab.delete("job/first").await;
        stuff(&lab, "job", 60, 80).await;
        unanswered(&lab, &near, &proxy, is_given_up).await;
        until_count(&lab, 60).await;
        // Nobody is kept waiting by what was left.
        let far = lab.client("").await;
        soon(far.mutex("job").unwrap().acquire()).await.unwrap().release().await.unwrap();
    }
}

/// Requests without an answer, one after the other, on a server that tells a session its own nodes in this manner; says how often it was
/// asked for them.
async fn asked(manner: Manner, requests: usize) -> usize {
    let lab = Lab::new().await;
    let older = Older::new(shared().address(), manner).await;
    let proxy = Proxy::start(older.address).unwrap();
    let url = format!("zk://{}{}?tick_ms=500&ttl_ms=30000", proxy.address(), lab.parent);
    let near = Client::connect(&url).await.unwrap();
    lab.put("job/first", CreateMode::Persistent).await;
    lab.delete("job/first").await;
    stuff(&lab, "job", 60, 8).await;
    for _ in 0..requests {
        unanswered(&lab, &near, &proxy, true).await;
        until_count(&lab, 60).await;
    }
    soon(near.mutex("job").unwrap().acquire()).await.unwrap().release().await.unwrap();
    older.asked()
}

#[tokio::test]
async fn servers_before_3_6_have_the_parent_listed_to_take_a_request_back() {
    assert_ne!(asked(Manner::Refuses, 2).await, 0, "it was never asked");
}

#[tokio::test]
async fn what_hangs_up_on_a_request_that_it_does_not_know_has_the_parent_listed() {
    assert_ne!(asked(Manner::HangsUp, 2).await, 0, "it was never asked");
}

#[tokio::test]
async fn what_swallows_a_request_that_it_does_not_know_has_the_parent_listed() {
    assert_ne!(asked(Manner::Swallows, 1).await, 0, "it was never asked");
}

#[tokio::test]
async fn one_lost_answer_is_no_word_that_a_session_is_never_told_its_nodes() {
    let asked = asked(Manner::HangsUpOnce, 3).await;
    assert!(asked >= 4, "asked {asked} times for three requests, of which one was to be asked for again");
}
