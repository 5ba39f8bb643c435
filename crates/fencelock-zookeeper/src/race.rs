//! Servers dialled side by side: each name resolved, each address tried, the first welcome taken.

use std::io;
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::runtime::Handle;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, sleep_until, timeout};

use crate::connect_string::Server;
use crate::dial::{Established, Times, too_long};
use crate::error::ErrorKind;
use crate::handshake::{Denial, Hello, Refusal, Welcome, hung_up, shake};
use crate::net::Stream;
use crate::proto::request;
use crate::shared::Shared;

/// What came next.
pub(crate) enum Found {
    /// This server is asked now.
    Started(String),
    /// This one gave no session; `again` is what it is called among the servers.
    Failed { server: String, again: usize, refusal: Refusal },
    /// A session.
    Session(Established),
    /// The session to be continued is over, as a server said.
    Expired,
}

/// What tasks tell.
enum News {
    /// The addresses of a server, or why it has none.
    Resolved(usize, Result<Vec<SocketAddr>, String>),
    /// What became of the attempt at an address of a server.
    Tried(Dialled, Result<Established, Denial>),
}

/// An address of a server, by its number among the servers.
type Dialled = (usize, SocketAddr);

pub(crate) struct Race {
    shared: Arc<Shared>,
    hello: Hello,
    times: Times,
    /// What is shown of a server.
    avoid: Option<String>,
    /// What is shown of those that are asked after all others, and not before these have failed or were silent for [`Times::last`].
    last: Vec<String>,
    /// When those may be asked whatever the others do.
    last_start: Instant,
    waiting: Vec<Dialled>,
    running: Vec<Dialled>,
    /// Which servers are being resolved, or will be.
    unresolved: Vec<bool>,
    /// Whether the addresses of all servers were known: who waits now does not wait because the others are still being resolved.
    is_complete: bool,
    next_start: Instant,
    tell: UnboundedSender<News>,
    news: UnboundedReceiver<News>,
    /// Whether a server has welcomed us; later welcomes are one too many.
    is_won: Arc<AtomicBool>,
    /// How many servers were sent the hello.
    asked: Arc<AtomicUsize>,
    /// What everything here runs on.
    runtime: Handle,
    resolving: JoinSet<()>,
    attempts: JoinSet<()>,
}

impl Race {
    pub(crate) fn new(
        shared: &Arc<Shared>,
        hello: Hello,
        times: Times,
        avoid: Option<&str>,
        last: Vec<String>,
    ) -> Self {
        let (tell, news) = unbounded_channel();
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
            tell,
            news,
            is_won: Arc::default(),
            asked: Arc::default(),
            runtime: Handle::current(),
            resolving: JoinSet::new(),
            attempts: JoinSet::new(),
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
        while self.resolving.try_join_next().is_some() {}
        if std::mem::replace(&mut self.unresolved[number], true) {
            return;
        }
        let (shared, tell, times) = (Arc::clone(&self.shared), self.tell.clone(), self.times);
        self.resolving.spawn(async move {
            sleep(pause).await;
            let tell = |resolved| drop(tell.send(News::Resolved(number, resolved)));
            resolve(&shared, &shared.config.servers[number], times, tell).await;
        });
    }

    /// Waits for what comes next.
    pub(crate) async fn next(&mut self) -> Found {
        loop {
            let start_at = self.start_at();
            tokio::select! {
                biased;
                Some(news) = self.news.recv() => {
                    if let Some(found) = self.hear(news) {
                        return found;
                    }
                }
                () = sleep_until(start_at), if !self.waiting.is_empty() => return Found::Started(self.start()),
            }
        }
    }

    fn hear(&mut self, news: News) -> Option<Found> {
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
            News::Tried(_, Ok(mut established)) => {
                established.is_doubted = self.hello.ticket.id != 0 && self.asked.load(Ordering::SeqCst) > 1;
                Some(Found::Session(established))
            }
            News::Tried(_, Err(Denial::Expired)) => Some(Found::Expired),
            News::Tried(dialled, Err(Denial::NotHere(refusal))) => {
                self.running.retain(|other| *other != dialled);
                self.next_start = Instant::now();
                let server = self.shown(dialled);
                Some(Found::Failed { server, again: dialled.0, refusal })
            }
        }
    }

    fn server(&self, number: usize) -> &Server {
        &self.shared.config.servers[number]
    }

    fn shown(&self, (number, address): Dialled) -> String {
        shown(self.server(number), address)
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

    /// Dials one of those that wait, the one to avoid only if there is no other, and those to be asked last after that one. What it is called.
    fn start(&mut self) -> String {
        while self.attempts.try_join_next().is_some() {}
        self.next_start = Instant::now() + self.times.stagger;
        fastrand::shuffle(&mut self.waiting);
        let dislike = |index: &usize| (self.is_last(self.waiting[*index]), self.is_avoided(self.waiting[*index]));
        let liked = (0..self.waiting.len()).min_by_key(dislike);
        let dialled = self.waiting.swap_remove(liked.unwrap_or(0));
        self.running.push(dialled);
        let shown = self.shown(dialled);
        let attempt = Attempt {
            shared: Arc::clone(&self.shared),
            hello: self.hello.clone(),
            dialled,
            shown: shown.clone(),
            limit: self.times.attempt,
            is_won: Arc::clone(&self.is_won),
            asked: Arc::clone(&self.asked),
            tell: self.tell.clone(),
        };
        self.attempts.spawn(attempt.run());
        shown
    }

    /// When the next one of those that wait is dialled. Where only those are left that are to be asked last, not while another one may answer.
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
    /// Attempts at a new session go on in the background, to close what they are still given. Those to continue a session are
    /// ended: there is one session, and nothing to close. So are all when their runtime goes; the drop itself may be anywhere.
    fn drop(&mut self) {
        if self.hello.ticket.id != 0 {
            return;
        }
        self.is_won.store(true, Ordering::SeqCst);
        self.news.close();
        while let Ok(news) = self.news.try_recv() {
            if let News::Tried(_, Ok(established)) = news {
                self.attempts.spawn_on(dismiss(established.stream, self.times.attempt), &self.runtime);
            }
        }
        self.attempts.detach_all();
    }
}

