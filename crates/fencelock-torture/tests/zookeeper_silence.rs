//! Servers of ZooKeeper that fall silent and keep their connections, as a process that was stopped does, or a host whose packets are lost.

use std::time::Duration;

use fencelock::{Client, Guard};
use fencelock_testbed::zookeeper::{Ensemble, Settings};

/// How many hold a lock at once, each idle.
const HOLDERS: usize = 12;

fn block_on<T>(test: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap().block_on(test)
}

/// Idle holders with the default ttl and every other default, at different phases of their renewals.
async fn holders(ensemble: &Ensemble, parent: &str) -> Vec<(Client, Guard)> {
    let url = format!("zk://{}{parent}", ensemble.connect_string());
    let mut holders = Vec::new();
    for number in 0..HOLDERS {
        let client = Client::connect(&url).await.unwrap();
        let guard = client.mutex(format!("job-{number}")).unwrap().acquire().await.unwrap();
        holders.push((client, guard));
        tokio::time::sleep(Duration::from_millis(10_000 / 6 / HOLDERS as u64)).await;
    }
    holders
}

/// How many kept their locks of those that were connected to the server that fell silent, and how many these were.
async fn kept(ensemble: &Ensemble, silent: usize, holders: &[(Client, Guard)]) -> (usize, usize) {
    let at = ensemble.server(silent).word("cons").unwrap();
    let met = at.lines().filter(|line| line.contains("sid=0x")).count();
    ensemble.server(silent).pause();
    // Longer than certainty lasts without a renewal.
    tokio::time::sleep(Duration::from_secs(9)).await;
    let lost = holders.iter().filter(|(_, guard)| guard.check().is_err()).count();
    ensemble.server(silent).resume();
    (met.saturating_sub(lost), met)
}

/// Each follower in turn falls silent, `rounds` times; everybody keeps its lock.
fn silence(servers: usize, rounds: usize) {
    // The ticks of the servers are as long as clients presume.
    let settings = Settings { servers, tick_ms: 2000, sync_limit: 5, ..Settings::default() };
    let ensemble = Ensemble::start(settings.with("forceSync", "no")).unwrap();
    block_on(async {
        let (mut all_kept, mut all_met) = (0, 0);
        for round in 0..rounds {
            let holders = holders(&ensemble, &format!("/round-{round}")).await;
            let followers = ensemble.followers();
            let (kept, met) = kept(&ensemble, followers[round % followers.len()], &holders).await;
            println!("round {round}: {kept} of {met} kept their locks");
            (all_kept, all_met) = (all_kept + kept, all_met + met);
            ensemble.wait_until_serving().unwrap();
            for (client, guard) in holders {
                let _ = guard.release().await;
                let _ = client.close().await;
            }
        }
        assert!(all_met > 0, "nobody was connected to a server that fell silent");
        assert_eq!(all_kept, all_met, "kept, of those who met the silence");
    });
}

#[test]
fn idle_holders_with_the_default_ttl_survive_the_silence_of_one_follower_of_three() {
    silence(3, rounds(2));
}

#[test]
fn idle_holders_with_the_default_ttl_survive_the_silence_of_one_follower_of_five() {
    silence(5, rounds(1));
}

/// `FENCELOCK_SILENCES` plays more of them, by hand.
fn rounds(usual: usize) -> usize {
    std::env::var("FENCELOCK_SILENCES").ok().and_then(|rounds| rounds.parse().ok()).unwrap_or(usual)
}
