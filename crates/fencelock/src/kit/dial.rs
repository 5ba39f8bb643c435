//! Dials the addresses of a server's name concurrently, each a moment after the one before: a silent address does not delay the other
//! addresses (RFC 8305). For a name that cannot be resolved, the client dials the last known address.

use std::collections::{HashMap, HashSet, VecDeque};
use std::fmt::Display;
use std::io;
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpStream, lookup_host};

use super::address::HostPort;
use super::tls::Tls;
use crate::error::{Error, ErrorKind, Result, rounded};
use crate::sync::Mutex;
use crate::time::{Clock, outcome_before};

/// A connection to a server, encrypted or not.
pub(crate) trait Bytes: AsyncRead + AsyncWrite + Send + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin> Bytes for T {}

/// The stream to `host`, encrypted if there is `tls`.
pub(crate) async fn encrypted(tls: Option<&Tls>, host: &str, stream: TcpStream) -> Result<Box<dyn Bytes>> {
    match tls {
        Some(tls) => Ok(Box::new(tls.wrap(stream, host).await?)),
        None => Ok(Box::new(stream)),
    }
}

/// The answer to a request in text, on a connection that the server ends with it.
pub(crate) async fn converse(server: &HostPort, tls: Option<&Tls>, request: &str) -> Result<String> {
    const LONGEST: u64 = 4 * 1024 * 1024;
    let failed = |error| unreachable(server, &error);
    let stream = TcpStream::connect((&*server.host, server.port)).await.map_err(failed)?;
    let mut stream = encrypted(tls, &server.host, stream).await?;
    let mut answer = Vec::new();
    let answered = async {
        stream.write_all(request.as_bytes()).await?;
        stream.flush().await?;
        stream.take(LONGEST).read_to_end(&mut answer).await
    };
    match answered.await {
        // Servers end a connection over TLS without a farewell.
        Err(error) if answer.is_empty() => Err(failed(error)),
        _ => Ok(String::from_utf8_lossy(&answer).into_owned()),
    }
}

/// How long an address, or the name server, may take before the next address, or the one that worked last, is dialled as well.
const STAGGER: Duration = Duration::from_millis(250);

/// The error of a dialling that ran out of time before the name server answered.
const UNRESOLVED: &str = "the name of the server was not resolved in time: the name server gave no answer";

/// Known addresses of servers, shared by all clients of a store URL.
#[derive(Debug, Default)]
pub(crate) struct Addresses {
    /// The address of each server that worked last.
    last: Mutex<HashMap<HostPort, SocketAddr>>,
    /// Names that a warning reported as not resolvable.
    nameless: Mutex<HashSet<HostPort>>,
    /// Whether the newest lookup of a name has no answer yet.
    is_unresolved: AtomicBool,
    /// The number of the server that accepted the last connection. The next connection tries this server first.
    last_server: AtomicUsize,
}

impl Addresses {
    /// The error of servers that gave no connection in time.
    pub(crate) fn too_slow(&self, is_encrypted: bool, servers: impl Display, within: Duration) -> Error {
        let message = match is_encrypted {
            _ if self.is_unresolved.load(Ordering::Relaxed) => UNRESOLVED,
            true => "the server gave no answer in time; does it speak TLS on that port?",
            false => "the server gave no answer in time",
        };
        Error::new(ErrorKind::Unreachable, "connect", message)
            .with("server", servers)
            .with("within", rounded(within))
            .retryable()
    }

    /// Connects to `server` and greets on each connection; the first greeting with an answer wins. `shown` is the server in errors.
    pub(crate) async fn dial<T, F: Future<Output = Result<T>>>(
        &self,
        server: &HostPort,
        shown: &(dyn Display + Sync),
        clock: &dyn Clock,
        greet: impl Fn(TcpStream) -> F,
    ) -> Result<T> {
        let question = async { Ok(lookup_host((server.host.as_str(), server.port)).await?.collect()) };
        self.race(server, shown, clock, question, greet).await
    }

