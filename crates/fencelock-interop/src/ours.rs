//! fencelock as a driver: the same orders as the programs in `interop/`, but for the workloads, which the benchmark has
//! workers of its own for.

use std::collections::HashMap;
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use fencelock::{AnyGuard, Client, ErrorKind, Name, WriteGuard};
use tokio::runtime::Runtime;

use crate::turns::Work;

/// Takes orders until stdin ends. The words after a `?` in `servers` are options for the URL of the store.
pub(crate) fn serve(servers: &str, session_timeout_ms: u64) -> Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().context("no runtime")?;
    let ttl = Duration::from_millis(session_timeout_ms);
    obey_all(Ours { runtime, ttl, servers: servers.to_owned(), clients: HashMap::new() })
}

/// The locks of a driver.
pub(crate) trait Locks {
    type Held;

    /// The name of the client, and its version.
    const VERSION: &'static str;

    /// Returns `None` when `wait_ms` has passed; waits without limit if it is `None`.
    fn acquire(&mut self, lock: Lock<'_>, wait_ms: Option<u64>) -> Result<Option<Self::Held>>;

    fn release(&mut self, held: Self::Held) -> Result<()>;

    /// Obeys an order that not every driver knows.
    fn obey(&mut self, words: &[&str], held: &mut HashMap<u64, Self::Held>) -> Result<String> {
        let _ = held;
        bail!("no such order: {}", words.join(" "))
    }
}

/// Answers orders until stdin ends.
pub(crate) fn obey_all<L: Locks>(mut locks: L) -> Result<()> {
    let (mut held, mut handles) = (HashMap::new(), 0);
    println!("ready");
    for line in std::io::stdin().lines() {
        let words = line?;
        let words: Vec<&str> = words.split(' ').collect();
        match obey(&mut locks, &words, &mut held, &mut handles) {
            Ok(answer) => println!("{answer}"),
            Err(fault) => println!("failed {}", format!("{fault:#}").replace('\n', " ")),
        }
    }
    Ok(())
}

fn obey<L: Locks>(
    locks: &mut L,
    words: &[&str],
    all_held: &mut HashMap<u64, L::Held>,
    handles: &mut u64,
) -> Result<String> {
    match *words {
        ["version"] => Ok(format!("done {}", L::VERSION)),
        ["acquire", recipe, parent, name, wait_ms] => {
            let acquired = locks.acquire((recipe, parent, name), wait_ms.parse().ok())?;
            let at = now();
            let Some(held) = acquired else { return Ok("busy".to_owned()) };
            *handles += 1;
            all_held.insert(*handles, held);
            Ok(format!("done handle={handles} at={at}"))
        }
        ["release", handle] => {
            let held = all_held.remove(&handle.parse()?).context("no such handle")?;
            let at = now();
            locks.release(held)?;
            Ok(format!("done at={at}"))
        }
        ["end", handle] => {
            all_held.remove(&handle.parse()?);
            Ok("done".to_owned())
        }
        [verb @ ("count" | "look" | "sit"), recipe, parent, name, turns, file, ref rest @ ..] => {
            let work = Work::new(verb, file, rest)?;
            for _ in 0..turns.parse()? {
                let held = locks.acquire((recipe, parent, name), None)?.context("it was given up")?;
                work.once()?;
                locks.release(held)?;
            }
            Ok("done".to_owned())
        }
        _ => locks.obey(words, all_held),
    }
}

struct Ours {
    runtime: Runtime,
    ttl: Duration,
    servers: String,
    /// By dialect and parent.
    clients: HashMap<(String, String), Client>,
}

/// A guard, and whether it can be downgraded.
enum Held {
    Writing(WriteGuard),
    Other(AnyGuard),
    /// A lock of two layouts: both are held.
    Both(Box<(Held, Held)>),
}

impl Held {
    async fn release(self) -> Result<()> {
        match self {
            Self::Writing(guard) => guard.release().await?,
            Self::Other(guard) => guard.release().await?,
            Self::Both(both) => {
                let (first, second) = *both;
                let second = Box::pin(second.release()).await;
                Box::pin(first.release()).await?;
                second?;
            }
        }
        Ok(())
    }

    async fn downgrade(self) -> Result<Self> {
        match self {
            Self::Writing(guard) => Ok(Self::Other(guard.downgrade().await?.into_any())),
            Self::Other(_) | Self::Both(_) => bail!("only a writer can become a reader"),
        }
    }
}

impl Locks for Ours {
    type Held = Held;

    const VERSION: &'static str = concat!("fencelock=", env!("CARGO_PKG_VERSION"));

    fn acquire(&mut self, lock: Lock<'_>, wait_ms: Option<u64>) -> Result<Option<Held>> {
        let Some((first, second)) = lock.0.split_once('+') else { return self.acquire_one(lock, wait_ms) };
        let (_, parent, name) = lock;
        // The order is the same for all, or two drivers could wait for each other.
        let Some(held) = self.acquire_one((first, parent, name), wait_ms)? else { return Ok(None) };
        if let Some(other) = self.acquire_one((second, parent, name), wait_ms)? {
            return Ok(Some(Held::Both(Box::new((held, other)))));
        }
        self.release(held).map(|()| None)
    }

    fn release(&mut self, held: Held) -> Result<()> {
        self.runtime.block_on(held.release())
    }

