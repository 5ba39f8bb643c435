//! Readers and writers of the layout `redisson` and of Redisson's `RReadWriteLock`, whose steps are taken by hand here.

use std::time::Duration;

use fencelock::inspect::Claim;
use fencelock::{Client, ErrorKind, Loss, Name};
use fencelock_testbed::Proxy;
use fencelock_testbed::redis::{Reply, Server};
use tokio::task::JoinHandle;

use crate::lab::{client, soon, until};
use crate::theirs::{THREAD, asked, message, redisson, refused, subscribe, takes_ours};

/// Redisson's steps, as 3.20 and 4.7 take them. -9 stands for the nil that means "taken", and for "not yours".
const READ_LOCK: &str = "local mode = redis.call('HGET',KEYS[1],'mode') \
    if mode==false then redis.call('HSET',KEYS[1],'mode','read') redis.call('HSET',KEYS[1],ARGV[2],1) \
      redis.call('SET',KEYS[2]..':1',1) redis.call('PEXPIRE',KEYS[2]..':1',ARGV[1]) redis.call('PEXPIRE',KEYS[1],ARGV[1]) return -9 end \
    if mode=='read' or (mode=='write' and redis.call('HEXISTS',KEYS[1],ARGV[2]..':write')==1) then \
      local ind = redis.call('HINCRBY',KEYS[1],ARGV[2],1) local key = KEYS[2]..':'..ind \
      redis.call('SET',key,1) redis.call('PEXPIRE',key,ARGV[1]) \
      redis.call('PEXPIRE',KEYS[1],math.max(redis.call('PTTL',KEYS[1]),ARGV[1])) return -9 end \
    return redis.call('PTTL',KEYS[1])";
const READ_UNLOCK: &str = "local mode = redis.call('HGET',KEYS[1],'mode') \
    if mode==false or redis.call('HEXISTS',KEYS[1],ARGV[1])==0 then return -9 end \
    local counter = redis.call('HINCRBY',KEYS[1],ARGV[1],-1) if counter==0 then redis.call('HDEL',KEYS[1],ARGV[1]) end \
    redis.call('DEL',KEYS[2]..':'..(counter+1)) \
    if redis.call('HLEN',KEYS[1])>1 then local most = -3 \
      for _, key in ipairs(redis.call('HKEYS',KEYS[1])) do counter = tonumber(redis.call('HGET',KEYS[1],key)) \
        if type(counter)=='number' then for i=counter,1,-1 do \
          most = math.max(redis.call('PTTL',KEYS[3]..':'..key..':rwlock_timeout:'..i),most) end end end \
      if most>0 then redis.call('PEXPIRE',KEYS[1],most) return 0 end \
      if mode=='write' then return 0 end end \
    redis.call('DEL',KEYS[1]) redis.call('PUBLISH',KEYS[4],'0') return 1";
const WRITE_LOCK: &str = "local mode = redis.call('HGET',KEYS[1],'mode') local field = ARGV[2]..':write' \
    if mode==false then redis.call('HSET',KEYS[1],'mode','write') redis.call('HSET',KEYS[1],field,1) \
      redis.call('PEXPIRE',KEYS[1],ARGV[1]) return -9 end \
    if mode=='write' and redis.call('HEXISTS',KEYS[1],field)==1 then redis.call('HINCRBY',KEYS[1],field,1) \
      redis.call('PEXPIRE',KEYS[1],redis.call('PTTL',KEYS[1])+ARGV[1]) return -9 end \
    return redis.call('PTTL',KEYS[1])";
const WRITE_UNLOCK: &str = "local field = ARGV[1]..':write' \
    if redis.call('HGET',KEYS[1],'mode')~='write' or redis.call('HEXISTS',KEYS[1],field)==0 then return -9 end \
    if redis.call('HINCRBY',KEYS[1],field,-1)>0 then return 0 end redis.call('HDEL',KEYS[1],field) \
    if redis.call('HLEN',KEYS[1])==1 then redis.call('DEL',KEYS[1]) redis.call('PUBLISH',KEYS[2],'1') \
    else redis.call('HSET',KEYS[1],'mode','read') end return 1";

const CHANNEL: &str = "redisson_rwlock:{page}";
const DONE: i64 = -9;
const ANOTHER: &str = "9ab0343c-daa2-4ba9-b245-bc89ab979c09:2";

/// A thread of Redisson's, which locks `page`.
struct Theirs<'a>(&'a Server, &'static str);

