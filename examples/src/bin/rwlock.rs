//! A read-write lock over a resource that objects: a page in two halves, of which a reader during a write would see one
//! old and one new.
//!
//! ```console
//! cargo run -p fencelock-examples --bin rwlock                      # on a directory of its own, made for this run
//! cargo run -p fencelock-examples --bin rwlock -- file:///tmp/locks # on any store that knows readers and writers
//! ```

use std::error::Error;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use fencelock::Client;

type Result<T = ()> = std::result::Result<T, Box<dyn Error + Send + Sync>>;

const READERS: usize = 12;
const EDITIONS: u32 = 40;

/// A page that takes two steps to write. A reader in between makes it panic.
struct Page {
    halves: [PathBuf; 2],
    /// The number of current readers, so that a write during a read is noticed, too.
    readers: AtomicUsize,
    /// The most that ever read together.
    most: AtomicUsize,
}

impl Page {
    fn new(folder: &Path) -> std::io::Result<Self> {
        fs::create_dir_all(folder)?;
        let halves = [folder.join("left"), folder.join("right")];
        halves.iter().try_for_each(|half| fs::write(half, "0"))?;
        Ok(Self { halves, readers: AtomicUsize::new(0), most: AtomicUsize::new(0) })
    }

    async fn write(&self, edition: u32) -> std::io::Result<()> {
        for half in &self.halves {
            assert_eq!(self.readers.load(Ordering::SeqCst), 0, "a writer together with a reader");
            fs::write(half, edition.to_string())?;
            // Another task that believes to hold the lock gets its chance here.
            tokio::task::yield_now().await;
        }
        Ok(())
    }

    async fn read(&self) -> Result<u32> {
        self.most.fetch_max(self.readers.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
        let left = fs::read_to_string(&self.halves[0])?;
        tokio::task::yield_now().await;
        let right = fs::read_to_string(&self.halves[1])?;
        self.readers.fetch_sub(1, Ordering::SeqCst);
        assert_eq!(left, right, "a torn read");
        Ok(left.parse()?)
    }
}

#[tokio::main]
async fn main() -> Result {
    let own = std::env::temp_dir().join(format!("fencelock-example-rwlock-{}", std::process::id()));
    let url = std::env::args().nth(1).unwrap_or_else(|| format!("file://{}", own.join("locks").display()));
    let page = Arc::new(Page::new(&own.join("resource"))?);
    let mut readers = tokio::task::JoinSet::new();
    for _ in 0..READERS {
        let (url, page) = (url.clone(), Arc::clone(&page));
        readers.spawn(async move { read(&url, &page).await });
    }
    write(&url, &page).await?;
    let mut reads = 0;
    while let Some(read) = readers.join_next().await {
        reads += read??;
    }
    let most = page.most.load(Ordering::SeqCst);
    fs::remove_dir_all(&own)?;
    println!(
        "one writer wrote {EDITIONS} editions on {url}; {reads} reads, up to {most} at a time, saw whole ones only"
    );
    Ok(())
}

/// The writer, with a client of its own as another process would have. The writer proofreads as a reader: together with
/// other readers, and without a write in between.
async fn write(url: &str, page: &Page) -> Result {
    let client = Client::connect(url).await?;
    let lock = client.rwlock("example/page")?.purpose("writing");
    for edition in 1..=EDITIONS {
        let writing = lock.write().await?;
        page.write(edition).await?;
        let reading = writing.downgrade().await?;
        assert_eq!(page.read().await?, edition, "another client wrote in between");
        reading.release().await?;
    }
    client.close().await?;
    Ok(())
}

/// A reader, until it has seen the last edition; how often it read.
async fn read(url: &str, page: &Page) -> Result<u32> {
    let client = Client::connect(url).await?;
    let lock = client.rwlock("example/page")?.purpose("reading");
    let (mut reads, mut seen) = (0, 0);
    while seen < EDITIONS {
        let guard = lock.read().await?;
        let edition = page.read().await?;
        assert!(edition >= seen, "edition {edition} after {seen}");
        guard.release().await?;
        (reads, seen) = (reads + 1, edition);
    }
    client.close().await?;
    Ok(reads)
}
