//! The version and the metrics of a member of etcd, by HTTP.

use super::checks::{Check, Facts, Room, Severity, checks};

pub(super) const ROOM: Room = Room { questions: &["/version", "/metrics"], read, checks: CHECKS };

fn read(facts: &mut Facts, answers: &[fencelock::Result<String>]) -> Result<(), String> {
    let [version, metrics] = [0, 1].map(|index| answers[index].as_ref().map_or("", String::as_str));
    let version = version.split_once(r#""etcdserver":""#).and_then(|(_, rest)| rest.split('"').next());
    facts.set("version", version.ok_or("it does not answer as etcd does")?);
    // Each member counts the bytes that it sent to each other member.
    let peers = metrics.lines().filter(|line| line.starts_with("etcd_network_peer_sent_bytes_total"));
    answers[1].iter().for_each(|_| facts.set("peers", peers.clone().count()));
    Ok(())
}

checks! {
    Problem, |facts| facts.is("etcd_server_has_leader", "0").then(|| "the member has no leader".to_owned()),
        "without a majority of members no lock is granted and none is renewed", "a majority of the members running, and a way between them";
    Warning, |facts| facts.is("peers", "0").then(|| "there is one member".to_owned()),
        "the failure of the member ends every lock", "three members or five";
    Note, |facts| (facts.is("servers", "1") && !facts.is("peers", "0")).then(|| "the URL names one member of several".to_owned()),
        "a client whose only member fails finds no other one", "all members in the URL";
    Warning, |facts| Some(format!("the database has {} bytes", facts.nearly("etcd_mvcc_db_total_size_in_bytes", "etcd_server_quota_backend_bytes")?)),
        "a full etcd grants no lock (NOSPACE)", "--auto-compaction-retention, `etcdctl defrag`, or a higher --quota-backend-bytes";
    Note, |facts| Some(format!("the member is etcd {}", facts.older("version", (3, 5))?)),
        "releases before 3.5 get no corrections any more", "a release that is maintained";
}
