//! The questions to a ZooKeeper server: its four-letter words, and the rights of all users on the node that locks are under.

use super::checks::{Check, Facts, Room, Severity, checks};

/// The size of an answer without another setting: `jute.maxbuffer`.
const MAX_BUFFER: f64 = 1_048_575.0;

pub(super) const ROOM: Room = Room { questions: &["srvr", "conf", "mntr", "world"], read, checks: CHECKS };

fn read(facts: &mut Facts, answers: &[fencelock::Result<String>]) -> Result<(), String> {
    // A user who may not look, or finds no parent, got an error when a lock was tried.
    answers[3].iter().for_each(|allowed| facts.set("world", allowed));
    match facts.text("Mode") {
        "" => Err("it does not answer `srvr`: 4lw.commands.whitelist leaves it out, or it is no member of a quorum"
            .to_owned()),
        _ => Ok(()),
    }
}

/// The length of a tick in the URL.
fn tick_of_url(facts: &Facts) -> f64 {
    facts.number("url_tick_ms").unwrap_or(2000.0)
}

checks! {
    Problem, |facts| {
        let tick = facts.number("tickTime").filter(|tick| *tick > tick_of_url(facts))?;
        Some(format!("tickTime is {tick}, and the URL says {} (tick_ms)", tick_of_url(facts)))
    }, "how long a lock is certain is counted in ticks: with longer ones, a holder believes in its lock too long", "?tick_ms= in the URL as the servers have it";
    Note, |facts| {
        let tick = facts.number("tickTime").filter(|tick| *tick < tick_of_url(facts))?;
        Some(format!("tickTime is {tick}, and the URL says {} (tick_ms)", tick_of_url(facts)))
    }, "locks are given up earlier than they have to be", "?tick_ms= in the URL as the servers have it";
    Warning, |facts| {
        let most = facts.number("maxSessionTimeout").filter(|most| *most < facts.ttl_ms())?;
        Some(format!("maxSessionTimeout is {most}, and the ttl is {}", facts.ttl_ms()))
    }, "the servers grant the shorter one: a shorter outage costs the locks", "a higher maxSessionTimeout, or a shorter ttl";
    Warning, |facts| {
        let least = facts.number("minSessionTimeout").filter(|least| *least > facts.ttl_ms())?;
        Some(format!("minSessionTimeout is {least}, and the ttl is {}", facts.ttl_ms()))
    }, "the servers grant the longer one: others wait longer for a holder that died", "a lower minSessionTimeout, or a longer ttl";
    Warning, |facts| {
        let most = facts.number("maxClientCnxns").filter(|most| (1.0..60.0).contains(most))?;
        Some(format!("maxClientCnxns is {most}: so many connections may a host have"))
    }, "the next client of a host is refused, and one that lost its connection may not come back: its locks are lost", "maxClientCnxns=0, or more than a host has processes that lock";
    Warning, |facts| facts.is("Mode", "standalone").then(|| "there is one server (standalone)".to_owned()),
        "its failure stops every client: no client gets a lock, and holders lose theirs", "three servers or five";
    Note, |facts| (facts.is("servers", "1") && !facts.is("Mode", "standalone")).then(|| "the URL names one server of several".to_owned()),
        "a client whose only server fails finds no other one", "all servers in the URL";
    Warning, |facts| {
        let worst: f64 = facts.text("Latency min/avg/max").rsplit('/').next()?.parse().ok()?;
        (worst > facts.ttl_ms() / 4.0).then(|| format!("a request took {worst} ms since the server was started"))
    }, "a server that waits for its disk answers no renewal", "a disk of its own for dataLogDir, enough memory, no swapping";
    Note, |facts| {
        let version = facts.text("Zookeeper version").split(['-', ',']).next()?;
        let parts: Vec<u32> = version.split('.').filter_map(|part| part.parse().ok()).collect();
        matches!(parts[..], [major, minor, ..] if (major, minor) < (3, 8)).then(|| format!("the server is ZooKeeper {version}"))
    }, "releases before 3.8 get no corrections any more", "a release that is maintained";
    Note, |facts| {
        let world = facts.text("world");
        world.contains(['d', 'a']).then(|| format!("every user may delete locks (the list of the node above them has world:anyone:{world})"))
    }, "every client that reaches the servers can take a lock from its holder", "user:password@ in the URL from the first lock on, setAcl on the node, or a firewall";
    Warning, |facts| {
        let most = facts.number("zk_max_client_response_size").filter(|most| *most > MAX_BUFFER * 0.5)?;
        Some(format!("an answer had {most} bytes"))
    }, "clients in Java refuse answers, and servers requests, beyond jute.maxbuffer (1 MiB unless set): a long queue cannot be listed then", "jute.maxbuffer higher, the same for all servers and clients, or shorter queues";
    Note, |facts| facts.text("tickTime").is_empty().then(|| "the server does not answer `conf`".to_owned()),
        "session limits, maxClientCnxns and tickTime were not seen", "4lw.commands.whitelist=srvr,conf, or look by hand";
}
