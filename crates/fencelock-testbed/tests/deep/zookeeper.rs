//! The servers start, serve, break and come back on command.

use std::net::TcpStream;
use std::sync::Arc;

use fencelock_testbed::zookeeper::{Ensemble, Mode, Settings};
use fencelock_testbed::{Network, PATIENCE, Way, wait_until};

#[test]
fn a_server_alone_serves_and_comes_back_after_a_kill() {
    let ensemble = Ensemble::start(Settings::default().with("globalOutstandingLimit", 1234)).unwrap();
    let server = ensemble.server(0);
    assert_eq!((ensemble.leader(), server.mode()), (0, Some(Mode::Standalone)));
    assert_eq!(server.monitor("zk_watch_count").unwrap(), 0);
    assert!(server.word("conf").unwrap().contains("minSessionTimeout=1000"));
    server.kill();
    assert!(!server.is_running() && server.mode().is_none() && TcpStream::connect(server.address()).is_err());
    server.restart().unwrap();
    ensemble.wait_until_serving().unwrap();
}

#[test]
fn three_servers_have_one_leader_and_choose_another_when_it_is_killed_or_paused() {
    let ensemble = Ensemble::start(Settings::ensemble()).unwrap();
    let first = ensemble.leader();
    assert_eq!(ensemble.followers().len(), 2);
    ensemble.server(first).kill();
    assert!(wait_until(PATIENCE, || ensemble.servers().iter().any(|server| server.is_leader())));
    let second = ensemble.leader();
    assert_ne!(first, second);
    ensemble.server(first).restart().unwrap();
    ensemble.wait_until_serving().unwrap();
    ensemble.server(second).pause();
    let others = || (0..3).filter(|number| *number != second).map(|number| ensemble.server(number));
    assert!(wait_until(PATIENCE, || others().any(|server| server.is_leader())));
    ensemble.server(second).resume();
    assert!(wait_until(PATIENCE, || ensemble.server(second).mode() == Some(Mode::Follower)));
}

#[test]
fn a_follower_cut_off_from_its_leader_alone_stops_serving_and_comes_back() {
    let ensemble = Ensemble::start(Settings::ensemble()).unwrap();
    let (leader, followers) = (ensemble.leader(), ensemble.followers());
    let link = ensemble.link(followers[0], leader);
    assert_eq!(link.open_connections(), 1);
    link.hold(Way::Both);
    assert!(wait_until(PATIENCE, || ensemble.server(followers[0]).mode().is_none()));
    assert_eq!(ensemble.server(leader).mode(), Some(Mode::Leader));
    assert_eq!(ensemble.server(followers[1]).mode(), Some(Mode::Follower));
    link.heal();
    ensemble.wait_until_serving().unwrap();
    assert_eq!(ensemble.leader(), leader);
}

#[test]
fn servers_on_hosts_of_their_own_lose_what_is_dropped_between_them() {
    let network = Arc::new(Network::start(3).unwrap());
    let settings = Settings { servers: 3, network: Some(Arc::clone(&network)), ..Settings::default() };
    let ensemble = Ensemble::start(settings).unwrap();
    let (leader, followers) = (ensemble.leader(), ensemble.followers());
    network.cut(leader, followers[0]).unwrap();
    assert!(wait_until(PATIENCE, || ensemble.server(followers[0]).mode().is_none()));
    assert!(ensemble.server(leader).is_leader());
    network.heal().unwrap();
    ensemble.wait_until_serving().unwrap();
    network.pull_cable(leader).unwrap();
    assert!(ensemble.server(leader).word("srvr").is_err());
    assert!(wait_until(PATIENCE, || followers.iter().any(|number| ensemble.server(*number).is_leader())));
    network.heal().unwrap();
    assert!(wait_until(PATIENCE, || ensemble.server(leader).mode() == Some(Mode::Follower)));
}
