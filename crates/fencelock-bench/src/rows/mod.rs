//! The families of rows: one file each, which measures and makes the table.

pub(crate) mod contended;
pub(crate) mod cycle;
pub(crate) mod hand_over;
pub(crate) mod memory;
pub(crate) mod shared;

use crate::contestant::Contestant;

/// What was measured of one contestant.
#[derive(Debug, Clone)]
pub(crate) struct Row<T> {
    pub(crate) contestant: Contestant,
    pub(crate) figure: T,
}

/// The figure of `contestant`, if it took part.
pub(crate) fn figure<T>(rows: &[Row<T>], contestant: Contestant) -> Option<&T> {
    rows.iter().find(|row| row.contestant == contestant).map(|row| &row.figure)
}
