//! The floor of `mysql:`, on the same driver as the store's and one connection: the statements that every lock needs. And locks that
//! services have: the table of tutorials with a pool of connections, the statements of ShedLock, and named locks, by hand.
//!
//! A free lock is a row that is inserted and deleted. A lock with waiters is two procedures: the first takes the lock or queues; the
//! second grants the lock to the next waiter and, after its commit, wakes that waiter's process (`KILL QUERY`). No client dies here, so
//! no client looks for the dead.

use anyhow::Result;
use mysql_async::prelude::Queryable;
use mysql_async::{Conn, Error, Opts, OptsBuilder};

use super::by_hand::{ByHand, Lent, Pool, Requests, Waiters};
use crate::contestant::Contestant;

const TABLES: &[&str] = &[
    "CREATE TABLE IF NOT EXISTS floor_free (name VARBINARY(255) PRIMARY KEY, holder VARBINARY(128) NOT NULL) ENGINE = InnoDB",
    "CREATE TABLE IF NOT EXISTS floor_lock (name VARBINARY(255) PRIMARY KEY, holder VARBINARY(128) NOT NULL) ENGINE = InnoDB",
    "CREATE TABLE IF NOT EXISTS floor_queue (seq BIGINT AUTO_INCREMENT PRIMARY KEY, name VARBINARY(255) NOT NULL, who VARBINARY(128) NOT NULL) ENGINE = InnoDB",
    "CREATE TABLE IF NOT EXISTS floor_bell (bell VARBINARY(64) PRIMARY KEY, rung BIGINT NOT NULL, told VARBINARY(128) NOT NULL) ENGINE = InnoDB",
    "CREATE TABLE IF NOT EXISTS shedlock (name VARCHAR(64) PRIMARY KEY, lock_until TIMESTAMP(3) NOT NULL, locked_at TIMESTAMP(3) NOT NULL DEFAULT CURRENT_TIMESTAMP(3), locked_by VARCHAR(255) NOT NULL) ENGINE = InnoDB",
    "CREATE TABLE IF NOT EXISTS distributed_lock (lock_key VARCHAR(255) PRIMARY KEY, lock_value VARCHAR(128) NOT NULL, expire_time DATETIME NOT NULL, KEY (expire_time)) ENGINE = InnoDB",
    "CREATE PROCEDURE IF NOT EXISTS floor_take(p_name VARBINARY(255), p_who VARBINARY(128))
    BEGIN
        DECLARE v_holder VARBINARY(128);
        DECLARE v_got INT DEFAULT 0;
        SET TRANSACTION ISOLATION LEVEL READ COMMITTED;
        START TRANSACTION;
        SELECT holder INTO v_holder FROM floor_lock WHERE name = p_name FOR UPDATE;
        IF v_holder IS NULL THEN
            INSERT INTO floor_lock VALUES (p_name, p_who);
            SET v_got = 1;
        ELSEIF v_holder = '' THEN
            UPDATE floor_lock SET holder = p_who WHERE name = p_name;
            SET v_got = 1;
        ELSE
            INSERT INTO floor_queue (name, who) VALUES (p_name, p_who);
        END IF;
        COMMIT;
        SELECT v_got;
    END",
    "CREATE PROCEDURE IF NOT EXISTS floor_pass(p_name VARBINARY(255), p_who VARBINARY(128))
    BEGIN
        DECLARE v_holder, v_next VARBINARY(128);
        DECLARE v_bell VARBINARY(64);
        DECLARE v_seq BIGINT;
        DECLARE CONTINUE HANDLER FOR 1094 BEGIN END;
        SET TRANSACTION ISOLATION LEVEL READ COMMITTED;
        START TRANSACTION;
        SELECT holder INTO v_holder FROM floor_lock WHERE name = p_name FOR UPDATE;
        IF v_holder = p_who THEN
            SELECT seq, who INTO v_seq, v_next FROM floor_queue WHERE name = p_name ORDER BY seq LIMIT 1;
            IF v_seq IS NULL THEN
                UPDATE floor_lock SET holder = '' WHERE name = p_name;
            ELSE
                SET v_bell = SUBSTRING_INDEX(v_next, ':', 1);
                DELETE FROM floor_queue WHERE seq = v_seq;
                UPDATE floor_lock SET holder = v_next WHERE name = p_name;
                UPDATE floor_bell SET rung = rung + 1, told = v_next WHERE bell = v_bell;
            END IF;
        END IF;
        COMMIT;
        IF v_bell IS NOT NULL THEN
            KILL QUERY IS_USED_LOCK(v_bell);
        END IF;
        SELECT v_holder = p_who;
    END",
    "CREATE PROCEDURE IF NOT EXISTS floor_listen(p_bell VARBINARY(64), p_mark BIGINT)
    BEGIN
        DECLARE v_rung BIGINT;
        SELECT rung INTO v_rung FROM floor_bell WHERE bell = p_bell;
        IF v_rung = p_mark THEN
            DO GET_LOCK(CONCAT(p_bell, '_'), 20);
        END IF;
        SELECT rung, told FROM floor_bell WHERE bell = p_bell;
    END",
];

