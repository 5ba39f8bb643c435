//! The server's work: requests and notifications, by its own counters. Goals have the figures; there is no table.

use anyhow::Result;

use super::hand_over::{Drain, EACH_ITS_OWN};
use crate::contestant::Contestant;
use crate::crew::Placement;
use crate::measured::Figures;
use crate::run::Run;
use crate::what::{Network, Shape, What, one};

pub(super) fn measure(run: &Run) -> Result<()> {
    for contestant in run.bench.waiting(&[Contestant::Own, Contestant::OwnApart]) {
        let counts = || {
            let mut figures = per_release(run, contestant, one(100))?;
            if !contestant.is_driven() {
                figures.extend(per_release(run, contestant, EACH_ITS_OWN)?);
            }
            Ok(figures)
        };
        let figures = run.round(contestant, "requests", counts)?;
        run.found(contestant, Network::Loopback, figures.unwrap_or_default());
    }
    Ok(())
}

/// Requests of a queue in one session; of waiters in sessions of their own, notifications.
fn per_release(run: &Run, contestant: Contestant, shape: Shape) -> Result<Figures> {
    let mut crew = run.crew(contestant, shape.sessions, Network::Loopback, Placement::Dealt)?;
    let drain = Drain::fill(run, &mut crew, contestant, shape)?;
    let own_watches = drain.own_watches as f64;
    let drained = drain.go(run, &mut crew, Network::Loopback)?;
    run.site.is_quiet()?;
    let (requests, notifications) = run.site.traffic()?.since(drained.before);
    let releases = drained.sections.len() as f64;
    if shape.sessions == 1 {
        return Ok(vec![(What::QueueRequests, requests / releases)]);
    }
    let woken = drained.woken as f64;
    // The last release finds no waiter. The owner of a node that is deleted receives a notification of its own.
    let aside = (notifications - own_watches - woken) / releases;
    Ok(vec![(What::Woken, woken / shape.waiters as f64), (What::Aside, aside)])
}
