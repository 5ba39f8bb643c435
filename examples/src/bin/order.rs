//! An order that is submitted again and again within five minutes is taken once, by any of the shops; prices are loaded once for all.
//!
//! The book of orders objects: a file that is there already cannot be made again. `cargo run -p fencelock-examples --bin order -- URL` runs
//! it on any store that processes share and that keeps notes.

use std::error::Error;
use std::fs::{self, OpenOptions};
use std::io::Write as _;
use std::path::Path;
use std::process::{Command, id};
use std::time::Duration;

use fencelock::Client;
use fencelock::recipes::Passage;

const SHOPS: usize = 8;
const ORDERS: usize = 20;

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error + Send + Sync>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if let [url, book] = &arguments[..] {
        return receive(url, Path::new(book)).await;
    }
    let own = std::env::temp_dir().join(format!("fencelock-example-order-{}", id()));
    let book = own.join("book");
    fs::create_dir_all(&book)?;
    let url = arguments.first().cloned().unwrap_or_else(|| format!("file://{}", own.join("locks").display()));
    let shop = |_| Command::new(std::env::current_exe()?).arg(&url).arg(&book).spawn();
    for mut shop in (0..SHOPS).map(shop).collect::<Result<Vec<_>, _>>()? {
        assert!(shop.wait()?.success(), "a shop failed");
    }
    let taken = fs::read_dir(&book)?.count() - 1;
    assert_eq!(taken, ORDERS, "each order is taken once");
    assert_eq!(fs::read_to_string(book.join("prices"))?, "loaded\n", "prices are loaded once");
    fs::remove_dir_all(&own)?;
    println!("{SHOPS} processes received {ORDERS} orders each on {url}, and took {taken} in all");
    Ok(())
}

/// A shop. Every shop receives every order.
async fn receive(url: &str, book: &Path) -> Result<(), Box<dyn Error + Send + Sync>> {
    let client = Client::connect(url).await?;
    let load = async || {
        writeln!(OpenOptions::new().create(true).append(true).open(book.join("prices"))?, "loaded")?;
        Ok::<_, Box<dyn Error + Send + Sync>>(b"7".to_vec())
    };
    let price = client.once("example/prices", "today")?.get_or_make(load).await?;
    assert_eq!(*price, *b"7");
    for order in 0..ORDERS {
        let window = client.window(format!("example/order/{order}"), Duration::from_secs(300))?;
        match window.pass().await? {
            Passage::First { .. } => drop(fs::File::create_new(book.join(order.to_string()))?),
            Passage::Refused { first, .. } => assert_ne!(&first, client.owner(), "each shop receives an order once"),
        }
    }
    Ok(client.close().await?)
}
