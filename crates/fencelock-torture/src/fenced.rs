//! Writers that are stopped: some processes write to a resource that checks tokens, the other processes only check their guard before a write.
//!
//! Each writer takes the lock, claims the resource (or does not), reads a list of tokens, looks at its guard, dwells, and writes the list with
//! its own token added. A late writer's list lacks the tokens that were added meanwhile: the lost tokens are counted.

use std::collections::HashSet;
use std::fmt;
use std::fs::{self, File};
use std::io::{self, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::process::{Command, ExitCode, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::sleep;
use std::time::Duration;

use axum::Router;
use axum::routing::get;
use fencelock::fencing::{FenceLayer, FencedFile, REDIS_FENCE, TOKEN_HEADER};
use fencelock::{Client, FencingToken, Guard};
use fencelock_testbed::process::{Process, bound};
use fencelock_testbed::redis::{Hands, Reply, Server, Settings};
use fencelock_testbed::zookeeper::{self, Ensemble};
use fencelock_testbed::{PATIENCE, wait_for};
use fencelock_zookeeper as zk;

use crate::writers::{Fault, on_threads};

const TTL: Duration = Duration::from_millis(500);
/// How long a writer is stopped.
const STOP: Duration = Duration::from_millis(1200);
/// How long a writer dwells between the look at its guard and its write.
const DWELL: Duration = Duration::from_millis(30);
const WRITERS: usize = 5;

/// The written resource.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// A file, with [`FencedFile`].
    File,
    /// A key of Redis, with [`REDIS_FENCE`].
    Redis,
    /// The memory of a service over HTTP, with [`FenceLayer`].
    Http,
    /// A node of ZooKeeper, with a check of the lock's own node.
    ZooKeeper,
}

/// The outcome of a drill.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Outcome {
    /// How often a writer was stopped.
    pub stops: usize,
    /// Writes that were acknowledged.
    pub writes: usize,
    /// How many of these writes a late writer overwrote unseen.
    pub lost: usize,
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { stops, writes, lost } = self;
        write!(f, "{stops} stops, {writes} writes, {lost} of them lost")
    }
}

/// Lets writers write with the checker, or without, through this number of stops.
pub fn drill(writer: &Path, kind: Kind, checked: bool, stops: usize, seed: u64) -> io::Result<Outcome> {
    let directory = tempfile::tempdir()?;
    let bed = Bed::start(kind, checked, directory.path())?;
    let (store, place) = (bed.store(), bed.place());
    let acknowledged = |number: usize| directory.path().join(format!("writer-{number}"));
    let over = directory.path().join("over");
    let done = AtomicUsize::new(0);
    let hurt = |number: usize| -> io::Result<()> {
        let mut command: Command = bound(writer);
        let (kind, way) = (format!("{kind:?}"), if checked { "checked" } else { "bare" });
        command.args(["fenced", &kind, way, &store, &place]).args([&acknowledged(number), &over]).stdin(Stdio::null());
        let mut process = Process::start(command)?;
        let has_written = || fs::metadata(acknowledged(number)).is_ok_and(|file| file.len() > 0);
        wait_for("a writer writes", has_written)?;
        let mut random = fastrand::Rng::with_seed(seed.wrapping_add(number as u64));
        while done.fetch_add(1, Ordering::Relaxed) < stops {
            sleep(Duration::from_millis(random.u64(100..800)));
            process.pause()?;
            sleep(STOP);
            process.resume()?;
        }
        fs::write(&over, "")?;
        wait_for("a writer ends", || matches!(process.ended(), Ok(Some(_))))
    };
    on_threads(WRITERS, hurt)?;
    let text = bed.list()?;
    let there: HashSet<&str> = text.split_whitespace().collect();
    let told = (0..WRITERS).map(|number| fs::read_to_string(acknowledged(number))).collect::<io::Result<String>>()?;
    let lost = told.lines().filter(|token| !there.contains(token)).count();
    Ok(Outcome { stops, writes: told.lines().count(), lost })
}

const KEY: &str = "{list}";
const FENCE: &str = "{list}:fence";
const NODE: &str = "/list";

/// Where the locks and the written resource are.
enum Bed {
    File(Server, String),
    Redis(Server),
    Http(Server, SocketAddr, Arc<Mutex<String>>, tokio::runtime::Runtime),
    ZooKeeper(Ensemble, tokio::runtime::Runtime),
}

