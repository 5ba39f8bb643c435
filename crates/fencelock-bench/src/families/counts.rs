//! What the server has to do: requests, notifications and watches, as it counts them itself.

use anyhow::Result;

use super::Row;
use super::hand_over::{Drain, EACH_ITS_OWN, Shape};
use crate::contestant::Contestant;
use crate::crew::Placement;
use crate::protocol::Order;
use crate::report::{Table, decimals};
use crate::run::Run;
use crate::site::Network;

/// Enough that what is not asked for the cycles' sake vanishes.
const CYCLES: u64 = 200;

const TOGETHER: Shape = Shape { waiters: 100, sessions: 1 };

/// Requests and notifications of one queue, and the watches that waited.
#[derive(Debug, Clone, Copy)]
pub(crate) struct PerRelease {
    pub(crate) requests: f64,
    notifications: f64,
    watches: f64,
    /// Wake-ups of waiters, where the contestant counts them.
    pub(crate) woken: f64,
    /// Notifications to whom neither the release was nor the lock: off the way of the hand-over.
    pub(crate) beside: f64,
}

#[derive(Debug, Clone, Copy)]
pub(crate) struct Counts {
    /// Requests and notifications of a cycle.
    pub(crate) cycle: (f64, f64),
    pub(crate) together: PerRelease,
    /// Each waiter with a session of its own.
    pub(crate) apart: Option<PerRelease>,
}

pub(super) fn measure(run: &Run) -> Result<Vec<Row<Counts>>> {
    let network = Network::Loopback;
    let mut rows = Vec::new();
    let mut contestants = run.bench.waiting();
    contestants.retain(|contestant| !matches!(contestant, Contestant::Own | Contestant::OwnApart));
    for contestant in contestants {
        let figure = run.round(contestant, "requests", || counts(run, contestant))?;
        rows.extend(figure.map(|figure| Row { contestant, network, figure }));
    }
    Ok(rows)
}

fn counts(run: &Run, contestant: Contestant) -> Result<Counts> {
    let cycle = {
        let mut crew = run.crew(contestant, 1, Network::Loopback, Placement::Dealt)?;
        // The first one makes the parents.
        crew.0[0].ask(Order::Cycle { count: 1 })?;
        run.site.is_quiet()?;
        let before = run.site.traffic()?;
        crew.0[0].ask(Order::Cycle { count: CYCLES })?;
        run.site.is_quiet()?;
        let (requests, notifications) = run.site.traffic()?.since(before);
        (requests / CYCLES as f64, notifications / CYCLES as f64)
    };
    let together = per_release(run, contestant, TOGETHER)?;
    let apart = if contestant.is_driven() { None } else { Some(per_release(run, contestant, EACH_ITS_OWN)?) };
    Ok(Counts { cycle, together, apart })
}

fn per_release(run: &Run, contestant: Contestant, shape: Shape) -> Result<PerRelease> {
    let mut crew = run.crew(contestant, shape.sessions, Network::Loopback, Placement::Dealt)?;
    let drain = Drain::fill(run, &mut crew, contestant, shape)?;
    let watches = drain.watches as f64 / shape.waiters as f64;
    let own_watches = drain.own_watches as f64;
    let drained = drain.go(run, &mut crew, Network::Loopback)?;
    run.site.is_quiet()?;
    let (requests, notifications) = run.site.traffic()?.since(drained.before);
    let releases = drained.sections.len() as f64;
    let woken = drained.woken as f64;
    Ok(PerRelease {
        requests: requests / releases,
        notifications: notifications / releases,
        watches,
        // The last release finds nobody.
        woken: woken / shape.waiters as f64,
        beside: (notifications - own_watches - woken) / releases,
    })
}

pub(super) fn tables(rows: &[Row<Counts>]) -> Vec<Table> {
    let mut table = Table::new(&[
        "as the server counts",
        "requests per cycle",
        "notifications",
        "requests per hand-over, 100 waiters in one session",
        "notifications",
        "watches per waiter",
        "requests per hand-over, 10 waiters in 10 sessions",
        "notifications",
        "watches per waiter",
    ]);
    for Row { contestant, figure, .. } in rows {
        let numbers = |of: PerRelease| [of.requests, of.notifications, of.watches].map(decimals);
        let apart = figure.apart.map_or_else(|| ["–", "–", "–"].map(str::to_owned), numbers);
        let cycle = [figure.cycle.0, figure.cycle.1].map(decimals);
        let cells = cycle.into_iter().chain(numbers(figure.together)).chain(apart);
        table.row([contestant.title().to_owned()].into_iter().chain(cells));
    }
    vec![table]
}
