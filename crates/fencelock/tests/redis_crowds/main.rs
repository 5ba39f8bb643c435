//! Crowds of clients, and their cost for the server and for bystanders.

#[path = "../redis/lab.rs"]
#[allow(dead_code, reason = "another test binary uses the rest")]
mod lab;
#[path = "../patience/mod.rs"]
mod patience;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use fencelock::{Client, Error, Guard, Name};
use fencelock_testbed::redis::{Hands, Server, Settings};
use fencelock_testbed::{Proxy, within};
use futures_util::future::join_all;
use futures_util::{StreamExt, stream};
use rustix::process::{Resource, getrlimit, setrlimit};
use tokio::task::JoinHandle;

use lab::{PATIENCE, server, until};

const CROWD: usize = 2000;

/// The work of the server since the last call.
#[derive(Debug)]
struct Work {
    commands: u64,
    bytes: u64,
    /// How long it was busy with scripts.
    #[expect(dead_code, reason = "it is shown")]
    busy: Duration,
    /// The server's longest command.
    #[expect(dead_code, reason = "it is shown")]
    longest: Duration,
}

impl Work {
    fn of(server: &Server) -> Self {
        let mut hands = server.hands().unwrap();
        let bytes = server.info("total_net_output_bytes").unwrap().parse().unwrap();
        let stats = hands.ask(&["INFO", "commandstats"]).unwrap().to_string();
        let of = |line: &str, what: &str| -> Option<u64> {
            line.split([',', ':']).find_map(|part| part.strip_prefix(what))?.parse().ok()
        };
        let lines = || stats.lines().filter(|line| line.starts_with("cmdstat_"));
        let commands = lines().filter_map(|line| of(line, "calls=")).sum();
        let busy =
            lines().filter(|line| line.starts_with("cmdstat_evalsha")).filter_map(|line| of(line, "usec=")).sum();
        let slow = hands.ask(&["SLOWLOG", "GET", "1000"]).unwrap();
        let longest = slow.items().iter().filter_map(|entry| entry.items()[2].number()).max().unwrap_or(0);
        let longest = Duration::from_micros(longest.unsigned_abs());
        for forget in [&["CONFIG", "RESETSTAT"], &["SLOWLOG", "RESET"]] {
            hands.ask(forget).unwrap();
        }
        Self { commands, bytes, busy: Duration::from_micros(busy), longest }
    }
}

/// Pings until `stop` is set; returns the longest time without a reply.
fn longest_ping(mut hands: Hands, stop: &AtomicBool) -> Duration {
    let mut longest = Duration::ZERO;
    while !stop.load(Ordering::Acquire) {
        let start = Instant::now();
        hands.ask(&["PING"]).unwrap();
        longest = longest.max(start.elapsed());
        thread::sleep(Duration::from_millis(5));
    }
    longest
}

/// A connection takes a descriptor here and one at the server, which inherits the limit.
fn allow_many_files() {
    let mut limit = getrlimit(Resource::Nofile);
    limit.current = limit.maximum;
    setrlimit(Resource::Nofile, limit).unwrap();
}

async fn crowd(url: &str) -> Vec<Client> {
    let connect = |_| async {
        let start = Instant::now();
        loop {
            match Client::connect(url).await {
                Err(error) if error.is_retryable() && start.elapsed() < PATIENCE => {}
                connected => return connected.unwrap(),
            }
        }
    };
    stream::iter(0..CROWD).map(connect).buffer_unordered(32).collect().await
}

type Waiting = Vec<JoinHandle<Result<Guard, Error>>>;

/// Starts an acquire in each client. Returns once all of them wait, or one has given up.
async fn all_wait(clients: &[Client], bystander: &Client, limit: Duration) -> Waiting {
    let wait = |client: &Client| {
        let mutex = client.mutex("job").unwrap();
        tokio::spawn(async move { mutex.acquire_within(limit).await })
    };
    let waiting: Waiting = clients.iter().map(wait).collect();
    let name = Name::new("job").unwrap();
    until("the crowd waits or has given up", async || {
        let queued = bystander.contention(&name).await.map_or(0, |contention| contention.queued);
        queued > CROWD || waiting.iter().any(JoinHandle::is_finished)
    })
    .await;
    waiting
}

/// Waits until all have given up. Returns the work of the server, and the longest time without a reply to a bystander's
/// ping.
async fn give_up(server: &Server, waiting: Waiting) -> (Work, Duration) {
    let stop = Arc::new(AtomicBool::new(false));
    let (hands, told) = (server.hands().unwrap(), Arc::clone(&stop));
    let pinging = thread::spawn(move || longest_ping(hands, &told));
    for ended in join_all(waiting).await {
        ended.unwrap().expect_err("another client holds it");
    }
    stop.store(true, Ordering::Release);
    (Work::of(server), pinging.join().unwrap())
}

