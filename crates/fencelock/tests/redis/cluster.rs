//! A Redis Cluster: the URL and its mistakes, locks on every node, and slots that move. No primary ends here: failovers are in
//! `tests/deep/redis/cluster.rs`.

use std::sync::Arc;
use std::time::Duration;

use fencelock::{Client, Error, ErrorKind, Guard, Loss, Name};
use fencelock_testbed::Proxy;
use fencelock_testbed::redis::{Cluster, Role, Settings, shared, shared_cluster};
use tokio::task::JoinHandle;

use crate::lab::{acquired, acquiring, client, queued, refused, refused_within, server, soon, taken, until};

/// Longer than a request may take.
const SHORT: Duration = Duration::from_secs(8);

/// The layouts, as options of a URL.
const LAYOUTS: [&str; 4] = ["", "&layout=plain", "&layout=redisson", "&layout=redisson-fenced"];

/// The URL of keys of the test's own, with these options.
fn url(options: &str) -> String {
    shared_cluster().url(&format!("prefix={}{options}", shared_cluster().prefix()))
}

/// Moves all slots in which there are keys that begin with `prefix` to another primary each.
async fn moved_away(cluster: &Arc<Cluster>, prefix: &str) {
    let (cluster, prefix) = (Arc::clone(cluster), prefix.to_owned());
    let moved = tokio::task::spawn_blocking(move || {
        for slot in cluster.slots_in_use(&prefix).unwrap() {
            let from = cluster.owner(slot).unwrap();
            let to = cluster.nodes[..3].iter().find(|node| node.address() != from.address()).unwrap();
            cluster.move_slot(slot, to).unwrap();
        }
    });
    moved.await.unwrap();
}

/// Locks on several nodes.
const NAMES: [&str; 4] = ["a", "b", "c", "d"];

/// The guards of all [`NAMES`], and acquires that wait behind them.
async fn held_and_waited_for(holder: &Client, waiter: &Client) -> (Vec<Guard>, Vec<JoinHandle<Result<Guard, Error>>>) {
    let mut guards = Vec::new();
    for name in NAMES {
        guards.push(soon(holder.mutex(name).unwrap().acquire()).await.unwrap());
    }
    (guards, NAMES.iter().map(|name| acquiring(waiter, name)).collect())
}

#[tokio::test]
async fn locks_on_all_nodes_exclude_and_are_listed_and_shown() {
    for layout in LAYOUTS {
        exclude_and_are_listed(&url(layout), layout.is_empty()).await;
    }
}

async fn exclude_and_are_listed(url: &str, has_queue: bool) {
    let (holder, other) = (client(url, 60_000).await, client(url, 60_000).await);
    let names: Vec<String> = (0..24).map(|number| format!("job-{number}")).collect();
    let mut guards = Vec::new();
    for name in &names {
        guards.push(soon(holder.mutex(name).unwrap().acquire()).await.unwrap());
        let busy = soon(other.mutex(name).unwrap().try_acquire()).await.unwrap_err();
        assert_eq!(busy.kind(), ErrorKind::Busy, "{busy}");
    }
    let listed = soon(other.names("job-", None, 100)).await.unwrap();
    let listed: Vec<_> = listed.into_iter().map(|name| name.to_string()).collect();
    let mut all = names.clone();
    all.sort_unstable();
    assert_eq!(listed, all);
    let waiting = acquiring(&other, "job-0");
    until("it waits", async || queued(&holder, "job-0").await == if has_queue { 2 } else { 1 }).await;
    guards.remove(0).release().await.unwrap();
    acquired(waiting).await.release().await.unwrap();
    for guard in guards {
        guard.check().unwrap();
        guard.release().await.unwrap();
    }
}

