//! The pairs of clients that are played, and the expected results.

use crate::clients::{
    BARE, CURATOR, CURATOR_54, CURATOR_54_READ, CURATOR_54_WRITE, CURATOR_59, CURATOR_DIALECT_READ,
    CURATOR_DIALECT_SEATS, CURATOR_DIALECT_WRITE, CURATOR_READ, CURATOR_SEATS, CURATOR_SEMAPHORE,
    CURATOR_SEMAPHORE_MUTEX, CURATOR_WRITE, Client, GO_LOCK, KAZOO, KAZOO_DIALECT_READ, KAZOO_DIALECT_SEATS,
    KAZOO_DIALECT_WRITE, KAZOO_EXTRA, KAZOO_EXTRA_READ_WRITE, KAZOO_LOCK, KAZOO_READ, KAZOO_SEATS, KAZOO_SEMAPHORE,
    KAZOO_WRITE, OWN, PLAIN, Program, SHARED, ZK_LOCK,
};

/// The result of a try while another client holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Expected {
    /// The client waits.
    Waits,
    /// The client waits without a notice of the release, and looks again after the time that its own lock would live.
    Sleeps,
    /// The client gets the lock as well: nothing makes the two exclude each other in this direction.
    Granted,
    /// The client gets the lock as well, as readers should.
    Shares,
    /// The client is refused, with the message that the name has another kind of lock.
    Refused,
}

/// The act of the holder.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Scene {
    /// Holds, and lets go, or is killed.
    Hold,
    /// Writes, continues as a reader, and releases.
    Downgrade,
    /// Holds at several masters, and one of them is killed.
    Killed,
    /// Holds at several masters, and one of them falls silent.
    Silent,
}

/// A holder and a client that tries.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Cell {
    pub(crate) holder: &'static Client,
    pub(crate) contender: &'static Client,
    pub(crate) expected: Expected,
    /// Whether each client waits for the other, so that both may count together.
    pub(crate) mutual: bool,
    pub(crate) scene: Scene,
}

impl Cell {
    /// The side that is fencelock; the holder if both are.
    pub(crate) fn ours(&self) -> Option<&'static Client> {
        [self.holder, self.contender].into_iter().find(|client| client.program == Program::Fencelock)
    }

    /// Whether two processes of each side take part: where fencelock does, and each client waits for the other.
    pub(crate) fn has_twins(&self) -> bool {
        self.scene == Scene::Hold && self.mutual && self.ours().is_some()
    }
}

/// Two clients: the result for the second while the first holds, and the reverse.
pub(crate) struct Pair {
    pub(crate) first: &'static Client,
    pub(crate) second: &'static Client,
    pub(crate) second_tries: Expected,
    pub(crate) first_tries: Expected,
}

pub(crate) const fn pair(
    first: &'static Client,
    second: &'static Client,
    second_tries: Expected,
    first_tries: Expected,
) -> Pair {
    Pair { first, second, second_tries, first_tries }
}

use Expected::{Granted, Refused, Shares, Waits};

/// Mutexes of fencelock and of every other client.
static MUTEXES: [Pair; 21] = [
    pair(&CURATOR, &CURATOR, Waits, Waits),
    pair(&CURATOR, &CURATOR_59, Waits, Waits),
    pair(&CURATOR, &CURATOR_54, Waits, Waits),
    pair(&CURATOR, &GO_LOCK, Waits, Waits),
    pair(&CURATOR, &KAZOO_EXTRA, Waits, Waits),
    pair(&CURATOR, &PLAIN, Waits, Waits),
    pair(&CURATOR, &KAZOO, Waits, Waits),
    // kazoo without extra patterns does not see what Curator's family writes.
    pair(&CURATOR, &KAZOO_LOCK, Granted, Waits),
    // Curator's read-write lock does not see its mutexes; fencelock sees the other kind of lock, and refuses.
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
    // Our names begin with an id, as all names do that survive a lost reply; a search for names that begin with the key misses them.
    pair(&SHARED, &OWN, Granted, Waits),
];

