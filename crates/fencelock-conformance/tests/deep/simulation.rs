//! The simulation for minutes: as many seeds as a time allows.

use std::time::{Duration, Instant};

use crate::judge_again;

#[allow(dead_code, reason = "the gate's tests have further flaws")]
#[path = "../harness/mutants/mutant.rs"]
mod mutant;
#[path = "../harness/sim/mod.rs"]
mod sim;

use mutant::{Flaw, Mutant};

/// The real time that the runs take together. `FENCELOCK_SIMULATION_MINUTES` changes it.
const MINUTES: u64 = 2;

#[test]
fn clusters_of_clients_keep_the_laws_under_the_faults_of_every_seed() {
    let minutes = std::env::var("FENCELOCK_SIMULATION_MINUTES").ok().and_then(|minutes| minutes.parse().ok());
    let (start, end) = (Instant::now(), Duration::from_secs(60 * minutes.unwrap_or(MINUTES)));
    let first = fencelock_conformance::seed();
    let (mut runs, mut sections, mut faults, mut time) = (0, 0, 0, Duration::ZERO);
    while start.elapsed() < end {
        let played = sim::play(first.wrapping_add(runs), sim::sound());
        played.expect_sound();
        runs += 1;
        sections += played.sections;
        faults += played.faults;
        time += played.time;
    }
    let (hours, minutes) = (time.as_secs_f64() / 3600.0, start.elapsed().as_secs_f64() / 60.0);
    println!("seeds {first} and {runs} more: {sections} sections, {faults} faults");
    println!("{hours:.1} virtual hours, {:.1} each minute of real time", hours / minutes);
}

#[test]
fn both_judges_notice_a_store_that_breaks_a_law_of_histories() {
    let flaws = [
        Flaw::GrantsTwice,
        Flaw::ForgetsRenewals,
        Flaw::OnlyMutexesExclude,
        Flaw::ReusesTokens,
        Flaw::RejoinsAtTheTail,
    ];
    for flaw in flaws {
        let is_noticed = |seed| {
            let mutant = Mutant::new(flaw);
            let played = sim::play(seed, Box::new(move |store| mutant.around(store)));
            judge_again(&played.history, played.is_possible);
            !played.is_possible
        };
        // The seeds of the gate.
        assert!((1..=24).any(is_noticed), "{flaw:?} was not noticed");
    }
}
