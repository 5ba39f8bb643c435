//! A worker process: takes orders on stdin, does them as one contestant.

mod flock;
mod floor;
mod ours;

use std::io::BufRead as _;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, bail};
use tokio::sync::mpsc;

use crate::contestant::Contestant;
use crate::machine;
use crate::protocol::{Order, write_log};

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
}

/// Works until stdin ends.
pub(crate) fn run(args: &Args) -> Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().context("no runtime")?;
    runtime.block_on(serve(args))
}

async fn serve(args: &Args) -> Result<()> {
    let mut contender = match Contender::new(args).await {
        Ok(contender) => contender,
        Err(fault) => {
            println!("failed {}", one_line(&fault));
            return Ok(());
        }
    };
    let mut orders = orders();
    println!("ready");
    while let Some(line) = orders.recv().await {
        let done = match line.parse() {
            Ok(order) => contender.obey(order, &args.log).await,
            Err(fault) => Err(fault),
        };
        match done {
            Ok(answer) => println!("{answer}"),
            Err(fault) => println!("failed {}", one_line(&fault)),
        }
    }
    Ok(())
}

fn one_line(fault: &anyhow::Error) -> String {
    format!("{fault:#}").replace('\n', " ")
}

/// The lines of stdin, read on a thread so that the runtime goes on between them. The process ends with them: the
/// parent is gone then, or done with us.
fn orders() -> mpsc::UnboundedReceiver<String> {
    let (sender, receiver) = mpsc::unbounded_channel();
    std::thread::spawn(move || {
        for line in std::io::stdin().lock().lines().map_while(Result::ok) {
            if sender.send(line).is_err() {
                break;
            }
        }
        std::process::exit(0);
    });
    receiver
}

enum Contender {
    Ours(ours::Ours),
    Flock(flock::Flock),
    Floor(floor::Floor),
}

impl Contender {
    async fn new(args: &Args) -> Result<Self> {
        Ok(match args.contestant {
            Contestant::Current | Contestant::Own => Self::Ours(ours::Ours::connect(args.contestant, &args.url).await?),
            Contestant::OwnApart => {
                // The I/O thread inherits the cores of whoever makes it.
                let [main, beside] = args.core[..] else { bail!("two cores are needed") };
                machine::pin(&[beside])?;
                let ours = ours::Ours::connect(args.contestant, &args.url).await?;
                machine::pin(&[main])?;
                Self::Ours(ours)
            }
            Contestant::Flock => Self::Flock(flock::Flock::new(&args.file, false)?),
            Contestant::FlockOpening => Self::Flock(flock::Flock::new(&args.file, true)?),
            Contestant::Floor => Self::Floor(floor::Floor::new(&args.file)?),
            Contestant::Filelock => bail!("filelock is driven by Python"),
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
        }
    }
}
