//! Answers that are lost, and requests that are late.

use fencelock_testbed::Way;
use fencelock_testbed::redis::Server;

use crate::lab::{acquired, acquiring, soon, until};
use crate::masters::{Masters, busy, takes_ours};
use crate::plain::asked;

/// The masters whose answers are lost, in turn. Each turn waits for renewals, so all of them run at once.
const BROKEN: [&[usize]; 4] = [&[0], &[1, 3], &[0, 2, 4], &[0, 1, 2, 3, 4]];

#[tokio::test]
async fn an_answer_that_is_lost_at_any_step_costs_no_lock_and_leaves_nothing() {
    futures_util::future::join_all(BROKEN.map(answers_are_lost)).await;
}

async fn answers_are_lost(broken: &[usize]) {
    let masters = Masters::new(5);
    // A renewal comes every ten seconds.
    let client = masters.client(30_000).await;
    let cuts = || masters.proxies.iter().map(fencelock_testbed::Proxy::cuts).sum::<u64>();
    for bytes in [0, 2] {
        let cut = || {
            for index in broken {
                masters.proxies[*index].cut_after(bytes, Way::Down);
            }
        };
        // At the grant.
        cut();
        let before = cuts();
        let guard = takes_ours(&client, "job").await;
        until("an answer is cut", async || cuts() > before).await;
        guard.check().unwrap();
        masters.proxies.iter().for_each(|proxy| proxy.heal());
        // At a renewal.
        let before = cuts();
        cut();
        until("an answer is cut", async || cuts() > before).await;
        guard.check().unwrap();
        masters.proxies.iter().for_each(|proxy| proxy.heal());
        // At the release.
        cut();
        soon(guard.release()).await.unwrap();
        masters.proxies.iter().for_each(|proxy| proxy.heal());
        masters.until_free("job").await;
    }
}

#[tokio::test]
async fn a_grant_that_comes_after_its_request_was_refused_is_given_up() {
    let masters = Masters::new(5);
    let client = masters.client(60_000).await;
    masters.taken_by_another("job", [0, 1, 2]);
    let late = &masters.servers[3..];
    let before: Vec<i64> = late.iter().map(asked).collect();
    masters.proxies[3..].iter().for_each(|proxy| proxy.hold(Way::Up));
    busy(&client, "job").await;
    let is_there = |server: &Server| server.ask(&["EXISTS", "job"]).unwrap().number().unwrap() == 1;
    assert!(!late.iter().any(is_there));
    masters.proxies[3..].iter().for_each(fencelock_testbed::Proxy::release);
    // The request arrives, and then what takes it back.
    until("it was asked for and given up", async || {
        late.iter().zip(&before).all(|(server, before)| asked(server) >= before + 2)
    })
    .await;
    until("only the other's is left", async || masters.having("job") == 3).await;
}

#[tokio::test]
async fn a_grant_that_comes_after_the_lock_was_released_is_given_up() {
    let masters = Masters::new(5);
    let client = masters.client(60_000).await;
    masters.proxies[4].hold(Way::Up);
    for _ in 0..3 {
        takes_ours(&client, "job").await.release().await.unwrap();
    }
    let before = asked(&masters.servers[4]);
    masters.proxies[4].release();
    until("all that was late arrived", async || asked(&masters.servers[4]) >= before + 6).await;
    masters.until_free("job").await;
}

/// A server that does not know the script is taught it, and asked again: meanwhile the attempt may be given up, and deleted there.
#[tokio::test]
async fn a_grant_of_a_server_that_was_taught_the_script_after_the_refusal_is_given_up() {
    let masters = Masters::new(5);
    // A remaining key would outlive the test.
    let client = masters.client(600_000).await;
    masters.taken_by_another("job", [0, 1, 2]);
    masters.servers[4].ask(&["SCRIPT", "FLUSH"]).unwrap();
    // The server has the script that deletes, and not yet the script that tries.
    takes_ours(&client, "another").await.release().await.unwrap();
    masters.until_free("another").await;
    masters.proxies[4].hold(Way::Up);
    let before = asked(&masters.servers[3]);
    let waits = acquiring(&client, "job");
    // `SET`, the deletion, and the same for a try.
    until("it was tried for", async || asked(&masters.servers[3]) >= before + 4).await;
    masters.proxies[4].release();
    until("only the other's is left", async || masters.having("job") == 3).await;
    masters.freed_by_another("job");
    acquired(waits).await.release().await.unwrap();
    masters.until_free("job").await;
}

#[tokio::test]
async fn an_acquire_that_is_dropped_leaves_nothing() {
    let masters = Masters::new(5);
    let client = masters.client(60_000).await;
    for number in 0..20 {
        let mutex = client.mutex("job").unwrap();
        let mut acquire = Box::pin(mutex.acquire());
        let patience = std::time::Duration::from_micros(150 * number);
        let acquired = tokio::time::timeout(patience, &mut acquire).await;
        drop(acquired);
        drop(acquire);
    }
    masters.until_free("job").await;
    takes_ours(&client, "job").await.release().await.unwrap();
}
