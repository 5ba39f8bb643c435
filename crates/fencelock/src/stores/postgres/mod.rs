//! Locks in PostgreSQL: an ordered queue for each name, kept by functions in a schema of its own. One call, one round trip and one
//! transaction to acquire, and the same to release.
//!
//! A lock lives as long as the lease of its session does, one row that one statement renews for any number of locks, and only the
//! server's clock judges that. `NOTES.md` beside this file has tables, functions, states, and the order of locks.

mod connection;
mod dial;
mod fault;
mod link;
mod member;
mod schema;
mod session;
mod setup;
mod show;
mod url;

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use futures_core::future::BoxFuture;
use futures_core::stream::BoxStream;
use futures_util::stream;
use tokio::sync::mpsc;

use self::connection::Connection;
use self::link::{Link, Nobody, apart, link};
use self::member::Member;
pub use self::schema::{HOLD, Migration, Schema};
use self::session::PostgresSession;
use self::url::Config;
use crate::error::{Error, ErrorKind, Result};
use crate::kit::served::{Core, Hub, Over, REPAIR};
use crate::name::Name;
use crate::store::{
    Break, Capability, Liveness, Opened, Opening, Order, Outline, Pace, Page, Queue, RequestId, Store, StoreInfo,
    StoreUrl, Tokens,
};

/// What the registry knows of this store.
pub(crate) const INFO: StoreInfo = StoreInfo {
    scheme: "postgres",
    feature: "postgres",
    example: "postgres://user:password@host:5432/database",
    options: url::OPTIONS,
    capability: Some(|| CAPABILITY.clone()),
    layouts: &[("liveness=connection", || BOUND.clone())],
    open: Some(open),
};

/// The same by its longer name.
pub(crate) const LONG_INFO: StoreInfo =
    StoreInfo { scheme: "postgresql", example: "postgresql://user:password@host1,host2/database", ..INFO };

static CAPABILITY: Capability = Capability {
    store: "postgres",
    layout: "fencelock postgres fair layout 1",
    liveness: Liveness::Lease,
    order: Order::Fifo,
    tokens: Tokens::ClockFlooredCounter,
    certainty: "the server keeps what it committed (a failover to a standby that was asynchronous loses what was not replicated yet) and its wall clock does not jump ahead",
    shared_claims: true,
    permits: true,
    // Who waits looks when the lease of a holder may be over.
    detection_slack: Duration::from_secs(1),
    wake_bound: REPAIR.saturating_add(Duration::from_secs(1)),
    excludes: "",
    residue: "a schema with 4096 rows and a sequence, and for 30 days the records of breaks; what crashed clients held goes as clients that live come by, 256 buckets of names with each renewal",
    pace: Pace::DEFAULT,
    blocking: false,
};

/// With `liveness=connection`.
static BOUND: Capability = Capability {
    certainty: "the server keeps what it committed (a failover to a standby that was asynchronous loses what was not replicated yet), its wall clock does not jump ahead, and the client hears when its connection ends: a crash of any process of the server, pg_terminate_backend and a failover end it, and the next one may be granted a moment before that is heard; where the network is cut in the same moment, up to a ttl",
    residue: "a schema with 4096 rows and a sequence, and for 30 days the records of breaks; what crashed clients held goes when somebody asks for the same name, else as clients that live come by after its lease, 256 buckets of names with each renewal",
    ..CAPABILITY
};

fn open(url: StoreUrl) -> BoxFuture<'static, Result<Arc<dyn Store>>> {
    Box::pin(async move {
        let config = Arc::new(Config::from_url(url)?);
        Ok(Arc::new(PostgresStore { config, newest: Mutex::default(), reader: Mutex::default() }) as Arc<dyn Store>)
    })
}

/// Locks on a PostgreSQL server.
struct PostgresStore {
    config: Arc<Config>,
    /// The session opened last: queues are read through it.
    newest: Mutex<Weak<Core<Member>>>,
    /// What queues are read through when there is no session.
    reader: Mutex<Option<Arc<Link>>>,
}

impl fmt::Debug for PostgresStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.config, f)
    }
}