impl Theirs<'_> {
    fn eval(&self, script: &str, keys: &[&str], arguments: &[&str]) -> i64 {
        let count = keys.len().to_string();
        let request = [&["EVAL", script, &count], keys, arguments].concat();
        self.0.ask(&request).unwrap().number().unwrap()
    }

    fn holds(&self) -> String {
        format!("{{page}}:{}:rwlock_timeout", self.1)
    }

    fn reads(&self, lease_ms: u32) -> i64 {
        self.eval(READ_LOCK, &["page", &self.holds()], &[&lease_ms.to_string(), self.1])
    }

    fn has_read(&self) -> i64 {
        self.eval(READ_UNLOCK, &["page", &self.holds(), "{page}", CHANNEL], &[self.1])
    }

    fn writes(&self, lease_ms: u32) -> i64 {
        self.eval(WRITE_LOCK, &["page"], &[&lease_ms.to_string(), self.1])
    }

    fn has_written(&self) -> i64 {
        self.eval(WRITE_UNLOCK, &["page", CHANNEL], &[self.1])
    }
}

fn left(server: &Server, key: &str) -> i64 {
    server.ask(&["PTTL", key]).unwrap().number().unwrap()
}

/// The fields of a hash and what stands there.
fn fields(server: &Server, key: &str) -> Vec<(String, String)> {
    let hash = server.ask(&["HGETALL", key]).unwrap();
    hash.items().chunks(2).map(|pair| (pair[0].to_string(), pair[1].to_string())).collect()
}

async fn shown(client: &Client) -> Vec<fencelock::store::Contender> {
    client.queue(&Name::new("page").unwrap()).await.unwrap().contenders
}

fn writing(client: &Client) -> JoinHandle<Result<fencelock::WriteGuard, fencelock::Error>> {
    let page = client.rwlock("page").unwrap();
    tokio::spawn(async move { page.write().await })
}

fn reading(client: &Client) -> JoinHandle<Result<fencelock::ReadGuard, fencelock::Error>> {
    let page = client.rwlock("page").unwrap();
    tokio::spawn(async move { page.read().await })
}

async fn is_subscribed(server: &Server) {
    until("it waits", async || server.ask(&["PUBSUB", "NUMSUB", CHANNEL]).unwrap().items()[1] != Reply::Int(0)).await;
}

#[tokio::test]
async fn readers_of_both_sides_hold_together_and_writers_of_both_are_excluded_by_them_and_by_each_other() {
    let (server, url) = redisson();
    let (client, theirs) = (client(&url, 30_000).await, Theirs(&server, THREAD));
    let page = client.rwlock("page").unwrap();
    // Ours first, theirs first; in both orders, the other client may read and no client may write.
    let one = soon(page.read()).await.unwrap();
    assert_eq!(theirs.reads(60_000), DONE);
    let two = soon(page.try_read()).await.unwrap();
    assert!(theirs.writes(60_000) > 0);
    assert!(page.try_write().await.unwrap_err().is_contention());
    one.release().await.unwrap();
    two.release().await.unwrap();
    // A refusal names the holder where the look at the lock is answered within a moment.
    until("the refusal names the holder", async || {
        let error = page.try_write().await.unwrap_err();
        assert!(error.is_contention(), "{error}");
        error.to_string().contains(THREAD)
    })
    .await;
    soon(page.try_read()).await.unwrap().release().await.unwrap();
    assert_eq!(theirs.has_read(), 1);
    let writer = soon(page.try_write()).await.unwrap();
    assert!(theirs.writes(60_000) > 0 && theirs.reads(60_000) > 0);
    assert!(page.try_read().await.unwrap_err().is_contention());
    writer.release().await.unwrap();
    assert_eq!(theirs.writes(60_000), DONE);
    until("both refusals name the holder", async || {
        [page.try_read().await.map(drop).unwrap_err(), page.try_write().await.map(drop).unwrap_err()].iter().all(
            |error| {
                assert!(error.is_contention(), "{error}");
                error.to_string().contains(THREAD)
            },
        )
    })
    .await;
    // A re-entry is Redisson's own, and we leave its count alone.
    assert_eq!((theirs.writes(60_000), theirs.has_written(), theirs.has_written()), (DONE, 0, 1));
    assert_eq!(server.ask(&["DBSIZE"]).unwrap(), Reply::Int(0));
}