    fn obey(&mut self, words: &[&str], all_held: &mut HashMap<u64, Held>) -> Result<String> {
        match *words {
            ["downgrade", handle] => {
                let handle = handle.parse()?;
                let held = all_held.remove(&handle).context("no such handle")?;
                let at = now();
                all_held.insert(handle, self.runtime.block_on(held.downgrade())?);
                Ok(format!("done at={at}"))
            }
            ["queue", recipe, parent, name] => self.queue((recipe, parent, name)),
            ["holder", recipe, parent, name] => self.holder((recipe, parent, name)),
            ["break", recipe, parent, name] => self.end((recipe, parent, name)),
            _ => bail!("no such order: {}", words.join(" ")),
        }
    }
}

impl Ours {
    fn acquire_one(&mut self, (recipe, parent, name): Lock<'_>, wait_ms: Option<u64>) -> Result<Option<Held>> {
        let (dialect, kind) = parts(recipe);
        let client = self.client(dialect, parent)?;
        let acquired = self.runtime.block_on(take(&client, kind, name, wait_ms.map(Duration::from_millis)));
        match acquired {
            Ok(held) => Ok(Some(held)),
            Err(fault) if matches!(fault.kind(), ErrorKind::Busy | ErrorKind::TimedOut) => Ok(None),
            Err(fault) => Err(fault.into()),
        }
    }

    /// The number of contenders, and of nodes that are none.
    fn queue(&mut self, (recipe, parent, name): Lock<'_>) -> Result<String> {
        let client = self.client(parts(recipe).0, parent)?;
        let queue = self.runtime.block_on(client.queue(&Name::new(name)?))?;
        Ok(format!("done contenders={} strangers={}", queue.contenders.len(), queue.strangers.len()))
    }

    /// The holder, ours or of another client; and whether its name is listed, if the server lists any.
    fn holder(&mut self, (recipe, parent, name): Lock<'_>) -> Result<String> {
        let client = self.client(parts(recipe).0, parent)?;
        let listed = match self.runtime.block_on(client.names(name, None, 1)) {
            Ok(names) => !names.is_empty(),
            Err(fault) if fault.kind() == ErrorKind::Unsupported => false,
            Err(fault) => return Err(fault.into()),
        };
        let queue = self.runtime.block_on(client.queue(name))?;
        let held = queue.contenders.iter().filter(|contender| contender.grant.is_some());
        let whose: Vec<_> = held.map(|one| if one.foreign.is_some() { "foreign" } else { "ours" }).collect();
        Ok(format!("done holder={} listed={listed}", whose.join("+")))
    }

    /// Breaks the holder's grant.
    fn end(&mut self, (recipe, parent, name): Lock<'_>) -> Result<String> {
        let client = self.client(parts(recipe).0, parent)?;
        let queue = self.runtime.block_on(client.queue(name))?;
        let holder = queue.contenders.iter().find(|one| one.grant.is_some()).context("it has no holder")?;
        let broken = self.runtime.block_on(client.break_grant(name, holder, "interop"))?;
        Ok(format!("done broken={broken} at={}", now()))
    }

    fn client(&mut self, dialect: &str, parent: &str) -> Result<Client> {
        let key = (dialect.to_owned(), parent.to_owned());
        if let Some(client) = self.clients.get(&key) {
            return Ok(client.clone());
        }
        let (servers, options) = self.servers.split_once('?').unwrap_or((&self.servers, ""));
        let url = if let Some(hosts) = servers.strip_prefix("redis://") {
            let masters: Vec<_> = hosts.split(",redis://").collect();
            let scheme = if masters.len() == 1 { "redis" } else { "redlock" };
            format!("{scheme}://{}?{}&{options}", masters.join(","), dialect.replace("{parent}", parent))
        } else if servers.contains("://") {
            format!("{servers}?{dialect}&{options}")
        } else {
            format!("zk://{servers}{parent}?layout={dialect}&{options}")
        };
        let client = self.runtime.block_on(Client::builder().ttl(self.ttl).connect(url.trim_end_matches('&')))?;
        self.clients.insert(key, client.clone());
        Ok(client)
    }
}

/// Which client a recipe asks for, and which kind of lock. On Redis the first are options of a URL, which have colons.
fn parts(recipe: &str) -> (&str, &str) {
    // Where two locks are held together, the first one names the holder.
    let recipe = recipe.split('+').next().unwrap_or(recipe);
    let between = if recipe.contains('=') { '#' } else { ':' };
    recipe.split_once(between).unwrap_or((recipe, "mutex"))
}

/// A recipe, a parent and a name.
pub(crate) type Lock<'a> = (&'a str, &'a str, &'a str);

/// Takes a lock of `kind`: `mutex`, `read`, `write`, or a number, the capacity of a semaphore of which one permit is taken.
async fn take(client: &Client, kind: &str, name: &str, limit: Option<Duration>) -> fencelock::Result<Held> {
    let limit = limit.unwrap_or(Duration::MAX);
    if kind == "write" {
        return client.rwlock(name)?.purpose(PURPOSE).write_within(limit).await.map(Held::Writing);
    }
    Ok(Held::Other(match kind {
        "mutex" => client.mutex(name)?.purpose(PURPOSE).acquire_within(limit).await?.into_any(),
        "read" => client.rwlock(name)?.purpose(PURPOSE).read_within(limit).await?.into_any(),
        capacity => {
            let semaphore = client.semaphore(name, capacity.parse().unwrap_or(0))?;
            semaphore.purpose(PURPOSE).acquire_within(limit).await?.into_any()
        }
    }))
}

const PURPOSE: &str = "interop";

/// Nanoseconds on `CLOCK_MONOTONIC`, which all processes of a machine share.
pub(crate) fn now() -> u64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    now.tv_sec.unsigned_abs() * 1_000_000_000 + now.tv_nsec.unsigned_abs()
}
