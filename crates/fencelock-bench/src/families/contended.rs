//! Many tasks at once: each on a name of its own, and all on one. A server keeps to no core here, and its clients neither.

use anyhow::Result;

use super::{Row, Window, figure, find};
use crate::bench::Store;
use crate::contestant::Contestant;
use crate::protocol::{Order, Section};
use crate::report::{Table, decimals, micros};
use crate::run::Run;
use crate::site::Network;
use crate::stats::{Times, hand_overs, least_and_most, median};

/// Who wants what.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Way {
    /// 64 tasks of one process, each on a name of its own.
    Apart,
    /// 32 tasks of one process, all on one name.
    Together,
    /// 8 tasks in each of 4 processes, all on one name.
    Processes,
}

impl Way {
    /// What a table begins with.
    const fn title(self) -> &'static str {
        match self {
            Self::Apart => "64 tasks on 64 names",
            Self::Together => "32 waiters on one name",
            Self::Processes => "4 processes × 8 waiters on one name",
        }
    }

    pub(crate) const fn processes(self) -> u64 {
        if matches!(self, Self::Processes) { 4 } else { 1 }
    }

    /// Tasks in each process.
    pub(crate) const fn each(self) -> u64 {
        match self {
            Self::Apart => 64,
            Self::Together => 32,
            Self::Processes => 8,
        }
    }

    fn order(self, process: u64, start: u64, end: u64) -> Order {
        let (waiters, first) = (self.each(), process * self.each());
        match self {
            Self::Apart => Order::Spread { waiters, first, start, end },
            Self::Together | Self::Processes => Order::Contend { waiters, first, start, end },
        }
    }

    /// Who takes part.
    fn contestants(self, run: &Run) -> Vec<Contestant> {
        let mut contestants = match self {
            // Where nobody waits there is one way to hand over.
            Self::Apart => run.bench.present_but(&[]),
            Self::Together | Self::Processes => run.bench.waiting(),
        };
        let store = run.bench.store;
        // Nobody keeps to a core beside a server.
        contestants.retain(|contestant| !store.has_server() || *contestant != Contestant::OwnApart);
        // Four Java machines on two cores would measure the machine; on Redis they are idle enough to be told from ours.
        contestants.retain(|contestant| store == Store::Redis || self.processes() == 1 || !contestant.is_driven());
        contestants
    }
}

#[derive(Debug, Clone, Copy)]
pub(crate) struct Contended {
    pub(crate) way: Way,
    /// Sections per second.
    pub(crate) rate: f64,
    /// Of the round with the worst ratio.
    least: u64,
    most: u64,
    /// On one name.
    hand_over: Times,
    /// Of waiters, per section; only ours can tell.
    woken: f64,
    /// Requests that the server received for each section, those that make the parents included.
    pub(crate) requests: f64,
    /// Processor time that the client took for each section, in nanoseconds.
    processor: f64,
    /// Requests that the server undid in favour of others, in all rounds.
    pub(crate) undone: u64,
}

impl Contended {
    /// Least over most served.
    pub(crate) fn served(&self) -> f64 {
        self.least as f64 / self.most.max(1) as f64
    }
}

/// The server learns what to compile, and the disk what is coming.
pub(crate) fn warm(run: &Run) -> Result<()> {
    let floor = run.bench.store.floor();
    round(run, floor, Network::Loopback, Way::Apart).map(drop)
}

pub(super) fn measure(run: &Run, way: Way) -> Result<Vec<Row<Contended>>> {
    let contestants = way.contestants(run);
    run.everywhere(|network| {
        let what = format!("{}, {}", way.title(), network.title());
        let round = |contestant| round(run, contestant, network, way);
        run.rows(&contestants, network, &what, round, |rounds| over(way, &rounds))
    })
}

