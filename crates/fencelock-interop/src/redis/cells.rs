//! The pairs of clients that are played on Redis, and the expected results.

use super::clients::{
    BOTH, COUNTING, FAIR, FAIR_LOCK, FENCED, PLAIN, PLAIN_LOCK, PLAIN_MUTEX, PYTHON_REDIS_LOCK, QUORUM, QUORUM_MUTEX,
    READ_LOCK, READ_LOCK_3_20, READS, REDIS_PY, REDIS_SEMAPHORE, REDISLOCK, REDISSON, REDISSON_FENCED, REDLOCK,
    REDLOCK_MUTEX, REDLOCK_QUORUM, REDSYNC, REDSYNC_QUORUM, RLOCK, RLOCK_3_20, RSLOCK, RSLOCK_QUORUM, SIGNALLING, SPIN,
    WRITE_LOCK, WRITE_LOCK_3_20, WRITES,
};
use crate::cells::Expected::{Granted, Refused, Shares, Sleeps, Waits};
use crate::cells::{Among, Cell, Pair, Scene, both_ways, chosen, pair};

/// Layout `plain` and every other client.
static PLAIN_PAIRS: [Pair; 23] = [
    pair(&PLAIN, &PLAIN, Waits, Waits),
    pair(&PLAIN, &REDIS_PY, Waits, Waits),
    pair(&PLAIN, &REDSYNC, Waits, Waits),
    pair(&PLAIN, &REDISLOCK, Waits, Waits),
    pair(&PLAIN, &REDLOCK, Waits, Waits),
    pair(&PLAIN, &RSLOCK, Waits, Waits),
    pair(&PLAIN_MUTEX, &REDIS_SEMAPHORE, Waits, Waits),
    // The client waits for a signal, which only its own kind pushes.
    pair(&PLAIN_LOCK, &PYTHON_REDIS_LOCK, Sleeps, Waits),
    pair(&SIGNALLING, &PYTHON_REDIS_LOCK, Waits, Waits),
    pair(&COUNTING, &REDISLOCK, Waits, Waits),
    // The key of python-redis-lock begins with `lock:`, and the other key with `mutex:`.
    pair(&PLAIN, &PYTHON_REDIS_LOCK, Granted, Granted),
    pair(&PLAIN, &REDIS_SEMAPHORE, Granted, Granted),
    // A hash: another kind of lock, which neither side touches.
    pair(&PLAIN, &RLOCK, Refused, Refused),
    pair(&PLAIN, &RLOCK_3_20, Refused, Refused),
    pair(&PLAIN, &SPIN, Refused, Refused),
    pair(&PLAIN, &FENCED, Refused, Refused),
    pair(&PLAIN, &FAIR_LOCK, Refused, Refused),
    pair(&PLAIN, &WRITE_LOCK, Refused, Refused),
    pair(&PLAIN, &READ_LOCK, Refused, Refused),
    // Our own queue has other keys.
    pair(&PLAIN, &FAIR, Granted, Granted),
    // A client that moves takes both locks, which exclude it from clients that did not begin and clients that are done.
    pair(&BOTH, &REDIS_PY, Waits, Waits),
    pair(&BOTH, &FAIR, Waits, Waits),
    pair(&BOTH, &PLAIN, Waits, Waits),
];

