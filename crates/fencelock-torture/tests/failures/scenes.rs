//! The view of a lock's users when a single thing goes wrong at one moment: every scene, on the topologies that are named here, unless their servers
//! cannot suffer what the scene needs.

use std::sync::Arc;

use fencelock_conformance::scenes::{Stage, play, scenes};
use fencelock_lab::Site;
use fencelock_torture::Breakable;
use fencelock_torture::table::{TOPOLOGIES, site_name};

use crate::common::{Directory, topology};

fn plays_every_scene_on(name: &str) {
    let topology = topology(name);
    let bed = (topology.start)().unwrap();
    let unplayed = topology.unplayed.unwrap();
    for scene in scenes().iter().filter(|scene| !unplayed.contains(&scene.name)) {
        let directory = Directory::new("scene");
        let site = Arc::new(Breakable::new(&bed, &site_name(), 2).unwrap());
        site.heal().unwrap();
        let stage = Stage {
            site,
            holder: env!("CARGO_BIN_EXE_fencelock-torture-holder").into(),
            directory: directory.path().to_owned(),
            seed: fencelock_conformance::seed(),
        };
        println!("{name}: {}", scene.name);
        play(scene.name, &stage);
    }
    assert!(unplayed.iter().all(|name| scenes().iter().any(|scene| scene.name == *name)), "{unplayed:?}");
}

#[test]
fn redis() {
    plays_every_scene_on("redis");
}

#[test]
fn postgres() {
    plays_every_scene_on("postgres");
}

#[test]
fn zookeeper_three() {
    plays_every_scene_on("zookeeper-three");
}

#[test]
fn every_topology_with_scenes_has_a_test_here() {
    let with_scenes = TOPOLOGIES.iter().filter(|topology| topology.unplayed.is_some());
    assert_eq!(with_scenes.map(|topology| topology.name).collect::<Vec<_>>(), ["redis", "postgres", "zookeeper-three"]);
}