fn round(run: &Run, contestant: Contestant, network: Network, way: Way) -> Result<Contended> {
    let mut crew = run.crowd(contestant, way.processes(), network)?;
    for (process, worker) in (0..).zip(&mut crew.0) {
        worker.warm(|start, end| way.order(process, start, end))?;
    }
    let contend = run.bench.effort.contend;
    let window = Window::of(contend)?;
    let (before, processor) = (run.site.traffic()?, crew.processor_time()?);
    let undone = run.site.undone()?;
    for (process, worker) in (0..).zip(&mut crew.0) {
        worker.send(way.order(process, window.start, window.end))?;
    }
    let (woken, mut sections) = crew.finish()?;
    let woken = woken as f64 / sections.len() as f64;
    // Everybody takes the lock once more than it says, after the end.
    let waiters = way.processes() * way.each();
    let all = sections.len() as f64 + waiters as f64;
    let processor = crew.processor_time()?.saturating_sub(processor).as_nanos() as f64 / all;
    let requests = run.site.traffic()?.since(before).0 / all;
    let undone = run.site.undone()? - undone;
    if way != Way::Apart {
        // Fails when two had the lock at once.
        hand_overs(&mut sections)?;
    }
    sections.retain(|section: &Section| (window.from..window.end).contains(&section.acquired));
    let hand_over = match way {
        Way::Apart => Times::NONE,
        Way::Together | Way::Processes => Times::of(hand_overs(&mut sections)?).unwrap_or(Times::NONE),
    };
    let (least, most) = least_and_most(&sections, waiters);
    let rate = sections.len() as f64 / contend.as_secs_f64();
    Ok(Contended { way, rate, least, most, hand_over, woken, requests, processor, undone })
}

fn over(way: Way, rounds: &[Contended]) -> Contended {
    let of = |figure: fn(&Contended) -> f64| median(rounds.iter().map(figure));
    let worst = rounds.iter().min_by(|a, b| a.served().total_cmp(&b.served()));
    Contended {
        way,
        rate: of(|round| round.rate),
        least: worst.map_or(0, |round| round.least),
        most: worst.map_or(0, |round| round.most),
        hand_over: Times::median(rounds.iter().map(|round| round.hand_over)),
        woken: of(|round| round.woken),
        requests: of(|round| round.requests),
        processor: of(|round| round.processor),
        undone: rounds.iter().map(|round| round.undone).sum(),
    }
}

/// The row of that contestant, network and way.
pub(crate) fn of(rows: &[Row<Contended>], way: Way, who: Contestant, network: Network) -> Option<&Contended> {
    find(rows, who, network, |figure| figure.way == way)
}

/// On a server one for each way, with what its clients ask for; else one with how the lock was handed over.
pub(super) fn tables(run: &Run, rows: &[Row<Contended>]) -> Vec<Table> {
    if !run.bench.store.has_server() {
        return vec![here(rows)];
    }
    let of = |way| rows.iter().filter(|row| row.figure.way == way).cloned().collect::<Vec<_>>();
    [Way::Apart, Way::Together, Way::Processes].map(|way| on_server(&of(way), way, run.bench.store.floor())).into()
}

fn here(rows: &[Row<Contended>]) -> Table {
    let mut table = Table::new(&[
        "contended",
        "processes × waiters",
        "sections/s",
        "least / most served",
        "hand-over p50 µs",
        "p99 µs",
        "woken per section",
    ]);
    for Row { contestant, figure, .. } in rows {
        table.row([
            contestant.title().to_owned(),
            format!("{} × {}", figure.way.processes(), figure.way.each()),
            format!("{:.0}", figure.rate),
            format!("{} / {}", figure.least, figure.most),
            micros(figure.hand_over.p50),
            micros(figure.hand_over.p99),
            if contestant.is_fencelock() { decimals(figure.woken) } else { "–".to_owned() },
        ]);
    }
    table
}

/// On names of their own with the column "× floor", on one name with how evenly they were served.
fn on_server(rows: &[Row<Contended>], way: Way, floor: Contestant) -> Table {
    let (each, second) = match way {
        Way::Apart => ("cycles/s", "× floor"),
        Way::Together | Way::Processes => ("sections/s", "least ÷ most served"),
    };
    let (near, far) = (format!("loopback {each}"), format!("2 ms each way {each}"));
    let rate = |network| figure(rows, floor, network).map_or(f64::NAN, |floor| floor.rate);
    let cost = ["requests each", "client's processor µs each"];
    let mut table = Table::new(&[way.title(), &near, second, cost[0], cost[1], &far, second]);
    for Row { contestant, figure: near, .. } in rows.iter().filter(|row| row.network == Network::Loopback) {
        let Some(far) = figure(rows, *contestant, Network::Delay) else { continue };
        let second = |network, contended: &Contended| match way {
            Way::Apart => decimals(contended.rate / rate(network)),
            Way::Together | Way::Processes => decimals(contended.served()),
        };
        table.row([
            contestant.title().to_owned(),
            format!("{:.0}", near.rate),
            second(Network::Loopback, near),
            decimals(near.requests),
            micros(near.processor),
            format!("{:.0}", far.rate),
            second(Network::Delay, far),
        ]);
    }
    table
}
