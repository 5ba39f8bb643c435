//! A contender that was alone and draws the next number is granted without a list: what that costs, and when it must not be believed.
//!
//! The session is spoken to itself, with no engine: so nothing is asked but what the test asks for, and the server can be made to
//! count it.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use fencelock::store::{Entered, Entry, Left, Opened, Opening, Place, RequestId, Standing, StoreUrl, open_url};
use fencelock::{Claim, Clock, Name, Owner, Result, SystemClock};
use fencelock_testbed::zookeeper::{Ensemble, Settings, shared};
use fencelock_testbed::{Proxy, Way};
use fencelock_zookeeper::{Acl, CreateMode, ErrorKind as Wire};
use futures_util::{FutureExt, StreamExt};

use crate::lab::{Lab, hands, soon};

mod parent;

/// How Curator's mutex, and ours, begins.
const CURATORS: &str = "_c_fb230995-c2bc-4a6c-98b5-6f506fd9afae-lock-";

/// What a cycle costs whose node was listed, and one that was known to be alone.
const LISTED: u64 = 3;
const ALONE: u64 = 2;

/// What the one before the first of those costs: the parent is watched.
const WATCHED: u64 = 4;

/// A session whose bytes go through a proxy.
struct Near {
    lab: Lab,
    proxy: Proxy,
    opened: Opened,
    server: SocketAddr,
    number: AtomicU64,
    session: i64,
}

impl Near {
    async fn new(options: &str) -> Self {
        Self::on(shared().address(), options).await
    }

    async fn on(server: SocketAddr, options: &str) -> Self {
        let proxy = Proxy::start(server).unwrap();
        let lab = Lab { server: proxy.address(), parent: shared().namespace(), hands: hands(server).await };
        // No container: the servers would remove it with the last lock.
        lab.hands.create(&lab.parent, b"", CreateMode::Persistent, &[Acl::open()]).await.unwrap();
        let url = format!("zk://{}{}?tick_ms=500{options}", proxy.address(), lab.parent);
        let store = open_url(StoreUrl::parse(&url).unwrap()).await.unwrap();
        let owner = Owner::new(7, "near", 1);
        let opened =
            store.open(Opening::here(owner, Duration::from_secs(60), Arc::new(SystemClock)).unwrap()).await.unwrap();
        let mut near = Self { lab, proxy, opened, server, number: AtomicU64::new(0), session: 0 };
        let place = near.granted("first", Claim::MUTEX).await;
        near.session = near.owner_of("first").await;
        near.leave(place).await;
        near.cycle_on_a_parent_that_is_there().await;
        near
    }

    /// Makes the parent of a name, to stay: a container may be removed at any time between two cycles.
    async fn keep(&self, name: &str) {
        match self.lab.hands.create(&self.lab.path(name), b"", CreateMode::Persistent, &[Acl::open()]).await {
            Err(error) if error.kind() != Wire::NodeExists => panic!("{error}"),
            _ => {}
        }
    }

    /// The next name is not taken for a new one, whose parent is made with it.
    async fn cycle_on_a_parent_that_is_there(&self) {
        self.keep("there").await;
        let place = self.granted("there", Claim::MUTEX).await;
        self.leave(place).await;
    }

    /// The session that made the first node of `name`. Where all locks share one parent, there is one.
    async fn owner_of(&self, name: &str) -> i64 {
        let below = if self.lab.children(name).await.is_empty() { "" } else { name };
        let node = self.lab.children(below).await.remove(0);
        let path = format!("{}/{node}", self.lab.path(below));
        self.lab.hands.exists(&path).await.unwrap().unwrap().ephemeral_owner
    }

    fn entry(&self, name: &str, claim: Claim, wait: bool) -> Arc<Entry> {
        let id = RequestId { client: 7, number: 1 + self.number.fetch_add(1, Ordering::Relaxed) };
        Arc::new(Entry { name: Name::new(name).unwrap(), claim, id, wait, purpose: None })
    }

