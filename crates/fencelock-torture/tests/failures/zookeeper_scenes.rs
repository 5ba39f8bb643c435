//! What a lock's users on ZooKeeper see when one thing goes wrong at one moment.

use std::sync::Arc;

use crate::common::{Servers, Set, count};
use fencelock_testbed::zookeeper::Ensemble;
use fencelock_torture::zookeeper::ZooKeeper;

static SERVERS: Servers<Arc<Ensemble>> = Servers::new(|| ZooKeeper::start(count()));

fencelock_conformance::scenes!(|| Set::on(&SERVERS));
