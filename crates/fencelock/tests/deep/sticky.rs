//! The benefit of a sticky lock: sections of a hundred tasks of one process, and a lock that four processes share. The figures are compared
//! with other clients' in a release build alone (`cargo test --release --workspace --all-features --test deep -- sticky:: --nocapture`).

use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use fencelock::memory::MemoryStore;
use fencelock::{Client, Mutex};
use fencelock_testbed::redis::{self, Settings};
use fencelock_testbed::zookeeper;

const KEEP: Duration = Duration::from_secs(5);
const TASKS: usize = 100;
/// Sections a second of 32 tasks of one process on one name, as `docs/benchmarks.md` has them.
const CURATOR: f64 = 421.0;
const REDISSON: f64 = 1363.0;
/// The variable with the URL for each of the four processes.
const URL: &str = "FENCELOCK_STICKY_URL";
const SHARED_FOR: Duration = Duration::from_secs(10);

/// The number of sections that `tasks` tasks finish in `time`.
async fn sections(lock: Mutex, tasks: usize, time: Duration) -> u64 {
    let (count, is_over) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicBool::new(false)));
    let tasks: Vec<_> = (0..tasks)
        .map(|_| {
            let (lock, count, is_over) = (lock.clone(), Arc::clone(&count), Arc::clone(&is_over));
            tokio::spawn(async move {
                while !is_over.load(Ordering::Relaxed) {
                    lock.acquire().await.unwrap().release().await.unwrap();
                    count.fetch_add(1, Ordering::Relaxed);
                }
            })
        })
        .collect();
    tokio::time::sleep(time).await;
    let counted = count.load(Ordering::Relaxed);
    is_over.store(true, Ordering::Relaxed);
    for task in tasks {
        task.await.unwrap();
    }
    counted
}

async fn a_hundred_tasks(store: &str, url: &str, least: f64) {
    let client = Client::connect(url).await.unwrap();
    let lock = client.mutex("counter").unwrap();
    let (time, one) = (Duration::from_secs(3), lock.clone().sticky(KEEP));
    let plain = sections(lock, TASKS, time).await as f64 / time.as_secs_f64();
    let sticky = sections(one.clone(), TASKS, time).await as f64 / time.as_secs_f64();
    let start = Instant::now();
    for _ in 0..100_000 {
        one.acquire().await.unwrap().release().await.unwrap();
    }
    let alone = start.elapsed() / 100_000;
    println!(
        "{store}: {TASKS} tasks of one process have {sticky:.0} sections/s, and {plain:.0} without; one task {alone:?} each"
    );
    client.close().await.unwrap();
    let least = if cfg!(debug_assertions) { 5.0 * plain } else { least };
    assert!(sticky >= least, "{store}: {sticky:.0} sections/s, and not {least:.0}");
}

#[tokio::test]
async fn a_hundred_tasks_of_one_process_on_zookeeper() {
    let shared = zookeeper::shared();
    let url = format!("zk://{}{}?tick_ms=500", shared.address(), shared.namespace());
    a_hundred_tasks("zk", &url, 100.0 * CURATOR).await;
}

#[tokio::test]
async fn a_hundred_tasks_of_one_process_on_redis() {
    let server = redis::Server::start(Settings::default()).unwrap();
    a_hundred_tasks("redis", &server.url(), 50.0 * REDISSON).await;
}

/// A process of the four. Without the variable, the test does nothing.
#[tokio::test]
async fn one_of_four() {
    let Ok(url) = std::env::var(URL) else { return };
    let client = Client::connect(&url).await.unwrap();
    let lock = client.mutex("counter").unwrap().sticky(KEEP);
    // All four processes have started.
    sections(lock.clone(), 8, Duration::from_secs(2)).await;
    println!("sections: {}", sections(lock, 8, SHARED_FOR).await);
    client.close().await.unwrap();
}

fn start(url: &str) -> Child {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", "sticky::one_of_four", "--nocapture"]).env(URL, url).stdout(Stdio::piped());
    command.spawn().unwrap()
}

fn four_processes(store: &str, url: &str) {
    let children: Vec<_> = (0..4).map(|_| start(url)).collect();
    let counted = |child: Child| -> u64 {
        let said = String::from_utf8(child.wait_with_output().unwrap().stdout).unwrap();
        let (_, after) = said.split_once("sections: ").unwrap_or_else(|| panic!("{said}"));
        after.split_whitespace().next().unwrap().parse().unwrap()
    };
    let counts: Vec<_> = children.into_iter().map(counted).collect();
    let (least, most) = (*counts.iter().min().unwrap(), *counts.iter().max().unwrap());
    let (fair, rate) = (least as f64 / most as f64, counts.iter().sum::<u64>() as f64 / SHARED_FOR.as_secs_f64());
    println!("{store}: four processes of 8 tasks have {counts:?}, {rate:.0} sections/s, least ÷ most {fair:.3}");
    assert!(fair >= if cfg!(debug_assertions) { 0.5 } else { 0.9 }, "{store}: {counts:?}");
}

#[test]
fn four_processes_share_a_sticky_lock_on_zookeeper() {
    let shared = zookeeper::shared();
    four_processes("zk", &format!("zk://{}{}?tick_ms=500", shared.address(), shared.namespace()));
}

#[test]
fn four_processes_share_a_sticky_lock_on_redis() {
    let server = redis::Server::start(Settings::default()).unwrap();
    four_processes("redis", &server.url());
}

#[tokio::test]
async fn taking_it_again_takes_two_microseconds() {
    let client = Client::builder().connect_store(MemoryStore::new()).await.unwrap();
    let lock = client.mutex("counter").unwrap().sticky(KEEP);
    let mut best = Duration::MAX;
    for _ in 0..20 {
        let start = Instant::now();
        for _ in 0..10_000 {
            lock.acquire().await.unwrap().release().await.unwrap();
        }
        best = best.min(start.elapsed() / 10_000);
    }
    println!("memory: a section of a kept lock takes {best:?}");
    assert!(cfg!(debug_assertions) || best <= Duration::from_micros(2), "{best:?}");
}
