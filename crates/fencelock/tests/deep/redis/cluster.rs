//! A Cluster under faults: primaries that end or stand still, and slots that move for a minute under load.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use fencelock::{Client, Loss};
use fencelock_testbed::redis::{Cluster, Hands, Server, Settings};
use fencelock_testbed::{Proxy, Way, within};
use futures_util::future::join_all;

use super::lab::{PATIENCE, acquired, acquiring, client, soon, until};
use super::soak::{Soak, until_nothing_is_left};

/// A waiter has the lock this long after the promotion of the server that grants it.
const TAKEOVER: Duration = Duration::from_secs(1);

/// After a failover the new primary has no replica that could acknowledge a grant.
const ALONE: &str = "min_replicas=0";

/// Nodes whose failure the other nodes notice after two seconds.
fn cluster() -> Arc<Cluster> {
    Arc::new(Cluster::start(true, 2000, &Settings::default()).unwrap())
}

/// The slot of a lock that `client` has taken and given back, the only one so far under this prefix.
async fn slot_of(cluster: &Cluster, client: &Client, name: &str, prefix: &str) -> u16 {
    soon(client.mutex(name).unwrap().acquire()).await.unwrap().release().await.unwrap();
    let slots = cluster.slots_in_use(prefix).unwrap();
    assert_eq!(slots.len(), 1, "{slots:?}");
    slots[0]
}

/// Two names whose slots have different owners, and the slot of the first.
async fn two_names(cluster: &Cluster) -> (String, String, u16) {
    let mut first: Option<(String, u16)> = None;
    for number in 0.. {
        let (name, prefix) = (format!("job-{number}"), format!("probe{number}"));
        let client = client(&cluster.url(&format!("prefix={prefix}&{ALONE}")), 6000).await;
        let slot = slot_of(cluster, &client, &name, &prefix).await;
        client.close().await.unwrap();
        match &first {
            None => first = Some((name, slot)),
            Some((one, known))
                if cluster.owner(*known).unwrap().address() != cluster.owner(slot).unwrap().address() =>
            {
                return (one.clone(), name, *known);
            }
            Some(_) => {}
        }
    }
    unreachable!()
}

/// Waits for the promotion off the runtime of the clients; when it was seen.
async fn promoted(cluster: &Arc<Cluster>, slot: u16, old: std::net::SocketAddr) -> Instant {
    let cluster = Arc::clone(cluster);
    let seen = tokio::task::spawn_blocking(move || {
        cluster.wait_until_replaced(slot, old).unwrap();
        Instant::now()
    });
    seen.await.unwrap()
}

#[tokio::test]
async fn a_primary_that_is_killed_costs_the_locks_of_its_slots_alone_and_a_waiter_has_one_within_a_second_of_the_promotion()
 {
    let cluster = cluster();
    let (theirs, others, slot) = two_names(&cluster).await;
    let (holder, waiter) = (client(&cluster.url(ALONE), 10_000).await, client(&cluster.url(ALONE), 10_000).await);
    let lost = soon(holder.mutex(&theirs).unwrap().acquire()).await.unwrap();
    let kept = soon(holder.mutex(&others).unwrap().acquire()).await.unwrap();
    let old = cluster.owner(slot).unwrap();
    old.kill();
    let waiting = acquiring(&waiter, &theirs);
    let since = promoted(&cluster, slot, old.address()).await;
    let loss = soon(lost.lost()).await;
    assert!(matches!(loss, Loss::Replaced | Loss::Restarted), "{loss:?}");
    acquired(waiting).await.check().unwrap();
    within(TAKEOVER * 2, since.elapsed(), "an acquire after the promotion of a replica");
    tokio::time::sleep(Duration::from_secs(12)).await;
    kept.check().unwrap();
    soon(kept.release()).await.unwrap();
}

/// How many connections these nodes have received so far.
fn received(nodes: &mut [Hands]) -> u64 {
    let total = |node: &mut Hands| {
        let info = node.ask(&["INFO", "stats"]).unwrap().to_string();
        let total = info.lines().find_map(|line| line.strip_prefix("total_connections_received:"));
        total.unwrap().trim().parse::<u64>().unwrap()
    };
    nodes.iter_mut().map(total).sum()
}

