//! Who is played against whom, and what must come of it.

use crate::clients::{
    BARE, CURATOR, CURATOR_54, CURATOR_59, CURATOR_READ, CURATOR_SEMAPHORE, CURATOR_SEMAPHORE_MUTEX, CURATOR_WRITE,
    Client, GO_LOCK, KAZOO, KAZOO_EXTRA, KAZOO_LOCK, KAZOO_READ, KAZOO_SEMAPHORE, KAZOO_WRITE, OWN, PLAIN, Program,
    SHARED, ZK_LOCK,
};

/// What happens to somebody who tries while another holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Expected {
    /// It waits.
    Waits,
    /// It gets the lock as well: the two do not exclude each other in this direction, and nothing can make them.
    Granted,
    /// It gets it as well, as readers should.
    Shares,
    /// It is told that the lock is another kind of lock.
    Refused,
}

/// One holder and one who tries.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Cell {
    pub(crate) holder: &'static Client,
    pub(crate) contender: &'static Client,
    pub(crate) expected: Expected,
    /// Whether each waits for the other, so that both may count together.
    pub(crate) mutual: bool,
}

impl Cell {
    /// Whether two processes of each side take part where more than two can: where fencelock does, and only one may hold.
    pub(crate) fn has_twins(&self) -> bool {
        let sides = [self.holder, self.contender];
        let is_ours = sides.iter().any(|client| client.program == Program::Fencelock);
        is_ours && self.mutual && !sides.iter().any(|client| client.is_shared())
    }
}

/// Two clients: what the second does while the first holds, and the other way round.
struct Pair {
    first: &'static Client,
    second: &'static Client,
    second_tries: Expected,
    first_tries: Expected,
}

const fn pair(first: &'static Client, second: &'static Client, second_tries: Expected, first_tries: Expected) -> Pair {
    Pair { first, second, second_tries, first_tries }
}

use Expected::{Granted, Refused, Shares, Waits};

/// fencelock and everybody else.
static OURS: [Pair; 21] = [
    pair(&CURATOR, &CURATOR, Waits, Waits),
    pair(&CURATOR, &CURATOR_59, Waits, Waits),
    pair(&CURATOR, &CURATOR_54, Waits, Waits),
    pair(&CURATOR, &GO_LOCK, Waits, Waits),
    pair(&CURATOR, &KAZOO_EXTRA, Waits, Waits),
    pair(&CURATOR, &PLAIN, Waits, Waits),
    pair(&CURATOR, &KAZOO, Waits, Waits),
    // kazoo without extra patterns does not see what Curator's family writes.
    pair(&CURATOR, &KAZOO_LOCK, Granted, Waits),
    // Curator's read-write lock does not see its mutexes; we see the other kind of lock, and refuse.
    pair(&CURATOR, &CURATOR_WRITE, Granted, Refused),
    pair(&CURATOR, &CURATOR_READ, Granted, Refused),
    pair(&KAZOO, &KAZOO_LOCK, Waits, Waits),
    pair(&KAZOO, &KAZOO_EXTRA, Waits, Waits),
    pair(&KAZOO, &KAZOO_WRITE, Waits, Waits),
    pair(&KAZOO, &KAZOO_READ, Waits, Waits),
    pair(&KAZOO, &GO_LOCK, Waits, Waits),
    pair(&KAZOO, &PLAIN, Waits, Waits),
    // Curator does not see what kazoo writes.
    pair(&KAZOO, &CURATOR_59, Granted, Waits),
    pair(&KAZOO, &CURATOR_54, Granted, Waits),
    pair(&SHARED, &ZK_LOCK, Waits, Waits),
    pair(&SHARED, &BARE, Waits, Waits),
    // Our names begin with an id, as those do that survive a lost reply; who looks for names that begin with the key misses them.
    pair(&SHARED, &OWN, Granted, Waits),
];

