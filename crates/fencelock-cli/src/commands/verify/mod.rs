//! `fencelock verify`: several processes take locks of a store for some time while faults happen to them. The judge of the lab counts the
//! broken promises.

mod report;

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use clap::Args;
use fencelock::Client;
use fencelock::capability::Liveness;
use fencelock_lab::{Drill, Strategy, Unbreakable, worker_main};
use tokio::signal::unix::{Signal, SignalKind, signal};

use self::report::Report;
use super::{StoreArguments, connect, farewell};
use crate::arguments;
use crate::die_with_parent::ourselves;
use crate::output::{Failure, Outcome, code, say};
use crate::progress::Progress;
use crate::settings::Chosen;
use crate::show::{print, print_judged};

/// How long an acquire, the end of a worker, or the remains of a dead one may take beyond what the store's times explain.
const PATIENCE: Duration = Duration::from_secs(60);

/// How long workers work until their logs are judged and removed: memory and disk have a limit, however long it all lasts.
const PORTION: Duration = Duration::from_secs(60);

const LOOK: Duration = Duration::from_millis(50);

/// Verify that a store keeps its promises here: several processes, several locks, and counts.
///
/// Takes locks under names of its own in the store that the URL names, as programs would. Each process logs its sections in a file of this
/// host. A judge reads the logs every minute, and checks that no two holders believed in a lock at once, that tokens rise, that grants come
/// in order where the store keeps one, and that a resource refused each late write by its token. At the end nothing may wait or be left.
///
/// With --faults, workers are stopped (SIGSTOP) and continued, for longer than the ttl too, and killed. A late write of a holder that was
/// stopped past its ttl is counted as refused, which is no failure.
///
/// Of each promise it says how often it was broken, of how many times. Where that is 0 of n, at 95 % it happens in fewer than
/// 3/n of all. Servers and networks are not hurt: do that meanwhile, by hand.
///
/// Exits with 0 when no promise was broken, else with 1. Ctrl-C ends it early, with what was counted.
///
/// With --report: a line of JSON as `cargo xtask ledger` writes it, whose `--sum` adds up the lines of many runs. With --json: the same
/// with `processes`, `names`, `checks`, `examples` (of what went wrong) and `ok`. A check has `promise`, `broken`, `of` and `fewer_than`
/// (3/n; null when it was broken, or never tried).
#[derive(Debug, Args)]
pub(crate) struct Verify {
    /// The store, in the place of --store.
    #[arg(value_name = "URL", value_parser = arguments::store, conflicts_with = "store")]
    url: Option<String>,
    /// For how long.
    #[arg(long, value_name = "DURATION", default_value = "1m", value_parser = arguments::duration)]
    duration: Duration,
    /// Stop, continue and kill workers.
    #[arg(long)]
    faults: bool,
    /// How many processes want the locks, each with two sessions.
    #[arg(long, value_name = "N", default_value_t = 4, value_parser = clap::value_parser!(u32).range(2..=256))]
    processes: u32,
    /// How many locks there are. Each process wants all of them.
    #[arg(long, value_name = "K", default_value_t = 4, value_parser = clap::value_parser!(u32).range(1..=256))]
    names: u32,
    /// Print JSON.
    #[arg(long)]
    json: bool,
    /// Print a row of the ledger.
    #[arg(long, conflicts_with = "json")]
    report: bool,
}

/// Not for people: `verify` starts these.
#[derive(Debug, Args)]
pub(crate) struct VerifyWorker {
    #[arg(value_name = "ORDERS")]
    _orders: String,
}

impl VerifyWorker {
    pub(in crate::commands) fn run(&self) -> Outcome<u8> {
        // A worker has a runtime of its own.
        let worked = std::thread::spawn(worker_main).join();
        Ok(u8::from(!worked.is_ok_and(|worked| worked == std::process::ExitCode::SUCCESS)))
    }
}