#[tokio::test(flavor = "multi_thread")]
async fn while_a_primary_is_away_a_client_makes_few_connections_to_the_other_nodes() {
    const COUNTED: Duration = Duration::from_secs(6);
    let mut most = 0;
    // The primary is not given up yet, no replica takes its place, or the new primary has too few replicas for a grant.
    for (with_replicas, timeout, options) in [(true, 30_000, ALONE), (false, 500, ALONE), (true, 500, "")] {
        let cluster = Arc::new(Cluster::start(with_replicas, timeout, &Settings::default()).unwrap());
        let (holder, waiter) =
            (client(&cluster.url(options), 10_000).await, client(&cluster.url(options), 10_000).await);
        let (mut held, mut waiting) = (Vec::new(), Vec::new());
        for number in 0..32 {
            let name = format!("job-{number}");
            held.push(soon(holder.mutex(&name).unwrap().acquire()).await.unwrap());
            waiting.push(acquiring(&waiter, &name));
        }
        let mut others: Vec<_> = cluster.nodes[1..].iter().map(|node| node.hands().unwrap()).collect();
        cluster.nodes[0].kill();
        tokio::time::sleep(Duration::from_secs(3)).await;
        let before = received(&mut others);
        tokio::time::sleep(COUNTED).await;
        let made = received(&mut others) - before;
        println!(
            "replicas {with_replicas}, {timeout} ms, {options:?}: {made} connections of two clients in {COUNTED:?}"
        );
        most = most.max(made);
        waiting.iter().for_each(|waiting| waiting.abort());
    }
    // Eight a second for each client, most of them to a primary that has too few replicas.
    assert!(most <= 2 * 8 * COUNTED.as_secs(), "{most} connections");
}

#[tokio::test]
async fn a_holder_whose_primary_stands_still_stops_before_a_rival_is_granted_by_the_new_one() {
    let cluster = cluster();
    let (name, _, slot) = two_names(&cluster).await;
    let (holder, rival) = (client(&cluster.url(ALONE), 6000).await, client(&cluster.url(ALONE), 6000).await);
    let guard = soon(holder.mutex(&name).unwrap().acquire()).await.unwrap();
    let old = cluster.owner(slot).unwrap();
    old.pause();
    let waiting = acquiring(&rival, &name);
    promoted(&cluster, slot, old.address()).await;
    let theirs = acquired(waiting).await;
    assert!(guard.check().is_err(), "two hold the lock");
    assert!(theirs.token() > guard.token(), "{:?} {:?}", theirs.token(), guard.token());
    old.resume();
    theirs.check().unwrap();
    soon(guard.lost()).await;
}

/// The promoted replica acknowledged the grant, so it keeps the place of the holder for the lease, which it may not end earlier.
#[tokio::test(flavor = "multi_thread")]
async fn an_acknowledged_holder_that_receives_nothing_more_stops_before_a_rival_is_granted_by_the_promoted_replica() {
    let cluster = Arc::new(Cluster::start(true, 500, &Settings::default()).unwrap());
    let ways: Vec<_> = cluster.nodes.iter().map(|node| Proxy::start(node.address()).unwrap()).collect();
    let map = cluster.nodes.iter().zip(&ways).map(|(node, way)| format!("{}={}", node.address(), way.address()));
    let map = map.collect::<Vec<_>>().join(",");
    for round in 0..2 {
        let prefix = format!("silent{round}");
        let url = cluster.url(&format!("prefix={prefix}&min_replicas=1"));
        let (holder, rival) = (client(&format!("{url}&map={map}"), 6000).await, client(&url, 6000).await);
        let slot = slot_of(&cluster, &holder, "job", &format!("{prefix}:")).await;
        let old = cluster.owner(slot).unwrap();
        let guard = soon(holder.mutex("job").unwrap().acquire()).await.unwrap();
        ways.iter().for_each(|way| way.hold(Way::Both));
        old.kill();
        let waiting = acquiring(&rival, "job");
        promoted(&cluster, slot, old.address()).await;
        old.restart().unwrap();
        let theirs = acquired(waiting).await;
        assert!(guard.check().is_err(), "two hold the lock");
        assert!(theirs.token() > guard.token(), "{:?} {:?}", theirs.token(), guard.token());
        ways.iter().for_each(Proxy::heal);
        let whole = Arc::clone(&cluster);
        tokio::task::spawn_blocking(move || whole.wait_until_whole().unwrap()).await.unwrap();
    }
}