    async fn enter(&self, entry: &Arc<Entry>) -> Result<Entered> {
        soon(self.opened.session.enter(Arc::clone(entry))).await
    }

    async fn place(&self, name: &str, claim: Claim) -> Box<dyn Place> {
        self.enter(&self.entry(name, claim, true)).await.map(place_of).unwrap()
    }

    async fn granted(&self, name: &str, claim: Claim) -> Box<dyn Place> {
        let place = self.place(name, claim).await;
        assert!(holds(&*place), "{:?}", place.standing());
        place
    }

    async fn leave(&self, mut place: Box<dyn Place>) {
        assert_eq!(soon(place.leave()).await.unwrap(), Left::Released);
    }

    /// Takes and leaves a lock; says what was asked for.
    async fn cycle(&self, name: &str, claim: Claim) -> u64 {
        let before = self.requests();
        let place = self.granted(name, claim).await;
        self.leave(place).await;
        self.requests() - before
    }

    /// So many cycles below a parent that stays, and what each one asked for.
    async fn cycles(&self, count: usize, name: &str, claim: Claim) -> Vec<u64> {
        self.keep(name).await;
        let mut asked = Vec::new();
        for _ in 0..count {
            asked.push(self.cycle(name, claim).await);
        }
        asked
    }

    /// From here on, the next node of `job` is taken for alone: its number is 3.
    async fn warm(&self) {
        self.cycles(3, "job", Claim::MUTEX).await;
    }

    /// How many requests the server has received from the session on this connection.
    fn requests(&self) -> u64 {
        let mut server = TcpStream::connect(self.server).unwrap();
        server.write_all(b"cons").unwrap();
        let mut said = String::new();
        server.read_to_string(&mut said).unwrap();
        let session = format!("sid=0x{:x},", self.session);
        let line = said.lines().find(|line| line.contains(&session)).unwrap_or_else(|| panic!("{session} {said}"));
        let (_, count) = line.split_once("recved=").unwrap();
        count.split(',').next().unwrap().parse().unwrap()
    }

    /// The numbers of the nodes of `name`.
    async fn numbers(&self, name: &str) -> Vec<u64> {
        let children = self.lab.children(name).await;
        children.iter().map(|child| child[child.len() - 10..].parse().unwrap()).collect()
    }

    /// Deletes `job` and makes it anew, where somebody else holds the lock with the number 0 and the next number is 3.
    async fn make_anew(&self) -> String {
        match self.lab.hands.delete(&self.lab.path("job"), None).await {
            Err(error) if error.kind() != Wire::NoNode => panic!("{error}"),
            _ => {}
        }
        let job = format!("job/{CURATORS}");
        let holder = self.lab.put(&job, CreateMode::EphemeralSequential).await;
        for _ in 0..2 {
            let node = self.lab.put(&job, CreateMode::EphemeralSequential).await;
            self.lab.delete(&node).await;
        }
        holder
    }
}

fn place_of(entered: Entered) -> Box<dyn Place> {
    match entered {
        Entered::In(place) => place,
        Entered::Busy | Entered::Conflict(_) => panic!("it waits"),
    }
}

fn holds(place: &dyn Place) -> bool {
    matches!(place.standing(), Standing::Granted(_))
}

/// Waits until the place holds.
async fn until_granted(place: &mut Box<dyn Place>) {
    let until = SystemClock.now().after(crate::lab::PATIENCE);
    assert!(matches!(soon(place.next(until)).await.unwrap(), Standing::Granted(_)));
}

/// Every claim that a dialect takes.
fn claims(options: &str) -> Vec<Claim> {
    let permits = [(1, 3), (3, 3)].map(|(weight, capacity)| Claim::new(weight, capacity).unwrap());
    match options {
        "&layout=shared" => vec![Claim::MUTEX],
        _ => [Claim::MUTEX, Claim::READER, Claim::WRITER].into_iter().chain(permits).collect(),
    }
}