    async fn race<T, F: Future<Output = Result<T>>>(
        &self,
        server: &HostPort,
        shown: &(dyn Display + Sync),
        clock: &dyn Clock,
        question: impl Future<Output = io::Result<Vec<SocketAddr>>>,
        greet: impl Fn(TcpStream) -> F,
    ) -> Result<T> {
        let attempt = async |address| {
            let failed = |error| unreachable(shown, &error);
            let greeted = async {
                let stream = TcpStream::connect(address).await.map_err(failed)?;
                // A second request in flight would wait for the acknowledgement of the first otherwise: 40 ms.
                stream.set_nodelay(true).map_err(failed)?;
                greet(stream).await
            };
            (address, greeted.await)
        };
        let worked = self.last.lock().get(server).copied();
        let (mut question, mut attempts) = (pin!(question), FuturesUnordered::new());
        let (mut is_asking, mut spare, mut waiting) = (true, worked, VecDeque::new());
        let (mut begun, mut unresolved, mut failed) = (Vec::new(), None, None);
        let mut next_start = clock.now().after(STAGGER);
        self.is_unresolved.store(true, Ordering::Relaxed);
        loop {
            tokio::select! {
                biased;
                Some((address, greeted)) = attempts.next() => match greeted {
                    Ok(greeted) => {
                        self.last.lock().insert(server.clone(), address);
                        return Ok(greeted);
                    }
                    Err(error) => {
                        next_start = clock.now();
                        // A permanent error is reported rather than the error of an address that is away.
                        if failed.as_ref().is_none_or(Error::is_retryable) {
                            failed = Some(error);
                        }
                    }
                },
                resolved = &mut question, if is_asking => {
                    is_asking = false;
                    self.is_unresolved.store(false, Ordering::Relaxed);
                    if attempts.is_empty() {
                        next_start = clock.now();
                    }
                    match resolved {
                        Ok(mut addresses) => {
                            spare = None;
                            addresses.retain(|address| !begun.contains(address));
                            addresses.sort_by_key(|address| Some(*address) != worked);
                            waiting.extend(addresses);
                        }
                        Err(error) => {
                            self.warn_once(server, &error);
                            unresolved = Some(nameless(shown, &error));
                        }
                    }
                }
                () = clock.sleep_until(next_start), if !waiting.is_empty() || spare.is_some() => {
                    next_start = clock.now().after(STAGGER);
                    let address = waiting.pop_front().or_else(|| spare.take());
                    begun.extend(address);
                    attempts.extend(address.map(&attempt));
                }
                else => {
                    let why = failed.filter(|error| unresolved.is_none() || !error.is_retryable()).or(unresolved);
                    return Err(why.unwrap_or_else(|| nameless(shown, &"it has no address")));
                }
            }
        }
    }

    /// If another host serves, this warning is the only report of the unresolved name.
    fn warn_once(&self, server: &HostPort, error: &io::Error) {
        if self.nameless.lock().insert(server.clone()) {
            tracing::warn!(%server, cause = %error, "the name of a server cannot be resolved");
        }
    }

    /// Forgets the last address of `server`: a wrong server answered there.
    pub(crate) fn forget(&self, server: &HostPort) {
        self.last.lock().remove(server);
    }

    /// Dials one of `servers` after another, until one accepts. The remaining time is divided equally among the remaining servers; `silent` is
    /// the error of a server that gave no answer in its share. A permanent error is reported rather than that of a server that is away.
    pub(crate) async fn dial_one_of<'a, S, T, F: Future<Output = Result<T>>>(
        &self,
        servers: &'a [S],
        (clock, patience): (&dyn Clock, Duration),
        silent: impl Fn(&'a S, Duration) -> Error,
        greet: impl Fn(&'a S) -> F,
    ) -> Result<T> {
        let (last, deadline) = (self.last_server.load(Ordering::Relaxed), clock.now().after(patience));
        let mut worst = Error::new(ErrorKind::Internal, "connect", "no server is named").retryable();
        for next in 0..servers.len() {
            let index = (last + next) % servers.len();
            let share = deadline.since(clock.now()) / u32::try_from(servers.len() - next).unwrap_or(u32::MAX);
            let greeted = outcome_before(clock, clock.now().after(share), greet(&servers[index])).await;
            match greeted.unwrap_or_else(|| Err(silent(&servers[index], share))) {
                Ok(greeted) => {
                    self.last_server.store(index, Ordering::Relaxed);
                    return Ok(greeted);
                }
                Err(error) if next == 0 || worst.is_retryable() => worst = error,
                Err(_) => {}
            }
        }
        Err(worst)
    }
}

/// The error of a server to which there is no connection.
pub(crate) fn unreachable(shown: &dyn Display, error: &io::Error) -> Error {
    let denied = error.kind() == io::ErrorKind::PermissionDenied;
    let (kind, message) = match denied {
        true => (ErrorKind::Denied, "the socket of the server may not be used"),
        false => (ErrorKind::Unreachable, "the server cannot be reached"),
    };
    let error = Error::new(kind, "connect", message).with("server", shown).with("cause", error);
    if denied { error } else { error.retryable() }
}

fn nameless(shown: &dyn Display, cause: &dyn Display) -> Error {
    Error::new(ErrorKind::Unreachable, "connect", "the name of the server cannot be resolved")
        .with("server", shown)
        .with("cause", cause)
        .retryable()
}

#[cfg(test)]
mod tests {
    use std::future::{pending, ready};

    use futures_util::FutureExt;
    use futures_util::future::{Either, join, select};
    use tokio::net::TcpListener;

