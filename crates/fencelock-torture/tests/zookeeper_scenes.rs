//! What a lock's users on ZooKeeper see when one thing goes wrong at one moment.

mod common;

use std::sync::Arc;

use common::{Directory, Servers, Taken};
use fencelock_conformance::scenes::Stage;

static THREE: Servers = Servers::new(3);

/// A stage, and what is taken for it.
struct Set {
    stage: Stage,
    _servers: Taken<'static>,
    _directory: Directory,
}

impl AsRef<Stage> for Set {
    fn as_ref(&self) -> &Stage {
        &self.stage
    }
}

fn set() -> Set {
    let servers = THREE.take();
    let directory = Directory::new("scene");
    let stage = Stage {
        site: Arc::new(servers.site(2)),
        holder: env!("CARGO_BIN_EXE_fencelock-torture-holder").into(),
        directory: directory.path().to_owned(),
        seed: fencelock_conformance::seed(),
    };
    Set { stage, _servers: servers, _directory: directory }
}

fencelock_conformance::scenes!(set);
