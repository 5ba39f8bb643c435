//! A TCP proxy that delays, holds back, swallows and cuts.
//!
//! Made of threads, since their sleeps are exact to some ten microseconds and tokio's to a millisecond: bytes held back
//! for 2 ms must not be held back for three.

mod connection;
mod pipe;

use std::io;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use self::connection::Connection;
use self::pipe::Mode;
use crate::ports::Port;

/// A direction through a proxy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Way {
    /// From the client to the server.
    Up,
    /// From the server to the client.
    Down,
    /// Both.
    Both,
}

/// The rules for the next connections, and the state that all of them share.
#[derive(Debug, Clone, Copy, Default)]
struct Rules {
    refuse: bool,
    delay: Duration,
    up: Mode,
    down: Mode,
}

/// The bytes that may still pass before the connection that carries the last one is cut.
#[derive(Debug, Clone, Copy)]
struct Cut {
    way: Way,
    bytes: u64,
}

#[derive(Debug, Default)]
struct Counts {
    connections: AtomicU64,
    up: AtomicU64,
    down: AtomicU64,
    cuts: AtomicU64,
}

/// The shared state of the threads of a proxy.
#[derive(Debug)]
struct Shared {
    upstream: Mutex<SocketAddr>,
    /// How long a client is kept until a server listens at `upstream`.
    patience: Duration,
    rules: Mutex<Rules>,
    cut: Mutex<Option<Cut>>,
    counts: Counts,
    open: Mutex<Vec<Arc<Connection>>>,
    closing: AtomicBool,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A proxy before one server. Dropping it resets its connections.
#[derive(Debug)]
pub struct Proxy {
    port: Port,
    shared: Arc<Shared>,
    accepting: Option<JoinHandle<()>>,
}

impl Proxy {
    /// Starts a proxy before `upstream` that lets everything through. No server need listen there yet.
    pub fn start(upstream: SocketAddr) -> io::Result<Self> {
        Self::start_patient(upstream, Duration::ZERO)
    }

    /// Starts a proxy that keeps new clients for up to `patience` until a server listens at `upstream`. Some clients retry a refused
    /// connection, and take one that is accepted and then reset for the end of the server.
    pub fn start_patient(upstream: SocketAddr, patience: Duration) -> io::Result<Self> {
        let port = Port::reserve()?;
        let listener = TcpListener::bind(port.address())?;
        let shared = Arc::new(Shared {
            upstream: Mutex::new(upstream),
            patience,
            rules: Mutex::default(),
            cut: Mutex::default(),
            counts: Counts::default(),
            open: Mutex::default(),
            closing: AtomicBool::new(false),
        });
        let accepting = Arc::clone(&shared);
        let accepting = thread::spawn(move || accepting.accept(&listener));
        Ok(Self { port, shared, accepting: Some(accepting) })
    }

    /// Where to connect.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.port.address()
    }

    /// Delays all further bytes by `each_way`, in both directions. Later bytes on the same connection are held
    /// concurrently, not behind them, so that pipelined requests share one delay.
    pub fn delay(&self, each_way: Duration) {
        lock(&self.shared.rules).delay = each_way;
    }

    /// Drops all bytes of this direction, also of future connections. A stream that lost bytes carries no more of them, until
    /// [`Proxy::heal`] resets its connection.
    pub fn hole(&self, way: Way) {
        self.set(way, Mode::Swallow, true);
    }

    /// Holds back all bytes of this direction, on present and future connections, as a network that is cut for a while.
    pub fn hold(&self, way: Way) {
        self.set(way, Mode::Hold, true);
    }

    /// Holds back all bytes of this direction on the connections there are. Future connections are not touched.
    pub fn hold_existing(&self, way: Way) {
        self.set(way, Mode::Hold, false);
    }

    /// Delivers the held bytes in order, even for a client that has closed its connection since.
    pub fn release(&self) {
        self.set(Way::Both, Mode::Pass, true);
    }

    /// Closes the connection that carries the `bytes`-th byte from now on in this direction, right after that byte; with
    /// 0 the one that would carry the next byte, before it. Happens once.
    pub fn cut_after(&self, bytes: u64, way: Way) {
        *lock(&self.shared.cut) = Some(Cut { way, bytes });
    }

    /// Leads future connections to another server, like an address that moves; open connections stay.
    pub fn lead_to(&self, upstream: SocketAddr) {
        *lock(&self.shared.upstream) = upstream;
    }

    /// Resets each future connection directly after the accept; open connections stay.
    pub fn refuse(&self) {
        lock(&self.shared.rules).refuse = true;
    }

    /// Resets every connection there is, both sides of it.
    pub fn reset(&self) {
        for connection in lock(&self.shared.open).drain(..) {
            connection.reset();
        }
    }

