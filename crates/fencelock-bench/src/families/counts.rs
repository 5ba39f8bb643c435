//! What the server has to do: requests and notifications, as it counts them itself. The goals say it; there is no table.

use anyhow::Result;

use super::Row;
use super::hand_over::{Drain, EACH_ITS_OWN, Shape};
use crate::contestant::Contestant;
use crate::crew::Placement;
use crate::run::Run;
use crate::site::Network;

const TOGETHER: Shape = Shape { waiters: 100, sessions: 1 };

/// Requests and notifications of one queue.
#[derive(Debug, Clone, Copy)]
pub(crate) struct PerRelease {
    pub(crate) requests: f64,
    /// Wake-ups of waiters, where the contestant counts them.
    pub(crate) woken: f64,
    /// Notifications to whom neither the release was nor the lock: off the way of the hand-over.
    pub(crate) beside: f64,
}

#[derive(Debug, Clone, Copy)]
pub(crate) struct Counts {
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
    let together = per_release(run, contestant, TOGETHER)?;
    let apart = if contestant.is_driven() { None } else { Some(per_release(run, contestant, EACH_ITS_OWN)?) };
    Ok(Counts { together, apart })
}

fn per_release(run: &Run, contestant: Contestant, shape: Shape) -> Result<PerRelease> {
    let mut crew = run.crew(contestant, shape.sessions, Network::Loopback, Placement::Dealt)?;
    let drain = Drain::fill(run, &mut crew, contestant, shape)?;
    let own_watches = drain.own_watches as f64;
    let drained = drain.go(run, &mut crew, Network::Loopback)?;
    run.site.is_quiet()?;
    let (requests, notifications) = run.site.traffic()?.since(drained.before);
    let releases = drained.sections.len() as f64;
    let woken = drained.woken as f64;
    Ok(PerRelease {
        requests: requests / releases,
        // The last release finds nobody.
        woken: woken / shape.waiters as f64,
        beside: (notifications - own_watches - woken) / releases,
    })
}
