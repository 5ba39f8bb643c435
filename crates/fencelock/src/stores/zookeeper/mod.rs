//! Locks on an Apache ZooKeeper ensemble, the same ones that Apache Curator, go-zk or kazoo take.
//!
//! A lock lives as long as its session does, and only the servers judge that. `NOTES.md` in this folder has the layout, the clients that it
//! excludes, and the effects of a failover and of a restored backup.

mod breaks;
mod config;
mod data;
mod dialect;
mod doubts;
mod enter;
mod events;
mod fault;
mod foreign;
mod inspect;
mod layout;
mod lighten;
mod listing;
mod notes;
mod numbers;
mod path;
mod place;
mod places;
mod queue_view;
mod session;
mod wakes;

use std::fmt;
use std::sync::{Arc, Weak};
use std::time::Duration;

use fencelock_zookeeper as wire;
use futures_core::future::BoxFuture;
use futures_core::stream::BoxStream;
use futures_util::{StreamExt, stream};

use self::config::{Config, TICK};
use self::dialect::{DIALECTS, Dialect};
use self::events::Events;
use self::fault::fault;
use self::inspect::NameList;
use self::session::{SessionHandle, WireClock, ZooKeeperSession, moment};
use crate::ask::{AskedServer, Questions};
use crate::error::{Error, ErrorKind, Result, rounded};
use crate::kit::address::HostPort;
use crate::kit::dial::converse;
use crate::kit::record::{self, Record};
use crate::name::Name;
use crate::store::{
    Break, Capability, Liveness, NoteOrder, NoteRead, Opened, Opening, Order, Outline, Pace, Page, Presumption, Queue,
    RequestId, Residue, Store, StoreInfo, StoreUrl, Tokens, Waiters, keeps_no_notes,
};
use crate::sync::Mutex;

/// The registry's entry of this store.
pub(crate) const INFO: StoreInfo = StoreInfo {
    options: config::OPTIONS,
    capability: Some(|| capability(&DIALECTS[0], TICK)),
    layouts: &[
        ("layout=kazoo", || capability(&DIALECTS[1], TICK)),
        ("layout=shared", || capability(&DIALECTS[2], TICK)),
    ],
    open: Some(open),
    ask: Some(ask),
    ..StoreInfo::OFF
};

pub(crate) const TLS_INFO: StoreInfo = StoreInfo { options: config::TLS_OPTIONS, ..INFO };

fn open(url: StoreUrl) -> BoxFuture<'static, Result<Arc<dyn Store>>> {
    Box::pin(async move {
        let store = ZooKeeperStore::new(Config::from_url(url)?)?;
        Ok(Arc::new(store) as Arc<dyn Store>)
    })
}

fn ask(url: StoreUrl, questions: Questions) -> Result<Vec<AskedServer>> {
    let config = Config::from_url(url)?;
    let ask = |server: &str| -> Result<AskedServer> {
        let store = ZooKeeperStore::new(Config { servers: server.to_owned(), ..config.clone() })?;
        let answers =
            async move { Ok(stream::iter(questions).then(|question| store.answer(question)).collect().await) };
        Ok((server.to_owned(), Box::pin(answers)))
    };
    config.servers.split(',').map(ask).collect()
}

/// The part of the ttl, a sixth, for noticing a silent server and reaching another one. `Pace::needed` includes it, so this time is left
/// even if a renewal stays unanswered at the worst time. The client's patience, an eighth of the ttl, takes three quarters of it.
const FAILOVER: u32 = 6;

/// How long a client that only reads looks for a server, and then waits for an answer.
const READING: Duration = Duration::from_secs(3);

/// The shortest ttl, in ticks of the servers.
const LEAST_TICKS: u32 = 4;

fn capability(dialect: &Dialect, tick: Duration) -> Capability {
    Capability {
        store: "zk",
        layout: dialect.layout,
        liveness: Liveness::Session,
        order: Order::Fifo,
        tokens: Tokens::CommitNumber,
        presumes: &[Presumption::ServersAgree],
        shared_claims: dialect.has_shared_claims(),
        permits: dialect.has_shared_claims(),
        notes: !dialect.one_parent,
        // With one parent for all locks, a change of any lock would notify.
        waiters: if dialect.one_parent { Waiters::Looked(Duration::from_millis(100)) } else { Waiters::Notified },
        // The servers expire sessions by the tick, and followers report their clients to the leader twice in one.
        detection_slack: tick * 2,
        wake_bound: Duration::from_secs(2),
        same_as: dialect.same_as,
        residue: match dialect.one_parent {
            true => &[Residue::ContainersForSeconds(60), Residue::LastBreaks(100)],
            false => &[Residue::ContainersForSeconds(60), Residue::LastBreaks(100), Residue::Notes],
        },
        pace: Pace {
            renewals_per_ttl: 6,
            least_margin: tick.max(Pace::DEFAULT.least_margin),
            least_ttl: tick * LEAST_TICKS,
            proof_lag: Some(4),
            // Three quarters of it to notice, and one to dial and shake hands.
            failover: Some(FAILOVER),
            longest_interval: None,
        },
        blocking: false,
    }
}