#[tokio::test]
async fn two_thousand_clients_that_give_up_together_cost_a_few_commands_each_and_a_bystander_no_lock() {
    allow_many_files();
    let server = server(Settings::default().with("maxclients 10000").with("slowlog-log-slower-than 200"));
    // Two thousand clients in one process leave little of a busy machine to the rest of the process.
    let bystander = Client::connect(&format!("{}?ttl_ms=60000", server.url())).await.unwrap();
    let mut kept = vec![bystander.mutex("job").unwrap().acquire().await.unwrap()];
    for number in 0..100 {
        kept.push(bystander.mutex(format!("kept/{number}")).unwrap().acquire().await.unwrap());
    }
    let clients = crowd(&server.url()).await;
    let (start, limit) = (Instant::now(), Duration::from_secs(20));
    let waiting = all_wait(&clients, &bystander, limit).await;
    let waited = Instant::now();
    Work::of(&server);
    // A waiter asks for the holder's name a second before its limit.
    tokio::time::sleep((limit - Duration::from_millis(1500)).saturating_sub(start.elapsed())).await;
    println!("waiting for {:?}: {:?}", waited.elapsed(), Work::of(&server));
    let start = Instant::now();
    let (work, ping) = give_up(&server, waiting).await;
    let took = start.elapsed();
    println!("giving up for {took:?}: {work:?}; the longest PING took {ping:?}");
    assert!(kept.iter().all(|guard| guard.check().is_ok()), "{work:?} in {took:?}");
    // Each client asks for the holder and leaves, and meanwhile polls every two seconds and renews. No reply lists all
    // other contenders.
    let each = 60 + 8 * took.as_secs();
    assert!(work.commands < CROWD as u64 * each && work.bytes < CROWD as u64 * each * 100, "{work:?} in {took:?}");
}

/// How often a command ran since the server counts.
fn calls(server: &Server, command: &str) -> u64 {
    let stat = server.info(&format!("cmdstat_{command}")).unwrap_or_default();
    stat.split(',').find_map(|part| part.strip_prefix("calls=")).map_or(0, |calls| calls.parse().unwrap())
}

async fn twenty_thousand(client: &Client) -> Vec<Guard> {
    let acquire = |number| {
        let mutex = client.mutex(format!("many/{number}")).unwrap();
        async move { mutex.acquire().await.unwrap() }
    };
    stream::iter(0..20_000).map(acquire).buffer_unordered(256).collect().await
}

#[tokio::test]
async fn twenty_thousand_locks_of_one_client_are_renewed_by_short_scripts_and_all_are_kept() {
    let server = server(Settings::default().with("slowlog-log-slower-than 200"));
    let client = Client::connect(&server.url()).await.unwrap();
    let kept = twenty_thousand(&client).await;
    Work::of(&server);
    until("it is renewed twice", async || calls(&server, "pexpire") >= 32).await;
    // A script of a renewal reads a limited number of buckets: a request of another client waits for no more than one
    // script.
    let (scripts, buckets) = (calls(&server, "pexpire"), calls(&server, "hget"));
    println!("{scripts} scripts, {buckets} buckets: {:?}", Work::of(&server));
    assert!(buckets <= scripts * 256, "{buckets} buckets by {scripts} scripts");
    assert!(kept.iter().all(|guard| guard.check().is_ok()));
}

#[tokio::test]
async fn twenty_thousand_locks_of_one_client_far_away_are_closed_in_few_round_trips() {
    let server = server(Settings::default().with("slowlog-log-slower-than 200"));
    let proxy = Proxy::start(server.address()).unwrap();
    let builder = Client::builder().ttl(Duration::from_secs(120));
    let client = builder.connect(&format!("redis://{}", proxy.address())).await.unwrap();
    let kept = twenty_thousand(&client).await;
    let each_way = Duration::from_millis(50);
    proxy.delay(each_way);
    Work::of(&server);
    let stop = Arc::new(AtomicBool::new(false));
    let (hands, told) = (server.hands().unwrap(), Arc::clone(&stop));
    let pinging = thread::spawn(move || longest_ping(hands, &told));
    let start = Instant::now();
    client.close().await.unwrap();
    let took = start.elapsed();
    stop.store(true, Ordering::Release);
    let (scripts, ping) = (calls(&server, "evalsha"), pinging.join().unwrap());
    println!("{scripts} scripts in {took:?}: {:?}; the longest PING took {ping:?}", Work::of(&server));
    let one_by_one = each_way * 2 * u32::try_from(scripts).unwrap();
    within(one_by_one / 2, took, &format!("{scripts} scripts"));
    let look = Client::connect(&server.url()).await.unwrap();
    assert_eq!(look.names("", None, 1).await.unwrap(), []);
    drop(kept);
}
