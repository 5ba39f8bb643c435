//! The floor of `postgres:`, on the same driver as the store's and one connection: the statements that every lock needs. And locks that
//! services have: a table with a unique key and a pool of connections, advisory locks, and the statements of ShedLock, by hand.
//!
//! A free lock is a row that is inserted and deleted. A lock with waiters is one function that takes it or queues, and one that grants it
//! to the next waiter in the queue and notifies its process with the commit. Nothing dies here, so no client looks for the dead.

use std::future::poll_fn;
use std::sync::Arc;

use anyhow::{Result, ensure};
use tokio_postgres::{AsyncMessage, Client, NoTls, Statement};

use super::waiters::{Held, Pool, Waiters};
use super::workload::{Lock, Take};
use crate::contestant::Contestant;

const TABLES: &str = "
    CREATE TABLE IF NOT EXISTS floor_lock (name text PRIMARY KEY, holder text NOT NULL);
    CREATE TABLE IF NOT EXISTS floor_queue (seq bigint GENERATED ALWAYS AS IDENTITY, name text, who text, PRIMARY KEY (name, seq));
    CREATE TABLE IF NOT EXISTS shedlock (name text PRIMARY KEY, lock_until timestamp NOT NULL, locked_at timestamp NOT NULL, locked_by text NOT NULL);
    CREATE TABLE IF NOT EXISTS table_lock (name text PRIMARY KEY, owner text NOT NULL, expires timestamptz NOT NULL);
    CREATE OR REPLACE FUNCTION floor_queue(p_name text, p_who text) RETURNS boolean LANGUAGE plpgsql AS $$
    BEGIN
        LOOP
            INSERT INTO floor_lock VALUES (p_name, p_who) ON CONFLICT DO NOTHING;
            IF FOUND THEN RETURN true; END IF;
            PERFORM 1 FROM floor_lock WHERE name = p_name FOR NO KEY UPDATE;
            IF FOUND THEN
                INSERT INTO floor_queue (name, who) VALUES (p_name, p_who);
                RETURN false;
            END IF;
        END LOOP;
    END $$;
    CREATE OR REPLACE FUNCTION floor_pass(p_name text, p_who text) RETURNS boolean LANGUAGE plpgsql AS $$
    DECLARE next text;
    BEGIN
        PERFORM 1 FROM floor_lock WHERE name = p_name AND holder = p_who FOR NO KEY UPDATE;
        IF NOT FOUND THEN RETURN false; END IF;
        DELETE FROM floor_queue WHERE name = p_name AND seq = (SELECT min(seq) FROM floor_queue WHERE name = p_name) RETURNING who INTO next;
        IF NOT FOUND THEN
            DELETE FROM floor_lock WHERE name = p_name;
        ELSE
            UPDATE floor_lock SET holder = next WHERE name = p_name;
            PERFORM pg_notify(split_part(next, ':', 1), next);
        END IF;
        RETURN true;
    END $$;";

#[derive(Clone)]
pub(super) struct Floor {
    contestant: Contestant,
    url: Arc<str>,
    link: Arc<Link>,
    /// Of a table by hand.
    pool: Arc<Pool<Arc<Link>>>,
    name: Arc<str>,
    prefix: Arc<str>,
    waiters: Waiters,
}

/// A connection and its prepared statements.
struct Link {
    client: Client,
    take: Statement,
    drop: Statement,
    queue: Statement,
    pass: Statement,
}

impl Link {
    async fn open(contestant: Contestant, url: &str, waiters: &Waiters) -> Result<Arc<Self>> {
        let (client, mut connection) = tokio_postgres::connect(url, NoTls).await?;
        let notified = waiters.clone();
        tokio::spawn(async move {
            while let Some(Ok(message)) = poll_fn(|cx| connection.poll_message(cx)).await {
                if let AsyncMessage::Notification(grant) = message {
                    notified.hear(grant.payload());
                }
            }
        });
        let (take, drop) = match contestant {
            Contestant::Advisory => (
                "SELECT pg_advisory_lock(hashtextextended($1 || left($2, 0), 0))",
                "SELECT pg_advisory_unlock(hashtextextended($1 || left($2, 0), 0))",
            ),
            Contestant::Table => (
                "INSERT INTO table_lock AS l VALUES ($1, $2, now() + interval '60 s') ON CONFLICT (name) DO UPDATE SET owner = excluded.owner, expires = excluded.expires WHERE l.expires < now()",
                "DELETE FROM table_lock WHERE name = $1 AND owner = $2",
            ),
            // With the server's time. Whoever had the row before takes it by an update with the same condition.
            Contestant::ShedLock => (
                "INSERT INTO shedlock AS l (name, lock_until, locked_at, locked_by) VALUES ($1, timezone('utc', CURRENT_TIMESTAMP) + interval '60 s', timezone('utc', CURRENT_TIMESTAMP), $2) ON CONFLICT (name) DO UPDATE SET lock_until = excluded.lock_until, locked_at = excluded.locked_at, locked_by = excluded.locked_by WHERE l.lock_until <= timezone('utc', CURRENT_TIMESTAMP)",
                "UPDATE shedlock SET lock_until = timezone('utc', CURRENT_TIMESTAMP) WHERE name = $1 AND locked_by = $2",
            ),
            _ => ("INSERT INTO floor_lock VALUES ($1, $2)", "DELETE FROM floor_lock WHERE name = $1 AND holder = $2"),
        };
        let [take, drop] = [client.prepare(take).await?, client.prepare(drop).await?];
        let queue = client.prepare("SELECT floor_queue($1, $2)").await?;
        let pass = client.prepare("SELECT floor_pass($1, $2)").await?;
        Ok(Arc::new(Self { client, take, drop, queue, pass }))
    }
}