/// Locks on a ZooKeeper ensemble.
struct ZooKeeperStore {
    config: Arc<Config>,
    /// The base configuration of all clients: they share the addresses that are known.
    wire: wire::Config,
    capability: Capability,
    /// The session opened last: queues are read through it.
    newest: Mutex<Weak<ZooKeeperSession>>,
}

impl fmt::Debug for ZooKeeperStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.config, f)
    }
}

impl ZooKeeperStore {
    fn new(config: Config) -> Result<Self> {
        let (capability, wire) = (capability(config.dialect, config.tick), config.client()?);
        Ok(Self { config: Arc::new(config), wire, capability, newest: Mutex::new(Weak::new()) })
    }

    /// The server's answer to a four-letter word, or to `world`: the rights of all users on the node above the locks, by their letters.
    async fn answer(&self, question: &str) -> Result<String> {
        let Config { servers, parent, tls, .. } = &*self.config;
        if question != "world" {
            let server = HostPort::parse(servers, 2181, "a server is a host and its port").map_err(config::bad)?;
            return converse(&server, tls.as_ref(), question).await;
        }
        let client = self.client_to_look("ask").await?;
        let looked = client.get_acl(if parent.is_empty() { "/" } else { parent }).await;
        let _ = client.close().await;
        let world = looked.map_err(|error| fault("ask", &error))?.0.into_iter().find(|entry| entry.scheme == "world");
        Ok(world.map_or_else(String::new, |entry| entry.permissions.to_string()))
    }

    async fn open(&self, opening: Opening) -> Result<Opened> {
        let patience = opening.patience();
        let Opening { owner, ttl, clock, tasks, .. } = opening;
        let config = self.wire.clone().runtime(tasks.handle().clone());
        let config = config.session_timeout(ttl).request_deadline(patience).connect_deadline(patience);
        // Only the engine's renewals keep the session alive.
        let config = config.keep_alive(false).clock(Arc::new(WireClock(Arc::clone(&clock))));
        let (client, events) = wire::Client::connect(config).await.map_err(|error| fault("open session", &error))?;
        let granted = client.session().timeout;
        self.check_granted(ttl, granted)?;
        let confirmed = moment(client.confirmed());
        let session = Arc::new(ZooKeeperSession::new(client, Arc::clone(&self.config), clock, owner));
        *self.newest.lock() = Arc::downgrade(&session);
        let events = Events::new(events, granted, &session).boxed();
        let session = Arc::new(SessionHandle(session));
        Ok(Opened { session, events, ttl: Some(granted), confirmed, capability: None })
    }

    /// Warns if the servers granted another ttl than requested, and refuses a ttl that is too short for any validity.
    fn check_granted(&self, asked: Duration, granted: Duration) -> Result<()> {
        let refuse = |message, tick| {
            let error = Error::new(ErrorKind::Config, "open session", message).with("granted", rounded(granted));
            Err(error.with("asked", rounded(asked)).with(tick, rounded(self.config.tick)))
        };
        if granted < self.capability.pace.least_ttl {
            return refuse(
                "the servers granted a session timeout of less than four ticks (their maxSessionTimeout is too low, or tick_ms too high)",
                "tick",
            );
        }
        if granted > asked && !self.config.tick_is_given {
            return refuse(
                "the servers granted a longer session timeout than was asked for: their tickTime may be half of it, and a ttl needs four; set tick_ms to their tickTime, and ttl_ms to four of them at least",
                "presumed_tick",
            );
        }
        if granted != asked {
            tracing::warn!(?asked, ?granted, "the servers granted another session timeout than was asked for");
        }
        Ok(())
    }