/// Tells the addresses of a server: those that were known before as well when a name server is slow, or says none.
async fn resolve(shared: &Shared, server: &Server, times: Times, tell: impl Fn(Result<Vec<SocketAddr>, String>)) {
    let known = shared.config.addresses.of(server);
    let mut asking = pin!(ask(shared, server, times.attempt));
    let quick = timeout(times.stagger, &mut asking).await;
    let is_slow = quick.is_err();
    if known.is_empty() || matches!(quick, Ok(Ok(_))) {
        return tell(if let Ok(resolved) = quick { resolved } else { asking.await });
    }
    tell(Ok(known));
    if is_slow && let Ok(addresses) = asking.await {
        tell(Ok(addresses));
    }
}

async fn ask(shared: &Shared, server: &Server, within: Duration) -> Result<Vec<SocketAddr>, String> {
    let config = &shared.config;
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

fn shown(server: &Server, address: SocketAddr) -> String {
    let (server, address) = (server.to_string(), address.to_string());
    if server == address { server } else { format!("{server} ({address})") }
}

/// One address that is dialled.
struct Attempt {
    shared: Arc<Shared>,
    hello: Hello,
    dialled: Dialled,
    shown: String,
    limit: Duration,
    is_won: Arc<AtomicBool>,
    asked: Arc<AtomicUsize>,
    tell: UnboundedSender<News>,
}

impl Attempt {
    async fn run(self) {
        let mut reaching = pin!(self.reach());
        match timeout(self.limit, &mut reaching).await {
            Ok(Ok((stream, welcome))) => self.welcomed(stream, welcome).await,
            Ok(Err(denial)) => drop(self.tell(Err(denial))),
            Err(_) => {
                drop(self.tell(Err(Denial::unreachable(too_long("answer", self.limit)))));
                // The server may be slow and the session on its way: it would live for its timeout, with nobody to know of it.
                if self.is_for_new()
                    && let Ok(Ok((stream, _))) = timeout(self.hello.timeout, reaching).await
                {
                    dismiss(stream, self.limit).await;
                }
            }
        }
    }

    fn is_for_new(&self) -> bool {
        self.hello.ticket.id == 0
    }

    /// Hands the session over, or closes a new one that nobody needs.
    async fn welcomed(&self, stream: Box<dyn Stream>, welcome: Welcome) {
        let too_many = if self.is_won.swap(true, Ordering::SeqCst) {
            Some(stream)
        } else {
            let server = self.shown.clone();
            self.tell(Ok(Established { stream, server, welcome, is_doubted: false }))
        };
        if let Some(stream) = too_many.filter(|_| self.is_for_new()) {
            dismiss(stream, self.limit).await;
        }
    }

    /// Returns the connection with the session if nobody hears of it any more.
    fn tell(&self, tried: Result<Established, Denial>) -> Option<Box<dyn Stream>> {
        match self.tell.send(News::Tried(self.dialled, tried)).err()?.0 {
            News::Tried(_, Ok(established)) => Some(established.stream),
            _ => None,
        }
    }

    async fn reach(&self) -> Result<(Box<dyn Stream>, Welcome), Denial> {
        let config = &self.shared.config;
        let stream = config.net.connect(self.dialled.1).await;
        // One that hangs up at once may be noticed here already.
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
        // Counted before the look: the hello that wins meanwhile sees the count, or this hello is not sent.
        self.asked.fetch_add(1, Ordering::SeqCst);
        if self.is_won.load(Ordering::SeqCst) {
            return Err(Denial::unreachable("was not needed any more"));
        }
        let welcome = shake(&mut *stream, &self.hello, &*config.clock).await?;
        Ok((stream, welcome))
    }
}

/// Closes a session that nobody needs, instead of leaving it to its timeout.
async fn dismiss(mut stream: Box<dyn Stream>, within: Duration) {
    let closing = async {
        stream.write_all(request::close().bytes()).await?;
        stream.flush().await?;
        let mut rest = [0; 256];
        while stream.read(&mut rest).await? > 0 {}
        std::io::Result::Ok(())
    };
    let _ = timeout(within, closing).await;
}