impl Floor {
    pub(super) async fn connect(contestant: Contestant, url: &str, prefix: &str) -> Result<Self> {
        let (url, _) = url.split_once('?').unwrap_or((url, ""));
        let (client, connection) = tokio_postgres::connect(url, NoTls).await?;
        tokio::spawn(connection);
        // Several workers make the tables one after the other.
        client.batch_execute("SELECT pg_advisory_lock(1)").await?;
        client.batch_execute(TABLES).await?;
        let waiters = Waiters::new(format!("{prefix}_{}", std::process::id()));
        let link = Link::open(contestant, url, &waiters).await?;
        if contestant == Contestant::SqlFloor {
            link.client.batch_execute(&format!("LISTEN {}", waiters.channel)).await?;
        }
        let pool = Arc::new(Pool::new(Arc::clone(&link), contestant == Contestant::Table));
        let name = format!("{prefix} bench").into();
        Ok(Self { contestant, url: url.into(), link, pool, name, prefix: prefix.into(), waiters })
    }

    fn open(&self) -> impl Future<Output = Result<Arc<Link>>> {
        Link::open(self.contestant, &self.url, &self.waiters)
    }

    async fn run(&self, statement: fn(&Link) -> &Statement, owner: &str) -> Result<u64> {
        let lent = match self.contestant {
            Contestant::Table => Some(self.pool.lend(self.open()).await?),
            _ => None,
        };
        let link = lent.as_deref().unwrap_or(&self.link);
        Ok(link.client.execute(statement(link), &[&&*self.name, &owner]).await?)
    }

    async fn ask(&self, statement: &Statement, owner: &str) -> Result<bool> {
        Ok(self.link.client.query_one(statement, &[&&*self.name, &owner]).await?.get(0))
    }
}

impl Take for Floor {
    type Held = Held;

    async fn acquire(&self) -> Result<Held> {
        let place = self.waiters.place();
        if self.contestant == Contestant::Table {
            let had = || async { Ok(self.run(|link| &link.take, &place).await? == 1) };
            self.waiters.again(had).await?;
            return Ok(Held { place, alone: true });
        }
        let had = self.ask(&self.link.queue, &place);
        self.waiters.turn(place.clone(), had).await
    }

    async fn release(&self, held: Held) -> Result<()> {
        let is_ours = match (self.contestant, held.alone) {
            (Contestant::Advisory, _) => self.ask(&self.link.drop, &held.place).await?,
            (_, true) => self.run(|link| &link.drop, &held.place).await? == 1,
            (_, false) => self.ask(&self.link.pass, &held.place).await?,
        };
        ensure!(is_ours, "the lock was lost");
        Ok(())
    }
}

impl Lock for Floor {
    fn named(&self, name: &str) -> Result<Self> {
        Ok(Self { name: format!("{} {name}", self.prefix).into(), ..self.clone() })
    }

    async fn acquire_free(&self) -> Result<Held> {
        let place = self.waiters.place();
        let taken = self.run(|link| &link.take, &place).await?;
        ensure!(taken == 1, "somebody else is about");
        Ok(Held { place, alone: true })
    }

    async fn queued(&self) -> Result<u64> {
        Ok(self.waiters.queued())
    }

    async fn until_queued(&self, count: u64) -> Result<()> {
        self.waiters.until_queued(count).await
    }

    /// A connection of a service's.
    async fn prepare(&self) -> Result<()> {
        match self.contestant {
            Contestant::Table => self.pool.warm(self.open()).await,
            _ => Ok(()),
        }
    }
}