/// Read-write locks of fencelock and of every other client. Another kind of lock in the same place is refused: Curator and kazoo
/// do not see ours then, or wait, for every path that their recipes make of the name.
static READ_WRITE: [Pair; 38] = [
    pair(&CURATOR_DIALECT_WRITE, &CURATOR_DIALECT_WRITE, Waits, Waits),
    pair(&CURATOR_DIALECT_WRITE, &CURATOR_DIALECT_READ, Waits, Waits),
    pair(&CURATOR_DIALECT_READ, &CURATOR_DIALECT_READ, Shares, Shares),
    pair(&CURATOR_DIALECT_WRITE, &CURATOR_WRITE, Waits, Waits),
    pair(&CURATOR_DIALECT_WRITE, &CURATOR_READ, Waits, Waits),
    pair(&CURATOR_DIALECT_READ, &CURATOR_WRITE, Waits, Waits),
    pair(&CURATOR_DIALECT_READ, &CURATOR_READ, Shares, Shares),
    pair(&CURATOR_DIALECT_WRITE, &CURATOR_54_WRITE, Waits, Waits),
    pair(&CURATOR_DIALECT_WRITE, &CURATOR_54_READ, Waits, Waits),
    pair(&CURATOR_DIALECT_READ, &CURATOR_54_WRITE, Waits, Waits),
    pair(&CURATOR_DIALECT_READ, &CURATOR_54_READ, Shares, Shares),
    pair(&CURATOR_DIALECT_WRITE, &CURATOR, Refused, Refused),
    pair(&CURATOR_DIALECT_READ, &CURATOR, Refused, Refused),
    pair(&CURATOR_DIALECT_WRITE, &CURATOR_59, Granted, Refused),
    pair(&CURATOR_DIALECT_READ, &CURATOR_59, Granted, Refused),
    pair(&CURATOR_DIALECT_WRITE, &CURATOR_SEMAPHORE_MUTEX, Granted, Granted),
    pair(&CURATOR_DIALECT_WRITE, &GO_LOCK, Waits, Refused),
    pair(&CURATOR_DIALECT_READ, &GO_LOCK, Waits, Refused),
    pair(&CURATOR_DIALECT_WRITE, &KAZOO_EXTRA_READ_WRITE, Waits, Refused),
    pair(&CURATOR_DIALECT_READ, &KAZOO_EXTRA_READ_WRITE, Waits, Refused),
    pair(&CURATOR_DIALECT_WRITE, &KAZOO_LOCK, Granted, Refused),
    pair(&CURATOR_DIALECT_WRITE, &KAZOO_WRITE, Granted, Refused),
    pair(&CURATOR_DIALECT_READ, &KAZOO_READ, Granted, Refused),
    pair(&CURATOR_DIALECT_WRITE, &KAZOO_SEMAPHORE, Waits, Granted),
    pair(&CURATOR_DIALECT_WRITE, &KAZOO_DIALECT_WRITE, Refused, Refused),
    pair(&KAZOO_DIALECT_WRITE, &KAZOO_DIALECT_WRITE, Waits, Waits),
    pair(&KAZOO_DIALECT_WRITE, &KAZOO_DIALECT_READ, Waits, Waits),
    pair(&KAZOO_DIALECT_READ, &KAZOO_DIALECT_READ, Shares, Shares),
    pair(&KAZOO_DIALECT_WRITE, &KAZOO_WRITE, Waits, Waits),
    pair(&KAZOO_DIALECT_WRITE, &KAZOO_READ, Waits, Waits),
    pair(&KAZOO_DIALECT_READ, &KAZOO_WRITE, Waits, Waits),
    pair(&KAZOO_DIALECT_READ, &KAZOO_READ, Shares, Shares),
    pair(&KAZOO_DIALECT_WRITE, &KAZOO_LOCK, Waits, Waits),
    // kazoo's plain lock does not look at readers.
    pair(&KAZOO_DIALECT_READ, &KAZOO_LOCK, Granted, Waits),
    pair(&KAZOO_DIALECT_WRITE, &KAZOO, Refused, Refused),
    pair(&KAZOO_DIALECT_WRITE, &CURATOR_WRITE, Granted, Refused),
    pair(&KAZOO_DIALECT_WRITE, &GO_LOCK, Waits, Refused),
    pair(&KAZOO_DIALECT_WRITE, &KAZOO_SEMAPHORE, Waits, Granted),
];

/// Semaphores of fencelock and of every other client: no other semaphore has our layout.
static SEMAPHORES: [Pair; 10] = [
    pair(&CURATOR_DIALECT_SEATS, &CURATOR_DIALECT_SEATS, Waits, Waits),
    pair(&CURATOR_DIALECT_SEATS, &KAZOO_DIALECT_SEATS, Waits, Waits),
    pair(&CURATOR_DIALECT_SEATS, &CURATOR, Refused, Refused),
    pair(&CURATOR_DIALECT_SEATS, &CURATOR_DIALECT_WRITE, Refused, Refused),
    pair(&CURATOR_DIALECT_SEATS, &CURATOR_SEATS, Granted, Granted),
    pair(&CURATOR_DIALECT_SEATS, &CURATOR_SEMAPHORE_MUTEX, Granted, Granted),
    pair(&CURATOR_DIALECT_SEATS, &CURATOR_59, Granted, Refused),
    // kazoo's semaphore counts all nodes.
    pair(&CURATOR_DIALECT_SEATS, &KAZOO_SEATS, Waits, Granted),
    pair(&CURATOR_DIALECT_SEATS, &KAZOO_LOCK, Granted, Refused),
    pair(&CURATOR_DIALECT_SEATS, &GO_LOCK, Waits, Refused),
];