    /// Lets everything through again, after delays, cuts, holes and refusals alike; resets connections that lost bytes.
    pub fn heal(&self) {
        // From here on no further connection loses bytes.
        self.release();
        lock(&self.shared.open).retain(|connection| {
            let is_whole = !connection.lost_bytes();
            if !is_whole {
                connection.reset();
            }
            is_whole
        });
        *lock(&self.shared.cut) = None;
        *lock(&self.shared.rules) = Rules::default();
    }

    /// How many connections were made so far.
    #[must_use]
    pub fn connections(&self) -> u64 {
        self.shared.counts.connections.load(Ordering::Relaxed)
    }

    /// How many connections are open.
    #[must_use]
    pub fn open_connections(&self) -> usize {
        let mut open = lock(&self.shared.open);
        open.retain(|connection| !connection.has_ended());
        open.len()
    }

    /// How many bytes were delivered so far: up and down.
    #[must_use]
    pub fn bytes(&self) -> (u64, u64) {
        (self.shared.counts.up.load(Ordering::Relaxed), self.shared.counts.down.load(Ordering::Relaxed))
    }

    /// Whether a connection that is open has lost bytes to a hole.
    #[must_use]
    pub fn lost_bytes(&self) -> bool {
        lock(&self.shared.open).iter().any(|connection| connection.lost_bytes())
    }

    /// How many connections were cut by [`Proxy::cut_after`].
    #[must_use]
    pub fn cuts(&self) -> u64 {
        self.shared.counts.cuts.load(Ordering::Relaxed)
    }

    fn set(&self, way: Way, mode: Mode, also_to_come: bool) {
        // The list is locked first, as in the thread that adds connections, so that no connection misses the change.
        let open = lock(&self.shared.open);
        if also_to_come {
            let mut rules = lock(&self.shared.rules);
            if way != Way::Down {
                rules.up = mode;
            }
            if way != Way::Up {
                rules.down = mode;
            }
        }
        for connection in open.iter() {
            connection.set(way, mode);
        }
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.shared.closing.store(true, Ordering::Release);
        // Wakes the thread that accepts.
        let _ = TcpStream::connect(self.port.address());
        if let Some(accepting) = self.accepting.take() {
            let _ = accepting.join();
        }
        self.reset();
    }
}

impl Shared {
    fn accept(self: &Arc<Self>, listener: &TcpListener) {
        for client in listener.incoming() {
            if self.closing.load(Ordering::Acquire) {
                return;
            }
            match client {
                Ok(client) => self.welcome(client),
                // Most likely there are no descriptors: the test of that case frees some.
                Err(_) => thread::sleep(Duration::from_millis(1)),
            }
        }
    }

    fn welcome(self: &Arc<Self>, client: TcpStream) {
        self.counts.connections.fetch_add(1, Ordering::Relaxed);
        if lock(&self.rules).refuse {
            connection::reset(&client);
            return;
        }
        let shared = Arc::clone(self);
        // A server that does not answer must not delay the next one.
        thread::spawn(move || match shared.reach() {
            Ok(server) => shared.join(client, server),
            Err(_) => connection::reset(&client),
        });
    }

    fn reach(&self) -> io::Result<TcpStream> {
        let start = Instant::now();
        loop {
            let upstream = *lock(&self.upstream);
            match TcpStream::connect(upstream) {
                Err(_) if start.elapsed() < self.patience && !self.closing.load(Ordering::Acquire) => {
                    thread::sleep(Duration::from_millis(1));
                }
                reached => return reached,
            }
        }
    }

    fn join(self: &Arc<Self>, client: TcpStream, server: TcpStream) {
        let mut open = lock(&self.open);
        let rules = *lock(&self.rules);
        open.retain(|connection| !connection.has_ended());
        match Connection::start(client, server, (rules.up, rules.down), self) {
            Ok(connection) if !self.closing.load(Ordering::Acquire) => open.push(connection),
            Ok(connection) => connection.reset(),
            Err(_) => {}
        }
    }

    /// How many of the next `bytes` of this direction may pass; `None` when all of them may. Less than all means that
    /// the connection is cut after them.
    fn before_the_cut(&self, way: Way, bytes: usize) -> Option<usize> {
        let mut cut = lock(&self.cut);
        let limit = cut.as_mut().filter(|cut| cut.way == Way::Both || cut.way == way)?;
        let bytes = bytes as u64;
        if bytes < limit.bytes {
            limit.bytes -= bytes;
            return None;
        }
        let passing = limit.bytes;
        *cut = None;
        self.counts.cuts.fetch_add(1, Ordering::Relaxed);
        usize::try_from(passing).ok()
    }

    fn count(&self, way: Way, bytes: usize) {
        let count = if way == Way::Up { &self.counts.up } else { &self.counts.down };
        count.fetch_add(bytes as u64, Ordering::Relaxed);
    }
}
