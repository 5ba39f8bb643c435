//! `fencelock serve`: the store as a page, as metrics and as JSON over HTTP.
//!
//! A single task looks at the store ([`Watch`]); every request is answered from its last look.

mod admission;
mod answers;
mod connections;
mod metrics;

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use clap::Args;
use fencelock::NamePattern;
use tokio::net::TcpListener;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::{Semaphore, watch};

use self::admission::Admission;
use self::answers::App;
use self::connections::Connections;
use super::StoreArguments;
use super::watch::classes::Classes;
use super::watch::look::{Seen, Watch};
use crate::arguments;
use crate::output::{Failure, Outcome, code};
use crate::settings::Chosen;
use crate::show::print;
use crate::trusted;

/// How long requests under way may take at the end.
const LAST_REQUESTS: Duration = Duration::from_secs(2);

/// The fewest characters of a token: a shorter one can be guessed.
const SHORTEST_TOKEN: usize = 16;

/// Serve a page, metrics and JSON about the locks of the store.
///
/// The page at / shows the locks, each queue, a timeline of the last minutes, and whether the store answers. /metrics has the figures of the
/// store in Prometheus' format. /healthz answers 200 while the store can be read, else 503.
/// /api/locks?prefix=&contains=&class=&urgent=&skip=&limit= lists locks (urgent=true: the most waited for first), /api/locks/NAME shows a
/// queue as `show --json` does (the first 100; slashes in NAME may be written %2F), /api/events streams what the page shows, and POST
/// /api/locks/NAME/break with {"request": "…", "reason": "…"} ends a grant, where --allow-break is given.
///
/// The store is looked at once per --every, however many look at the page. Up to 10000 locks are shown. With routes in the configuration,
/// all its stores are served; ?store=URL, as the list gives it, chooses among locks of one name.
///
/// Any user of this host can open 127.0.0.1, and sees the names of locks, their holders and purposes. Another address and
/// --allow-break need --token-file. There is no TLS: put a proxy before an address that others reach.
#[derive(Debug, Args)]
pub(crate) struct Serve {
    /// The store, in the place of --store.
    #[arg(value_name = "URL", value_parser = arguments::store, conflicts_with = "store")]
    url: Option<String>,
    /// Where to listen: IP:PORT; port 0 takes any free one.
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:7433", value_parser = arguments::listen)]
    listen: SocketAddr,
    /// A file with a token, which requests carry as `Authorization: Bearer TOKEN`, and which the page asks for.
    #[arg(long, value_name = "FILE")]
    token_file: Option<PathBuf>,
    /// Another name that this server is reached by, as behind a proxy, on any port. IP addresses and localhost need not be named.
    #[arg(long = "host", value_name = "NAME")]
    hosts: Vec<String>,
    /// Let the page break locks. Needs --token-file.
    #[arg(long)]
    allow_break: bool,
    /// Only names that start with this.
    #[arg(long, default_value = "", hide_default_value = true)]
    prefix: String,
    /// Names that are counted together, as orders/*: * is one part of a name between slashes, ** at the end one or more. May be given
    /// again. The first that matches counts, and all other names are the class `other`.
    #[arg(long = "class", value_name = "PATTERN", value_parser = arguments::class)]
    classes: Vec<NamePattern>,
    /// How long to rest between two looks at the store.
    #[arg(long, value_name = "DURATION", default_value = "1s", value_parser = arguments::duration)]
    every: Duration,
}

impl Serve {
    pub(super) async fn run(&self, store: &StoreArguments) -> Outcome<u8> {
        let token = self.token_file.as_deref().map(token_in).transpose()?;
        self.refuse_what_anybody_could_reach(token.is_some())?;
        let stores = store.or_named(self.url.as_ref()).choose_every()?;
        let nothing = Seen::nothing(&stores).await?;
        let listener = TcpListener::bind(self.listen).await.map_err(|error| self.cannot_listen(&error))?;
        let address = listener.local_addr().map_err(|error| self.cannot_listen(&error))?;
        let (sender, seen) = watch::channel(nothing);
        let app = App {
            classes: Classes::new(&self.classes),
            allow_break: self.allow_break,
            admission: Admission::new(&self.hosts, token),
            seen: seen.clone(),
            viewers: Arc::new(Semaphore::new(Semaphore::MAX_PERMITS)),
        };
        let shown: Vec<_> = stores.iter().map(Chosen::shown).collect();
        print(&format!("serving {} on http://{address}/\n", shown.join(", ")))?;
        let looks = Watch::all(stores, (self.prefix.clone(), app.classes.clone(), self.every), sender);
        let served = serve(app, listener, looks).await;
        let seen = seen.borrow().clone();
        Seen::close(&seen, served.is_err()).await;
        served.map(|()| 0)
    }