#[tokio::test]
async fn from_the_third_on_a_cycle_alone_costs_a_create_and_a_delete_whatever_is_taken() {
    for options in ["", "&layout=kazoo", "&handover=list"] {
        let near = Near::new(options).await;
        for claim in claims(options) {
            let name = format!("job {claim:?}").replace(|c: char| !c.is_ascii_alphanumeric(), "-");
            let asked = near.cycles(7, &name, claim).await;
            assert_eq!(asked, [LISTED, WATCHED, ALONE, ALONE, ALONE, ALONE, ALONE], "{options} {claim:?}");
        }
        // Whatever was taken before.
        near.warm().await;
        for claim in claims(options) {
            assert_eq!(near.cycle("job", claim).await, ALONE, "{options} {claim:?}");
        }
    }
}

#[tokio::test]
async fn under_one_parent_for_all_locks_every_cycle_lists() {
    let near = Near::new("&layout=shared").await;
    assert_eq!(near.cycles(5, "job", Claim::MUTEX).await, [LISTED; 5]);
}

#[tokio::test]
async fn a_try_is_granted_by_its_number_too() {
    let near = Near::new("").await;
    near.warm().await;
    let before = near.requests();
    let place = place_of(near.enter(&near.entry("job", Claim::MUTEX, false)).await.unwrap());
    assert!(holds(&*place));
    assert_eq!(near.requests() - before, 1);
}

#[tokio::test]
async fn whoever_comes_behind_one_that_is_alone_waits_for_it() {
    for claim in claims("") {
        let near = Near::new("").await;
        near.cycles(3, "job", claim).await;
        let alone = near.granted("job", claim).await;
        let far = Near::new("").await;
        let whole = Claim::new(claim.capacity(), claim.capacity()).unwrap();
        let store = format!("zk://{}{}?tick_ms=500", far.server, near.lab.parent);
        let store = open_url(StoreUrl::parse(&store).unwrap()).await.unwrap();
        let owner = Owner::new(8, "far", 1);
        let opened =
            store.open(Opening::here(owner, Duration::from_secs(60), Arc::new(SystemClock)).unwrap()).await.unwrap();
        let entry = Entry { id: RequestId { client: 8, number: 1 }, ..(*near.entry("job", whole, true)).clone() };
        let mut behind = place_of(soon(opened.session.enter(Arc::new(entry))).await.unwrap());
        assert!(!holds(&*behind), "{claim:?}");
        near.leave(alone).await;
        until_granted(&mut behind).await;
    }
}

#[tokio::test]
async fn whoever_came_in_between_is_waited_for_and_guesses_are_made_again_after_four_right_ones() {
    let near = Near::new("").await;
    near.warm().await;
    let other = near.lab.put(&format!("job/{CURATORS}"), CreateMode::EphemeralSequential).await;
    let before = near.requests();
    let mut place = near.place("job", Claim::MUTEX).await;
    // The guess is made once; then it is a round trip for each, as ever.
    assert!(!holds(&*place) && near.requests() - before == 2);
    for _ in 0..3 {
        let before = near.requests();
        let busy = near.enter(&near.entry("job", Claim::MUTEX, false)).await.unwrap();
        assert!(matches!(busy, Entered::Busy));
        assert_eq!(near.requests() - before, LISTED);
    }
    near.lab.delete(&other).await;
    until_granted(&mut place).await;
    near.leave(place).await;
    let asked = near.cycles(8, "job", Claim::MUTEX).await;
    assert_eq!(asked, [LISTED, LISTED, LISTED, LISTED, WATCHED, ALONE, ALONE, ALONE]);
}

