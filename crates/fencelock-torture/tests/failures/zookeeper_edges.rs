//! The edges of ZooKeeper itself: counters at their end, answers that are too long, a follower that knows nothing.

use std::sync::Arc;
use std::time::Duration;

use fencelock::time::{Clock, SystemClock};
use fencelock::{Client, ErrorKind};
use fencelock_lab::Site;
use fencelock_testbed::Way;
use fencelock_testbed::zookeeper::{Ensemble, Settings};
use fencelock_torture::table::site_name;
use fencelock_torture::{Bed, Breakable, ZooKeeper};
use fencelock_zookeeper::{Acl, Config, CreateMode};

fn site(name: &str, clients: usize, settings: Settings) -> (Arc<ZooKeeper>, Breakable) {
    let servers = Arc::new(ZooKeeper::of(Ensemble::start(settings).unwrap(), None));
    let bed: Arc<dyn Bed> = Arc::clone(&servers) as Arc<dyn Bed>;
    (servers, Breakable::new(&bed, name, clients).unwrap())
}

fn block_on<T>(test: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(test)
}

#[test]
fn a_counter_near_its_end_is_refused_and_nothing_stays_behind() {
    let (servers, site) = site("locks", 1, Settings::default().with("digest.enabled", false));
    let ensemble = servers.ensemble();
    block_on(async {
        let client = Client::connect(&site.url(0)).await.unwrap();
        let mutex = client.mutex("job").unwrap();
        mutex.acquire().await.unwrap().release().await.unwrap();
        // The last number that is granted, and then the end of the server's counter.
        for (next, granted) in [(2_146_483_647, true), (2_146_483_648, false), (i32::MAX - 1, false), (i32::MAX, false)]
        {
            ensemble.server(0).set_sequence(&["/locks/job"], next).unwrap();
            // The server was started anew. An attempt whose answer is lost meanwhile would use up a number.
            client.queue(mutex.name()).await.unwrap();
            match mutex.acquire().await {
                Ok(guard) if granted => guard.release().await.unwrap(),
                Err(error) if !granted => assert_eq!(error.kind(), ErrorKind::Exhausted, "{next}: {error}"),
                other => panic!("{next}: {other:?}"),
            }
            let queue = client.queue(mutex.name()).await.unwrap();
            assert!(queue.contenders.is_empty(), "{next}: {queue:?}");
        }
    });
}

#[test]
fn children_of_more_than_a_mebibyte_are_an_error_that_names_the_limit() {
    let name = site_name();
    let (servers, site) = site(&name, 1, Settings::default().heap(512));
    block_on(async {
        let client = Client::connect(&site.url(0)).await.unwrap();
        let mutex = client.mutex("job").unwrap();
        mutex.acquire().await.unwrap().release().await.unwrap();
        let raw = Config::new(&servers.ensemble().connect_string()).unwrap().session_timeout(Duration::from_secs(60));
        let (raw, _events) = fencelock_zookeeper::Client::connect(raw).await.unwrap();
        let parent = format!("/{name}/job");
        for batch in 0..22 {
            let stranger = |number: usize| {
                let path = format!("{parent}/{:0>500}", batch * 100 + number);
                raw.create(&path, b"", CreateMode::Ephemeral, &[Acl::open()])
            };
            for made in (0..100).map(stranger).collect::<Vec<_>>() {
                made.await.unwrap();
            }
        }
        let error = mutex.acquire().await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Exhausted, "{error}");
        assert!(error.to_string().contains("max_answer_bytes"), "{error}");
        // With longer answers, and once they are gone, all is well; the attempt that failed left nothing.
        let patient = Client::connect(&site.url(0).replace("&max_answer_bytes=1048575", "")).await.unwrap();
        patient.mutex("job").unwrap().acquire().await.unwrap().release().await.unwrap();
        raw.close().await.unwrap();
        mutex.acquire().await.unwrap().release().await.unwrap();
    });
}

/// The connected follower answers pings and reads by itself, and does not know that the leader has expired its clients:
/// a client that took those answers as signs of life would believe in its lock for seconds after a rival's grant.
#[test]
fn a_client_of_a_frozen_follower_is_notified_before_a_rival_is_granted() {
    // A follower that is out of touch for less than 8 s continues to serve, and sessions end after 3 s.
    let settings = Settings { sync_limit: 16, ..Settings::ensemble() };
    let (servers, site) = site("locks", 2, settings.with("forceSync", "no"));
    let ensemble = servers.ensemble();
    for round in 0..4 {
        let (leader, follower) = (ensemble.leader(), ensemble.followers()[round % 2]);
        block_on(async {
            let holder = Client::connect(&site.url_of_server(0, follower)).await.unwrap();
            let rival = Client::connect(&site.url_of_server(1, leader)).await.unwrap();
            let guard = holder.mutex("job").unwrap().acquire().await.unwrap();
            let waiting = rival.mutex("job").unwrap();
            let waiting = tokio::spawn(async move { (waiting.acquire().await.unwrap(), SystemClock.now()) });
            // At another phase of the renewals in every round.
            SystemClock
                .sleep_until(SystemClock.now().after(site.ttl() * 3 / 4 + Duration::from_millis(150) * round as u32))
                .await;
            guard.check().unwrap();
            ensemble.link(follower, leader).hold(Way::Both);
            let frozen = SystemClock.now();
            guard.lost().await;
            let told = SystemClock.now();
            let (granted, at) = waiting.await.unwrap();
            println!("told after {:?}, rival after {:?}", told.since(frozen), at.since(frozen));
            assert!(told < at, "notified {:?} after the rival's grant", told.since(at));
            // The follower was still there, and serving: otherwise this showed nothing.
            assert!(ensemble.server(follower).mode().is_some());
            granted.release().await.unwrap();
        });
        ensemble.heal().unwrap();
    }
}
