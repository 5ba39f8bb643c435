//! The floor of `postgres:`, on the same driver as the store's and one connection: the statements that nobody can do without. And
//! locks that services have: a table with a unique key and advisory locks, by hand, and the statements of ShedLock.
//!
//! A free lock is a row that is inserted and deleted. A lock that is waited for is one function that takes it or queues, and one that gives
//! it to the next in the queue and tells that one as it commits. Nothing dies here, so nobody looks for the dead.

use std::collections::HashMap;
use std::future::poll_fn;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use tokio::sync::{oneshot, watch};
use tokio_postgres::{AsyncMessage, Client, NoTls, Statement};

use super::workload::{Lock, Take};
use crate::contestant::Contestant;

/// How long whoever finds the row of a table taken waits before it tries again.
const AGAIN: Duration = Duration::from_millis(50);

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

/// Who waits, by its number.
type Waiting = Arc<Mutex<HashMap<u64, oneshot::Sender<()>>>>;

#[derive(Clone)]
pub(super) struct Floor {
    contestant: Contestant,
    client: Arc<Client>,
    statements: Arc<Statements>,
    name: Arc<str>,
    prefix: Arc<str>,
    channel: Arc<str>,
    waiting: Waiting,
    queued: Arc<watch::Sender<u64>>,
    last: Arc<AtomicU64>,
}

struct Statements {
    take: Statement,
    drop: Statement,
    queue: Statement,
    pass: Statement,
}

/// A lock that is held.
pub(super) struct Held {
    owner: String,
    /// Nobody can be waiting for it.
    alone: bool,
}

impl Floor {
    pub(super) async fn connect(contestant: Contestant, url: &str, prefix: &str) -> Result<Self> {
        let (url, _) = url.split_once('?').unwrap_or((url, ""));
        let (client, mut connection) = tokio_postgres::connect(url, NoTls).await?;
        let waiting = Waiting::default();
        let heard = Arc::clone(&waiting);
        tokio::spawn(async move {
            while let Some(Ok(message)) = poll_fn(|cx| connection.poll_message(cx)).await {
                if let AsyncMessage::Notification(told) = message {
                    hear(&heard, told.payload());
                }
            }
        });
        // Whoever comes second finds them there, or loses a race that does not matter.
        let _ = client.batch_execute("SELECT pg_advisory_lock(1)").await;
        client.batch_execute(TABLES).await?;
        client.batch_execute("SELECT pg_advisory_unlock(1)").await?;
        let (take, drop) = match contestant {
            Contestant::PgAdvisory => (
                "SELECT pg_advisory_lock(hashtextextended($1 || left($2, 0), 0))",
                "SELECT pg_advisory_unlock(hashtextextended($1 || left($2, 0), 0))",
            ),
            Contestant::PgTable => (
                "INSERT INTO table_lock AS l VALUES ($1, $2, now() + interval '60 s') ON CONFLICT (name) DO UPDATE SET owner = excluded.owner, expires = excluded.expires WHERE l.expires < now()",
                "DELETE FROM table_lock WHERE name = $1 AND owner = $2",
            ),
            // With the server's time. Whoever had the row before takes it by an update with the same condition.
            Contestant::PgShedLock => (
                "INSERT INTO shedlock AS l (name, lock_until, locked_at, locked_by) VALUES ($1, timezone('utc', CURRENT_TIMESTAMP) + interval '60 s', timezone('utc', CURRENT_TIMESTAMP), $2) ON CONFLICT (name) DO UPDATE SET lock_until = excluded.lock_until, locked_at = excluded.locked_at, locked_by = excluded.locked_by WHERE l.lock_until <= timezone('utc', CURRENT_TIMESTAMP)",
                "UPDATE shedlock SET lock_until = timezone('utc', CURRENT_TIMESTAMP) WHERE name = $1 AND locked_by = $2",
            ),
            _ => ("INSERT INTO floor_lock VALUES ($1, $2)", "DELETE FROM floor_lock WHERE name = $1 AND holder = $2"),
        };
        let statements = Statements {
            take: client.prepare(take).await?,
            drop: client.prepare(drop).await?,
            queue: client.prepare("SELECT floor_queue($1, $2)").await?,
            pass: client.prepare("SELECT floor_pass($1, $2)").await?,
        };
        let channel: Arc<str> = format!("{prefix}_{}", std::process::id()).into();
        if contestant == Contestant::PgFloor {
            client.batch_execute(&format!("LISTEN {channel}")).await?;
        }
        Ok(Self {
            contestant,
            client: Arc::new(client),
            statements: Arc::new(statements),
            name: format!("{prefix} bench").into(),
            prefix: prefix.into(),
            channel,
            waiting,
            queued: Arc::default(),
            last: Arc::default(),
        })
    }

    fn owner(&self) -> (u64, String) {
        let number = self.last.fetch_add(1, Ordering::Relaxed);
        (number, format!("{}:{number}", self.channel))
    }

    async fn run(&self, statement: &Statement, owner: &str) -> Result<u64> {
        Ok(self.client.execute(statement, &[&&*self.name, &owner]).await?)
    }

    async fn ask(&self, statement: &Statement, owner: &str) -> Result<bool> {
        Ok(self.client.query_one(statement, &[&&*self.name, &owner]).await?.get(0))
    }

    fn table(&self) -> std::sync::MutexGuard<'_, HashMap<u64, oneshot::Sender<()>>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Tells the one whose number came.
fn hear(waiting: &Mutex<HashMap<u64, oneshot::Sender<()>>>, told: &str) {
    let number = told.rsplit_once(':').and_then(|(_, number)| number.parse().ok());
    let mut waiting = waiting.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(next) = number.and_then(|number: u64| waiting.remove(&number)) {
        let _ = next.send(());
    }
}

impl Take for Floor {
    type Held = Held;

    async fn acquire(&self) -> Result<Held> {
        let (number, owner) = self.owner();
        if self.contestant == Contestant::PgTable {
            let mut is_first = true;
            while self.run(&self.statements.take, &owner).await? == 0 {
                if std::mem::take(&mut is_first) {
                    self.queued.send_modify(|queued| *queued += 1);
                }
                tokio::time::sleep(AGAIN).await;
            }
            return Ok(Held { owner, alone: true });
        }
        let (sender, told) = oneshot::channel();
        self.table().insert(number, sender);
        if self.ask(&self.statements.queue, &owner).await? {
            self.table().remove(&number);
        } else {
            self.queued.send_modify(|queued| *queued += 1);
            told.await.context("the connection is gone")?;
        }
        Ok(Held { owner, alone: false })
    }

    async fn release(&self, held: Held) -> Result<()> {
        let is_ours = match (self.contestant, held.alone) {
            (Contestant::PgAdvisory, _) => self.ask(&self.statements.drop, &held.owner).await?,
            (_, true) => self.run(&self.statements.drop, &held.owner).await? == 1,
            (_, false) => self.ask(&self.statements.pass, &held.owner).await?,
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
        let (_, owner) = self.owner();
        let taken = self.run(&self.statements.take, &owner).await?;
        ensure!(taken == 1, "somebody else is about");
        Ok(Held { owner, alone: true })
    }

    async fn queued(&self) -> Result<u64> {
        Ok(*self.queued.borrow())
    }

    async fn until_queued(&self, count: u64) -> Result<()> {
        let mut queued = self.queued.subscribe();
        queued.wait_for(|now| *now >= count).await.context("nobody queues any more")?;
        Ok(())
    }
}