/// A writer that continues as a reader, a client that waits for the lock, and the result of the wait.
type Downgrade = (&'static Client, &'static Client, Expected);

static DOWNGRADES: [Downgrade; 15] = [
    (&CURATOR_DIALECT_WRITE, &CURATOR_DIALECT_WRITE, Waits),
    (&CURATOR_DIALECT_WRITE, &CURATOR_DIALECT_READ, Shares),
    (&CURATOR_DIALECT_WRITE, &CURATOR_WRITE, Waits),
    (&CURATOR_DIALECT_WRITE, &CURATOR_READ, Shares),
    (&CURATOR_DIALECT_WRITE, &CURATOR_54_WRITE, Waits),
    (&CURATOR_WRITE, &CURATOR_DIALECT_WRITE, Waits),
    (&CURATOR_WRITE, &CURATOR_DIALECT_READ, Shares),
    // Up to 5.4 the reader queues anew, behind the writer that waits.
    (&CURATOR_54_WRITE, &CURATOR_DIALECT_WRITE, Granted),
    (&CURATOR_WRITE, &CURATOR_WRITE, Waits),
    (&CURATOR_WRITE, &CURATOR_READ, Shares),
    (&CURATOR_54_WRITE, &CURATOR_54_WRITE, Granted),
    (&KAZOO_DIALECT_WRITE, &KAZOO_DIALECT_WRITE, Waits),
    (&KAZOO_DIALECT_WRITE, &KAZOO_DIALECT_READ, Shares),
    (&KAZOO_DIALECT_WRITE, &KAZOO_WRITE, Waits),
    (&KAZOO_DIALECT_WRITE, &KAZOO_READ, Shares),
];

/// Other clients with each other.
static OTHERS: [Pair; 34] = [
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
    pair(&CURATOR_WRITE, &CURATOR_54_READ, Waits, Waits),
    pair(&CURATOR_READ, &CURATOR_54_WRITE, Waits, Waits),
    pair(&CURATOR_WRITE, &GO_LOCK, Waits, Granted),
    pair(&CURATOR_WRITE, &KAZOO_EXTRA_READ_WRITE, Waits, Granted),
    pair(&CURATOR_READ, &KAZOO_EXTRA_READ_WRITE, Waits, Granted),
    pair(&CURATOR_WRITE, &KAZOO_SEMAPHORE, Waits, Granted),
    pair(&KAZOO_WRITE, &KAZOO_WRITE, Waits, Waits),
    pair(&KAZOO_WRITE, &KAZOO_READ, Waits, Waits),
    pair(&KAZOO_READ, &KAZOO_READ, Shares, Shares),
    // kazoo's plain lock does not look at readers.
    pair(&KAZOO_LOCK, &KAZOO_READ, Waits, Granted),
    pair(&KAZOO_SEMAPHORE, &KAZOO_SEMAPHORE, Waits, Waits),
    pair(&CURATOR_SEMAPHORE_MUTEX, &CURATOR_SEMAPHORE_MUTEX, Waits, Waits),
    pair(&CURATOR_SEMAPHORE_MUTEX, &CURATOR_SEMAPHORE, Waits, Waits),
    pair(&KAZOO_SEATS, &KAZOO_SEATS, Waits, Waits),
    pair(&CURATOR_SEATS, &CURATOR_SEATS, Waits, Waits),
];

/// Which pairs are played.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Among {
    /// fencelock with every other client.
    Ours,
    /// Other clients with each other: the source of fencelock's table.
    Others,
    /// Both.
    All,
}

/// On which servers cells are played.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum On {
    /// Cells on ZooKeeper.
    Zookeeper,
    /// Cells on Redis.
    Redis,
    /// Cells on PostgreSQL and MariaDB.
    Sql,
    /// Cells on etcd.
    Etcd,
    /// All.
    All,
}

/// fencelock and every other client on ZooKeeper.
fn ours() -> impl Iterator<Item = &'static Pair> {
    MUTEXES.iter().chain(&READ_WRITE).chain(&SEMAPHORES)
}

/// The words of the documents and of the table for it.
pub(crate) fn words_of(expected: Expected) -> &'static str {
    match expected {
        Waits => "waits",
        Expected::Sleeps => "sleeps",
        Granted => "gets it too",
        Shares => "shares it",
        Refused => "is refused",
    }
}

