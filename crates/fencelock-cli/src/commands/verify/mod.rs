//! `fencelock verify`: several processes take locks of a store for some time, are hurt meanwhile, and everything that a lock promises
//! is counted.

mod crew;
mod report;
mod worker;

use std::io;
use std::time::{Duration, Instant};

use clap::Args;
use fencelock::capability::{Capability, Liveness};
use fencelock::inspect::Page;
use fencelock::{Client, Name};
use fencelock_lab::{Count, Register};
use tokio::signal::unix::{Signal, SignalKind, signal};

use self::crew::{Crew, Toll};
use self::report::Report;
pub(crate) use self::worker::VerifyWorker;
use super::{StoreArguments, connect, farewell};
use crate::arguments;
use crate::output::{Failure, Outcome};
use crate::progress::Progress;
use crate::settings::Chosen;
use crate::show::print_judged;

/// How long an acquire, the end of a worker, or the remains of a dead one may take beyond what the store's times explain.
const PATIENCE: Duration = Duration::from_secs(60);

const LOOK: Duration = Duration::from_millis(50);

/// Verify that a store keeps its promises here: several processes, several locks, and counts.
///
/// Takes locks under names of its own in the store that the URL names, as programs would. Each lock protects a register in a file of
/// this host, which checks on every entry and every write that no other holder's guard says it is valid, that tokens rise, and that
/// a late write is refused by its token. The order of grants is checked where the store keeps one. At the end nothing may wait or be left.
///
/// With --faults, workers are stopped (SIGSTOP) and continued, for longer than the ttl too, and killed. A holder that is
/// stopped past its ttl overlaps with the next one, as with every lock that expires: it is counted as overtaken, and its late writes as
/// refused. That is no failure. Two guards that say they are valid at a time are one, and a late write that its token does not give away.
///
/// Of each promise it says how often it was broken, of how many times. Where that is 0 of n, at 95 % it happens in fewer than
/// 3/n of all. Servers and networks are not hurt: do that meanwhile, by hand.
///
/// Exits with 0 when no promise was broken, else with 1. Ctrl-C ends it early, with what was counted.
///
/// With --json: an object with `store`, `seconds`, `processes`, `names`, `kills`, `pauses`, `long_pauses` (beyond the ttl), `sections`,
/// `lost` (guards that said so), `failed` (requests), `overtaken`, `late_writes` (`refused`, `alone`: nobody had entered meanwhile, `unfenced`: the
/// store has no tokens), `longest_takeover_seconds` (from the kill of a holder, or the end of its validity, to the next), `checks`, `examples` (of what went wrong) and `ok`. A check has `promise`, `broken`, `of` and `fewer_than` (3/n; null when it
/// was broken, or never tried).
#[derive(Debug, Args)]
pub(crate) struct Verify {
    /// The store, in the place of --store.
    #[arg(value_name = "URL", value_parser = arguments::store(), conflicts_with = "store")]
    url: Option<String>,
    /// For how long.
    #[arg(long, value_name = "DURATION", default_value = "1m", value_parser = arguments::duration())]
    duration: Duration,
    /// Stop, continue and kill workers.
    #[arg(long)]
    faults: bool,
    /// How many processes want the locks, each with a session of its own.
    #[arg(long, value_name = "N", default_value_t = 4, value_parser = clap::value_parser!(u32).range(2..=256))]
    processes: u32,
    /// How many locks there are. Each process wants all of them.
    #[arg(long, value_name = "K", default_value_t = 4, value_parser = clap::value_parser!(u32).range(1..=256))]
    names: u32,
    /// Print JSON.
    #[arg(long)]
    json: bool,
    /// Print a table of one row in Markdown, with 3/n for each promise that was never broken.
    #[arg(long, conflicts_with = "json")]
    report: bool,
}

impl Verify {
    pub(super) async fn run(&self, store: &StoreArguments) -> Outcome<u8> {
        let chosen = store.or_named(self.url.as_ref()).choose(false, &[])?;
        let mut asked = asked()?;
        // A connection made here reports a wrong URL once, and looks at what is left in the end.
        let client = connect(Client::builder(), &chosen, false).await?;
        let verified = self.verify(&chosen, &client, &mut asked).await;
        farewell(&client, verified.is_err()).await;
        let report = verified?;
        match self.report {
            true => print_judged(&report.row(), false, report.fault()),
            false => print_judged(&report, self.json, report.fault()),
        }
    }

