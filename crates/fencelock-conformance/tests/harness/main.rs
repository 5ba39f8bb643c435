//! What judges locks is judged: the checker of histories, the resource that objects, the drills, and the laws by stores that break them.

mod faults;
mod history_differential;
mod history_log;
mod history_planted;
mod mutants;
mod processes_file;
mod resource;
mod scenes_file;
