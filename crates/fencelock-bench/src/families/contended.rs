//! Many tasks at once: each on a name of its own, and all on one. A server keeps to no core here, and its clients neither.

use anyhow::Result;

use super::{Row, Window, find};
use crate::bench::Store;
use crate::contestant::Contestant;
use crate::protocol::{Order, Section};
use crate::report::{Table, decimals};
use crate::run::Run;
use crate::site::Network;
use crate::stats::{hand_overs, least_and_most, median};

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
    const ALL: [Self; 3] = [Self::Apart, Self::Together, Self::Processes];

    /// The head of a column.
    const fn title(self) -> &'static str {
        match self {
            Self::Apart => "64 on 64 names",
            Self::Together => "32 on one name",
            Self::Processes => "4 processes × 8",
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
    /// Requests that the server received for each section, those that make the parents included.
    pub(crate) requests: f64,
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
    let before = run.site.traffic()?;
    let undone = run.site.undone()?;
    for (process, worker) in (0..).zip(&mut crew.0) {
        worker.send(way.order(process, window.start, window.end))?;
    }
    let (_, mut sections) = crew.finish()?;
    // Everybody takes the lock once more than it says, after the end.
    let waiters = way.processes() * way.each();
    let all = sections.len() as f64 + waiters as f64;
    let requests = run.site.traffic()?.since(before).0 / all;
    let undone = run.site.undone()? - undone;
    if way != Way::Apart {
        // Fails when two had the lock at once.
        hand_overs(&mut sections)?;
    }
    sections.retain(|section: &Section| (window.from..window.end).contains(&section.acquired));
    let (least, most) = least_and_most(&sections, waiters);
    let rate = sections.len() as f64 / contend.as_secs_f64();
    Ok(Contended { way, rate, least, most, requests, undone })
}

fn over(way: Way, rounds: &[Contended]) -> Contended {
    let of = |figure: fn(&Contended) -> f64| median(rounds.iter().map(figure));
    let worst = rounds.iter().min_by(|a, b| a.served().total_cmp(&b.served()));
    Contended {
        way,
        rate: of(|round| round.rate),
        least: worst.map_or(0, |round| round.least),
        most: worst.map_or(0, |round| round.most),
        requests: of(|round| round.requests),
        undone: rounds.iter().map(|round| round.undone).sum(),
    }
}

/// The row of that contestant, network and way.
pub(crate) fn of(rows: &[Row<Contended>], way: Way, who: Contestant, network: Network) -> Option<&Contended> {
    find(rows, who, network, |figure| figure.way == way)
}

/// With a column for each way to contend, on each way to the store: sections a second and how evenly all were served.
pub(super) fn table(run: &Run, rows: &[Row<Contended>]) -> Table {
    let shown = |way: Way, network| rows.iter().any(|row| row.figure.way == way && row.network == network);
    let columns = Way::ALL.into_iter().flat_map(|way| run.site.networks().iter().map(move |network| (way, *network)));
    let columns: Vec<_> = columns.filter(|(way, network)| shown(*way, *network)).collect();
    let head = columns.iter().map(|(way, network)| match run.bench.store.has_server() {
        true => format!("{}, {}", way.title(), network.title()),
        false => way.title().to_owned(),
    });
    let head: Vec<_> = ["sections/s (least ÷ most served)".to_owned()].into_iter().chain(head).collect();
    let mut table = Table::new(&head);
    let mut contestants = run.bench.present_but(&[]);
    contestants.retain(|contestant| rows.iter().any(|row| row.contestant == *contestant));
    for contestant in contestants {
        let cells = columns.iter().map(|(way, network)| cell(of(rows, *way, contestant, *network)));
        table.row([contestant.title().to_owned()].into_iter().chain(cells));
    }
    table
}

/// On names of their own nobody is in the way of anybody.
fn cell(figure: Option<&Contended>) -> String {
    match figure {
        None => "–".to_owned(),
        Some(all) if all.way == Way::Apart => format!("{:.0}", all.rate),
        Some(all) => format!("{:.0} ({})", all.rate, decimals(all.served())),
    }
}
