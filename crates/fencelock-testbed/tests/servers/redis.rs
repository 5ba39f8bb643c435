//! The servers start, serve, break and come back on command.

use std::os::unix::net::UnixStream;
use std::time::SystemTime;

use fencelock_testbed::redis::{Cluster, Reply, Role, Server, Settings, shared};
use fencelock_testbed::{PATIENCE, wait_until};

#[test]
fn a_server_forgets_when_it_is_killed_unless_its_changes_are_on_disk() {
    for durable in [false, true] {
        let server = Server::start(Settings { durable, ..Settings::default() }).unwrap();
        server.ask(&["SET", "key", "value"]).unwrap();
        server.kill();
        assert!(!server.is_running() && server.ask(&["PING"]).is_err());
        server.restart().unwrap();
        server.wait_until_serving().unwrap();
        assert_eq!(server.ask(&["EXISTS", "key"]).unwrap(), Reply::Int(durable.into()));
        server.restart_empty().unwrap();
        server.wait_until_serving().unwrap();
        assert_eq!(server.ask(&["DBSIZE"]).unwrap(), Reply::Int(0));
    }
}

#[test]
fn a_backup_brings_back_what_was_there() {
    let server = Server::start(Settings::default()).unwrap();
    server.ask(&["SET", "key", "old"]).unwrap();
    let backup = server.backup().unwrap();
    server.ask(&["SET", "key", "new"]).unwrap();
    server.restore(&backup).unwrap();
    server.wait_until_serving().unwrap();
    assert_eq!(server.ask(&["GET", "key"]).unwrap().to_string(), "old");
}

#[test]
fn a_node_that_stands_still_is_not_asked_for_the_owner_of_a_slot() {
    let cluster = Cluster {
        nodes: vec![Server::start(Settings::role(Role::ClusterNode).with("cluster-announce-ip 127.0.0.1")).unwrap()],
    };
    let asked = || {
        let counts = cluster.nodes[0].ask(&["INFO", "commandstats"]).unwrap().to_string();
        counts.lines().find_map(|line| Some(line.strip_prefix("cmdstat_cluster|slots:")?.split_once(',')?.0.to_owned()))
    };
    assert!(wait_until(PATIENCE, || cluster.owner(0).is_ok()));
    let before = asked();
    assert!(before.is_some());
    cluster.nodes[0].pause();
    cluster.owner(0).unwrap_err();
    cluster.nodes[0].resume();
    assert_eq!(asked(), before);
    cluster.owner(0).unwrap();
}

#[test]
fn a_clock_jumps_forth_and_back_and_keys_expire_by_it() {
    let server = Server::start(Settings { own_clock: true, ..Settings::default() }).unwrap();
    let off = || {
        let here = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap().as_secs() as i64;
        (server.ask(&["TIME"]).unwrap().items()[0].number().unwrap() - here).div_euclid(10) * 10
    };
    server.ask(&["SET", "key", "value", "EX", "30"]).unwrap();
    server.set_clock(-65).unwrap();
    // Valkey does not read its clock for each command.
    assert!(wait_until(PATIENCE, || off() == -70));
    assert!(server.ask(&["TTL", "key"]).unwrap().number().unwrap() > 60);
    server.set_clock(65).unwrap();
    assert!(wait_until(PATIENCE, || off() == 60));
    assert_eq!(server.ask(&["EXISTS", "key"]).unwrap(), Reply::Int(0));
    server.heal().unwrap();
    assert!(wait_until(PATIENCE, || matches!(off(), -10 | 0)));
}

#[test]
fn a_server_heals_from_a_pause_a_script_without_end_and_clients_that_wait() {
    let server = Server::start(Settings::default().with("lua-time-limit 20")).unwrap();
    server.pause();
    server.heal().unwrap();
    server.hands().unwrap().send(&["EVAL", "while true do end", "0"]).unwrap();
    let is_busy = || server.ask(&["PING"]).is_err_and(|error| error.to_string().starts_with("BUSY"));
    assert!(wait_until(PATIENCE, is_busy));
    server.heal().unwrap();
    server.ask(&["CLIENT", "PAUSE", "600000", "WRITE"]).unwrap();
    server.heal().unwrap();
    server.ask(&["SET", "key", "value"]).unwrap();
}

#[test]
fn a_server_listens_where_it_is_asked_to_and_knows_its_users() {
    let settings = Settings { password: Some("secret".to_owned()), ..Settings::default() };
    let server = Server::start(settings.with_user("reader", "on >other ~* +get +ping")).unwrap();
    assert!(UnixStream::connect(server.socket()).is_ok());
    let mut hands = server.hands().unwrap();
    assert_eq!(hands.ask(&["AUTH", "reader", "other"]).unwrap(), Reply::Status("OK".to_owned()));
    assert!(matches!(hands.ask(&["SET", "key", "value"]).unwrap(), Reply::Error(error) if error.starts_with("NOPERM")));
    assert_ne!(shared().namespace(), shared().namespace());
}

#[test]
fn servers_are_replicas_sentinels_and_nodes_of_a_cluster() {
    let primary = Server::start(Settings::default()).unwrap();
    let replica = Server::start(Settings::role(Role::ReplicaOf(primary.address()))).unwrap();
    let follows = || replica.info("master_link_status").is_ok_and(|status| status == "up");
    assert!(wait_until(PATIENCE, follows));
    primary.ask(&["SET", "key", "value"]).unwrap();
    // The replica knows that it follows before the primary counts it.
    assert!(wait_until(PATIENCE, || primary.hands().unwrap().ask(&["WAIT", "0", "0"]).unwrap() == Reply::Int(1)));
    assert!(wait_until(PATIENCE, || replica.ask(&["EXISTS", "key"]).unwrap() == Reply::Int(1)));
    let sentinel = Server::start(Settings::role(Role::SentinelOf(primary.address()))).unwrap();
    assert!(sentinel.ask(&["SENTINEL", "MASTERS"]).unwrap().items().len() == 1);
    let node = Server::start(Settings::role(Role::ClusterNode)).unwrap();
    assert_eq!(node.info("cluster_enabled").unwrap(), "1");
    node.ask(&["SET", "key", "value"]).unwrap();
}

#[test]
fn a_cluster_serves_all_slots_moves_one_with_its_keys_and_survives_a_primary() {
    let cluster = Cluster::start(true, 1000, &Settings::default()).unwrap();
    let slot = cluster.slot("{a}key").unwrap();
    let from = cluster.owner(slot).unwrap();
    from.ask(&["SET", "{a}key", "value"]).unwrap();
    assert_eq!(cluster.slots_in_use("{a}").unwrap(), [slot]);
    let to = cluster.nodes[..3].iter().find(|node| node.address() != from.address()).unwrap();
    cluster.move_slot(slot, to).unwrap();
    assert_eq!(to.ask(&["GET", "{a}key"]).unwrap().to_string(), "value");
    assert!(from.ask(&["GET", "{a}key"]).unwrap_err().to_string().starts_with("MOVED"));
    cluster.wait_until_whole().unwrap();
    to.kill();
    cluster.wait_until_replaced(slot, to.address()).unwrap();
    to.restart().unwrap();
    cluster.wait_until_whole().unwrap();
}
