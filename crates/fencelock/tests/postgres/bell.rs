//! The bell behind PgBouncer: clients that wait listen at the server itself.

use std::fmt;
use std::sync::{LazyLock, Mutex};

use fencelock::postgres::Schema;
use fencelock_testbed::Proxy;
use fencelock_testbed::postgres::{KIND, OWNER, Pooler, Settings};
use tokio_postgres::Client;
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Level, Metadata, Subscriber};

use crate::lab::{
    LONG, acquire, acquired, acquiring, client, connection, database, migrated, server, soon, until, until_queued, with,
};

/// A database of its own behind a pooler, and a proxy before the server as the bell.
struct Way {
    pooler: Pooler,
    bell: Proxy,
    direct: String,
    pooled: String,
    user: Client,
}

impl Way {
    async fn new() -> Self {
        let ((direct, _), server) = (database(), KIND.shared().address());
        let (pooler, bell) = (Pooler::start(server, "transaction").unwrap(), Proxy::start(server).unwrap());
        let pooled = direct.replace(&server.to_string(), &pooler.address().to_string());
        let (pooled, user) = (with(&pooled, &format!("bell={}", bell.address())), connection(&direct).await);
        Self { pooler, bell, direct, pooled, user }
    }

    /// Waits until a connection listens. The client asks it for nothing, now and then.
    async fn until_listening(&self) {
        let asked = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND state = 'idle'
            AND (query = 'SELECT' OR query LIKE '%.listen(%')";
        until("a connection listens", async || self.user.query_one(asked, &[]).await.unwrap().get::<_, i64>(0) == 1)
            .await;
    }

    /// Passes a lock to a client that waits for it, after `before`.
    async fn pass(&self, holder: &fencelock::Client, waiter: &fencelock::Client, before: impl AsyncFnOnce()) {
        let guard = acquire(holder, "job").await;
        let waiting = acquiring(waiter, "job");
        until_queued(holder, "job", 2).await;
        before().await;
        soon(guard.release()).await.unwrap();
        soon(acquired(waiting).await.release()).await.unwrap();
    }

    /// Passes a lock to a client of which no look reaches the server: the bell alone brings the grant.
    /// The bell has had `connections` by then, at least.
    async fn pass_by_bell(&self, holder: &fencelock::Client, waiter: &fencelock::Client, connections: u64) {
        let guard = acquire(holder, "job").await;
        let waiting = acquiring(waiter, "job");
        until_queued(holder, "job", 2).await;
        let is_new = || self.bell.connections() >= connections && self.bell.open_connections() == 1;
        until("the bell has its connection", async || is_new()).await;
        self.until_listening().await;
        self.pooler.command("PAUSE").unwrap();
        soon(guard.release()).await.unwrap();
        let guard = acquired(waiting).await;
        self.pooler.command("RESUME").unwrap();
        soon(guard.release()).await.unwrap();
    }
}

#[tokio::test]
async fn a_bell_brings_a_grant_while_the_pooler_answers_nothing() {
    let way = Way::new().await;
    let (holder, waiter) = (client(&way.direct, LONG).await, client(&way.pooled, LONG).await);
    assert!(waiter.capability().layout.contains("bell"), "{:?}", waiter.capability());
    soon(acquire(&waiter, "free").await.release()).await.unwrap();
    assert_eq!(way.bell.connections(), 0, "a client that does not wait needs no bell");
    way.pass_by_bell(&holder, &waiter, 1).await;
    way.pass_by_bell(&holder, &waiter, 1).await;
    assert_eq!(way.bell.connections(), 1);
    soon(waiter.close()).await.unwrap();
    until("the bell is left", async || way.bell.open_connections() == 0).await;
}

#[tokio::test]
async fn while_its_bell_is_cut_a_client_looks_and_listens_again_later() {
    let way = Way::new().await;
    let (holder, waiter) = (client(&way.direct, LONG).await, client(&way.pooled, LONG).await);
    let cut = async || {
        way.until_listening().await;
        way.bell.refuse();
        way.bell.reset();
    };
    way.pass(&holder, &waiter, cut).await;
    way.pass(&holder, &waiter, async || {}).await;
    way.bell.heal();
    way.pass_by_bell(&holder, &waiter, 2).await;
    // With the pooled connection ends that to the bell, and both come back.
    let (database, earlier) = (way.direct.rsplit('/').next().unwrap(), way.bell.connections());
    way.pooler.command(&format!("KILL {database}")).unwrap();
    way.pooler.command(&format!("RESUME {database}")).unwrap();
    way.pass_by_bell(&holder, &waiter, earlier + 1).await;
}

#[tokio::test]
async fn a_bell_that_is_a_pooler_or_another_server_is_noticed_and_waiters_look() {
    LazyLock::force(&LOG);
    let (own, other) = (server(Settings::default()), server(Settings::default()));
    let pooler = Pooler::start(own.address(), "transaction").unwrap();
    let pooled = own.url().replace(&own.address().to_string(), &pooler.address().to_string());
    for (bell, said) in [
        (pooler.address(), "`bell` leads to a pooler"),
        (other.address(), "`bell` leads to another server or database"),
        (other.address(), "the pooler leads to another server now"),
    ] {
        if said == "the pooler leads to another server now" {
            // The servers are copies, whose tables would have the same numbers.
            other.sql(OWNER, "CREATE TABLE public.earlier ()").unwrap();
            migrated(async || Schema::of(&other.url()).unwrap().migrate(&[]).await).await;
        }
        let (one, two) = (client(&pooled, LONG).await, client(&with(&pooled, &format!("bell={bell}")), LONG).await);
        let guard = acquire(&one, "job").await;
        let waiting = acquiring(&two, "job");
        let log = format!("postgres://{bell}/fencelock");
        until(said, async || LOG.lock().unwrap().iter().any(|line| line.contains(said) && line.contains(&log))).await;
        soon(guard.release()).await.unwrap();
        soon(acquired(waiting).await.release()).await.unwrap();
    }
}

#[tokio::test]
async fn a_bell_is_unused_where_the_url_leads_to_no_pooler() {
    LazyLock::force(&LOG);
    let way = Way::new().await;
    let url = with(&way.direct, &format!("bell={}", way.bell.address()));
    let (holder, waiter) = (client(&way.direct, LONG).await, client(&url, LONG).await);
    let database = way.direct.rsplit('/').next().unwrap();
    assert!(LOG.lock().unwrap().iter().any(|line| line.contains("`bell` is unused") && line.contains(database)));
    way.pass(&holder, &waiter, async || {}).await;
    assert_eq!(way.bell.connections(), 0);
}

/// The warnings of all clients of this process.
static LOG: LazyLock<Mutex<Vec<String>>> = LazyLock::new(|| {
    // Another subscriber would be that of another test.
    let _ = tracing::subscriber::set_global_default(Warnings);
    Mutex::default()
});

struct Warnings;

struct Line(String);

impl Visit for Line {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        self.0.push_str(&format!("{field}={value:?} "));
    }
}

impl Subscriber for Warnings {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        *metadata.level() <= Level::WARN && metadata.target().starts_with("fencelock")
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, event: &Event<'_>) {
        let mut line = Line(String::new());
        event.record(&mut line);
        LOG.lock().unwrap().push(line.0);
    }

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}
