//! The floor of `redis:`: the scripts that nobody can do without, on the same client library and connection as the store's.
//!
//! A free lock is one script that sets a key with an expiry, and one that deletes it if it is ours. A lock that is waited
//! for is one script that takes it or queues, and one that gives it to the next in the queue and tells that one. Nothing
//! dies here, so nobody looks for the dead; nobody counts, nobody is told who holds what.
//!
//! The floors of `layout=plain` and `layout=redisson` take and drop a free lock as those layouts write it, and know no queue.

use std::sync::Arc;

use anyhow::{Result, ensure};
use redis::aio::MultiplexedConnection;
use redis::io::tcp::TcpSettings;
use redis::{AsyncConnectionConfig, Client, IntoConnectionInfo as _, PushInfo, PushKind, Script, Value};

use super::ours::TTL;
use super::waiters::{Held, Waiters};
use super::workload::{Lock, Take};
use crate::contestant::Contestant;

const TAKE: &str = "if redis.call('SET', KEYS[1], ARGV[1], 'NX', 'PX', ARGV[2]) then return 1 end return 0";
const DROP: &str = "if redis.call('GET', KEYS[1]) == ARGV[1] then return redis.call('DEL', KEYS[1]) end return 0";
/// A hash with an expiry, whose release is told: Redisson's lock without who says what, how often, and what was asked before.
const TAKE_HASH: &str = "if redis.call('EXISTS', KEYS[1]) == 1 then return 0 end \
                         redis.call('HSET', KEYS[1], ARGV[1], '1') redis.call('PEXPIRE', KEYS[1], ARGV[2]) return 1";
const DROP_HASH: &str = "if redis.call('HEXISTS', KEYS[1], ARGV[1]) == 0 then return 0 end \
                         redis.call('DEL', KEYS[1]) redis.call('PUBLISH', KEYS[2], '0') return 1";
const QUEUE: &str = "if redis.call('SET', KEYS[1], ARGV[1], 'NX', 'PX', ARGV[2]) then return 1 end \
                     redis.call('RPUSH', KEYS[2], ARGV[1]) return 0";
const PASS: &str = "if redis.call('GET', KEYS[1]) ~= ARGV[1] then return 0 end \
                    local next = redis.call('LPOP', KEYS[2]) \
                    if not next then return redis.call('DEL', KEYS[1]) end \
                    redis.call('SET', KEYS[1], next, 'PX', ARGV[2]) \
                    redis.call('PUBLISH', string.match(next, '^[^:]+'), next) return 1";

/// How many requests may be on their way, as the store has it.
const ROOM: usize = 4096;

#[derive(Clone)]
pub(super) struct Floor {
    wire: MultiplexedConnection,
    /// The key that is the lock, and that of its queue.
    keys: Arc<(String, String)>,
    scripts: Arc<Scripts>,
    waiters: Waiters,
    /// What every key begins with.
    prefix: Arc<str>,
}

struct Scripts {
    /// `None` where a command does it.
    take: Option<Script>,
    drop: Script,
    queue: Script,
    pass: Script,
}

impl Floor {
    pub(super) async fn connect(contestant: Contestant, url: &str, prefix: &str) -> Result<Self> {
        let (url, _) = url.split_once('?').unwrap_or((url, ""));
        let waiters = Waiters::new(format!("{prefix}-{}", std::process::id()));
        let heard = waiters.clone();
        let config = AsyncConnectionConfig::new()
            .set_response_timeout(None)
            .set_pipeline_buffer_size(ROOM)
            .set_push_sender(move |push: PushInfo| {
                hear(&heard, &push);
                Ok::<_, redis::aio::SendError>(())
            });
        let settings = TcpSettings::default().set_nodelay(true);
        let info = format!("{url}?protocol=resp3").into_connection_info()?.set_tcp_settings(settings);
        let mut wire = Client::open(info)?.get_multiplexed_async_connection_with_config(&config).await?;
        let (take, drop) = match contestant {
            Contestant::PlainFloor => (None, DROP),
            Contestant::RedissonFloor => (Some(TAKE_HASH), DROP_HASH),
            _ => (Some(TAKE), DROP),
        };
        let scripts = Scripts {
            take: take.map(Script::new),
            drop: Script::new(drop),
            queue: Script::new(QUEUE),
            pass: Script::new(PASS),
        };
        for script in scripts.take.iter().chain([&scripts.drop, &scripts.queue, &scripts.pass]) {
            script.load_async(&mut wire).await?;
        }
        wire.subscribe(&*waiters.channel).await?;
        let floor =
            Self { wire, keys: keys(prefix, "bench"), waiters, prefix: prefix.into(), scripts: Arc::new(scripts) };
        Ok(floor)
    }

    async fn ask(&self, script: &Script, place: &str) -> Result<bool> {
        let mut call = script.prepare_invoke();
        call.key(&self.keys.0).key(&self.keys.1).arg(place).arg(TTL.as_millis() as u64);
        Ok(call.invoke_async(&mut self.wire.clone()).await?)
    }

    async fn set(&self, place: &str) -> Result<bool> {
        let mut set = redis::cmd("SET");
        set.arg(&self.keys.0).arg(place).arg("NX").arg("PX").arg(TTL.as_millis() as u64);
        Ok(set.query_async(&mut self.wire.clone()).await?)
    }
}

fn keys(prefix: &str, name: &str) -> Arc<(String, String)> {
    Arc::new((format!("{prefix}:lock:{name}"), format!("{prefix}:queue:{name}")))
}

/// Tells the one whose turn came.
fn hear(waiters: &Waiters, push: &PushInfo) {
    let (PushKind::Message, [_, Value::BulkString(place)]) = (&push.kind, push.data.as_slice()) else { return };
    if let Ok(place) = std::str::from_utf8(place) {
        waiters.hear(place);
    }
}

impl Take for Floor {
    type Held = Held;

    async fn acquire(&self) -> Result<Held> {
        let place = self.waiters.place();
        let had = self.ask(&self.scripts.queue, &place);
        self.waiters.turn(place.clone(), had).await
    }

    async fn release(&self, held: Held) -> Result<()> {
        let script = if held.alone { &self.scripts.drop } else { &self.scripts.pass };
        ensure!(self.ask(script, &held.place).await?, "the lock was lost");
        Ok(())
    }
}

impl Lock for Floor {
    fn named(&self, name: &str) -> Result<Self> {
        Ok(Self { keys: keys(&self.prefix, name), ..self.clone() })
    }

    async fn acquire_free(&self) -> Result<Held> {
        let place = self.waiters.place();
        let is_taken = match &self.scripts.take {
            Some(take) => self.ask(take, &place).await?,
            None => self.set(&place).await?,
        };
        ensure!(is_taken, "somebody else is about");
        Ok(Held { place, alone: true })
    }

    async fn queued(&self) -> Result<u64> {
        Ok(self.waiters.queued())
    }

    async fn until_queued(&self, count: u64) -> Result<()> {
        self.waiters.until_queued(count).await
    }
}