/// The counts of a judge.
#[derive(Default)]
struct Judge {
    inside: [AtomicU32; 6],
    newest: [AtomicU64; 6],
    /// Of each task of the crowd.
    cycles: [AtomicU64; CLIENTS * NAMES.len()],
    overlaps: AtomicU32,
    late: AtomicU32,
    lost: AtomicU32,
    is_done: AtomicBool,
}

impl Judge {
    fn cycles(&self) -> Vec<u64> {
        self.cycles.iter().map(|cycles| cycles.load(Ordering::SeqCst)).collect()
    }

    /// Waits until each task of the crowd has had its lock five more times.
    async fn until_all_are_served(&self) {
        let before = self.cycles();
        let is_served = |(now, before): (u64, &u64)| now > before + 5;
        until("each task has its lock", async || self.cycles().into_iter().zip(&before).all(is_served)).await;
    }
}

/// How many clients a crowd has.
const CLIENTS: usize = 3;

/// The names of a crowd's locks.
const NAMES: [&str; 6] = ["n0", "n1", "n2", "n3", "n4", "n5"];

/// Takes locks until the end, and reports each section to the judge.
async fn contend(client: Client, judge: Arc<Judge>, task: usize) {
    let of = task % NAMES.len();
    while !judge.is_done.load(Ordering::SeqCst) {
        let guard = client.mutex(NAMES[of]).unwrap().acquire_within(PATIENCE).await.unwrap();
        let token = guard.token().unwrap().get();
        if judge.inside[of].fetch_add(1, Ordering::SeqCst) != 0 {
            judge.overlaps.fetch_add(1, Ordering::SeqCst);
        }
        if judge.newest[of].fetch_max(token, Ordering::SeqCst) >= token {
            judge.late.fetch_add(1, Ordering::SeqCst);
        }
        tokio::time::sleep(Duration::from_millis(2)).await;
        if guard.check().is_err() {
            judge.lost.fetch_add(1, Ordering::SeqCst);
        }
        judge.inside[of].fetch_sub(1, Ordering::SeqCst);
        judge.cycles[task].fetch_add(1, Ordering::SeqCst);
        // A release that fails is made up for in the background.
        let _ = guard.release().await;
    }
}

/// Clients that contend for all names.
struct Crowd(Vec<Client>, Vec<tokio::task::JoinHandle<()>>);

impl Crowd {
    async fn of(url: &str, judge: &Arc<Judge>) -> Self {
        let (mut clients, mut tasks) = (Vec::new(), Vec::new());
        for number in 0..CLIENTS {
            let client = client(url, 10_000).await;
            let numbers = (0..NAMES.len()).map(|of| number * NAMES.len() + of);
            tasks.extend(numbers.map(|task| tokio::spawn(contend(client.clone(), Arc::clone(judge), task))));
            clients.push(client);
        }
        Self(clients, tasks)
    }