#[tokio::test]
async fn a_child_of_any_kind_made_in_between_is_seen() {
    let near = Near::new("").await;
    near.warm().await;
    // Of no session, with a number that nobody drew: it blocks everybody.
    let blocks = near.lab.put(&format!("job/{CURATORS}0000000000"), CreateMode::Persistent).await;
    let place = near.place("job", Claim::MUTEX).await;
    assert!(!holds(&*place));
    near.lab.delete(&blocks).await;
    near.leave(place).await;
    // Another one came before the listing that nothing but our node was to be seen in.
    near.lab.put("other/stranger", CreateMode::Persistent).await;
    let asked = near.cycles(5, "other", Claim::MUTEX).await;
    assert_eq!(asked, [LISTED; 5], "a stranger is a child");
}

#[tokio::test]
async fn what_was_known_on_a_connection_is_forgotten_with_it() {
    let near = Near::new("").await;
    near.warm().await;
    near.proxy.refuse();
    near.proxy.reset();
    near.make_anew().await;
    near.proxy.heal();
    let place = near.place("job", Claim::MUTEX).await;
    assert_eq!(near.numbers("job").await, [0, 3]);
    assert!(!holds(&*place), "two hold it");
    // Where nothing happened, it is found out anew with the first list.
    near.cycles(3, "other", Claim::MUTEX).await;
    let connections = near.proxy.connections();
    near.proxy.reset();
    near.lab.until_queued("other", 0).await;
    while near.proxy.connections() == connections {
        tokio::task::yield_now().await;
    }
    // A first request finds the way back, whatever becomes of it.
    while near.enter(&near.entry("way", Claim::MUTEX, true)).await.is_err() {}
    near.cycle_on_a_parent_that_is_there().await;
    assert_eq!(near.cycles(3, "other", Claim::MUTEX).await, [WATCHED, ALONE, ALONE]);
}

#[tokio::test]
async fn a_new_connection_watches_no_parent_for_what_was_known_on_the_one_before() {
    let ensemble = Ensemble::start(Settings::default()).unwrap();
    let mut near = Near::on(ensemble.server(0).address(), "").await;
    let watches = || ensemble.server(0).monitor("zk_watch_count").unwrap();
    for number in 0..20 {
        near.cycles(3, &format!("job-{number}"), Claim::MUTEX).await;
    }
    assert!(watches() >= 20, "{}", watches());
    near.proxy.refuse();
    near.proxy.reset();
    let connections = near.proxy.connections();
    // A client that looks for a server has said before that it lost one.
    while near.proxy.connections() == connections {
        tokio::task::yield_now().await;
    }
    assert!(near.opened.events.next().now_or_never().is_none());
    near.proxy.heal();
    while near.enter(&near.entry("way", Claim::MUTEX, true)).await.is_err() {}
    assert_eq!(watches(), 0);
}

#[tokio::test]
async fn of_names_that_are_forgotten_the_server_keeps_no_watch() {
    let ensemble = Ensemble::start(Settings::default()).unwrap();
    let near = Near::on(ensemble.server(0).address(), "").await;
    let watches = || ensemble.server(0).monitor("zk_watch_count").unwrap();
    // A few more than are remembered, each with a parent that stays.
    for number in 0..1030 {
        let name = format!("job-{number}");
        near.keep(&name).await;
        for _ in 0..2 {
            let place = near.granted(&name, Claim::MUTEX).await;
            near.leave(place).await;
        }
    }
    assert!((100..1000).contains(&watches()), "{} are watched", watches());
    assert_eq!(near.cycle("job-1029", Claim::MUTEX).await, ALONE, "what is remembered is watched");
}

/// The answer to the create is lost, and the parent was made anew by the holder of the lock.
#[tokio::test]
async fn a_guess_whose_answer_is_lost_with_its_connection_is_none() {
    let near = Near::new("").await;
    near.warm().await;
    near.proxy.hold(Way::Down);
    near.make_anew().await;
    let entry = near.entry("job", Claim::MUTEX, true);
    let cut = async {
        near.lab.until_queued("job", 2).await;
        near.proxy.reset();
        near.proxy.heal();
    };
    let (failed, ()) = futures_util::future::join(near.enter(&entry), cut).await;
    assert!(failed.is_err_and(|error| error.is_retryable()));
    let place = soon(async {
        loop {
            match near.enter(&entry).await {
                Ok(entered) => return place_of(entered),
                Err(error) => assert!(error.is_retryable(), "{error}"),
            }
        }
    })
    .await;
    assert_eq!(near.numbers("job").await, [0, 3]);
    assert!(!holds(&*place), "two hold it");
}

