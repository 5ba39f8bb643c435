//! Servers dialled side by side: each name resolved, each address tried, the first welcome taken.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use futures_util::StreamExt as _;
use futures_util::stream::FuturesUnordered;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::runtime::Handle;
use tokio::time::{Instant, sleep, sleep_until, timeout};

use crate::connect_string::Server;
use crate::dial::{Established, Times, too_long};
use crate::error::ErrorKind;
use crate::handshake::{Denial, Hello, Refusal, Welcome, hung_up, shake};
use crate::net::{BoxFuture, Stream};
use crate::proto::request;
use crate::shared::Shared;

/// The next event of the race.
pub(crate) enum Found {
    /// This server is asked now.
    Started(String),
    /// This server gave no session; `again` is its number among the servers.
    Failed { server: String, again: usize, refusal: Refusal },
    /// A session.
    Session(Established),
    /// The session to be continued has expired, as a server said.
    Expired,
}

/// The result of one step, and the step that follows it.
type Step = BoxFuture<'static, (News, Option<Next>)>;

/// A type alias may not contain itself.
struct Next(Step);

enum News {
    /// The addresses of a server, or why it has none.
    Resolved(usize, Result<Vec<SocketAddr>, String>),
    /// The outcome of the attempt at an address of a server.
    Tried(Dialled, Result<(Box<dyn Stream>, Welcome), Denial>),
    Nothing,
}

/// An address of a server, by its number among the servers.
type Dialled = (usize, SocketAddr);

/// The race of one dialling. Its steps run in the task that awaits [`Race::next`], so no server is greeted once another one has won.
pub(crate) struct Race {
    shared: Arc<Shared>,
    hello: Hello,
    times: Times,
    /// The shown name of a server.
    avoid: Option<String>,
    /// The shown names of servers to dial last, once all other servers have failed or were silent for [`Times::last`].
    last: Vec<String>,
    /// When the servers of `last` may be dialled, even if other servers have not answered yet.
    last_start: Instant,
    waiting: Vec<Dialled>,
    running: Vec<Dialled>,
    /// Which servers are being resolved, or will be.
    unresolved: Vec<bool>,
    /// Whether the addresses of all servers were known: then no address waits for the resolution of the other names.
    is_complete: bool,
    next_start: Instant,
    greeted: Arc<Greeted>,
    /// The runtime that finishes the steps of a race that ended.
    runtime: Handle,
    steps: FuturesUnordered<Step>,
}

/// The state that the attempts of one race share.
#[derive(Default)]
struct Greeted {
    servers: AtomicUsize,
    /// The race has ended: the remaining attempts greet no server.
    is_over: AtomicBool,
}

impl Race {
    pub(crate) fn new(
        shared: &Arc<Shared>,
        hello: Hello,
        times: Times,
        avoid: Option<&str>,
        last: Vec<String>,
    ) -> Self {
        let mut race = Self {
            shared: Arc::clone(shared),
            hello,
            times,
            avoid: avoid.map(str::to_owned),
            last,
            last_start: Instant::now() + times.last,
            waiting: Vec::new(),
            running: Vec::new(),
            unresolved: vec![false; shared.config.servers.len()],
            is_complete: false,
            next_start: Instant::now() + times.stagger,
            greeted: Arc::default(),
            runtime: Handle::current(),
            steps: FuturesUnordered::new(),
        };
        (0..race.size()).for_each(|server| race.resolve(server, Duration::ZERO));
        race
    }

    /// How many servers there are.
    pub(crate) fn size(&self) -> usize {
        self.shared.config.servers.len()
    }

    /// Resolves a server after `pause`, and then dials its addresses.
    pub(crate) fn resolve(&mut self, number: usize, pause: Duration) {
        if !std::mem::replace(&mut self.unresolved[number], true) {
            self.steps.push(Box::pin(resolve(Arc::clone(&self.shared), number, self.times, pause)));
        }
    }

    /// Waits for the next event.
    pub(crate) async fn next(&mut self) -> Found {
        loop {
            let start_at = self.start_at();
            tokio::select! {
                biased;
                Some((news, next)) = self.steps.next() => {
                    self.steps.extend(next.map(|Next(step)| step));
                    if let Some(found) = self.take_news(news) {
                        return found;
                    }
                }
                () = sleep_until(start_at), if !self.waiting.is_empty() => return Found::Started(self.start()),
            }
        }
    }

