//! Scenes that need nothing but processes, over the store `file:`.

use std::sync::Arc;
use std::time::Duration;

use fencelock_conformance::scenes::{Stage, play, scenes};
use fencelock_lab::Site;

#[derive(Debug)]
struct Directory(String);

impl Site for Directory {
    fn url(&self, _worker: usize) -> String {
        self.0.clone()
    }

    fn ttl(&self) -> Duration {
        Duration::from_secs(1)
    }
}

#[test]
fn scenes_without_a_network_are_as_promised() {
    for scene in scenes().iter().filter(|scene| scene.needs.is_empty()) {
        let directory = tempfile::tempdir().unwrap();
        let stage = Stage {
            site: Arc::new(Directory(format!("file://{}/store?ttl_ms=2000", directory.path().display()))),
            holder: env!("CARGO_BIN_EXE_fencelock-conformance-holder").into(),
            directory: directory.path().to_owned(),
            seed: 1,
        };
        play(scene.name, &stage);
    }
}
