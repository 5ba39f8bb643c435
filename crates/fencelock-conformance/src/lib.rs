//! What a lock must keep, as code: laws for stores, a checker of histories, and a harness that hurts processes.

pub mod history;
