//! A key of Redis that no late holder of its lock writes: the script `REDIS_FENCE`, run by any Redis client of a program.
//!
//! ```console
//! cargo run -p fencelock-examples --bin fenced -- redis://localhost:6379/0
//! ```

use std::error::Error;

use fencelock::fencing::REDIS_FENCE;
use fencelock::{Client, FencingToken};
use redis::Script;
use redis::aio::MultiplexedConnection;

type Result<T = ()> = std::result::Result<T, Box<dyn Error>>;

/// The resource that the lock protects: a key, and next to it the newest token that was seen.
struct Stock {
    redis: MultiplexedConnection,
    fence: Script,
}

impl Stock {
    /// Runs a command on the key for the holder of this token; without one, closes the key to older holders.
    async fn run(&mut self, token: FencingToken, command: &[&str]) -> redis::RedisResult<()> {
        let mut call = self.fence.key("{example/stock}:fence");
        call.key("{example/stock}").arg(token.get()).arg(command);
        call.invoke_async(&mut self.redis).await
    }
}

#[tokio::main]
async fn main() -> Result {
    let url = std::env::args().nth(1).unwrap_or_else(|| "redis://localhost:6379/0".to_owned());
    let redis = redis::Client::open(&*url)?.get_multiplexed_async_connection().await?;
    let mut stock = Stock { redis, fence: Script::new(REDIS_FENCE) };
    let client = Client::connect(&url).await?;
    let lock = client.mutex("example/stock")?.require_token(); // refused in a layout without tokens

    let guard = lock.acquire().await?;
    let token = guard.require_token()?;
    stock.run(token, &[]).await?; // the claim
    stock.run(token, &["SET", "41"]).await?;
    guard.release().await?;

    // Another client acquires the lock. The first one was paused, and still believes that it holds the lock.
    let next = lock.acquire().await?;
    stock.run(next.require_token()?, &[]).await?;
    let late = stock.run(token, &["SET", "40"]).await.expect_err("a late holder is refused");
    assert_eq!(late.code(), Some("FENCED"));
    next.release().await?;
    client.close().await?;
    println!("the late write was refused: {late}");
    Ok(())
}