impl Verify {
    pub(super) async fn run(&self, store: &StoreArguments) -> Outcome<u8> {
        let chosen = store.or_named(self.url.as_ref()).choose(false, &[])?;
        let mut asked = asked()?;
        // A connection made here reports a wrong URL once.
        let client = connect(Client::builder(), &chosen, false).await?;
        let verified = self.verify(&chosen, &client, &mut asked).await;
        farewell(&client, verified.is_err()).await;
        let report = verified?;
        if !self.report {
            return print_judged(&report, self.json, report.fault());
        }
        print(&format!("{}\n", serde_json::to_string(report.row()).map_err(std::io::Error::from)?))?;
        report.fault().iter().for_each(say);
        Ok(u8::from(report.fault().is_some()))
    }

    async fn verify(&self, chosen: &Chosen, client: &Client, asked: &mut [Signal; 3]) -> Outcome<Report> {
        let (progress, until) = (Progress::new(), Instant::now() + self.duration);
        let mut report = Report::new(&chosen.name(), self.processes, self.names);
        loop {
            let left = until.saturating_duration_since(Instant::now());
            let portion = left.min(PORTION.max(client.timing().ttl * 4));
            let directory = tempfile::Builder::new().prefix("fencelock-verify-").tempdir()?;
            let drill = self.drill(chosen, client, directory.path())?;
            let stop = Arc::clone(&drill.stop);
            let mut running = tokio::task::spawn_blocking(move || drill.run());
            let (started, mut is_ended) = (Instant::now(), false);
            while !is_ended && started.elapsed() < portion && !running.is_finished() {
                is_ended = rest(asked, LOOK.min(portion)).await;
                let over =
                    1.0 - until.saturating_duration_since(Instant::now()).as_secs_f64() / self.duration.as_secs_f64();
                progress.show(over, &format!("{} sections", report.sections()));
            }
            stop.store(true, Ordering::Relaxed);
            let judged = (&mut running).await.map_err(|error| Failure::new(code::SOFTWARE, error.to_string()))?;
            report.add(&judged?, started.elapsed());
            if is_ended || report.fault().is_some() || Instant::now() >= until {
                return Ok(report);
            }
        }
    }

    fn drill(&self, chosen: &Chosen, client: &Client, directory: &std::path::Path) -> Outcome<Drill> {
        let capability = client.capability();
        let ends_with_process = matches!(capability.liveness, Liveness::Process | Liveness::Memory);
        let (ttl, slack) = (client.timing().ttl, capability.detection_slack);
        let site = Unbreakable {
            url: chosen.inherited(false),
            ttl: if ends_with_process { Duration::ZERO } else { ttl + slack },
        };
        // All contenders ahead may be hurt while they hold.
        let one = (ttl + slack) * 2;
        let program = ourselves("verify-worker")?;
        let strategy = if self.faults { Strategy::Storm } else { Strategy::Calm };
        let drill = Drill::at(Arc::new(site), directory, program.get_program().as_ref(), strategy, fastrand::u64(..));
        Ok(Drill {
            arguments: program.get_args().map(|argument| argument.to_string_lossy().into_owned()).collect(),
            // Without a slash: on ZooKeeper its last part would be a node in the queue of a lock above.
            prefix: format!("fencelock-verify-{}-{:08x}-", std::process::id(), fastrand::u32(..)),
            is_patient: true,
            processes: self.processes as usize,
            locks: self.names as usize,
            strikes: usize::MAX,
            grants_after: 1,
            patience: PATIENCE + if self.faults { one * self.processes } else { one },
            ..drill
        })
    }
}

/// Signals that ask for the end; and SIGCHLD, whose handler keeps the kernel from reaping workers where our parent ignores it.
fn asked() -> Outcome<[Signal; 3]> {
    let hear = |kind| signal(kind).map_err(|error| Failure::os("cannot wait for signals", &error));
    Ok([hear(SignalKind::interrupt())?, hear(SignalKind::terminate())?, hear(SignalKind::child())?])
}

/// Rests for `duration`; returns whether a signal asked for the end meanwhile.
async fn rest([interrupt, terminate, _]: &mut [Signal; 3], duration: Duration) -> bool {
    tokio::select! {
        _ = interrupt.recv() => true,
        _ = terminate.recv() => true,
        () = tokio::time::sleep(duration) => false,
    }
}
