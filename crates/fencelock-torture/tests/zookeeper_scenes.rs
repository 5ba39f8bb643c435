//! What a lock's users on ZooKeeper see when one thing goes wrong at one moment.

mod common;

use std::sync::Arc;

use common::{Servers, Set};
use fencelock_testbed::zookeeper::Ensemble;
use fencelock_torture::zookeeper::ZooKeeper;

static THREE: Servers<Arc<Ensemble>> = Servers::new(|| ZooKeeper::start(3));

fencelock_conformance::scenes!(|| Set::on(&THREE));
