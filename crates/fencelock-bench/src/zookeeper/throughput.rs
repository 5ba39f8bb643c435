//! Many tasks at once: each on a name of its own, and all on one. Nobody keeps to a core here, the server neither.

use anyhow::Result;

use super::site::Network;
use super::{Row, Run, figure};
use crate::contestant::Contestant;
use crate::crew::{Crew, Placement};
use crate::protocol::{Order, Section, now};
use crate::report::{Table, decimals, micros};
use crate::stats::{hand_overs, least_and_most, median};

const APART: [Contestant; 8] = [
    Contestant::ZkFloor,
    Contestant::ZkFloorListed,
    Contestant::Current,
    Contestant::Own,
    Contestant::ZkCrate,
    Contestant::Curator,
    Contestant::GoZk,
    Contestant::Kazoo,
];

const TOGETHER: [Contestant; 9] = [
    Contestant::ZkFloor,
    Contestant::ZkFloorListed,
    Contestant::Current,
    Contestant::CurrentListed,
    Contestant::Own,
    Contestant::ZkCrate,
    Contestant::Curator,
    Contestant::GoZk,
    Contestant::Kazoo,
];

/// Tasks on as many names.
const LANES: u64 = 64;
/// Tasks on one name.
const CROWD: u64 = 32;

/// What the tables begin with.
const TITLES: (&str, &str) = ("64 tasks on 64 names", "32 waiters on one name");

/// Time for every process to hear of the start.
const LEAD_NANOS: u64 = 100_000_000;
/// What is not looked at: until everybody is there.
const WARM_NANOS: u64 = 200_000_000;

#[derive(Debug, Clone, Copy)]
pub(super) struct Throughput {
    /// Sections per second.
    pub(super) rate: f64,
    /// The one served least over the one served most, in the worst round.
    pub(super) served: f64,
    /// Requests that the server received for each section, those that make the parents included.
    requests: f64,
    /// Processor time that the client took for each section, in nanoseconds.
    processor: f64,
}

/// The server learns what to compile, and the disk what is coming.
pub(super) fn warm(run: &Run) -> Result<()> {
    round(run, Contestant::ZkFloorListed, Network::Loopback, true).map(drop)
}

pub(super) fn apart(run: &Run) -> Result<Vec<Row<Throughput>>> {
    measure(run, &APART, true)
}

pub(super) fn together(run: &Run) -> Result<Vec<Row<Throughput>>> {
    measure(run, &TOGETHER, false)
}

fn measure(run: &Run, contestants: &[Contestant], is_apart: bool) -> Result<Vec<Row<Throughput>>> {
    run.site.is_alone(false)?;
    let mut rows = Vec::new();
    for network in Network::ALL {
        run.site.delays(network == Network::Delay);
        let contestants = run.bench.present(contestants);
        let mut rounds = vec![Vec::new(); contestants.len()];
        for _ in 0..run.bench.effort.rounds {
            for (contestant, rounds) in contestants.iter().zip(&mut rounds) {
                let what = format!("{}, {}", if is_apart { TITLES.0 } else { TITLES.1 }, network.title());
                rounds.extend(run.round(*contestant, &what, || round(run, *contestant, network, is_apart))?);
            }
        }
        let measured = contestants.into_iter().zip(rounds).filter(|(_, rounds)| !rounds.is_empty());
        rows.extend(measured.map(|(contestant, rounds)| {
            let of = |figure: fn(&Throughput) -> f64| median(rounds.iter().map(figure));
            let (rate, requests) = (of(|round| round.rate), of(|round| round.requests));
            let (processor, served) = (of(|round| round.processor), rounds.iter().map(|round| round.served));
            let figure = Throughput { rate, requests, processor, served: served.fold(1.0, f64::min) };
            Row { contestant, network, figure }
        }));
    }
    run.site.delays(false);
    run.site.is_alone(true)?;
    Ok(rows)
}

fn round(run: &Run, contestant: Contestant, network: Network, is_apart: bool) -> Result<Throughput> {
    let mut crew = Crew::on(&run.bench, contestant, 1, &run.site.target(network), Placement::Free)?;
    let waiters = if is_apart { LANES } else { CROWD };
    let order = |start, end| match is_apart {
        true => Order::Spread { waiters, first: 0, start, end },
        false => Order::Contend { waiters, first: 0, start, end },
    };
    crew.0[0].warm(order)?;
    let contend = run.bench.effort.contend;
    let start = now() + LEAD_NANOS;
    let end = start + WARM_NANOS + u64::try_from(contend.as_nanos())?;
    let (before, processor) = (run.site.traffic()?, crew.0[0].processor_time()?);
    crew.0[0].send(order(start, end))?;
    let (_, mut sections) = crew.finish()?;
    // Everybody takes the lock once more than it says, after the end.
    let all = sections.len() as f64 + waiters as f64;
    let processor = crew.0[0].processor_time()?.saturating_sub(processor).as_nanos() as f64 / all;
    let (requests, _) = run.site.traffic()?.since(before);
    if !is_apart {
        // Fails when two had the lock at once.
        hand_overs(&mut sections)?;
    }
    sections.retain(|section: &Section| section.acquired >= start + WARM_NANOS);
    let (least, most) = least_and_most(&sections, waiters);
    let rate = sections.len() as f64 / contend.as_secs_f64();
    Ok(Throughput { rate, served: least as f64 / most.max(1) as f64, requests: requests / all, processor })
}

/// Of [`apart`] with the column "× floor", of [`together`] with how evenly they were served.
pub(super) fn table(rows: &[Row<Throughput>], is_apart: bool) -> Table {
    let (first, each, second) = match is_apart {
        true => (TITLES.0, "cycles/s", "× floor"),
        false => (TITLES.1, "sections/s", "least ÷ most served"),
    };
    let (near, far) = (format!("loopback {each}"), format!("2 ms each way {each}"));
    let cost = ["requests each", "client's processor µs each"];
    let mut table = Table::new(&[first, &near, second, cost[0], cost[1], &far, second]);
    for Row { contestant, figure: near, .. } in rows.iter().filter(|row| row.network == Network::Loopback) {
        let Some(far) = figure(rows, *contestant, Network::Delay) else { continue };
        let second = |network, throughput: &Throughput| match is_apart {
            true => decimals(throughput.rate / floor(rows, network)),
            false => decimals(throughput.served),
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

fn floor(rows: &[Row<Throughput>], network: Network) -> f64 {
    figure(rows, Contestant::ZkFloorListed, network).map_or(f64::NAN, |throughput| throughput.rate)
}
