//! Servers of ZooKeeper that fall silent and keep their connections, and idle holders that are connected to them.

use std::time::Duration;

use fencelock::{Client, Guard};
use fencelock_testbed::Network;
use fencelock_testbed::zookeeper::{Ensemble, Settings};

/// How many hold a lock at once, each idle.
const HOLDERS: u32 = 24;

const DEFAULT_TTL: Duration = Duration::from_secs(10);

/// How a server falls silent. None of them resets a connection.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Silence {
    /// The server's process is stopped. The system still accepts connections.
    Stopped,
    /// The server's packets are dropped: attempts to connect are never answered.
    BlackHole,
    /// The server's host is off the network: requests for its address get no answer.
    NoCable,
}

/// Servers whose ticks are as long as clients presume.
pub(crate) fn settings(servers: usize) -> Settings {
    Settings { servers, tick_ms: 2000, sync_limit: 5, ..Settings::default() }.with("forceSync", "no")
}

/// A follower falls silent in each round, in one of these ways; every holder keeps its lock.
pub(crate) fn every_holder_keeps_its_lock(
    ensemble: &Ensemble,
    network: Option<&Network>,
    ways: &[Silence],
    rounds: usize,
) {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    let (mut all_kept, mut all_met) = (0, 0);
    for round in 0..rounds {
        let holders = runtime.block_on(holders(ensemble, &format!("/round-{round}"), DEFAULT_TTL));
        let followers = ensemble.followers();
        let (silent, way) = (followers[round % followers.len()], ways[round % ways.len()]);
        let met = connected(ensemble, silent);
        fall_silent(ensemble, network, silent, way);
        // Longer than certainty lasts without a renewal.
        std::thread::sleep(Duration::from_secs(9));
        let lost = holders.iter().filter(|(_, guard)| guard.check().is_err()).count();
        network.map_or(Ok(()), Network::heal).unwrap();
        ensemble.server(silent).resume();
        let kept = met.saturating_sub(lost);
        println!("round {round}, {way:?}: {kept} of {met} kept their locks");
        (all_kept, all_met) = (all_kept + kept, all_met + met);
        ensemble.wait_until_serving().unwrap();
        runtime.block_on(give_back(holders));
    }
    assert!(all_met > 0, "no client was connected to a server that fell silent");
    assert_eq!(all_kept, all_met, "kept, of those who met the silence");
}

fn fall_silent(ensemble: &Ensemble, network: Option<&Network>, server: usize, way: Silence) {
    match (way, network) {
        (Silence::Stopped, _) => ensemble.server(server).pause(),
        (Silence::BlackHole, Some(network)) => network.black_hole(server).unwrap(),
        (Silence::NoCable, Some(network)) => network.pull_cable(server).unwrap(),
        (_, None) => panic!("{way:?} needs a network"),
    }
}

/// Idle holders with this ttl and every other default, at different phases of their renewals.
pub(crate) async fn holders(ensemble: &Ensemble, parent: &str, ttl: Duration) -> Vec<(Client, Guard)> {
    let servers: Vec<_> = ensemble.servers().iter().map(|server| server.address().to_string()).collect();
    let url = format!("zk://{}{parent}?ttl_ms={}", servers.join(","), ttl.as_millis());
    let mut holders = Vec::new();
    for number in 0..HOLDERS {
        let client = Client::connect(&url).await.unwrap();
        let guard = client.mutex(format!("job-{number}")).unwrap().acquire().await.unwrap();
        holders.push((client, guard));
        tokio::time::sleep(ttl / 6 / HOLDERS).await;
    }
    // A session that was opened just now is certain for longer than one that lives by renewals.
    tokio::time::sleep(ttl * 6 / 10).await;
    holders
}

async fn give_back(holders: Vec<(Client, Guard)>) {
    for (client, guard) in holders {
        let _ = guard.release().await;
        let _ = client.close().await;
    }
}

/// How many sessions are connected to this server.
fn connected(ensemble: &Ensemble, server: usize) -> usize {
    let connections = ensemble.server(server).word("cons").unwrap();
    connections.lines().filter(|line| line.contains("sid=0x")).count()
}

/// `FENCELOCK_SILENCES` plays more of them, by hand.
pub(crate) fn rounds(usual: usize) -> usize {
    std::env::var("FENCELOCK_SILENCES").ok().and_then(|rounds| rounds.parse().ok()).unwrap_or(usual)
}
