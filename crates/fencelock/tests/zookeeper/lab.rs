//! Helpers of these tests: clients of ours, and hands that create and delete nodes as other clients do.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use fencelock::observe::{Event, Observer};
use fencelock::{Client, Error, Io, Loss, PermitGuard, ReadGuard, WriteGuard};
use fencelock_testbed::zookeeper::{Ensemble, Settings, shared};
use fencelock_zookeeper as wire;
use fencelock_zookeeper::{Acl, CreateMode};
use futures_util::future;
use tokio::task::JoinHandle;

pub(crate) use crate::patience::*;

/// A parent that no other test uses, on one server, and hands of its own.
pub(crate) struct Lab {
    pub(crate) server: SocketAddr,
    pub(crate) parent: String,
    pub(crate) hands: wire::Client,
}

impl Lab {
    /// On the server that all tests share.
    pub(crate) async fn new() -> Self {
        Self::on(shared().address()).await
    }

    /// On the server that all tests share, with a client of the default layout.
    pub(crate) async fn with_client() -> (Self, Client) {
        let lab = Self::new().await;
        let client = lab.client("").await;
        (lab, client)
    }

    /// On a server of the test's own.
    pub(crate) async fn alone() -> (Ensemble, Self) {
        let server = Ensemble::start(Settings::default()).unwrap();
        let lab = Self::on(server.server(0).address()).await;
        (server, lab)
    }

    pub(crate) async fn on(server: SocketAddr) -> Self {
        Self { server, parent: shared().namespace(), hands: hands(server).await }
    }

    /// The URL of the store, with `options` such as `&layout=kazoo`.
    pub(crate) fn url(&self, options: &str) -> String {
        format!("zk://{}{}?tick_ms=500&ttl_ms=60000{options}", self.server, self.parent)
    }

    pub(crate) async fn client(&self, options: &str) -> Client {
        Client::connect(&self.url(options)).await.unwrap()
    }

    /// The path of a node below the parent.
    pub(crate) fn path(&self, below: &str) -> String {
        format!("{}/{below}", self.parent).trim_end_matches('/').to_owned()
    }

    /// Creates a node as other clients do, with its missing parents. Returns its name.
    pub(crate) async fn put(&self, below: &str, mode: CreateMode) -> String {
        let path = self.path(below);
        for (at, _) in path.match_indices('/').skip(1) {
            let _ = self.hands.create(&path[..at], b"", CreateMode::Persistent, &[Acl::open()]).await;
        }
        let created = self.hands.create(&path, b"by hand", mode, &[Acl::open()]).await.unwrap();
        created.path.strip_prefix(&format!("{}/", self.parent)).unwrap().to_owned()
    }

    pub(crate) async fn delete(&self, below: &str) {
        self.hands.delete(&self.path(below), None).await.unwrap();
    }

    /// The children of a node below the parent, sorted by their numbers; none of a node that is not there.
    pub(crate) async fn children(&self, below: &str) -> Vec<String> {
        let path = self.path(below);
        self.hands.sync(&path).await.unwrap();
        let mut children = match self.hands.get_children(&path).await {
            Ok((children, _)) => children,
            Err(error) if error.kind() == wire::ErrorKind::NoNode => Vec::new(),
            Err(error) => panic!("{error}"),
        };
        children.sort_by_key(|child| child[child.len().saturating_sub(10)..].to_owned());
        children
    }

    /// Waits until the queue of `name` has `count` nodes.
    pub(crate) async fn until_queued(&self, name: &str, count: usize) -> Vec<String> {
        let start = Instant::now();
        loop {
            let children = self.children(name).await;
            if children.len() == count {
                return children;
            }
            assert!(start.elapsed() < PATIENCE, "these are queued, and not {count}: {children:?}");
            pause().await;
        }
    }
}

/// A bare client of ZooKeeper.
pub(crate) async fn hands(server: SocketAddr) -> wire::Client {
    let config = wire::Config::new(&server.to_string()).unwrap().session_timeout(Duration::from_secs(60));
    wire::Client::connect(config).await.unwrap().0
}

/// Creates `count` nodes with names of `bytes` bytes under the lock `name`, a few at a time: a busy server hangs up on too many.
pub(crate) async fn stuff(lab: &Lab, name: &str, count: usize, bytes: usize) {
    let path = |number: usize| lab.path(&format!("{name}/{number:x>bytes$}"));
    for some in (0..count).collect::<Vec<_>>().chunks(200) {
        // The nodes belong to no session: a server could not close a session that has all of them.
        let made = some.iter().map(|n| lab.hands.create(&path(*n), b"x", CreateMode::Persistent, &[Acl::open()]));
        for made in soon(future::join_all(made)).await {
            made.unwrap();
        }
    }
}

/// Remembers why places went away while they waited.
#[derive(Debug, Default)]
pub(crate) struct Requeued(pub(crate) Mutex<Vec<Loss>>);

impl Observer for Requeued {
    fn observe(&self, event: &Event<'_>) {
        if let Event::Requeued { cause, .. } = event {
            self.0.lock().unwrap().push(*cause);
        }
    }
}

/// A client of ours that remembers.
pub(crate) async fn observed(url: &str) -> (Client, Arc<Requeued>) {
    let requeued = Arc::new(Requeued::default());
    let observer = Arc::clone(&requeued) as Arc<dyn Observer>;
    (Client::builder().observer(observer).connect(url).await.unwrap(), requeued)
}

pub(crate) type Acquiring<G> = JoinHandle<Result<G, Error>>;

pub(crate) fn reading(client: &Client, name: &str) -> Acquiring<ReadGuard> {
    let lock = client.rwlock(name).unwrap();
    tokio::spawn(async move { lock.read().await })
}

pub(crate) fn writing(client: &Client, name: &str) -> Acquiring<WriteGuard> {
    let lock = client.rwlock(name).unwrap();
    tokio::spawn(async move { lock.write().await })
}

pub(crate) fn taking(client: &Client, name: &str, weight: u32, capacity: u32) -> Acquiring<PermitGuard> {
    let seats = client.semaphore(name, capacity).unwrap().permits(weight);
    tokio::spawn(async move { seats.acquire().await })
}

pub(crate) async fn granted<G>(acquiring: Acquiring<G>) -> G {
    soon(acquiring).await.unwrap().unwrap()
}

/// The error of a connect, which must come in time.
pub(crate) async fn refused(url: &str) -> Error {
    let start = Instant::now();
    let error = soon(Client::builder().io(Io::CurrentRuntime).connect(url)).await.unwrap_err();
    assert!(start.elapsed() < PATIENCE / 2, "{:?}", start.elapsed());
    error
}