pub(super) struct Floor {
    contestant: Contestant,
    options: Opts,
    connections: Pool<Conn>,
}

impl Floor {
    pub(super) async fn connect(contestant: Contestant, url: &str, prefix: &str) -> Result<ByHand<Self>> {
        let options = OptsBuilder::from_opts(Opts::from_url(&format!("{url}?prefer_socket=false"))?);
        let options = match contestant {
            // Each statement is prepared, run and forgotten.
            Contestant::TableUnprepared => options.stmt_cache_size(Some(0)),
            _ => options,
        };
        let options = Opts::from(options);
        let mut connection = Conn::new(options.clone()).await?;
        // Several workers make the tables in turn.
        connection.query_drop("SELECT GET_LOCK('floor', 60)").await?;
        for statement in TABLES {
            connection.query_drop(*statement).await?;
        }
        connection.query_drop("SELECT RELEASE_LOCK('floor')").await?;
        let name = format!("{prefix} bench");
        let waiters = Waiters::new(format!("{prefix}_{}", std::process::id()));
        let bell = &*waiters.channel;
        if contestant == Contestant::SqlFloor {
            connection.exec_drop("INSERT IGNORE INTO floor_lock VALUES (?, '')", (&name,)).await?;
            connection.exec_drop("INSERT IGNORE INTO floor_bell VALUES (?, 0, '')", (bell,)).await?;
            connection.query_drop(format!("SELECT GET_LOCK('{bell}_', 0)")).await?;
            let mut ear = Conn::new(options.clone()).await?;
            ear.query_drop(format!("SELECT GET_LOCK('{bell}', 0)")).await?;
            tokio::spawn(listen(ear, waiters.clone()));
        }
        let connections = Pool::new(connection, contestant == Contestant::Table);
        let requests = Self { contestant, options, connections };
        requests.prepare(&name).await?;
        Ok(ByHand::new(contestant, requests, waiters, prefix))
    }

    async fn connection(&self) -> Result<Lent<Conn>> {
        self.connections.lend(self.open()).await
    }

    async fn open(&self) -> Result<Conn> {
        Ok(Conn::new(self.options.clone()).await?)
    }

    async fn call(&self, procedure: &str, name: &str, place: &str) -> Result<bool> {
        let mut connection = self.connection().await?;
        let said: Option<Option<u8>> = connection.exec_first(format!("CALL {procedure}(?, ?)"), (name, place)).await?;
        Ok(said.flatten() == Some(1))
    }
}

/// Wakes the waiter that the server has granted the lock, after each ring for this process.
async fn listen(mut ear: Conn, waiters: Waiters) -> Result<()> {
    let mut mark = 0;
    loop {
        let granted: Result<Option<(u64, String)>, _> =
            ear.exec_first("CALL floor_listen(?, ?)", (&*waiters.channel, mark)).await;
        match granted {
            // The next call reads the waiter.
            Err(Error::Server(error)) if error.code == 1317 => {}
            granted => {
                let Some((rung, granted)) = granted? else { continue };
                if rung > mark {
                    waiters.grant(&granted);
                }
                mark = rung;
            }
        }
    }
}

