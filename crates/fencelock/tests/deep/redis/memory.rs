//! Memory that the server loses: clients notice it, holders are notified, and no token is granted twice.

use std::time::{Duration, Instant};

use fencelock::capability::Presumption;
use fencelock::{Client, FencingToken, Guard, Io, Loss};
use fencelock_testbed::redis::{Reply, Role, Server, Settings};
use fencelock_testbed::within;

use super::lab::{acquired, acquiring, client, observed, queued, server, soon, until, until_queued, with_ttl};

/// How long sessions live here.
const TTL_MS: u64 = 4000;

/// The ttl, and the same again for a busy machine.
const SOON_ENOUGH: Duration = Duration::from_millis(TTL_MS * 2);

async fn held(url: &str) -> (Client, Guard) {
    let client = client(url, TTL_MS).await;
    let guard = client.mutex("job").unwrap().acquire().await.unwrap();
    (client, guard)
}

fn token(guard: &Guard) -> FencingToken {
    guard.token().expect("a token")
}

/// Loses the memory in this way under a holder and a waiter; the holder is notified, the waiter is granted, and tokens
/// rise.
async fn is_noticed(settings: Settings, loss: Loss, lose: impl Fn(&Server)) {
    let server = server(settings);
    let (_holder, guard) = held(&server.url()).await;
    let (waiter, seen) = observed(&server.url(), TTL_MS).await;
    let waiting = acquiring(&waiter, "job");
    until_queued(&waiter, "job", 2).await;
    let start = Instant::now();
    lose(&server);
    assert_eq!(soon(guard.lost()).await, loss);
    within(SOON_ENOUGH, start.elapsed(), "a holder is notified of lost memory");
    let granted = acquired(waiting).await;
    assert!(token(&granted) > token(&guard), "{:?} after {:?}", granted.token(), guard.token());
    assert!(!seen.requeued.lock().unwrap().is_empty(), "the waiter did not notice");
    assert_eq!(queued(&waiter, "job").await, 1);
    assert!(guard.check().is_err() && guard.release().await.is_err());
    granted.release().await.unwrap();
}

#[tokio::test]
async fn a_server_that_is_emptied_costs_its_locks_and_reports_them() {
    is_noticed(Settings::default(), Loss::Expired, |server| {
        assert_eq!(server.ask(&["FLUSHALL"]).unwrap(), Reply::Status("OK".to_owned()))
    })
    .await;
}

#[tokio::test]
async fn a_bucket_that_is_lost_costs_the_locks_in_it_and_no_others_and_the_loss_is_reported() {
    let server = server(Settings::default());
    let (holder, guard) = held(&server.url()).await;
    let buckets = server.ask(&["KEYS", "fencelock:2:{*}:bucket"]).unwrap();
    let [Reply::Bytes(bucket)] = buckets.items() else { panic!("{buckets:?}") };
    let mut others = Vec::new();
    for number in 0..300 {
        others.push(holder.mutex(format!("other/{number}")).unwrap().acquire().await.unwrap());
    }
    server.ask(&["DEL".as_bytes(), bucket]).unwrap();
    let (_rival, granted) = held(&server.url()).await;
    assert!(token(&granted) > token(&guard));
    soon(guard.lost()).await;
    granted.check().unwrap();
    let lost = others.iter().filter(|other| other.check().is_err()).count();
    // Only the locks in the same bucket are lost.
    assert!(lost < 10, "{lost} of 300 others were lost");
}

#[tokio::test]
async fn a_restart_without_persistence_costs_the_locks_and_the_loss_is_reported() {
    is_noticed(Settings::default(), Loss::Restarted, |server| server.restart().unwrap()).await;
}

#[tokio::test]
async fn a_restart_on_an_empty_disk_costs_the_locks_and_the_loss_is_reported() {
    is_noticed(Settings { durable: true, ..Settings::default() }, Loss::Restarted, |server| {
        server.restart_empty().unwrap()
    })
    .await;
}

#[tokio::test]
async fn a_restart_is_suspected_where_the_user_may_not_ask_for_it() {
    let server =
        server(Settings { durable: true, ..Settings::default() }.with_user("blind", "on >p ~* &* +@all -info"));
    let url = format!("redis://blind:p@{}", server.address());
    let (holder, guard) = held(&url).await;
    assert!(holder.capability().presumes.contains(&Presumption::NoConnectionBreaks), "{:?}", holder.capability());
    server.restart().unwrap();
    assert_eq!(soon(guard.lost()).await, Loss::PerhapsRestarted);
    let granted = soon(holder.mutex("job").unwrap().acquire()).await.unwrap();
    assert!(token(&granted) > token(&guard));
    granted.release().await.unwrap();
}

