//! Redisson's steps, taken by hand. `cargo xtask interop` has the real one.

use fencelock::{Client, Guard};
use fencelock_testbed::redis::{Hands, Server, Settings};

use super::lab::{client, server, soon};

/// Redisson's steps. -9 stands for the nil that means "taken", and for "not yours".
pub(crate) const LOCK: &str = "if redis.call('EXISTS',KEYS[1])==0 or redis.call('HEXISTS',KEYS[1],ARGV[1])==1 then \
    redis.call('HINCRBY',KEYS[1],ARGV[1],1) redis.call('PEXPIRE',KEYS[1],ARGV[2]) return -9 end return redis.call('PTTL',KEYS[1])";
pub(crate) const UNLOCK: &str = "if redis.call('HEXISTS',KEYS[1],ARGV[1])==0 then return -9 end \
    if redis.call('HINCRBY',KEYS[1],ARGV[1],-1)>0 then return 0 end \
    redis.call('DEL',KEYS[1]) redis.call('PUBLISH',ARGV[2],'0') return 1";
pub(crate) const WRITE_LOCK: &str = "if redis.call('HGET',KEYS[1],'mode')==false then \
    redis.call('HSET',KEYS[1],'mode','write',ARGV[1]..':write','1') redis.call('PEXPIRE',KEYS[1],ARGV[2]) return -9 end \
    return redis.call('PTTL',KEYS[1])";

/// A thread of Redisson's.
pub(crate) const THREAD: &str = "9ab0343c-daa2-4ba9-b245-bc89ab979c09:1";
pub(crate) const CHANNEL: &str = "redisson_lock__channel:{job}";
pub(crate) const TAKEN: i64 = -9;

/// A server of the test's own, and how to reach it with this layout.
pub(crate) fn with_layout(layout: &str) -> (Server, String) {
    let server = server(Settings::default());
    let url = format!("redis://{}?layout={layout}", server.address());
    (server, url)
}

pub(crate) fn redisson() -> (Server, String) {
    with_layout("redisson")
}

/// A server of the test's own, and a client with this layout.
pub(crate) async fn with_client(layout: &str) -> (Server, Client) {
    let (server, url) = with_layout(layout);
    (server, client(&url, 60_000).await)
}

/// The reply of Redisson's lock step with this lease.
pub(crate) fn locks(server: &Server, key: &str, thread: &str, lease_ms: u32) -> i64 {
    server.ask(&["EVAL", LOCK, "1", key, thread, &lease_ms.to_string()]).unwrap().number().unwrap()
}

pub(crate) fn unlocks(server: &Server, key: &str, thread: &str, channel: &str) -> i64 {
    server.ask(&["EVAL", UNLOCK, "1", key, thread, channel]).unwrap().number().unwrap()
}

pub(crate) fn asked(server: &Server, command: &str, key: &str) -> String {
    server.ask(&[command, key]).unwrap().to_string()
}

/// The number of connections that subscribe to the releases of `job`.
pub(crate) fn hear(server: &Server) -> i64 {
    server.ask(&["PUBSUB", "NUMSUB", CHANNEL]).unwrap().items()[1].number().unwrap()
}

pub(crate) fn is_subscribed(server: &Server) -> bool {
    hear(server) > 0
}

/// Subscribes to these channels as Redisson does.
pub(crate) fn subscribe(server: &Server, channels: &[&str]) -> Hands {
    let mut hands = server.hands().unwrap();
    for channel in channels {
        hands.ask(&["SUBSCRIBE", channel]).unwrap();
    }
    hands
}

/// The channel and the text of the next message.
pub(crate) fn message(hands: &mut Hands) -> (String, String) {
    let said = hands.answer().unwrap();
    let [_, channel, text] = said.items() else { panic!("{said}") };
    (channel.to_string(), text.to_string())
}

pub(crate) async fn takes_ours(client: &Client, name: &str) -> Guard {
    soon(client.mutex(name).unwrap().acquire()).await.unwrap()
}

pub(crate) async fn refused(client: &Client, name: &str) -> fencelock::Error {
    soon(client.mutex(name).unwrap().try_acquire()).await.expect_err("it is refused")
}

/// The number of these commands that the server received.
pub(crate) fn calls(server: &Server, commands: &[&str]) -> i64 {
    let stats = server.ask(&["INFO", "commandstats"]).unwrap().to_string();
    let calls = |command: &&str| {
        let line =
            stats.lines().find_map(|line| line.strip_prefix(&format!("cmdstat_{command}:calls="))?.split(',').next());
        line.map_or(0, |calls| calls.parse::<i64>().unwrap())
    };
    commands.iter().map(calls).sum()
}

/// The number of requests of fencelock's clients, without those of the test itself.
pub(crate) fn requests(server: &Server) -> i64 {
    calls(server, &["evalsha", "subscribe", "unsubscribe"])
}