impl Bed {
    fn start(kind: Kind, checked: bool, directory: &Path) -> io::Result<Self> {
        let redis = || Server::start(Settings::default());
        let runtime = || tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build();
        Ok(match kind {
            Kind::File => Self::File(redis()?, directory.join("list").display().to_string()),
            Kind::Redis => Self::Redis(redis()?),
            Kind::Http => {
                let (runtime, list) = (runtime()?, Arc::new(Mutex::new(String::new())));
                let listener = runtime.block_on(tokio::net::TcpListener::bind("127.0.0.1:0"))?;
                let address = listener.local_addr()?;
                let mut service = service(&list);
                if checked {
                    service = service.layer(FenceLayer::new());
                }
                runtime.spawn(async move { axum::serve(listener, service).await });
                Self::Http(redis()?, address, list, runtime)
            }
            Kind::ZooKeeper => {
                let ensemble = Ensemble::start(zookeeper::Settings { tick_ms: 100, ..zookeeper::Settings::default() })?;
                let runtime = runtime()?;
                let made = runtime.block_on(async {
                    let client = zookeeper_client(&ensemble.connect_string()).await?;
                    let acl = [zk::Acl::open()];
                    client.create(NODE, b"", zk::CreateMode::Persistent, &acl).await?;
                    client.close().await
                });
                made.map_err(io::Error::other)?;
                Self::ZooKeeper(ensemble, runtime)
            }
        })
    }

    /// The URL of the store.
    fn store(&self) -> String {
        match self {
            Self::File(server, _) | Self::Redis(server) | Self::Http(server, ..) => format!("{}?", server.url()),
            Self::ZooKeeper(ensemble, _) => format!("{}&", ensemble.url("/locks")),
        }
    }

    /// Where writers find the resource.
    fn place(&self) -> String {
        match self {
            Self::File(_, path) => path.clone(),
            Self::Redis(server) => server.address().to_string(),
            Self::Http(_, address, ..) => address.to_string(),
            Self::ZooKeeper(ensemble, _) => ensemble.connect_string(),
        }
    }

    /// The last text of the resource.
    fn list(&self) -> io::Result<String> {
        match self {
            Self::File(_, path) => fs::read_to_string(path),
            Self::Redis(server) => Ok(server.ask(&["GET", KEY])?.to_string()),
            Self::Http(_, _, list, runtime) => {
                // The writers have ended, so no request is under way.
                Ok(runtime.block_on(async { list.lock().unwrap_or_else(PoisonError::into_inner).clone() }))
            }
            Self::ZooKeeper(ensemble, runtime) => runtime.block_on(async {
                let client = zookeeper_client(&ensemble.connect_string()).await.map_err(io::Error::other)?;
                let (data, _) = client.get_data(NODE).await.map_err(io::Error::other)?;
                String::from_utf8(data).map_err(io::Error::other)
            }),
        }
    }
}

/// A service that keeps a list: `GET` shows it, `POST` replaces it.
fn service(list: &Arc<Mutex<String>>) -> Router {
    let (shown, replaced) = (Arc::clone(list), Arc::clone(list));
    let show = async move || shown.lock().unwrap_or_else(PoisonError::into_inner).clone();
    let replace = async move |text: String| *replaced.lock().unwrap_or_else(PoisonError::into_inner) = text;
    Router::new().route("/", get(show).post(replace))
}

async fn zookeeper_client(servers: &str) -> zk::Result<zk::Client> {
    Ok(zk::Client::connect(zk::Config::new(servers)?).await?.0)
}

/// The resource of a writer.
enum Resource {
    File(FencedFile, String),
    Redis(Hands),
    Http(String),
    ZooKeeper(String),
}

impl Resource {
    fn of(kind: &str, place: &str) -> Result<Self, Fault> {
        Ok(match kind {
            "File" => Self::File(FencedFile::new(place), place.to_owned()),
            "Redis" => Self::Redis(Hands::connect(place.parse::<SocketAddr>()?)?),
            "Http" => Self::Http(place.to_owned()),
            "ZooKeeper" => Self::ZooKeeper(place.to_owned()),
            _ => return Err("no such kind".into()),
        })
    }

    fn claim(&mut self, token: FencingToken) -> Result<(), Fault> {
        match self {
            Self::File(file, _) => Ok(file.claim(token)?),
            Self::Redis(hands) => fine(&hands.ask(&["EVAL", REDIS_FENCE, "2", FENCE, KEY, &token.to_string()])?),
            Self::Http(address) => http(address, "HEAD", token, "").map(drop),
            // ZooKeeper's check is exact: no claim is needed.
            Self::ZooKeeper(_) => Ok(()),
        }
    }

