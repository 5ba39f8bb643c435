//! What judges locks is judged: the checker of histories, the resource that objects, and the laws by stores that break them.

mod history_differential;
mod history_log;
mod history_planted;
mod mutants;
mod resource;
mod tiers;