/// Layouts `redisson` and `redisson-fenced` and every other client.
static REDISSON_PAIRS: [Pair; 27] = [
    pair(&REDISSON, &REDISSON, Waits, Waits),
    pair(&REDISSON, &REDISSON_FENCED, Waits, Waits),
    pair(&REDISSON, &RLOCK, Waits, Waits),
    pair(&REDISSON, &RLOCK_3_20, Waits, Waits),
    pair(&REDISSON, &SPIN, Waits, Waits),
    pair(&REDISSON, &FENCED, Waits, Waits),
    pair(&REDISSON, &FAIR_LOCK, Waits, Waits),
    pair(&REDISSON_FENCED, &RLOCK, Waits, Waits),
    pair(&REDISSON_FENCED, &FENCED, Waits, Waits),
    // The lock's waiters listen on another channel. The write lock's client finds another kind of lock.
    pair(&REDISSON, &WRITE_LOCK, Sleeps, Refused),
    pair(&REDISSON, &READ_LOCK, Sleeps, Refused),
    pair(&WRITES, &WRITES, Waits, Waits),
    pair(&WRITES, &READS, Waits, Waits),
    pair(&READS, &READS, Shares, Shares),
    pair(&WRITES, &WRITE_LOCK, Waits, Waits),
    pair(&WRITES, &READ_LOCK, Waits, Waits),
    pair(&READS, &WRITE_LOCK, Waits, Waits),
    pair(&READS, &READ_LOCK, Shares, Shares),
    pair(&WRITES, &WRITE_LOCK_3_20, Waits, Waits),
    pair(&WRITES, &READ_LOCK_3_20, Waits, Waits),
    pair(&READS, &WRITE_LOCK_3_20, Waits, Waits),
    pair(&READS, &READ_LOCK_3_20, Shares, Shares),
    // A mutex and a read-write lock: the client listens on another channel; we see another kind of lock.
    pair(&WRITES, &RLOCK, Sleeps, Refused),
    pair(&WRITES, &REDISSON, Refused, Refused),
    // A client that only sets a string takes the hash for somebody's lock.
    pair(&REDISSON, &REDIS_PY, Waits, Refused),
    pair(&REDISSON, &REDISLOCK, Refused, Refused),
    pair(&REDISSON, &PLAIN, Refused, Refused),
];

/// Redlock and every other client, each on the same three masters.
static QUORUM_PAIRS: [Pair; 5] = [
    pair(&QUORUM, &QUORUM, Waits, Waits),
    pair(&QUORUM, &REDSYNC_QUORUM, Waits, Waits),
    pair(&QUORUM, &REDLOCK_QUORUM, Waits, Waits),
    pair(&QUORUM, &RSLOCK_QUORUM, Waits, Waits),
    pair(&QUORUM_MUTEX, &REDLOCK_MUTEX, Waits, Waits),
];

fn pairs() -> impl Iterator<Item = &'static Pair> {
    PLAIN_PAIRS.iter().chain(&REDISSON_PAIRS).chain(&QUORUM_PAIRS)
}

/// Every cell in both directions, the slowest first.
pub(crate) fn all(among: Among) -> Vec<Cell> {
    let outages = [Scene::Killed, Scene::Silent].map(|scene| {
        let of_masters = QUORUM_PAIRS.iter().flat_map(both_ways);
        of_masters.map(move |cell| Cell { mutual: false, scene, ..cell })
    });
    let mut cells = chosen(among, pairs().flat_map(both_ways).chain(outages.into_iter().flatten()).collect());
    cells.sort_by_key(|cell| (cell.expected != Sleeps, cell.expected != Waits));
    cells
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cells::{is_no_exclusion, words_of, written};

    #[test]
    fn the_documents_say_of_every_pair_what_is_played() {
        let (text, pages) = written("redis", &["redis-locks", "redisson"]);
        for Pair { first, second, second_tries, first_tries } in pairs() {
            let words = (words_of(*second_tries), words_of(*first_tries));
            let row = format!("| {} | {} | {} | {} |\n", first.title, second.title, words.0, words.1);
            assert!(text.contains(&row), "interop/who-waits-redis.md lacks: {row}");
            let is_told = ![*second_tries, *first_tries].iter().any(is_no_exclusion) || pages.contains(&row);
            assert!(is_told, "no page says: {row}");
        }
        let is_ours = |line: &str| line.starts_with("| fencelock layout=") || line.starts_with("| fencelock redlock:");
        let is_pair = |line: &&str| is_ours(line) && line.matches(" | ").count() == 3;
        let rows = text.lines().filter(is_pair).count();
        assert_eq!(rows, pairs().count());
    }

    #[test]
    fn every_pair_is_played_both_ways_and_once() {
        let cells = all(Among::All);
        let ways: std::collections::BTreeSet<_> =
            cells.iter().map(|cell| (cell.holder.title, cell.contender.title, cell.scene)).collect();
        assert_eq!(ways.len(), cells.len());
        assert!(cells.iter().all(|cell| ways.contains(&(cell.contender.title, cell.holder.title, cell.scene))));
    }
}