impl PostgresStore {
    async fn open(&self, opening: Opening) -> Result<Opened> {
        let random = || {
            getrandom::u64().map_err(|error| {
                Error::new(ErrorKind::Exhausted, "open session", "no random numbers").caused_by(error.to_string())
            })
        };
        let (sender, mut events) = mpsc::unbounded_channel();
        let ttl = opening.ttl;
        let bound = if self.config.is_bound { Some(random()?) } else { None };
        let member = Member::new(Arc::clone(&self.config), random()?, random()?, bound, opening, Hub::new(sender));
        let member = Arc::new(member);
        let link = link(&self.config, Arc::clone(&member) as Arc<dyn connection::User>, Some(&member.opening));
        link.connection().await?;
        if member.hub.over() != Over::No {
            let message = "the connection that the session ends with was lost at once";
            return Err(Error::new(ErrorKind::Unreachable, "open session", message).retryable());
        }
        let confirmed = member.confirmed();
        let core = Arc::new(Core { link, member });
        *self.newest.lock().unwrap_or_else(PoisonError::into_inner) = Arc::downgrade(&core);
        let events = Box::pin(futures_util::stream::poll_fn(move |cx| events.poll_recv(cx)));
        Ok(Opened { session: Arc::new(PostgresSession(core)), events, ttl: Some(ttl), confirmed, capability: None })
    }

    /// The connection of the session opened last, or, if there is none any more, one that serves no session; `None` for a database
    /// in which nobody took a lock yet.
    async fn connection(&self) -> Result<Option<Arc<Connection>>> {
        let newest = self.newest.lock().unwrap_or_else(PoisonError::into_inner).upgrade();
        if let Some(core) = newest.filter(|core| core.alive("read").is_ok()) {
            return core.link.connection().await.map(Some);
        }
        let reader = {
            let mut reader = self.reader.lock().unwrap_or_else(PoisonError::into_inner);
            let new = || link(&self.config, Arc::new(Nobody), None);
            Arc::clone(reader.get_or_insert_with(new))
        };
        let connection = reader.connection().await?;
        if connection.has_schema() {
            return Ok(Some(connection));
        }
        // The next one looks whether somebody made the schema.
        reader.hang_up();
        Ok(None)
    }
}

impl Store for PostgresStore {
    fn capability(&self) -> &Capability {
        if self.config.is_bound { &BOUND } else { &CAPABILITY }
    }

    fn open(&self, opening: Opening) -> BoxFuture<'_, Result<Opened>> {
        Box::pin(self.open(opening))
    }

    fn queue<'a>(&'a self, name: &'a Name, page: Page) -> BoxFuture<'a, Result<Queue>> {
        Box::pin(async move {
            match self.connection().await? {
                Some(connection) => show::queue(&connection, name, page).await,
                None => Ok(Queue::page_of(name.clone(), Vec::new(), page)),
            }
        })
    }

    fn contention<'a>(&'a self, name: &'a Name, mine: &'a [RequestId]) -> BoxFuture<'a, Result<Outline>> {
        Box::pin(async move {
            match self.connection().await? {
                Some(connection) => show::contention(&connection, name, mine).await,
                None => Ok(Outline::of(&[], mine)),
            }
        })
    }

    fn names<'a>(&'a self, prefix: &'a str) -> BoxStream<'a, Result<Vec<Name>>> {
        let portion = async move |from: Option<show::Listed>| {
            let Some(from) = from else { return Ok(None) };
            let Some(connection) = self.connection().await? else { return Ok(None) };
            show::names(&connection, &from, prefix).await.map(Some)
        };
        Box::pin(stream::try_unfold(Some((-1, String::new())), portion))
    }

    fn break_grant<'a>(&'a self, order: &'a Break) -> BoxFuture<'a, Result<bool>> {
        Box::pin(async move {
            // A client that only looks does not know the function that writes.
            let connection = apart(&self.config, None).await?;
            show::break_grant(&self.config, &connection, order).await
        })
    }

    fn breaks<'a>(&'a self, name: &'a Name) -> BoxFuture<'a, Result<Vec<Break>>> {
        Box::pin(async move {
            match self.connection().await? {
                Some(connection) => show::breaks(&connection, name).await,
                None => Ok(Vec::new()),
            }
        })
    }
}
