//! The use of locks by processes, and whether a correct lock allows it.
//!
//! A history of an exclusive lock is linearizable exactly when the *cores* of its sections are pairwise disjoint: a
//! core reaches from the moment that the acquire was answered to the moment that the release was called. The condition is
//! necessary, since every section contains its core; and sufficient, since no other choice of the two points gives a
//! smaller section. Readers and permits are the same with weights. So a check is a sort and a sweep, and not a search.
//!
//! There are two verdicts, see [`Report`]: whether two *live* holders ever believed in their locks at once, and whether
//! the *resource* ever accepted an older token after a newer one. The second must hold always; the first can fail when
//! a process is paused or a clock lies, which no client can prevent without the resource's help.
//!
//! A clean report on one history is no proof: this run broke none of the laws checked.

mod busy;
mod check;
mod cores;
mod log;
mod read;
mod register;
mod section;

pub use check::{Law, Laws, Report, Violation, check};
pub use log::{Line, LogEvent, LogWriter, RegisterLog};
pub use read::read_directory;
pub use section::{Answer, Enqueue, History, Lapse, Section, Write};