    async fn read(&mut self, token: FencingToken) -> Result<String, Fault> {
        match self {
            Self::File(_, path) => match fs::read_to_string(path) {
                Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(String::new()),
                text => Ok(text?),
            },
            Self::Redis(hands) => match hands.ask(&["GET", KEY])? {
                Reply::Nil => Ok(String::new()),
                text => Ok(text.to_string()),
            },
            Self::Http(address) => http(address, "GET", token, ""),
            Self::ZooKeeper(servers) => {
                let client = zookeeper_client(servers).await?;
                let (data, _) = client.get_data(NODE).await?;
                client.close().await?;
                Ok(String::from_utf8(data)?)
            }
        }
    }

    /// Writes with the checker, or without.
    async fn write(&mut self, token: FencingToken, checked: bool, text: &str) -> Result<(), Fault> {
        match (self, checked) {
            (Self::File(file, _), true) => Ok(file.write(token, text)?),
            (Self::File(_, path), false) => {
                let next = format!("{path}.{}", std::process::id());
                fs::write(&next, text)?;
                Ok(fs::rename(next, path)?)
            }
            (Self::Redis(hands), true) => {
                fine(&hands.ask(&["EVAL", REDIS_FENCE, "2", FENCE, KEY, &token.to_string(), "SET", text])?)
            }
            (Self::Redis(hands), false) => fine(&hands.ask(&["SET", KEY, text])?),
            // The service has the layer, or not.
            (Self::Http(address), _) => http(address, "POST", token, text).map(drop),
            (Self::ZooKeeper(servers), checked) => {
                let client = zookeeper_client(servers).await?;
                let set = zk::Operation::set_data(NODE, text.as_bytes(), None);
                if checked {
                    let lock = client.child_created_by("/locks/list", token.to_i64()).await?.ok_or("lost")?;
                    client.multi(&[zk::Operation::check(&lock, None), set]).await?;
                } else {
                    client.multi(&[set]).await?;
                }
                Ok(client.close().await?)
            }
        }
    }
}

fn fine(reply: &Reply) -> Result<(), Fault> {
    if let Reply::Error(error) = reply { Err(error.clone().into()) } else { Ok(()) }
}

/// The answer of the service, unless it refuses.
fn http(address: &str, method: &str, token: FencingToken, text: &str) -> Result<String, Fault> {
    let mut stream = TcpStream::connect(address)?;
    let length = text.len();
    write!(
        stream,
        "{method} / HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n{TOKEN_HEADER}: {token}\r\nContent-Type: text/plain\r\nContent-Length: {length}\r\n\r\n{text}"
    )?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    let (head, body) = answer.split_once("\r\n\r\n").ok_or("no answer")?;
    if head.starts_with("HTTP/1.1 200") { Ok(body.to_owned()) } else { Err(head.into()) }
}

/// A writer: `KIND checked|bare STORE PLACE ACKNOWLEDGED OVER`. Writes until the file OVER is there.
pub fn writer_main(arguments: &[String]) -> ExitCode {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let written = runtime.map_err(Fault::from).and_then(|runtime| runtime.block_on(write_all(arguments)));
    match written {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

async fn write_all(arguments: &[String]) -> Result<(), Fault> {
    let [kind, way, store, place, acknowledged, over] = arguments else { return Err("six arguments".into()) };
    let mut acknowledged = File::create(acknowledged)?;
    let builder = Client::builder().connect_timeout(PATIENCE);
    let client = builder.connect(&format!("{store}ttl_ms={}&margin_ms=50", TTL.as_millis())).await?;
    let mutex = client.mutex("list")?;
    let mut resource = Resource::of(kind, place)?;
    while !Path::new(over).exists() {
        // After any failure, such as a lost lock, the writer begins again.
        let Ok(guard) = mutex.acquire_within(TTL * 20).await else { continue };
        if let Ok(token) = write(&mut resource, &guard, way == "checked").await {
            writeln!(acknowledged, "{token}")?;
        }
        let _ = guard.release().await;
    }
    Ok(())
}

async fn write(resource: &mut Resource, guard: &Guard, checked: bool) -> Result<FencingToken, Fault> {
    let token = guard.token().ok_or("no token")?;
    if checked {
        resource.claim(token)?;
    }
    let list = resource.read(token).await?;
    guard.check()?;
    sleep(DWELL);
    resource.write(token, checked, &format!("{list}{token}\n")).await?;
    Ok(token)
}