#[tokio::test]
async fn slots_that_move_cost_no_holder_its_lock_and_no_waiter_its_place() {
    // An owner that has run for less than some seconds could have been started anew: these seem to have run for an hour.
    let settings = Settings { own_clock: true, ..Settings::default() };
    let cluster = Arc::new(Cluster::start(false, 100_000_000, &settings).unwrap());
    cluster.nodes.iter().for_each(|node| node.set_clock(3600).unwrap());
    let url = cluster.url("min_replicas=0");
    let (holder, waiter) = (client(&url, 60_000).await, client(&url, 60_000).await);
    let (guards, waiting) = held_and_waited_for(&holder, &waiter).await;
    for name in NAMES {
        until("it waits", async || queued(&holder, name).await == 2).await;
    }
    for are_cut in [false, true] {
        moved_away(&cluster, "fencelock").await;
        // Without its connection a session does not receive MOVED from the old owner, which it asks nevertheless.
        for node in cluster.nodes.iter().filter(|_| are_cut) {
            node.ask(&["CLIENT", "KILL", "TYPE", "pubsub"]).unwrap();
        }
        for name in NAMES {
            // A connection to the old owner notices the move by an error.
            until("both places are there", async || {
                waiter.queue(name).await.is_ok_and(|queue| queue.contenders.len() == 2)
            })
            .await;
        }
    }
    for guard in guards {
        guard.check().unwrap();
        soon(guard.release()).await.unwrap();
    }
    for waiting in waiting {
        acquired(waiting).await.check().unwrap();
    }
}

#[tokio::test]
async fn slots_that_move_cost_no_holder_its_lock_without_a_queue_and_their_waiters_follow() {
    let cluster = Arc::new(Cluster::start(false, 100_000_000, &Settings::default()).unwrap());
    for layout in ["plain", "redisson", "redisson-fenced"] {
        let url = cluster.url(&format!("layout={layout}&prefix={layout}-&min_replicas=0&renew_interval_ms=500"));
        let (holder, waiter) = (client(&url, 60_000).await, client(&url, 60_000).await);
        let (guards, waiting) = held_and_waited_for(&holder, &waiter).await;
        moved_away(&cluster, &format!("{layout}-")).await;
        for guard in &guards {
            // The first renewal may have been under way.
            for _ in 0..2 {
                until_renewed(guard).await;
            }
        }
        for guard in guards {
            guard.check().unwrap();
            soon(guard.release()).await.unwrap();
        }
        for waiting in waiting {
            acquired(waiting).await.release().await.unwrap();
        }
    }
}

#[tokio::test]
async fn a_refusal_to_renew_one_of_several_locks_is_shown_and_the_others_are_renewed() {
    let cluster = Cluster::start(false, 100_000_000, &Settings::default()).unwrap();
    let rights = |keys: &str| {
        for node in &cluster.nodes {
            node.ask(&["ACL", "SETUSER", "worker", "on", ">pw", "+@all", "allchannels", "resetkeys", keys]).unwrap();
        }
    };
    rights("~*");
    let url = cluster.url("layout=plain&min_replicas=0&renew_interval_ms=500").replace("://", "://worker:pw@");
    let client = client(&url, 60_000).await;
    let kept = soon(client.mutex("kept").unwrap().acquire()).await.unwrap();
    let refused = soon(client.mutex("other").unwrap().acquire()).await.unwrap();
    assert_eq!(refused.refusal(), None);
    rights("~kept");
    until("the refusal is shown", async || refused.refusal().is_some()).await;
    until_renewed(&kept).await;
    assert!(refused.refusal().unwrap().contains("access control"), "{refused:?}");
    rights("~*");
    until("the refusal is over", async || refused.refusal().is_none()).await;
    until_renewed(&refused).await;
}

#[tokio::test]
async fn a_release_is_published_on_the_sharded_channel_of_redisson_and_a_broken_holder_learns_the_reason() {
    let (cluster, prefix) = (shared_cluster(), shared_cluster().prefix());
    let client = client(&cluster.url(&format!("prefix={prefix}-&layout=redisson")), 60_000).await;
    let key = format!("{prefix}-job");
    let owner = cluster.owner(cluster.slot(&key).unwrap()).unwrap();
    let channel = format!("redisson_lock__channel:{{{key}}}");
    let mut waits = owner.hands().unwrap();
    waits.ask(&["SSUBSCRIBE", &channel]).unwrap();
    soon(client.mutex("job").unwrap().acquire()).await.unwrap().release().await.unwrap();
    let message = waits.answer().unwrap();
    let words: Vec<_> = message.items().iter().map(ToString::to_string).collect();
    assert_eq!(words, ["smessage", &channel, "0"]);
    let guard = soon(client.mutex("job").unwrap().acquire()).await.unwrap();
    let queue = client.queue(&Name::new("job").unwrap()).await.unwrap();
    assert!(client.break_grant(&queue.name, &queue.contenders[0], "it is stuck").await.unwrap());
    assert_eq!(soon(guard.lost()).await, Loss::Broken);
    assert_eq!(&*client.breaks(&queue.name).await.unwrap()[0].reason, "it is stuck");
}

