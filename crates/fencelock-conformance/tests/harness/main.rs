//! The judges of locks are judged: the checker of histories, the resource that objects, and the laws by stores that break
//! them. And a simulation plays clusters of clients.

mod history_differential;
mod history_log;
mod history_planted;
mod ledger;
mod mutants;
mod resource;
mod sim;
mod simulation;
mod tiers;

/// In the deep tier another judge looks at planted and simulated histories, too.
fn judge_again(_: &fencelock_lab::history::History, _is_possible: bool) {}
