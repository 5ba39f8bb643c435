//! What these tests share: clients of ours, and hands that create and delete nodes as other clients do.

use std::future::Future;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use fencelock::{Client, Error, Event, Guard, Loss, Observer};
use fencelock_testbed::zookeeper::shared;
use fencelock_zookeeper as wire;
use fencelock_zookeeper::{Acl, CreateMode};

/// Long enough for everything that is waited for, on a busy machine too.
pub(crate) const PATIENCE: Duration = Duration::from_secs(180);

/// Waits for something that has to come.
pub(crate) async fn soon<T>(what: impl Future<Output = T>) -> T {
    tokio::time::timeout(PATIENCE, what).await.expect("it has to come")
}

/// A parent that nobody else uses, on one server, and hands of one's own.
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

    pub(crate) async fn on(server: SocketAddr) -> Self {
        Self { server, parent: shared().namespace(), hands: hands(server).await }
    }

    /// The URL of the store, with `options` such as `&layout=kazoo`.
    pub(crate) fn url(&self, options: &str) -> String {
        format!("zk://{}{}?tick_ms=500&ttl_ms=20000{options}", self.server, self.parent)
    }

    pub(crate) async fn client(&self, options: &str) -> Client {
        Client::connect(&self.url(options)).await.unwrap()
    }

    /// The path of a node below the parent.
    pub(crate) fn path(&self, below: &str) -> String {
        format!("{}/{below}", self.parent).trim_end_matches('/').to_owned()
    }

    /// Creates a node as other clients do, and what is missing above it. Says what it was called.
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

    /// Waits until so many nodes are in the queue of `name`.
    pub(crate) async fn until_queued(&self, name: &str, count: usize) -> Vec<String> {
        let start = Instant::now();
        loop {
            let children = self.children(name).await;
            if children.len() == count {
                return children;
            }
            assert!(start.elapsed() < PATIENCE, "these are queued, and not {count}: {children:?}");
            tokio::task::yield_now().await;
        }
    }

    /// The same without listing them; says how many requests it took.
    pub(crate) async fn until_many_queued(&self, name: &str, count: usize) -> u64 {
        let path = self.path(name);
        let mut looks = 1;
        soon(async {
            while self.hands.exists(&path).await.unwrap().unwrap().num_children < i32::try_from(count).unwrap() {
                looks += 1;
                tokio::task::yield_now().await;
            }
        })
        .await;
        looks
    }
}

/// A client of the bare kind.
pub(crate) async fn hands(server: SocketAddr) -> wire::Client {
    let config = wire::Config::new(&server.to_string()).unwrap().session_timeout(Duration::from_secs(30));
    wire::Client::connect(config).await.unwrap().0
}

/// Acquires in the background.
pub(crate) fn acquiring(client: &Client, name: &str) -> tokio::task::JoinHandle<Result<Guard, Error>> {
    let mutex = client.mutex(name).unwrap();
    tokio::spawn(async move { mutex.acquire().await })
}

/// What an acquire in the background came to.
pub(crate) async fn acquired(task: tokio::task::JoinHandle<Result<Guard, Error>>) -> Guard {
    soon(task).await.unwrap().unwrap()
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
