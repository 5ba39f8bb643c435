//! A semaphore over a resource that objects: a table of three seats, at which a fourth guest finds none.
//!
//! ```console
//! cargo run -p fencelock-examples --bin semaphore                      # on a directory of its own, made for this run
//! cargo run -p fencelock-examples --bin semaphore -- file:///tmp/locks # on any store that knows permits
//! ```

use std::error::Error;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use fencelock::Client;

type Result<T = ()> = std::result::Result<T, Box<dyn Error + Send + Sync>>;

const SEATS: u32 = 3;
const GUESTS: u32 = 10;
const VISITS: u32 = 12;

/// A table with seats that cannot be taken twice. A guest that finds too few of them makes it panic.
struct Table {
    folder: PathBuf,
    taken: AtomicU32,
    /// The most that were ever taken together.
    most: AtomicU32,
}

impl Table {
    fn new(folder: &Path) -> std::io::Result<Self> {
        fs::create_dir_all(folder)?;
        Ok(Self { folder: folder.to_owned(), taken: AtomicU32::new(0), most: AtomicU32::new(0) })
    }

    /// Occupies `count` seats for a while.
    async fn visit(&self, count: u32) -> std::io::Result<()> {
        // Only the first of two calls that make one directory succeeds.
        let free = |seat: &PathBuf| fs::create_dir(seat).is_ok();
        let all = (0..SEATS).map(|seat| self.folder.join(format!("seat-{seat}")));
        let seats: Vec<_> = all.filter(free).take(count as usize).collect();
        assert_eq!(seats.len(), count as usize, "more guests than seats");
        self.most.fetch_max(self.taken.fetch_add(count, Ordering::SeqCst) + count, Ordering::SeqCst);
        for _ in 0..10 {
            // Another task that believes to have a permit gets its chance here.
            tokio::task::yield_now().await;
        }
        self.taken.fetch_sub(count, Ordering::SeqCst);
        seats.iter().try_for_each(fs::remove_dir)
    }
}

#[tokio::main]
async fn main() -> Result {
    let own = std::env::temp_dir().join(format!("fencelock-example-semaphore-{}", std::process::id()));
    let url = std::env::args().nth(1).unwrap_or_else(|| format!("file://{}", own.join("locks").display()));
    let table = Arc::new(Table::new(&own.join("resource"))?);
    let mut guests = tokio::task::JoinSet::new();
    for number in 0..GUESTS {
        let (url, table) = (url.clone(), Arc::clone(&table));
        guests.spawn(async move { dine(&url, &table, number).await });
    }
    while let Some(dined) = guests.join_next().await {
        dined??;
    }
    let most = table.most.load(Ordering::SeqCst);
    fs::remove_dir_all(&own)?;
    println!("{GUESTS} guests came {VISITS} times each on {url}: never more than {most} of {SEATS} seats were taken");
    Ok(())
}

/// A guest, with a client of its own as another process would have; some bring company.
async fn dine(url: &str, table: &Table, number: u32) -> Result {
    let client = Client::connect(url).await?;
    let seats = client.semaphore("example/seats", SEATS)?.purpose("dining");
    for visit in 0..VISITS {
        let count = 1 + (number + visit) % 5 / 3;
        let permits = seats.clone().permits(count).acquire().await?;
        table.visit(count).await?;
        permits.release().await?;
    }
    client.close().await?;
    Ok(())
}
