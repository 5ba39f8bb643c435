//! Whether the servers of an ensemble hold the same data.
//!
//! ZooKeeper before 3.8.4 and 3.9.2 can lose transactions when a follower joins its leader while there are writes (ZOOKEEPER-4785,
//! ZOOKEEPER-4394 and others): from then on that follower lacks nodes, or keeps deleted ones, as long as it keeps its data, and its
//! clients wait for deleted nodes. No client can know. Operators compare the digests that servers keep of their data, and give such
//! a server a new copy. The drills do that, too, and say so.

use std::collections::BTreeMap;
use std::io;
use std::time::Duration;

use fencelock_testbed::zookeeper::Ensemble;
use fencelock_testbed::{PATIENCE, wait_until};

use super::limits::Hands;

/// Servers note a digest every 128 transactions.
const UNTIL_A_DIGEST: usize = 2 * 128;

/// The number of new copies for a server before the repair counts as failed.
const TRIES: usize = 5;

/// Between two looks.
const PAUSE: Duration = Duration::from_millis(10);

/// Gives every server that disagrees with the majority a new copy of the data. Says which ones did.
///
/// On a thread of its own: the caller may be on a runtime, which lets no other task wait on it.
pub(super) fn restore(ensemble: &Ensemble) -> io::Result<Vec<usize>> {
    let restored = std::thread::scope(|scope| scope.spawn(|| agree(ensemble)).join());
    restored.unwrap_or_else(|panic| std::panic::resume_unwind(panic))
}

fn agree(ensemble: &Ensemble) -> io::Result<Vec<usize>> {
    let (mut restored, mut interrupted) = (Vec::new(), None);
    for _try in 0..TRIES {
        let dissenters = match dissenters(ensemble) {
            Ok(dissenters) => dissenters,
            // There is another leader by now.
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {
                interrupted = Some(error.to_string());
                continue;
            }
            Err(error) => return Err(error),
        };
        if dissenters.is_empty() {
            return Ok(restored);
        }
        for number in dissenters {
            ensemble.server(number).forget()?;
            ensemble.wait_until_serving()?;
            restored.push(number);
        }
    }
    let interrupted = interrupted.unwrap_or_default();
    Err(io::Error::other(format!("the servers do not come to agree; restored: {restored:?}; at last: {interrupted}")))
}

/// The servers with other data than the majority's.
fn dissenters(ensemble: &Ensemble) -> io::Result<Vec<usize>> {
    let interrupted = |error: io::Error| io::Error::new(io::ErrorKind::Interrupted, error);
    let hands = Hands::new(ensemble)?;
    let since = hands.pass_transactions(UNTIL_A_DIGEST).map_err(interrupted)?;
    hands.leave().map_err(interrupted)?;
    let mut digests = Vec::new();
    let is_there = wait_until(PATIENCE, || {
        let all: io::Result<Vec<_>> = ensemble.servers().iter().map(|server| server.digests()).collect();
        digests = all.ok().and_then(|all| newest_of_all(&all, since)).unwrap_or_default();
        std::thread::sleep(if digests.is_empty() { PAUSE } else { Duration::ZERO });
        !digests.is_empty()
    });
    match is_there {
        true => minority(&digests).ok_or_else(|| io::Error::other(format!("no majority agrees: {digests:?}"))),
        false => Err(io::Error::new(io::ErrorKind::Interrupted, "the servers have no transaction in common")),
    }
}

/// The reports of each on the newest transaction after `since` that all report.
fn newest_of_all(all: &[BTreeMap<i64, i64>], since: i64) -> Option<Vec<i64>> {
    let (first, others) = all.split_first()?;
    let known = |zxid: &i64| others.iter().all(|digests| digests.contains_key(zxid));
    let newest = *first.range(since + 1..).rev().map(|(zxid, _)| zxid).find(|zxid| known(zxid))?;
    Some(all.iter().filter_map(|digests| digests.get(&newest).copied()).collect())
}

/// The servers that hold another digest than most do, if most agree.
fn minority(digests: &[i64]) -> Option<Vec<usize>> {
    let holders = |digest: i64| digests.iter().filter(|other| **other == digest).count();
    let most = *digests.iter().find(|digest| holders(**digest) > digests.len() / 2)?;
    Some((0..digests.len()).filter(|number| digests[*number] != most).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_common_transaction_shows_which_server_disagrees() {
        let digests = |all: &[(i64, i64)]| all.iter().copied().collect::<BTreeMap<_, _>>();
        let (one, two, three) =
            (digests(&[(1, 5), (2, 6), (3, 7)]), digests(&[(1, 5), (2, 6)]), digests(&[(1, 4), (2, 9), (3, 7)]));
        let all = [one, two, three];
        assert_eq!(newest_of_all(&all, 0), Some(vec![6, 6, 9]));
        assert_eq!(newest_of_all(&all, 2), None);
        assert_eq!(minority(&[6, 6, 9]), Some(vec![2]));
        assert_eq!(minority(&[6, 6, 6]), Some(Vec::new()));
        assert_eq!(minority(&[5, 6, 9]), None);
    }
}
