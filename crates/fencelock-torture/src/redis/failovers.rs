//! Experiments on servers that replace their primary by themselves. Each round has its own servers.

use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

use clap::ValueEnum;
use fencelock::blocking::Client;
use fencelock_lab::Site as _;
use fencelock_testbed::redis::{Cluster, Watched, cut_replicas_off};
use fencelock_testbed::{PATIENCE, Way, wait_for};

use super::contestants::Held;
use super::experiment::Experiment::{self, FailoverAtOnce, FailoverCutOff, FailoverLagging, Split};
use super::findings::{Findings, Round};
use super::{Several, settings};
use crate::bed::{Bed, Breakable};
use crate::table::site_name;

/// The ttl that clients have by default.
const TTL: Duration = Duration::from_secs(10);

/// Servers that replace their primary.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Replicated {
    /// A primary with two replicas, and three Sentinels.
    Sentinel,
    /// Three primaries of a Cluster with a replica each.
    Cluster,
}

impl Replicated {
    /// Runs `times` rounds of a failover or a split with fencelock's default layout, `at_once` at a time; other experiments are not possible there.
    pub fn run(self, what: Experiment, min_replicas: u32, times: usize, at_once: usize) -> io::Result<Findings> {
        if !matches!(what, FailoverAtOnce | FailoverLagging | FailoverCutOff | Split) {
            return Err(io::ErrorKind::Unsupported.into());
        }
        let options = format!("min_replicas={min_replicas}&ttl_ms={}", TTL.as_millis());
        let title = format!("{self:?}, `min_replicas={min_replicas}`");
        Findings::count((what, title), (times, at_once), || {
            let options = options.clone();
            let bed = match self {
                Self::Sentinel => Several::Watched(Watched::start(2, &settings(true), &[])?, options),
                Self::Cluster => Several::Cluster(Cluster::start(true, 500, &settings(true))?, options),
            };
            round(&Arc::new(bed), what)
        })
    }
}

fn round(bed: &Arc<Several>, what: Experiment) -> io::Result<Round> {
    let site = Breakable::new(&(Arc::clone(bed) as Arc<dyn Bed>), &site_name(), 2)?;
    let [client, rival] = [0, 1].map(|number| Client::connect(site.url(number)).map_err(io::Error::other));
    let (client, rival) = (client?, rival?);
    let old = &bed.all()[bed.leader()];
    let lagging =
        if matches!(what, FailoverLagging | FailoverCutOff) { cut_replicas_off(bed.all(), old)? } else { Vec::new() };
    let Ok(Some(first)) = Held::of(&client, if lagging.is_empty() { PATIENCE } else { TTL / 4 }) else {
        // Without a replica no grant is acknowledged.
        return if lagging.is_empty() { Err(io::Error::other("no first grant")) } else { Ok(Round::default()) };
    };
    let happened = Instant::now();
    if what == Split {
        old.pause();
    } else {
        site.ways.of(0).iter().filter(|_| what == FailoverCutOff).for_each(|way| way.hold(Way::Both));
        old.kill();
        lagging.iter().for_each(|replica| replica.resume());
    }
    wait_for("a replica is promoted", || bed.all()[bed.leader()].address() != old.address())?;
    // In a Cluster the new primary has no replica until then.
    match what {
        Split => old.resume(),
        _ => old.restart()?,
    }
    let second = Held::of(&rival, PATIENCE)?.ok_or_else(|| io::Error::other("no second grant"))?;
    Round::of((&first, &second), (happened.elapsed(), TTL * 2), |_| Ok(()))
}
