//! The floor of `postgres:`, on the same driver as the store's and one connection: the statements that every lock needs. And locks that
//! services have: a table with a unique key and a pool of connections, advisory locks, and the statements of ShedLock, by hand.
//!
//! Without waiters the floor inserts a row and deletes it. With waiters, a function takes the lock or queues. Another function grants the
//! lock to the next waiter, and the commit notifies that waiter's process. No process dies here, so no client looks for dead ones.

use std::future::poll_fn;
use std::sync::Arc;

use anyhow::Result;
use tokio_postgres::{AsyncMessage, Client, NoTls, Statement};

use super::by_hand::{ByHand, Pool, Requests, Waiters};
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

pub(super) struct Floor {
    contestant: Contestant,
    url: String,
    link: Arc<Link>,
    /// The pool of a table by hand.
    pool: Pool<Arc<Link>>,
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
                    notified.grant(grant.payload());
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
            // With the server's time. An existing row is taken by an update with the same condition.
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
    pub(super) async fn connect(contestant: Contestant, url: &str, prefix: &str) -> Result<ByHand<Self>> {
        let (url, _) = url.split_once('?').unwrap_or((url, ""));
        let (client, connection) = tokio_postgres::connect(url, NoTls).await?;
        tokio::spawn(connection);
        // Several workers make the tables in turn.
        client.batch_execute("SELECT pg_advisory_lock(1)").await?;
        client.batch_execute(TABLES).await?;
        let waiters = Waiters::new(format!("{prefix}_{}", std::process::id()));
        let link = Link::open(contestant, url, &waiters).await?;
        if contestant == Contestant::SqlFloor {
            link.client.batch_execute(&format!("LISTEN {}", waiters.channel)).await?;
        }
        let pool = Pool::new(Arc::clone(&link), contestant == Contestant::Table);
        let requests = Self { contestant, url: url.to_owned(), link, pool, waiters: waiters.clone() };
        Ok(ByHand::new(contestant, requests, waiters, prefix))
    }

    fn open(&self) -> impl Future<Output = Result<Arc<Link>>> {
        Link::open(self.contestant, &self.url, &self.waiters)
    }

    async fn run(&self, statement: fn(&Link) -> &Statement, name: &str, place: &str) -> Result<bool> {
        let lent = match self.contestant {
            Contestant::Table => Some(self.pool.lend(self.open()).await?),
            _ => None,
        };
        let link = lent.as_deref().unwrap_or(&self.link);
        Ok(link.client.execute(statement(link), &[&name, &place]).await? == 1)
    }

    async fn ask(&self, statement: &Statement, name: &str, place: &str) -> Result<bool> {
        Ok(self.link.client.query_one(statement, &[&name, &place]).await?.get(0))
    }
}

impl Requests for Floor {
    async fn take(&self, name: &str, place: &str) -> Result<bool> {
        self.run(|link| &link.take, name, place).await
    }

    async fn free(&self, name: &str, place: &str) -> Result<bool> {
        match self.contestant {
            Contestant::Advisory => self.ask(&self.link.drop, name, place).await,
            _ => self.run(|link| &link.drop, name, place).await,
        }
    }

    async fn queue(&self, name: &str, place: &str) -> Result<bool> {
        self.ask(&self.link.queue, name, place).await
    }

    async fn pass(&self, name: &str, place: &str) -> Result<bool> {
        self.ask(&self.link.pass, name, place).await
    }

    /// Opens the pool's connection ahead of time.
    async fn prepare(&self, _name: &str) -> Result<()> {
        match self.contestant {
            Contestant::Table => self.pool.warm(self.open()).await,
            _ => Ok(()),
        }
    }
}
