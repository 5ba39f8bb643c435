//! A worker process: takes orders on stdin, does them as one contestant.

mod flock;
mod floor;
mod mysql_floor;
mod ours;
mod postgres_floor;
mod redis_floor;
mod rslock;
mod waiters;
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
use crate::protocol::{Order, write_log};
use crate::what::Store;
use workload::Workload;

/// How long what a worker has in a store may take to be given back.
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
    /// The main thread's core, then that of threads beside it.
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
        return runtime.block_on(async { tokio::spawn(serve(args)).await })?;
    }
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().context("no runtime")?;
    runtime.block_on(serve(args))
}

async fn serve(args: Args) -> Result<()> {
    let mut contender = match Contender::new(&args).await {
        Ok(contender) => contender,
        Err(fault) => {
            say(&format!("failed {}", one_line(&fault)));
            return Ok(());
        }
    };
    let mut orders = orders();
    say("ready");
    while let Some(line) = orders.recv().await {
        let done = match line.parse() {
            Ok(order) => contender.obey(order, &args.log).await,
            Err(fault) => Err(fault),
        };
        match done {
            Ok(answer) => say(&answer),
            Err(fault) => say(&format!("failed {}", one_line(&fault))),
        }
    }
    // The parent waits for the end of this process, and nobody for the answer.
    let _ = tokio::time::timeout(FAREWELL, contender.close()).await;
    std::process::exit(0);
}

/// Answers the parent. One that is gone need not hear of it.
fn say(answer: &str) {
    let _ = writeln!(std::io::stdout(), "{answer}");
}

fn one_line(fault: &anyhow::Error) -> String {
    format!("{fault:#}").replace('\n', " ")
}

/// The lines of stdin, read on a thread so that the runtime goes on between them. The process ends with them, and soon,
/// whatever it is about: the parent is gone then, or done with us.
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

/// What the keys of a lock begin with, of a contestant that is not told by the URL.
fn prefix(args: &Args) -> Result<&str> {
    args.file.to_str().context("a prefix is text")
}

enum Contender {
    Ours(Workload<ours::Ours>),
    ZooKeeperFloor(Workload<zookeeper_floor::Floor>),
    ZooKeeperCrate(Workload<zookeeper_crate::Crate>),
    RedisFloor(Workload<redis_floor::Floor>),
    PostgresFloor(Workload<postgres_floor::Floor>),
    MysqlFloor(Workload<mysql_floor::Floor>),
    Rslock(Workload<rslock::Rslock>),
    Flock(flock::Flock),
    Floor(floor::Floor),
}

impl Contender {
    async fn new(args: &Args) -> Result<Self> {
        Ok(match args.contestant {
            Contestant::Current | Contestant::CurrentPlain | Contestant::CurrentRedisson | Contestant::Own => {
                Self::Ours(Workload::new(ours::Ours::connect(args.contestant, &args.url).await?))
            }
            Contestant::OwnApart => {
                // The I/O thread inherits the cores of the thread that makes it.
                let [main, beside] = args.core[..] else { bail!("two cores are needed") };
                machine::pin(&[beside])?;
                let ours = ours::Ours::connect(args.contestant, &args.url).await?;
                machine::pin(&[main])?;
                Self::Ours(Workload::new(ours))
            }
            Contestant::ZkFloor | Contestant::ZkFloorListed => {
                let listed = args.contestant == Contestant::ZkFloorListed;
                Self::ZooKeeperFloor(Workload::new(zookeeper_floor::Floor::connect(&args.url, listed).await?))
            }
            Contestant::ZkCrate => {
                Self::ZooKeeperCrate(Workload::new(zookeeper_crate::Crate::connect(&args.url).await?))
            }
            Contestant::RedisFloor | Contestant::PlainFloor | Contestant::RedissonFloor => {
                let floor = redis_floor::Floor::connect(args.contestant, &args.url, prefix(args)?).await?;
                Self::RedisFloor(Workload::new(floor))
            }
            who if who.is_on(Store::Postgres) && args.url.starts_with("postgres:") => {
                let floor = postgres_floor::Floor::connect(who, &args.url, prefix(args)?).await?;
                Self::PostgresFloor(Workload::new(floor))
            }
            who if who.is_on(Store::Mysql) => {
                let floor = mysql_floor::Floor::connect(who, &args.url, prefix(args)?).await?;
                Self::MysqlFloor(Workload::new(floor))
            }
            Contestant::Rslock => Self::Rslock(Workload::new(rslock::Rslock::new(&args.url, prefix(args)?))),
            Contestant::Flock => Self::Flock(flock::Flock::new(&args.file)?),
            Contestant::Floor => Self::Floor(floor::Floor::new(&args.file)?),
            who => bail!("{} is driven by a program of its own language", who.title()),
        })
    }

    async fn obey(&mut self, order: Order, log: &Path) -> Result<String> {
        match (self, order) {
            (Self::Floor(floor), Order::Cycle { count }) => {
                write_log(log, &floor.cycle(count)?)?;
                Ok("done".to_owned())
            }
            (Self::Floor(_), _) => bail!("the floor does cycles only"),
            (Self::Flock(flock), order) => flock.obey(order, log),
            (Self::Ours(ours), order) => ours.obey(order, log).await,
            (Self::ZooKeeperFloor(floor), order) => floor.obey(order, log).await,
            (Self::ZooKeeperCrate(lock), order) => lock.obey(order, log).await,
            (Self::RedisFloor(floor), order) => floor.obey(order, log).await,
            (Self::PostgresFloor(floor), order) => floor.obey(order, log).await,
            (Self::MysqlFloor(floor), order) => floor.obey(order, log).await,
            (Self::Rslock(lock), order) => lock.obey(order, log).await,
        }
    }

    async fn close(self) -> Result<()> {
        match self {
            Self::Ours(ours) => ours.close().await,
            Self::ZooKeeperFloor(floor) => floor.close().await,
            Self::ZooKeeperCrate(lock) => lock.close().await,
            Self::RedisFloor(floor) => floor.close().await,
            Self::PostgresFloor(floor) => floor.close().await,
            Self::MysqlFloor(floor) => floor.close().await,
            Self::Rslock(lock) => lock.close().await,
            Self::Flock(_) | Self::Floor(_) => Ok(()),
        }
    }
}
