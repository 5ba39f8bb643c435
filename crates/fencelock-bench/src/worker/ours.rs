//! fencelock itself, through its public interface.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use anyhow::Result;
use fencelock::observe::{Event, Observer};
use fencelock::{Client, Guard, Io, Mutex};

use super::workload::{Lock, Take};
use crate::contestant::Contestant;

/// A long ttl: a starved machine gives bad figures, but loses no lock.
pub(super) const TTL: Duration = Duration::from_secs(60);

/// The counts of the observer.
#[derive(Debug, Default)]
struct Counts {
    waiting: AtomicU64,
    woken: AtomicU64,
}

impl Observer for Counts {
    fn observe(&self, event: &Event<'_>) {
        match event {
            Event::Waiting { .. } => self.waiting.fetch_add(1, Ordering::Relaxed),
            Event::Woken { .. } => self.woken.fetch_add(1, Ordering::Relaxed),
            _ => 0,
        };
    }
}

const NAME: &str = "bench";

#[derive(Clone)]
pub(super) struct Ours {
    client: Client,
    lock: Mutex,
    counts: Arc<Counts>,
}

impl Ours {
    pub(super) async fn connect(contestant: Contestant, url: &str) -> Result<Self> {
        let counts = Arc::new(Counts::default());
        let io = match contestant {
            Contestant::Own | Contestant::OwnApart => Io::OwnThread,
            _ => Io::CurrentRuntime,
        };
        let url = match contestant {
            Contestant::CurrentPlain => format!("{url}&layout=plain"),
            Contestant::CurrentRedisson => format!("{url}&layout=redisson"),
            // The options of this run are appended to the URL's own, such as `?min_replicas=1`.
            Contestant::Elsewhere => {
                std::env::var("FENCELOCK_ELSEWHERE")? + "&" + url.split_once('?').map_or("", |(_, options)| options)
            }
            _ => url.to_owned(),
        };
        let observer = Arc::clone(&counts) as Arc<dyn Observer>;
        let client = Client::builder().ttl(TTL).io(io).observer(observer).connect(&url).await?;
        let lock = client.mutex(NAME)?;
        Ok(Self { client, lock, counts })
    }
}

impl Take for Ours {
    type Held = Guard;

    async fn acquire(&self) -> Result<Guard> {
        Ok(self.lock.acquire().await?)
    }

    async fn release(&self, held: Guard) -> Result<()> {
        Ok(held.release().await?)
    }
}

impl Lock for Ours {
    fn named(&self, name: &str) -> Result<Self> {
        Ok(Self { lock: self.client.mutex(name)?, ..self.clone() })
    }

    async fn queued(&self) -> Result<u64> {
        Ok(self.counts.waiting.load(Ordering::Relaxed))
    }

    fn woken(&self) -> u64 {
        self.counts.woken.swap(0, Ordering::Relaxed)
    }

    async fn close(self) -> Result<()> {
        Ok(self.client.close().await?)
    }
}
