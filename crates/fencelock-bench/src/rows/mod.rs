//! What the commands share: a row, whom it is about, and how everybody takes turns. One file for each family of rows,
//! which measures and makes the table: `cycle` and `shared` on every store, `contended`, `hand_over` and `memory` on those without
//! a server. What only servers have is in `network/`.

pub(crate) mod contended;
pub(crate) mod cycle;
pub(crate) mod hand_over;
pub(crate) mod memory;
pub(crate) mod shared;

use anyhow::Result;

use crate::contestant::Contestant;
use crate::network::server::Network;

/// What was measured of one contestant behind one network.
#[derive(Debug, Clone)]
pub(crate) struct Row<T> {
    pub(crate) contestant: Contestant,
    pub(crate) network: Network,
    pub(crate) figure: T,
}

impl<T> Row<T> {
    /// Of a store without a server.
    pub(crate) const fn here(contestant: Contestant, figure: T) -> Self {
        Self { contestant, network: Network::Loopback, figure }
    }
}

/// The figure of `contestant` on `network`, if it took part.
pub(crate) fn figure<T>(rows: &[Row<T>], contestant: Contestant, network: Network) -> Option<&T> {
    rows.iter().find(|row| (row.contestant, row.network) == (contestant, network)).map(|row| &row.figure)
}

/// The figure of `contestant` on a store without a server.
pub(crate) fn figure_here<T>(rows: &[Row<T>], contestant: Contestant) -> Option<&T> {
    figure(rows, contestant, Network::Loopback)
}

/// Lets everybody take turns, so that a noisy moment meets all alike: of each contestant what its rounds found. A round may
/// find nothing; a contestant of whom no round found anything is left out.
pub(crate) fn take_turns<T>(
    contestants: &[Contestant],
    rounds: usize,
    mut round: impl FnMut(Contestant) -> Result<Option<T>>,
) -> Result<Vec<(Contestant, Vec<T>)>> {
    let mut found: Vec<_> = contestants.iter().map(|contestant| (*contestant, Vec::new())).collect();
    for _ in 0..rounds {
        for (contestant, found) in &mut found {
            found.extend(round(*contestant)?);
        }
    }
    found.retain(|(_, found)| !found.is_empty());
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn everybody_has_a_turn_in_each_round_and_a_contestant_without_figures_has_no_row() {
        let mut turns = Vec::new();
        let contestants = [Contestant::Own, Contestant::Rslock, Contestant::RedisFloor];
        let found = take_turns(&contestants, 2, |contestant| {
            turns.push(contestant);
            Ok((contestant != Contestant::Rslock).then_some(turns.len()))
        });
        assert_eq!(turns, [contestants, contestants].concat());
        assert_eq!(found.unwrap(), [(Contestant::Own, vec![1, 4]), (Contestant::RedisFloor, vec![3, 6])]);
    }
}