async fn until_renewed(guard: &Guard) {
    let mut remaining = guard.remaining();
    until("a renewal counts", async || {
        let now = guard.remaining();
        std::mem::replace(&mut remaining, now) < now
    })
    .await;
}

#[tokio::test]
async fn nodes_without_memory_renew_locks_that_a_replica_acknowledges() {
    let cluster = Cluster::start(true, 100_000_000, &Settings::default()).unwrap();
    let holder = client(&cluster.url("min_replicas=1&renew_interval_ms=500"), 60_000).await;
    let guard = soon(holder.mutex("job").unwrap().acquire()).await.unwrap();
    let plain = client(&cluster.url("min_replicas=1&renew_interval_ms=500&layout=plain"), 60_000).await;
    let other = soon(plain.mutex("job").unwrap().acquire()).await.unwrap();
    for node in &cluster.nodes[..3] {
        node.ask(&["CONFIG", "SET", "maxmemory", "1"]).unwrap();
    }
    // The first renewal may have been under way.
    for _ in 0..2 {
        until_renewed(&guard).await;
        until_renewed(&other).await;
    }
    guard.check().unwrap();
    soon(guard.release()).await.unwrap();
}

#[tokio::test]
async fn one_node_that_answers_suffices_and_without_any_the_error_names_them_all() {
    let gone = fencelock_testbed::Port::reserve().unwrap();
    let node = shared_cluster().nodes[4].address();
    let prefix = shared_cluster().prefix();
    drop(taken(&format!("redis+cluster://{},{node}?prefix={prefix}", gone.address())).await.unwrap());
    let error = refused(&format!("redis+cluster://{},127.0.0.1:1", gone.address())).await;
    assert!(error.kind() == ErrorKind::Unreachable && error.is_retryable(), "{error}");
    let cause = format!("{error:?}");
    assert!(cause.contains(&format!("{}: ", gone.address())) && cause.contains("127.0.0.1:1: "), "{cause}");
}

#[tokio::test]
async fn the_error_for_a_url_of_another_topology_shows_the_right_one() {
    let (node, alone) = (shared_cluster().nodes[0].address(), shared().address());
    for (url, kind, said) in [
        (format!("redis://{node}"), ErrorKind::Unsupported, "redis+cluster://"),
        (format!("redis+cluster://{alone}"), ErrorKind::Unsupported, "redis://host:6379/0"),
        (format!("redis+sentinel://{node}/locks"), ErrorKind::Unsupported, "redis+cluster://"),
        (format!("redis+cluster://{node}?layout=plain&fence=:f"), ErrorKind::Config, "redis+sentinel:"),
    ] {
        let error = refused(&url).await;
        let cause = format!("{error} {error:?}");
        assert!(error.kind() == kind && !error.is_retryable() && cause.contains(said), "{url}: {cause}");
    }
}

#[tokio::test]
async fn an_address_that_only_the_nodes_know_is_dialled_where_the_map_says() {
    let primaries = shared_cluster().nodes[..3].iter().map(|node| node.address());
    let ways: Vec<_> = primaries.map(|primary| (primary, Proxy::start(primary).unwrap())).collect();
    let map: Vec<_> = ways.iter().map(|(primary, way)| format!("{primary}={}", way.address())).collect();
    drop(taken(&url(&format!("&map={}", map.join(",")))).await.unwrap());
    assert_ne!(ways.iter().map(|(_, way)| way.bytes().0).sum::<u64>(), 0);
}

