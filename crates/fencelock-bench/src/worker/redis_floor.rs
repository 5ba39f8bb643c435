//! The floor of `redis:`: the scripts that every lock needs, on the same client library and connection as the store's.
//!
//! A free lock is one script that sets a key with an expiry, and one that deletes its own key. A lock with waiters is two scripts: the
//! first takes the lock or queues; the second grants the lock to the next waiter and notifies that waiter's process. No client dies here,
//! so no client looks for the dead.
//!
//! The floors of `layout=plain` and `layout=redisson` take and drop a free lock as those layouts write it, and know no queue.

use anyhow::Result;
use redis::aio::MultiplexedConnection;
use redis::io::tcp::TcpSettings;
use redis::{AsyncConnectionConfig, Client, IntoConnectionInfo as _, PushInfo, PushKind, Script, Value};

use super::by_hand::{ByHand, Requests, Waiters};
use super::ours::TTL;
use crate::contestant::Contestant;

const TAKE: &str = "if redis.call('SET', KEYS[1], ARGV[1], 'NX', 'PX', ARGV[2]) then return 1 end return 0";
const DROP: &str = "if redis.call('GET', KEYS[1]) == ARGV[1] then return redis.call('DEL', KEYS[1]) end return 0";
/// A hash with an expiry and a message of its release: Redisson's lock without a count of entries.
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

/// How many requests may be under way: as many as in the store.
const ROOM: usize = 4096;

pub(super) struct Floor {
    wire: MultiplexedConnection,
    scripts: Scripts,
}

struct Scripts {
    /// `None` where a command does it.
    take: Option<Script>,
    drop: Script,
    queue: Script,
    pass: Script,
}

impl Floor {
    pub(super) async fn connect(contestant: Contestant, url: &str, prefix: &str) -> Result<ByHand<Self>> {
        let (url, _) = url.split_once('?').unwrap_or((url, ""));
        let waiters = Waiters::new(format!("{prefix}-{}", std::process::id()));
        let listening = waiters.clone();
        let config = AsyncConnectionConfig::new()
            .set_response_timeout(None)
            .set_pipeline_buffer_size(ROOM)
            .set_push_sender(move |push: PushInfo| {
                notified(&listening, &push);
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
        Ok(ByHand::new(contestant, Self { wire, scripts }, waiters, prefix))
    }

    /// With the keys of the lock and of its queue.
    async fn ask(&self, script: &Script, name: &str, place: &str) -> Result<bool> {
        let mut call = script.prepare_invoke();
        call.key(name).key(format!("{name}:queue")).arg(place).arg(TTL.as_millis() as u64);
        Ok(call.invoke_async(&mut self.wire.clone()).await?)
    }
}

/// Wakes the waiter that the server has granted the lock.
fn notified(waiters: &Waiters, push: &PushInfo) {
    let (PushKind::Message, [_, Value::BulkString(place)]) = (&push.kind, push.data.as_slice()) else { return };
    if let Ok(place) = std::str::from_utf8(place) {
        waiters.grant(place);
    }
}

impl Requests for Floor {
    async fn take(&self, name: &str, place: &str) -> Result<bool> {
        if let Some(take) = &self.scripts.take {
            return self.ask(take, name, place).await;
        }
        let mut set = redis::cmd("SET");
        set.arg(name).arg(place).arg("NX").arg("PX").arg(TTL.as_millis() as u64);
        Ok(set.query_async(&mut self.wire.clone()).await?)
    }

    async fn free(&self, name: &str, place: &str) -> Result<bool> {
        self.ask(&self.scripts.drop, name, place).await
    }

    async fn queue(&self, name: &str, place: &str) -> Result<bool> {
        self.ask(&self.scripts.queue, name, place).await
    }

    async fn pass(&self, name: &str, place: &str) -> Result<bool> {
        self.ask(&self.scripts.pass, name, place).await
    }
}
