//! A mutex over a resource that objects: a directory that cannot be made twice, and a counter without any protection of
//! its own.
//!
//! ```console
//! cargo run -p fencelock-examples --bin mutex                      # on a directory of its own, made for this run
//! cargo run -p fencelock-examples --bin mutex -- file:///tmp/locks # on any store
//! ```

use std::error::Error;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use fencelock::{Client, FencingToken};

type Result<T = ()> = std::result::Result<T, Box<dyn Error + Send + Sync>>;

const WORKERS: u64 = 8;
const TURNS: u64 = 25;

/// A resource for one user at a time. A second user that comes while one is inside makes it panic.
struct Resource {
    folder: PathBuf,
}

impl Resource {
    fn new(folder: &Path) -> std::io::Result<Self> {
        fs::create_dir_all(folder)?;
        fs::write(folder.join("counter"), "0")?;
        fs::write(folder.join("fence"), "0")?;
        Ok(Self { folder: folder.to_owned() })
    }

    /// Adds one, in a way that loses counts when two do it at once; refuses a token older than one it has seen.
    async fn add_one(&self, token: FencingToken) -> std::io::Result<()> {
        let occupied = self.folder.join("occupied");
        fs::create_dir(&occupied).expect("two holders at once");
        let fence = self.number("fence")?;
        assert!(token.to_i64() > fence, "token {token} comes after {fence}");
        let counter = self.number("counter")?;
        // Another task that believes to hold the lock gets its chance here.
        tokio::task::yield_now().await;
        fs::write(self.folder.join("counter"), (counter + 1).to_string())?;
        fs::write(self.folder.join("fence"), token.to_i64().to_string())?;
        fs::remove_dir(&occupied)
    }

    fn number(&self, file: &str) -> std::io::Result<i64> {
        let text = fs::read_to_string(self.folder.join(file))?;
        text.trim().parse().map_err(std::io::Error::other)
    }
}

#[tokio::main]
async fn main() -> Result {
    let own = std::env::temp_dir().join(format!("fencelock-example-{}", std::process::id()));
    let url = std::env::args().nth(1).unwrap_or_else(|| format!("file://{}", own.join("locks").display()));
    let resource = Arc::new(Resource::new(&own.join("resource"))?);
    let mut workers = tokio::task::JoinSet::new();
    for _ in 0..WORKERS {
        let (url, resource) = (url.clone(), Arc::clone(&resource));
        workers.spawn(async move { work(&url, &resource).await });
    }
    while let Some(worked) = workers.join_next().await {
        worked??;
    }
    let counter = resource.number("counter")?;
    fs::remove_dir_all(&own)?;
    assert_eq!(counter, i64::try_from(WORKERS * TURNS)?, "the counter lost some");
    println!("{WORKERS} workers took {TURNS} turns each on {url}: the counter says {counter}, as it should");
    Ok(())
}

/// A worker, with a client of its own as another process would have.
async fn work(url: &str, resource: &Resource) -> Result {
    let client = Client::connect(url).await?;
    let lock = client.mutex("example")?.purpose("counting");
    for _ in 0..TURNS {
        let guard = lock.acquire().await?;
        let token = guard.require_token()?;
        resource.add_one(token).await?;
        guard.release().await?;
    }
    client.close().await?;
    Ok(())
}
