//! Stock that must not be oversold: eight processes sell from one shelf until it is empty.
//!
//! The shelf objects twice. Its number in a file is read and written in two steps, so that two sellers at once lose a
//! sale. The shelf refuses a token older than one that it has seen, so that a seller that slept past its lock sells
//! nothing.
//!
//! ```console
//! cargo run -p fencelock-examples --bin stock                      # on a directory of its own, made for this run
//! cargo run -p fencelock-examples --bin stock -- file:///tmp/locks # on any store that processes share
//! ```

use std::error::Error;
use std::fs::{self, OpenOptions};
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use fencelock::{Client, FencingToken};

type Result<T = ()> = std::result::Result<T, Box<dyn Error + Send + Sync>>;

const SELLERS: usize = 8;
const STOCK: i64 = 400;

/// The argument that makes this program one of its sellers.
const SELLER: &str = "--seller";

/// A shelf in a folder, for one seller at a time.
struct Shelf(PathBuf);

impl Shelf {
    fn fill(folder: &Path) -> std::io::Result<Self> {
        fs::create_dir_all(folder)?;
        fs::write(folder.join("left"), STOCK.to_string())?;
        fs::write(folder.join("fence"), "0")?;
        fs::write(folder.join("sales"), "")?;
        Ok(Self(folder.to_owned()))
    }

    /// Sells one, if there is one left, and writes down who did.
    async fn sell(&self, token: FencingToken) -> std::io::Result<bool> {
        let occupied = self.0.join("occupied");
        fs::create_dir(&occupied).expect("two sellers at once");
        let fence = self.number("fence")?;
        assert!(token.to_i64() > fence, "token {token} comes after {fence}");
        fs::write(self.0.join("fence"), token.to_i64().to_string())?;
        let left = self.number("left")?;
        // Another process that believes to hold the lock gets its chance here.
        tokio::task::yield_now().await;
        if left > 0 {
            fs::write(self.0.join("left"), (left - 1).to_string())?;
            writeln!(OpenOptions::new().append(true).open(self.0.join("sales"))?, "{}", std::process::id())?;
        }
        fs::remove_dir(&occupied)?;
        Ok(left > 0)
    }

    fn number(&self, file: &str) -> std::io::Result<i64> {
        fs::read_to_string(self.0.join(file))?.trim().parse().map_err(std::io::Error::other)
    }
}

#[tokio::main]
async fn main() -> Result {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match &arguments[..] {
        [seller, url, folder] if seller == SELLER => sell(url, &Shelf(folder.into())).await,
        _ => run(arguments.first()),
    }
}

/// Starts the sellers, and counts what they sold.
fn run(url: Option<&String>) -> Result {
    let own = std::env::temp_dir().join(format!("fencelock-example-stock-{}", std::process::id()));
    let shelf = Shelf::fill(&own.join("shelf"))?;
    let url = url.cloned().unwrap_or_else(|| format!("file://{}", own.join("locks").display()));
    let seller = || {
        let mut command = Command::new(std::env::current_exe()?);
        command.args([SELLER, url.as_str()]).arg(&shelf.0).stdin(Stdio::null()).spawn()
    };
    let mut sellers = (0..SELLERS).map(|_| seller()).collect::<std::io::Result<Vec<_>>>()?;
    for seller in &mut sellers {
        let ended = seller.wait()?;
        assert!(ended.success(), "a seller ended with {ended}");
    }
    let sales = fs::read_to_string(shelf.0.join("sales"))?;
    let sold = i64::try_from(sales.lines().count())?;
    assert_eq!((sold, shelf.number("left")?), (STOCK, 0), "sold, and left on the shelf");
    fs::remove_dir_all(&own)?;
    println!("{SELLERS} processes sold {sold} of {STOCK} on {url}, and none is left");
    Ok(())
}

/// A seller, until the shelf is empty.
async fn sell(url: &str, shelf: &Shelf) -> Result {
    let client = Client::connect(url).await?;
    let lock = client.mutex("example/stock")?.purpose("selling");
    loop {
        let guard = lock.acquire().await?;
        let token = guard.require_token()?;
        let sold = shelf.sell(token).await?;
        guard.release().await?;
        if !sold {
            break;
        }
    }
    client.close().await?;
    Ok(())
}