/// The others among each other.
static OTHERS: [Pair; 27] = [
    pair(&CURATOR_59, &CURATOR_59, Waits, Waits),
    pair(&CURATOR_59, &CURATOR_54, Waits, Waits),
    pair(&CURATOR_59, &GO_LOCK, Waits, Waits),
    pair(&CURATOR_59, &PLAIN, Waits, Waits),
    pair(&CURATOR_59, &KAZOO_EXTRA, Waits, Granted),
    pair(&CURATOR_59, &KAZOO_LOCK, Granted, Granted),
    pair(&CURATOR_59, &CURATOR_WRITE, Granted, Granted),
    pair(&GO_LOCK, &GO_LOCK, Waits, Waits),
    pair(&GO_LOCK, &KAZOO_EXTRA, Waits, Waits),
    pair(&GO_LOCK, &KAZOO_LOCK, Granted, Waits),
    pair(&GO_LOCK, &PLAIN, Waits, Waits),
    pair(&KAZOO_LOCK, &KAZOO_LOCK, Waits, Waits),
    pair(&KAZOO_LOCK, &KAZOO_EXTRA, Waits, Waits),
    // The extra pattern has a dash in front, which the bare name has not.
    pair(&KAZOO_EXTRA, &PLAIN, Waits, Granted),
    pair(&PLAIN, &PLAIN, Waits, Waits),
    pair(&ZK_LOCK, &ZK_LOCK, Waits, Waits),
    pair(&CURATOR_WRITE, &CURATOR_WRITE, Waits, Waits),
    pair(&CURATOR_WRITE, &CURATOR_READ, Waits, Waits),
    pair(&CURATOR_READ, &CURATOR_READ, Shares, Shares),
    pair(&CURATOR_WRITE, &GO_LOCK, Waits, Granted),
    pair(&KAZOO_WRITE, &KAZOO_WRITE, Waits, Waits),
    pair(&KAZOO_WRITE, &KAZOO_READ, Waits, Waits),
    pair(&KAZOO_READ, &KAZOO_READ, Shares, Shares),
    // kazoo's plain lock does not look at readers.
    pair(&KAZOO_LOCK, &KAZOO_READ, Waits, Granted),
    pair(&KAZOO_SEMAPHORE, &KAZOO_SEMAPHORE, Waits, Waits),
    pair(&CURATOR_SEMAPHORE_MUTEX, &CURATOR_SEMAPHORE_MUTEX, Waits, Waits),
    pair(&CURATOR_SEMAPHORE_MUTEX, &CURATOR_SEMAPHORE, Waits, Waits),
];

/// Which pairs are played.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Among {
    /// fencelock with everybody else.
    Ours,
    /// The others with each other: what the table of fencelock's is derived from.
    Others,
    /// Both.
    All,
}

/// Every cell, both ways.
pub(crate) fn all(among: Among) -> Vec<Cell> {
    let ours = if among == Among::Others { &[] } else { &OURS[..] };
    let others = if among == Among::Ours { &[] } else { &OTHERS[..] };
    ours.iter().chain(others).flat_map(both_ways).collect()
}

fn both_ways(pair: &Pair) -> Vec<Cell> {
    let Pair { first, second, second_tries, first_tries } = *pair;
    let mutual = second_tries == Waits && first_tries == Waits;
    let mut cells = vec![Cell { holder: first, contender: second, expected: second_tries, mutual }];
    if first != second {
        cells.push(Cell { holder: second, contender: first, expected: first_tries, mutual });
    }
    cells
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clients::Nodes;

    #[test]
    fn every_pair_of_ours_is_played_both_ways_and_once() {
        let cells = all(Among::All);
        let ways: std::collections::BTreeSet<_> =
            cells.iter().map(|cell| (cell.holder.title, cell.contender.title)).collect();
        assert_eq!(ways.len(), cells.len());
        assert!(cells.iter().all(|cell| ways.contains(&(cell.contender.title, cell.holder.title))));
        let is_ours = |client: &Client| client.program == Program::Fencelock;
        assert!(all(Among::Ours).iter().all(|cell| is_ours(cell.holder) || is_ours(cell.contender)));
        assert!(all(Among::Others).iter().all(|cell| !is_ours(cell.holder) && !is_ours(cell.contender)));
    }

    #[test]
    fn one_parent_for_all_names_is_played_by_itself() {
        let together = |client: &Client| client.nodes == Nodes::Together;
        assert!(all(Among::All).iter().all(|cell| together(cell.holder) == together(cell.contender)));
    }

    #[test]
    fn the_documents_say_of_every_pair_what_is_played() {
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/");
        let documents = ["curator", "kazoo", "go-zk"];
        let read = |name: &str| std::fs::read_to_string(format!("{folder}coming-from-{name}.md")).unwrap();
        let text = documents.map(read).concat().replace(['`', '*'], "");
        let word = |expected| match expected {
            Waits => "waits",
            Granted => "gets it too",
            Shares => "shares it",
            Refused => "is refused",
        };
        for Pair { first, second, second_tries, first_tries } in &OURS {
            let words = (word(*second_tries), word(*first_tries));
            let row = format!("| {} | {} | {} | {} |\n", first.title, second.title, words.0, words.1);
            assert!(text.contains(&row), "no document says: {row}");
        }
        assert_eq!(text.lines().filter(|line| line.starts_with("| fencelock dialect")).count(), OURS.len());
    }
}