    /// Asks through the session opened last, or through a new one if that has ended.
    async fn read<T, F: Future<Output = wire::Result<T>>>(
        &self,
        operation: &'static str,
        ask: impl Fn(wire::Client) -> F,
    ) -> Result<T> {
        if let Some(client) = self.newest_client() {
            match ask(client).await {
                Err(error) if matches!(error.kind(), wire::ErrorKind::SessionExpired | wire::ErrorKind::Closed) => {}
                answered => return answered.map_err(|error| fault(operation, &error)),
            }
        }
        ask(self.client_to_look(operation).await?).await.map_err(|error| fault(operation, &error))
    }

    /// The client of the session opened last.
    fn newest_client(&self) -> Option<wire::Client> {
        let newest = self.newest.lock().upgrade();
        newest.map(|session| session.client.clone())
    }

    /// A client that takes no locks.
    async fn client_to_look(&self, operation: &'static str) -> Result<wire::Client> {
        // The first request may take as long. With the default ttl, a caller waits for longer than both together.
        let config = self.wire.clone().connect_deadline(READING).request_deadline(READING);
        let connected = wire::Client::connect(config).await;
        connected.map(|(client, _)| client).map_err(|error| fault(operation, &error))
    }

    /// The client of a session that lives, or one that takes no locks.
    async fn reader(&self, operation: &'static str) -> Result<wire::Client> {
        self.read(operation, |client| async move { client.sync("/").await.map(|()| client) }).await
    }
}

impl Store for ZooKeeperStore {
    fn capability(&self) -> &Capability {
        &self.capability
    }

    fn open(&self, opening: Opening) -> BoxFuture<'_, Result<Opened>> {
        Box::pin(self.open(opening))
    }

    fn queue<'a>(&'a self, name: &'a Name, page: Page) -> BoxFuture<'a, Result<Queue>> {
        Box::pin(async move {
            let home = &self.config.home(name)?;
            let ask = |client| async move { inspect::queue(&client, &self.config, name, home, page).await };
            self.read("queue", ask).await
        })
    }

    fn contention<'a>(&'a self, name: &'a Name, mine: &'a [RequestId]) -> BoxFuture<'a, Result<Outline>> {
        Box::pin(async move {
            let home = &self.config.home(name)?;
            let ask = |client| async move { inspect::contention(&client, &self.config, home, mine).await };
            self.read("contention", ask).await
        })
    }

    fn names<'a>(&'a self, prefix: &'a str) -> BoxStream<'a, Result<Vec<Name>>> {
        let portion = async move |list: Option<NameList>| {
            let list = match list {
                Some(list) => list,
                None => NameList::new(self.reader("names").await?),
            };
            list.go_on(&self.config, prefix).await.map_err(|error| fault("names", &error))
        };
        Box::pin(stream::try_unfold(None, portion))
    }

    fn break_grant<'a>(&'a self, order: &'a Break) -> BoxFuture<'a, Result<bool>> {
        Box::pin(async move {
            let (home, record) = (&self.config.home(&order.place.name)?, &record::text("break", &Record::of(order))?);
            let ask = |client| async move { breaks::break_grant(&client, &self.config, home, order, record).await };
            self.read("break", ask).await
        })
    }

    fn breaks<'a>(&'a self, name: &'a Name) -> BoxFuture<'a, Result<Vec<Break>>> {
        Box::pin(self.read("breaks", move |client| async move { breaks::breaks(&client, &self.config, name).await }))
    }

    fn write_note<'a>(&'a self, order: &'a NoteOrder) -> BoxFuture<'a, Result<bool>> {
        Box::pin(async move {
            let name = &order.grant.place.name;
            if !self.capability.notes {
                return Err(keeps_no_notes(name));
            }
            let (home, content) = (&self.config.home(name)?, notes::content(order)?);
            let content = content.as_deref();
            let ask = |client| async move { notes::write(&client, &self.config, home, order, content).await };
            self.read("note", ask).await
        })
    }

    fn note<'a>(&'a self, name: &'a Name) -> BoxFuture<'a, Result<NoteRead>> {
        Box::pin(async move {
            if !self.capability.notes {
                return Err(keeps_no_notes(name));
            }
            self.config.home(name)?;
            let (found, now_ms) =
                self.read("note", |client| async move { notes::read(&client, &self.config, name).await }).await?;
            let not_ours =
                || Error::new(ErrorKind::Layout, "note", "a note is not what this release writes").with("name", name);
            let note = found.map(|(content, written_ms)| notes::note_of(&content, written_ms).ok_or_else(not_ours));
            Ok(NoteRead { note: note.transpose()?, now: notes::time(now_ms).ok_or_else(not_ours)? })
        })
    }
}
