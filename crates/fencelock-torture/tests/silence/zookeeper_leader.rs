//! The leader of three servers of ZooKeeper falls silent, for good or for a while: no client gets an answer until another leader is
//! elected.

use std::time::{Duration, Instant};

use crate::common::silence::{holders, rounds, settings};
use fencelock::Client;
use fencelock_testbed::Proxy;
use fencelock_testbed::zookeeper::{Ensemble, Settings};

fn start() -> Ensemble {
    Ensemble::start(Settings { max_session_timeout_ms: 120_000, ..settings(3) }).unwrap()
}

fn block_on<T>(test: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap().block_on(test)
}

/// The leader falls silent for half the ttl: until certainty would end, if no new leader were elected.
/// `FENCELOCK_LEADER_TTL` plays it with another ttl in seconds, by hand.
#[test]
fn idle_holders_with_a_ttl_of_a_minute_survive_the_silence_of_the_leader_of_three() {
    let ttl = std::env::var("FENCELOCK_LEADER_TTL").ok().and_then(|ttl| ttl.parse().ok()).unwrap_or(60);
    let ttl = Duration::from_secs(ttl);
    let ensemble = start();
    block_on(async {
        for round in 0..rounds(1) {
            let holders = holders(&ensemble, &format!("/round-{round}"), ttl).await;
            let leader = ensemble.leader();
            ensemble.server(leader).pause();
            let (start, mut least) = (Instant::now(), ttl);
            while start.elapsed() < ttl / 2 {
                let remaining = holders.iter().map(|(_, guard)| guard.remaining()).min();
                least = remaining.unwrap_or_default().min(least);
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
            ensemble.server(leader).resume();
            println!("round {round}: of certainty remained {least:?} at least");
            for (_, guard) in &holders {
                guard.check().unwrap();
            }
            ensemble.wait_until_serving().unwrap();
        }
    });
}

/// The leader gives a session to the server that asks last: a client that was welcomed by one of several must not find that out with
/// its release.
#[test]
fn locks_held_through_a_pause_of_the_leader_are_released_by_their_holders() {
    let ensemble = start();
    block_on(async {
        for round in 0..rounds(1) {
            let holders = holders(&ensemble, &format!("/round-{round}"), Duration::from_secs(24)).await;
            let leader = ensemble.leader();
            ensemble.server(leader).pause();
            // Longer than a client waits for a server that owes it an answer, and half as long as the other servers wait for the leader.
            tokio::time::sleep(Duration::from_secs(5)).await;
            ensemble.server(leader).resume();
            ensemble.wait_until_serving().unwrap();
            for (client, guard) in holders {
                guard.release().await.unwrap();
                client.close().await.unwrap();
            }
        }
    });
}

/// A follower that stands still for a moment reads afterwards the bytes that arrived meanwhile, and asks the leader for sessions that
/// other followers have long taken over. The other followers notice at their next write.
#[test]
fn a_lock_that_a_resumed_follower_takes_from_others_is_released() {
    let ensemble = start();
    let (leader, followers) = (ensemble.leader(), ensemble.followers());
    let proxy = Proxy::start(ensemble.server(leader).address()).unwrap();
    let addresses = followers.iter().map(|follower| ensemble.server(*follower).address().to_string());
    let servers: Vec<_> = addresses.chain([proxy.address().to_string()]).collect();
    let stopped = ensemble.server(followers[0]);
    block_on(async {
        let mut held = Vec::new();
        // About half of the leader's clients greet the stopped server first.
        while proxy.open_connections() < 8 {
            let client = Client::connect(&format!("zk://{}/stopped?ttl_ms=30000", servers.join(","))).await.unwrap();
            let guard = client.mutex(format!("job-{}", held.len())).unwrap().acquire().await.unwrap();
            held.push((client, guard));
        }
        stopped.pause();
        proxy.refuse();
        proxy.reset();
        tokio::time::sleep(Duration::from_secs(3)).await;
        stopped.resume();
        tokio::time::sleep(Duration::from_secs(2)).await;
        for (client, guard) in held {
            guard.release().await.unwrap();
            client.close().await.unwrap();
        }
    });
}
