//! ZooKeeper on hosts of their own, between which packets are dropped: nothing is accepted and held for later, as a proxy
//! does it, so that connections time out, data is sent again, and attempts to connect are never answered.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use fencelock_lab::{Outage, Site};
use fencelock_testbed::Network;
use fencelock_testbed::zookeeper::{Ensemble, Server, Settings};

use crate::zookeeper::{ZooKeeper, other_than};

/// Three servers, each on a host of its own. Needs root. A client that wants to reach them does so from
/// [`inside`](Network::inside) of the network.
#[derive(Debug)]
pub struct ZooKeeperHosts {
    ensemble: Ensemble,
    network: Arc<Network>,
}

impl ZooKeeperHosts {
    /// Starts the hosts and the servers.
    ///
    /// # Errors
    /// Without root, or when the servers do not start.
    pub fn start() -> io::Result<Self> {
        let network = Arc::new(Network::start(3)?);
        let settings = Settings { servers: 3, network: Some(Arc::clone(&network)), ..Settings::default() };
        let ensemble = Ensemble::start(settings.with("forceSync", "no"))?;
        Ok(Self { ensemble, network })
    }

    /// The network of the hosts.
    #[must_use]
    pub fn network(&self) -> Arc<Network> {
        Arc::clone(&self.network)
    }
}

impl Site for ZooKeeperHosts {
    fn url(&self, _worker: usize) -> String {
        let addresses: Vec<String> = self.ensemble.servers().map(Server::address).map(|at| at.to_string()).collect();
        ZooKeeper::url(&addresses.join(","), "/locks", self.ensemble.tick_ms())
    }

    fn ttl(&self) -> Duration {
        ZooKeeper::TTL
    }

    fn can(&self, outage: Outage) -> bool {
        matches!(outage, Outage::LeaderKilled | Outage::LeaderPaused | Outage::LeaderCutOff | Outage::FollowerCut)
    }

    fn strike(&self, outage: Outage, _worker: usize, random: u64) -> io::Result<()> {
        let leader = self.ensemble.leader();
        match outage {
            Outage::LeaderKilled => self.ensemble.server(leader).kill(),
            Outage::LeaderPaused => self.ensemble.server(leader).pause(),
            Outage::LeaderCutOff => self.network.pull_cable(leader)?,
            Outage::FollowerCut => {
                let any = usize::try_from(random % 3).unwrap_or(0);
                self.network.cut(other_than(leader, any, 3), leader)?;
            }
            other => return Err(io::Error::new(io::ErrorKind::Unsupported, format!("{other:?}"))),
        }
        Ok(())
    }

    fn heal(&self) -> io::Result<()> {
        self.network.heal()?;
        self.ensemble.heal()
    }
}