#[tokio::test]
async fn the_keys_are_as_redisson_writes_them_and_nothing_is_left() {
    let (server, url) = redisson();
    let client = client(&url, 30_000).await;
    for name in ["page", "a{b}c", "odd{"] {
        let (lock, slot) = (client.rwlock(name).unwrap(), if name == "page" { "{page}" } else { name });
        let (one, two) = (soon(lock.read()).await.unwrap(), soon(lock.read()).await.unwrap());
        let hash = fields(&server, name);
        assert_eq!((hash.len(), &*hash[0].0, &*hash[0].1), (3, "mode", "read"), "{hash:?}");
        for (field, count) in &hash[1..] {
            assert_eq!(count, "1");
            let hold = format!("{slot}:{field}:rwlock_timeout:1");
            assert!((1..=30_000).contains(&left(&server, &hold)), "{hold}");
            assert!(asked(&server, "GET", &hold).contains(r#""by""#), "{hold}");
        }
        assert!((1..=30_000).contains(&left(&server, name)));
        let channel = format!("redisson_rwlock:{slot}");
        let mut waits = subscribe(&server, &[&channel]);
        one.release().await.unwrap();
        assert_eq!(fields(&server, name).len(), 2);
        two.release().await.unwrap();
        // The first departure published nothing: the lock was not free.
        assert_eq!(message(&mut waits), (channel.clone(), "0".to_owned()));
        let writer = soon(lock.write()).await.unwrap();
        let hash = fields(&server, name);
        assert_eq!((hash.len(), &*hash[0].1, &*hash[1].1), (2, "write", "1"), "{hash:?}");
        assert!(hash[1].0.ends_with(":write") && hash[1].0.len() <= 64, "{hash:?}");
        let reader = writer.downgrade().await.unwrap();
        assert_eq!(message(&mut waits), (channel.clone(), "1".to_owned()));
        assert_eq!(fields(&server, name)[0].1, "read");
        reader.release().await.unwrap();
        assert_eq!(message(&mut waits), (channel.clone(), "0".to_owned()));
        soon(lock.write()).await.unwrap().release().await.unwrap();
        assert_eq!(message(&mut waits), (channel, "1".to_owned()));
        assert_eq!(server.ask(&["DBSIZE"]).unwrap(), Reply::Int(0));
    }
}

#[tokio::test]
async fn a_reader_that_leaves_leaves_to_the_others_what_they_hold_and_no_more() {
    let (server, url) = redisson();
    let (client, theirs, dead) = (client(&url, 30_000).await, Theirs(&server, THREAD), Theirs(&server, ANOTHER));
    let page = client.rwlock("page").unwrap();
    // Theirs leaves: the hash lives as long as ours, and ours is there.
    let ours = soon(page.read()).await.unwrap();
    assert_eq!((theirs.reads(600_000), theirs.reads(600_000)), (DONE, DONE));
    assert!(left(&server, "page") > 500_000);
    assert_eq!((theirs.has_read(), theirs.has_read()), (0, 0));
    assert!((1..=30_000).contains(&left(&server, "page")), "theirs prolonged ours");
    assert!(theirs.writes(60_000) > 0);
    // Ours leaves: their count stays, and so does their ttl.
    assert_eq!((theirs.reads(600_000), theirs.reads(5_000)), (DONE, DONE));
    ours.release().await.unwrap();
    assert_eq!(fields(&server, "page")[1..], [(THREAD.to_owned(), "2".to_owned())]);
    assert!(left(&server, "page") > 500_000, "ours shortened theirs");
    assert_eq!((theirs.has_read(), theirs.has_read()), (0, 1));
    // A dead reader is still in the hash; its hold has expired. The last one to leave frees the lock.
    let ours = soon(page.read()).await.unwrap();
    assert_eq!(dead.reads(1), DONE);
    until("its hold has run out", async || left(&server, &format!("{}:1", dead.holds())) == -2).await;
    assert_eq!(shown(&client).await.len(), 1, "who died long ago is shown");
    ours.release().await.unwrap();
    assert_eq!(server.ask(&["DBSIZE"]).unwrap(), Reply::Int(0));
}

#[tokio::test]
async fn a_reader_of_ours_that_dies_delays_no_writer_beyond_its_ttl_though_others_read_on() {
    let (server, url) = redisson();
    let proxy = Proxy::start(server.address()).unwrap();
    let dies = client(&format!("redis://{}?layout=redisson", proxy.address()), 4_000).await;
    let (lives, theirs) = (client(&url, 30_000).await, Theirs(&server, THREAD));
    let lost = soon(dies.rwlock("page").unwrap().read()).await.unwrap();
    proxy.refuse();
    proxy.reset();
    let reads = soon(lives.rwlock("page").unwrap().read()).await.unwrap();
    assert_eq!(theirs.reads(600_000), DONE);
    assert!(matches!(soon(lost.lost()).await, Loss::Expired | Loss::Unconfirmed), "it is told so in time");
    until("its hold has run out", async || shown(&lives).await.len() == 2).await;
    reads.check().unwrap();
    reads.release().await.unwrap();
    assert_eq!(theirs.has_read(), 1, "the dead one held the lock");
    soon(lives.rwlock("page").unwrap().try_write()).await.unwrap().release().await.unwrap();
}

#[tokio::test]
async fn renewals_keep_the_holds_and_never_shorten_the_lock_of_others() {
    let (server, url) = redisson();
    let (client, theirs) = (client(&url, 30_000).await, Theirs(&server, THREAD));
    let page = client.rwlock("page").unwrap();
    let ours = soon(page.read()).await.unwrap();
    assert_eq!(theirs.reads(600_000), DONE);
    let field = fields(&server, "page")[1].0.clone();
    let hold = format!("{{page}}:{field}:rwlock_timeout:1");
    for _ in 0..3 {
        until("the hold grows old", async || left(&server, &hold) < 26_000).await;
        until("the hold is renewed", async || left(&server, &hold) > 26_000).await;
    }
    assert!(left(&server, "page") > 500_000);
    // Redisson's renewal sets the end of the hash to its own lease. Ours sets it to what ours needs.
    server.ask(&["PEXPIRE", "page", "20000"]).unwrap();
    until("the hash is renewed", async || left(&server, "page") > 20_000).await;
    // A hold that was deleted by hand counts no longer, although its reader continues.
    server.ask(&["DEL", &hold]).unwrap();
    assert_eq!(soon(ours.lost()).await, Loss::Removed);
    until("nothing is left of it", async || fields(&server, "page").len() == 2).await;
    assert_eq!(theirs.has_read(), 1);
}

#[tokio::test]
async fn a_waiter_for_a_reader_or_a_writer_of_redisson_is_woken_by_its_release() {
    let (server, url) = redisson();
    let (client, theirs) = (client(&url, 30_000).await, Theirs(&server, THREAD));
    assert_eq!(theirs.writes(600_000), DONE);
    let waits = [reading(&client), reading(&client), reading(&client)];
    is_subscribed(&server).await;
    assert_eq!(theirs.has_written(), 1);
    let mut readers = Vec::new();
    for waits in waits {
        readers.push(soon(waits).await.unwrap().unwrap());
    }
    assert_eq!(shown(&client).await.len(), 3);
    for reader in readers {
        reader.release().await.unwrap();
    }
    assert_eq!(theirs.reads(600_000), DONE);
    let waits = writing(&client);
    is_subscribed(&server).await;
    assert_eq!(theirs.has_read(), 1);
    soon(waits).await.unwrap().unwrap().release().await.unwrap();
    // A downgrade publishes nothing in Redisson: readers find out by trying.
    assert_eq!((theirs.writes(600_000), theirs.reads(600_000)), (DONE, DONE));
    assert_eq!(shown(&client).await.len(), 1);
    let waits = reading(&client);
    is_subscribed(&server).await;
    assert_eq!(theirs.has_written(), 1);
    soon(waits).await.unwrap().unwrap().release().await.unwrap();
    assert_eq!(theirs.has_read(), 1);
}

#[tokio::test]
async fn readers_of_one_client_are_let_in_together_and_those_behind_its_writer_after_it() {
    let (server, url) = redisson();
    let (client, theirs) = (client(&url, 30_000).await, Theirs(&server, THREAD));
    assert_eq!(theirs.writes(600_000), DONE);
    let readers: Vec<_> = (0..100).map(|_| reading(&client)).collect();
    is_subscribed(&server).await;
    assert_eq!(server.ask(&["PUBSUB", "NUMSUB", CHANNEL]).unwrap().items()[1], Reply::Int(1));
    assert_eq!(theirs.has_written(), 1);
    let mut held = Vec::new();
    for reader in readers {
        held.push(soon(reader).await.unwrap().unwrap());
    }
    assert_eq!(shown(&client).await.len(), 100);
    let writer = writing(&client);
    until("the writer tries", async || server.ask(&["PUBSUB", "NUMSUB", CHANNEL]).unwrap().items()[1] != Reply::Int(0))
        .await;
    let late = reading(&client);
    for reader in held.drain(1..) {
        reader.release().await.unwrap();
    }
    assert!(!writer.is_finished());
    held.remove(0).release().await.unwrap();
    soon(writer).await.unwrap().unwrap().release().await.unwrap();
    soon(late).await.unwrap().unwrap().release().await.unwrap();
    assert_eq!(server.ask(&["DBSIZE"]).unwrap(), Reply::Int(0));
}

#[tokio::test]
async fn a_mutex_and_a_read_write_lock_refuse_each_others_names() {
    let (server, url) = redisson();
    let (client, other) = (client(&url, 30_000).await, client(&url, 30_000).await);
    let (page, theirs) = (client.rwlock("page").unwrap(), Theirs(&server, THREAD));
    let is_refused = |error: &fencelock::Error| {
        assert_eq!((error.kind(), error.is_retryable()), (ErrorKind::Layout, false), "{error}");
        assert!(error.to_string().contains("another kind of lock"), "{error}");
        assert_eq!(error.context().filter(|(key, _)| *key == "name").count(), 1, "{error}");
    };
    let mutex = takes_ours(&other, "page").await;
    let before = asked(&server, "DUMP", "page");
    for error in [page.try_read().await.unwrap_err(), page.read().await.unwrap_err(), page.write().await.unwrap_err()] {
        is_refused(&error);
    }
    for lock in [other.rwlock("page").unwrap(), page.clone()] {
        is_refused(&lock.try_write().await.unwrap_err());
    }
    assert_eq!(asked(&server, "DUMP", "page"), before);
    mutex.release().await.unwrap();
    for is_ours in [true, false] {
        let reader = if is_ours { Some(soon(page.read()).await.unwrap()) } else { None };
        if !is_ours {
            assert_eq!(theirs.reads(600_000), DONE);
        }
        let before = asked(&server, "DUMP", "page");
        is_refused(&refused(&client, "page").await);
        is_refused(&refused(&other, "page").await);
        assert_eq!(asked(&server, "DUMP", "page"), before);
        if let Some(reader) = reader {
            reader.release().await.unwrap();
        }
    }
    assert_eq!(theirs.has_read(), 1);
    // Redisson would grant its read-write lock while its `RLock` is held; ours refuses.
    server.ask(&["HSET", "page", THREAD, "1"]).unwrap();
    is_refused(&page.try_read().await.unwrap_err());
    is_refused(&page.try_write().await.unwrap_err());
}

#[tokio::test]
async fn readers_and_writers_are_shown_listed_and_broken_one_by_one() {
    let (server, url) = redisson();
    let (client, theirs) = (client(&url, 30_000).await, Theirs(&server, THREAD));
    let page = Name::new("page").unwrap();
    let lock = client.rwlock("page").unwrap().purpose("proof reading");
    let ours = soon(lock.read()).await.unwrap();
    assert_eq!((theirs.reads(600_000), theirs.reads(600_000)), (DONE, DONE));
    assert_eq!(client.names("", None, 10).await.unwrap(), std::slice::from_ref(&page));
    let holders = shown(&client).await;
    let foreign = holders.iter().find(|holder| holder.foreign.is_some()).unwrap();
    let mine = holders.iter().find(|holder| holder.foreign.is_none()).unwrap();
    assert_eq!((holders.len(), foreign.claim, mine.claim), (2, Claim::READER, Claim::READER));
    assert_eq!(foreign.owner.as_ref().unwrap().host, THREAD);
    assert_eq!(mine.purpose.as_deref(), Some("proof reading"));
    assert!(client.break_grant(&page, foreign, "it is stuck").await.unwrap());
    ours.check().unwrap();
    assert_eq!((fields(&server, "page").len(), theirs.has_read()), (2, DONE));
    assert!((1..=30_000).contains(&left(&server, "page")));
    let mut waits = subscribe(&server, &[CHANNEL]);
    assert!(client.break_grant(&page, mine, "it is stuck, too").await.unwrap());
    assert_eq!(message(&mut waits).1, "0");
    assert_eq!(soon(ours.lost()).await, Loss::Broken);
    // A writer is one holder, though it reads besides.
    assert_eq!((theirs.writes(600_000), theirs.reads(600_000)), (DONE, DONE));
    assert_eq!(client.names("", None, 10).await.unwrap(), std::slice::from_ref(&page));
    let holders = shown(&client).await;
    assert_eq!((holders.len(), holders[0].claim), (1, Claim::WRITER));
    assert!(!client.break_grant(&page, foreign, "it was broken").await.unwrap());
    assert!(client.break_grant(&page, &holders[0], "it is stuck").await.unwrap());
    assert_eq!(message(&mut waits).1, "1");
    assert_eq!(client.breaks(&page).await.unwrap().len(), 3);
    assert_eq!(server.ask(&["DBSIZE"]).unwrap(), Reply::Int(1), "more than the records of breaks is left");
}

#[tokio::test]
async fn permits_and_readers_that_would_outlive_redissons_renewals_are_refused_before_anything_is_sent() {
    let (server, url) = redisson();
    let client = client(&url, 40_000).await;
    let error = client.semaphore("seats", 3).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unsupported, "{error}");
    for error in [
        client.rwlock("page").unwrap().try_read().await.unwrap_err(),
        client.rwlock("page").unwrap().write_within(Duration::from_secs(60)).await.unwrap_err(),
    ] {
        assert_eq!((error.kind(), error.is_retryable()), (ErrorKind::Config, false), "{error}");
        assert!(error.to_string().contains("ttl_ms") && error.to_string().contains("30000"), "{error}");
    }
    assert_eq!(server.ask(&["DBSIZE"]).unwrap(), Reply::Int(0));
    takes_ours(&client, "job").await.release().await.unwrap();
}

/// The ACL rule of `docs/stores.md` for users of this layout.
const RULE: &str = "+hset +hget +hmget +hdel +hgetall +hkeys +hlen +hstrlen +hexists +set +getrange +del +type +pttl +pexpire \
    +lindex +publish +subscribe +unsubscribe +scan +lrange +rpush +ltrim +evalsha +script|load +ping +info +select";

/// A URL of a user with this rule.
fn as_user(server: &Server, name: &str, rule: &str) -> String {
    let words: Vec<&str> =
        ["ACL", "SETUSER", name, "on", ">secret", "resetchannels"].into_iter().chain(rule.split(' ')).collect();
    server.ask(&words).unwrap();
    format!("redis://{name}:secret@{}?layout=redisson", server.address())
}

#[tokio::test]
async fn the_rule_in_the_documents_suffices_and_less_is_denied_before_a_lock_is_taken() {
    let (server, url) = redisson();
    let documents = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/stores.md")).unwrap();
    for command in RULE.split(' ').filter(|word| !word.is_empty()) {
        assert!(documents.contains(&format!("{command} ")) || documents.contains(&format!("{command}`")), "{command}");
    }
    let keys = "~page ~job ~*:rwlock_timeout:* ~redisson_lock_queue:* ~fencelock:breaks:* &redisson_lock__channel:* &redisson_rwlock:*";
    let user = client(&as_user(&server, "enough", &format!("{RULE} {keys}")), 30_000).await;
    let (other, page) = (client(&url, 30_000).await, user.rwlock("page").unwrap());
    let mut waits = subscribe(&server, &[CHANNEL]);
    let reader = soon(page.write()).await.unwrap().downgrade().await.unwrap();
    assert_eq!(message(&mut waits).1, "1");
    let beside = soon(other.rwlock("page").unwrap().read()).await.unwrap();
    reader.release().await.unwrap();
    let holders = shown(&user).await;
    assert!(user.break_grant(&Name::new("page").unwrap(), &holders[0], "it is stuck").await.unwrap());
    assert_eq!(soon(beside.lost()).await, Loss::Broken);
    takes_ours(&user, "job").await.release().await.unwrap();
    server.ask(&["FLUSHALL"]).unwrap();
    for denied in ["hset", "pexpire", "hdel", "set", "type", "hget"] {
        let url = as_user(&server, denied, &format!("{RULE} {keys} -{denied}"));
        let Ok(client) = soon(Client::connect(&url)).await else { continue };
        for error in [
            client.rwlock("page").unwrap().try_read().await.unwrap_err(),
            client.rwlock("job").unwrap().try_write().await.unwrap_err(),
        ] {
            assert_eq!(error.kind(), ErrorKind::Denied, "{denied}: {error}");
            assert_eq!(
                (asked(&server, "EXISTS", "page"), asked(&server, "EXISTS", "job")),
                ("0".into(), "0".into()),
                "{denied}"
            );
        }
    }
    let markless = as_user(&server, "markless", &format!("{RULE} {}", keys.replace("~*:rwlock_timeout:* ", "")));
    let error = client(&markless, 30_000).await.rwlock("page").unwrap().try_read().await.unwrap_err();
    assert_eq!((error.kind(), asked(&server, "EXISTS", "page")), (ErrorKind::Denied, "0".to_owned()), "{error}");
}
