//! Transfers between ten accounts by eight processes: each takes both accounts or none, and the sum stays the same.
//!
//! An account objects. Its file is read and written in two steps, and a folder next to the file marks that a process uses the
//! account. `cargo run -p fencelock-examples --bin transfers -- URL` runs it on any store that processes share.

use std::error::Error;
use std::fs;
use std::path::Path;
use std::process::{Command, id};

const ACCOUNTS: u32 = 10;
const PROCESSES: usize = 8;
const TRANSFERS: u32 = 50;

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error + Send + Sync>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if let [teller, url, bank] = &arguments[..] {
        return transfer(teller.parse()?, url, Path::new(bank)).await;
    }
    let own = std::env::temp_dir().join(format!("fencelock-example-transfers-{}", id()));
    let bank = own.join("bank");
    fs::create_dir_all(&bank)?;
    (0..ACCOUNTS).try_for_each(|account| fs::write(bank.join(account.to_string()), "100"))?;
    let url = arguments.first().cloned().unwrap_or_else(|| format!("file://{}", own.join("locks").display()));
    let teller =
        |teller: usize| Command::new(std::env::current_exe()?).args([&teller.to_string(), &url]).arg(&bank).spawn();
    for mut teller in (0..PROCESSES).map(teller).collect::<Result<Vec<_>, _>>()? {
        assert!(teller.wait()?.success(), "a teller failed");
    }
    let balance = |account: u32| -> Result<i64, Box<dyn Error + Send + Sync>> {
        Ok(fs::read_to_string(bank.join(account.to_string()))?.parse()?)
    };
    let sum = (0..ACCOUNTS).map(balance).sum::<Result<i64, _>>()?;
    assert_eq!(sum, 100 * i64::from(ACCOUNTS), "money was made or lost");
    fs::remove_dir_all(&own)?;
    println!("{PROCESSES} processes made {TRANSFERS} transfers each on {url}, and the sum is still {sum}");
    Ok(())
}

/// A process, which names its accounts in any order, and waits for no process that waits for it.
async fn transfer(teller: u32, url: &str, bank: &Path) -> Result<(), Box<dyn Error + Send + Sync>> {
    let client = fencelock::Client::connect(url).await?;
    for number in 0..TRANSFERS {
        let from = (teller + 7 * number) % ACCOUNTS;
        let to = (from + 1 + (teller + number) % (ACCOUNTS - 1)) % ACCOUNTS;
        let both = client.multi_lock([from, to].map(|account| format!("account/{account}")))?.acquire().await?;
        for (account, change) in [(from, -1), (to, 1)] {
            let (file, busy) = (bank.join(account.to_string()), bank.join(format!("{account}.busy")));
            fs::create_dir(&busy).expect("two tellers at one account");
            let balance: i64 = fs::read_to_string(&file)?.parse()?;
            tokio::task::yield_now().await;
            fs::write(&file, (balance + change).to_string())?;
            fs::remove_dir(&busy)?;
        }
        both.release().await?;
    }
    Ok(client.close().await?)
}