fn number_after(key: &str, text: &str) -> u64 {
    let number = text.split(key).nth(1).expect("the key is there");
    number.split(|c: char| !c.is_ascii_digit()).next().unwrap().parse().unwrap()
}

/// The server's line about the connection of that user.
fn the_blind(server: &Server) -> String {
    let clients = server.ask(&["CLIENT", "LIST"]).unwrap().to_string();
    clients.lines().find(|line| line.contains("user=blind")).expect("it is connected").to_owned()
}

/// A new connection costs the locks of the old one. A connection whose caller does not poll still answers pings, and is
/// kept.
#[tokio::test]
async fn a_caller_that_looks_at_no_answer_costs_no_connection() {
    let server = server(Settings::default().with_user("blind", "on >p ~* &* +@all -info"));
    let url = with_ttl(&format!("redis://blind:p@{}", server.address()), TTL_MS);
    let client = Client::builder().io(Io::CurrentRuntime).connect(&url).await.unwrap();
    let guard = client.mutex("held").unwrap().acquire().await.unwrap();
    let pings = || server.info("cmdstat_ping").map_or(0, |said| number_after("calls=", &said));
    let connection = || number_after("id=", &the_blind(&server));
    let (asked, before) = (pings(), connection());
    let next = client.mutex("job").unwrap();
    let mut standing_still = std::pin::pin!(next.acquire());
    assert!(futures_util::poll!(standing_still.as_mut()).is_pending());
    until("the connection is asked again and again", async || pings() > asked + 4).await;
    assert_eq!(connection(), before, "it was made anew");
    guard.check().unwrap();
    soon(standing_still).await.unwrap().check().unwrap();
}

#[tokio::test]
async fn a_restart_with_persistence_grants_nothing_twice() {
    let server = server(Settings { durable: true, ..Settings::default() });
    let (holder, guard) = held(&server.url()).await;
    let rival = client(&server.url(), TTL_MS).await;
    let waiting = acquiring(&rival, "job");
    until_queued(&rival, "job", 2).await;
    server.restart().unwrap();
    // The holder keeps the lock alone, or is notified of the loss.
    let start = Instant::now();
    while guard.check().is_ok() && start.elapsed() < SOON_ENOUGH {
        assert!(!waiting.is_finished(), "a rival was granted while the holder held");
        tokio::task::yield_now().await;
    }
    // The lock may be lost already: the result of the release does not matter.
    let before = token(&guard);
    let _ = guard.release().await;
    let granted = acquired(waiting).await;
    assert!(token(&granted) > before);
    granted.release().await.unwrap();
    until_queued(&holder, "job", 0).await;
}

#[tokio::test]
async fn tokens_rise_over_a_backup_that_knows_less() {
    let server = server(Settings::default());
    let (_before, guard) = held(&server.url()).await;
    let before = token(&guard);
    guard.release().await.unwrap();
    let backup = server.backup().unwrap();
    let (_client, newer) = held(&server.url()).await;
    assert!(token(&newer) > before);
    server.restore(&backup).unwrap();
    server.wait_until_serving().unwrap();
    soon(newer.lost()).await;
    let (_client, newest) = held(&server.url()).await;
    assert!(token(&newest) > token(&newer));
}

#[tokio::test]
async fn tokens_rise_over_a_failover_that_lost_the_last_grants() {
    let primary = server(Settings::default());
    let replica = server(Settings::role(Role::ReplicaOf(primary.address())));
    let (_client, first) = held(&primary.url()).await;
    let before = token(&first);
    first.release().await.unwrap();
    until("the replica has it", async || replica.ask(&["DBSIZE"]).unwrap().number().unwrap() > 0).await;
    // From here on the primary acknowledges writes that never reach the replica.
    replica.pause();
    let (_client, last) = held(&primary.url()).await;
    primary.kill();
    replica.resume();
    replica.ask(&["REPLICAOF", "NO", "ONE"]).unwrap();
    let (_client, next) = held(&replica.url()).await;
    assert!(token(&next) > token(&last) && token(&last) > before);
    soon(last.lost()).await;
}