    fn take_news(&mut self, news: News) -> Option<Found> {
        match news {
            News::Resolved(number, resolved) => {
                self.unresolved[number] = false;
                self.is_complete |= !self.unresolved.contains(&true);
                match resolved {
                    Ok(addresses) => self.take(number, &addresses),
                    Err(why) => {
                        let refusal = Refusal { kind: ErrorKind::Unreachable, why, code: None };
                        return Some(Found::Failed { server: self.server(number).to_string(), again: number, refusal });
                    }
                }
                None
            }
            News::Tried(dialled, Ok((stream, welcome))) => {
                let is_doubted = self.hello.ticket.id != 0 && self.greeted.servers.load(Ordering::SeqCst) > 1;
                Some(Found::Session(Established { stream, server: self.shown(dialled), welcome, is_doubted }))
            }
            News::Tried(_, Err(Denial::Expired)) => Some(Found::Expired),
            News::Tried(dialled, Err(Denial::NotHere(refusal))) => {
                self.running.retain(|other| *other != dialled);
                self.next_start = Instant::now();
                let server = self.shown(dialled);
                Some(Found::Failed { server, again: dialled.0, refusal })
            }
            News::Nothing => None,
        }
    }

    fn server(&self, number: usize) -> &Server {
        &self.shared.config.servers[number]
    }

    fn shown(&self, (number, address): Dialled) -> String {
        let (server, address) = (self.server(number).to_string(), address.to_string());
        if server == address { server } else { format!("{server} ({address})") }
    }

    fn take(&mut self, number: usize, addresses: &[SocketAddr]) {
        for address in addresses {
            let dialled = (number, *address);
            if !self.waiting.contains(&dialled) && !self.running.contains(&dialled) {
                self.waiting.push(dialled);
            }
        }
        // Names that are resolved first are not to be dialled first for that.
        if self.running.is_empty() && !self.unresolved.contains(&true) {
            self.next_start = Instant::now();
        }
    }

    /// Dials a waiting server: the one to avoid only if there is no other, and the last ones after that. Returns its name.
    fn start(&mut self) -> String {
        self.next_start = Instant::now() + self.times.stagger;
        fastrand::shuffle(&mut self.waiting);
        let dislike = |index: &usize| (self.is_last(self.waiting[*index]), self.is_avoided(self.waiting[*index]));
        let liked = (0..self.waiting.len()).min_by_key(dislike);
        let dialled = self.waiting.swap_remove(liked.unwrap_or(0));
        self.running.push(dialled);
        let attempt = Attempt {
            shared: Arc::clone(&self.shared),
            hello: self.hello.clone(),
            dialled,
            greeted: Arc::clone(&self.greeted),
        };
        self.steps.push(Box::pin(attempt.run(self.times.attempt)));
        self.shown(dialled)
    }

    /// When the next waiting server is dialled. If only servers of `last` wait, they wait until no other server may
    /// answer, or until `last_start`.
    fn start_at(&self) -> Instant {
        let others_failed = self.running.is_empty() && self.is_complete;
        if others_failed || !self.waiting.iter().all(|dialled| self.is_last(*dialled)) {
            return self.next_start;
        }
        self.next_start.max(self.last_start)
    }

    fn is_avoided(&self, dialled: Dialled) -> bool {
        self.avoid.iter().any(|avoid| *avoid == self.shown(dialled))
    }

    fn is_last(&self, dialled: Dialled) -> bool {
        self.last.iter().any(|last| *last == self.shown(dialled))
    }
}

impl Drop for Race {
    /// Attempts at a new session are finished in the background, which closes the sessions that servers still give. Attempts to continue a
    /// session end here: there is one session, and nothing to close. The drop may run on any thread.
    fn drop(&mut self) {
        self.greeted.is_over.store(true, Ordering::SeqCst);
        let mut steps = std::mem::take(&mut self.steps);
        if self.hello.ticket.id != 0 || steps.is_empty() {
            return;
        }
        let limit = self.times.attempt;
        self.runtime.spawn(async move {
            while let Some((news, next)) = steps.next().await {
                steps.extend(next.map(|Next(step)| step));
                if let News::Tried(_, Ok((stream, _))) = news {
                    steps.push(Box::pin(dismiss(stream, limit)));
                }
            }
        });
    }
}