    async fn depart(self, judge: &Judge) {
        judge.is_done.store(true, Ordering::SeqCst);
        for task in self.1 {
            soon(task).await.unwrap();
        }
        for client in self.0 {
            soon(client.close()).await.unwrap();
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn slots_that_move_for_a_minute_under_load_cost_no_lock_and_leave_no_waiter_behind() {
    slots_move_under_load("", "fencelock").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn slots_that_move_for_a_minute_under_load_cost_no_lock_of_redisson_and_leave_no_waiter_behind() {
    slots_move_under_load("layout=redisson-fenced", "redisson_lock_token").await;
}

/// Moves each slot with keys that begin with `prefix`.
async fn slots_move_under_load(layout: &str, prefix: &'static str) {
    let cluster = Arc::new(Cluster::start(true, 15_000, &Settings::default()).unwrap());
    until("the nodes have run for longer than a renewal takes", async || {
        let ran =
            |node: &fencelock_testbed::redis::Server| node.info("uptime_in_seconds").unwrap().parse::<u64>().unwrap();
        cluster.nodes.iter().all(|node| ran(node) > 20)
    })
    .await;
    let (judge, end) = (Arc::new(Judge::default()), Instant::now() + Duration::from_secs(60));
    let crowd = Crowd::of(&cluster.url(layout), &judge).await;
    // A slot that moved costs a connection of a dozen round trips, each of which may take a quarter of a second on a busy machine.
    let holder = client(&cluster.url(&format!("renew_interval_ms=2500&{layout}")), 30_000).await;
    let held = soon(holder.mutex("held").unwrap().acquire()).await.unwrap();
    let moving = Arc::clone(&cluster);
    let moves = tokio::task::spawn_blocking(move || {
        let mut moves = 0;
        while Instant::now() < end {
            for slot in moving.slots_in_use(prefix).unwrap() {
                let from = moving.owner(slot).unwrap().address();
                let at = moving.nodes[..3].iter().position(|node| node.address() == from).unwrap();
                moving.move_slot(slot, &moving.nodes[(at + 1) % 3]).unwrap();
                moves += 1;
                std::thread::sleep(Duration::from_millis(100));
            }
        }
        moves
    });
    let moves = moves.await.unwrap();
    crowd.depart(&judge).await;
    held.check().unwrap();
    let count = |number: &AtomicU32| number.load(Ordering::SeqCst);
    let cycles = judge.cycles().iter().sum::<u64>();
    println!("{moves} moves, {cycles} cycles, {} lost", count(&judge.lost));
    assert_eq!((count(&judge.overlaps), count(&judge.late), count(&judge.lost)), (0, 0, 0));
    assert!(moves > 50 && cycles > 200, "{moves} moves, {cycles} cycles");
}

#[tokio::test(flavor = "multi_thread")]
async fn primaries_that_are_killed_under_load_let_no_two_clients_hold_a_lock_and_nothing_is_left() {
    let (cluster, soak, slot) = primaries_are_killed_under_load("", "fencelock").await;
    until_nothing_is_left(&cluster.url(""), &NAMES, &cluster.nodes).await;
    soak.judge(cluster.owner(slot).unwrap());
}

#[tokio::test(flavor = "multi_thread")]
async fn primaries_that_are_killed_under_load_let_no_two_clients_hold_a_lock_of_redisson() {
    let (cluster, soak, slot) = primaries_are_killed_under_load("layout=redisson-fenced", "redisson_lock_token").await;
    soak.judge(cluster.owner(slot).unwrap());
}

/// Kills the owner of a slot with keys that begin with `prefix`, three times.
async fn primaries_are_killed_under_load(layout: &str, prefix: &str) -> (Arc<Cluster>, Soak, u16) {
    let (cluster, judge, mut soak) = (cluster(), Arc::new(Judge::default()), Soak::of(3));
    let crowd = Crowd::of(&cluster.url(layout), &judge).await;
    let slot = loop {
        judge.until_all_are_served().await;
        let slot = cluster.slots_in_use(prefix).unwrap()[0];
        let old = cluster.owner(slot).unwrap();
        old.kill();
        promoted(&cluster, slot, old.address()).await;
        old.restart().unwrap();
        let whole = Arc::clone(&cluster);
        tokio::task::spawn_blocking(move || whole.wait_until_whole().unwrap()).await.unwrap();
        soak.count(cluster.owner(slot).unwrap());
        if soak.is_done() {
            break slot;
        }
    };
    judge.until_all_are_served().await;
    crowd.depart(&judge).await;
    let count = |number: &AtomicU32| number.load(Ordering::SeqCst);
    println!("{} cycles, {} lost", judge.cycles().iter().sum::<u64>(), count(&judge.lost));
    assert_eq!((count(&judge.overlaps), count(&judge.late)), (0, 0));
    (cluster, soak, slot)
}

#[tokio::test]
async fn a_primary_that_is_killed_costs_no_lock_without_a_queue_whose_key_its_replica_has() {
    for layout in ["plain", "redisson"] {
        let cluster = cluster();
        let url = cluster.url(&format!("layout={layout}&{ALONE}"));
        let (holder, rival) = (client(&url, 10_000).await, client(&url, 10_000).await);
        let guard = soon(holder.mutex("job").unwrap().acquire()).await.unwrap();
        let slot = cluster.slot("job").unwrap();
        let old = cluster.owner(slot).unwrap();
        // The replica has the key.
        assert_eq!(old.ask(&["WAIT", "1", "10000"]).unwrap().to_string(), "1");
        old.kill();
        let waiting = acquiring(&rival, "job");
        let since = promoted(&cluster, slot, old.address()).await;
        tokio::time::sleep(Duration::from_secs(12)).await;
        guard.check().unwrap();
        soon(guard.release()).await.unwrap();
        acquired(waiting).await.release().await.unwrap();
        within(Duration::from_secs(16), since.elapsed(), "a release and an acquire at the promoted replica");
    }
}

/// The node starts without its keys, and refuses every request for two seconds.
#[tokio::test(flavor = "multi_thread")]
async fn a_node_that_loses_its_memory_leaves_two_clients_with_one_of_several_locks_for_a_second_at_most() {
    for layout in ["plain", "redisson"] {
        let cluster = Cluster::start(false, 60_000, &Settings::default()).unwrap();
        let url = cluster.url(&format!("layout={layout}&{ALONE}"));
        let (holder, rival) = (client(&url, 20_000).await, client(&url, 20_000).await);
        let (mut both, mut others) = (Vec::new(), Vec::new());
        for number in 0..24 {
            let name = format!("job-{number}");
            let guard = soon(holder.mutex(&name).unwrap().acquire()).await.unwrap();
            let owner = cluster.owner(cluster.slot(&name).unwrap()).unwrap().address();
            match owner == cluster.nodes[0].address() {
                true => both.push((acquiring(&rival, &name), guard)),
                false => others.push(guard),
            }
        }
        cluster.nodes[0].kill();
        cluster.nodes[0].restart().unwrap();
        let overlaps = both.into_iter().map(|(waiting, guard)| async move {
            let _theirs = acquired(waiting).await;
            let since = Instant::now();
            soon(guard.lost()).await;
            since.elapsed()
        });
        let overlaps = join_all(overlaps).await;
        println!("{layout}: {overlaps:?}");
        within(
            Duration::from_secs(1),
            overlaps.into_iter().max().unwrap(),
            "the loss of a lock that another client has",
        );
        others.iter().for_each(|guard| guard.check().unwrap());
    }
}

/// No replica acknowledges anything of the node that starts without its keys. A rival that needs no replica has the lock.
#[tokio::test(flavor = "multi_thread")]
async fn a_holder_is_notified_of_a_key_that_its_node_forgot_while_no_replica_acknowledges_anything() {
    for layout in ["plain", "redisson"] {
        let cluster = Cluster::start(true, 60_000, &Settings::default()).unwrap();
        let holder = client(&cluster.url(&format!("layout={layout}")), 30_000).await;
        let guard = soon(holder.mutex("job").unwrap().acquire()).await.unwrap();
        let mut others = Vec::new();
        for number in 0..20 {
            // All in the slot of the lock, for the same node.
            let some = (0..50).map(|of| holder.mutex(format!("{number}-{of}-{{job}}")).unwrap());
            others.extend(join_all(some.map(async |mutex| soon(mutex.acquire()).await.unwrap())).await);
        }
        let owner = cluster.owner(cluster.slot("job").unwrap()).unwrap();
        cluster.nodes[3..].iter().for_each(|replica| replica.pause());
        owner.kill();
        owner.restart().unwrap();
        until("the rival has the lock", async || {
            owner.ask(&["SET", "job", "rival", "NX", "PX", "60000"]).is_ok_and(|answer| answer.to_string() == "OK")
        })
        .await;
        let since = Instant::now();
        soon(guard.lost()).await;
        within(Duration::from_secs(4), since.elapsed(), "the loss of a lock that another client has");
        cluster.nodes[3..].iter().for_each(|replica| replica.resume());
    }
}

/// As after a move that was given up: the client asks the other node for missing keys, and that node has none of them.
#[tokio::test(flavor = "multi_thread")]
async fn a_slot_that_stays_open_costs_no_lock_of_another_slot() {
    let cluster = Cluster::start(true, 60_000, &Settings::default()).unwrap();
    let client = client(&cluster.url("layout=plain"), 10_000).await;
    let take = async |name: String| soon(client.mutex(name).unwrap().acquire()).await.unwrap();
    let theirs = join_all((0..3).map(|number| take(format!("{number}-{{job}}")))).await;
    let others = join_all((0..60).map(|number| take(format!("other-{number}")))).await;
    let slot = cluster.slot("job").unwrap();
    let from = cluster.owner(slot).unwrap();
    let to = cluster.nodes[..3].iter().find(|node| node.address() != from.address()).unwrap();
    let (slot, id) = (slot.to_string(), |node: &Server| node.ask(&["CLUSTER", "MYID"]).unwrap().to_string());
    to.ask(&["CLUSTER", "SETSLOT", &slot, "IMPORTING", &id(from)]).unwrap();
    from.ask(&["CLUSTER", "SETSLOT", &slot, "MIGRATING", &id(to)]).unwrap();
    // The key that a script writes before `WAIT`.
    for key in from.ask(&["CLUSTER", "GETKEYSINSLOT", &slot, "10"]).unwrap().items() {
        if key.to_string().starts_with("fencelock:breaks:") {
            from.ask(&["DEL", &key.to_string()]).unwrap();
        }
    }
    for guard in theirs {
        soon(guard.lost()).await;
    }
    tokio::time::sleep(Duration::from_secs(5)).await;
    others.iter().for_each(|guard| guard.check().unwrap());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_thousand_locks_of_one_client_without_a_queue_are_kept() {
    let cluster = Cluster::start(false, 60_000, &Settings::default()).unwrap();
    let client = client(&cluster.url(&format!("layout=plain&{ALONE}")), 10_000).await;
    let mut guards = Vec::new();
    for number in 0..10 {
        let some = (0..100).map(|of| {
            let mutex = client.mutex(format!("job-{number}-{of}")).unwrap();
            async move { soon(mutex.acquire()).await.unwrap() }
        });
        guards.extend(join_all(some).await);
    }
    tokio::time::sleep(Duration::from_secs(25)).await;
    let lost = guards.iter().filter(|guard| guard.check().is_err()).count();
    assert_eq!(lost, 0, "of {} locks", guards.len());
}

#[tokio::test]
async fn a_client_connects_at_once_while_a_node_stands_still() {
    let cluster = Cluster::start(false, 60_000, &Settings::default()).unwrap();
    cluster.nodes[0].pause();
    for layout in ["plain", "redisson"].into_iter().cycle().take(20) {
        let start = Instant::now();
        let client = Client::connect(&cluster.url(&format!("layout={layout}&{ALONE}"))).await.unwrap();
        within(Duration::from_secs(2), start.elapsed(), "a connection to a Cluster with a node that stands still");
        client.close().await.unwrap();
    }
    cluster.nodes[0].resume();
}

#[tokio::test]
async fn a_holder_without_a_queue_whose_primary_stands_still_stops_before_a_rival_is_granted_by_the_new_one() {
    for layout in ["plain", "redisson"] {
        let cluster = cluster();
        let url = cluster.url(&format!("layout={layout}&{ALONE}"));
        let (holder, rival) = (client(&url, 6000).await, client(&url, 6000).await);
        let guard = soon(holder.mutex("job").unwrap().acquire()).await.unwrap();
        let slot = cluster.slot("job").unwrap();
        let old = cluster.owner(slot).unwrap();
        old.pause();
        promoted(&cluster, slot, old.address()).await;
        // The key goes with a replica that did not have it.
        cluster.owner(slot).unwrap().ask(&["DEL", "job"]).unwrap();
        let lost = soon(guard.lost()).await;
        let theirs = acquired(acquiring(&rival, "job")).await;
        assert!(guard.check().is_err(), "two hold the lock: {lost:?}");
        old.resume();
        theirs.check().unwrap();
    }
}