    fn refuse_what_anybody_could_reach(&self, has_token: bool) -> Outcome<()> {
        let why = match (has_token, self.allow_break, self.listen.ip().is_loopback()) {
            (true, ..) | (_, false, true) => return Ok(()),
            (_, true, _) => "--allow-break needs --token-file: else any user of this host could break locks".to_owned(),
            (_, _, false) => format!("others can reach {}: give --token-file, or listen on 127.0.0.1", self.listen),
        };
        Err(Failure::new(code::USAGE, why))
    }

    fn cannot_listen(&self, error: &std::io::Error) -> Failure {
        let help = match error.kind() {
            std::io::ErrorKind::AddrInUse => "; another program listens there: choose another port with --listen",
            _ => "",
        };
        Failure::new(code::OS, format!("cannot listen on {}: {error}{help}", self.listen))
    }
}

/// Answers requests until a signal asks for the end, while `looks` looks at the store. Fails when that ends by itself.
async fn serve(app: App, listener: TcpListener, looks: impl Future<Output = ()> + Send + 'static) -> Outcome<()> {
    let no_signals = |error| Failure::os("cannot wait for signals", &error);
    let mut interrupt = signal(SignalKind::interrupt()).map_err(no_signals)?;
    let mut terminate = signal(SignalKind::terminate()).map_err(no_signals)?;
    let looking = tokio::spawn(looks);
    let ender = looking.abort_handle();
    let (ending, ended) = tokio::sync::oneshot::channel();
    let is_blind = Arc::new(AtomicBool::new(false));
    let blind = Arc::clone(&is_blind);
    let asked = async move {
        tokio::select! {
            _ = interrupt.recv() => {}
            _ = terminate.recv() => {}
            _ = looking => blind.store(true, Ordering::Relaxed),
        }
        // The streams of events end with the looks.
        ender.abort();
        let _ = ending.send(());
    };
    let server = axum::serve(Connections::new(listener), answers::router(app)).with_graceful_shutdown(asked);
    tokio::select! {
        served = server => served.map_err(|error| Failure::os("cannot serve", &error))?,
        () = async { let _ = ended.await; tokio::time::sleep(LAST_REQUESTS).await } => {}
    }
    if is_blind.load(Ordering::Relaxed) {
        return Err(Failure::new(code::SOFTWARE, "nothing looks at the store any more: this is a bug of fencelock"));
    }
    Ok(())
}

/// The token in the file at `path`.
fn token_in(path: &Path) -> Outcome<String> {
    let wrong = |what: &str| Failure::new(code::CONFIG, format!("{}: {what}", path.display()));
    let text = trusted::read(path, nix::unistd::geteuid().as_raw())?.ok_or_else(|| wrong("there is no such file"))?;
    trusted::refuse_shared(path)?;
    let token = text.trim();
    if token.len() < SHORTEST_TOKEN || !token.bytes().all(|byte| byte.is_ascii_graphic()) {
        let allowed = "is no token: write 16 or more ASCII characters without spaces, as `openssl rand -hex 32` makes";
        return Err(wrong(allowed));
    }
    Ok(token.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn serving_ends_with_an_error_when_the_watch_of_the_store_ends() {
        let (_sender, seen) = watch::channel(Vec::new());
        let app = App {
            classes: Classes::new(&[]),
            allow_break: false,
            admission: Admission::new(&[], None),
            seen,
            viewers: Arc::new(Semaphore::new(Semaphore::MAX_PERMITS)),
        };
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let ended = serve(app, listener, async { panic!("planted") }).await;
        assert_eq!(ended.unwrap_err().code, code::SOFTWARE);
    }
}