/// Resolves the name of a server. A name server that is slow or fails delays no address that was known before.
async fn resolve(shared: Arc<Shared>, number: usize, times: Times, pause: Duration) -> (News, Option<Next>) {
    sleep(pause).await;
    let known = shared.config.addresses.of(&shared.config.servers[number]);
    let mut asking = Box::pin(ask(shared, number, times.attempt));
    let resolved = match timeout(times.stagger, &mut asking).await {
        Ok(Err(_)) if !known.is_empty() => Ok(known),
        Ok(resolved) => resolved,
        Err(_) if known.is_empty() => asking.await,
        Err(_) => {
            let late = async move {
                let late = asking.await.map_or(News::Nothing, |addresses| News::Resolved(number, Ok(addresses)));
                (late, None)
            };
            return (News::Resolved(number, Ok(known)), Some(Next(Box::pin(late))));
        }
    };
    (News::Resolved(number, resolved), None)
}

async fn ask(shared: Arc<Shared>, number: usize, within: Duration) -> Result<Vec<SocketAddr>, String> {
    let (config, server) = (&shared.config, &shared.config.servers[number]);
    let resolved = timeout(within, config.net.resolve(&server.host, server.port)).await;
    let why = match resolved {
        Ok(Ok(addresses)) if !addresses.is_empty() => {
            config.addresses.remember(server, &addresses);
            return Ok(addresses);
        }
        Ok(Ok(_)) => "has no address".to_owned(),
        Ok(Err(error)) => format!("cannot be resolved: {error}"),
        Err(_) => too_long("be resolved", within),
    };
    Err(why)
}

/// An address that is dialled.
struct Attempt {
    shared: Arc<Shared>,
    hello: Hello,
    dialled: Dialled,
    greeted: Arc<Greeted>,
}

impl Attempt {
    async fn run(self, limit: Duration) -> (News, Option<Next>) {
        let (dialled, is_for_new, session_timeout) = (self.dialled, self.hello.ticket.id == 0, self.hello.timeout);
        let mut reaching = Box::pin(self.reach());
        if let Ok(tried) = timeout(limit, &mut reaching).await {
            return (News::Tried(dialled, tried), None);
        }
        // A slow server may still give the session, which would live for its timeout without a client.
        let late: Step = Box::pin(async move {
            match timeout(session_timeout, reaching).await {
                Ok(Ok((stream, _))) => dismiss(stream, limit).await,
                _ => (News::Nothing, None),
            }
        });
        let refused = Denial::unreachable(too_long("answer", limit));
        (News::Tried(dialled, Err(refused)), is_for_new.then_some(Next(late)))
    }

    async fn reach(self) -> Result<(Box<dyn Stream>, Welcome), Denial> {
        let config = &self.shared.config;
        let stream = config.net.connect(self.dialled.1).await;
        // A server that hangs up at once may be noticed here already.
        let why = |error: io::Error| match error.kind() {
            io::ErrorKind::BrokenPipe | io::ErrorKind::ConnectionReset => hung_up(&error),
            _ => format!("cannot be reached: {error}"),
        };
        let mut stream = stream.map_err(|error| Denial::unreachable(why(error)))?;
        if let Some(tls) = &config.tls {
            let host = &config.servers[self.dialled.0].host;
            let wrapped = tls.wrap(stream, host).await;
            stream = wrapped.map_err(|error| Denial::unreachable(error.message()))?;
        }
        if self.greeted.is_over.load(Ordering::SeqCst) {
            return Err(Denial::unreachable("was not needed any more"));
        }
        self.greeted.servers.fetch_add(1, Ordering::SeqCst);
        let welcome = shake(&mut *stream, &self.hello, &*config.clock).await?;
        Ok((stream, welcome))
    }
}

/// Closes a session that no client needs, instead of leaving it to its timeout.
async fn dismiss(mut stream: Box<dyn Stream>, within: Duration) -> (News, Option<Next>) {
    let closing = async {
        stream.write_all(request::close().bytes()).await?;
        stream.flush().await?;
        let mut rest = [0; 256];
        while stream.read(&mut rest).await? > 0 {}
        io::Result::Ok(())
    };
    let _ = timeout(within, closing).await;
    (News::Nothing, None)
}