#[tokio::test]
async fn nothing_is_concluded_from_a_deletion_whose_answer_nobody_heard() {
    let near = Near::new("").await;
    near.warm().await;
    let mut place = near.granted("job", Claim::MUTEX).await;
    near.proxy.hold(Way::Down);
    // Given up after it was sent: for all that is known, the node is there.
    tokio::select! {
        left = place.leave() => panic!("no answer comes: {left:?}"),
        _ = near.lab.until_queued("job", 0) => {}
    }
    near.proxy.release();
    assert_eq!(near.cycle("job", Claim::MUTEX).await, LISTED);
    assert_eq!(soon(place.leave()).await.unwrap(), Left::AlreadyGone);
    assert_eq!(near.cycles(5, "job", Claim::MUTEX).await, [LISTED, LISTED, LISTED, WATCHED, ALONE]);
    // Lost with its connection.
    let mut place = near.granted("job", Claim::MUTEX).await;
    near.proxy.cut_after(0, Way::Down);
    let failed = soon(place.leave()).await.unwrap_err();
    assert!(failed.is_retryable(), "{failed}");
    near.proxy.heal();
    let left = soon(async {
        loop {
            match place.leave().await {
                Ok(left) => return left,
                Err(error) => assert!(error.is_retryable(), "{error}"),
            }
        }
    })
    .await;
    assert_eq!(left, Left::AlreadyGone);
    assert!(near.cycle("job", Claim::MUTEX).await >= LISTED);
}

#[tokio::test]
async fn a_node_that_somebody_else_deleted_proves_nothing() {
    let near = Near::new("").await;
    near.warm().await;
    let mut place = near.granted("job", Claim::MUTEX).await;
    let node = near.lab.children("job").await.remove(0);
    near.lab.delete(&format!("job/{node}")).await;
    assert_eq!(soon(place.leave()).await.unwrap(), Left::AlreadyGone);
    assert_eq!(near.cycle("job", Claim::MUTEX).await, LISTED);
}

#[tokio::test]
async fn a_downgrade_counts_as_somebody_in_between() {
    let near = Near::new("").await;
    near.cycles(3, "page", Claim::WRITER).await;
    let mut place = near.granted("page", Claim::WRITER).await;
    soon(place.lighten(Claim::READER)).await.unwrap();
    near.leave(place).await;
    assert_eq!(near.cycle("page", Claim::WRITER).await, LISTED);
}

#[tokio::test]
async fn of_two_that_come_at_once_one_is_granted_and_the_other_waits_for_it() {
    let near = Near::new("").await;
    for round in 0..20 {
        let name = format!("job-{round}");
        near.cycles(3, &name, Claim::MUTEX).await;
        let two = [near.entry(&name, Claim::MUTEX, true), near.entry(&name, Claim::MUTEX, true)];
        let (one, other) = futures_util::future::join(near.enter(&two[0]), near.enter(&two[1])).await;
        let (one, mut other) = (place_of(one.unwrap()), place_of(other.unwrap()));
        assert!(holds(&*one) && !holds(&*other));
        near.leave(one).await;
        until_granted(&mut other).await;
        near.leave(other).await;
    }
}

#[tokio::test]
async fn locks_taken_once_cost_no_watch() {
    let near = Near::new("").await;
    for number in 0..20 {
        let name = format!("once-{number}");
        assert_eq!(near.cycles(1, &name, Claim::MUTEX).await, [LISTED]);
    }
}