    use super::*;
    use crate::stores::memory::VirtualClock;

    impl Addresses {
        /// Whether the client knows an address of `server` that worked.
        pub(crate) fn has_worked(&self, server: &HostPort) -> bool {
            self.last.lock().contains_key(server)
        }
    }

    /// Two addresses of one name: the first is silent, the second sends a byte.
    struct Servers {
        silent: TcpListener,
        addresses: [SocketAddr; 2],
        name: HostPort,
        known: Addresses,
        clock: VirtualClock,
    }

    impl Servers {
        async fn start() -> Self {
            let listen = async || TcpListener::bind("127.0.0.1:0").await.unwrap();
            let (silent, well) = (listen().await, listen().await);
            let addresses = [&silent, &well].map(|listener| listener.local_addr().unwrap());
            tokio::spawn(async move {
                loop {
                    let (stream, _) = well.accept().await.unwrap();
                    stream.writable().await.unwrap();
                    stream.try_write(b"!").unwrap();
                }
            });
            let name = HostPort { host: "name".to_owned(), port: 1 };
            Self { silent, addresses, name, known: Addresses::default(), clock: VirtualClock::new() }
        }

        async fn dial(&self, question: impl Future<Output = io::Result<Vec<SocketAddr>>>) -> Result<SocketAddr> {
            let greet = async |mut stream: TcpStream| {
                stream.read_u8().await.map_err(|error| unreachable(&"name", &error))?;
                stream.peer_addr().map_err(|error| unreachable(&"name", &error))
            };
            self.known.race(&self.name, &"name", &self.clock, question, greet).await
        }
    }

    fn refused() -> io::Error {
        io::ErrorKind::NotFound.into()
    }

    /// Runs every task that is ready, and advances the clock by one stagger.
    async fn advance(servers: &Servers) {
        for _ in 0..100 {
            tokio::task::yield_now().await;
        }
        servers.clock.advance(STAGGER);
    }

    #[tokio::test]
    async fn a_silent_address_keeps_no_client_from_the_next_one() {
        let servers = Servers::start().await;
        let [_, well] = servers.addresses;
        let (found, ()) = join(servers.dial(ready(Ok(servers.addresses.to_vec()))), advance(&servers)).await;
        assert_eq!(found.unwrap(), well);
        servers.silent.accept().await.unwrap();
        // The address that worked is first from now on: the clock stands still, so that the client never dials the silent address.
        assert_eq!(servers.dial(ready(Ok(servers.addresses.to_vec()))).await.unwrap(), well);
        assert!(servers.silent.accept().now_or_never().is_none());
        // After `forget`, the client dials the silent address again.
        servers.known.forget(&servers.name);
        let (found, ()) = join(servers.dial(ready(Ok(servers.addresses.to_vec()))), advance(&servers)).await;
        assert_eq!(found.unwrap(), well);
        servers.silent.accept().await.unwrap();
    }

    #[tokio::test]
    async fn where_the_name_server_fails_or_is_silent_the_address_that_worked_last_is_dialled() {
        let servers = Servers::start().await;
        let [silent, well] = servers.addresses;
        let error = servers.dial(ready(Err(refused()))).await.unwrap_err();
        assert!(error.is_retryable() && error.to_string().contains("cannot be resolved"), "{error}");
        assert_eq!(servers.dial(ready(Ok(vec![well]))).await.unwrap(), well);
        assert!(!servers.known.is_unresolved.load(Ordering::Relaxed));
        assert_eq!(servers.dial(ready(Err(refused()))).await.unwrap(), well);
        let (found, ()) = join(servers.dial(pending()), advance(&servers)).await;
        assert_eq!(found.unwrap(), well);
        assert!(servers.known.is_unresolved.load(Ordering::Relaxed));
        // The client does not dial an address that moved: another server may answer there.
        let moved = pin!(servers.dial(ready(Ok(vec![silent]))));
        let later = pin!(async {
            advance(&servers).await;
            advance(&servers).await;
        });
        assert!(matches!(select(moved, later).await, Either::Right(_)));
    }

    #[tokio::test]
    async fn addresses_that_all_refuse_are_all_tried_and_named() {
        let servers = Servers::start().await;
        let free = async || TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap();
        let (one, other) = (free().await, free().await);
        let error = servers.dial(ready(Ok(vec![one, other]))).await.unwrap_err();
        assert!(error.is_retryable() && error.to_string().contains("cannot be reached"), "{error}");
        assert_eq!(servers.dial(ready(Ok(vec![one, servers.addresses[1]]))).await.unwrap(), servers.addresses[1]);
        let error = servers.dial(ready(Ok(Vec::new()))).await.unwrap_err();
        assert!(error.to_string().contains("no address"), "{error}");
    }
}