/// Whether two hold the lock then, or a waiter sleeps: the pages `docs/coming-from-…` repeat the exceptions.
#[cfg(test)]
pub(crate) fn is_no_exclusion(expected: &Expected) -> bool {
    matches!(expected, Granted | Expected::Sleeps)
}

/// The text of all pairs, and of the pages for users of these clients; without marks.
#[cfg(test)]
pub(crate) fn written(kind: &str, clients: &[&str]) -> (String, String) {
    let read = |path: String| {
        std::fs::read_to_string(format!("{}/../../{path}", env!("CARGO_MANIFEST_DIR"))).unwrap().replace(['`', '*'], "")
    };
    let pages = clients.iter().map(|client| read(format!("docs/coming-from-{client}.md"))).collect();
    (read(format!("interop/who-waits-{kind}.md")), pages)
}

/// Every cell on ZooKeeper, both ways. Cells that take longest, and have most processes, come first.
pub(crate) fn all(among: Among) -> Vec<Cell> {
    let downgrade = |&(holder, contender, expected): &Downgrade| {
        let scene = Scene::Downgrade;
        Cell { holder, contender, expected, mutual: false, scene }
    };
    let downgrades = DOWNGRADES.iter().map(downgrade);
    chosen(among, ours().chain(&OTHERS).flat_map(both_ways).chain(downgrades).collect())
}

/// The played ones of `cells`, in their order.
pub(crate) fn chosen(among: Among, mut cells: Vec<Cell>) -> Vec<Cell> {
    cells.retain(|cell| match among {
        Among::Ours => cell.ours().is_some(),
        Among::Others => cell.ours().is_none(),
        Among::All => true,
    });
    cells.sort_by_key(|cell| (!cell.has_twins(), cell.expected != Waits));
    cells
}

pub(crate) fn both_ways(pair: &Pair) -> Vec<Cell> {
    let Pair { first, second, second_tries, first_tries } = *pair;
    let mutual = second_tries == Waits && first_tries == Waits;
    let cell = |holder, contender, expected| Cell { holder, contender, expected, mutual, scene: Scene::Hold };
    let mut cells = vec![cell(first, second, second_tries)];
    if first != second {
        cells.push(cell(second, first, first_tries));
    }
    cells
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clients::Nodes;

    #[test]
    fn every_pair_is_played_both_ways_and_once() {
        let cells = all(Among::All);
        let is_downgrade = |cell: &Cell| cell.scene == Scene::Downgrade;
        let ways: std::collections::BTreeSet<_> =
            cells.iter().map(|cell| (cell.holder.title, cell.contender.title, is_downgrade(cell))).collect();
        assert_eq!(ways.len(), cells.len());
        for cell in cells.iter().filter(|cell| !is_downgrade(cell)) {
            assert!(ways.contains(&(cell.contender.title, cell.holder.title, false)), "{cell:?}");
        }
        let is_ours = |cell: &Cell| cell.ours().is_some();
        assert!(all(Among::Ours).iter().all(is_ours) && !all(Among::Others).iter().any(is_ours));
        assert_eq!(all(Among::Ours).len() + all(Among::Others).len(), cells.len());
    }

    #[test]
    fn one_parent_for_all_names_is_played_by_itself() {
        let together = |client: &Client| client.nodes == Nodes::Together;
        assert!(all(Among::All).iter().all(|cell| together(cell.holder) == together(cell.contender)));
    }

    #[test]
    fn the_documents_say_of_every_pair_what_is_played() {
        let (text, pages) = written("zookeeper", &["curator", "kazoo", "go-zk"]);
        let has = |row: String, tells: &[Expected]| {
            assert!(text.contains(&row), "interop/who-waits-zookeeper.md lacks: {row}");
            assert!(!tells.iter().any(is_no_exclusion) || pages.contains(&row), "no page says: {row}");
        };
        for Pair { first, second, second_tries, first_tries } in ours() {
            let words = (words_of(*second_tries), words_of(*first_tries));
            let row = format!("| {} | {} | {} | {} |\n", first.title, second.title, words.0, words.1);
            has(row, &[*second_tries, *first_tries]);
        }
        for (holder, waiter, tells) in &DOWNGRADES {
            has(format!("| {} downgrades | {} | {} |\n", holder.title, waiter.title, words_of(*tells)), &[*tells]);
        }
        let rows = |of: fn(&&str) -> bool| text.lines().filter(of).count();
        let is_pair = |line: &&str| line.starts_with("| fencelock layout=") && !line.contains(" downgrades |");
        assert_eq!(rows(is_pair), ours().count());
        assert_eq!(rows(|line| line.contains(" downgrades |")), DOWNGRADES.len());
    }
}
