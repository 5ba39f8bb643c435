//! Layers: payments are locked in a safe store, the cache in a fast one, by patterns that every program of the fleet shares.
//!
//! Here both are directories. `cargo run -p fencelock-examples --bin layers -- zk://host/locks redis://host/0` takes real ones.

use std::error::Error;

use fencelock::Client;
use fencelock::recipes::Router;

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error + Send + Sync>> {
    let own = std::env::temp_dir().join(format!("fencelock-example-layers-{}", std::process::id()));
    let directory = |name: &str| format!("file://{}", own.join(name).display());
    std::fs::create_dir_all(&own)?;
    let mut urls = std::env::args().skip(1);
    let safe = urls.next().unwrap_or_else(|| directory("safe"));
    let fast = urls.next().unwrap_or_else(|| directory("fast"));

    // The most specific pattern decides, in any order of the list. No store replaces another.
    let routes = [("**", &fast), ("pay/**", &safe), ("pay/*/preview", &fast)];
    let router = Router::new(routes)?.connect(Client::builder).await?;
    for (name, url) in [("cache/index", &fast), ("pay/7", &safe), ("pay/7/refund", &safe), ("pay/7/preview", &fast)] {
        let guard = router.mutex(name)?.acquire().await?;
        // Another program that knows the store alone finds the lock taken there, and only there.
        for store in [&safe, &fast] {
            let there = Client::connect(store).await?;
            let is_free = there.mutex(name)?.try_acquire().await.is_ok();
            assert_eq!(is_free, store != url, "{name} in {store}");
        }
        guard.release().await?;
    }
    let strict = Router::new([("pay/**", &safe)])?;
    assert!(strict.route("cache/index").is_err(), "a name without a pattern has no store");

    // Names of several stores, all or none.
    router.multi_lock(["pay/7", "cache/index"])?.acquire().await?.release().await?;
    drop(router);
    assert!(fencelock::flush(std::time::Duration::from_secs(10)), "what was dropped is given back");
    std::fs::remove_dir_all(&own)?;
    println!("each name was locked in its own store, of {safe} and {fast}");
    Ok(())
}