    async fn verify(&self, chosen: &Chosen, client: &Client, asked: &mut [Signal; 3]) -> Outcome<Report> {
        let directory = tempfile::Builder::new().prefix("fencelock-verify-").tempdir()?;
        let prefix = format!("fencelock-verify-{}-{:08x}", std::process::id(), fastrand::u32(..));
        let registers: io::Result<Vec<_>> =
            (0..self.names).map(|name| Register::open(directory.path(), &name.to_string())).collect();
        let registers = registers?;
        let (capability, ttl) = (client.capability(), client.timing().ttl);
        let limit = self.limit(&capability, ttl);
        let mut crew = Crew::new(chosen, directory.path(), &prefix, self.names, limit);
        for _ in 0..self.processes {
            crew.start()?;
        }
        crew.begin()?;
        let past = (!matches!(capability.liveness, Liveness::Process | Liveness::Memory))
            .then(|| ttl.mul_f64(1.25) + capability.detection_slack);
        let started = Instant::now();
        let toll = self.hurt(&mut crew, &registers, past, asked).await?;
        let seconds = (started.elapsed().as_secs_f64() * 10.0).round() / 10.0;
        let unfinished = crew.end(limit + PATIENCE).await?;
        let left = self.left(client, &prefix, ttl + capability.detection_slack + PATIENCE).await?;
        let counts = |what: Count| -> io::Result<u64> { registers.iter().map(|register| register.counted(what)).sum() };
        let takeovers: io::Result<Vec<_>> = registers.iter().map(Register::longest_takeover).collect();
        let longest_takeover = takeovers?.into_iter().max().unwrap_or_default();
        let examples = std::fs::read_to_string(directory.path().join("faults")).unwrap_or_default();
        let end = report::End { unfinished, left, longest_takeover, examples };
        let run = report::Run { store: chosen.name(), seconds, processes: self.processes, names: self.names, toll };
        Ok(Report::new(run, &capability, counts, end)?)
    }

    /// How long an acquire may take: all contenders ahead may be hurt while they hold.
    fn limit(&self, capability: &Capability, ttl: Duration) -> Duration {
        let one = (ttl + capability.detection_slack) * 2;
        PATIENCE + if self.faults { one * self.processes } else { one }
    }

    /// Watches the crew until the time has passed, and hurts it where that is wanted. `past` is how long a session's holder is stopped
    /// for its lock to expire.
    async fn hurt(
        &self,
        crew: &mut Crew<'_>,
        registers: &[Register],
        past: Option<Duration>,
        asked: &mut [Signal; 3],
    ) -> Outcome<Toll> {
        let (progress, started) = (Progress::new(), Instant::now());
        let mut rest = Duration::ZERO;
        loop {
            let left = self.duration.saturating_sub(started.elapsed());
            if left.is_zero() || is_over(asked, rest.max(LOOK).min(left)).await {
                return Ok(crew.toll);
            }
            crew.look_for_the_dead()?;
            if self.faults {
                crew.hurt_somebody(registers, past, left).await?;
                rest = Duration::from_millis(fastrand::u64(100..500));
            }
            let sections: io::Result<u64> = registers.iter().map(|register| register.counted(Count::Sections)).sum();
            let Toll { kills, pauses, .. } = crew.toll;
            let over = started.elapsed().as_secs_f64() / self.duration.as_secs_f64();
            progress.show(over, &format!("{} sections, {kills} killed, {pauses} stopped", sections?));
        }
    }

    /// How many contenders are there once all workers are gone, and the sessions of killed ones should have ended.
    async fn left(&self, client: &Client, prefix: &str, patience: Duration) -> Outcome<u64> {
        let until = Instant::now() + patience;
        loop {
            let mut left = 0;
            for number in 0..self.names {
                left += client.queue_page(name_of(prefix, number)?, Page { skip: 0, limit: 1 }).await?.queued;
            }
            if left == 0 || Instant::now() > until {
                return Ok(left as u64);
            }
            tokio::time::sleep(LOOK).await;
        }
    }
}

/// The name of the lock with this number. Without a slash: on ZooKeeper its last part would be a node in the queue of a lock above.
fn name_of(prefix: &str, number: u32) -> fencelock::Result<Name> {
    Name::new(format!("{prefix}-n{number}"))
}

/// Signals that ask for the end; and SIGCHLD, whose handler keeps the kernel from reaping workers where our parent ignores it.
fn asked() -> Outcome<[Signal; 3]> {
    let hear = |kind| signal(kind).map_err(|error| Failure::os("cannot wait for signals", &error));
    Ok([hear(SignalKind::interrupt())?, hear(SignalKind::terminate())?, hear(SignalKind::child())?])
}

/// Rests for `rest`; returns whether a signal asked for the end meanwhile.
async fn is_over([interrupt, terminate, _]: &mut [Signal; 3], rest: Duration) -> bool {
    tokio::select! {
        _ = interrupt.recv() => true,
        _ = terminate.recv() => true,
        () = tokio::time::sleep(rest) => false,
    }
}
