//! A worker process: takes orders on stdin, and does them as one contestant.

mod by_hand;
mod flock;
mod floor;
mod mysql_floor;
mod ours;
mod postgres_floor;
mod redis_floor;
mod rslock;
mod workload;
mod zookeeper_crate;
mod zookeeper_floor;

use std::io::{BufRead as _, Write as _};
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use tokio::sync::mpsc;

use crate::contestant::Contestant;
use crate::machine;
use crate::what::Store;
use workload::{Lock, Obey, Workload};

/// How long the release of a worker's locks may take.
const FAREWELL: Duration = Duration::from_secs(10);

/// How a worker is started.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[arg(long)]
    contestant: Contestant,
    #[arg(long)]
    url: String,
    #[arg(long)]
    file: PathBuf,
    #[arg(long)]
    log: PathBuf,
    /// The main thread's core, then that of other threads.
    #[arg(long)]
    core: Vec<usize>,
    /// Works in a task of a runtime with several threads, and not on the thread of a runtime with one.
    #[arg(long)]
    multi_thread: bool,
}

/// Works until stdin ends.
pub(crate) fn run(args: Args) -> Result<()> {
    if args.multi_thread {
        let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().context("no runtime")?;
        return runtime.block_on(async { tokio::spawn(start(args)).await })?;
    }
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().context("no runtime")?;
    runtime.block_on(start(args))
}

async fn start(args: Args) -> Result<()> {
    let Args { contestant, url, file, log, core, .. } = &args;
    // The prefix of all keys, of a contestant that does not take it from the URL.
    let prefix = || file.to_str().context("a prefix is text");
    match contestant {
        Contestant::OwnApart => {
            // The I/O thread inherits the cores of the thread that makes it.
            let [main, second] = core[..] else { bail!("two cores are needed") };
            machine::pin(&[second])?;
            let ours = ours::Ours::connect(*contestant, url).await;
            machine::pin(&[main])?;
            lock(log, std::future::ready(ours)).await
        }
        who if who.is_fencelock() => lock(log, ours::Ours::connect(*who, url)).await,
        Contestant::ZkFloor | Contestant::ZkFloorListed => {
            lock(log, zookeeper_floor::Floor::connect(url, *contestant == Contestant::ZkFloorListed)).await
        }
        Contestant::ZkCrate => lock(log, zookeeper_crate::Crate::connect(url)).await,
        Contestant::RedisFloor | Contestant::PlainFloor | Contestant::RedissonFloor => {
            lock(log, redis_floor::Floor::connect(*contestant, url, prefix()?)).await
        }
        Contestant::Rslock => lock(log, std::future::ready(Ok(rslock::Rslock::new(url, prefix()?)))).await,
        who if who.is_on(Store::Postgres) && url.starts_with("postgres:") => {
            lock(log, postgres_floor::Floor::connect(*who, url, prefix()?)).await
        }
        who if who.is_on(Store::Mysql) => lock(log, mysql_floor::Floor::connect(*who, url, prefix()?)).await,
        Contestant::Flock => serve(log, std::future::ready(flock::Flock::new(file))).await,
        Contestant::Floor => serve(log, std::future::ready(floor::Floor::new(file))).await,
        who => bail!("{} is driven by a program of its own language", who.title()),
    }
}

async fn lock<L: Lock>(log: &Path, connect: impl Future<Output = Result<L>> + Send) -> Result<()> {
    serve(log, async { Ok(Workload::new(connect.await?)) }).await
}

async fn serve<W: Obey>(log: &Path, start: impl Future<Output = Result<W>> + Send) -> Result<()> {
    let mut worker = match start.await {
        Ok(worker) => worker,
        Err(fault) => {
            say(&format!("failed {}", one_line(&fault)));
            return Ok(());
        }
    };
    let mut orders = orders();
    say("ready");
    while let Some(line) = orders.recv().await {
        let done = match line.parse() {
            Ok(order) => worker.obey(order, log).await,
            Err(fault) => Err(fault),
        };
        match done {
            Ok(answer) => say(&answer),
            Err(fault) => say(&format!("failed {}", one_line(&fault))),
        }
    }
    // The parent waits for the end of this process, and for no answer.
    let _ = tokio::time::timeout(FAREWELL, worker.close()).await;
    std::process::exit(0);
}

/// Answers the parent, which may be gone.
fn say(answer: &str) {
    let _ = writeln!(std::io::stdout(), "{answer}");
}

fn one_line(fault: &anyhow::Error) -> String {
    format!("{fault:#}").replace('\n', " ")
}

/// The lines of stdin, read on a thread so that the runtime works between them. The process ends soon after the last line: the parent has
/// ended, or needs it no more.
fn orders() -> mpsc::UnboundedReceiver<String> {
    let (sender, receiver) = mpsc::unbounded_channel();
    std::thread::spawn(move || {
        for line in std::io::stdin().lock().lines().map_while(Result::ok) {
            if sender.send(line).is_err() {
                break;
            }
        }
        drop(sender);
        std::thread::sleep(FAREWELL);
        std::process::exit(0);
    });
    receiver
}