impl Requests for Floor {
    async fn take(&self, name: &str, place: &str) -> Result<bool> {
        let mut connection = self.connection().await?;
        let taken = match self.contestant {
            Contestant::Table | Contestant::TableUnprepared => {
                let expired = "DELETE FROM distributed_lock WHERE expire_time < NOW()";
                let insert = "INSERT INTO distributed_lock (lock_key, lock_value, expire_time) VALUES (?, ?, NOW() + INTERVAL 60 SECOND)";
                loop {
                    let done = match connection.exec_drop(expired, ()).await {
                        Ok(()) => connection.exec_drop(insert, (name, place)).await,
                        undone => undone,
                    };
                    // The server undid one of several (a deadlock).
                    if !matches!(&done, Err(Error::Server(error)) if error.code == 1213) {
                        break done;
                    }
                }
            }
            Contestant::ShedLock => {
                let update = "UPDATE shedlock SET lock_until = TIMESTAMPADD(MICROSECOND, 60000000, UTC_TIMESTAMP(3)), locked_at = UTC_TIMESTAMP(3), locked_by = ? WHERE name = ? AND lock_until <= UTC_TIMESTAMP(3)";
                connection.exec_drop(update, (place, name)).await?;
                return Ok(connection.affected_rows() == 1);
            }
            Contestant::GetLock => {
                let got: Option<Option<u8>> = connection.exec_first("SELECT GET_LOCK(?, 0)", (name,)).await?;
                return Ok(got.flatten() == Some(1));
            }
            _ => connection.exec_drop("INSERT INTO floor_free VALUES (?, ?)", (name, place)).await,
        };
        match taken {
            Ok(()) => Ok(true),
            // The row is there.
            Err(Error::Server(error)) if error.code == 1062 => Ok(false),
            Err(error) => Err(error.into()),
        }
    }

    async fn free(&self, name: &str, place: &str) -> Result<bool> {
        let mut connection = self.connection().await?;
        let statement = match self.contestant {
            Contestant::Table | Contestant::TableUnprepared => {
                "DELETE FROM distributed_lock WHERE lock_key = ? AND lock_value = ?"
            }
            Contestant::ShedLock => {
                "UPDATE shedlock SET lock_until = UTC_TIMESTAMP(3) WHERE name = ? AND locked_by = ?"
            }
            Contestant::GetLock => {
                let free: Option<Option<u8>> = connection.exec_first("SELECT RELEASE_LOCK(?)", (name,)).await?;
                return Ok(free.flatten() == Some(1));
            }
            _ => "DELETE FROM floor_free WHERE name = ? AND holder = ?",
        };
        loop {
            match connection.exec_drop(statement, (name, place)).await {
                Err(Error::Server(error)) if error.code == 1213 => {}
                done => {
                    done?;
                    return Ok(connection.affected_rows() == 1);
                }
            }
        }
    }

    async fn queue(&self, name: &str, place: &str) -> Result<bool> {
        self.call("floor_take", name, place).await
    }

    async fn pass(&self, name: &str, place: &str) -> Result<bool> {
        self.call("floor_pass", name, place).await
    }

    /// The row of a name that ShedLock's provider has met, or a connection of a service's.
    async fn prepare(&self, name: &str) -> Result<()> {
        if self.contestant == Contestant::ShedLock {
            let row = "INSERT IGNORE INTO shedlock VALUES (?, UTC_TIMESTAMP(3), UTC_TIMESTAMP(3), '')";
            self.connection().await?.exec_drop(row, (name,)).await?;
        }
        if self.contestant == Contestant::Table {
            self.connections.warm(self.open()).await?;
        }
        Ok(())
    }
}