#[tokio::test]
async fn nodes_that_name_an_address_which_only_they_know_are_reached_by_the_map_that_the_error_proposes() {
    let node = server(Settings::role(Role::ClusterNode).with("cluster-announce-ip 127.9.9.9"));
    let (address, inside) = (node.address(), format!("127.9.9.9:{}", node.address().port()));
    let url = format!("redis+cluster://{address}?min_replicas=0&ttl_ms=");
    until("the error names the address and the option", async || {
        let error = refused_within(&format!("{url}6000"), SHORT).await;
        let cause = format!("{error} {error:?}");
        assert!(error.kind() != ErrorKind::Denied && error.is_retryable(), "{cause}");
        cause.contains(&inside) && cause.contains("`map`")
    })
    .await;
    drop(taken(&format!("{url}60000&map={inside}={address}")).await.unwrap());
}

#[tokio::test]
async fn a_node_that_wants_another_password_refuses_its_locks_alone_and_the_error_names_it() {
    let settings = Settings { password: Some("one".to_owned()), ..Settings::default() };
    let cluster = Cluster::start(false, 100_000_000, &settings).unwrap();
    let other = &cluster.nodes[2];
    other.ask(&["CONFIG", "SET", "requirepass", "two"]).unwrap();
    let client = client(&cluster.url("min_replicas=0").replace("//", "//:one@"), 60_000).await;
    let (mut granted, mut refused) = (0, 0);
    for number in 0..24 {
        match soon(client.mutex(format!("job-{number}")).unwrap().acquire()).await {
            Ok(_) => granted += 1,
            Err(error) => {
                let cause = format!("{error} {error:?}");
                assert!(error.kind() == ErrorKind::Denied && cause.contains(&other.address().to_string()), "{cause}");
                refused += 1;
            }
        }
    }
    assert!(granted > 0 && refused > 0, "{granted} granted, {refused} refused");
}

#[tokio::test]
async fn slots_that_no_node_serves_are_an_outage_that_names_the_cause() {
    // Once a slot is missing, the node serves no slot by default, and all other slots with this option.
    for (option, slots, said) in [
        ("cluster-require-full-coverage yes", ["0", "0"], "serves no slots"),
        ("cluster-require-full-coverage no", ["0", "16383"], "no node of the Cluster serves the slot"),
    ] {
        let node = server(Settings::role(Role::ClusterNode).with(option));
        node.ask(&["CLUSTER", "DELSLOTSRANGE", slots[0], slots[1]]).unwrap();
        until("it notices", async || {
            let info = node.ask(&["CLUSTER", "INFO"]).unwrap().to_string();
            !info.contains("cluster_slots_assigned:16384")
        })
        .await;
        let error =
            refused_within(&format!("redis+cluster://{}?min_replicas=0&ttl_ms=6000", node.address()), SHORT).await;
        let cause = format!("{error} {error:?}");
        assert!(error.is_retryable() && cause.contains(said), "{option}: {cause}");
    }
}

#[tokio::test]
async fn a_client_that_waits_for_a_cluster_asks_again_on_the_connections_that_it_has() {
    let node = server(Settings::role(Role::ClusterNode).with("cluster-require-full-coverage yes"));
    let client = client(&format!("redis+cluster://{}?min_replicas=0", node.address()), 60_000).await;
    let mut hands = node.hands().unwrap();
    hands.ask(&["CLUSTER", "DELSLOTSRANGE", "0", "0"]).unwrap();
    let mut count = |key: &str| {
        let info = hands.ask(&["INFO", "everything"]).unwrap().to_string();
        let value = info.lines().find_map(|line| line.strip_prefix(key)).unwrap_or("0").trim();
        value.split(',').next().unwrap().parse::<u32>().unwrap()
    };
    let mut counts = || (count("total_connections_received:"), count("cmdstat_cluster|slots:calls="));
    let before = counts();
    let waiting = acquiring(&client, "job");
    until("several questions share a connection", async || {
        let now = counts();
        let (connections, questions) = (now.0 - before.0, now.1 - before.1);
        questions >= 6 && connections <= questions / 3
    })
    .await;
    node.ask(&["CLUSTER", "ADDSLOTSRANGE", "0", "0"]).unwrap();
    acquired(waiting).await.release().await.unwrap();
}
