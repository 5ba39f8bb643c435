//! The crate `rslock` as a driver, with its defaults but for how often it tries: again after up to 200 ms.

use std::collections::HashMap;
use std::time::Duration;

use anyhow::{Context as _, Result, anyhow, bail};
use rslock::{Lock, LockManager};
use tokio::runtime::Runtime;

use crate::ours::{now, obeying};
use crate::turns::Work;

/// Takes orders until stdin ends.
pub(crate) fn serve(servers: &str, ttl_ms: u64) -> Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().context("no runtime")?;
    let (manager, ttl) =
        (LockManager::new(servers.split(',').map(str::to_owned).collect()), Duration::from_millis(ttl_ms));
    let mut driver = Driver { runtime, manager, ttl, held: HashMap::new(), handles: 0 };
    obeying(|words| driver.obey(words))
}

struct Driver {
    runtime: Runtime,
    manager: LockManager,
    ttl: Duration,
    held: HashMap<u64, Lock>,
    handles: u64,
}

impl Driver {
    fn obey(&mut self, words: &[&str]) -> Result<String> {
        match *words {
            ["version"] => Ok("done rslock=0.10".to_owned()),
            ["acquire", "rslock", parent, name, wait_ms] => {
                let acquired = self.acquire(parent, name, wait_ms.parse().ok())?;
                let at = now();
                let Some(lock) = acquired else { return Ok("busy".to_owned()) };
                self.handles += 1;
                self.held.insert(self.handles, lock);
                Ok(format!("done handle={} at={at}", self.handles))
            }
            ["release", handle] => {
                let lock = self.held.remove(&handle.parse()?).context("no such handle")?;
                let at = now();
                self.runtime.block_on(self.manager.unlock(&lock));
                Ok(format!("done at={at}"))
            }
            ["end", handle] => {
                self.held.remove(&handle.parse()?);
                Ok("done".to_owned())
            }
            ["count", "rslock", parent, name, turns, file] => {
                let work = Work::new("count", file, &[])?;
                for _ in 0..turns.parse()? {
                    let lock = self.acquire(parent, name, None)?.context("it was given up")?;
                    work.once()?;
                    self.runtime.block_on(self.manager.unlock(&lock));
                }
                Ok("done".to_owned())
            }
            _ => bail!("no such order: {}", words.join(" ")),
        }
    }

    fn acquire(&self, parent: &str, name: &str, wait_ms: Option<u64>) -> Result<Option<Lock>> {
        let key = format!("{parent}:{name}");
        let limit = wait_ms.map_or(Duration::MAX, Duration::from_millis);
        let acquire = self.manager.acquire_no_guard(key.as_bytes(), self.ttl);
        match self.runtime.block_on(async { tokio::time::timeout(limit, acquire).await }) {
            Ok(lock) => Ok(Some(lock.map_err(|fault| anyhow!("{fault}"))?)),
            Err(_late) => Ok(None),
        }
    }
}
